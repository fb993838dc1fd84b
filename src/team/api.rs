//! `/api/teams`, `/api/profiles`, `/api/agents`: thin doors to the operations.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::agent::NewAgent;
use super::profile::NewProfile;
use super::{Agent, NewTeam, Profile, Team, agent, profile};
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::Op;
use crate::error::Result;
use crate::http::extract::{Json, Path};
use crate::http::paging::Page;
use crate::ids::{AgentId, ProfileId, TeamId};

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
