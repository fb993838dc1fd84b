//! `bazilion agent chat`: send input, follow the events, print the answer and each command's card.
//!
//! - The stream is opened before the request is sent, so that a fast turn is not missed.
//! - An event only says that the item has changed; its state is read from the queue.
//! - What a lost connection hid is read back at the end; each message and each card is printed once.
//! - The exit code is the item's outcome. Its words are on standard error, the answer is on standard output.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::card;
use super::session::Session;
use super::submit::{Files, Repeat, Submission};
use crate::console::events::{Event, Events};
use crate::console::output::{cell, is_watched, visible};
use crate::console::{Exit, Failure};

/// `bazilion agent chat`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bazilion agent chat ada --wait --message 'Fix the failing test and run it'"
)]
pub struct Chat {
    /// The Agent: id, name, or the first 8 characters of its id
    agent: String,
    /// What the Agent is asked to do
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(required_unless_present_any = ["files", "file"])]
    message: Option<String>,
    /// Follow the turn, print its answer and commands, and exit by its outcome
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    repeat: Repeat,
}

impl Chat {
    /// Sends, and waits if asked to.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let files = self.files.inspect()?;
        let submission = Submission::prepare(session, &self.agent, self.repeat).await?;
        let agent = submission.agent.clone();
        let events = match self.wait {
            true => Some(Events::open(&session.client, &agent).await?),
            false => None,
        };
        let mut request = submission.request();
        let message = self.message.as_deref();
        request["message"] = json!(message.unwrap_or_default());
        let verb: &[&str] = match self.wait {
            true => &["agent", "chat", &agent, "--wait"],
            false => &["agent", "chat", &agent],
        };
        let retry = submission.retry_line(session, verb, message, &files);
        let to = ["agents", agent.as_str(), "queue"];
        let sent = submission.send(session, (Method::POST, &to), request, &files, &retry);
        let item = sent.await?;
        match events {
            None => session.shown(&item, queued),
            Some(events) => {
                let item_id = cell(&item, "/id");
                let followed = Following::new(session, &agent, item).follow(events).await;
                followed.inspect_err(|_| {
                    let look = format!("bazilion queue show {agent} {item_id}");
                    session.out.note(&format!(
                        "The request is stored; only following it failed: {look}"
                    ));
                })
            }
        }
    }
}

fn queued(item: &Value) -> String {
    let waits = cell(item, "/waitingFor");
    let waits = if waits.is_empty() {
        String::new()
    } else {
        format!(", waits for {waits}")
    };
    format!(
        "queued {} ({}{waits})",
        cell(item, "/id"),
        cell(item, "/status")
    )
}

/// One item on its way to its end.
struct Following<'s> {
    session: &'s Session<'s>,
    agent: &'s str,
    item: Value,
    seen: HashSet<String>,
    begun: HashSet<String>,
    messages: Vec<Value>,
    receipts: Vec<Value>,
}

impl<'s> Following<'s> {
    fn new(session: &'s Session<'s>, agent: &'s str, item: Value) -> Self {
        Following {
            session,
            agent,
            item,
            seen: HashSet::new(),
            begun: HashSet::new(),
            messages: Vec::new(),
            receipts: Vec::new(),
        }
    }

    async fn follow(mut self, mut events: Events<'_>) -> Result<Exit, Failure> {
        let exit = loop {
            if let Some(exit) = outcome(&cell(&self.item, "/status")) {
                break exit;
            }
            if cell(&self.item, "/status") == "superseded" {
                let successor = cell(&self.item, "/supersededById");
                self.read_item(&successor).await?;
                continue;
            }
            match events.next().await? {
                Event::Reload => self.read_item(&cell(&self.item, "/id")).await?,
                Event::Told { kind, document } => self.told(&kind, document).await?,
            }
        };
        self.read_what_was_missed().await?;
        self.conclude();
        Ok(exit)
    }

    async fn read_item(&mut self, id: &str) -> Result<(), Failure> {
        self.item = self
            .session
            .client
            .get(&["agents", self.agent, "queue", id], &[])
            .await?;
        Ok(())
    }

    async fn told(&mut self, kind: &str, document: Value) -> Result<(), Failure> {
        match kind {
            "item" if cell(&document, "/id") == cell(&self.item, "/id") => {
                self.read_item(&cell(&self.item, "/id")).await?;
            }
            "message" => self.message(document),
            "command" => self.command(document),
            _ => {}
        }
        Ok(())
    }

