//! `/api/attention`.

use serde_json::{Value, json};

use super::door::{Door, queue_of};

async fn matters(door: &Door) -> Vec<Value> {
    let list = door.get("/api/attention").await.good();
    list["items"].as_array().unwrap().clone()
}

async fn kinds(door: &Door) -> Vec<String> {
    let mut kinds: Vec<String> = matters(door)
        .await
        .iter()
        .map(|matter| matter["kind"].as_str().unwrap().to_owned())
        .collect();
    kinds.sort();
    kinds
}

#[tokio::test]
async fn what_needs_a_person_is_listed_with_its_one_action() {
    let door = Door::new().await;
    door.team("parser").await;
    let ada = door.agent("Ada", "parser").await;
    let bob = door.agent("Bob", "parser").await;
    assert!(matters(&door).await.is_empty());

    door.execute("UPDATE policy_edges SET effect = 'approval_required' WHERE source = 'user'")
        .await;
    let input = door.input(&ada, "a private text").await;
    let held = door.post(&queue_of(&ada), &input).await.good();
    let pause = format!("{}/pause", queue_of(&bob));
    door.post(&pause, &json!({"expectedRevision": 0}))
        .await
        .good();

    let found = matters(&door).await;
    assert_eq!(kinds(&door).await, ["held", "paused"], "{found:?}");
    let first = &found[0];
    assert_eq!(
        (
            &first["kind"],
            &first["agentName"],
            &first["agentId"],
            &first["itemId"]
        ),
        (&json!("held"), &json!("Ada"), &ada["id"], &held["id"])
    );
    for matter in &found {
        assert!(!matter["action"].as_str().unwrap().is_empty());
        assert!(matter["since"].as_str().unwrap().ends_with('Z'), "{matter}");
        assert!(!matter.to_string().contains("private"), "{matter}");
    }

    door.execute("UPDATE home_usage SET receipts = 90, max_receipts = 100")
        .await;
    assert_eq!(kinds(&door).await, ["held", "paused", "receipts"]);
    door.execute("UPDATE home_usage SET receipts = 89").await;
    assert_eq!(kinds(&door).await, ["held", "paused"]);
}

#[tokio::test]
async fn a_failure_is_shown_for_a_day() {
    let door = Door::new().await;
    door.team("parser").await;
    let ada = door.agent("Ada", "parser").await;
    for text in ["one", "two"] {
        let input = door.input(&ada, text).await;
        door.post(&queue_of(&ada), &input).await.good();
    }
    door.execute(
        "UPDATE queue_items SET status = 'failed', diagnostic_code = 'x', diagnostic_message = 'As the test says.',
             finished_at = now() - CASE text WHEN 'one' THEN interval '25 h' ELSE interval '23 h' END",
    )
    .await;
    let found = matters(&door).await;
    let texts: Vec<&Value> = found.iter().map(|matter| &matter["text"]).collect();
    assert_eq!(texts, ["As the test says."], "{found:?}");
}
