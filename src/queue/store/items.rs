//! SQL of items and their attachments' metadata. Bytes are never touched here.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::expect_one;
use crate::error::{Error, Result};
use crate::ids::{AgentId, ApprovalId, ItemId, RequestId, TurnId};
use crate::queue::digest::Place;
use crate::queue::model::{Attachment, Diagnostic, Item, Source, Status, WaitingFor};

struct Row {
    id: Uuid,
    agent_id: Uuid,
    team_id: Uuid,
    conversation_id: Uuid,
    source: String,
    request_id: Uuid,
    revision: i64,
    version: i64,
    position: i64,
    status: String,
    waiting_for: Option<String>,
    text: Option<String>,
    payload_retained: bool,
    supersedes_id: Option<Uuid>,
    superseded_by_id: Option<Uuid>,
    approval_id: Option<Uuid>,
    turn_id: Option<Uuid>,
    submitted_by: Option<Uuid>,
    origin: Option<serde_json::Value>,
    diagnostic_code: Option<String>,
    diagnostic_message: Option<String>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
    started_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
    paused: bool,
    phase: Option<String>,
}

/// What an item waits for: its own word, or what its place in the lane says.
pub(super) fn waits(
    status: Status,
    stored: Option<WaitingFor>,
    paused: bool,
    phase: Option<&str>,
) -> Option<WaitingFor> {
    match status {
        Status::Held if phase == Some("approved") && paused => Some(WaitingFor::Pause),
        Status::Held if phase == Some("approved") => stored,
        Status::Held => Some(WaitingFor::Approval),
        Status::Pending if paused => Some(WaitingFor::Pause),
        Status::Pending => match phase {
            Some("claimed" | "running") => Some(WaitingFor::Agent),
            Some("held" | "approved") => Some(WaitingFor::Approval),
            _ => stored,
        },
        _ => None,
    }
}

impl Row {
    fn into_item(self, attachments: Vec<Attachment>) -> Result<Item> {
        let status = Status::parse(&self.status)?;
        let stored = self.waiting_for.as_deref().map(WaitingFor::parse);
        let waiting_for = waits(
            status,
            stored.transpose()?,
            self.paused,
            self.phase.as_deref(),
        );
        let origin = self
            .origin
            .map(serde_json::from_value)
            .transpose()
            .map_err(|_| Error::Corrupt {
                table: "queue_items",
                what: format!("origin of {}", self.id),
            })?;
        Ok(Item {
            id: self.id.into(),
            agent_id: self.agent_id.into(),
            team_id: self.team_id.into(),
            conversation_id: self.conversation_id.into(),
            source: Source::parse(&self.source)?,
            request_id: RequestId::from(self.request_id),
            revision: self.revision,
            version: self.version,
            position: self.position,
            status,
            waiting_for,
            text: self.text,
            attachments,
            payload_retained: self.payload_retained,
            supersedes_id: self.supersedes_id.map(Into::into),
            superseded_by_id: self.superseded_by_id.map(Into::into),
            approval_id: self.approval_id.map(Into::into),
            turn_id: self.turn_id.map(Into::into),
            submitted_by: self.submitted_by.map(Into::into),
            origin,
            diagnostic: self
                .diagnostic_code
                .zip(self.diagnostic_message)
                .map(|(code, message)| Diagnostic { code, message }),
            created_at: self.created_at,
            updated_at: self.updated_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
        })
    }
}

/// The Agent's items with these ids, in their order; an id that is not there is left out.
pub async fn by_ids(tx: &mut TenantTx, agent: AgentId, ids: &[ItemId]) -> Result<Vec<Item>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT i.id, i.agent_id, i.team_id, i.conversation_id, i.source, i.request_id, i.revision, i.version,
                  i.position, i.status, i.waiting_for, i.text, i.payload_retained, i.supersedes_id, i.superseded_by_id,
                  i.approval_id, i.turn_id, i.submitted_by, i.origin, i.diagnostic_code, i.diagnostic_message,
                  i.created_at, i.updated_at, i.started_at, i.finished_at, q.paused, q.phase
           FROM unnest($3::uuid[]) WITH ORDINALITY AS wanted (id, place)
           JOIN queue_items i ON i.home_id = $1 AND i.id = wanted.id AND i.agent_id = $2
           JOIN agent_queues q ON q.home_id = i.home_id AND q.agent_id = i.agent_id
           ORDER BY wanted.place"#,
        tx.home().uuid(),
        agent.uuid(),
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    let mut attachments = attachments(tx, &ids).await?;
    rows.into_iter()
        .map(|row| {
            let own = attachments
                .extract_if(.., |(item, _)| *item == row.id)
                .map(|(_, a)| a)
                .collect();
            row.into_item(own)
        })
        .collect()
}

/// One item of the Agent.
pub async fn find(tx: &mut TenantTx, agent: AgentId, id: ItemId) -> Result<Item> {
    by_ids(tx, agent, &[id])
        .await?
        .pop()
        .ok_or_else(Error::not_found)
}

