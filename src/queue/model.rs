//! The queue's values: items, their states and the moves between them, controls. No I/O.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::db::codec::text_enum;
use crate::error::{Code, Error, Result};
use crate::ids::{
    AgentId, ApprovalId, AttachmentId, ConversationId, ItemId, OperatorId, RequestId, TeamId,
    TurnId,
};
use crate::limits;

text_enum! {
    /// Where an item is in its life.
    pub enum Status in "queue_items" {
        /// Stored, waiting.
        Pending => "pending",
        /// Taken by a process, nothing started.
        Claimed => "claimed",
        /// Its turn has started.
        Running => "running",
        /// Waits for its approval.
        Held => "held",
        /// Outcome unknown; it may have acted.
        Uncertain => "uncertain",
        /// The turn ended normally. Not: the task is right.
        Completed => "completed",
        /// Ended with an error; nothing more will happen.
        Failed => "failed",
        /// Removed, stopped, denied, expired, or acknowledged as uncertain.
        Cancelled => "cancelled",
        /// Replaced by an edit.
        Superseded => "superseded",
    }
}

impl Status {
    /// Whether the item still takes a place in the queue.
    pub fn is_open(self) -> bool {
        use Status::*;
        matches!(self, Pending | Claimed | Running | Held | Uncertain)
    }

    /// The moves an item may make; a trigger in the database holds the same table. `restoring` opens the one more
    /// that only a restore may use.
    pub fn may_become(self, next: Status, restoring: bool) -> bool {
        use Status::*;
        let ordinary = match self {
            Pending => matches!(next, Claimed | Held | Failed | Cancelled | Superseded),
            Claimed => matches!(
                next,
                Pending | Running | Held | Failed | Cancelled | Uncertain
            ),
            Running => matches!(next, Completed | Failed | Cancelled | Uncertain),
            Held => matches!(next, Claimed | Failed | Cancelled | Uncertain),
            Uncertain => matches!(next, Cancelled),
            Completed | Failed | Cancelled | Superseded => false,
        };
        let restored = restoring && next == Uncertain && self.is_open() && self != Uncertain;
        ordinary || restored
    }
}

text_enum! {
    /// The door an item came through.
    pub enum Source in "queue_items" {
        Http => "http",
        Telegram => "telegram",
    }
}

text_enum! {
    /// What an open item waits for.
    pub enum WaitingFor in "queue_items" {
        Agent => "agent",
        Workspace => "workspace",
        Recovery => "recovery",
        Executor => "executor",
        Engine => "engine",
        Provider => "provider",
        Approval => "approval",
        Pause => "pause",
    }
}

text_enum! {
    /// Why a queue is paused.
    pub enum Reason in "agent_queues" {
        Operator => "operator",
        OperatorStop => "operator_stop",
        Telegram => "telegram",
        Interrupted => "interrupted",
        Preparation => "preparation",
        Restored => "restored",
    }
}

/// Why an item ended as it did, or what is unknown about it. Safe to show: never a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Diagnostic {
    pub code: String,
    pub message: String,
}

impl Diagnostic {
    /// Cuts the message to its limit. The caller has redacted it.
    pub fn new(code: &str, message: impl AsRef<str>) -> Self {
        Self {
            code: code.into(),
            message: message
                .as_ref()
                .chars()
                .filter(|c| *c != '\0')
                .take(limits::DIAGNOSTIC_MAX_CHARS)
                .collect(),
        }
    }
}

/// Which Telegram messages an item was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Origin {
    pub chat_id: i64,
    pub thread_id: Option<i64>,
    pub message_ids: Vec<i64>,
}

/// A file of an item, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub id: AttachmentId,
    pub name: Option<String>,
    /// As it was sent.
    pub mime_type: String,
    pub byte_length: i64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// One accepted input (`QueueItem` on the wire).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueItem)]
pub struct Item {
    pub id: ItemId,
    pub agent_id: AgentId,
    pub team_id: TeamId,
    pub conversation_id: ConversationId,
    pub source: Source,
    pub request_id: RequestId,
    /// Changes when a person or an outcome changes the item; what edit, remove and reconcile compare.
    pub revision: i64,
    /// Counts every change of the row; serves live views.
    pub version: i64,
    pub position: i64,
    pub status: Status,
    pub waiting_for: Option<WaitingFor>,
    /// Null once it expired.
    pub text: Option<String>,
    pub attachments: Vec<Attachment>,
    pub payload_retained: bool,
    pub supersedes_id: Option<ItemId>,
    pub superseded_by_id: Option<ItemId>,
    pub approval_id: Option<ApprovalId>,
    pub turn_id: Option<TurnId>,
    pub submitted_by: Option<OperatorId>,
    pub origin: Option<Origin>,
    pub diagnostic: Option<Diagnostic>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<OffsetDateTime>,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<OffsetDateTime>,
}

impl Item {
    /// Whether it ended in this way right after `revision`: what a repeat compares with what it was asked to do.
    pub(super) fn ended_as(&self, status: Status, code: &str, revision: i64) -> bool {
        self.status == status
            && self.revision == revision + 1
            && self.diagnostic.as_ref().is_some_and(|why| why.code == code)
    }

    /// The refusal of a change that lost: the item as it is now goes along, so that nothing typed is lost.
    pub fn lost(self) -> Error {
        let (code, detail) = if self.status == Status::Pending {
            (
                Code::ItemChanged,
                "The item was changed meanwhile. Look at it and send your change again.",
            )
        } else {
            (
                Code::ItemNotEditable,
                "The item is not waiting any more. Send your change as a new input if you still want it.",
            )
        };
        Error::refused(code, detail).with("current", wire(&self))
    }
}

/// Whether an Agent's queue hands out work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueControl)]
pub struct Control {
    pub paused: bool,
    /// Rises with each write; what pause, resume and stop compare.
    pub revision: i64,
    pub reason: Option<Reason>,
    pub changed_by: Option<OperatorId>,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub changed_at: Option<OffsetDateTime>,
}

/// A value as the wire shows it.
pub(super) fn wire(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
}

/// Revisions on the wire are whole numbers from zero.
pub fn check_revision(path: &str, revision: i64) -> Result<()> {
    if revision >= 0 {
        Ok(())
    } else {
        Err(Error::invalid(
            path,
            "revision",
            "A revision is a whole number, zero or more.",
        ))
    }
}
