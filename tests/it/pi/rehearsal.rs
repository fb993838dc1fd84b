//! The scripted model drives the real engine through the sample repository; the commands really run.

use std::path::{Path, PathBuf};
use std::process::Command;

use bazilion::ids::ConversationId;
use bazilion::rehearsal::{FIRST_MESSAGE, MODEL, Rehearsal, sample};
use bazilion::runtime::{AgentRuntime as _, Model, Outcome, ToolAnswer, ToolCall};
use serde_json::{Value, json};

use super::harness::{self, Turn, tool};
use crate::support::model::{FakeModel, Reply};

/// A host that is just good enough for the sample.
struct Host {
    root: PathBuf,
    receipts: Vec<Value>,
}

impl Host {
    fn new() -> Self {
        let root = std::env::temp_dir().join(format!(
            "bazilion-sample-{}",
            bazilion::ids::RequestId::new()
        ));
        sample::create(&root).unwrap();
        Self {
            root,
            receipts: Vec::new(),
        }
    }

    fn answer(&mut self, call: &ToolCall) -> ToolAnswer {
        let argument = |name: &str| call.arguments[name].as_str().unwrap();
        match call.name.as_str() {
            "repository_context" => ToolAnswer::text(
                json!({"fingerprint": "f".repeat(64), "instructions": {"state": "complete", "files": [{"path": "AGENTS.md"}]},
                    "commands": {"candidates": [{"command": suggested(&self.root)}]}})
                .to_string(),
            ),
            "coding_environment" => ToolAnswer::text(json!({"posture": "docker"}).to_string()),
            "read" => ToolAnswer::text(std::fs::read_to_string(self.root.join(argument("path"))).unwrap()),
            "edit" => {
                let path = self.root.join(argument("path"));
                let text = std::fs::read_to_string(&path).unwrap();
                let edit = &call.arguments["edits"][0];
                let (old, new) = (edit["oldText"].as_str().unwrap(), edit["newText"].as_str().unwrap());
                assert_eq!(text.matches(old).count(), 1);
                std::fs::write(path, text.replace(old, new)).unwrap();
                ToolAnswer::text("edited")
            }
            "coding_command" => self.run(argument("command")),
            "coding_receipt" => {
                let mut receipt = self.receipts.iter().find(|r| r["id"] == call.arguments["id"]).unwrap().clone();
                receipt["applicability"] = json!({"state": "fresh", "reasons": []});
                ToolAnswer::text(receipt.to_string())
            }
            other => panic!("{other} is no tool of the sample"),
        }
    }

    fn run(&mut self, command: &str) -> ToolAnswer {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&self.root)
            .output()
            .unwrap();
        let state = if output.status.success() {
            "succeeded"
        } else {
            "failed"
        };
        let receipt = json!({"id": format!("receipt-{}", self.receipts.len()), "input": {"command": command},
            "state": state, "exitCode": output.status.code(),
            "output": {"tail": String::from_utf8_lossy(&output.stderr)}});
        self.receipts.push(receipt.clone());
        ToolAnswer::text(receipt.to_string())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

/// The command in the README's fence.
fn suggested(root: &Path) -> String {
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let mut lines = readme.lines().skip_while(|line| *line != "```sh");
    lines.nth(1).unwrap().to_owned()
}

async fn rehearse(lines: Vec<String>, conversation: ConversationId) -> (Rehearsal, Turn) {
    let rehearsal = Rehearsal::start().await.unwrap();
    let unused = FakeModel::start(|_| Reply::text("unused")).await;
    let (mut launch, calls) = harness::launch(&unused, lines.clone(), conversation);
    let names = [
        "repository_context",
        "coding_environment",
        "coding_command",
        "coding_receipt",
        "read",
        "edit",
    ];
    launch.tools = names.map(tool).to_vec();
    launch.gateway.base_url = rehearsal.base_url();
    launch.gateway.key = None;
    launch.gateway.model = Model::named(MODEL);
    let session = harness::runtime().await.start(launch).await.unwrap();
    let turn = Turn {
        session,
        calls,
        lines,
        events: Vec::new(),
    };
    (rehearsal, turn)
}

#[tokio::test]
async fn the_sample_is_mended_and_the_answer_tells_what_the_receipts_say() {
    let mut host = Host::new();
    assert!(host.root.join(".git/HEAD").exists());
    let conversation = ConversationId::new();
    let (_rehearsal, mut turn) = rehearse(Vec::new(), conversation).await;
    turn.prompt(FIRST_MESSAGE).await;
    assert_eq!(turn.settle(|call| host.answer(call)).await, Outcome::Stop);
    let states: Vec<&str> = host
        .receipts
        .iter()
        .map(|r| r["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["failed", "succeeded"]);
    let text = turn.text();
    for part in [
        "scripted rehearsal",
        "exit code 1",
        "exit code 0",
        "receipt-1",
        "fresh",
    ] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    let lines = turn.end().await;

    // Asked again, it finds nothing to mend.
    let (_rehearsal, mut turn) = rehearse(lines, conversation).await;
    turn.prompt(FIRST_MESSAGE).await;
    assert_eq!(turn.settle(|call| host.answer(call)).await, Outcome::Stop);
    assert!(turn.text().contains("changed nothing"), "{}", turn.text());
    turn.end().await;
}

#[tokio::test]
async fn it_follows_directives() {
    let mut host = Host::new();
    let (_rehearsal, mut turn) = rehearse(Vec::new(), ConversationId::new()).await;
    turn.prompt("run: echo to stderr >&2; exit 3\nrun: true")
        .await;
    assert_eq!(turn.settle(|call| host.answer(call)).await, Outcome::Stop);
    let text = turn.text();
    assert!(
        text.contains("failed with exit code 3, its last line: to stderr"),
        "{text}"
    );
    assert!(text.contains("`true` succeeded"), "{text}");
    turn.end().await;

    let (_rehearsal, mut turn) = rehearse(Vec::new(), ConversationId::new()).await;
    turn.prompt("say hello").await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    assert_eq!(turn.text(), "hello");
    turn.end().await;

    let (_rehearsal, mut turn) = rehearse(Vec::new(), ConversationId::new()).await;
    turn.prompt("error 400").await;
    assert!(matches!(
        turn.settle_without_tools().await,
        Outcome::Error { .. }
    ));
    turn.end().await;
}
