//! SQL of transcript lines.

use sha2::{Digest as _, Sha256};

use crate::db::TenantTx;
use crate::error::{Error, Result};
use crate::ids::{AgentId, ConversationId, ItemId, TurnId};
use crate::turn::transcript::{Line, Stored};

fn text(raw: Vec<u8>) -> Result<String> {
    String::from_utf8(raw).map_err(|_| Error::Corrupt {
        table: "transcript_lines",
        what: "a line is not UTF-8".into(),
    })
}

/// Every line in order, each checked against its hash and its place.
pub async fn all(tx: &mut TenantTx, conversation: ConversationId) -> Result<Vec<String>> {
    let rows = sqlx::query!(
        "SELECT seq, raw, sha256 FROM transcript_lines WHERE home_id = $1 AND conversation_id = $2 ORDER BY seq",
        tx.home().uuid(),
        conversation.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    let mut lines = Vec::with_capacity(rows.len());
    for (expected, row) in (1..).zip(rows) {
        if row.seq != expected || Sha256::digest(&row.raw).as_slice() != row.sha256 {
            return Err(Error::Corrupt {
                table: "transcript_lines",
                what: format!("line {expected} is missing or changed"),
            });
        }
        lines.push(text(row.raw)?);
    }
    Ok(lines)
}

/// Appends one line; whose conversation it is.
pub async fn insert(
    tx: &mut TenantTx,
    conversation: ConversationId,
    turn: TurnId,
    item: Option<ItemId>,
    line: &Line<'_>,
) -> Result<AgentId> {
    let (home, now) = (tx.home(), tx.now());
    let agent = sqlx::query_scalar!(
        r#"INSERT INTO transcript_lines
               (home_id, conversation_id, seq, turn_id, item_id, entry_id, parent_id, raw, sha256, created_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
           RETURNING (SELECT agent_id FROM conversations WHERE home_id = $1 AND id = $2) AS "agent!""#,
        home.uuid(),
        conversation.uuid(),
        line.seq,
        turn.uuid(),
        item.map(|id| id.uuid()),
        line.entry,
        line.parent,
        line.raw.as_bytes(),
        line.sha256.as_slice(),
        now,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(agent.into())
}

/// The newest `limit` lines below `before`, in file order.
pub async fn page(
    tx: &mut TenantTx,
    conversation: ConversationId,
    before: Option<i32>,
    limit: i64,
) -> Result<Vec<Stored>> {
    let rows = sqlx::query!(
        "SELECT seq, turn_id, item_id, raw, created_at FROM transcript_lines
         WHERE home_id = $1 AND conversation_id = $2 AND ($3::integer IS NULL OR seq < $3)
         ORDER BY seq DESC
         LIMIT $4",
        tx.home().uuid(),
        conversation.uuid(),
        before,
        limit,
    )
    .fetch_all(tx.conn())
    .await?;
    let newest_first = rows.into_iter().map(|row| {
        Ok(Stored {
            seq: row.seq,
            turn: row.turn_id.map(Into::into),
            item: row.item_id.map(Into::into),
            raw: text(row.raw)?,
            created_at: row.created_at,
        })
    });
    let mut lines = newest_first.collect::<Result<Vec<_>>>()?;
    lines.reverse();
    Ok(lines)
}
