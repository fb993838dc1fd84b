//! SQL of incarnations, and of what the dead left.

use time::OffsetDateTime;
use uuid::Uuid;

use super::incarnation::{Registration, Suspect};
use crate::db::SystemTx;
use crate::error::{Error, Result};
use crate::ids::{HomeId, IncarnationId, LeaseId};
use crate::limits;
use crate::workspace::recovery::Machine;

/// Registers a life.
pub async fn insert_incarnation_across_homes(tx: &mut SystemTx, new: &Registration) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO incarnations
             (id, node_id, machine_id, boot_id, pid, worker, generation, lock_path, started_at, lease_until)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        new.id.uuid(),
        new.machine.node_id,
        new.machine.machine_id,
        new.machine.boot_id,
        new.pid,
        new.worker,
        new.generation,
        new.lock_path,
        now,
        now + limits::INCARNATION_LEASE,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Renews a life, if nobody has ended it.
pub async fn renew_across_homes(tx: &mut SystemTx, id: IncarnationId) -> Result<bool> {
    let until = tx.now() + limits::INCARNATION_LEASE;
    let done = sqlx::query!(
        "UPDATE incarnations SET lease_until = $2 WHERE id = $1",
        id.uuid(),
        until
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Every other life, and whether its time is up. The database's own start counts too: nobody could renew before it.
pub async fn suspects_across_homes(tx: &mut SystemTx, me: IncarnationId) -> Result<Vec<Suspect>> {
    let horizon: OffsetDateTime = tx.now() - limits::REAP_GRACE;
    let rows = sqlx::query!(
        r#"SELECT id, node_id, machine_id, boot_id, lock_path,
                  (lease_until < $2 AND pg_postmaster_start_time() < $2) AS "lapsed!"
           FROM incarnations WHERE id <> $1"#,
        me.uuid(),
        horizon,
    )
    .fetch_all(tx.conn())
    .await?;
    let suspects = rows.into_iter().map(|row| Suspect {
        id: row.id.into(),
        machine: Machine {
            node_id: row.node_id,
            machine_id: row.machine_id,
            boot_id: row.boot_id,
        },
        lock_path: row.lock_path,
        lapsed: row.lapsed,
    });
    Ok(suspects.collect())
}

/// Locks a life for its end; `false` when somebody else is at it, or was.
pub async fn lock_incarnation_across_homes(tx: &mut SystemTx, id: IncarnationId) -> Result<bool> {
    let found = sqlx::query_scalar!(
        "SELECT id FROM incarnations WHERE id = $1 FOR UPDATE SKIP LOCKED",
        id.uuid()
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(found.is_some())
}

/// Forgets a life.
pub async fn delete_incarnation_across_homes(tx: &mut SystemTx, id: IncarnationId) -> Result<()> {
    sqlx::query!("DELETE FROM incarnations WHERE id = $1", id.uuid())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Turns and receipts that still run by the record, of lives that are over.
pub async fn orphans_across_homes(tx: &mut SystemTx) -> Result<Vec<(HomeId, IncarnationId)>> {
    let rows = sqlx::query!(
        r#"SELECT home_id AS "home_id!", incarnation_id AS "incarnation_id!" FROM (
               SELECT home_id, incarnation_id FROM turns WHERE state = 'running'
               UNION
               SELECT home_id, incarnation_id FROM coding_receipts WHERE state = 'running'
           ) AS running
           WHERE NOT EXISTS (SELECT FROM incarnations i WHERE i.id = running.incarnation_id)"#,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id.into(), row.incarnation_id.into()))
        .collect())
}

/// Whether the lease is over: its turn ended in this generation, and no row of it is left.
pub async fn lease_ended_across_homes(
    tx: &mut SystemTx,
    home: HomeId,
    lease: LeaseId,
    generation: i64,
) -> Result<bool> {
    let ended = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM turns WHERE home_id = $1 AND lease_id = $2 AND generation = $3 AND state <> 'running')
                  AND NOT EXISTS (SELECT FROM workspace_leases WHERE home_id = $1 AND id = $2) AS "ended!""#,
        home.uuid(),
        lease.uuid(),
        generation,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(ended)
}

/// Instance and generation that this database is in.
pub async fn instance_across_homes(tx: &mut SystemTx) -> Result<(Uuid, i64)> {
    let row = sqlx::query!("SELECT instance_id, generation FROM instance")
        .fetch_optional(tx.conn())
        .await?
        .ok_or_else(Error::not_found)?;
    Ok((row.instance_id, row.generation))
}
