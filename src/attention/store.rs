//! SQL of what needs a person.

use super::{Found, Kind};
use crate::db::TenantTx;
use crate::error::Result;
use crate::limits;

/// Everything in the home that needs a person, the oldest first.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Found>> {
    let (home, now) = (tx.home(), tx.now());
    let rows = sqlx::query!(
        r#"WITH matters AS (
               -- Open items are found through their lanes, not by reading every receipt of the home.
               SELECT i.status AS kind, q.agent_id, i.id AS item_id, i.updated_at AS since, NULL::text AS detail
               FROM agent_queues q
               JOIN queue_items i ON i.home_id = q.home_id AND i.id = ANY (q.open)
               WHERE q.home_id = $1 AND i.status IN ('held', 'uncertain')
             UNION ALL
               SELECT 'paused', q.agent_id, NULL, q.changed_at, q.reason
               FROM agent_queues q
               WHERE q.home_id = $1 AND q.paused AND q.phase IS DISTINCT FROM 'uncertain'
             UNION ALL
               SELECT 'failed', i.agent_id, i.id, i.finished_at, i.diagnostic_message
               FROM agents a
               JOIN queue_items i ON i.home_id = a.home_id AND i.agent_id = a.id
                   AND i.finished_at IS NOT NULL AND i.finished_at > $2 AND i.status = 'failed'
               WHERE a.home_id = $1
             UNION ALL
               SELECT 'recovery', l.agent_id, NULL, l.recovery_at, NULL
               FROM workspace_leases l
               WHERE l.home_id = $1 AND l.state = 'recovery'
             UNION ALL
               SELECT 'receipts', NULL, NULL, NULL, (u.receipts::bigint * 100 / u.max_receipts)::text
               FROM home_usage u
               WHERE u.home_id = $1 AND u.receipts::bigint * 100 >= u.max_receipts::bigint * $3
           )
           SELECT m.kind AS "kind!", m.agent_id, m.item_id, m.since, m.detail, a.name AS "agent_name?"
           FROM matters m
           LEFT JOIN agents a ON a.home_id = $1 AND a.id = m.agent_id
           ORDER BY m.since NULLS FIRST, m.item_id
           LIMIT $4"#,
        home.uuid(),
        now - limits::ATTENTION_FAILED,
        limits::ATTENTION_RECEIPTS_PERCENT,
        limits::ATTENTION_MAX,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Found {
                kind: Kind::parse(&row.kind)?,
                agent_name: row.agent_name,
                agent_id: row.agent_id.map(Into::into),
                item_id: row.item_id.map(Into::into),
                since: row.since,
                detail: row.detail,
            })
        })
        .collect()
}
