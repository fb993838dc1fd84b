//! SQL of acceptance: what a submission must know, and the one statement that stores it.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::error::{Error, Result};
use crate::ids::{AgentId, ApprovalId, AttachmentId, ConversationId, ItemId, RequestId, TeamId};
use crate::queue::digest::Place;
use crate::queue::lane::{Lane, Phase};
use crate::queue::model::{Origin, Source, Status};
use crate::team::{AgentStatus, Selection};

/// The Agent as it stands, its row locked.
pub struct AgentNow {
    pub id: AgentId,
    pub team: TeamId,
    pub status: AgentStatus,
    pub selection: Selection,
}

/// A request that was accepted before.
pub struct Receipt {
    pub item: ItemId,
    pub place: Place,
    pub digest: Vec<u8>,
}

/// Locks the Agent's row, behind its lane: selection, Team and status hold until the commit.
pub async fn lock_agent(tx: &mut TenantTx, agent: AgentId) -> Result<AgentNow> {
    let row = sqlx::query!(
        "SELECT team_id, status, conversation_id, selection_revision FROM agents
         WHERE home_id = $1 AND id = $2
         FOR NO KEY UPDATE",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    Ok(AgentNow {
        id: agent,
        team: row.team_id.into(),
        status: AgentStatus::parse(&row.status)?,
        selection: Selection {
            conversation_id: row.conversation_id.map(Into::into),
            revision: row.selection_revision,
        },
    })
}

/// The receipt under a request identity of this home, whichever Agent it went to.
pub async fn find_receipt(tx: &mut TenantTx, request: RequestId) -> Result<Option<Receipt>> {
    let row = sqlx::query!(
        "SELECT id, agent_id, team_id, conversation_id, digest FROM queue_items
         WHERE home_id = $1 AND request_id = $2",
        tx.home().uuid(),
        request.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Receipt {
        item: row.id.into(),
        place: Place {
            agent: row.agent_id.into(),
            team: row.team_id.into(),
            conversation: row.conversation_id.into(),
        },
        digest: row.digest,
    }))
}

/// Creates the Agent's first conversation and selects it. A person may have made conversations without selecting one.
pub async fn begin_conversation(
    tx: &mut TenantTx,
    agent: AgentId,
    id: ConversationId,
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "WITH made AS (
             INSERT INTO conversations (home_id, id, agent_id, number, created_at)
             SELECT $1, $3, $2, coalesce(max(number), 0) + 1, $4 FROM conversations WHERE home_id = $1 AND agent_id = $2
             RETURNING id
         )
         UPDATE agents SET conversation_id = made.id, selection_revision = selection_revision + 1
         FROM made WHERE agents.home_id = $1 AND agents.id = $2",
        home.uuid(),
        agent.uuid(),
        id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Attachment metadata, as stored with an item.
#[derive(Debug, Clone)]
pub struct NewAttachment {
    pub id: AttachmentId,
    pub name: Option<String>,
    pub mime_type: String,
    pub byte_length: i64,
    pub sha256: Vec<u8>,
}

/// Everything of an item about to be stored.
pub struct NewItem<'a> {
    pub id: ItemId,
    pub place: Place,
    pub source: Source,
    pub origin: Option<&'a Origin>,
    pub request: RequestId,
    pub digest: [u8; 32],
    pub position: i64,
    pub status: Status,
    pub text: &'a str,
    pub attachments: Vec<NewAttachment>,
    pub approval: Option<ApprovalId>,
    pub supersedes: Option<ItemId>,
    pub span: Option<&'a str>,
    /// What the home's counters rise by.
    pub open_items: i32,
    pub new_bytes: i64,
    /// The audit's verb.
    pub action: &'static str,
}

