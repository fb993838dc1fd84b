//! SQL of receipts and of a Team's runtime defaults.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::environment::{Config, Defaults};
use super::hints::Hint;
use super::output::Kept;
use super::receipt::{Cleanup, Receipt, State, Verdict};
use crate::db::constraint::{OnConstraint as _, expect_one};
use crate::db::{SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, IncarnationId, ReceiptId, ResourceId, TeamId, TurnId};
use crate::limits;

/// A receipt to be written before its command can run.
pub struct NewReceipt {
    pub id: ReceiptId,
    pub team: TeamId,
    pub agent: AgentId,
    pub turn: TurnId,
    pub call: String,
    pub input: Value,
    pub environment: Value,
    pub evidence: Option<Value>,
    pub incarnation: IncarnationId,
}

/// Inserts a running receipt.
pub async fn insert_running(tx: &mut TenantTx, new: &NewReceipt) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO coding_receipts
             (home_id, id, team_id, agent_id, turn_id, tool_call_id, input, environment, evidence, incarnation_id,
              state, started_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'running', $11)",
        home.uuid(),
        new.id.uuid(),
        new.team.uuid(),
        new.agent.uuid(),
        new.turn.uuid(),
        new.call,
        new.input,
        new.environment,
        new.evidence,
        new.incarnation.uuid(),
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("coding_receipts_running_key", one_at_a_time)?;
    Ok(())
}

fn one_at_a_time() -> Error {
    Error::refused(
        Code::AgentBusy,
        "A command of this turn is still running. Wait for its receipt, then start the next.",
    )
}

