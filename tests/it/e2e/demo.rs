//! The demo's turn, from a message to evidence, with nothing left behind.

use std::path::Path;
use std::process::Command;

use http::Method;
use serde_json::{Value, json};

use crate::support::server::{Server, text};

/// What git says of a workspace that may belong to another user.
fn changes(workspace: &Path) -> String {
    let said = Command::new("git")
        .arg("-c")
        .arg(format!("safe.directory={}", workspace.display()))
        .args(["status", "--porcelain", "--untracked-files=all"])
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// Receipts of the demo's Team, oldest first.
async fn receipts(server: &Server) -> Vec<Value> {
    let page = server.owner.get("teams/demo/receipts").await;
    let mut receipts = page["items"].as_array().unwrap().clone();
    receipts.reverse();
    receipts
}

async fn assert_nothing_is_left(server: &Server) {
    let admin = server.administrator();
    admin
        .until_that("instance/leases", |page| page["items"] == json!([]))
        .await;
    assert_eq!(server.containers(), "");
}

#[tokio::test]
async fn the_demo_turn_fails_then_mends_then_passes() {
    let mut server = Server::start().await;
    let workspace = server.workspace().await;
    assert_eq!(changes(&workspace), "");

    let message = "Fix the failing test and run it";
    let chat = server.run(&["agent", "chat", "ada", "--message", message, "--wait"]);
    let said = String::from_utf8_lossy(&chat.stdout).into_owned();
    assert_eq!(chat.status.code(), Some(0), "{chat:?}");
    assert!(said.contains("scripted rehearsal"), "{said}");

    let receipts = receipts(&server).await;
    let ends: Vec<_> = receipts
        .iter()
        .map(|receipt| (&receipt["state"], &receipt["exitCode"], &receipt["cleanup"]))
        .collect();
    let (failed, succeeded, confirmed) = (json!("failed"), json!("succeeded"), json!("confirmed"));
    assert_eq!(
        ends,
        [
            (&failed, &json!(1), &confirmed),
            (&succeeded, &json!(0), &confirmed)
        ]
    );
    assert!(text(&receipts[0]["output"]["tail"]).contains("FAILED"));
    assert_eq!(changes(&workspace), " M parcels.py\n");
    let mended = std::fs::read_to_string(workspace.join("parcels.py")).unwrap();
    assert!(mended.contains("if grams <= limit:"), "{mended}");

    let queue = server.owner.get("agents/ada/queue?view=all").await;
    let items = queue["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]["status"]), (1, &json!("completed")));
    let talk = text(&items[0]["conversationId"]);
    let page = server
        .owner
        .get(&format!("agents/ada/conversations/{talk}/messages"))
        .await;
    let messages = page["items"].as_array().unwrap();
    let (first, last) = (messages.first().unwrap(), messages.last().unwrap());
    assert_eq!(
        (&first["role"], &first["text"]),
        (&json!("user"), &json!(message))
    );
    assert_eq!(last["role"], "assistant");
    assert!(said.contains(text(&last["text"]).lines().next().unwrap()));

    assert_nothing_is_left(&server).await;
    server.stop();
}

/// D26: now, after it ended, and after a restart.
#[tokio::test]
async fn d026_an_exact_retry_of_a_directed_turn_returns_the_same_item() {
    let mut server = Server::start().await;
    let bob = json!({"name": "bob", "team": "demo", "profile": "developer"});
    server.owner.post("agents", &bob).await;

    let input = server
        .owner
        .input("bob", "run: echo once >> log; cat log; exit 3")
        .await;
    let item = server.owner.post("agents/bob/queue", &input).await;
    let again = server.owner.post("agents/bob/queue", &input).await;
    assert_eq!(again["id"], item["id"]);
    let done = server.owner.until(&item, "completed").await;
    let again = server.owner.post("agents/bob/queue", &input).await;
    assert_eq!(
        (&again["id"], &again["turnId"]),
        (&item["id"], &done["turnId"])
    );

    let mut other = input.clone();
    other["message"] = json!("run: echo twice >> log");
    let (status, body) = server
        .owner
        .send(Method::POST, "agents/bob/queue", other.to_string())
        .await;
    assert_eq!(status, 409, "{body}");

    let receipts = receipts(&server).await;
    assert_eq!(
        (receipts.len(), &receipts[0]["exitCode"]),
        (1, &json!(3)),
        "{receipts:?}"
    );
    assert_eq!(receipts[0]["output"]["tail"], "once\n");
    assert_nothing_is_left(&server).await;

    server.stop();
    server.restart();
    let again = server.owner.post("agents/bob/queue", &input).await;
    assert_eq!(
        (&again["id"], &again["status"]),
        (&item["id"], &json!("completed"))
    );
    let log = server.workspace().await.join("log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "once\n");
    server.stop();
}
