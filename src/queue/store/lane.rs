//! SQL of the lane row.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::expect_one;
use crate::error::{Error, Result};
use crate::ids::{AgentId, ItemId};
use crate::queue::lane::{Lane, Phase};
use crate::queue::model::{Control, Reason};

struct Row {
    control_revision: i64,
    paused: bool,
    reason: Option<String>,
    changed_by: Option<Uuid>,
    changed_at: Option<OffsetDateTime>,
    open: Vec<Uuid>,
    phase: Option<String>,
    owner: Option<Uuid>,
    fence: i64,
    stopped_fence: Option<i64>,
    next_position: i64,
    ended: i32,
    ready_at: Option<OffsetDateTime>,
}

fn lane(agent: AgentId, row: Row) -> Result<Lane> {
    Ok(Lane {
        agent,
        control: Control {
            paused: row.paused,
            revision: row.control_revision,
            reason: row.reason.as_deref().map(Reason::parse).transpose()?,
            changed_by: row.changed_by.map(Into::into),
            changed_at: row.changed_at,
        },
        open: row.open.into_iter().map(ItemId::from).collect(),
        phase: row.phase.as_deref().map(Phase::parse).transpose()?,
        owner: row.owner.map(Into::into),
        fence: row.fence,
        stopped_fence: row.stopped_fence,
        next_position: row.next_position,
        ended: row.ended,
        ready_at: row.ready_at,
    })
}

/// The lane, locked to the end of the transaction. `not_found` for an Agent that is not in this home.
pub async fn lock(tx: &mut TenantTx, agent: AgentId) -> Result<Lane> {
    let row = sqlx::query_as!(
        Row,
        "SELECT control_revision, paused, reason, changed_by, changed_at, open, phase, owner, fence, stopped_fence,
                next_position, ended, ready_at
         FROM agent_queues WHERE home_id = $1 AND agent_id = $2
         FOR NO KEY UPDATE",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    lane(agent, row)
}

/// The lane as it is, for looking.
pub async fn look(tx: &mut TenantTx, agent: AgentId) -> Result<Lane> {
    let row = sqlx::query_as!(
        Row,
        "SELECT control_revision, paused, reason, changed_by, changed_at, open, phase, owner, fence, stopped_fence,
                next_position, ended, ready_at
         FROM agent_queues WHERE home_id = $1 AND agent_id = $2",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    lane(agent, row)
}

/// Writes a locked lane back.
pub async fn save(tx: &mut TenantTx, lane: &Lane) -> Result<()> {
    let open: Vec<Uuid> = lane.open.iter().map(|id| id.uuid()).collect();
    let done = sqlx::query!(
        "UPDATE agent_queues SET
             control_revision = $3, paused = $4, reason = $5, changed_by = $6, changed_at = $7, open = $8, phase = $9,
             owner = $10, stopped_fence = $11, next_position = $12, ended = $13, ready_at = $14
         WHERE home_id = $1 AND agent_id = $2",
        tx.home().uuid(),
        lane.agent.uuid(),
        lane.control.revision,
        lane.control.paused,
        lane.control.reason.map(Reason::as_str),
        lane.control.changed_by.map(Into::<Uuid>::into),
        lane.control.changed_at,
        &open,
        lane.phase.map(Phase::as_str),
        lane.owner.map(Into::<Uuid>::into),
        lane.stopped_fence,
        lane.next_position,
        lane.ended,
        lane.ready_at,
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// Makes the Agents' waiting heads claimable now: what they waited for may be free.
pub async fn nudge(tx: &mut TenantTx, agents: Option<&[Uuid]>) -> Result<u64> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE agent_queues SET ready_at = $2
         WHERE home_id = $1 AND ready_at > $2 AND ($3::uuid[] IS NULL OR agent_id = ANY ($3))",
        home.uuid(),
        now,
        agents,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
