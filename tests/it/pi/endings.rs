//! Stop, loss and failure, with the real engine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bazilion::ids::ConversationId;
use bazilion::runtime::{AgentEvent, OpenCall, Outcome, RuntimeError, ToolAnswer, ToolCall};
use serde_json::json;

use super::harness::{KEY, Turn, turns_dir};
use super::turns::conversation_of;
use crate::support::model::{FakeModel, Reply, eventually, last_is_tool};

/// Runs a turn until its tool is called, and leaves the call open.
async fn until_call(turn: &mut Turn) -> ToolCall {
    loop {
        tokio::select! {
            Some(call) = turn.calls.recv() => return call,
            Some(event) = turn.session.next() => {
                if let AgentEvent::Line { raw } = event {
                    turn.lines.push(raw);
                }
            }
        }
    }
}

#[tokio::test]
async fn an_aborted_tool_waits_for_the_hosts_answer() {
    let model =
        FakeModel::start(|_| Reply::call("coding_command", json!({"command": "sleep 60"}))).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Sleep.").await;
    let call = until_call(&mut turn).await;
    assert!(!call.cancelled.is_cancelled());
    turn.session.abort().await.unwrap();
    call.cancelled.cancelled().await;
    // Cancelled, not yet cleaned up: the turn is not over.
    let early = tokio::time::timeout(Duration::from_millis(300), async {
        while !matches!(turn.next().await.unwrap(), AgentEvent::Settled { .. }) {}
    });
    assert!(early.await.is_err(), "settled before the host answered");
    call.reply
        .send(ToolAnswer::error("cancelled, cleanup confirmed"))
        .unwrap();
    let outcome = turn.settle_without_tools().await;
    assert_eq!(outcome, Outcome::Aborted);
    let lines = turn.end().await;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("cancelled, cleanup confirmed"))
    );
}

#[tokio::test]
async fn an_abort_cuts_a_silent_model() {
    let model = FakeModel::start(|_| Reply::Stall("I begin")).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Speak.").await;
    while !matches!(turn.next().await.unwrap(), AgentEvent::TextDelta { .. }) {}
    assert!(turn.session.model_silence().is_some());
    let stopped = Instant::now();
    turn.session.abort().await.unwrap();
    assert_eq!(turn.settle_without_tools().await, Outcome::Aborted);
    assert!(stopped.elapsed() < Duration::from_secs(5));
    eventually("the provider's connection is closed", || {
        turn.session.model_silence().is_none()
    })
    .await;
    let lines = turn.end().await;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("\"stopReason\":\"aborted\""))
    );
}

/// The process of a conversation and its private directory, found by its environment.
pub fn process_of(conversation: ConversationId) -> (i32, PathBuf) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let turn = environment
            .split('\0')
            .find_map(|e| e.strip_prefix("BAZILION_TURN="));
        let Some(dir) = turn.and_then(|turn| Path::new(turn).parent()) else {
            continue;
        };
        if dir.join(format!("session/{conversation}.jsonl")).exists() {
            return (
                entry.file_name().to_str().unwrap().parse().unwrap(),
                dir.to_owned(),
            );
        }
    }
    panic!("no engine of {conversation} runs");
}

#[tokio::test]
async fn a_killed_engine_is_an_interruption_and_its_open_call_is_recorded() {
    let model = FakeModel::start(|request| {
        if last_is_tool(request) {
            Reply::text("I look first.")
        } else {
            Reply::call("coding_command", json!({"command": "make deploy"}))
        }
    })
    .await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Deploy.").await;
    let call = until_call(&mut turn).await;
    let conversation = conversation_of(&turn.lines);
    let pid = rustix::process::Pid::from_raw(process_of(conversation).0).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    call.cancelled.cancelled().await;
    while turn.next().await.is_some() {}
    let ended = turn.session.end().await;
    assert!(
        matches!(ended.result, Err(RuntimeError::Interrupted(_))),
        "{:?}",
        ended.result
    );
    assert_eq!(ended.lines as usize, turn.lines.len());

    let mut again = Turn::resume(&model, conversation, turn.lines)
        .await
        .unwrap();
    let open = OpenCall {
        call_id: "call_1".into(),
        name: "coding_command".into(),
    };
    assert_eq!(again.session.unknown_outcomes(), [open]);
    again.prompt("Go on.").await;
    assert_eq!(
        again.settle(|_| ToolAnswer::text("deployed")).await,
        Outcome::Stop
    );
    let lines = again.end().await;
    assert!(lines.iter().any(|line| line.contains("outcome is unknown")));
    assert!(
        model.seen()[1]
            .body
            .to_string()
            .contains("outcome is unknown")
    );
}

#[tokio::test]
async fn a_dropped_session_ends_its_engine_and_its_directory() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let conversation = ConversationId::new();
    let turn = Turn::resume(&model, conversation, Vec::new())
        .await
        .unwrap();
    let (process, dir) = process_of(conversation);
    let process = format!("/proc/{process}");
    drop(turn);
    eventually("the engine and its directory are gone", || {
        !Path::new(&process).exists() && !dir.exists()
    })
    .await;
}

