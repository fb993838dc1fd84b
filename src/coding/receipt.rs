//! A receipt: bounded evidence of one command. Not a general log of runs.
//!
//! - `succeeded` says that the command exited zero then; it certifies no later edit, other command or repository.
//! - A state is never derived from an exit code alone: it follows from what was seen and what was done.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::hints::Hint;
use super::output::Kept;
use crate::error::{Error, Result};
use crate::executor::{End, Exit};
use crate::ids::{AgentId, ReceiptId, TeamId, TurnId};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($variant),+ }

        impl $name {
            /// The word in the database and on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// Reads the word of the database.
            pub fn parse(word: &str) -> Result<Self> {
                match word {
                    $($word => Ok($name::$variant),)+
                    other => Err(Error::Corrupt { table: "coding_receipts", what: format!("word {other}") }),
                }
            }
        }
    };
}

words! {
    /// How a command stands or ended.
    State {
        Running => "running",
        Succeeded => "succeeded",
        Failed => "failed",
        TimedOut => "timed_out",
        Cancelled => "cancelled",
        Blocked => "blocked",
        Interrupted => "interrupted",
    }
}

words! {
    /// Whether everything of the command is proven gone.
    Cleanup {
        Confirmed => "confirmed",
        Pending => "pending",
        Uncertain => "uncertain",
    }
}

/// A receipt as people and Agents see it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    pub id: ReceiptId,
    pub team_id: TeamId,
    pub agent_id: AgentId,
    pub turn_id: TurnId,
    pub tool_call_id: String,
    /// Command, working directory, purpose, time limit.
    #[schema(value_type = Object)]
    pub input: Value,
    /// Posture, image, identities: what it ran in.
    #[schema(value_type = Object)]
    pub environment: Value,
    pub state: State,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<OffsetDateTime>,
    pub duration_ms: Option<i64>,
    pub output: Kept,
    pub cleanup: Cleanup,
    pub hints: Vec<Hint>,
}

/// How a command ended, before its cleanup is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub state: State,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
}

impl Verdict {
    /// An end without an exit.
    pub fn of(state: State, reason: impl Into<String>) -> Self {
        Self {
            state,
            exit_code: None,
            signal: None,
            reason: Some(reason.into()),
        }
    }
}

/// Who ended the command before its own exit was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    Itself,
    TimeLimit,
    Cancel,
}

/// The state that follows from what was seen and what was done.
pub fn judge(exit: &Exit, ended_by: EndedBy) -> Verdict {
    let mut verdict = match exit {
        Exit::Observed {
            end: End::Code(0), ..
        } => Verdict {
            state: State::Succeeded,
            exit_code: Some(0),
            signal: None,
            reason: None,
        },
        Exit::Observed {
            end, out_of_memory, ..
        } => {
            let (exit_code, signal) = match *end {
                End::Code(code) => (Some(code), None),
                End::Signal(signal) => (Some(128 + signal), Some(signal)),
            };
            let by_memory = *out_of_memory && exit_code == Some(137);
            Verdict {
                state: State::Failed,
                exit_code,
                signal,
                reason: by_memory.then(|| "out_of_memory".to_owned()),
            }
        }
        Exit::NotStarted { reason } => Verdict::of(State::Blocked, reason),
        Exit::Deadline { .. } => Verdict::of(State::TimedOut, "deadline"),
        Exit::Lost { reason } => Verdict::of(State::Interrupted, reason),
    };
    match ended_by {
        EndedBy::Itself => {}
        EndedBy::TimeLimit => {
            verdict.state = State::TimedOut;
            verdict.reason = Some("timeout".into());
        }
        EndedBy::Cancel => {
            verdict.state = State::Cancelled;
            verdict.reason = Some("cancelled".into());
        }
    }
    verdict
}

/// The state with its cleanup beside it: nothing but *interrupted* or *blocked* stands beside an uncertain one.
pub fn with_cleanup(mut verdict: Verdict, cleanup: Cleanup) -> Verdict {
    if cleanup != Cleanup::Confirmed && verdict.state != State::Blocked {
        verdict.state = State::Interrupted;
        verdict.reason = Some("cleanup_unconfirmed".into());
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(end: End, out_of_memory: bool) -> Exit {
        Exit::Observed {
            end,
            bytes: 0,
            out_of_memory,
        }
    }

    #[test]
    fn the_state_follows_from_what_was_seen_and_what_was_done() {
        let table = [
            (
                observed(End::Code(0), false),
                EndedBy::Itself,
                State::Succeeded,
            ),
            // A child was killed for memory; the command itself went on.
            (
                observed(End::Code(0), true),
                EndedBy::Itself,
                State::Succeeded,
            ),
            (
                observed(End::Code(1), false),
                EndedBy::Itself,
                State::Failed,
            ),
            (
                observed(End::Code(137), false),
                EndedBy::Itself,
                State::Failed,
            ),
            (
                observed(End::Signal(9), false),
                EndedBy::TimeLimit,
                State::TimedOut,
            ),
            (
                observed(End::Code(0), false),
                EndedBy::Cancel,
                State::Cancelled,
            ),
            (
                Exit::Lost {
                    reason: String::new(),
                },
                EndedBy::Itself,
                State::Interrupted,
            ),
            (
                Exit::Lost {
                    reason: String::new(),
                },
                EndedBy::Cancel,
                State::Cancelled,
            ),
            (
                Exit::NotStarted {
                    reason: String::new(),
                },
                EndedBy::Itself,
                State::Blocked,
            ),
            (
                Exit::Deadline { bytes: 0 },
                EndedBy::Itself,
                State::TimedOut,
            ),
        ];
        for (exit, by, state) in table {
            assert_eq!(judge(&exit, by).state, state, "{exit:?} {by:?}");
        }
        let oom = judge(&observed(End::Signal(9), true), EndedBy::Itself);
        assert_eq!(
            (oom.exit_code, oom.reason.as_deref()),
            (Some(137), Some("out_of_memory"))
        );
    }

    #[test]
    fn an_exit_without_proof_of_cleanup_is_interrupted_and_still_shown() {
        let verdict = with_cleanup(
            judge(&observed(End::Code(0), false), EndedBy::Itself),
            Cleanup::Uncertain,
        );
        assert_eq!(
            (verdict.state, verdict.exit_code),
            (State::Interrupted, Some(0))
        );
    }
}
