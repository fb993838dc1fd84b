//! The turn's socket and the model gateway, seen from outside.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::post;
use bazilion::ids::ConversationId;
use bazilion::runtime::{AgentEvent, AgentRuntime as _, ModelApi, Outcome, RuntimeError, Usage};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::endings::process_of;
use super::harness::{self, KEY, Turn};
use crate::support::model::{FakeModel, Reply};

type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

async fn messages(
    State(seen): State<Seen>,
    headers: HeaderMap,
    body: axum::Json<Value>,
) -> impl IntoResponse {
    seen.lock().unwrap().push((headers, body.0));
    let usage = json!({"input_tokens": 20, "output_tokens": 1, "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2});
    let message = json!({"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m",
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Good day."}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let events = events.map(|event| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    });
    ([("content-type", "text/event-stream")], events.concat())
}

#[tokio::test]
async fn the_other_protocol_takes_the_same_way() {
    let seen = Seen::default();
    let app = Router::new()
        .route("/v1/messages", post(messages))
        .with_state(Arc::clone(&seen));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let unused = FakeModel::start(|_| Reply::text("unused")).await;
    let (mut launch, calls) = harness::launch(&unused, Vec::new(), ConversationId::new());
    launch.gateway.api = ModelApi::AnthropicMessages;
    launch.gateway.base_url = base;
    let session = harness::runtime().await.start(launch).await.unwrap();
    let mut turn = Turn {
        session,
        calls,
        lines: Vec::new(),
        events: Vec::new(),
    };
    turn.prompt("Greet me.").await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    assert_eq!(turn.text(), "Good day.");
    let counted = turn.events.iter().find_map(|event| match event {
        AgentEvent::Usage(usage) => Some(*usage),
        _ => None,
    });
    let expected = Usage {
        input: 20,
        output: 7,
        cache_read: 3,
        cache_write: 2,
    };
    assert_eq!(counted, Some(expected));
    turn.end().await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].0["x-api-key"], KEY);
    assert!(!seen[0].0.contains_key("authorization"));
    assert!(!seen[0].1["tools"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn the_socket_answers_nobody_without_the_turns_token() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let conversation = ConversationId::new();
    let mut turn = Turn::resume(&model, conversation, Vec::new())
        .await
        .unwrap();
    let (_, dir) = process_of(conversation);
    for request in [
        "GET /context",
        "POST /tool",
        "POST /cancel",
        "POST /model/v1/chat/completions",
    ] {
        let mut socket = UnixStream::connect(dir.join("socket")).await.unwrap();
        let text = format!(
            "{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            "0".repeat(64)
        );
        socket.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{request}: {answer}");
    }
    assert!(turn.calls.try_recv().is_err());
    assert!(model.seen().is_empty());
    turn.end().await;
}

#[tokio::test]
async fn a_private_address_is_refused_where_it_is_not_allowed() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let port = model.base_url();
    let (mut launch, _calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    launch.gateway.allow_private = false;
    let refused = harness::runtime().await.start(launch).await.err().unwrap();
    assert!(matches!(refused, RuntimeError::Start(_)));

    let (mut launch, calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    launch.gateway.allow_private = false;
    launch.gateway.base_url = port.replace("127.0.0.1", "localhost");
    let session = harness::runtime().await.start(launch).await.unwrap();
    let mut turn = Turn {
        session,
        calls,
        lines: Vec::new(),
        events: Vec::new(),
    };
    turn.prompt("Hello.").await;
    while !matches!(turn.next().await.unwrap(), AgentEvent::Retry { .. }) {}
    turn.session.abort().await.unwrap();
    turn.settle_without_tools().await;
    assert!(model.seen().is_empty());
    turn.end().await;
}

#[tokio::test]
async fn an_endpoint_without_a_key_is_sent_none() {
    let model = FakeModel::start(|_| Reply::text("ok")).await;
    let (mut launch, calls) = harness::launch(&model, Vec::new(), ConversationId::new());
    launch.gateway.key = None::<SecretString>;
    let session = harness::runtime().await.start(launch).await.unwrap();
    let mut turn = Turn {
        session,
        calls,
        lines: Vec::new(),
        events: Vec::new(),
    };
    turn.prompt("Hello.").await;
    assert_eq!(turn.settle_without_tools().await, Outcome::Stop);
    turn.end().await;
    assert!(!model.seen()[0].headers.contains_key("authorization"));
}
