//! SQL of the durable events.

use serde_json::Value;
use time::OffsetDateTime;

use super::{Event, Kind};
use crate::db::{SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::ids::AgentId;
use crate::limits;

/// Takes the next number of the Agent and stores the event under it.
pub async fn append(tx: &mut TenantTx, agent: AgentId, kind: Kind, payload: &Value) -> Result<i64> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query_scalar!(
        "SELECT append_event($1, $2, $3, $4, $5)",
        home.uuid(),
        agent.uuid(),
        kind.as_str(),
        payload,
        now,
    )
    .fetch_one(tx.conn())
    .await?
    .ok_or_else(Error::not_found)
}

/// The newest number given out, and the oldest event still kept.
pub async fn bounds(tx: &mut TenantTx, agent: AgentId) -> Result<(i64, Option<i64>)> {
    let row = sqlx::query!(
        "SELECT event_seq,
                (SELECT min(seq) FROM agent_events e WHERE e.home_id = a.home_id AND e.agent_id = a.id) AS oldest
         FROM agents a WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    Ok((row.event_seq, row.oldest))
}

/// One page of events behind `last`.
pub async fn after(tx: &mut TenantTx, agent: AgentId, last: i64) -> Result<Vec<Event>> {
    let rows = sqlx::query!(
        "SELECT seq, kind, payload FROM agent_events
         WHERE home_id = $1 AND agent_id = $2 AND seq > $3
         ORDER BY seq
         LIMIT $4",
        tx.home().uuid(),
        agent.uuid(),
        last,
        limits::EVENTS_PAGE,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Event {
                seq: row.seq,
                kind: Kind::parse(&row.kind)?,
                payload: row.payload,
            })
        })
        .collect()
}

/// Deletes one batch of events from before `before`.
pub async fn prune_across_homes(tx: &mut SystemTx, before: OffsetDateTime) -> Result<u64> {
    let done = sqlx::query!(
        "DELETE FROM agent_events e
         USING (SELECT home_id, agent_id, seq FROM agent_events WHERE at < $1 ORDER BY at LIMIT $2) AS old
         WHERE e.home_id = old.home_id AND e.agent_id = old.agent_id AND e.seq = old.seq",
        before,
        limits::EVENTS_BATCH,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}
