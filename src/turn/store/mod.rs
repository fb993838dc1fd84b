//! SQL of turns and transcripts.

pub mod lines;

use super::{Active, Cause, End, NewTurn, Posture};
use crate::db::TenantTx;
use crate::db::constraint::OnConstraint as _;
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, TurnId};
use crate::runtime::Usage;

/// Inserts the start record. A second turn of the Agent is refused by the database.
pub async fn insert(tx: &mut TenantTx, turn: &NewTurn) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    let (cause, hop) = match turn.cause {
        Cause::Item(_) => ("item", 0),
        Cause::Inbox { hop } => ("inbox", hop),
    };
    sqlx::query!(
        "INSERT INTO turns (home_id, id, agent_id, team_id, conversation_id, cause, item_id, posture, lease_id, fence,
                            incarnation_id, generation, state, model, hop, span, started_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'running', $13, $14, $15, $16)",
        home.uuid(),
        turn.id.uuid(),
        turn.agent.uuid(),
        turn.team.uuid(),
        turn.conversation.uuid(),
        cause,
        turn.cause.item().map(|id| id.uuid()),
        turn.posture.as_str(),
        turn.lease.uuid(),
        turn.fence,
        turn.incarnation.uuid(),
        turn.generation,
        turn.model,
        hop,
        turn.span,
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("turns_running_key", || {
        Error::refused(Code::AgentTurnActive, "The Agent has a turn already.")
    })?;
    Ok(())
}

/// Ends a running turn; `false` when it is not running under this fencing number.
pub async fn end(tx: &mut TenantTx, id: TurnId, fence: i64, end: &End) -> Result<bool> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE turns SET state = $4, code = $5, message = left($6, 500), ended_at = $7
         WHERE home_id = $1 AND id = $2 AND fence = $3 AND state = 'running'",
        home.uuid(),
        id.uuid(),
        fence,
        end.state.as_str(),
        end.code,
        end.message,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Ends what a dead process left running, in this home.
pub async fn lose(tx: &mut TenantTx, incarnation: crate::ids::IncarnationId) -> Result<u64> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE turns SET state = 'uncertain', code = 'owner_lost', ended_at = $3,
                message = 'The server process that ran this turn is gone; what it did last is unknown.'
         WHERE home_id = $1 AND incarnation_id = $2 AND state = 'running'",
        home.uuid(),
        incarnation.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// The Agent's running turn.
pub async fn active(tx: &mut TenantTx, agent: AgentId) -> Result<Option<Active>> {
    let row = sqlx::query!(
        "SELECT id, item_id, started_at, posture, model, input_tokens, output_tokens, cancel_requested_at
         FROM turns WHERE home_id = $1 AND agent_id = $2 AND state = 'running'",
        tx.home().uuid(),
        agent.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(|row| {
        Ok(Active {
            id: row.id.into(),
            item_id: row.item_id.map(Into::into),
            started_at: row.started_at,
            posture: Posture::parse(&row.posture)?,
            model: row.model,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            cancelling: row.cancel_requested_at.is_some(),
        })
    })
    .transpose()
}

/// Asks for the end of a running turn of the Agent.
pub async fn request_cancel(tx: &mut TenantTx, agent: AgentId, id: TurnId) -> Result<bool> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE turns SET cancel_requested_at = COALESCE(cancel_requested_at, $4)
         WHERE home_id = $1 AND agent_id = $2 AND id = $3 AND state = 'running'",
        home.uuid(),
        agent.uuid(),
        id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Whether the turn shall end: asked for, ended by somebody else, or gone.
pub async fn cancel_requested(tx: &mut TenantTx, id: TurnId) -> Result<bool> {
    let goes_on = sqlx::query_scalar!(
        "SELECT state = 'running' AND cancel_requested_at IS NULL FROM turns WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(!goes_on.flatten().unwrap_or(false))
}

/// What admitting a command asks of its turn's row.
pub struct Commanding {
    pub calls: Vec<String>,
    pub cancelled: bool,
}

/// Locks a running turn for the admission of a command.
pub async fn lock_commanding(tx: &mut TenantTx, id: TurnId) -> Result<Commanding> {
    let row = sqlx::query!(
        "SELECT command_calls, cancel_requested_at FROM turns
         WHERE home_id = $1 AND id = $2 AND state = 'running'
         FOR UPDATE",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(super::not_active)?;
    Ok(Commanding {
        calls: row.command_calls,
        cancelled: row.cancel_requested_at.is_some(),
    })
}

/// Counts a command, by its tool call.
pub async fn add_command_call(tx: &mut TenantTx, id: TurnId, call: &str) -> Result<()> {
    sqlx::query!(
        "UPDATE turns SET command_calls = command_calls || $3 WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
        &[call.to_owned()] as &[String],
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Adds tokens to a turn's count.
pub async fn add_tokens(tx: &mut TenantTx, id: TurnId, usage: &Usage) -> Result<()> {
    let input =
        i64::try_from(usage.input + usage.cache_read + usage.cache_write).unwrap_or(i64::MAX);
    let output = i64::try_from(usage.output).unwrap_or(i64::MAX);
    sqlx::query!(
        "UPDATE turns SET input_tokens = input_tokens + $3, output_tokens = output_tokens + $4
         WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
        input,
        output,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
