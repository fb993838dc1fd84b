//! A process that dies in the middle, and a person who stops a turn: what is known is said, and nothing runs twice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::{PATIENCE, Server, text};

/// The Team's newest receipt, once it is so.
async fn newest(server: &Server, state: &str) -> Value {
    let page = server
        .owner
        .until_that("teams/demo/receipts", |page| {
            page["items"][0]["state"] == state
        })
        .await;
    page["items"][0].clone()
}

async fn control(server: &Server) -> Value {
    server.owner.get("agents/ada/queue").await["control"].clone()
}

/// D01, D08, D39.
#[tokio::test]
async fn a_killed_server_leaves_the_item_uncertain_and_nothing_runs_twice() {
    let mut server = Server::start().await;
    let log = server.workspace().await.join("log");
    let command = "run: echo begun >> log; sleep 60; echo ended >> log";
    let first = server.owner.say("ada", command).await;
    let second = server.owner.say("ada", "run: cat log").await;
    let third = server.owner.say("ada", "say: three").await;
    let begun = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default() != "begun\n" {
        assert!(begun.elapsed() < PATIENCE, "the command never began");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.kill_hard();
    for _ in 0..2 {
        server.restart();
        let first = server.owner.until(&first, "uncertain").await;
        let page = server.owner.get("agents/ada/queue").await;
        let listed: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (text(&item["id"]), text(&item["status"])))
            .collect();
        let expected = [
            (&first, "uncertain"),
            (&second, "pending"),
            (&third, "pending"),
        ];
        assert_eq!(
            listed,
            expected.map(|(item, status)| (text(&item["id"]), status.to_owned()))
        );
        assert_eq!(
            (&page["control"]["paused"], &page["control"]["reason"]),
            (&json!(true), &json!("interrupted"))
        );
        // What is proven gone is released; a lease that cannot prove it would stay here with its reason.
        let admin = server.administrator();
        admin
            .until_that("instance/leases", |page| page["items"] == json!([]))
            .await;
        assert_eq!(server.containers(), "");
        server.kill_hard();
    }
    server.restart();
    let receipt = &server.owner.get("teams/demo/receipts").await["items"][0];
    assert_ne!(receipt["state"], "succeeded");
    assert_eq!(receipt["exitCode"], Value::Null);

    let uncertain = server.owner.until(&first, "uncertain").await;
    let id = text(&uncertain["id"]);
    let acknowledge = json!({"expectedRevision": uncertain["revision"], "acknowledge": true});
    let closed = server
        .owner
        .post(&format!("agents/ada/queue/{id}/reconcile"), &acknowledge)
        .await;
    assert_eq!(closed["status"], "cancelled");
    let paused = control(&server).await;
    assert_eq!(paused["paused"], true);
    let now = server.owner.until(&second, "pending").await;
    assert_eq!(now["turnId"], Value::Null);

    let resume = json!({"expectedRevision": paused["revision"]});
    server.owner.post("agents/ada/queue/resume", &resume).await;
    server.owner.until(&third, "completed").await;
    server.owner.until(&second, "completed").await;
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "begun\n");
    let receipts = server.owner.get("teams/demo/receipts").await["items"].clone();
    assert_eq!(receipts.as_array().unwrap().len(), 2, "{receipts}");
    assert_eq!(receipts[0]["output"]["tail"], "begun\n");
    server.stop();
}

/// D46, Q085.
#[tokio::test]
async fn d046_a_stop_ends_the_container_within_ten_seconds() {
    let mut server = Server::start().await;
    let item = server.owner.say("ada", "run: sleep 300").await;
    newest(&server, "running").await;
    assert_ne!(server.containers(), "");
    let expected = json!({"expectedRevision": control(&server).await["revision"]});
    let asked = Instant::now();
    let stopped = server.owner.post("agents/ada/queue/stop", &expected).await;
    assert_eq!(
        (&stopped["active"], &stopped["paused"], &stopped["reason"]),
        (&json!(true), &json!(true), &json!("operator_stop"))
    );
    while !server.containers().is_empty() {
        assert!(asked.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let receipt = newest(&server, "cancelled").await;
    assert_eq!(receipt["cleanup"], "confirmed");
    let ended = server.owner.until(&item, "cancelled").await;
    assert_eq!(ended["diagnostic"]["code"], "stopped");
    assert_eq!(control(&server).await["reason"], "operator_stop");
    server.stop();
}
