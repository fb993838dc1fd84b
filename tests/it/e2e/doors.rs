//! Who is let in, and what is refused.

use bazilion::ids::{AgentId, ItemId, TeamId};
use http::Method;
use serde_json::{Value, json};

use crate::support::server::{Door, Server, text};

/// A problem without what differs from request to request.
fn bare(body: &str) -> Value {
    let mut problem: Value = serde_json::from_str(body).unwrap();
    for own in ["instance", "requestId"] {
        problem.as_object_mut().unwrap().remove(own);
    }
    problem
}

#[tokio::test]
async fn another_home_gets_the_answer_of_an_unknown_id_for_everything() {
    let server = Server::start().await;
    let new = json!({"slug": "other", "name": "Other", "ownerEmail": "other@localhost"});
    server.administrator().post("instance/homes", &new).await;
    let other = server.door("other");
    assert_eq!(other.get("whoami").await["home"]["slug"], "other");

    let item = server.owner.say("ada", "say: hello").await;
    let done = server.owner.until(&item, "completed").await;
    let (agent, team) = (text(&done["agentId"]), text(&done["teamId"]));
    let (item, talk) = (text(&done["id"]), text(&done["conversationId"]));
    let (no_agent, no_team) = (AgentId::new().to_string(), TeamId::new().to_string());
    let no_item = ItemId::new().to_string();
    let pairs = [
        (format!("agents/{agent}"), format!("agents/{no_agent}")),
        ("agents/ada".into(), "agents/nobody".into()),
        (
            format!("agents/{agent}/queue"),
            format!("agents/{no_agent}/queue"),
        ),
        (
            format!("agents/{agent}/queue/{item}"),
            format!("agents/{no_agent}/queue/{no_item}"),
        ),
        (
            format!("agents/{agent}/conversations/{talk}/messages"),
            format!("agents/{no_agent}/conversations/{talk}/messages"),
        ),
        (
            format!("agents/{agent}/events"),
            format!("agents/{no_agent}/events"),
        ),
        (format!("teams/{team}"), format!("teams/{no_team}")),
        ("teams/demo".into(), "teams/nothing".into()),
        (
            format!("teams/{team}/receipts"),
            format!("teams/{no_team}/receipts"),
        ),
        (
            format!("teams/{team}/coding-environment"),
            format!("teams/{no_team}/coding-environment"),
        ),
    ];
    for (real, random) in &pairs {
        let (status, body) = other.send(Method::GET, real, "").await;
        let (unknown, nothing) = other.send(Method::GET, random, "").await;
        assert_eq!((status, unknown), (404, 404), "{real}: {body}");
        assert_eq!(bare(&body), bare(&nothing), "{real}");
    }
    let input = server.owner.input("ada", "hello").await.to_string();
    let (status, _) = other
        .send(Method::POST, &format!("agents/{agent}/queue"), input)
        .await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn bad_input_is_refused_by_its_kind_and_stores_nothing() {
    let server = Server::start().await;
    let good = server.owner.input("ada", "hello").await;
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body.to_string()
    };
    let file = json!({"name": "a.txt", "mimeType": "text/plain", "data": "YQ=="});
    let cases = [
        ("an unknown field", with("colour", json!("red")), 422),
        ("a wrong type", with("message", json!(7)), 422),
        ("a broken id", with("requestId", json!("seven")), 422),
        ("broken JSON", "{\"message\": ".to_owned(), 400),
        (
            "a text of 64 KiB and one byte",
            with("message", json!("a".repeat(64 * 1024 + 1))),
            422,
        ),
        ("17 files", with("attachments", json!(vec![file; 17])), 422),
        ("nothing said", with("message", json!(" ")), 422),
    ];
    for (what, body, expected) in cases {
        let (status, body) = server
            .owner
            .send(Method::POST, "agents/ada/queue", body)
            .await;
        assert_eq!(status, expected, "{what}: {body}");
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert!(problem["code"].is_string(), "{what}: {body}");
    }
    let queue = server.owner.get("agents/ada/queue?view=all").await;
    assert_eq!(queue["items"], json!([]));
}

#[tokio::test]
async fn d118_nothing_of_the_api_answers_without_a_credential() {
    let server = Server::start().await;
    let document = server.owner.get("openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 30, "{}", paths.len());
    for token in ["", "bz_broken"] {
        let stranger = Door::new(server.url(), token);
        for (path, verbs) in paths {
            let below = path.trim_start_matches("/api/").replace(['{', '}'], "");
            for verb in verbs.as_object().unwrap().keys() {
                let method: Method = verb.to_uppercase().parse().unwrap();
                let (status, body) = stranger.send(method, &below, "{}").await;
                assert_eq!(status, 401, "{verb} {path} with {token:?}: {body}");
            }
        }
    }
}
