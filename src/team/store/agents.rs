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

/// Whether a turn of the Agent is claimed or running. Locks the Agent's lane, so that no turn can begin before the
/// transaction ends.
pub async fn has_turn(tx: &mut TenantTx, id: AgentId) -> Result<bool> {
    let active = sqlx::query_scalar!(
        r#"SELECT phase IN ('claimed', 'running') AS "active" FROM agent_queues
           WHERE home_id = $1 AND agent_id = $2
           FOR UPDATE"#,
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(active.flatten().unwrap_or(false))
}

/// What stands in the way of a new conversation.
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    pub open_items: i64,
    pub turn: bool,
}

/// Counts the Agent's unresolved items under its locked lane.
pub async fn is_busy(tx: &mut TenantTx, id: AgentId) -> Result<Busy> {
    let row = sqlx::query!(
        r#"SELECT cardinality(open)::bigint AS "open_items!", COALESCE(phase IN ('claimed', 'running'), false) AS "turn!"
           FROM agent_queues WHERE home_id = $1 AND agent_id = $2
           FOR UPDATE"#,
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map_or(
        Busy {
            open_items: 0,
            turn: false,
        },
        |row| Busy {
            open_items: row.open_items,
            turn: row.turn,
        },
    ))
}

/// An Agent's queue and turn, in one look.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub queue: QueueSummary,
    /// The running turn, if there is one.
    pub turn: Option<TurnSummary>,
}

/// How much waits, and whether it may start.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSummary {
    pub open: i64,
    pub paused: bool,
    pub control_revision: i64,
}

/// A running turn; `itemId` is null when a teammate's message woke the Agent.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSummary {
    pub id: crate::ids::TurnId,
    pub item_id: Option<crate::ids::ItemId>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: time::OffsetDateTime,
}

/// Looks at the lane and the running turn of one Agent.
pub async fn activity(tx: &mut TenantTx, id: AgentId) -> Result<Activity> {
    let row = sqlx::query!(
        r#"SELECT cardinality(q.open)::bigint AS "open!", q.paused, q.control_revision,
                  t.id AS "turn_id?", t.item_id AS "item_id?", t.started_at AS "started_at?"
           FROM agent_queues q
           LEFT JOIN turns t ON t.home_id = q.home_id AND t.agent_id = q.agent_id AND t.state = 'running'
           WHERE q.home_id = $1 AND q.agent_id = $2"#,
        tx.home().uuid(),
        id.uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(Activity {
        queue: QueueSummary {
            open: row.open,
            paused: row.paused,
            control_revision: row.control_revision,
        },
        turn: row
            .turn_id
            .zip(row.started_at)
            .map(|(turn, started_at)| TurnSummary {
                id: turn.into(),
                item_id: row.item_id.map(Into::into),
                started_at,
            }),
    })
}
