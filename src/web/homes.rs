//! `/` and a home's first page.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::templates::{HomePage, HomesPage, Plain, Shell, render};
use super::views::{self, AgentRow, HomeRow, TeamRow};
use crate::app::App;
use crate::auth::extract::{SignedIn, WebCaller};
use crate::db::{Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::ids::OperatorId;
use crate::{team, tenant};

const HOMES: Op = Op::locking("web.homes");
const HOME: Op = Op::locking("web.home");

/// `GET /`: the only home, or the list of them.
pub async fn first(State(app): State<App>, signed_in: SignedIn) -> Result<Response> {
    let homes = app
        .db
        .system(
            HOMES,
            &signed_in.account.id,
            async |tx: &mut SystemTx, id: &OperatorId| tenant::memberships_across_homes(tx, *id).await,
        )
        .await?;
    if let [only] = homes.as_slice() {
        return Ok(Redirect::to(&format!("/h/{}/", only.slug)).into_response());
    }
    let row = |home: tenant::Membership| HomeRow {
        slug: home.slug,
        name: home.name,
        role: home.role.as_str(),
    };
    render(&HomesPage {
        plain: Plain::new(),
        homes: homes.into_iter().map(row).collect(),
    })
}

/// `GET /h/{home}/`: Agents, Teams, and what waits for a person.
pub async fn home(State(app): State<App>, caller: WebCaller) -> Result<Response> {
    let (home, lists) = app.db.transact(&caller.caller, HOME, &(), home_in).await?;
    let agents = rows(&caller.home_slug, &lists);
    let waiting = views::waits(&agents);
    let count = |id| lists.agents.iter().filter(|agent| agent.team_id == id).count();
    let teams = lists.teams.iter().map(|team| TeamRow {
        name: team.name.clone(),
        href: format!("/h/{}/teams/{}", caller.home_slug, team.slug),
        root: views::root(&team.root),
        agents: count(team.id),
    });
    render(&HomePage {
        teams: teams.collect(),
        shell: Shell::new(&caller, home.name),
        agents,
        waiting,
    })
}

/// Agents with what belongs beside their names.
pub struct Lists {
    pub agents: Vec<team::Agent>,
    pub teams: Vec<team::Team>,
    pub profiles: Vec<team::Profile>,
}

/// Everything that lists of Agents are made of.
pub async fn lists_in(tx: &mut TenantTx) -> Result<Lists> {
    Ok(Lists {
        agents: team::agent::list(tx, &()).await?,
        teams: team::list(tx, &()).await?,
        profiles: team::profile::list(tx, &()).await?,
    })
}

async fn home_in(tx: &mut TenantTx, (): &()) -> Result<(tenant::Home, Lists)> {
    Ok((tenant::home_in(tx).await?, lists_in(tx).await?))
}

/// The Agents of a home as rows, in the order of their names.
pub fn rows(home: &str, lists: &Lists) -> Vec<AgentRow> {
    let teams: HashMap<_, _> = lists.teams.iter().map(|team| (team.id, team)).collect();
    let profiles: HashMap<_, _> = lists.profiles.iter().map(|profile| (profile.id, profile)).collect();
    let row = |agent: &team::Agent| {
        let default = profiles.get(&agent.profile_id).map(|profile| profile.default_model.clone());
        AgentRow {
            name: agent.name.clone(),
            href: format!("/h/{home}/agents/{}", agent.id),
            team: teams.get(&agent.team_id).map_or_else(String::new, |team| team.name.clone()),
            model: agent.model.clone().or(default).unwrap_or_default(),
            state: views::agent_state(agent),
            open: views::open_items(agent),
        }
    };
    lists.agents.iter().map(row).collect()
}
