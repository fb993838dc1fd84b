//! `/api/teams`, `/api/profiles`, `/api/agents`: thin doors to the operations.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::agent::NewAgent;
use super::conversation::{Created, NewConversation};
use super::profile::NewProfile;
use super::{
    Agent, AgentStatus, Conversation, NewTeam, Profile, Team, agent, conversation, profile,
};
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::Op;
use crate::error::Result;
use crate::http::extract::{Json, Path, revision};
use crate::http::paging::Page;
use crate::ids::{AgentId, ConversationId, ProfileId, TeamId};

const READ: Op = Op::locking("team.read");
const WRITE: Op = Op::locking("team.write");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_teams, create_team))
        .routes(routes!(show_team, delete_team))
        .routes(routes!(user_md, set_user_md))
        .routes(routes!(list_profiles, create_profile))
        .routes(routes!(list_agents, spawn_agent))
        .routes(routes!(show_agent))
        .routes(routes!(archive_agent))
        .routes(routes!(unarchive_agent))
        .routes(routes!(move_agent))
        .routes(routes!(list_conversations, create_conversation))
        .routes(routes!(rename_conversation))
        .merge(super::edges::router())
        .merge(super::live::router())
}

/// The Teams of the home.
#[utoipa::path(get, path = "/teams", tag = "teams", responses((status = 200, body = Page<Team>)))]
async fn list_teams(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Team>>> {
    Ok(Answer(Page::whole(
        app.db.transact(&caller, READ, &(), super::list).await?,
    )))
}

/// Creates a Team. A linked root needs an instance admin and lies below an allowed base.
#[utoipa::path(post, path = "/teams", tag = "teams", request_body = NewTeam, responses((status = 201, body = Team)))]
async fn create_team(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Json(new): Json<NewTeam>,
) -> Result<(StatusCode, Answer<Team>)> {
    let new = super::link::check(&app.config, &caller, new)?;
    let team = app
        .db
        .transact(&caller, WRITE, &(TeamId::new(), new), super::create)
        .await?;
    Ok((StatusCode::CREATED, Answer(team)))
}

/// One Team, by id or slug.
#[utoipa::path(get, path = "/teams/{team}", tag = "teams", params(("team" = String, Path,)),
    responses((status = 200, body = Team)))]
async fn show_team(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
) -> Result<Answer<Team>> {
    Ok(Answer(
        app.db
            .transact(&caller, READ, team.as_str(), super::show)
            .await?,
    ))
}

/// Deletes a Team without active Agents.
#[utoipa::path(delete, path = "/teams/{team}", tag = "teams", params(("team" = String, Path,)),
    responses((status = 204)))]
async fn delete_team(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
) -> Result<StatusCode> {
    app.db
        .transact(&caller, WRITE, team.as_str(), super::delete)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct UserMd {
    user_md: String,
}

/// The Team's USER.md.
#[utoipa::path(get, path = "/teams/{team}/user-md", tag = "teams", params(("team" = String, Path,)),
    responses((status = 200, body = UserMd)))]
async fn user_md(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
) -> Result<Answer<UserMd>> {
    let team = app
        .db
        .transact(&caller, READ, team.as_str(), super::show)
        .await?;
    Ok(Answer(UserMd {
        user_md: team.user_md,
    }))
}

/// Replaces the Team's USER.md (at most 12,000 bytes).
#[utoipa::path(put, path = "/teams/{team}/user-md", tag = "teams", params(("team" = String, Path,)),
    request_body = UserMd, responses((status = 200, body = UserMd)))]
async fn set_user_md(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
    Json(body): Json<UserMd>,
) -> Result<Answer<UserMd>> {
    let team = app
        .db
        .transact(&caller, WRITE, &(team, body.user_md), super::set_user_md)
        .await?;
    Ok(Answer(UserMd {
        user_md: team.user_md,
    }))
}

/// The profiles of the home.
#[utoipa::path(get, path = "/profiles", tag = "teams", responses((status = 200, body = Page<Profile>)))]
async fn list_profiles(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Profile>>> {
    Ok(Answer(Page::whole(
        app.db.transact(&caller, READ, &(), profile::list).await?,
    )))
}

/// Creates a profile.
#[utoipa::path(post, path = "/profiles", tag = "teams", request_body = NewProfile,
    responses((status = 201, body = Profile)))]
async fn create_profile(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Json(new): Json<NewProfile>,
) -> Result<(StatusCode, Answer<Profile>)> {
    let made = app
        .db
        .transact(&caller, WRITE, &(ProfileId::new(), new), profile::create)
        .await?;
    Ok((StatusCode::CREATED, Answer(made)))
}

