//! One invocation: a client, and where its output goes.

use serde::Deserialize;
use serde_json::Value;

use crate::console::login::Settings;
use crate::console::{Client, Exit, Failure, Out};

/// What every client verb works with.
pub struct Session<'o> {
    pub client: Client,
    pub out: &'o Out,
    /// `--server` as it was typed: a retry line repeats it.
    pub server_flag: Option<String>,
}

/// An Agent's selected conversation; new input names it, so that it can not land in another one.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    pub conversation_id: Option<String>,
    pub revision: u64,
}

/// What a command must know of an Agent before it acts.
#[derive(Debug, Clone, Deserialize)]
pub struct Agent {
    pub id: String,
    pub selection: Selection,
    pub turn: Option<Turn>,
}

/// An Agent's active turn.
#[derive(Debug, Clone, Deserialize)]
pub struct Turn {
    pub id: String,
}

impl<'o> Session<'o> {
    /// Sends nothing yet.
    pub fn new(
        settings: Settings,
        server_flag: Option<String>,
        out: &'o Out,
    ) -> Result<Self, Failure> {
        Ok(Session {
            client: Client::new(settings)?,
            out,
            server_flag,
        })
    }

    /// The Agent as it is now, by id, name or id prefix.
    pub async fn agent(&self, agent: &str) -> Result<Agent, Failure> {
        self.client.get(&["agents", agent], &[]).await
    }

    /// Shows a value and ends well.
    pub fn shown(
        &self,
        value: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> Result<Exit, Failure> {
        self.out.show(value, text);
        Ok(Exit::Ok)
    }

    /// Says in words that something was done; the server's answer is the data for scripts.
    pub fn done(&self, answer: &Value, words: &str) -> Result<Exit, Failure> {
        if self.out.is_json() {
            self.out.show(answer, |_| String::new());
        } else {
            self.out.note(words);
        }
        Ok(Exit::Ok)
    }
}

/// Keeps the items of a list whose word is this one.
pub fn keep(list: &mut Value, key: &str, word: &str) {
    if let Some(items) = list.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|item| item.get(key).and_then(Value::as_str) == Some(word));
    }
}

/// Refuses an irreversible act without its confirmation, before anything is sent.
pub fn confirmed(acknowledged: bool, what: &str) -> Result<(), Failure> {
    if acknowledged {
        return Ok(());
    }
    Err(Failure::local(
        Exit::Usage,
        "confirmation_missing",
        format!("{what} Add --acknowledge to confirm. Nothing was sent."),
    ))
}
