//! What a lost process or a restored database means for the queues. Nothing uncertain is ever replayed.

use super::store::system;
use crate::approval;
use crate::db::SystemTx;
use crate::error::Result;
use crate::ids::{AgentId, HomeId, IncarnationId};

/// What recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// The Agents whose head became uncertain, with their home.
    pub agents: Vec<(HomeId, AgentId)>,
}

/// Everything that a dead process held becomes uncertain and its queues pause, in the transaction that deletes the
/// process's row. A second call finds nothing. A claim that certainly did not start is treated the same: caution over
/// convenience. Work of other processes is not touched.
pub async fn lose(tx: &mut SystemTx, incarnation: IncarnationId) -> Result<Lost> {
    let lanes = system::lock_lanes_of_across_homes(tx, incarnation).await?;
    if lanes.is_empty() {
        return Ok(Lost::default());
    }
    let heads: Vec<_> = lanes.iter().map(|(_, _, head)| *head).collect();
    let message =
        "The process that worked on this is gone, and its outcome is unknown. It may have acted.";
    system::lose_items_across_homes(tx, &heads, message).await?;
    approval::store::delivery_failed_across_homes(tx, &heads).await?;
    system::lose_lanes_across_homes(tx, incarnation).await?;
    Ok(Lost {
        agents: lanes
            .into_iter()
            .map(|(home, agent, _)| (home.into(), agent.into()))
            .collect(),
    })
}

/// The database, or one home of it, was taken back or copied: every open item becomes uncertain, every queue pauses, and
/// no approval can dispatch any more. Before any claim. Doing it again changes nothing.
pub async fn mark_restored(tx: &mut SystemTx, home: Option<HomeId>) -> Result<u64> {
    system::lock_all_lanes_across_homes(tx, home).await?;
    let message = "The database was restored, so nobody knows whether this already acted.";
    let items = system::restore_items_across_homes(tx, home, message).await?;
    approval::store::cancel_all_across_homes(tx, home).await?;
    system::restore_lanes_across_homes(tx, home).await?;
    Ok(items)
}

/// The highest fencing number that this database has given.
pub async fn highest_fence(tx: &mut SystemTx) -> Result<i64> {
    system::highest_fence_across_homes(tx).await
}
