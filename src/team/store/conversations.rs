//! SQL of conversations.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::expect_one;
use crate::error::{Error, Result};
use crate::ids::{AgentId, ConversationId, RequestId};
use crate::team::model::Conversation;

struct Row {
    id: Uuid,
    agent_id: Uuid,
    number: i32,
    title: Option<String>,
    revision: i64,
    created_at: time::OffsetDateTime,
}

impl From<Row> for Conversation {
    fn from(row: Row) -> Self {
        Conversation {
            id: row.id.into(),
            agent_id: row.agent_id.into(),
            number: row.number,
            title: row.title,
            revision: row.revision,
            created_at: row.created_at,
        }
    }
}

/// Inserts the Agent's next conversation. The caller holds the Agent's lane.
pub async fn insert(
    tx: &mut TenantTx,
    agent: AgentId,
    id: &ConversationId,
    title: Option<&str>,
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO conversations (home_id, id, agent_id, number, title, created_at)
         SELECT $1, $2, $3, 1 + COALESCE(max(number), 0), $4, $5
         FROM conversations WHERE home_id = $1 AND agent_id = $3",
        home.uuid(),
        id.uuid(),
        agent.uuid(),
        title,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Selects a conversation and raises the selection's revision.
pub async fn select(tx: &mut TenantTx, agent: AgentId, id: &ConversationId) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE agents SET conversation_id = $3, selection_revision = selection_revision + 1
         WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        agent.uuid(),
        id.uuid(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// One conversation of the Agent.
pub async fn find(tx: &mut TenantTx, agent: AgentId, id: ConversationId) -> Result<Conversation> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, agent_id, number, title, revision, created_at
         FROM conversations WHERE home_id = $1 AND agent_id = $2 AND id = $3",
        tx.home().uuid(),
        agent.uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Conversation::from).ok_or_else(Error::not_found)
}

/// The Agent's conversations, newest first.
pub async fn list(tx: &mut TenantTx, agent: AgentId) -> Result<Vec<Conversation>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, agent_id, number, title, revision, created_at
         FROM conversations WHERE home_id = $1 AND agent_id = $2
         ORDER BY number DESC",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Conversation::from).collect())
}

/// Renames if the revision still is what the person saw.
pub async fn rename(
    tx: &mut TenantTx,
    agent: AgentId,
    id: ConversationId,
    expected: i64,
    title: &str,
) -> Result<bool> {
    let done = sqlx::query!(
        "UPDATE conversations SET title = $5, revision = revision + 1
         WHERE home_id = $1 AND agent_id = $2 AND id = $3 AND revision = $4",
        tx.home().uuid(),
        agent.uuid(),
        id.uuid(),
        expected,
        title,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// What an earlier request of this id made, and its digest.
pub async fn find_request(
    tx: &mut TenantTx,
    id: RequestId,
) -> Result<Option<(ConversationId, [u8; 32])>> {
    let row = sqlx::query!(
        "SELECT conversation_id, digest FROM conversation_requests WHERE home_id = $1 AND request_id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(|row| {
        let digest = row.digest.try_into().map_err(|_| Error::Corrupt {
            table: "conversation_requests",
            what: "digest".into(),
        })?;
        Ok((row.conversation_id.into(), digest))
    })
    .transpose()
}

/// Remembers a request for its retry.
pub async fn insert_request(
    tx: &mut TenantTx,
    agent: AgentId,
    conversation: &ConversationId,
    id: RequestId,
    digest: &[u8; 32],
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO conversation_requests (home_id, request_id, agent_id, digest, conversation_id, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        home.uuid(),
        id.uuid(),
        agent.uuid(),
        digest.as_slice(),
        conversation.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
