//! `bazilion workspace`: who owns which workspace, for the instance's administrator.

use clap::Subcommand;
use serde_json::json;

use super::session::{Session, confirmed};
use crate::console::output::table;
use crate::console::{Exit, Failure};

/// Verbs of workspace leases.
#[derive(Debug, Subcommand)]
pub enum Workspace {
    /// Leases, and the evidence of those that need recovery
    List,
    /// Release a lease whose cleanup can not be proven; the act is audited
    Release {
        lease: String,
        /// You have seen the evidence, and nothing of it runs any more
        #[arg(long)]
        acknowledge: bool,
    },
}

impl Workspace {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Workspace::List => {
                let list = session.client.list(&["instance", "leases"], &[]).await?;
                session.shown(&list, |list| {
                    table(
                        list,
                        &[
                            ("LEASE", "/id"),
                            ("STATE", "/state"),
                            ("EXECUTOR", "/executor"),
                            ("TEAM", "/teamId"),
                            ("AGENT", "/agentId"),
                            ("SINCE", "/acquiredAt"),
                            ("WHY", "/reason"),
                        ],
                    )
                })
            }
            Workspace::Release { lease, acknowledge } => {
                confirmed(
                    acknowledge,
                    "Something of this lease may still run; releasing it says that you looked.",
                )?;
                let path = ["instance", "leases", lease.as_str(), "release"];
                let answer = session
                    .client
                    .post(&path, &json!({"acknowledge": true}))
                    .await?;
                session.done(&answer, "Released.")
            }
        }
    }
}
