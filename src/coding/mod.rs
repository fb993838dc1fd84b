//! Coding during an Agent's task: what a turn may run in, its commands, and the evidence of them.
//!
//! - A receipt exists, `running`, before its command can run, and ends once: by the process that ran it, or by the one
//!   that judged that process dead. Nothing reports a success that was not seen.
//! - No tool takes a Team, an image, a host or an executor; a command takes no lease of its own.
//! - A repeated tool call never runs again.
//! - `succeeded` stands only beside confirmed cleanup.

pub mod api;
pub mod applicability;
pub mod command;
pub mod environment;
pub mod hints;
pub mod inspection;
pub mod output;
pub mod receipt;
pub mod session;
pub(crate) mod store;
pub mod tools;

use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::ids::{IncarnationId, ReceiptId, TurnId};
use crate::team;
use crate::tenant::permission::{Action, require};

pub use receipt::Receipt;
pub use session::Session;

const PRUNE: Op = Op::locking("coding.prune");

/// A Team's receipts, newest first. Operators and owners see them, viewers do not.
pub async fn receipts(
    tx: &mut TenantTx,
    args: &(String, Option<TurnId>, Option<ReceiptId>, i64),
) -> Result<Vec<Receipt>> {
    let (named, turn, before, limit) = args;
    require(tx.caller(), Action::ReadOutput)?;
    let team = team::store::teams::find(tx, named).await?;
    store::list(tx, team.id, *turn, *before, *limit).await
}

/// One receipt of a Team.
pub async fn receipt(tx: &mut TenantTx, args: &(String, ReceiptId)) -> Result<Receipt> {
    let (named, id) = args;
    require(tx.caller(), Action::ReadOutput)?;
    let team = team::store::teams::find(tx, named).await?;
    let found = store::find(tx, *id)
        .await?
        .filter(|receipt| receipt.team_id == team.id);
    found.ok_or_else(Error::not_found)
}

/// Ends what a dead process left running, in this home: its exit was not seen.
pub async fn lose_in(tx: &mut TenantTx, incarnation: IncarnationId) -> Result<u64> {
    let teams = store::lose(tx, incarnation).await?;
    for team in &teams {
        store::keep_newest(tx, *team).await?;
    }
    Ok(teams.len() as u64)
}

/// Deletes one batch of receipts that are too old to be shown; how many went.
pub async fn prune(db: &Db) -> Result<u64> {
    db.system(PRUNE, &(), async |tx: &mut SystemTx, (): &()| {
        store::prune_across_homes(tx).await
    })
    .await
}
