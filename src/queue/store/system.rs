//! SQL across homes: claims, lost processes, restores, pruning. Ids and states only, never text or bytes.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::SystemTx;
use crate::error::Result;
use crate::ids::{AgentId, HomeId, IncarnationId, ItemId};

/// A head that was taken.
pub struct Taken {
    pub home: HomeId,
    pub agent: AgentId,
    pub item: ItemId,
    pub fence: i64,
}

/// Takes up to `wanted` heads for a process, homes taking turns behind `after`.
pub async fn claim_across_homes(
    tx: &mut SystemTx,
    owner: IncarnationId,
    wanted: i32,
    after: Option<HomeId>,
) -> Result<Vec<Taken>> {
    let now = tx.now();
    let rows = sqlx::query!(
        r#"SELECT home_id AS "home_id!", agent_id AS "agent_id!", item_id AS "item_id!", fence AS "fence!"
           FROM claim_heads($1, $2, $3, $4)"#,
        owner.uuid(),
        wanted,
        now,
        after.map(HomeId::uuid),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Taken {
            home: row.home_id.into(),
            agent: row.agent_id.into(),
            item: row.item_id.into(),
            fence: row.fence,
        })
        .collect())
}

/// The claims of a process that a Stop asked to end.
pub async fn stopped_across_homes(tx: &mut SystemTx, owner: IncarnationId) -> Result<Vec<i64>> {
    let fences = sqlx::query_scalar!(
        "SELECT fence FROM agent_queues WHERE owner = $1 AND stopped_fence = fence",
        owner.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(fences)
}

/// The highest fencing number that any claim of this database was committed with.
pub async fn highest_fence_across_homes(tx: &mut SystemTx) -> Result<i64> {
    let fence =
        sqlx::query_scalar!(r#"SELECT coalesce(max(fence), 0) AS "fence!" FROM agent_queues"#)
            .fetch_one(tx.conn())
            .await?;
    Ok(fence)
}

/// Locks the lanes that a process holds; home, Agent and head of each.
pub async fn lock_lanes_of_across_homes(
    tx: &mut SystemTx,
    owner: IncarnationId,
) -> Result<Vec<(Uuid, Uuid, Uuid)>> {
    let rows = sqlx::query!(
        r#"SELECT home_id, agent_id, open[1] AS "head!" FROM agent_queues
           WHERE owner = $1
           ORDER BY home_id, agent_id
           FOR NO KEY UPDATE"#,
        owner.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id, row.agent_id, row.head))
        .collect())
}

/// The heads of a lost process become uncertain.
pub async fn lose_items_across_homes(
    tx: &mut SystemTx,
    items: &[Uuid],
    message: &str,
) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE queue_items SET status = 'uncertain', revision = revision + 1, waiting_for = NULL,
                diagnostic_code = 'owner_lost', diagnostic_message = $2, updated_at = $3
         WHERE id = ANY ($1) AND status IN ('claimed', 'running')",
        items,
        message,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The lanes of a lost process pause.
pub async fn lose_lanes_across_homes(tx: &mut SystemTx, owner: IncarnationId) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE agent_queues SET phase = 'uncertain', owner = NULL, ready_at = NULL, paused = true, reason = 'interrupted',
                control_revision = control_revision + 1, changed_by = NULL, changed_at = $2
         WHERE owner = $1",
        owner.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Locks every lane of a home, or of all.
