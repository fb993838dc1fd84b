//! A small server on loopback that answers what a test tells it to, and remembers what it was asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub const TOKEN: &str = "bzl_test";
pub const AGENT: &str = "019a0000-0000-7000-8000-00000000000a";
pub const CONVERSATION: &str = "019a0000-0000-7000-8000-00000000000c";
pub const ITEM: &str = "019a0000-0000-7000-8000-00000000001a";

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What the server does about a request.
#[derive(Clone)]
pub enum Reply {
    Json(u16, Value),
    Problem(u16, &'static str, Value),
    Raw(u16, &'static str, &'static str),
    /// The request arrives, and the connection closes without an answer.
    Lost,
    /// The request arrives, and nothing ever comes back.
    Silence,
    /// A whole event stream, then its end.
    Events(String),
}

type Script = Arc<Mutex<HashMap<String, Vec<Reply>>>>;

#[derive(Clone, Default)]
struct Shared {
    script: Script,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// The server, and a home directory for the program.
pub struct Scripted {
    pub url: String,
    pub home: PathBuf,
    shared: Shared,
}

impl Scripted {
    /// A server that knows the Agent `ada` with a selected conversation.
    pub async fn start() -> Self {
        let shared = Shared::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let app = Router::new().fallback(answer).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let server = Scripted {
            url: format!("http://{address}"),
            home: scratch_directory(),
            shared,
        };
        server.on(
            "GET /api/agents/ada",
            Reply::Json(200, agent(Some(CONVERSATION), 4)),
        );
        server
    }

    /// The next reply to a request; the last one told is repeated for ever.
    pub fn on(&self, request: &str, reply: Reply) {
        let mut script = self.shared.script.lock().expect("the script");
        script.entry(request.to_owned()).or_default().push(reply);
    }

    /// Forgets the replies to a request.
    pub fn forget(&self, request: &str) {
        self.shared
            .script
            .lock()
            .expect("the script")
            .remove(request);
    }

    /// Requests with this method and path so far.
    pub fn asked(&self, request: &str) -> Vec<Asked> {
        let asked = self.shared.asked.lock().expect("the record");
        let same = |one: &&Asked| format!("{} {}", one.method, one.path) == request;
        asked.iter().filter(same).cloned().collect()
    }

    pub fn asked_anything(&self) -> bool {
        !self.shared.asked.lock().expect("the record").is_empty()
    }

    /// Runs the program, signed in to this server.
    pub async fn run(&self, words: &[&str]) -> Ran {
        let mut command = program(&self.home);
        command
            .env("BAZILION_SERVER", &self.url)
            .env("BAZILION_TOKEN", TOKEN);
        Ran::of(
            command
                .args(words)
                .output()
                .await
                .expect("the program runs"),
        )
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// The program with nothing of this machine's settings.
pub fn program(home: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_bazilion"));
    command
        .env_clear()
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .stdin(std::process::Stdio::null())
        .current_dir(home)
        .kill_on_drop(true);
    command
}

/// A run of the program.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// Standard output as the one JSON document that it must be.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    /// The retry command that was printed first.
    pub fn retry_line(&self) -> String {
        let line = self
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("exact retry: "));
        line.unwrap_or_else(|| panic!("no retry line in {}", self.stderr))
            .to_owned()
    }
}

pub fn agent(conversation: Option<&str>, revision: u64) -> Value {
    json!({
        "id": AGENT, "name": "ada", "team": "default", "status": "active",
        "selection": {"conversationId": conversation, "revision": revision},
        "turn": null, "queue": {"open": 0, "paused": false, "controlRevision": 0},
    })
}

pub fn item(status: &str) -> Value {
    json!({
        "id": ITEM, "agentId": AGENT, "teamId": "team-1", "conversationId": CONVERSATION,
        "status": status, "revision": 2, "turnId": "turn-1", "position": 1, "waitingFor": null,
    })
}

fn scratch_directory() -> PathBuf {
    let name = format!("bazilion-cli-{}", bazilion::ids::RequestId::new());
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&path).expect("a scratch directory");
    path
}

async fn answer(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let body = axum::body::to_bytes(body, 64 << 20)
        .await
        .unwrap_or_default();
    let path = uri.path().to_owned();
    let key = format!("{method} {path}");
    let asked = Asked {
        method,
        path,
        query: uri.query().unwrap_or_default().to_owned(),
        headers,
        body,
    };
    shared.asked.lock().expect("the record").push(asked);
    let reply = {
        let mut script = shared.script.lock().expect("the script");
        match script.get_mut(&key) {
            Some(replies) if replies.len() > 1 => Some(replies.remove(0)),
            Some(replies) => replies.first().cloned(),
            None => None,
        }
    };
    match reply {
        Some(Reply::Silence) => std::future::pending().await,
        Some(reply) => reply.into_response(),
        None => Reply::Problem(404, "not_found", json!({})).into_response(),
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let with = |status: u16, kind: &'static str, body: String| {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, [(header::CONTENT_TYPE, kind)], body).into_response()
        };
        match self {
            Reply::Json(status, value) => with(status, "application/json", value.to_string()),
            Reply::Problem(status, code, extras) => {
                let mut problem = json!({
                    "type": "about:blank", "title": code, "status": status, "code": code,
                    "detail": format!("refused: {code}"),
                });
                if let (Some(problem), Some(extras)) = (problem.as_object_mut(), extras.as_object())
                {
                    problem.extend(extras.clone());
                }
                with(status, "application/problem+json", problem.to_string())
            }
            Reply::Raw(status, kind, body) => with(status, kind, body.to_owned()),
            Reply::Events(body) => with(200, "text/event-stream", body),
            // Ends the connection's task without the noise of a panic.
            Reply::Silence => unreachable!("answered before"),
            Reply::Lost => std::panic::resume_unwind(Box::new("the answer is lost")),
        }
    }
}

/// Durable and live events as they stand on the wire.
pub fn events(told: &[(Option<u64>, &str, Value)]) -> String {
    let mut text = String::from(": open\n\n");
    for (id, kind, document) in told {
        if let Some(id) = id {
            text.push_str(&format!("id: {id}\n"));
        }
        text.push_str(&format!("event: {kind}\ndata: {document}\n\n"));
    }
    text
}