/// Binds a running receipt to its container.
pub async fn set_resource(tx: &mut TenantTx, id: ReceiptId, resource: ResourceId) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE coding_receipts SET resource_id = $3
         WHERE home_id = $1 AND id = $2 AND state = 'running' AND resource_id IS NULL",
        tx.home().uuid(),
        id.uuid(),
        resource.uuid(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// Shows the output so far of a running receipt.
pub async fn set_tail(tx: &mut TenantTx, id: ReceiptId, kept: &Kept) -> Result<()> {
    sqlx::query!(
        "UPDATE coding_receipts SET tail = $3, bytes_total = $4, truncated = $5
         WHERE home_id = $1 AND id = $2 AND state = 'running'",
        tx.home().uuid(),
        id.uuid(),
        kept.tail,
        i64::try_from(kept.bytes_total).unwrap_or(i64::MAX),
        kept.truncated,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Everything that ends a receipt.
pub struct Settled<'a> {
    pub id: ReceiptId,
    pub team: TeamId,
    pub verdict: &'a Verdict,
    pub cleanup: Cleanup,
    pub kept: &'a Kept,
    pub hints: &'a [Hint],
}

/// Ends a running receipt; `false` when somebody declared it ended first. The first end stands.
pub async fn settle(tx: &mut TenantTx, settled: &Settled<'_>) -> Result<bool> {
    let (home, now) = (tx.home(), tx.now());
    let hints = serde_json::to_value(settled.hints).unwrap_or_default();
    let done = sqlx::query!(
        "UPDATE coding_receipts
         SET state = $3, exit_code = $4, signal = $5, reason = left($6, 500), cleanup = $7, tail = $8, bytes_total = $9,
             truncated = $10, hints = $11, finished_at = $12
         WHERE home_id = $1 AND id = $2 AND state = 'running'",
        home.uuid(),
        settled.id.uuid(),
        settled.verdict.state.as_str(),
        settled.verdict.exit_code,
        settled.verdict.signal,
        settled.verdict.reason,
        settled.cleanup.as_str(),
        settled.kept.tail,
        i64::try_from(settled.kept.bytes_total).unwrap_or(i64::MAX),
        settled.kept.truncated,
        hints,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Keeps the Team's newest ended receipts and deletes the older ones. Running ones are never touched.
pub async fn keep_newest(tx: &mut TenantTx, team: TeamId) -> Result<u64> {
    let done = sqlx::query!(
        "DELETE FROM coding_receipts WHERE home_id = $1 AND id IN (
             SELECT id FROM coding_receipts
             WHERE home_id = $1 AND team_id = $2 AND finished_at IS NOT NULL
             ORDER BY finished_at DESC, id DESC
             OFFSET $3)",
        tx.home().uuid(),
        team.uuid(),
        limits::RECEIPTS_KEPT,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// Ends what a dead process left running: its exit was not seen.
pub async fn lose(tx: &mut TenantTx, incarnation: IncarnationId) -> Result<Vec<TeamId>> {
    let (home, now) = (tx.home(), tx.now());
    let teams = sqlx::query_scalar!(
        "UPDATE coding_receipts
         SET state = 'interrupted', reason = 'owner_lost', cleanup = 'uncertain', finished_at = $3
         WHERE home_id = $1 AND incarnation_id = $2 AND state = 'running'
         RETURNING team_id",
        home.uuid(),
        incarnation.uuid(),
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(teams.into_iter().map(TeamId::from).collect())
}

struct Row {
    id: Uuid,
    team_id: Uuid,
    agent_id: Uuid,
    turn_id: Uuid,
    tool_call_id: String,
    input: Value,
    environment: Value,
    state: String,
    exit_code: Option<i32>,
    signal: Option<i32>,
    reason: Option<String>,
    hints: Value,
    tail: String,
    bytes_total: i64,
    truncated: bool,
    cleanup: String,
    started_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
}

impl TryFrom<Row> for Receipt {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt {
            table: "coding_receipts",
            what: what.into(),
        };
        let duration = row
            .finished_at
            .map(|end| (end - row.started_at).whole_milliseconds().max(0));
        Ok(Receipt {
            id: row.id.into(),
            team_id: row.team_id.into(),
            agent_id: row.agent_id.into(),
            turn_id: row.turn_id.into(),
            tool_call_id: row.tool_call_id,
            input: row.input,
            environment: row.environment,
            state: State::parse(&row.state)?,
            exit_code: row.exit_code,
            signal: row.signal,
            reason: row.reason,
            started_at: row.started_at,
            finished_at: row.finished_at,
            duration_ms: duration.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            output: Kept {
                tail: row.tail,
                bytes_total: u64::try_from(row.bytes_total).map_err(|_| corrupt("bytes_total"))?,
                truncated: row.truncated,
            },
            cleanup: Cleanup::parse(&row.cleanup)?,
            hints: serde_json::from_value(row.hints).map_err(|_| corrupt("hints"))?,
        })
    }
}

/// The oldest moment at which a receipt may have ended and still be shown.
fn horizon(tx: &TenantTx) -> OffsetDateTime {
    tx.now() - limits::RECEIPT_LIFE
}

/// One receipt of the home that is still shown.
pub async fn find(tx: &mut TenantTx, id: ReceiptId) -> Result<Option<Receipt>> {
    let horizon = horizon(tx);
    let row = sqlx::query_as!(
        Row,
        "SELECT id, team_id, agent_id, turn_id, tool_call_id, input, environment, state, exit_code, signal, reason, hints,
                tail, bytes_total, truncated, cleanup, started_at, finished_at
         FROM coding_receipts
         WHERE home_id = $1 AND id = $2 AND COALESCE(finished_at >= $3, true)",
        tx.home().uuid(),
        id.uuid(),
        horizon,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Receipt::try_from).transpose()
}

/// The receipt of a tool call.
pub async fn find_by_call(tx: &mut TenantTx, turn: TurnId, call: &str) -> Result<Option<Receipt>> {
    let id = sqlx::query_scalar!(
        "SELECT id FROM coding_receipts WHERE home_id = $1 AND turn_id = $2 AND tool_call_id = $3",
        tx.home().uuid(),
        turn.uuid(),
        call,
    )
    .fetch_optional(tx.conn())
    .await?;
    match id {
        Some(id) => find(tx, id.into()).await,
        None => Ok(None),
    }
}

/// A Team's receipts, newest first, below `before`.
pub async fn list(
    tx: &mut TenantTx,
    team: TeamId,
    turn: Option<TurnId>,
    before: Option<ReceiptId>,
    limit: i64,
) -> Result<Vec<Receipt>> {
    let horizon = horizon(tx);
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, team_id, agent_id, turn_id, tool_call_id, input, environment, state, exit_code, signal, reason, hints,
                tail, bytes_total, truncated, cleanup, started_at, finished_at
         FROM coding_receipts
         WHERE home_id = $1 AND team_id = $2 AND ($3::uuid IS NULL OR turn_id = $3)
           AND ($4::uuid IS NULL OR id < $4) AND COALESCE(finished_at >= $5, true)
         ORDER BY id DESC
         LIMIT $6",
        tx.home().uuid(),
        team.uuid(),
        turn.map(|id| id.uuid()),
        before.map(|id| id.uuid()),
        horizon,
        limit,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Receipt::try_from).collect()
}

/// The evidence of a receipt, and whether the process that took it still lives.
pub struct Evidence {
    pub taken: Option<Value>,
    pub owner_lives: bool,
}

/// What applicability compares.
pub async fn evidence(tx: &mut TenantTx, id: ReceiptId) -> Result<Evidence> {
    let row = sqlx::query!(
        r#"SELECT evidence, EXISTS (SELECT FROM incarnations i WHERE i.id = r.incarnation_id) AS "lives!"
           FROM coding_receipts r WHERE home_id = $1 AND id = $2"#,
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    Ok(Evidence {
        taken: row.evidence,
        owner_lives: row.lives,
    })
}

/// Deletes one batch of receipts that ended too long ago to be shown.
pub async fn prune_across_homes(tx: &mut SystemTx) -> Result<u64> {
    let horizon = tx.now() - limits::RECEIPT_LIFE;
    let done = sqlx::query!(
        "DELETE FROM coding_receipts WHERE (home_id, id) IN (
             SELECT home_id, id FROM coding_receipts WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)",
        horizon,
        limits::PRUNE_BATCH,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected())
}

/// A Team's saved defaults.
pub async fn defaults(tx: &mut TenantTx, team: TeamId) -> Result<Option<Defaults>> {
    let row = sqlx::query!(
        "SELECT revision, config, updated_at FROM coding_environments WHERE home_id = $1 AND team_id = $2",
        tx.home().uuid(),
        team.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(|row| {
        let config: Config = serde_json::from_value(row.config).map_err(|_| Error::Corrupt {
            table: "coding_environments",
            what: "config".into(),
        })?;
        Ok(Defaults {
            team_id: team,
            revision: row.revision,
            config,
            updated_at: row.updated_at,
        })
    })
    .transpose()
}

/// Writes the defaults if the revision still is `expected`; 0 is *none yet*.
pub async fn put_defaults(
    tx: &mut TenantTx,
    team: TeamId,
    expected: i64,
    config: &Config,
) -> Result<bool> {
    let (home, now) = (tx.home(), tx.now());
    let config =
        serde_json::to_value(config).map_err(|e| Error::internal("writing runtime defaults", e))?;
    let done = if expected == 0 {
        sqlx::query!(
            "INSERT INTO coding_environments (home_id, team_id, revision, config, updated_at)
             VALUES ($1, $2, 1, $3, $4)
             ON CONFLICT DO NOTHING",
            home.uuid(),
            team.uuid(),
            config,
            now,
        )
        .execute(tx.conn())
        .await?
    } else {
        sqlx::query!(
            "UPDATE coding_environments SET revision = revision + 1, config = $4, updated_at = $5
             WHERE home_id = $1 AND team_id = $2 AND revision = $3",
            home.uuid(),
            team.uuid(),
            expected,
            config,
            now,
        )
        .execute(tx.conn())
        .await?
    };
    Ok(done.rows_affected() == 1)
}
