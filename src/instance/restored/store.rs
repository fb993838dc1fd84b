//! SQL of the one row that remembers where it was written.

use uuid::Uuid;

use super::{DataDirectory, Place};
use crate::db::SystemTx;
use crate::error::Result;

/// What this instance calls itself, and how often it was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub instance: Uuid,
    pub generation: i64,
}

/// The row as it was written, and the transaction that really wrote it here.
#[derive(Debug, Clone)]
pub struct Written {
    /// The row's `xmin`, 32 bits.
    pub writer: i64,
    /// The low 32 bits of the transaction id that the row was told.
    pub written_xid: i64,
    pub place: Place,
}

/// One process at a time looks and writes. Held to the end of the transaction.
pub async fn lock_across_homes(tx: &mut SystemTx) -> Result<()> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('bazilion.instance'))")
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Where this transaction writes.
pub async fn place_across_homes(
    tx: &mut SystemTx,
    directory: Option<DataDirectory>,
) -> Result<Place> {
    let row = sqlx::query!(
        r#"SELECT
               (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS "database_oid!",
               (SELECT system_identifier FROM pg_control_system()) AS "system_identifier!",
               -- The WAL file's name begins with the timeline; the control file learns of it only at a checkpoint.
               ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer AS "timeline!""#
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(Place {
        database_oid: row.database_oid,
        system_identifier: row.system_identifier,
        timeline: row.timeline,
        directory,
    })
}

/// The row, if there is one.
pub async fn find_written_across_homes(tx: &mut SystemTx) -> Result<Option<Written>> {
    let row = sqlx::query!(
        r#"SELECT
               xmin::text::bigint AS "writer!",
               written_xid::text::numeric % 4294967296 = xmin::text::numeric AS "same_writer!",
               database_oid::bigint AS "database_oid!",
               system_identifier, timeline, data_directory, data_device, data_inode
           FROM instance"#
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Written {
        writer: row.writer,
        written_xid: if row.same_writer { row.writer } else { -1 },
        place: Place {
            database_oid: row.database_oid,
            system_identifier: row.system_identifier,
            timeline: row.timeline,
            directory: row
                .data_directory
                .zip(row.data_device.zip(row.data_inode))
                .map(|(path, (device, inode))| DataDirectory {
                    path,
                    device,
                    inode,
                }),
        },
    }))
}

/// The first row of an empty database.
pub async fn insert_across_homes(tx: &mut SystemTx, here: &Place) -> Result<()> {
    let directory = here.directory.as_ref();
    sqlx::query!(
        "INSERT INTO instance (instance_id, written_xid, database_oid, system_identifier, timeline, data_directory,
                               data_device, data_inode)
         VALUES ($1, pg_current_xact_id(), $2::bigint::oid, $3, $4, $5, $6, $7)",
        fresh_instance_id(),
        here.database_oid,
        here.system_identifier,
        here.timeline,
        directory.map(|d| d.path.as_str()),
        directory.map(|d| d.device),
        directory.map(|d| d.inode),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Writes the row anew, here: after a restore under a new identity, after an announced move under the same.
pub async fn rewrite_across_homes(
    tx: &mut SystemTx,
    here: &Place,
    keep_identity: bool,
) -> Result<()> {
    let directory = here.directory.as_ref();
    sqlx::query!(
        "UPDATE instance SET
             instance_id = CASE WHEN $1 THEN instance_id ELSE $2 END,
             generation = CASE WHEN $1 THEN generation ELSE generation + 1 END,
             written_xid = pg_current_xact_id(),
             database_oid = $3::bigint::oid,
             system_identifier = $4,
             timeline = $5,
             data_directory = $6,
             data_device = $7,
             data_inode = $8",
        keep_identity,
        fresh_instance_id(),
        here.database_oid,
        here.system_identifier,
        here.timeline,
        directory.map(|d| d.path.as_str()),
        directory.map(|d| d.device),
        directory.map(|d| d.inode),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// What the instance calls itself now.
pub async fn find_identity_across_homes(tx: &mut SystemTx) -> Result<Option<Identity>> {
    let row = sqlx::query!("SELECT instance_id, generation FROM instance")
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|row| Identity {
        instance: row.instance_id,
        generation: row.generation,
    }))
}

/// Forgets every process in the record: they belong to the original.
pub async fn forget_processes_across_homes(tx: &mut SystemTx) -> Result<()> {
    sqlx::query!("DELETE FROM incarnations")
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn fresh_instance_id() -> Uuid {
    crate::ids::IncarnationId::new().uuid()
}
