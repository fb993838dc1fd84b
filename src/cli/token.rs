//! `bazilion token`: credentials for programs. A new token is shown once.

use clap::Subcommand;
use serde_json::{Value, json};

use super::session::Session;
use crate::console::output::{Column, cell, table};
use crate::console::{Exit, Failure};

/// Verbs of API tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Your tokens, without their secrets
    List,
    /// Make a token and print it alone on standard output; it is shown this once
    Create {
        /// What it is for
        #[arg(long)]
        label: String,
        /// What it may do; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", default_values = ["read", "write"])]
        #[arg(value_parser = ["read", "write", "approvals", "admin"])]
        scopes: Vec<String>,
        /// Days until it ends
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        #[arg(value_parser = clap::value_parser!(u16).range(1..=365))]
        days: u16,
    },
    /// End a token at once
    Revoke { token: String },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("LABEL", "/label"),
    ("SCOPES", "/scopes"),
    ("EXPIRES", "/expiresAt"),
    ("LAST USED", "/lastUsedAt"),
    ("REVOKED", "/revokedAt"),
];

impl Token {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Token::List => {
                let list = session.client.list(&["tokens"], &[]).await?;
                session.shown(&list, |list| table(list, COLUMNS))
            }
            Token::Create {
                label,
                scopes,
                days,
            } => {
                let body = json!({"label": label, "scopes": scopes, "days": days});
                let made: Value = session.client.post(&["tokens"], &body).await?;
                session.out.note("Keep it: it is not shown again.");
                session.shown(&made, |made| cell(made, "/token"))
            }
            Token::Revoke { token } => {
                let answer = session.client.delete(&["tokens", &token], &[]).await?;
                session.done(&answer, "Revoked.")
            }
        }
    }
}
