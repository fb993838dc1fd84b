//! Durable live events of an Agent: what a page or a client that was away catches up with.
//!
//! - Numbers come from the locked Agent row, so they grow in commit order and none appears late.
//! - An event is written in the transaction of the change it tells of. Items and controls of the queue do it by
//!   trigger; turns and messages call [`append`].
//! - Kept for an hour. A reader that asks for something older, or for a number that never was, is told to reload:
//!   never silence.

mod follow;
mod store;

use serde_json::Value;

use crate::db::codec::text_enum;
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::ids::AgentId;
use crate::limits;

pub use follow::follow;

const PRUNE: Op = Op::locking("events.prune");

text_enum! {
    /// What an event tells of.
    pub enum Kind in "agent_events" {
        Item => "item",
        Control => "control",
        Turn => "turn",
        Message => "message",
    }
}

/// One durable event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub seq: i64,
    pub kind: Kind,
    pub payload: Value,
}

/// What a reader that saw everything up to some number gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Since {
    /// Everything later, oldest first; at most one page. Empty when nothing is new.
    Events(Vec<Event>),
    /// Something in between is gone: read the state itself, then go on from `seq`.
    Reload { seq: i64 },
}

/// Appends an event. Locks the Agent's row until the end of the transaction.
pub async fn append(tx: &mut TenantTx, agent: AgentId, kind: Kind, payload: &Value) -> Result<i64> {
    store::append(tx, agent, kind, payload).await
}

/// Events behind `last`, or, without it, the number to go on from.
pub async fn since(tx: &mut TenantTx, agent: AgentId, last: Option<i64>) -> Result<Since> {
    let (newest, oldest_kept) = store::bounds(tx, agent).await?;
    let Some(last) = last else {
        return Ok(Since::Reload { seq: newest });
    };
    let gap =
        last < 0 || last > newest || (last < newest && oldest_kept.is_none_or(|o| o > last + 1));
    if gap {
        return Ok(Since::Reload { seq: newest });
    }
    Ok(Since::Events(store::after(tx, agent, last).await?))
}

/// Prunes one batch of events that are older than an hour; how many went.
pub async fn prune(db: &Db) -> Result<u64> {
    db.system(PRUNE, &(), async |tx: &mut SystemTx, (): &()| {
        let before = tx.now() - limits::EVENTS_KEPT;
        store::prune_across_homes(tx, before).await
    })
    .await
}
