//! SQL of the consistency check.

use crate::db::TenantTx;
use crate::error::Result;

/// What contradicts itself in the home's queues; empty in a sound database.
pub async fn violations(tx: &mut TenantTx) -> Result<Vec<String>> {
    let found = sqlx::query_scalar!(
        r#"WITH lane AS (SELECT * FROM agent_queues WHERE home_id = $1),
           listed AS (SELECT l.agent_id, o.id, o.place FROM lane l, unnest(l.open) WITH ORDINALITY AS o (id, place)),
           item AS (SELECT * FROM queue_items WHERE home_id = $1),
           held_bytes AS (
               SELECT item_id, sum(byte_length) AS bytes FROM queue_attachments
               WHERE home_id = $1 AND blob IS NOT NULL GROUP BY item_id
           )
           SELECT 'open items: counter and lanes differ' AS "what!"
               FROM home_usage u WHERE home_id = $1 AND open_items <> (SELECT count(*) FROM listed)
           UNION ALL SELECT 'receipts: counter and rows differ'
               FROM home_usage u WHERE home_id = $1 AND receipts <> (SELECT count(*) FROM item)
           UNION ALL SELECT 'retained bytes: counter and items differ'
               FROM home_usage u WHERE home_id = $1 AND retained_bytes <> (SELECT coalesce(sum(i.retained_bytes), 0) FROM item i)
           UNION ALL SELECT 'a lane lists an item that is missing, ended or of another Agent: ' || l.id
               FROM listed l LEFT JOIN item i ON i.id = l.id AND i.agent_id = l.agent_id
               WHERE i.id IS NULL OR i.finished_at IS NOT NULL
           UNION ALL SELECT 'an open item is in no lane: ' || i.id
               FROM item i WHERE i.finished_at IS NULL AND NOT EXISTS (SELECT FROM listed l WHERE l.id = i.id)
           UNION ALL SELECT 'ended items: counter and rows differ for ' || l.agent_id
               FROM lane l WHERE l.ended <> (SELECT count(*) FROM item i WHERE i.agent_id = l.agent_id AND i.finished_at IS NOT NULL)
           UNION ALL SELECT 'positions are not in order in ' || a.agent_id
               FROM listed a JOIN listed b ON b.agent_id = a.agent_id AND b.place = a.place + 1
               JOIN item x ON x.id = a.id JOIN item y ON y.id = b.id WHERE x.position >= y.position
           UNION ALL SELECT 'an item stands at or behind the next position: ' || i.id
               FROM item i JOIN lane l ON l.agent_id = i.agent_id WHERE i.position >= l.next_position
           UNION ALL SELECT 'the phase does not fit the head of ' || l.agent_id
               FROM lane l JOIN item i ON i.id = l.open[1]
               WHERE i.status <> CASE l.phase WHEN 'approved' THEN 'held' ELSE coalesce(l.phase, 'pending') END
           UNION ALL SELECT 'claimed or running behind the head: ' || i.id
               FROM item i JOIN lane l ON l.agent_id = i.agent_id
               WHERE i.status IN ('claimed', 'running') AND i.id <> l.open[1]
           UNION ALL SELECT 'uncertain in a queue that is not paused: ' || i.id
               FROM item i JOIN lane l ON l.agent_id = i.agent_id WHERE i.status = 'uncertain' AND NOT l.paused
           UNION ALL SELECT 'a held item without an open approval: ' || i.id
               FROM item i LEFT JOIN approvals a ON a.home_id = $1 AND a.id = i.approval_id
               WHERE i.status = 'held' AND (a.state IS NULL OR a.state NOT IN ('pending', 'approved'))
           UNION ALL SELECT 'an open approval of an item that is not held or claimed: ' || a.id
               FROM approvals a JOIN item i ON i.id = a.item_id
               WHERE a.home_id = $1 AND a.state IN ('pending', 'approved', 'delivering') AND i.status NOT IN ('held', 'claimed')
           UNION ALL SELECT 'an approved head in a lane that does not say so: ' || a.id
               FROM approvals a JOIN lane l ON l.agent_id = a.agent_id AND l.open[1] = a.item_id
               WHERE a.home_id = $1 AND (a.state = 'approved') <> (l.phase IS NOT DISTINCT FROM 'approved')
                 AND a.state IN ('pending', 'approved')
           UNION ALL SELECT 'an item keeps its payload and misses bytes: ' || i.id
               FROM item i JOIN queue_attachments a ON a.home_id = $1 AND a.item_id = i.id
               WHERE i.payload_retained <> (a.blob IS NOT NULL)
           UNION ALL SELECT 'an item counts other bytes than it has: ' || i.id
               FROM item i LEFT JOIN held_bytes b ON b.item_id = i.id
               WHERE i.payload_retained AND i.status <> 'superseded' AND i.retained_bytes <> coalesce(b.bytes, 0)
           UNION ALL SELECT 'a blob nobody refers to'
               FROM blobs b WHERE home_id = $1
               AND NOT EXISTS (SELECT FROM queue_attachments a WHERE a.home_id = $1 AND a.blob = b.sha256)
           UNION ALL SELECT 'a blob with other bytes than its name says'
               FROM blobs b LEFT JOIN LATERAL (
                   SELECT coalesce(string_agg(c.bytes, ''::bytea ORDER BY c.number), ''::bytea) AS bytes FROM blob_chunks c
                   WHERE c.home_id = $1 AND c.sha256 = b.sha256) AS content ON true
               WHERE home_id = $1 AND (sha256(content.bytes) <> b.sha256 OR length(content.bytes) <> b.byte_length)"#,
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(found)
}
