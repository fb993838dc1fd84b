//! `login`, `whoami`, `status`, `attention`.

use serde_json::{Value, json};

use super::Global;
use super::session::{Session, keep};
use crate::console::client::is_this_machine;
use crate::console::login::{Settings, read_secret, store};
use crate::console::output::{card, cell, table, visible};
use crate::console::{Exit, Failure, Out};

/// `bazilion login`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The token is read from --token, BAZILION_TOKEN or standard input, checked with the
server, and stored in a file that only you can read.

Examples:
  bazilion login --server http://127.0.0.1:8080
  bazilion instance token --home default | bazilion login --server http://127.0.0.1:8080")]
pub struct Login {}

impl Login {
    /// Checks the token with the server, then stores both.
    pub async fn run(self, global: &Global, out: &Out) -> Result<Exit, Failure> {
        let given = global.given();
        let server = given
            .server
            .ok_or_else(|| Failure::usage("Name the server: bazilion login --server URL"))?;
        if reqwest::Url::parse(&server)
            .is_ok_and(|url| url.scheme() == "http" && !is_this_machine(&url))
        {
            out.note("Note: this address is plain HTTP, the token will travel readable.");
        }
        let token = match given.token {
            Some(token) => token,
            None => read_secret("API token: ")?,
        };
        let settings = Settings {
            server,
            token,
            timeout: global.timeout(),
        };
        let stored = Settings {
            server: settings.server.clone(),
            token: settings.token.clone(),
            timeout: settings.timeout,
        };
        let session = Session::new(settings, global.server.clone(), out)?;
        let who: Value = session.client.get(&["whoami"], &[]).await?;
        let path = store(&stored)?;
        session.done(&who, &format!("Signed in. Stored in {}.", path.display()))?;
        if !out.is_json() {
            out.note(&identity(&who));
        }
        Ok(Exit::Ok)
    }
}

/// Who the token speaks for.
pub async fn whoami(session: &Session<'_>) -> Result<Exit, Failure> {
    let who: Value = session.client.get(&["whoami"], &[]).await?;
    session.shown(&who, identity)
}

/// Names of nested things, or plain words: whichever the server sends.
fn identity(who: &Value) -> String {
    card(
        who,
        &[
            ("operator", "/operator/email"),
            ("operator", "/email"),
            ("home", "/home/slug"),
            ("role", "/role"),
            ("scopes", "/scopes"),
            ("instance admin", "/instanceAdmin"),
            ("expires", "/expiresAt"),
        ],
    )
}

/// What needs a person, each with the one action it needs.
pub async fn attention(session: &Session<'_>) -> Result<Exit, Failure> {
    let list = session.client.list(&["attention"], &[]).await?;
    session.shown(&list, |list| {
        table(
            list,
            &[
                ("KIND", "/kind"),
                ("AGENT", "/agentName"),
                ("SINCE", "/since"),
                ("WHAT", "/text"),
                ("ACTION", "/action"),
            ],
        )
    })
}

/// What waits in each Agent's queue, and for what.
pub async fn status(session: &Session<'_>) -> Result<Exit, Failure> {
    let client = &session.client;
    let mut agents = client.list(&["agents"], &[]).await?;
    keep(&mut agents, "status", "active");
    let mut rows = Vec::new();
    for agent in agents["items"].as_array().into_iter().flatten() {
        let id = cell(agent, "/id");
        let whole: Value = client.get(&["agents", &id], &[]).await?;
        let mut head = Value::Null;
        if whole.pointer("/queue/open").and_then(Value::as_u64) > Some(0) {
            let query = [("view", "open".into()), ("limit", "1".into())];
            let mut queue: Value = client.get(&["agents", &id, "queue"], &query).await?;
            head = queue
                .pointer_mut("/items/0")
                .map(Value::take)
                .unwrap_or_default();
        }
        rows.push(json!({
            "agentId": id,
            "agent": agent.get("name"),
            "open": whole.pointer("/queue/open"),
            "paused": whole.pointer("/queue/paused"),
            "turnId": whole.pointer("/turn/id"),
            "item": head.get("id"),
            "status": head.get("status"),
            "waitingFor": head.get("waitingFor"),
        }));
    }
    session.shown(&json!({"items": rows}), |list| {
        visible(&table(
            list,
            &[
                ("AGENT", "/agent"),
                ("OPEN", "/open"),
                ("PAUSED", "/paused"),
                ("FIRST ITEM", "/item"),
                ("STATUS", "/status"),
                ("WAITS FOR", "/waitingFor"),
            ],
        ))
    })
}
