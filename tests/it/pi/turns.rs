//! Whole turns of the real engine.

use bazilion::runtime::{AgentEvent, Outcome, ToolAnswer, Usage};
use serde_json::json;

use super::harness::{KEY, Turn};
use crate::support::model::{FakeModel, Reply, last, last_is_tool};

#[tokio::test]
async fn a_turn_with_one_tool_reaches_its_answer() {
    let model = FakeModel::start(|request| {
        if last_is_tool(request) {
            Reply::text("It says hello.")
        } else {
            Reply::call("read", json!({"path": "README.md"}))
        }
    })
    .await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("What does the README say?").await;
    let outcome = turn
        .settle(|call| {
            assert_eq!(
                (call.name.as_str(), call.call_id.as_str()),
                ("read", "call_1")
            );
            assert_eq!(call.arguments["path"], "README.md");
            ToolAnswer::text("hello").with_details(json!({"lines": 1}))
        })
        .await;
    assert_eq!(outcome, Outcome::Stop);
    assert_eq!(turn.text(), "It says hello.");
    let usage = AgentEvent::Usage(Usage {
        input: 11,
        output: 5,
        ..Usage::default()
    });
    assert_eq!(
        turn.events.iter().filter(|event| **event == usage).count(),
        2
    );
    let seen = model.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(last(&seen[1].body)["content"], "hello");
    let lines = turn.end().await;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("\"details\":{\"lines\":1}"))
    );
    assert!(!lines.iter().any(|line| line.contains(KEY)));
}
