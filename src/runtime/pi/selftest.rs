//! One real turn against a model of our own, after an installation: two model calls and a tool.
//!
//! - It proves Node, Pi, the extension, the socket and the gateway together, without a network and without a key.
//! - It fills Node's compile cache, which later turns only read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::PiRuntime;
use super::install::PiInstall;
use crate::clock::Clock;
use crate::ids::ConversationId;
use crate::limits::ENGINE_SELFTEST_TIMEOUT;
use crate::runtime::{
    AgentEvent, AgentRuntime as _, AgentSession, ExecutionMode, GatewayTarget, Launch, Model,
    ModelApi, Outcome, Prompt, Reasoning, RuntimeError, ToolAnswer, ToolCall, ToolSpec,
};

const TOOL: &str = "selftest";
const WORD: &str = "works";

/// Runs the turn; returns how long it took from start to end.
pub async fn run(
    install: &PiInstall,
    turns: &Path,
    clock: Arc<dyn Clock>,
) -> Result<Duration, RuntimeError> {
    let begun = Instant::now();
    let runtime = PiRuntime::new(install.filling_cache(), turns.to_owned(), clock)?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(RuntimeError::io("no loopback port is free"))?;
    let address = listener
        .local_addr()
        .map_err(RuntimeError::io("no loopback port is free"))?;
    let app = Router::new().route("/v1/chat/completions", post(answer));
    let _server = AbortOnDropHandle::new(tokio::spawn(
        async move { axum::serve(listener, app).await },
    ));
    let (calls, received) = mpsc::channel(1);
    let mut session = runtime
        .start(launch(format!("http://{address}/v1"), calls))
        .await?;
    let prompt = Prompt {
        text: "Call the tool.".into(),
        ..Prompt::default()
    };
    session.prompt(prompt).await?;
    let turn =
        tokio::time::timeout(ENGINE_SELFTEST_TIMEOUT, watch(session.as_mut(), received)).await;
    let outcome = turn.map_err(|_| RuntimeError::NotReady("its self-test does not end".into()))?;
    session.end().await.result?;
    if outcome == Some((Outcome::Stop, WORD.to_owned())) {
        Ok(begun.elapsed())
    } else {
        Err(RuntimeError::NotReady(format!(
            "its self-test ended with {outcome:?}"
        )))
    }
}

fn launch(base_url: String, calls: mpsc::Sender<ToolCall>) -> Launch {
    Launch {
        conversation: ConversationId::new(),
        lines: Vec::new(),
        reasoning: Reasoning::Off,
        system_prompt: "A self-test.".into(),
        tools: vec![ToolSpec {
            name: TOOL.into(),
            description: "Answers.".into(),
            parameters: json!({ "type": "object", "properties": {} }),
            execution_mode: ExecutionMode::Sequential,
        }],
        calls,
        gateway: GatewayTarget {
            api: ModelApi::OpenaiCompletions,
            base_url,
            key: None,
            model: Model::named("selftest"),
            allow_private: true,
        },
    }
}

/// The turn's end and its text.
async fn watch(
    session: &mut dyn AgentSession,
    mut calls: mpsc::Receiver<ToolCall>,
) -> Option<(Outcome, String)> {
    let mut said = String::new();
    loop {
        tokio::select! {
            Some(call) = calls.recv() => {
                let reply = call.reply.send(ToolAnswer::text(WORD));
                debug_assert!(reply.is_ok(), "the extension waits for every answer");
            }
            event = session.next() => match event? {
                AgentEvent::TextDelta { text } => said.push_str(&text),
                AgentEvent::Settled { outcome, .. } => return Some((outcome, said)),
                _ => {}
            },
        }
    }
}

/// Calls the tool first, then repeats what it said.
async fn answer(body: Bytes) -> impl IntoResponse {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let last = request["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .cloned();
    let last = last.unwrap_or_default();
    let (delta, reason) = if last["role"] == "tool" {
        (json!({ "content": last["content"] }), "stop")
    } else {
        let call = json!({ "name": TOOL, "arguments": "{}" });
        let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": call });
        (json!({ "tool_calls": [call] }), "tool_calls")
    };
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        let chunk = json!({ "id": "selftest", "object": "chat.completion.chunk", "created": 0,
            "model": "selftest", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let events = [
        chunk(delta, None),
        chunk(json!({}), Some(reason)),
        "data: [DONE]\n\n".into(),
    ];
    (
        [(header::CONTENT_TYPE, "text/event-stream")],
        events.concat(),
    )
}
