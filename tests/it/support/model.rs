//! A model provider on loopback that answers as a test says: OpenAI's streaming chat completions.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

/// One answer of the model.
pub enum Reply {
    Text(Vec<String>),
    /// Calls of one assistant message: id, tool, arguments.
    Calls(Vec<(&'static str, &'static str, Value)>),
    /// A failure with its body.
    Status(u16, String),
    /// Some text, and then nothing more, for ever.
    Stall(&'static str),
    /// Pieces that are sent as they are, as the deltas of a text.
    RawDeltas(Vec<&'static str>),
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(vec![text.into()])
    }

    pub fn call(tool: &'static str, arguments: Value) -> Self {
        Self::Calls(vec![("call_1", tool, arguments)])
    }
}

type Script = dyn Fn(&Value) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
}

/// A request as it came.
#[derive(Clone)]
pub struct Seen {
    pub headers: HeaderMap,
    pub body: Value,
}

pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

impl FakeModel {
    pub async fn start(script: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
        });
        let app = Router::new()
            .route("/v1/chat/completions", post(answer))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            shared,
            _server: AbortOnDropHandle::new(server),
        }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    shared.seen.lock().unwrap().push(Seen {
        headers,
        body: body.clone(),
    });
    match (shared.script)(&body) {
        Reply::Text(parts) => stream(text_events(&parts)),
        Reply::Calls(calls) => stream(call_events(&calls)),
        Reply::Status(status, text) => (
            StatusCode::from_u16(status).unwrap(),
            [("content-type", "application/json"), ("retry-after", "0")],
            text,
        )
            .into_response(),
        Reply::Stall(text) => {
            let first = event(json!({"content": text}), None);
            let parts = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) });
            let rest = futures_util::stream::pending();
            sse(Body::from_stream(futures_util::StreamExt::chain(
                parts, rest,
            )))
        }
        Reply::RawDeltas(deltas) => {
            let mut text = String::new();
            for delta in deltas {
                text.push_str(&format!(
                    "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                     \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{delta}\"}},\"finish_reason\":null}}]}}\n\n"
                ));
            }
            stream(text + finish("stop").as_str())
        }
    }
}

fn text_events(parts: &[String]) -> String {
    let mut text = String::new();
    for part in parts {
        text.push_str(&event(json!({"content": part}), None));
    }
    text + finish("stop").as_str()
}

fn call_events(calls: &[(&str, &str, Value)]) -> String {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, arguments))| {
            json!({"index": index, "id": id, "type": "function",
                   "function": {"name": name, "arguments": arguments.to_string()}})
        })
        .collect();
    event(json!({"role": "assistant", "tool_calls": calls}), None) + finish("tool_calls").as_str()
}

fn finish(reason: &str) -> String {
    let usage = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}});
    format!(
        "{}data: {usage}\n\ndata: [DONE]\n\n",
        event(json!({}), Some(reason))
    )
}

fn event(delta: Value, finish: Option<&str>) -> String {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    format!("data: {chunk}\n\n")
}

fn stream(text: String) -> Response {
    sse(Body::from(text))
}

fn sse(body: Body) -> Response {
    ([("content-type", "text/event-stream")], body).into_response()
}

/// Whether the newest message of a request is a tool's result.
pub fn last_is_tool(request: &Value) -> bool {
    last(request)["role"] == "tool"
}

/// The newest message of a request.
pub fn last(request: &Value) -> &Value {
    request["messages"]
        .as_array()
        .and_then(|m| m.last())
        .unwrap_or(&Value::Null)
}

/// Waits until something is true; fails the test when it does not become so.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait)
        .await
        .unwrap_or_else(|_| panic!("this did not happen: {what}"));
}
