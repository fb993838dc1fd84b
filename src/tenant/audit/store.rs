//! SQL of the audit log: insert and read, nothing else.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Act;
use crate::db::{SystemTx, TenantTx};
use crate::error::Result;
use crate::identity::Actor;
use crate::ids::HomeId;

/// A recorded act, as people read it.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub id: i64,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub at: OffsetDateTime,
    pub actor: String,
    pub actor_id: Option<Uuid>,
    pub origin: String,
    pub action: String,
    pub target: Option<String>,
    pub outcome: String,
    pub detail: Value,
}

/// Inserts an act of the transaction's caller.
pub async fn insert(tx: &mut TenantTx, act: &Act<'_>) -> Result<()> {
    let (actor, id) = match tx.caller().actor() {
        Actor::Operator { id, .. } => ("operator", Some(id.uuid())),
        Actor::Agent { agent, .. } => ("agent", Some(agent.uuid())),
        Actor::System => ("system", None),
    };
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO audit (home_id, at, actor, actor_id, origin, action, target, outcome, detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        home.uuid(),
        now,
        actor,
        id,
        act.origin,
        act.action,
        act.target,
        act.outcome,
        act.detail,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Inserts an act of the server, or of a person on its machine.
pub async fn insert_across_homes(
    tx: &mut SystemTx,
    home: Option<HomeId>,
    act: &Act<'_>,
) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO audit (home_id, at, actor, origin, action, target, outcome, detail)
         VALUES ($1, $2, 'system', $3, $4, $5, $6, $7)",
        home.map(HomeId::uuid),
        now,
        act.origin,
        act.action,
        act.target,
        act.outcome,
        act.detail,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The newest acts before `before`, newest first.
pub async fn list(tx: &mut TenantTx, before: Option<i64>, limit: i64) -> Result<Vec<Entry>> {
    let entries = sqlx::query_as!(
        Entry,
        "SELECT id, at, actor, actor_id, origin, action, target, outcome, detail
         FROM audit
         WHERE home_id = $1 AND ($2::bigint IS NULL OR id < $2)
         ORDER BY id DESC
         LIMIT $3",
        tx.home().uuid(),
        before,
        limit,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(entries)
}

/// Whether an entry is one of this home's.
pub async fn exists(tx: &mut TenantTx, id: i64) -> Result<bool> {
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM audit WHERE home_id = $1 AND id = $2) AS "found!""#,
        tx.home().uuid(),
        id,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(found)
}
