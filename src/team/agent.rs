//! Agents: spawn, look up, archive.

use serde::{Deserialize, Serialize};

use super::model::{self, Agent, AgentStatus, Reasoning};
use super::store;
use crate::db::TenantTx;
use crate::error::{Code, Error, Result};
use crate::ids::AgentId;
use crate::limits;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

/// `POST /api/agents`. `team` and `profile` are ids or slugs.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewAgent {
    pub name: String,
    pub team: String,
    pub profile: String,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub reasoning: Option<Reasoning>,
}

/// Makes an Agent of a profile in a Team, with its default policy edges.
pub async fn spawn(tx: &mut TenantTx, args: &(AgentId, NewAgent)) -> Result<Agent> {
    let (id, new) = args;
    require(tx.caller(), Action::Operate)?;
    model::check_agent_name(&new.name)?;
    if let Some(model) = &new.model {
        model::check_model("model", model)?;
    }
    let absent = |path: &'static str| {
        move |error: Error| match error.code() {
            Code::NotFound => Error::invalid(
                path,
                "unknown",
                format!("There is no such {path} in this home."),
            ),
            _ => error,
        }
    };
    let team = store::teams::lock(tx, &new.team)
        .await
        .map_err(absent("team"))?;
    let profile = store::profiles::find(tx, &new.profile)
        .await
        .map_err(absent("profile"))?;
    store::agents::insert(tx, *id, new, team.id, profile.id).await?;
    store::policy::insert_default_edges(tx, team.id, *id).await?;
    audit::record(tx, &Act::ok("agent.spawn", id)).await?;
    store::agents::find(tx, *id).await
}

/// The Agents of the home, by name.
pub async fn list(tx: &mut TenantTx, (): &()) -> Result<Vec<Agent>> {
    require(tx.caller(), Action::Read)?;
    store::agents::list(tx).await
}

/// `GET /api/agents/:agent`: the Agent with its queue and its turn.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct AgentView {
    #[serde(flatten)]
    pub agent: Agent,
    #[serde(flatten)]
    pub activity: store::agents::Activity,
}

/// One Agent, however it is named.
pub async fn show(tx: &mut TenantTx, named: &str) -> Result<AgentView> {
    require(tx.caller(), Action::Read)?;
    let agent = find(tx, named).await?;
    let activity = store::agents::activity(tx, agent.id).await?;
    Ok(AgentView { agent, activity })
}

/// Id, then exact name, then a prefix of an id; two candidates are `ambiguous_agent`.
pub async fn find(tx: &mut TenantTx, named: &str) -> Result<Agent> {
    if let Ok(id) = named.parse::<AgentId>() {
        return store::agents::find(tx, id).await;
    }
    if let Some(agent) = store::agents::find_by_name(tx, named).await? {
        return Ok(agent);
    }
    let prefix_like = named.len() >= limits::AGENT_ID_PREFIX_MIN
        && named.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if !prefix_like {
        return Err(Error::not_found());
    }
    let mut candidates = store::agents::find_by_prefix(tx, &named.to_ascii_lowercase()).await?;
    match candidates.len() {
        0 => Err(Error::not_found()),
        1 => Ok(candidates.remove(0)),
        _ => {
            let ids: Vec<String> = candidates.iter().map(|a| a.id.to_string()).collect();
            let detail = "Several Agents' ids begin like this. Use more of the id.";
            Err(Error::refused(Code::AmbiguousAgent, detail).with("candidates", ids))
        }
    }
}

/// Archives or brings back. While a turn runs: `agent_turn_active`.
pub async fn set_status(tx: &mut TenantTx, args: &(String, AgentStatus)) -> Result<Agent> {
    let (named, status) = args;
    require(tx.caller(), Action::Operate)?;
    let agent = find(tx, named).await?;
    if store::agents::has_turn(tx, agent.id).await? {
        return Err(turn_active());
    }
    store::agents::set_status(tx, agent.id, *status).await?;
    let action = match status {
        AgentStatus::Active => "agent.unarchive",
        AgentStatus::Archived => "agent.archive",
    };
    audit::record(tx, &Act::ok(action, agent.id)).await?;
    store::agents::find(tx, agent.id).await
}

/// Moves an Agent to another Team. Queued items keep their Team and fail visibly at dispatch.
pub async fn move_to(tx: &mut TenantTx, args: &(String, String)) -> Result<Agent> {
    let (named, team) = args;
    require(tx.caller(), Action::Operate)?;
    let team = store::teams::lock(tx, team).await?;
    let agent = find(tx, named).await?;
    if store::agents::has_turn(tx, agent.id).await? {
        return Err(turn_active());
    }
    store::policy::delete_edges_of(tx, agent.id).await?;
    store::agents::set_team(tx, agent.id, team.id).await?;
    store::policy::insert_default_edges(tx, team.id, agent.id).await?;
    audit::record(tx, &Act::ok("agent.move", agent.id)).await?;
    store::agents::find(tx, agent.id).await
}

fn turn_active() -> Error {
    Error::refused(
        Code::AgentTurnActive,
        "The Agent has a turn at the moment. Stop it or wait for its end, then try again.",
    )
}
