//! Whole turns of the real engine.

use bazilion::ids::ConversationId;
use bazilion::runtime::{AgentEvent, AgentRuntime as _, Image, Outcome, Prompt, ToolAnswer, Usage};
use serde_json::{Value, json};

use super::harness::{self, KEY, Turn};
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

#[tokio::test]
async fn exactly_the_offered_tools_reach_the_model_and_an_unknown_one_is_an_error_result() {
    let model = FakeModel::start(|request| {
        if last_is_tool(request) {
            Reply::text("There is no shell.")
        } else {
            Reply::call("bash", json!({"command": "id"}))
        }
    })
    .await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Run id.").await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    let seen = model.seen();
    let tools = seen[0].body["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools
        .iter()
        .map(|t| t["function"]["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["coding_command", "read"]);
    assert!(
        last(&seen[1].body)["content"]
            .as_str()
            .unwrap()
            .contains("not found")
    );
    turn.end().await;
}

#[tokio::test]
async fn calls_of_one_message_run_together() {
    let model = FakeModel::start(|request| {
        if last_is_tool(request) {
            return Reply::text("Both.");
        }
        Reply::Calls(vec![
            ("a", "read", json!({"path": "a"})),
            ("b", "read", json!({"path": "b"})),
        ])
    })
    .await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Read both.").await;
    let (first, second) = {
        let calls = &mut turn.calls;
        let session = &mut turn.session;
        let both = async {
            let first = calls.recv().await.unwrap();
            let second = calls.recv().await.unwrap();
            (first, second)
        };
        tokio::pin!(both);
        loop {
            tokio::select! {
                both = &mut both => break both,
                Some(event) = session.next() => if let AgentEvent::Line { raw } = event { turn.lines.push(raw) },
            }
        }
    };
    second.reply.send(ToolAnswer::text("two")).unwrap();
    first
        .reply
        .send(ToolAnswer::error("one is missing"))
        .unwrap();
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    let lines = turn.end().await;
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("\"role\":\"toolResult\""))
            .count(),
        2
    );
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("\"isError\":true"))
            .count(),
        1
    );
}

/// The user's text as the model got it.
fn received(model: &FakeModel) -> String {
    let body = &model.seen()[0].body;
    let messages = body["messages"].as_array().unwrap();
    let user = messages
        .iter()
        .find(|message| message["role"] == "user")
        .unwrap();
    match &user["content"] {
        Value::String(text) => text.clone(),
        blocks => blocks[0]["text"].as_str().unwrap().to_owned(),
    }
}

async fn says(text: &str) -> String {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt(text).await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    turn.end().await;
    received(&model)
}

#[tokio::test]
async fn d103_the_persons_text_reaches_the_model_byte_for_byte() {
    let texts = [
        "set password=hunter2 in test.env",
        "/new and /compact are words here",
        "/help",
        "!ls",
        "  leading and trailing space \n\n",
        "@README.md ${HOME} $(id) {{x}}",
    ];
    for text in texts {
        assert_eq!(says(text).await, text);
    }
}

#[tokio::test]
async fn unusual_characters_pass_in_both_directions() {
    let text = "nul \0, separators \u{2028} \u{2029} \u{85}, astral 😀, cr \r\n";
    let model = FakeModel::start(|_| {
        Reply::RawDeltas(vec![
            r"half \ud83d",
            r"\ude00, alone \ud83d, nul \u0000, sep \u2028",
        ])
    })
    .await;
    let mut turn = Turn::start(&model).await;
    turn.prompt(text).await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    assert_eq!(received(&model), text);
    assert!(turn.text().contains("nul \0, sep \u{2028}"));
    let (model, conversation) = (
        FakeModel::start(|_| Reply::text("ok")).await,
        conversation_of(&turn.lines),
    );
    let lines = turn.end().await;
    let mut again = Turn::resume(&model, conversation, lines).await.unwrap();
    again.prompt("And now?").await;
    assert_eq!(again.settle_without_tools().await, Outcome::Stop);
    again.end().await;
}

pub fn conversation_of(lines: &[String]) -> ConversationId {
    let header: Value = serde_json::from_str(&lines[0]).unwrap();
    header["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_long_prompt_is_no_problem() {
    let text = "0123456789abcdef".repeat(200 * 1024 / 16);
    assert_eq!(says(&text).await, text);
}

#[tokio::test]
async fn context_and_images_go_with_the_prompt() {
    let model = FakeModel::start(|_| Reply::text("seen")).await;
    let (mut launch, calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    launch.gateway.model.images = true;
    let session = harness::runtime().await.start(launch).await.unwrap();
    let mut turn = Turn {
        session,
        calls,
        lines: Vec::new(),
        events: Vec::new(),
    };
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let prompt = Prompt {
        text: "Look.".into(),
        images: vec![Image {
            data: pixel.into(),
            mime_type: "image/png".into(),
        }],
        context: Some("Root instructions: be brief.".into()),
    };
    turn.session.prompt(prompt).await.unwrap();
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    let body = model.seen()[0].body.to_string();
    assert!(body.contains("Root instructions: be brief."));
    assert!(body.contains("data:image/png;base64,"));
    let lines = turn.end().await;
    assert!(lines.iter().any(|line| line.contains("bazilion-context")));
}

#[tokio::test]
async fn a_second_turn_continues_the_conversation_from_its_lines() {
    let model = FakeModel::start(|_| Reply::text("I remember blue.")).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("My colour is blue.").await;
    turn.settle_without_tools().await;
    let conversation = conversation_of(&turn.lines);
    let lines = turn.end().await;
    let mut again = Turn::resume(&model, conversation, lines).await.unwrap();
    assert!(again.session.unknown_outcomes().is_empty());
    again.prompt("What is my colour?").await;
    assert_eq!(again.settle_without_tools().await, Outcome::Stop);
    again.end().await;
    let second = model.seen()[1].body["messages"].to_string();
    assert!(second.contains("My colour is blue.") && second.contains("What is my colour?"));
}

#[tokio::test]
async fn a_handoff_ends_the_turn_without_another_model_call() {
    let model = FakeModel::start(|_| Reply::call("read", json!({}))).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Hand it on.").await;
    let outcome = turn
        .settle(|_| ToolAnswer {
            terminate: true,
            ..ToolAnswer::text("handed on")
        })
        .await;
    assert_eq!(outcome, Outcome::Stop);
    assert_eq!(model.seen().len(), 1);
    turn.end().await;
}
