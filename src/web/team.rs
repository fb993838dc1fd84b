//! A Team's page.

use axum::extract::State;
use axum::response::Response;

use super::homes::{lists_in, rows};
use super::templates::{Shell, TeamPage, render};
use super::views;
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::db::{Op, TenantTx};
use crate::error::Result;
use crate::http::extract::Path;
use crate::{team, tenant};

const TEAM: Op = Op::locking("web.team");

/// `GET /h/{home}/teams/{team}`
pub async fn show(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Path<(String, String)>,
) -> Result<Response> {
    let (home, team, mut lists) = app
        .db
        .transact(&caller.caller, TEAM, named.as_str(), async |tx: &mut TenantTx, named: &str| {
            let team = team::show(tx, named).await?;
            Ok((tenant::home_in(tx).await?, team, lists_in(tx).await?))
        })
        .await?;
    lists.agents.retain(|agent| agent.team_id == team.id);
    render(&TeamPage {
        shell: Shell::new(&caller, home.name),
        root: views::root(&team.root),
        agents: rows(&caller.home_slug, &lists),
        name: team.name,
        executor: team.executor,
        policy_revision: team.policy_revision,
        user_md: team.user_md,
    })
}