/// Stores the item with its attachments, the changed lane, the audit entry and, last, the home's counters, in one
/// statement. False when a limit of the home does not allow it: the transaction must not be committed then.
pub async fn insert(tx: &mut TenantTx, item: &NewItem<'_>, lane: &Lane) -> Result<bool> {
    let home = tx.home();
    let now = tx.now();
    let by: Option<Uuid> = tx.caller().operator().map(Into::into);
    let actor = if by.is_some() { "operator" } else { "system" };
    let origin = item
        .origin
        .and_then(|origin| serde_json::to_value(origin).ok());
    let open: Vec<Uuid> = lane.open.iter().map(|id| id.uuid()).collect();
    let files = &item.attachments;
    let ids: Vec<Uuid> = files.iter().map(|f| f.id.uuid()).collect();
    let names: Vec<Option<String>> = files.iter().map(|f| f.name.clone()).collect();
    let types: Vec<String> = files.iter().map(|f| f.mime_type.clone()).collect();
    let lengths: Vec<i64> = files.iter().map(|f| f.byte_length).collect();
    let hashes: Vec<Vec<u8>> = files.iter().map(|f| f.sha256.clone()).collect();
    let stored = sqlx::query_scalar!(
        r#"WITH item AS (
               INSERT INTO queue_items
                   (home_id, id, agent_id, team_id, conversation_id, source, origin, request_id, digest, position, status,
                    text, retained_bytes, approval_id, supersedes_id, submitted_by, span, created_at, updated_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
                       (SELECT coalesce(sum(length), 0) FROM unnest($13::bigint[]) AS length),
                       $14, $15, $16, $17, $18, $18)
               RETURNING home_id
           ), files AS (
               INSERT INTO queue_attachments (home_id, id, item_id, ordinal, name, mime_type, byte_length, sha256, blob)
               SELECT $1, file.id, $2, file.place - 1, file.name, file.mime_type, file.byte_length, file.sha256, file.sha256
               FROM unnest($19::uuid[], $20::text[], $21::text[], $13::bigint[], $22::bytea[]) WITH ORDINALITY
                   AS file (id, name, mime_type, byte_length, sha256, place)
               RETURNING id
           ), lane AS (
               UPDATE agent_queues SET open = $23, phase = $24, next_position = $25, ended = $26, ready_at = $27
               WHERE home_id = $1 AND agent_id = $3
               RETURNING agent_id
           ), noted AS (
               INSERT INTO audit (home_id, at, actor, actor_id, origin, action, target, outcome)
               VALUES ($1, $18, $28, $16, $6, $29, $2::uuid::text, $11)
               RETURNING id
           )
           UPDATE home_usage SET
               open_items = open_items + $30, retained_bytes = retained_bytes + $31, receipts = receipts + 1
           WHERE home_id = (SELECT home_id FROM item)
             AND (SELECT count(*) FROM files) = cardinality($19::uuid[])
             AND EXISTS (SELECT FROM lane) AND EXISTS (SELECT FROM noted)
             AND open_items + $30 <= max_open_items
             AND retained_bytes + $31 <= max_retained_bytes
             AND receipts < max_receipts
           RETURNING true AS "stored!""#,
        home.uuid(),
        item.id.uuid(),
        item.place.agent.uuid(),
        item.place.team.uuid(),
        item.place.conversation.uuid(),
        item.source.as_str(),
        origin,
        item.request.uuid(),
        &item.digest[..],
        item.position,
        item.status.as_str(),
        item.text,
        &lengths,
        item.approval.map(Into::<Uuid>::into),
        item.supersedes.map(Into::<Uuid>::into),
        by,
        item.span,
        now,
        &ids,
        &names as &[Option<String>],
        &types,
        &hashes,
        &open,
        lane.phase.map(Phase::as_str),
        lane.next_position,
        lane.ended,
        lane.ready_at,
        actor,
        item.action,
        item.open_items,
        item.new_bytes,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(stored.unwrap_or(false))
}

/// The home's counters and their limits.
pub struct Usage {
    pub open_items: i64,
    pub max_open_items: i64,
    pub retained_bytes: i64,
    pub max_retained_bytes: i64,
    pub receipts: i64,
    pub max_receipts: i64,
}

/// Reads the counters.
pub async fn usage(tx: &mut TenantTx) -> Result<Usage> {
    let usage = sqlx::query_as!(
        Usage,
        r#"SELECT open_items::bigint AS "open_items!", max_open_items::bigint AS "max_open_items!",
                  retained_bytes, max_retained_bytes, receipts::bigint AS "receipts!", max_receipts::bigint AS "max_receipts!"
           FROM home_usage WHERE home_id = $1"#,
        tx.home().uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(usage)
}

/// The old item gives way to its replacement; bytes that both have count for the new one only.
pub async fn supersede(tx: &mut TenantTx, old: ItemId, by: ItemId, kept_bytes: i64) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "UPDATE queue_items SET
             status = 'superseded', superseded_by_id = $3, revision = revision + 1, waiting_for = NULL,
             retained_bytes = retained_bytes - $4, updated_at = $5, finished_at = $5
         WHERE home_id = $1 AND id = $2",
        home.uuid(),
        old.uuid(),
        by.uuid(),
        kept_bytes,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
