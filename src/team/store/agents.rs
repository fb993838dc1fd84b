//! SQL of Agents.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::{OnConstraint as _, expect_one};
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, ConversationId, ProfileId, TeamId};
use crate::team::agent::NewAgent;
use crate::team::model::{Agent, AgentStatus, Reasoning, Selection};

struct Row {
    id: Uuid,
    name: String,
    team_id: Uuid,
    profile_id: Uuid,
    model: Option<String>,
    reasoning: Option<String>,
    status: String,
    conversation_id: Option<Uuid>,
    selection_revision: i64,
    created_at: time::OffsetDateTime,
}

impl TryFrom<Row> for Agent {
    type Error = Error;
    fn try_from(row: Row) -> Result<Self> {
        Ok(Agent {
            id: row.id.into(),
            name: row.name,
            team_id: row.team_id.into(),
            profile_id: row.profile_id.into(),
            model: row.model,
            reasoning: row.reasoning.as_deref().map(Reasoning::parse).transpose()?,
            status: AgentStatus::parse(&row.status)?,
            selection: Selection {
                conversation_id: row.conversation_id.map(ConversationId::from),
                revision: row.selection_revision,
            },
            created_at: row.created_at,
        })
    }
}

/// Inserts an Agent.
pub async fn insert(
    tx: &mut TenantTx,
    id: AgentId,
    new: &NewAgent,
    team: TeamId,
    profile: ProfileId,
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO agents (home_id, id, name, team_id, profile_id, model, reasoning, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        home.uuid(),
        id.uuid(),
        new.name,
        team.uuid(),
        profile.uuid(),
        new.model,
        new.reasoning.map(Reasoning::as_str),
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("agents_name_key", || {
        Error::refused(
            Code::AlreadyExists,
            "An Agent of this name exists in this home. Choose another name.",
        )
    })?;
    Ok(())
}

/// All Agents, by name.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Agent>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, name, team_id, profile_id, model, reasoning, status, conversation_id, selection_revision,
                created_at
         FROM agents WHERE home_id = $1 ORDER BY lower(name)",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Agent::try_from).collect()
}

/// One Agent by id.
pub async fn find(tx: &mut TenantTx, id: AgentId) -> Result<Agent> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, name, team_id, profile_id, model, reasoning, status, conversation_id, selection_revision,
                created_at
         FROM agents WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Agent::try_from)
        .transpose()?
        .ok_or_else(Error::not_found)
}

/// One Agent by name, whatever the case.
pub async fn find_by_name(tx: &mut TenantTx, name: &str) -> Result<Option<Agent>> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, name, team_id, profile_id, model, reasoning, status, conversation_id, selection_revision,
                created_at
         FROM agents WHERE home_id = $1 AND lower(name) = lower($2)",
        tx.home().uuid(),
        name,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Agent::try_from).transpose()
}

/// The Agents whose id begins with `prefix` (hexadecimal digits and hyphens only).
pub async fn find_by_prefix(tx: &mut TenantTx, prefix: &str) -> Result<Vec<Agent>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, name, team_id, profile_id, model, reasoning, status, conversation_id, selection_revision,
                created_at
         FROM agents WHERE home_id = $1 AND starts_with(id::text, $2)
         ORDER BY id LIMIT 20",
        tx.home().uuid(),
        prefix,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Agent::try_from).collect()
}

/// Active Agents of a Team.
pub async fn count_active(tx: &mut TenantTx, team: TeamId) -> Result<i64> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM agents WHERE home_id = $1 AND team_id = $2 AND status = 'active'"#,
        tx.home().uuid(),
        team.uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(count)
}

/// Archives or brings back.
pub async fn set_status(tx: &mut TenantTx, id: AgentId, status: AgentStatus) -> Result<()> {
    let word = match status {
        AgentStatus::Active => "active",
        AgentStatus::Archived => "archived",
    };
    let done = sqlx::query!(
        "UPDATE agents SET status = $3 WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
        word,
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// Changes the Team.
pub async fn set_team(tx: &mut TenantTx, id: AgentId, team: TeamId) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE agents SET team_id = $3 WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
        team.uuid(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}