/// The Agents of the home.
#[utoipa::path(get, path = "/agents", tag = "agents", responses((status = 200, body = Page<Agent>)))]
async fn list_agents(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Agent>>> {
    Ok(Answer(Page::whole(
        app.db.transact(&caller, READ, &(), agent::list).await?,
    )))
}

/// Makes an Agent of a profile in a Team.
#[utoipa::path(post, path = "/agents", tag = "agents", request_body = NewAgent,
    responses((status = 201, body = Agent)))]
async fn spawn_agent(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Json(new): Json<NewAgent>,
) -> Result<(StatusCode, Answer<Agent>)> {
    let made = app
        .db
        .transact(&caller, WRITE, &(AgentId::new(), new), agent::spawn)
        .await?;
    Ok((StatusCode::CREATED, Answer(made)))
}

/// One Agent, by id, name or id prefix, with its queue and its turn.
#[utoipa::path(get, path = "/agents/{agent}", tag = "agents", params(("agent" = String, Path,)),
    responses((status = 200, body = agent::AgentView)))]
async fn show_agent(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
) -> Result<Answer<agent::AgentView>> {
    Ok(Answer(
        app.db
            .transact(&caller, READ, named.as_str(), agent::show)
            .await?,
    ))
}

/// Archives an Agent: it takes no new input. Refused while it has a turn.
#[utoipa::path(post, path = "/agents/{agent}/archive", tag = "agents", params(("agent" = String, Path,)),
    responses((status = 200, body = Agent)))]
async fn archive_agent(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
) -> Result<Answer<Agent>> {
    let args = (named, AgentStatus::Archived);
    Ok(Answer(
        app.db
            .transact(&caller, WRITE, &args, agent::set_status)
            .await?,
    ))
}

/// Brings an archived Agent back.
#[utoipa::path(post, path = "/agents/{agent}/unarchive", tag = "agents", params(("agent" = String, Path,)),
    responses((status = 200, body = Agent)))]
async fn unarchive_agent(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
) -> Result<Answer<Agent>> {
    let args = (named, AgentStatus::Active);
    Ok(Answer(
        app.db
            .transact(&caller, WRITE, &args, agent::set_status)
            .await?,
    ))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Move {
    /// Id or slug.
    team: String,
}

/// Moves an Agent to another Team. What was queued for the old one fails visibly.
#[utoipa::path(post, path = "/agents/{agent}/move", tag = "agents", params(("agent" = String, Path,)),
    request_body = Move, responses((status = 200, body = Agent)))]
async fn move_agent(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
    Json(body): Json<Move>,
) -> Result<Answer<Agent>> {
    Ok(Answer(
        app.db
            .transact(&caller, WRITE, &(named, body.team), agent::move_to)
            .await?,
    ))
}

/// The Agent's conversations, newest first.
#[utoipa::path(get, path = "/agents/{agent}/conversations", tag = "agents", params(("agent" = String, Path,)),
    responses((status = 200, body = Page<Conversation>)))]
async fn list_conversations(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
) -> Result<Answer<Page<Conversation>>> {
    Ok(Answer(Page::whole(
        app.db
            .transact(&caller, READ, named.as_str(), conversation::list)
            .await?,
    )))
}

/// Creates and selects a conversation. Repeated exactly, it answers with the same one.
#[utoipa::path(post, path = "/agents/{agent}/conversations", tag = "agents", params(("agent" = String, Path,)),
    request_body = NewConversation, responses((status = 201, body = Created)))]
async fn create_conversation(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
    Json(new): Json<NewConversation>,
) -> Result<(StatusCode, Answer<Created>)> {
    let args = (named, ConversationId::new(), new);
    let made = app
        .db
        .transact(&caller, WRITE, &args, conversation::create)
        .await?;
    Ok((StatusCode::CREATED, Answer(made)))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rename {
    #[serde(deserialize_with = "revision")]
    expected_revision: i64,
    title: String,
}

/// Renames a conversation; it selects nothing.
#[utoipa::path(patch, path = "/agents/{agent}/conversations/{conversation}", tag = "agents",
    params(("agent" = String, Path,), ("conversation" = ConversationId, Path,)),
    request_body = Rename, responses((status = 200, body = Conversation)))]
async fn rename_conversation(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((named, id)): Path<(String, ConversationId)>,
    Json(body): Json<Rename>,
) -> Result<Answer<Conversation>> {
    let args = (named, id, body.expected_revision, body.title);
    Ok(Answer(
        app.db
            .transact(&caller, WRITE, &args, conversation::rename)
            .await?,
    ))
}
