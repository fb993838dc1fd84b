//! What a restored database means, applied in one transaction before anything is claimed or swept.
//!
//! - A new instance id and generation first: nothing of the original's containers matches from then on.
//! - Every open item becomes uncertain, queues pause, approvals can no longer dispatch.
//! - The processes in the record are the original's: forgetting them takes the evidence of their receipts away. Leases
//!   stay, blocked, until a person releases them. Browser sessions end.

use super::store::{self, Identity};
use super::{DataDirectory, Sign, Verdict, begin_generation, witness};
use crate::config::Config;
use crate::db::{Db, Op, SystemTx};
use crate::error::{Error, Result};
use crate::tenant::audit::{self, Act};
use crate::{auth, queue, workspace};

const APPLY: Op = Op::serializable("instance.apply_restore");
const MOVE: Op = Op::serializable("instance.accept_move");
const FENCE: Op = Op::locking("instance.highest_fence");

/// What a start found, and did about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// The database that wrote the row, or an empty one.
    AsLeft,
    /// A copy or a rewind: so many open items became uncertain.
    Restored { signs: Vec<Sign>, items: u64 },
}

/// Recognises the database and applies the rules of a restore where they are due. Called before any claim or sweep.
pub async fn open(db: &Db, config: &Config, directory: Option<&DataDirectory>) -> Result<Opened> {
    let mut signs = match super::check(db, directory).await? {
        Verdict::New => return Ok(Opened::AsLeft),
        Verdict::Same => Vec::new(),
        Verdict::Restored(signs) => signs,
    };
    if signs.is_empty() && is_rewound(db, config).await? {
        signs.push(Sign::Rewound);
    }
    if signs.is_empty() {
        return Ok(Opened::AsLeft);
    }
    let items = mark(db, directory, &signs).await?;
    Ok(Opened::Restored { signs, items })
}

/// Applies the rules of a restore; how many open items became uncertain.
pub async fn mark(db: &Db, directory: Option<&DataDirectory>, signs: &[Sign]) -> Result<u64> {
    db.system(APPLY, &(directory, signs), apply_in).await
}

async fn apply_in(
    tx: &mut SystemTx,
    (directory, signs): &(Option<&DataDirectory>, &[Sign]),
) -> Result<u64> {
    begin_generation(tx, *directory, false).await?;
    let items = queue::recover::mark_restored(tx, None).await?;
    workspace::restored_across_homes(tx).await?;
    store::forget_processes_across_homes(tx).await?;
    auth::store::delete_all_sessions_across_homes(tx).await?;
    let signs: Vec<&str> = signs.iter().map(|sign| sign.as_str()).collect();
    let act = Act {
        action: "instance.restored",
        target: None,
        outcome: "ok",
        origin: "machine",
        detail: serde_json::json!({ "signs": signs, "items": items }),
    };
    audit::record_across_homes(tx, None, &act).await?;
    Ok(items)
}

/// Writes the row anew under the same identity: the move was planned, and nothing was copied or taken back.
pub async fn accept_move(db: &Db, directory: Option<&DataDirectory>) -> Result<Identity> {
    db.system(
        MOVE,
        &directory,
        async |tx: &mut SystemTx, directory: &Option<&DataDirectory>| {
            let identity = begin_generation(tx, *directory, true).await?;
            audit::record_across_homes(
                tx,
                None,
                &Act {
                    origin: "machine",
                    ..Act::ok("instance.accept_move", "")
                },
            )
            .await?;
            Ok(identity)
        },
    )
    .await
}

/// Whether the executor's workspace base has seen a later fencing number than the database has given.
async fn is_rewound(db: &Db, config: &Config) -> Result<bool> {
    let found = db
        .system(FENCE, &(), async |tx: &mut SystemTx, (): &()| {
            let identity = store::find_identity_across_homes(tx).await?;
            let highest = queue::recover::highest_fence(tx).await?;
            Ok(identity.map(|identity| (identity.instance, highest)))
        })
        .await?;
    let Some((instance, highest)) = found else {
        return Ok(false);
    };
    let seen = witness::read(&config.workspace_base, instance)
        .map_err(|e| Error::internal("reading the fence witness", e))?;
    Ok(seen > highest)
}