#[tokio::test]
async fn a_refused_key_ends_the_turn_at_once_and_shows_no_part_of_the_key() {
    let body = format!(
        "{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY} (sk-test-***ghij)\"}}}}"
    );
    let model = FakeModel::start(move |_| Reply::Status(401, body.clone())).await;
    let mut turn = Turn::start(&model).await;
    turn.prompt("Hello.").await;
    let Outcome::Error { message } = turn.settle_without_tools().await else {
        panic!("no error")
    };
    assert!(message.contains("Incorrect API key provided"), "{message}");
    assert_eq!(model.seen().len(), 1);
    let lines = turn.end().await;
    assert!(
        !lines
            .iter()
            .any(|line| line.contains(KEY) || line.contains("sk-test-"))
    );
}

#[tokio::test]
async fn a_busy_provider_is_asked_again() {
    for status in [429, 500] {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let model = FakeModel::start(move |_| {
            if tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                Reply::Status(status, r#"{"error":{"message":"Try later."}}"#.into())
            } else {
                Reply::text("Now.")
            }
        })
        .await;
        let mut turn = Turn::start(&model).await;
        turn.prompt("Hello.").await;
        assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
        assert!(
            turn.events
                .iter()
                .any(|event| matches!(event, AgentEvent::Retry { attempt: 1, .. }))
        );
        turn.end().await;
    }
}

#[tokio::test]
async fn the_key_is_nowhere_in_the_engine() {
    let model = FakeModel::start(|_| Reply::Stall("I begin")).await;
    let conversation = ConversationId::new();
    let mut turn = Turn::resume(&model, conversation, Vec::new())
        .await
        .unwrap();
    turn.prompt("Speak.").await;
    while !matches!(turn.next().await.unwrap(), AgentEvent::TextDelta { .. }) {}
    let (process, dir) = process_of(conversation);
    for file in ["environ", "cmdline"] {
        let content = std::fs::read(format!("/proc/{process}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains(KEY));
    }
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("PATH="), "{environment}");
    assert_eq!(dir.parent().unwrap(), turns_dir());
    let mut folders = vec![dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                assert!(!String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(KEY));
                assert_ne!(
                    path.file_name().unwrap(),
                    "token",
                    "the token's file is read once"
                );
            }
        }
    }
    turn.session.abort().await.unwrap();
    turn.settle_without_tools().await;
    turn.end().await;
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_transcript_that_breaks_its_rules_is_refused_and_not_replaced() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let conversation = ConversationId::new();
    let header = |id: &str, cwd: &str| {
        json!({"type": "session", "version": 3, "id": id, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": cwd}).to_string()
    };
    let id = conversation.to_string();
    let orphan =
        json!({"type": "custom", "customType": "x", "id": "b", "parentId": "a", "timestamp": "t"});
    for lines in [
        vec![header("another", "/usr")],
        vec![header(&id, "/tmp")],
        vec!["no header".to_owned()],
        vec![header(&id, "/usr"), orphan.to_string()],
    ] {
        let refused = Turn::resume(&model, conversation, lines)
            .await
            .err()
            .unwrap();
        assert!(matches!(refused, RuntimeError::Transcript(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_session_that_is_ended_in_a_call_cancels_it_and_hands_over_every_line() {
    let model =
        FakeModel::start(|_| Reply::call("coding_command", json!({"command": "make"}))).await;
    let conversation = ConversationId::new();
    let mut turn = Turn::resume(&model, conversation, Vec::new())
        .await
        .unwrap();
    turn.prompt("Build.").await;
    let call = until_call(&mut turn).await;
    let (process, _) = process_of(conversation);
    let host = tokio::spawn(async move {
        call.cancelled.cancelled().await;
        call.reply
    });
    let ended = turn.session.end().await;
    assert!(matches!(ended.result, Err(RuntimeError::Interrupted(_))));
    turn.lines.extend(ended.late);
    assert_eq!(ended.lines as usize, turn.lines.len());
    let file: String = turn.lines.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(ended.sha256, bazilion::secret::digest(file.as_bytes()));
    assert!(!Path::new(&format!("/proc/{process}")).exists());
    drop(host.await.unwrap());
}

#[tokio::test]
async fn what_an_ended_server_left_is_swept_and_what_a_live_one_uses_stays() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let conversation = ConversationId::new();
    let turn = Turn::resume(&model, conversation, Vec::new())
        .await
        .unwrap();
    let (_, live) = process_of(conversation);
    let left = turns_dir().join(format!("bz-{conversation}"));
    std::fs::create_dir_all(&left).unwrap();
    drop(std::os::unix::net::UnixListener::bind(left.join("socket")).unwrap());
    super::harness::runtime().await;
    assert!(live.exists() && !left.exists());
    turn.end().await;
}
