//! The rehearsal: a scripted model on loopback, so that everything but the thinking can be tried without a key and
//! without a network.
//!
//! - It speaks the protocol of a real provider and drives the real loop: it reads, runs the failing test, edits, runs
//!   it again, reads the receipt, answers.
//! - It knows the sample repository ([`sample`]); outcomes it reads from the results it is given, and when something is
//!   not as the script expects, it says so and stops.
//! - Every answer says that it is scripted.
//!
//! A person can also direct it. A message whose first line is a directive is a script, one directive a line:
//!
//! | line | what it does |
//! | --- | --- |
//! | `say: TEXT` (or `say TEXT`) | ends with that answer |
//! | `run: COMMAND` | one `coding_command` |
//! | `tool: NAME {JSON}` | one call of any tool |
//! | `together: NAME {JSON} \| NAME {JSON}` | several calls in one message |
//! | `stall` | begins an answer and then sends nothing more |
//! | `error STATUS` | the provider answers with that HTTP status |
//!
//! A script without an answer of its own ends with one that repeats what each step came to.

pub mod sample;
mod script;
mod wire;

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use self::script::Step;
use self::wire::Chat;
use crate::limits::MODEL_REQUEST_MAX;

/// The provider's name where it is listed.
pub const PROVIDER: &str = "rehearsal";
/// Its one model.
pub const MODEL: &str = "scripted";
/// A first message that makes it work through the sample repository.
pub const FIRST_MESSAGE: &str = "Fix this bug and run the relevant test.";

/// The provider, serving until it is dropped.
pub struct Rehearsal {
    address: SocketAddr,
    _server: AbortOnDropHandle<()>,
}

impl Rehearsal {
    /// Serves on a free loopback port.
    pub async fn start() -> std::io::Result<Self> {
        Self::serve(TcpListener::bind(("127.0.0.1", 0)).await?)
    }

    /// Serves on a listener that is there already.
    pub fn serve(listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let app = Router::new()
            .route("/v1/chat/completions", post(complete))
            .layer(axum::extract::DefaultBodyLimit::max(MODEL_REQUEST_MAX));
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(error = %error, "the rehearsal provider stopped");
            }
        });
        Ok(Self {
            address,
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// The base URL for the provider's settings, of kind `openai-completions`, without a key.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

async fn complete(body: Bytes) -> Response {
    let chat = match Chat::read(&body) {
        Ok(chat) => chat,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, wire::error(&error.to_string())).into_response();
        }
    };
    match script::next(&chat) {
        Step::Say(text) => stream(wire::answer(&chat, &text).into()),
        Step::Call(calls) => stream(wire::calls(&chat, &calls).into()),
        Step::Stall => {
            let begun = wire::begin(&chat, "I begin, and then I say nothing more.");
            let begun = futures_util::stream::once(async { Ok::<_, std::io::Error>(begun) });
            stream(Body::from_stream(
                begun.chain(futures_util::stream::pending()),
            ))
        }
        Step::Fail(status) => {
            let body = wire::error("The script asked for this failure.");
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
    }
}

fn stream(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
