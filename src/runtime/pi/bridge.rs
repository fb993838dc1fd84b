//! The turn's socket: the only thing Pi can talk to. Tool calls become [`ToolCall`]s, model requests go to the
//! [`Gateway`].
//!
//! - One socket per turn in a private directory; each request carries the turn's token.
//! - A cancelled call is still answered by the host; the connection waits for it.
//! - A lost connection cancels the call. It never counts as its end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path as UrlPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq as _;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::gateway::Gateway;
use crate::limits::{MODEL_REQUEST_MAX, TOOL_CALL_MAX};
use crate::runtime::{RuntimeError, ToolAnswer, ToolCall};

/// The serving side of a turn's socket. Dropping it stops the service and cuts the model's connection.
pub(super) struct Bridge {
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

struct Shared {
    token: SecretString,
    calls: mpsc::Sender<ToolCall>,
    /// Calls under way, by the extension's own number.
    live: Mutex<HashMap<u64, CancellationToken>>,
    context: Mutex<Option<String>>,
    gateway: Gateway,
}

impl Bridge {
    /// Listens at `socket`, which must not exist.
    pub(super) fn open(
        socket: &Path,
        token: SecretString,
        calls: mpsc::Sender<ToolCall>,
        gateway: Gateway,
    ) -> Result<Self, RuntimeError> {
        let listener = UnixListener::bind(socket)
            .map_err(RuntimeError::io("the turn's socket cannot be made"))?;
        let shared = Arc::new(Shared {
            token,
            calls,
            live: Mutex::default(),
            context: Mutex::default(),
            gateway,
        });
        let app = router(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::warn!(error = %error, "a turn's socket stopped serving");
            }
        });
        Ok(Self {
            shared,
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// Sets what the extension puts beside the next prompt.
    pub(super) fn set_context(&self, context: Option<String>) {
        *self
            .shared
            .context
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = context;
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.shared.gateway.cut();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/context", get(context))
        .route(
            "/tool",
            post(tool).layer(DefaultBodyLimit::max(TOOL_CALL_MAX)),
        )
        .route("/cancel", post(cancel))
        .route(
            "/model/{*path}",
            post(model).layer(DefaultBodyLimit::max(MODEL_REQUEST_MAX)),
        )
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            authenticate,
        ))
        .with_state(shared)
}

/// Lets a request pass that carries the turn's token, in either form that model clients use.
async fn authenticate(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.as_bytes().strip_prefix(b"Bearer "));
    let presented = bearer.or_else(|| headers.get("x-api-key").map(|v| v.as_bytes()));
    let expected = shared.token.expose_secret().as_bytes();
    if presented.is_some_and(|token| bool::from(token.ct_eq(expected))) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "This is not the turn's token.").into_response()
    }
}

async fn context(State(shared): State<Arc<Shared>>) -> axum::Json<Value> {
    let context = shared
        .context
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    axum::Json(json!({ "context": context }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolRequest {
    call: u64,
    tool: String,
    tool_call_id: String,
    arguments: Map<String, Value>,
}

/// Takes a call out of the table and cancels it when its connection is gone before the answer.
struct LiveCall {
    shared: Arc<Shared>,
    number: u64,
    cancelled: CancellationToken,
    answered: bool,
}

impl Drop for LiveCall {
    fn drop(&mut self) {
        self.shared.live().remove(&self.number);
        if !self.answered {
            self.cancelled.cancel();
        }
    }
}

impl Shared {
    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn tool(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let request: ToolRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let cancelled = CancellationToken::new();
    shared.live().insert(request.call, cancelled.clone());
    let mut live = LiveCall {
        shared: Arc::clone(&shared),
        number: request.call,
        cancelled: cancelled.clone(),
        answered: false,
    };
    let (reply, answer) = oneshot::channel();
    let call = ToolCall {
        name: request.tool,
        call_id: request.tool_call_id,
        arguments: request.arguments,
        cancelled,
        reply,
    };
    let answer = match shared.calls.send(call).await {
        Ok(()) => answer.await.ok(),
        Err(_) => None,
    };
    live.answered = true;
    axum::Json(answer.unwrap_or_else(|| ToolAnswer::error("The turn host gave no answer.")))
        .into_response()
}

#[derive(Deserialize)]
struct CancelRequest {
    call: u64,
}

async fn cancel(
    State(shared): State<Arc<Shared>>,
    axum::Json(request): axum::Json<CancelRequest>,
) -> axum::Json<Value> {
    if let Some(cancelled) = shared.live().get(&request.call) {
        cancelled.cancel();
    }
    axum::Json(json!({}))
}

async fn model(
    State(shared): State<Arc<Shared>>,
    UrlPath(path): UrlPath<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    shared.gateway.forward(&path, &headers, body).await
}
