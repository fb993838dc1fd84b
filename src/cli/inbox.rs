//! `bazilion inbox`: messages between Agents.

use clap::Subcommand;
use serde_json::json;

use super::session::Session;
use crate::console::output::table;
use crate::console::{Exit, Failure};

/// Verbs of an Agent's inbox.
#[derive(Debug, Subcommand)]
pub enum Inbox {
    /// The Agent's messages and their states
    List {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
    },
    /// Close an uncertain message: you have looked at what it may have caused
    Acknowledge {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        message: String,
    },
}

impl Inbox {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Inbox::List { agent } => {
                let list = session
                    .client
                    .list(&["agents", &agent, "inbox"], &[])
                    .await?;
                session.shown(&list, |list| {
                    table(
                        list,
                        &[
                            ("ID", "/id"),
                            ("STATE", "/state"),
                            ("FROM", "/fromAgentId"),
                            ("SENT", "/createdAt"),
                            ("TEXT", "/text"),
                        ],
                    )
                })
            }
            Inbox::Acknowledge { agent, message } => {
                let path = ["agents", agent.as_str(), "inbox", &message, "acknowledge"];
                let answer = session.client.post(&path, &json!({})).await?;
                session.done(&answer, "Closed.")
            }
        }
    }
}
