//! `bazilion conversation`.

use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::{Value, json};

use super::session::Session;
use super::submit::{Repeat, Submission, explain};
use crate::console::output::{card, cell, table, visible};
use crate::console::{Exit, Failure};

/// Verbs of an Agent's conversations.
#[derive(Debug, Subcommand)]
pub enum Conversation {
    /// The Agent's conversations
    List {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
    },
    /// Begin a conversation and select it
    New {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// 1 to 200 characters
        #[arg(long)]
        title: Option<String>,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// What was said, oldest first within a page
    Messages {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The conversation [default: the selected one]
        conversation: Option<String>,
        /// Only what stands before this cursor of an earlier answer
        #[arg(long, value_name = "CURSOR")]
        before: Option<String>,
        /// How many
        #[arg(long, value_name = "N", default_value_t = 50)]
        #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
        limit: u8,
    },
}

impl Conversation {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Conversation::List { agent } => {
                let path = ["agents", agent.as_str(), "conversations"];
                let list = session.client.list(&path, &[]).await?;
                session.shown(&list, |list| {
                    table(
                        list,
                        &[
                            ("ID", "/id"),
                            ("NUMBER", "/number"),
                            ("TITLE", "/title"),
                            ("CREATED", "/createdAt"),
                        ],
                    )
                })
            }
            Conversation::New {
                agent,
                title,
                repeat,
            } => new(session, &agent, title, repeat).await,
            Conversation::Messages {
                agent,
                conversation,
                before,
                limit,
            } => {
                let conversation = match conversation {
                    Some(conversation) => conversation,
                    None => selected(session, &agent).await?,
                };
                let mut query = vec![("limit", limit.to_string())];
                query.extend(before.map(|before| ("before", before)));
                let path = [
                    "agents",
                    agent.as_str(),
                    "conversations",
                    &conversation,
                    "messages",
                ];
                let page: Value = session.client.get(&path, &query).await?;
                session.shown(&page, messages)
            }
        }
    }
}

async fn selected(session: &Session<'_>, agent: &str) -> Result<String, Failure> {
    let agent = session.agent(agent).await?;
    agent.selection.conversation_id.ok_or_else(|| {
        let nothing = "This Agent has no conversation yet.";
        Failure::local(Exit::NotFound, "no_conversation", nothing)
    })
}

async fn new(
    session: &Session<'_>,
    agent: &str,
    title: Option<String>,
    repeat: Repeat,
) -> Result<Exit, Failure> {
    let submission = Submission::prepare(session, agent, repeat).await?;
    let mut request = submission.request();
    if let Some(title) = &title {
        request["title"] = json!(title);
    }
    let mut words = vec![
        "conversation".to_owned(),
        "new".into(),
        submission.agent.clone(),
    ];
    words.extend(title.map(|title| format!("--title={title}")));
    let retry = submission.whole_line(session, words);
    submission.announce(session, &retry);
    let path = ["agents", submission.agent.as_str(), "conversations"];
    let made = session.client.post(&path, &request).await;
    let made = made.inspect_err(|failure| explain(session, failure, &retry))?;
    session.shown(&made, |made| {
        card(
            made,
            &[
                ("id", "/id"),
                ("id", "/conversation/id"),
                ("title", "/title"),
                ("title", "/conversation/title"),
                ("selection revision", "/selection/revision"),
            ],
        )
    })
}

fn messages(page: &Value) -> String {
    let mut items: Vec<&Value> = page["items"].as_array().into_iter().flatten().collect();
    items.sort_by_key(|message| message.get("seq").and_then(Value::as_u64));
    if items.is_empty() {
        return "(none)".into();
    }
    let mut text = String::new();
    for message in items {
        // Writing to a String can not fail.
        let _ = writeln!(
            text,
            "[{}] {}",
            cell(message, "/createdAt"),
            cell(message, "/role")
        );
        let said = message
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let _ = writeln!(text, "{}\n", visible(said.trim_end()));
    }
    if let Some(cursor) = page.get("nextCursor").and_then(Value::as_str) {
        let _ = writeln!(text, "(earlier: --before {})", visible(cursor));
    }
    text
}
