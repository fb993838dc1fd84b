//! SQL of approvals.

use time::OffsetDateTime;
use uuid::Uuid;

use super::model::{Approval, NewApproval, State};
use super::{Page, conflict};
use crate::db::{SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::ids::{AgentId, ApprovalId, HomeId, ItemId};
use crate::limits;

struct Row {
    id: Uuid,
    agent_id: Uuid,
    item_id: Uuid,
    digest: Vec<u8>,
    state: String,
    reason: String,
    policy: serde_json::Value,
    requested_at: OffsetDateTime,
    expires_at: OffsetDateTime,
    decided_by: Option<Uuid>,
    decided_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Approval {
    type Error = Error;
    fn try_from(row: Row) -> Result<Self> {
        Ok(Approval {
            id: row.id.into(),
            agent_id: row.agent_id.into(),
            item_id: row.item_id.into(),
            digest: hex::encode(row.digest),
            state: State::parse(&row.state)?,
            reason: row.reason,
            policy: row.policy,
            requested_at: row.requested_at,
            expires_at: row.expires_at,
            decided_by: row.decided_by.map(Into::into),
            decided_at: row.decided_at,
        })
    }
}

/// Records a question. It lives for 24 hours.
pub async fn insert(tx: &mut TenantTx, new: &NewApproval) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO approvals (home_id, id, agent_id, item_id, digest, state, reason, policy, requested_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9)",
        home.uuid(),
        new.id.uuid(),
        new.agent.uuid(),
        new.item.uuid(),
        &new.digest[..],
        new.reason,
        new.policy,
        now,
        now + limits::APPROVAL_LIFE,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// One approval.
pub async fn find(tx: &mut TenantTx, id: ApprovalId) -> Result<Approval> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, agent_id, item_id, digest, state, reason, policy, requested_at, expires_at, decided_by, decided_at
         FROM approvals WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Approval::try_from)
        .transpose()?
        .ok_or_else(Error::not_found)
}

/// A page, newest first.
pub async fn list(tx: &mut TenantTx, page: &Page) -> Result<Vec<Approval>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, agent_id, item_id, digest, state, reason, policy, requested_at, expires_at, decided_by, decided_at
         FROM approvals
         WHERE home_id = $1
           AND (NOT $2 OR state IN ('pending', 'approved', 'delivering'))
           AND ($3::uuid IS NULL OR (requested_at, id) <
                (SELECT requested_at, id FROM approvals WHERE home_id = $1 AND id = $3))
         ORDER BY requested_at DESC, id DESC
         LIMIT $4",
        tx.home().uuid(),
        page.open_only,
        page.before.map(ApprovalId::uuid),
        page.limit,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Approval::try_from).collect()
}

/// A person's or the clock's decision about a question that is still open before its delivery. Of two, one wins.
pub async fn decide(tx: &mut TenantTx, id: ApprovalId, from: &[State], to: State) -> Result<()> {
    let from: Vec<String> = from.iter().map(|state| state.as_str().to_owned()).collect();
    let (home, now) = (tx.home(), tx.now());
    let by = tx.caller().operator().map(Into::<Uuid>::into);
    let done = sqlx::query!(
        "UPDATE approvals SET state = $4, decided_by = $5, decided_at = $6
         WHERE home_id = $1 AND id = $2 AND state = ANY ($3)",
        home.uuid(),
        id.uuid(),
        &from,
        to.as_str(),
        by,
        now,
    )
    .execute(tx.conn())
    .await?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    let current = find(tx, id).await?;
    Err(conflict(&current, "The approval was decided already."))
}

/// The claimed item's turn started: the approval is used up.
pub async fn delivered(tx: &mut TenantTx, item: ItemId, fence: i64) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "UPDATE approvals SET state = 'delivered', delivered_at = $4
         WHERE home_id = $1 AND item_id = $2 AND fence = $3 AND state = 'delivering'",
        home.uuid(),
        item.uuid(),
        fence,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Nothing started: the approval is as good as before.
pub async fn release(tx: &mut TenantTx, item: ItemId, fence: i64) -> Result<()> {
    sqlx::query!(
        "UPDATE approvals SET state = 'approved', fence = NULL
         WHERE home_id = $1 AND item_id = $2 AND fence = $3 AND state = 'delivering'",
        tx.home().uuid(),
        item.uuid(),
        fence,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The item ended or became uncertain before its turn started.
pub async fn delivery_failed(tx: &mut TenantTx, item: ItemId, fence: i64) -> Result<()> {
    sqlx::query!(
        "UPDATE approvals SET state = 'delivery_failed'
         WHERE home_id = $1 AND item_id = $2 AND fence = $3 AND state = 'delivering'",
        tx.home().uuid(),
        item.uuid(),
        fence,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The same for the items of a process that is gone.
pub async fn delivery_failed_across_homes(tx: &mut SystemTx, items: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "UPDATE approvals SET state = 'delivery_failed' WHERE item_id = ANY ($1) AND state = 'delivering'",
        items,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// After a restore no open question can be answered any more.
pub async fn cancel_all_across_homes(tx: &mut SystemTx, home: Option<HomeId>) -> Result<()> {
    sqlx::query!(
        "UPDATE approvals SET state = 'cancelled', fence = NULL
         WHERE state IN ('pending', 'approved', 'delivering') AND ($1::uuid IS NULL OR home_id = $1)",
        home.map(HomeId::uuid),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Questions whose time is over.
pub async fn overdue_across_homes(
    tx: &mut SystemTx,
    limit: i64,
) -> Result<Vec<(HomeId, AgentId, ApprovalId)>> {
    let now = tx.now();
    let rows = sqlx::query!(
        "SELECT home_id, agent_id, id FROM approvals
         WHERE state = 'pending' AND expires_at <= $1
         ORDER BY expires_at
         LIMIT $2",
        now,
        limit,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id.into(), row.agent_id.into(), row.id.into()))
        .collect())
}
