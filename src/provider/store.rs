//! SQL of providers.

use super::{Kind, Provider, PutProvider};
use crate::db::TenantTx;
use crate::error::{Error, Result};

struct Row {
    name: String,
    kind: String,
    base_url: String,
    models: serde_json::Value,
    sealed_key: Option<Vec<u8>>,
    scripted: bool,
    revision: i64,
    updated_at: time::OffsetDateTime,
}

impl TryFrom<Row> for Provider {
    type Error = Error;
    fn try_from(row: Row) -> Result<Self> {
        let models = serde_json::from_value(row.models).map_err(|e| Error::Corrupt {
            table: "providers",
            what: e.to_string(),
        })?;
        Ok(Provider {
            kind: Kind::parse(&row.kind)?,
            name: row.name,
            base_url: row.base_url,
            models,
            has_key: row.sealed_key.is_some(),
            scripted: row.scripted,
            revision: row.revision,
            updated_at: row.updated_at,
        })
    }
}

/// All providers of the home, by name.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Provider>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT name, kind, base_url, models, sealed_key, scripted, revision, updated_at
         FROM providers WHERE home_id = $1 ORDER BY name",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Provider::try_from).collect()
}

/// One provider.
pub async fn find(tx: &mut TenantTx, name: &str) -> Result<Provider> {
    let found = find_sealed(tx, name).await?;
    found
        .map(|(provider, _)| provider)
        .ok_or_else(Error::not_found)
}

/// One provider with its sealed key.
pub async fn find_sealed(
    tx: &mut TenantTx,
    name: &str,
) -> Result<Option<(Provider, Option<Vec<u8>>)>> {
    let row = sqlx::query_as!(
        Row,
        "SELECT name, kind, base_url, models, sealed_key, scripted, revision, updated_at
         FROM providers WHERE home_id = $1 AND name = $2",
        tx.home().uuid(),
        name,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(|row| {
        let sealed = row.sealed_key.clone();
        Ok((Provider::try_from(row)?, sealed))
    })
    .transpose()
}

/// Inserts or replaces; without a new key the stored one stays.
pub async fn upsert(
    tx: &mut TenantTx,
    name: &str,
    body: &PutProvider,
    sealed_key: Option<Vec<u8>>,
    scripted: bool,
) -> Result<()> {
    let models = serde_json::to_value(&body.models)
        .map_err(|e| Error::internal("writing a provider's models", e))?;
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO providers (home_id, name, kind, base_url, models, sealed_key, scripted, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (home_id, name) DO UPDATE SET
             kind = excluded.kind,
             base_url = excluded.base_url,
             models = excluded.models,
             sealed_key = COALESCE(excluded.sealed_key, providers.sealed_key),
             scripted = excluded.scripted,
             revision = providers.revision + 1,
             updated_at = excluded.updated_at",
        home.uuid(),
        name,
        body.kind.as_str(),
        body.base_url,
        models,
        sealed_key,
        scripted,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Removes a provider with its key.
pub async fn delete(tx: &mut TenantTx, name: &str) -> Result<()> {
    let done = sqlx::query!(
        "DELETE FROM providers WHERE home_id = $1 AND name = $2",
        tx.home().uuid(),
        name
    )
    .execute(tx.conn())
    .await?;
    crate::db::constraint::expect_one(done.rows_affected(), Error::not_found)
}
