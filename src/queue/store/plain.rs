//! SQL of the short way in: plain inputs, all in one statement.

use time::OffsetDateTime;
use uuid::Uuid;

use super::items::waits;
use crate::db::TenantCall;
use crate::error::Result;
use crate::ids::TeamId;
use crate::queue::digest;
use crate::queue::model::{Status, WaitingFor};
use crate::queue::plain::Plain;

/// What the database decided about a stored input.
pub struct Stored {
    /// Which of the inputs, counted from 0.
    pub index: usize,
    pub team: TeamId,
    pub position: i64,
    pub at: OffsetDateTime,
    pub waiting_for: Option<WaitingFor>,
}

/// Stores the inputs that are as plain as they look; the others are not in the answer, and nothing was changed for them.
pub async fn submit(call: &mut TenantCall<'_>, inputs: &[Plain]) -> Result<Vec<Stored>> {
    let (home, offset) = (call.home(), call.clock_offset());
    let ids = |of: fn(&Plain) -> Uuid| inputs.iter().map(of).collect::<Vec<Uuid>>();
    let selections: Vec<i64> = inputs.iter().map(|input| input.selection).collect();
    let texts: Vec<String> = inputs.iter().map(|input| input.text.clone()).collect();
    let contents: Vec<Vec<u8>> = inputs.iter().map(|input| input.content.clone()).collect();
    let operators: Vec<Option<Uuid>> = inputs
        .iter()
        .map(|input| input.operator.map(Into::into))
        .collect();
    let spans: Vec<Option<String>> = inputs.iter().map(|input| input.span.clone()).collect();
    let rows = sqlx::query!(
        r#"SELECT place AS "place!", team_id AS "team_id!", position AS "position!", created_at AS "created_at!",
                  paused AS "paused!", phase
           FROM submit_inputs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"#,
        home.uuid(),
        offset,
        digest::version(),
        &ids(|input| input.agent.uuid()),
        &ids(|input| input.item.uuid()),
        &ids(|input| input.request.uuid()),
        &ids(|input| input.conversation.uuid()),
        &selections,
        &texts,
        &contents,
        &operators as &[Option<Uuid>],
        &spans as &[Option<String>],
    )
    .fetch_all(call.conn())
    .await?;
    let stored = rows.into_iter().map(|row| Stored {
        index: usize::try_from(row.place - 1).unwrap_or(usize::MAX),
        team: row.team_id.into(),
        position: row.position,
        at: row.created_at,
        waiting_for: waits(Status::Pending, None, row.paused, row.phase.as_deref()),
    });
    Ok(stored.collect())
}