    /// An answer of this item's turn, once.
    fn message(&mut self, message: Value) {
        let ours = cell(&message, "/itemId") == cell(&self.item, "/id");
        let Some(text) = message.get("text").and_then(Value::as_str) else {
            return;
        };
        if !ours || cell(&message, "/role") == "user" || !self.seen.insert(cell(&message, "/id")) {
            return;
        }
        if !self.session.out.is_json() && !text.trim().is_empty() {
            self.session.out.data(&visible(text.trim_end()));
        }
        self.messages.push(message);
    }

    /// A command of this item's turn: a note when it begins, its card when it has ended.
    fn command(&mut self, receipt: Value) {
        let turn = cell(&self.item, "/turnId");
        if turn.is_empty() || cell(&receipt, "/turnId") != turn {
            return;
        }
        let id = cell(&receipt, "/id");
        let out = self.session.out;
        if card::is_running(&receipt) {
            if self.begun.insert(id) && is_watched() {
                out.note(&card::begun(&receipt));
            }
            return;
        }
        if !self.seen.insert(id) {
            return;
        }
        if !out.is_json() {
            out.data(card::receipt(&receipt).trim_end());
        }
        self.receipts.push(receipt);
    }

    async fn read_what_was_missed(&mut self) -> Result<(), Failure> {
        let turn = cell(&self.item, "/turnId");
        if turn.is_empty() {
            return Ok(());
        }
        let client = &self.session.client;
        let team = cell(&self.item, "/teamId");
        let query = [("turnId", turn)];
        let receipts = client.list(&["teams", &team, "receipts"], &query).await;
        for receipt in oldest_first(receipts, "/startedAt")? {
            self.command(receipt);
        }
        let conversation = cell(&self.item, "/conversationId");
        let path = [
            "agents",
            self.agent,
            "conversations",
            &conversation,
            "messages",
        ];
        let page = client.get(&path, &[("limit", "100".into())]).await;
        for message in oldest_first(page, "/seq")? {
            self.message(message);
        }
        Ok(())
    }

    fn conclude(&self) {
        let out = self.session.out;
        if out.is_json() {
            let all =
                json!({"item": self.item, "messages": self.messages, "receipts": self.receipts});
            out.show(&all, |_| String::new());
        }
        let item = &self.item;
        let (agent, id) = (self.agent, cell(item, "/id"));
        let status = cell(item, "/status");
        let mut words = status.clone();
        for pointer in ["/diagnostic/code", "/diagnostic/message"] {
            let said = cell(item, pointer);
            if !said.is_empty() {
                words = format!("{words}: {said}");
            }
        }
        out.note(&words);
        match status.as_str() {
            "held" => {
                let approval = cell(item, "/approvalId");
                out.note(&format!(
                    "It waits for an approval: bazilion approval show {approval}"
                ));
            }
            "uncertain" => out.note(&format!(
                "It may have acted. Look, then close it: bazilion queue reconcile {agent} {id} \
                 --expected-revision {} --acknowledge",
                cell(item, "/revision")
            )),
            _ => {}
        }
    }
}

/// The items of a list in the order they came to be. What this person may not see is no failure of the turn.
fn oldest_first(list: Result<Value, Failure>, key: &str) -> Result<Vec<Value>, Failure> {
    let mut list = match list {
        Ok(list) => list,
        Err(failure) if matches!(failure.exit(), Exit::Permission | Exit::NotFound) => {
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
        return Ok(Vec::new());
    };
    let number = |item: &Value| item.pointer(key).and_then(Value::as_u64);
    items.sort_by_key(|item| (number(item), cell(item, key)));
    Ok(items)
}

fn outcome(status: &str) -> Option<Exit> {
    match status {
        "completed" => Some(Exit::Ok),
        "failed" => Some(Exit::TurnFailed),
        "cancelled" => Some(Exit::TurnCancelled),
        "uncertain" => Some(Exit::TurnUncertain),
        "held" => Some(Exit::TurnHeld),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outcome_ends_the_wait() {
        for status in ["pending", "claimed", "running", "superseded"] {
            assert_eq!(outcome(status), None, "{status}");
        }
        assert_eq!(outcome("completed").map(|exit| exit as u8), Some(0));
        assert_eq!(outcome("failed").map(|exit| exit as u8), Some(10));
        assert_eq!(outcome("cancelled").map(|exit| exit as u8), Some(11));
        assert_eq!(outcome("uncertain").map(|exit| exit as u8), Some(12));
        assert_eq!(outcome("held").map(|exit| exit as u8), Some(13));
    }

    #[test]
    fn missed_messages_are_ordered_by_number_not_by_text() {
        let list = json!({"items": [{"seq": 10}, {"seq": 9}]});
        let items = oldest_first(Ok(list), "/seq").expect("a list");
        assert_eq!(items[0]["seq"], 9);
    }
}
