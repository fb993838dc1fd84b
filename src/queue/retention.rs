//! Text and bytes of ended items expire after 7 days; the receipt stays, so a late retry is still recognised.
//!
//! In small batches, on one process at a time, never inside a person's request. Lock order: item → blob in hash order →
//! home counters.

use std::collections::BTreeMap;

use super::store::system;
use crate::db::{Db, Op, SystemTx};
use crate::error::Result;
use crate::limits;

const EXPIRE: Op = Op::locking("queue.expire_payloads");

/// Expires one batch; how many items. Zero also when another process is at it.
pub async fn expire_payloads(db: &Db) -> Result<usize> {
    db.system(EXPIRE, &(), async |tx: &mut SystemTx, (): &()| {
        expire_in(tx).await
    })
    .await
}

async fn expire_in(tx: &mut SystemTx) -> Result<usize> {
    if !system::try_lock_pruning_across_homes(tx).await? {
        return Ok(0);
    }
    let before = tx.now() - limits::PAYLOAD_KEPT;
    let expired = system::expire_text_across_homes(tx, before, limits::EXPIRY_BATCH).await?;
    if expired.is_empty() {
        return Ok(0);
    }
    let items: Vec<_> = expired.iter().map(|(_, item, _)| *item).collect();
    let blobs = system::release_blobs_across_homes(tx, &items).await?;
    system::delete_orphans_across_homes(tx, &blobs).await?;
    let mut freed: BTreeMap<_, i64> = BTreeMap::new();
    for (home, _, bytes) in &expired {
        *freed.entry(*home).or_default() += bytes;
    }
    for (home, bytes) in freed {
        system::give_bytes_back_across_homes(tx, home, bytes).await?;
    }
    Ok(expired.len())
}
