//! The stand-in keeps the promises of the real engine that other tests build on.

use bazilion::ids::ConversationId;
use bazilion::runtime::pi::session::{Verdict, inspect};
use bazilion::runtime::{AgentEvent, AgentRuntime as _, Outcome, Prompt, RuntimeError, ToolAnswer};
use serde_json::json;

use super::harness;
use crate::support::model::{FakeModel, Reply};
use crate::support::pi_stand_in::{Beat, PiStandIn};

/// One turn; every call is answered by `answer`. Returns the lines, the outcome and whether it ended well.
async fn turn(
    pi: &PiStandIn,
    conversation: ConversationId,
    lines: Vec<String>,
) -> (Vec<String>, Option<Outcome>, Result<(), RuntimeError>) {
    let model = FakeModel::start(|_| Reply::text("unused")).await;
    let (launch, mut calls) = harness::launch(&model, lines.clone(), conversation);
    let mut session = pi.start(launch).await.unwrap();
    session
        .prompt(Prompt {
            text: "Go.".into(),
            ..Prompt::default()
        })
        .await
        .unwrap();
    let (mut lines, mut outcome) = (lines, None);
    loop {
        tokio::select! {
            Some(call) = calls.recv() => drop(call.reply.send(ToolAnswer::text("done"))),
            event = session.next() => match event {
                Some(AgentEvent::Line { raw }) => lines.push(raw),
                Some(AgentEvent::Settled { outcome: how, .. }) => outcome = Some(how),
                Some(_) => {}
                None => break,
            },
        }
    }
    let ended = session.end().await;
    assert_eq!(ended.lines as usize, lines.len());
    (lines, outcome, ended.result)
}

fn verdict(lines: &[String], conversation: ConversationId) -> Verdict {
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    inspect(file.as_bytes(), &conversation.to_string())
}

#[tokio::test]
async fn its_transcripts_are_valid_and_the_real_engine_continues_them() {
    let pi = PiStandIn::new(|_| vec![Beat::call("read", json!({"path": "a"})), Beat::say("Read.")]);
    let conversation = ConversationId::new();
    let (lines, outcome, result) = turn(&pi, conversation, Vec::new()).await;
    assert_eq!(outcome, Some(Outcome::Stop));
    result.unwrap();
    assert!(matches!(verdict(&lines, conversation), Verdict::Clean(_)));

    let model = FakeModel::start(|_| Reply::text("I know.")).await;
    let mut real = harness::Turn::resume(&model, conversation, lines)
        .await
        .unwrap();
    real.prompt("What was read?").await;
    assert_eq!(real.settle_without_tools().await, Outcome::Stop);
    real.end().await;
    assert!(model.seen()[0].body.to_string().contains("Read."));
}

#[tokio::test]
async fn its_death_in_a_call_leaves_an_open_call_behind() {
    let pi = PiStandIn::new(|_| {
        vec![Beat::DieInCall(
            "coding_command".into(),
            json!({"command": "make"}),
        )]
    });
    let conversation = ConversationId::new();
    let (lines, outcome, result) = turn(&pi, conversation, Vec::new()).await;
    assert!(outcome.is_none() && matches!(result, Err(RuntimeError::Interrupted(_))));
    assert!(
        matches!(verdict(&lines, conversation), Verdict::Repairable(survey) if survey.open.len() == 1)
    );
    let (lines, outcome, _) = turn(&PiStandIn::saying("On."), conversation, lines).await;
    assert_eq!(outcome, Some(Outcome::Stop));
    assert!(matches!(verdict(&lines, conversation), Verdict::Clean(_)));
    assert!(lines.iter().any(|line| line.contains("outcome is unknown")));
}

#[tokio::test]
async fn its_other_endings_are_those_of_the_real_engine() {
    let failing = PiStandIn::new(|_| vec![Beat::Fail("no credit".into())]);
    let (_, outcome, result) = turn(&failing, ConversationId::new(), Vec::new()).await;
    let message = "no credit".to_owned();
    assert_eq!(outcome, Some(Outcome::Error { message }));
    result.unwrap();

    let dying = PiStandIn::new(|_| vec![Beat::Die]);
    let (_, outcome, result) = turn(&dying, ConversationId::new(), Vec::new()).await;
    assert!(outcome.is_none() && matches!(result, Err(RuntimeError::Interrupted(_))));
    let started = dying.started();
    assert!(started[0].lines.is_empty());
    assert_eq!(started[0].tools, ["read", "coding_command"]);
    assert_eq!(started[0].system_prompt, "You test an engine.");
    assert_eq!(started[0].model, "test/model:1b");
    assert_eq!(dying.prompts()[0].text, "Go.");
}

#[tokio::test]
async fn it_stalls_until_it_is_aborted_and_can_be_missing() {
    let pi = PiStandIn::new(|_| vec![Beat::Stall]);
    let model = FakeModel::start(|_| Reply::text("unused")).await;
    let (launch, _calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    let mut session = pi.start(launch).await.unwrap();
    session.prompt(Prompt::default()).await.unwrap();
    session.abort().await.unwrap();
    let mut aborted = false;
    while let Some(event) = session.next().await {
        aborted |= matches!(event, AgentEvent::Settled { aborted: true, .. });
    }
    assert!(aborted);

    pi.set_missing(Some("not installed"));
    assert!(!pi.check().await.ready);
    let (launch, _calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    let refused = pi.start(launch).await.err().unwrap();
    assert!(matches!(refused, RuntimeError::NotReady(_)));
}
