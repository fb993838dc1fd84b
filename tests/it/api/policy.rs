//! `/api/teams/:team/policy`.

use axum::http::Method;
use bazilion::identity::{Role, Scopes};
use serde_json::{Value, json};

use super::door::{Door, queue_of};

const PATH: &str = "/api/teams/parser/policy";

async fn team_with_two() -> (Door, Value, Value) {
    let door = Door::new().await;
    door.team("parser").await;
    let ada = door.agent("Ada", "parser").await;
    let bob = door.agent("Bob", "parser").await;
    (door, ada, bob)
}

#[tokio::test]
async fn a_team_begins_with_everybody_allowed_inside_and_shows_it() {
    let (door, ada, bob) = team_with_two().await;
    let policy = door.get(PATH).await.good();
    let edges = policy["edges"].as_array().unwrap();
    assert_eq!(edges.len(), 6, "{policy}");
    for edge in [
        json!({"source": "user", "sourceAgentId": null, "target": "agent", "targetAgentId": ada["id"], "effect": "allow"}),
        json!({"source": "agent", "sourceAgentId": bob["id"], "target": "user", "targetAgentId": null, "effect": "allow"}),
        json!({"source": "agent", "sourceAgentId": ada["id"], "target": "agent", "targetAgentId": bob["id"], "effect": "allow"}),
    ] {
        assert!(edges.contains(&edge), "{edge} in {policy}");
    }
    let team = door.get("/api/teams/parser").await.good();
    assert_eq!(team["policyRevision"], policy["revision"]);
}

#[tokio::test]
async fn a_change_decides_the_next_input_and_a_stale_one_changes_nothing() {
    let (door, ada, _) = team_with_two().await;
    let before = door.get(PATH).await.good();
    let asks = json!([{"source": "user", "target": "agent", "targetAgentId": ada["id"], "effect": "approval_required"}]);
    let body = json!({"expectedRevision": before["revision"], "edges": asks});
    let now = door.put(PATH, &body).await.good();
    assert_eq!(now["revision"], before["revision"].as_i64().unwrap() + 1);
    assert_eq!(now, door.get(PATH).await.good());
    let stale = door.put(PATH, &body).await;
    stale.refuses(409, "revision_conflict");
    assert_eq!(stale.json["current"], now);
    let written = "SELECT count(*) FROM audit WHERE action = 'team.policy' AND outcome = 'ok'";
    assert_eq!(door.count(written).await, 1);

    let input = door.input(&ada, "one").await;
    let item = door.post(&queue_of(&ada), &input).await.good();
    assert_eq!(item["status"], "held");
    let approve = format!(
        "/api/approvals/{}/approve",
        item["approvalId"].as_str().unwrap()
    );
    let approved = door.post(&approve, &Value::Null).await.good();
    assert_eq!(approved["state"], "approved");
    door.post(&approve, &Value::Null)
        .await
        .refuses(409, "approval_conflict");

    let closed = json!({"expectedRevision": now["revision"], "edges": []});
    door.put(PATH, &closed).await.good();
    let input = door.input(&ada, "two").await;
    door.post(&queue_of(&ada), &input)
        .await
        .refuses(403, "communication_denied");
    assert_eq!(door.count("SELECT count(*) FROM queue_items").await, 1);
}

#[tokio::test]
async fn an_edge_names_agents_of_the_team_once_and_known_words() {
    let (door, ada, _) = team_with_two().await;
    door.team("lexer").await;
    let eve = door.agent("Eve", "lexer").await;
    let before = door.get(PATH).await.good();
    let good =
        json!({"source": "user", "target": "agent", "targetAgentId": ada["id"], "effect": "allow"});
    let id = &ada["id"];
    let cases = [
        (
            json!([{"source": "user", "target": "agent", "targetAgentId": eve["id"], "effect": "allow"}]),
            "edges[0].targetAgentId",
        ),
        (
            json!([{"source": "user", "target": "agent", "effect": "allow"}]),
            "edges[0].targetAgentId",
        ),
        (
            json!([{"source": "user", "sourceAgentId": id, "target": "agent", "targetAgentId": id, "effect": "allow"}]),
            "edges[0].sourceAgentId",
        ),
        (
            json!([{"source": "user", "target": "outside_team", "effect": "allow"}]),
            "edges[0]",
        ),
        (
            json!([{"source": "agent", "sourceAgentId": id, "target": "agent", "targetAgentId": id, "effect": "allow"}]),
            "edges[0]",
        ),
        (json!([good, good]), "edges[1]"),
        (
            json!([{"source": "everybody", "target": "agent", "targetAgentId": id, "effect": "allow"}]),
            "edges[0].source",
        ),
        (
            json!([{"source": "user", "target": "agent", "targetAgentId": id, "effect": "deny"}]),
            "edges[0].effect",
        ),
    ];
    for (edges, path) in cases {
        let body = json!({"expectedRevision": before["revision"], "edges": edges});
        door.put(PATH, &body).await.refuses_field(path);
    }
    for revision in [json!(-1), json!(1.5), json!("1")] {
        let body = json!({"expectedRevision": revision, "edges": []});
        door.put(PATH, &body)
            .await
            .refuses_field("expectedRevision");
    }
    assert_eq!(door.get(PATH).await.good(), before);
}

#[tokio::test]
async fn who_does_not_own_the_home_reads_the_policy_and_cannot_change_it() {
    let (door, ..) = team_with_two().await;
    let operator = door.mint(door.home, Role::Operator, Scopes::ALL).await;
    let reader = Scopes {
        read: true,
        ..Scopes::default()
    };
    let reader = door.mint(door.home, Role::Owner, reader).await;
    let stranger = door.stranger().await;
    let body = json!({"expectedRevision": 1, "edges": []}).to_string();
    let json = Some("application/json");
    for (token, status, code) in [
        (&operator, 403, "forbidden"),
        (&reader, 403, "insufficient_scope"),
        (&stranger, 404, "not_found"),
    ] {
        let answer = door
            .ask(Some(token), Method::PUT, PATH, json, body.clone())
            .await;
        answer.refuses(status, code);
    }
    let read = door.ask(Some(&operator), Method::GET, PATH, None, "").await;
    assert_eq!(read.status, 200);
}
