//! The one error of the application. It knows nothing of HTTP: `http::problem` maps a [`Code`] to a status, and
//! the CLI maps it to an exit code.
//!
//! - A refusal is made for a person: what was refused, and the next step. It never holds a secret or a host path.
//! - `Error::Db` keeps the source, so that the retry loop can see a serialization failure before anything maps it.

use std::fmt;

use serde_json::{Map, Value};

/// Result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! codes {
    ($($variant:ident => $wire:literal),+ $(,)?) => {
        /// A refusal's stable name on the wire (`surfaces.md`, table of errors).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($variant),+ }

        impl Code {
            /// Every code, for tables and tests.
            pub const ALL: &[Code] = &[$(Code::$variant),+];

            /// The wire name.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $wire),+ }
            }
        }
    };
}

codes! {
    MalformedRequest => "malformed_request",
    Unauthenticated => "unauthenticated",
    CredentialExpired => "credential_expired",
    CredentialRevoked => "credential_revoked",
    Forbidden => "forbidden",
    InsufficientScope => "insufficient_scope",
    CommunicationDenied => "communication_denied",
    CsrfFailed => "csrf_failed",
    NotFound => "not_found",
    MethodNotAllowed => "method_not_allowed",
    RequestConflict => "request_conflict",
    ItemChanged => "item_changed",
    ItemNotEditable => "item_not_editable",
    ItemNotUncertain => "item_not_uncertain",
    ControlConflict => "control_conflict",
    UncertainItems => "uncertain_items",
    ConversationConflict => "conversation_conflict",
    ConversationRequestConflict => "conversation_request_conflict",
    AgentBusy => "agent_busy",
    AgentTurnActive => "agent_turn_active",
    AgentArchived => "agent_archived",
    AmbiguousAgent => "ambiguous_agent",
    ApprovalConflict => "approval_conflict",
    RevisionConflict => "revision_conflict",
    WorkspaceBusy => "workspace_busy",
    WorkspaceRecoveryRequired => "workspace_recovery_required",
    TeamNotEmpty => "team_not_empty",
    InstructionsIncomplete => "instructions_incomplete",
    HandoffRequired => "handoff_required",
    AlreadyExists => "already_exists",
    LastOwner => "last_owner",
    PayloadExpired => "payload_expired",
    BodyTooLarge => "body_too_large",
    UnsupportedMediaType => "unsupported_media_type",
    InvalidInput => "invalid_input",
    QueueCapacity => "queue_capacity",
    AgentLoopLimit => "agent_loop_limit",
    RateLimited => "rate_limited",
    Internal => "internal",
    NotReady => "not_ready",
    OutcomeUnknown => "outcome_unknown",
    InsufficientStorage => "insufficient_storage",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One breach of one field: where, which rule, and what would be right. The value itself is never echoed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FieldError {
    pub path: String,
    pub code: String,
    pub message: String,
}

/// A request that was understood and not carried out. Nothing was changed.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: Code,
    /// One or two sentences for a person, with the next step.
    pub detail: String,
    /// What the code needs beside it on the wire: `current`, `limit`, `fields`, …
    pub extras: Map<String, Value>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// Why an operation did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Refused by a rule; the caller can act on it.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The database failed, or a transaction must be tried again.
    #[error("the database refused a statement")]
    Db(#[source] sqlx::Error),
    /// The connection was lost while COMMIT was under way: stored or not, nobody here knows.
    #[error("the outcome of the last commit is unknown")]
    OutcomeUnknown,
    /// A row that no code of ours can have written.
    #[error("impossible row in {table}: {what}")]
    Corrupt { table: &'static str, what: String },
    /// Anything else that a person cannot mend by another request. The chain goes to the log, never to the wire.
    #[error("{context}")]
    Internal {
        context: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// A refusal with its code and the sentence a person reads.
    pub fn refused(code: Code, detail: impl Into<String>) -> Self {
        Error::Refused(Box::new(Refusal {
            code,
            detail: detail.into(),
            extras: Map::new(),
        }))
    }

    /// Absent, or of another home: the same answer, on purpose.
    pub fn not_found() -> Self {
        Self::refused(
            Code::NotFound,
            "There is nothing here, or it is not yours to see.",
        )
    }

    /// One field breaks a rule.
    pub fn invalid(path: impl Into<String>, code: &str, message: impl Into<String>) -> Self {
        Self::invalid_fields(vec![FieldError {
            path: path.into(),
            code: code.into(),
            message: message.into(),
        }])
    }

    /// Several fields break rules.
    pub fn invalid_fields(fields: Vec<FieldError>) -> Self {
        let detail = match fields.as_slice() {
            [one] if one.path.is_empty() => one.message.clone(),
            [one] => format!("{}: {}", one.path, one.message),
            many => format!("{} fields are not valid.", many.len()),
        };
        let fields = serde_json::to_value(fields).unwrap_or(Value::Null);
        Self::refused(Code::InvalidInput, detail).with("fields", fields)
    }

    /// An unexpected failure, with what was being done.
    pub fn internal(
        context: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error::Internal {
            context,
            source: source.into(),
        }
    }

    /// Adds what the code needs beside it on the wire.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        if let Error::Refused(refusal) = &mut self {
            refusal.extras.insert(key.into(), value.into());
        }
        self
    }

    /// The wire code.
    pub fn code(&self) -> Code {
        match self {
            Error::Refused(refusal) => refusal.code,
            Error::OutcomeUnknown => Code::OutcomeUnknown,
            Error::Db(error) if is_disk_full(error) => Code::InsufficientStorage,
            Error::Db(error) if is_unavailable(error) => Code::NotReady,
            Error::Db(_) | Error::Corrupt { .. } | Error::Internal { .. } => Code::Internal,
        }
    }

    /// The database went away under a statement, or was away: whether it was carried out is not known from this alone.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Error::Db(error) if is_unavailable(error))
    }

    /// A connection that was there is gone. Not: none could be had.
    pub fn is_cut(&self) -> bool {
        let Error::Db(error) = self else { return false };
        matches!(error, sqlx::Error::Io(_))
            || sqlstate(error).is_some_and(|state| state.starts_with("57P"))
    }

    /// The database itself answered so.
    pub fn is_of_database(&self) -> bool {
        matches!(self, Error::Db(error) if error.as_database_error().is_some())
    }

    /// A serialization failure or a deadlock: the same transaction may succeed when it is run again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::Db(error) if sqlstate(error).is_some_and(|s| s == "40001" || s == "40P01"))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Error::Db(error)
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error
        .as_database_error()
        .and_then(|e| e.code())
        .map(|c| c.into_owned())
}

fn is_disk_full(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|s| s == "53100")
}

/// The database is away, starting, stopping or has no connection left: waiting helps.
fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
        other => sqlstate(other).is_some_and(|s| s.starts_with("57P") || s == "53300"),
    }
}