async fn attachments(tx: &mut TenantTx, items: &[Uuid]) -> Result<Vec<(Uuid, Attachment)>> {
    let rows = sqlx::query!(
        "SELECT id, item_id, name, mime_type, byte_length, sha256 FROM queue_attachments
         WHERE home_id = $1 AND item_id = ANY ($2)
         ORDER BY item_id, ordinal",
        tx.home().uuid(),
        items,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let attachment = Attachment {
                id: row.id.into(),
                name: row.name,
                mime_type: row.mime_type,
                byte_length: row.byte_length,
                sha256: hex::encode(row.sha256),
            };
            (row.item_id, attachment)
        })
        .collect())
}

/// A page of ended items, newest first, behind `after`.
pub async fn history(
    tx: &mut TenantTx,
    agent: AgentId,
    after: Option<(OffsetDateTime, ItemId)>,
    offset: i64,
    limit: i64,
) -> Result<Vec<ItemId>> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM queue_items
         WHERE home_id = $1 AND agent_id = $2 AND finished_at IS NOT NULL
           AND ($3::timestamptz IS NULL OR (finished_at, id) < ($3, $4))
         ORDER BY finished_at DESC, id DESC
         OFFSET $5 LIMIT $6",
        tx.home().uuid(),
        agent.uuid(),
        after.map(|(at, _)| at),
        after.map_or(Uuid::nil(), |(_, id)| id.uuid()),
        offset,
        limit,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids.into_iter().map(ItemId::from).collect())
}

/// The state of one item, for whoever decides what follows it.
pub async fn status(tx: &mut TenantTx, id: Option<ItemId>) -> Result<Option<Status>> {
    let Some(id) = id else {
        return Ok(None);
    };
    let word = sqlx::query_scalar!(
        "SELECT status FROM queue_items WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Status::parse(&word).map(Some)
}

/// The uncertain ones among these items.
pub async fn uncertain_among(tx: &mut TenantTx, ids: &[ItemId]) -> Result<Vec<ItemId>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let found = sqlx::query_scalar!(
        "SELECT id FROM queue_items WHERE home_id = $1 AND id = ANY ($2) AND status = 'uncertain' ORDER BY position",
        tx.home().uuid(),
        &ids,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(found.into_iter().map(ItemId::from).collect())
}

/// A change of an item's state. `revises` says whether a person or an outcome makes it.
pub struct Move<'a> {
    pub item: ItemId,
    pub from: Status,
    pub to: Status,
    pub revises: bool,
    pub waiting_for: Option<WaitingFor>,
    pub diagnostic: Option<&'a Diagnostic>,
    pub approval: Option<ApprovalId>,
    pub turn: Option<TurnId>,
}

impl<'a> Move<'a> {
    /// The plain end of an item.
    pub fn end(item: ItemId, from: Status, to: Status, diagnostic: Option<&'a Diagnostic>) -> Self {
        Self {
            item,
            from,
            to,
            revises: true,
            waiting_for: None,
            diagnostic,
            approval: None,
            turn: None,
        }
    }
}

/// Moves an item, guarded by the state it leaves. The lane is locked, so a miss is an impossible row.
pub async fn apply(tx: &mut TenantTx, change: &Move<'_>) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE queue_items SET
             status = $4,
             revision = revision + CASE WHEN $5 THEN 1 ELSE 0 END,
             waiting_for = $6,
             diagnostic_code = coalesce($7, diagnostic_code),
             diagnostic_message = coalesce($8, diagnostic_message),
             approval_id = coalesce($9, approval_id),
             turn_id = coalesce($10, turn_id),
             started_at = CASE WHEN $4 = 'running' THEN $11 ELSE started_at END,
             finished_at = CASE WHEN $12 THEN NULL ELSE $11 END,
             updated_at = $11
         WHERE home_id = $1 AND id = $2 AND status = $3",
        home.uuid(),
        change.item.uuid(),
        change.from.as_str(),
        change.to.as_str(),
        change.revises,
        change.waiting_for.map(WaitingFor::as_str),
        change.diagnostic.map(|d| d.code.as_str()),
        change.diagnostic.map(|d| d.message.as_str()),
        change.approval.map(Into::<Uuid>::into),
        change.turn.map(Into::<Uuid>::into),
        now,
        change.to.is_open(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), || Error::Corrupt {
        table: "queue_items",
        what: format!(
            "{} is not {} as its lane says",
            change.item,
            change.from.as_str()
        ),
    })
}

/// An item as the start of its turn needs it.
pub struct Frozen {
    pub place: Place,
    pub digest: Vec<u8>,
    pub text: Option<String>,
    pub approval: Option<ApprovalId>,
    pub span: Option<String>,
    pub source: Source,
}

/// What was frozen at acceptance.
pub async fn frozen(tx: &mut TenantTx, id: ItemId) -> Result<Frozen> {
    let row = sqlx::query!(
        "SELECT agent_id, team_id, conversation_id, digest, text, approval_id, span, source FROM queue_items
         WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(Frozen {
        place: Place {
            agent: row.agent_id.into(),
            team: row.team_id.into(),
            conversation: row.conversation_id.into(),
        },
        digest: row.digest,
        text: row.text,
        approval: row.approval_id.map(Into::into),
        span: row.span,
        source: Source::parse(&row.source)?,
    })
}

/// An item stopped being open.
pub async fn count_ended(tx: &mut TenantTx) -> Result<()> {
    sqlx::query!(
        "UPDATE home_usage SET open_items = open_items - 1 WHERE home_id = $1",
        tx.home().uuid(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
