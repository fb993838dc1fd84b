//! `bazilion queue`: the follow-up queue of an Agent, always as JSON.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::session::{Session, confirmed};
use super::submit::{Files, Repeat, Submission};
use crate::console::{Exit, Failure};

const ADD_HELP: &str = "\
Prints the request id and the selection it expects to standard error before it
sends. If the answer is lost, repeat exactly the printed command: a new request
would be a second one.

Examples:
  bazilion queue add ada --message 'Fix the parser, then run its test'
  bazilion queue add ada --message 'See these' --files '[\"./a.txt\"]' --file ./b.png";

/// Verbs of the follow-up queue.
#[derive(Debug, Subcommand)]
pub enum Queue {
    /// Items in their order, and the queue's control with its revision
    List {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// Ended items too
        #[arg(long)]
        all: bool,
        /// Skip this many items
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
    },
    /// One item
    Show {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The item's id
        item: String,
    },
    /// Send input; it waits its turn
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Replace a pending item at its place; what is not named stays
    Edit(Edit),
    /// Take a pending item out
    Remove {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The item's id
        item: String,
        /// The item's revision as you saw it
        #[arg(long, value_name = "N")]
        expected_revision: u64,
    },
    /// Start nothing more; what runs goes on
    Pause(Control),
    /// Go on
    Resume(Control),
    /// Pause, then cancel the active turn
    Stop(Control),
    /// Close an uncertain item: you have looked at what it may have done
    Reconcile {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The item's id
        item: String,
        /// The item's revision as you saw it
        #[arg(long, value_name = "N")]
        expected_revision: u64,
        /// Its effects, whatever they were, are known to you
        #[arg(long)]
        acknowledge: bool,
    },
}

/// `bazilion queue add`.
#[derive(Debug, clap::Args)]
pub struct Add {
    /// The Agent: id, name, or the first 8 characters of its id
    agent: String,
    /// What the Agent is asked to do
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(required_unless_present_any = ["files", "file"])]
    message: Option<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    repeat: Repeat,
}

/// `bazilion queue edit`.
#[derive(Debug, clap::Args)]
pub struct Edit {
    /// The Agent: id, name, or the first 8 characters of its id
    agent: String,
    /// The item's id
    item: String,
    /// The item's revision as you saw it
    #[arg(long, value_name = "N")]
    expected_revision: u64,
    /// The new text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    repeat: Repeat,
}

/// Which queue, and its control as it was seen.
#[derive(Debug, clap::Args)]
pub struct Control {
    /// The Agent: id, name, or the first 8 characters of its id
    agent: String,
    /// The control's revision as you saw it (`queue list`)
    #[arg(long, value_name = "N")]
    expected_revision: u64,
}

impl Queue {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let client = &session.client;
        let answer = match self {
            Queue::List { agent, all, offset } => {
                let view = if all { "all" } else { "open" };
                let mut query = vec![("view", view.to_owned())];
                query.extend(offset.map(|offset| ("offset", offset.to_string())));
                client.get(&["agents", &agent, "queue"], &query).await?
            }
            Queue::Show { agent, item } => {
                client.get(&["agents", &agent, "queue", &item], &[]).await?
            }
            Queue::Add(add) => add.send(session).await?,
            Queue::Edit(edit) => edit.send(session).await?,
            Queue::Remove {
                agent,
                item,
                expected_revision,
            } => {
                let query = [("expectedRevision", expected_revision.to_string())];
                client
                    .delete(&["agents", &agent, "queue", &item], &query)
                    .await?
            }
            Queue::Pause(control) => control.set(session, "pause").await?,
            Queue::Resume(control) => control.set(session, "resume").await?,
            Queue::Stop(control) => control.set(session, "stop").await?,
            Queue::Reconcile {
                agent,
                item,
                expected_revision,
                acknowledge,
            } => {
                confirmed(
                    acknowledge,
                    "An uncertain item may have acted already; closing it says that you looked.",
                )?;
                let path = ["agents", &agent, "queue", &item, "reconcile"];
                let body = json!({"expectedRevision": expected_revision, "acknowledge": true});
                client.post(&path, &body).await?
            }
        };
        session.shown(&answer, Value::to_string)
    }
}

impl Control {
    async fn set(self, session: &Session<'_>, verb: &str) -> Result<Value, Failure> {
        let body = json!({"expectedRevision": self.expected_revision});
        session
            .client
            .post(&["agents", &self.agent, "queue", verb], &body)
            .await
    }
}

impl Add {
    async fn send(self, session: &Session<'_>) -> Result<Value, Failure> {
        let files = self.files.inspect()?;
        let submission = Submission::prepare(session, &self.agent, self.repeat).await?;
        let message = self.message.as_deref();
        let mut request = submission.request();
        request["message"] = json!(message.unwrap_or_default());
        let agent = submission.agent.as_str();
        let retry = submission.retry_line(session, &["queue", "add", agent], message, &files);
        let to = (Method::POST, &["agents", agent, "queue"][..]);
        submission.send(session, to, request, &files, &retry).await
    }
}

impl Edit {
    async fn send(self, session: &Session<'_>) -> Result<Value, Failure> {
        if self.message.is_none() && self.files.are_untouched() {
            return Err(Failure::usage(
                "Nothing to change: give --message, --files or --file. Nothing was sent.",
            ));
        }
        let files = self.files.inspect()?;
        let submission = Submission::prepare(session, &self.agent, self.repeat).await?;
        let mut request = submission.request();
        request["expectedRevision"] = json!(self.expected_revision);
        if let Some(message) = &self.message {
            request["message"] = json!(message);
        }
        if files.replace() {
            request["keepAttachments"] = json!([]);
        }
        let (agent, item) = (submission.agent.as_str(), self.item.as_str());
        let revision = self.expected_revision.to_string();
        let verb = [
            "queue",
            "edit",
            agent,
            item,
            "--expected-revision",
            &revision,
        ];
        let message = self.message.as_deref();
        let retry = submission.retry_line(session, &verb, message, &files);
        let to = (Method::PATCH, &["agents", agent, "queue", item][..]);
        submission.send(session, to, request, &files, &retry).await
    }
}