pub async fn lock_all_lanes_across_homes(tx: &mut SystemTx, home: Option<HomeId>) -> Result<()> {
    sqlx::query!(
        "SELECT FROM agent_queues WHERE $1::uuid IS NULL OR home_id = $1 ORDER BY home_id, agent_id FOR NO KEY UPDATE",
        home.map(HomeId::uuid),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Every open item becomes uncertain, by the move that only a restore may make.
pub async fn restore_items_across_homes(
    tx: &mut SystemTx,
    home: Option<HomeId>,
    message: &str,
) -> Result<u64> {
    let now = tx.now();
    sqlx::query_scalar!("SELECT set_config('bazilion.restoring', 'on', true)")
        .fetch_one(tx.conn())
        .await?;
    let done = sqlx::query!(
        "UPDATE queue_items SET status = 'uncertain', revision = revision + 1, waiting_for = NULL,
                diagnostic_code = 'restored', diagnostic_message = $2, updated_at = $3
         WHERE status IN ('pending', 'claimed', 'running', 'held') AND ($1::uuid IS NULL OR home_id = $1)",
        home.map(HomeId::uuid),
        message,
        now,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query_scalar!("SELECT set_config('bazilion.restoring', 'off', true)")
        .fetch_one(tx.conn())
        .await?;
    Ok(done.rows_affected())
}

/// Every queue pauses.
pub async fn restore_lanes_across_homes(tx: &mut SystemTx, home: Option<HomeId>) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE agent_queues SET
                phase = CASE WHEN cardinality(open) > 0 THEN 'uncertain' END, owner = NULL, ready_at = NULL,
                paused = true, reason = 'restored', control_revision = control_revision + 1, changed_by = NULL,
                changed_at = $2
         WHERE ($1::uuid IS NULL OR home_id = $1)
           AND (reason IS DISTINCT FROM 'restored' OR owner IS NOT NULL
                OR (cardinality(open) > 0 AND phase IS DISTINCT FROM 'uncertain'))",
        home.map(HomeId::uuid),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Whether this process is the one that prunes now. Held to the end of the transaction.
pub async fn try_lock_pruning_across_homes(tx: &mut SystemTx) -> Result<bool> {
    let got = sqlx::query_scalar!(
        r#"SELECT pg_try_advisory_xact_lock(hashtext('bazilion.queue.retention')) AS "got!""#
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(got)
}

/// Text of one batch of ended items goes, and their files stop counting; the items' homes and ids, and what each
/// home gets back.
pub async fn expire_text_across_homes(
    tx: &mut SystemTx,
    ended_before: OffsetDateTime,
    limit: i64,
) -> Result<Vec<(Uuid, Uuid, i64)>> {
    let now = tx.now();
    let rows = sqlx::query!(
        r#"WITH batch AS (
               SELECT i.home_id, i.id, i.retained_bytes FROM queue_items i
               WHERE i.payload_retained AND i.finished_at <= $1
                 AND NOT EXISTS (SELECT FROM approvals a
                     WHERE a.home_id = i.home_id AND a.item_id = i.id AND a.state IN ('pending', 'approved', 'delivering'))
               ORDER BY i.finished_at
               LIMIT $2
               FOR NO KEY UPDATE OF i
           )
           UPDATE queue_items i SET text = NULL, payload_retained = false, retained_bytes = 0, updated_at = $3
           FROM batch WHERE i.home_id = batch.home_id AND i.id = batch.id
           RETURNING i.home_id, i.id, batch.retained_bytes"#,
        ended_before,
        limit,
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id, row.id, row.retained_bytes))
        .collect())
}

/// The files of these items let go of their bytes; the contents they had, in hash order, locked.
pub async fn release_blobs_across_homes(
    tx: &mut SystemTx,
    items: &[Uuid],
) -> Result<Vec<(Uuid, Vec<u8>)>> {
    let rows = sqlx::query!(
        "SELECT b.home_id, b.sha256 FROM blobs b
         WHERE (b.home_id, b.sha256) IN (SELECT home_id, blob FROM queue_attachments WHERE item_id = ANY ($1))
         ORDER BY b.home_id, b.sha256
         FOR UPDATE",
        items,
    )
    .fetch_all(tx.conn())
    .await?;
    sqlx::query!(
        "UPDATE queue_attachments SET blob = NULL WHERE item_id = ANY ($1) AND blob IS NOT NULL",
        items
    )
    .execute(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id, row.sha256))
        .collect())
}

/// Deletes those of the locked contents that nobody refers to any more. A statement of its own, so that it sees what
/// was committed while the locks were waited for.
pub async fn delete_orphans_across_homes(
    tx: &mut SystemTx,
    blobs: &[(Uuid, Vec<u8>)],
) -> Result<u64> {
    let homes: Vec<Uuid> = blobs.iter().map(|(home, _)| *home).collect();
    let hashes: Vec<Vec<u8>> = blobs.iter().map(|(_, hash)| hash.clone()).collect();
    let done = sqlx::query!(
        "DELETE FROM blobs b USING unnest($1::uuid[], $2::bytea[]) AS candidate (home_id, sha256)
         WHERE b.home_id = candidate.home_id AND b.sha256 = candidate.sha256
           AND NOT EXISTS (SELECT FROM queue_attachments a WHERE a.home_id = b.home_id AND a.blob = b.sha256)",
        &homes,
        &hashes,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Gives a home its bytes back.
pub async fn give_bytes_back_across_homes(tx: &mut SystemTx, home: Uuid, bytes: i64) -> Result<()> {
    sqlx::query!(
        "UPDATE home_usage SET retained_bytes = retained_bytes - $2 WHERE home_id = $1",
        home,
        bytes,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
