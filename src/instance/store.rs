//! SQL of the instance as a whole.

use crate::db::SystemTx;
use crate::error::Result;
use crate::ids::HomeId;

/// The home that was made first.
pub async fn first_home_across_homes(tx: &mut SystemTx) -> Result<Option<(HomeId, String)>> {
    let row = sqlx::query!("SELECT id, slug FROM homes ORDER BY created_at, id LIMIT 1")
        .fetch_optional(tx.conn())
        .await?;
    Ok(row.map(|row| (row.id.into(), row.slug)))
}
