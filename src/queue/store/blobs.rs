//! SQL of attachment bytes: each content once per home, in pieces.

use bytes::Bytes;
use uuid::Uuid;

use crate::db::TenantTx;
use crate::error::{Error, Result};
use crate::ids::{AgentId, AttachmentId, ItemId};

/// Makes sure that the content is there and stays until the commit. Contents are stored in hash order by the caller.
pub async fn store(
    tx: &mut TenantTx,
    sha256: &[u8; 32],
    length: usize,
    pieces: &[Bytes],
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    // The update takes the row's lock: pruning waits, and looks again for references afterwards.
    let fresh = sqlx::query_scalar!(
        r#"INSERT INTO blobs (home_id, sha256, byte_length, created_at) VALUES ($1, $2, $3, $4)
           ON CONFLICT (home_id, sha256) DO UPDATE SET byte_length = EXCLUDED.byte_length
           RETURNING xmax = 0 AS "fresh!""#,
        home.uuid(),
        &sha256[..],
        length as i64,
        now,
    )
    .fetch_one(tx.conn())
    .await?;
    if !fresh {
        return Ok(());
    }
    for (number, piece) in pieces.iter().enumerate() {
        sqlx::query!(
            "INSERT INTO blob_chunks (home_id, sha256, number, bytes) VALUES ($1, $2, $3, $4)",
            home.uuid(),
            &sha256[..],
            number as i32,
            &piece[..],
        )
        .execute(tx.conn())
        .await?;
    }
    Ok(())
}

/// An attachment's metadata and whether its bytes are kept.
pub struct Stored {
    pub name: Option<String>,
    pub mime_type: String,
    pub byte_length: i64,
    pub sha256: Vec<u8>,
    pub blob: Option<Vec<u8>>,
}

/// The attachments of an item in order.
pub async fn of_item(tx: &mut TenantTx, item: ItemId) -> Result<Vec<(AttachmentId, Stored)>> {
    let rows = sqlx::query!(
        "SELECT id, name, mime_type, byte_length, sha256, blob FROM queue_attachments
         WHERE home_id = $1 AND item_id = $2 ORDER BY ordinal",
        tx.home().uuid(),
        item.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let stored = Stored {
                name: row.name,
                mime_type: row.mime_type,
                byte_length: row.byte_length,
                sha256: row.sha256,
                blob: row.blob,
            };
            (row.id.into(), stored)
        })
        .collect())
}

/// One attachment of one item of one Agent.
pub async fn find(
    tx: &mut TenantTx,
    agent: AgentId,
    item: ItemId,
    id: AttachmentId,
) -> Result<Stored> {
    let row = sqlx::query_as!(
        Stored,
        "SELECT a.name, a.mime_type, a.byte_length, a.sha256, a.blob
         FROM queue_attachments a JOIN queue_items i ON i.home_id = a.home_id AND i.id = a.item_id
         WHERE a.home_id = $1 AND a.id = $4 AND i.id = $3 AND i.agent_id = $2",
        tx.home().uuid(),
        agent.uuid(),
        item.uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.ok_or_else(Error::not_found)
}

/// The bytes under a hash, as they are stored.
pub async fn read(tx: &mut TenantTx, sha256: &[u8]) -> Result<Vec<u8>> {
    let home: Uuid = tx.home().uuid();
    let pieces = sqlx::query_scalar!(
        "SELECT bytes FROM blob_chunks WHERE home_id = $1 AND sha256 = $2 ORDER BY number",
        home,
        sha256,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(pieces.concat())
}
