//! A Team's policy as a whole: reading it, and replacing it under its revision.
//!
//! - It is replaced or left alone: nobody sees half of it, and of two people one gets 409 with what is there now.
//! - An edge names Agents of this Team only, and one end of it at least is an Agent.

use std::collections::HashSet;

use axum::Json as Answer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Team;
use super::policy::Effect;
use super::store;
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::codec::text_enum;
use crate::db::{Isolation, Op, TenantTx};
use crate::error::{Code, Error, FieldError, Result};
use crate::http::extract::{Json, Path, revision};
use crate::ids::AgentId;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

/// One snapshot: the revision belongs to the edges.
const SHOW: Op = Op {
    name: "team.policy",
    isolation: Isolation::RepeatableRead,
};
const REPLACE: Op = Op::serializable("team.replace_policy");

text_enum! {
    /// What stands at one end of an edge.
    pub enum Side in "policy_edges" {
        User => "user",
        OutsideTeam => "outside_team",
        Agent => "agent",
    }
}

/// A directed edge. A missing one denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyEdge {
    pub source: Side,
    /// Exactly when the source is an Agent.
    #[serde(default)]
    pub source_agent_id: Option<AgentId>,
    pub target: Side,
    /// Exactly when the target is an Agent.
    #[serde(default)]
    pub target_agent_id: Option<AgentId>,
    pub effect: Effect,
}

/// A Team's whole policy.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Policy {
    pub revision: i64,
    pub edges: Vec<PolicyEdge>,
}

/// `PUT /api/teams/:team/policy`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Replacement {
    #[serde(deserialize_with = "revision")]
    pub expected_revision: i64,
    pub edges: Vec<PolicyEdge>,
}

/// The routes of this module.
pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(show_policy, set_policy))
}

/// Who may speak to whom in a Team.
#[utoipa::path(get, path = "/teams/{team}/policy", tag = "teams", params(("team" = String, Path,)),
    responses((status = 200, body = Policy)))]
async fn show_policy(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
) -> Result<Answer<Policy>> {
    Ok(Answer(
        app.db.transact(&caller, SHOW, team.as_str(), show).await?,
    ))
}

/// Replaces the policy. What was held under an earlier revision must be asked again.
#[utoipa::path(put, path = "/teams/{team}/policy", tag = "teams", params(("team" = String, Path,)),
    request_body = Replacement, responses((status = 200, body = Policy)))]
async fn set_policy(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
    Json(body): Json<Replacement>,
) -> Result<Answer<Policy>> {
    Ok(Answer(
        app.db
            .transact(&caller, REPLACE, &(team, body), replace)
            .await?,
    ))
}

/// The policy of one Team, by id or slug.
pub async fn show(tx: &mut TenantTx, named: &str) -> Result<Policy> {
    require(tx.caller(), Action::Read)?;
    let team = store::teams::find(tx, named).await?;
    whole(tx, &team).await
}

/// Puts these edges in the place of all there were.
pub async fn replace(tx: &mut TenantTx, args: &(String, Replacement)) -> Result<Policy> {
    let (named, new) = args;
    require(tx.caller(), Action::Administer)?;
    let team = store::teams::lock(tx, named).await?;
    if team.policy_revision != new.expected_revision {
        return Err(changed(&whole(tx, &team).await?));
    }
    let members = store::policy::members(tx, team.id).await?;
    check(&new.edges, &members)?;
    store::policy::replace(tx, team.id, &new.edges).await?;
    let team = store::teams::find(tx, named).await?;
    let now = whole(tx, &team).await?;
    let act = Act {
        detail: serde_json::json!({"revision": now.revision, "edges": now.edges.len()}),
        ..Act::ok("team.policy", team.id)
    };
    audit::record(tx, &act).await?;
    Ok(now)
}

async fn whole(tx: &mut TenantTx, team: &Team) -> Result<Policy> {
    Ok(Policy {
        revision: team.policy_revision,
        edges: store::policy::all(tx, team.id).await?,
    })
}

fn changed(current: &Policy) -> Error {
    let current = serde_json::to_value(current).unwrap_or(serde_json::Value::Null);
    let detail =
        "The policy was changed meanwhile. Look at it, and send the change again if it still fits.";
    Error::refused(Code::RevisionConflict, detail).with("current", current)
}

fn check(edges: &[PolicyEdge], members: &[AgentId]) -> Result<()> {
    let members: HashSet<AgentId> = members.iter().copied().collect();
    let mut seen = HashSet::new();
    let mut wrong = Vec::new();
    for (at, edge) in edges.iter().enumerate() {
        let mut refuse = |field: &str, code: &str, message: &str| {
            wrong.push(FieldError {
                path: format!("edges[{at}]{field}"),
                code: code.into(),
                message: message.into(),
            });
        };
        let ends = [
            (".sourceAgentId", edge.source, edge.source_agent_id),
            (".targetAgentId", edge.target, edge.target_agent_id),
        ];
        for (field, side, agent) in ends {
            match (side, agent) {
                (Side::Agent, Some(id)) if members.contains(&id) => {}
                (Side::Agent, _) => refuse(field, "agent", "Name an Agent of this Team."),
                (_, Some(_)) => refuse(field, "agent", "Only an end that is an Agent has an id."),
                (_, None) => {}
            }
        }
        if edge.source != Side::Agent && edge.target != Side::Agent {
            refuse("", "ends", "One end of an edge is an Agent.");
        }
        if edge.source_agent_id.is_some() && edge.source_agent_id == edge.target_agent_id {
            refuse("", "ends", "An edge joins two different ends.");
        }
        let ends = (
            edge.source,
            edge.source_agent_id,
            edge.target,
            edge.target_agent_id,
        );
        if !seen.insert(ends) {
            refuse("", "duplicate", "This edge is there already.");
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid_fields(wrong))
    }
}
