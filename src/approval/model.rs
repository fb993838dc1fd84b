//! Approvals as values. No I/O.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;

use crate::db::codec::text_enum;
use crate::ids::{AgentId, ApprovalId, ItemId, OperatorId};

text_enum! {
    /// Where a question is in its life.
    pub enum State in "approvals" {
        Pending => "pending",
        Approved => "approved",
        /// Its item was claimed; nothing started yet.
        Delivering => "delivering",
        Delivered => "delivered",
        DeliveryFailed => "delivery_failed",
        Denied => "denied",
        Expired => "expired",
        Cancelled => "cancelled",
    }
}

/// A recorded question: may this exact attempt go ahead? It names agent, item and digest, never text or bytes.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub id: ApprovalId,
    pub agent_id: AgentId,
    pub item_id: ItemId,
    /// Of the input, lower-case hexadecimal.
    pub digest: String,
    pub state: State,
    /// Why it is asked.
    pub reason: String,
    /// The policy revisions that were read and the edges that were used.
    pub policy: Value,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub requested_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: OffsetDateTime,
    pub decided_by: Option<OperatorId>,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub decided_at: Option<OffsetDateTime>,
}

/// What a question is made of.
#[derive(Debug, Clone)]
pub struct NewApproval {
    pub id: ApprovalId,
    pub agent: AgentId,
    pub item: ItemId,
    pub digest: [u8; 32],
    pub reason: &'static str,
    pub policy: Value,
}
