//! Conversations: an Agent's threads, and which one its next input belongs to.
//!
//! - Creating selects, under the Agent's locked row: of two requests from one observed revision one wins.
//! - A request id repeated exactly returns the same conversation and today's selection; with other inputs it conflicts.
//! - Reading and renaming never select.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::model::{Agent, AgentStatus, Conversation, Selection};
use super::{agent, store};
use crate::db::TenantTx;
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, ConversationId, RequestId};
use crate::limits;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

/// `POST /api/agents/:agent/conversations`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewConversation {
    pub request_id: RequestId,
    pub expected_selection: Selection,
    #[serde(default)]
    pub title: Option<String>,
}

/// A conversation with the Agent's selection of today.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    pub conversation: Conversation,
    pub selection: Selection,
}

/// Creates and selects a conversation.
pub async fn create(
    tx: &mut TenantTx,
    args: &(String, ConversationId, NewConversation),
) -> Result<Created> {
    let (named, id, new) = args;
    require(tx.caller(), Action::Operate)?;
    let title = new.title.as_deref().map(check_title).transpose()?;
    let agent = agent::find(tx, named).await?;
    let digest = digest(agent.id, new);
    // The lane first: nothing can be accepted or claimed while the answer is decided.
    let busy = store::agents::is_busy(tx, agent.id).await?;
    if let Some((first, stored)) = store::conversations::find_request(tx, new.request_id).await? {
        if stored != digest {
            return Err(Error::refused(
                Code::ConversationRequestConflict,
                "This request id was used for something else. Use a new request id.",
            ));
        }
        return created(tx, agent.id, first).await;
    }
    let agent = store::agents::find(tx, agent.id).await?;
    check_free(&agent, busy, new.expected_selection)?;
    store::conversations::insert(tx, agent.id, id, title).await?;
    store::conversations::insert_request(tx, agent.id, id, new.request_id, &digest).await?;
    store::conversations::select(tx, agent.id, id).await?;
    audit::record(tx, &Act::ok("conversation.create", id)).await?;
    created(tx, agent.id, *id).await
}

/// The Agent's conversations, newest first.
pub async fn list(tx: &mut TenantTx, named: &str) -> Result<Vec<Conversation>> {
    require(tx.caller(), Action::Read)?;
    let agent = agent::find(tx, named).await?;
    store::conversations::list(tx, agent.id).await
}

/// Renames; a stale revision is refused.
pub async fn rename(
    tx: &mut TenantTx,
    args: &(String, ConversationId, i64, String),
) -> Result<Conversation> {
    let (named, id, expected, title) = args;
    require(tx.caller(), Action::Operate)?;
    let title = check_title(title)?;
    let agent = agent::find(tx, named).await?;
    let current = store::conversations::find(tx, agent.id, *id).await?;
    if !store::conversations::rename(tx, agent.id, *id, *expected, title).await? {
        let current = serde_json::to_value(&current).unwrap_or_default();
        let detail = "Somebody renamed it meanwhile. Look at today's title and decide again.";
        return Err(Error::refused(Code::RevisionConflict, detail).with("current", current));
    }
    store::conversations::find(tx, agent.id, *id).await
}

fn check_free(agent: &Agent, busy: store::agents::Busy, expected: Selection) -> Result<()> {
    if agent.status == AgentStatus::Archived {
        return Err(Error::refused(
            Code::AgentArchived,
            "The Agent is archived. Bring it back first.",
        ));
    }
    if busy.open_items > 0 || busy.turn {
        let detail = format!(
            "The Agent has {} unresolved item(s){}. A new conversation can begin when they are closed.",
            busy.open_items,
            if busy.turn { " and a running turn" } else { "" },
        );
        return Err(Error::refused(Code::AgentBusy, detail).with("unresolved", busy.open_items));
    }
    if agent.selection != expected {
        let current = serde_json::to_value(agent.selection).unwrap_or_default();
        let detail = "Another conversation was selected meanwhile. Look at it and decide again.";
        return Err(Error::refused(Code::ConversationConflict, detail).with("current", current));
    }
    Ok(())
}

async fn created(tx: &mut TenantTx, agent: AgentId, id: ConversationId) -> Result<Created> {
    let conversation = store::conversations::find(tx, agent, id).await?;
    let selection = store::agents::find(tx, agent).await?.selection;
    Ok(Created {
        conversation,
        selection,
    })
}

fn check_title(title: &str) -> Result<&str> {
    let title = title.trim();
    let chars = title.chars().count();
    if (1..=limits::TITLE_MAX_CHARS).contains(&chars) && !title.chars().any(char::is_control) {
        Ok(title)
    } else {
        Err(Error::invalid(
            "title",
            "title",
            "Use 1 to 200 characters, no control characters.",
        ))
    }
}

/// Canonical and versioned: equal inputs, equal digest.
fn digest(agent: AgentId, new: &NewConversation) -> [u8; 32] {
    let selected = new
        .expected_selection
        .conversation_id
        .map(|id| *id.uuid().as_bytes());
    let mut hash = Sha256::new();
    hash.update(b"bazilion conversation request 1\0");
    hash.update(agent.uuid().as_bytes());
    hash.update([u8::from(selected.is_some())]);
    hash.update(selected.unwrap_or_default());
    hash.update(new.expected_selection.revision.to_be_bytes());
    hash.update([u8::from(new.title.is_some())]);
    hash.update(new.title.as_deref().unwrap_or("").as_bytes());
    hash.finalize().into()
}
