//! `bazilion approval`: one attempt each; a decision never changes the policy.

use clap::Subcommand;
use serde_json::{Value, json};

use super::session::{Session, keep};
use crate::console::output::{Column, card, table};
use crate::console::{Exit, Failure};

/// Verbs of approvals.
#[derive(Debug, Subcommand)]
pub enum Approval {
    /// Those that wait for a decision
    List {
        /// Decided and expired ones too
        #[arg(long)]
        all: bool,
    },
    /// One approval
    Show { approval: String },
    /// Let this attempt go ahead
    Approve { approval: String },
    /// Refuse this attempt
    Deny { approval: String },
    /// Withdraw the question
    Cancel { approval: String },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("STATE", "/state"),
    ("AGENT", "/agentId"),
    ("ITEM", "/itemId"),
    ("CREATED", "/createdAt"),
    ("EXPIRES", "/expiresAt"),
];

const ROWS: &[Column] = &[
    ("id", "/id"),
    ("state", "/state"),
    ("agent", "/agentId"),
    ("item", "/itemId"),
    ("digest", "/digest"),
    ("reason", "/reason"),
    ("created", "/createdAt"),
    ("expires", "/expiresAt"),
    ("decided by", "/decidedBy"),
    ("decided", "/decidedAt"),
];

impl Approval {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Approval::List { all } => {
                let mut list = session.client.list(&["approvals"], &[]).await?;
                if !all {
                    keep(&mut list, "state", "pending");
                }
                session.shown(&list, |list| table(list, COLUMNS))
            }
            Approval::Show { approval } => {
                let shown: Value = session.client.get(&["approvals", &approval], &[]).await?;
                session.shown(&shown, |shown| card(shown, ROWS))
            }
            Approval::Approve { approval } => {
                decide(session, &approval, "approve", "Approved.").await
            }
            Approval::Deny { approval } => decide(session, &approval, "deny", "Denied.").await,
            Approval::Cancel { approval } => {
                decide(session, &approval, "cancel", "Withdrawn.").await
            }
        }
    }
}

async fn decide(session: &Session<'_>, id: &str, verb: &str, words: &str) -> Result<Exit, Failure> {
    let answer = session
        .client
        .post(&["approvals", id, verb], &json!({}))
        .await?;
    session.done(&answer, words)
}
