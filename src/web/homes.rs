//! `/` and a home's first page.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};

use super::adapt;
use super::templates::{HomePage, HomesPage, Plain, Shell, render};
use super::views::{AgentRow, HomeRow, TeamRow, Wait};
use crate::app::App;
use crate::auth::extract::{SignedIn, WebCaller};
use crate::console::output::visible_line;
use crate::db::{Isolation, Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::ids::{OperatorId, TeamId};
use crate::queue::{self, Status, look};
use crate::{team, tenant, turn};

const HOMES: Op = Op::locking("web.homes");
const HOME: Op = Op {
    name: "web.home",
    isolation: Isolation::RepeatableRead,
};

/// `GET /`: the only home, or the list of them.
pub async fn first(State(app): State<App>, signed_in: SignedIn) -> Result<Response> {
    let homes = app
        .db
        .system(
            HOMES,
            &signed_in.account.id,
            async |tx: &mut SystemTx, id: &OperatorId| {
                tenant::memberships_across_homes(tx, *id).await
            },
        )
        .await?;
    if let [only] = homes.as_slice() {
        return Ok(Redirect::to(&format!("/h/{}", only.slug)).into_response());
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
    let waiting = waiting(&caller.home_slug, &lists);
    let count = |id| {
        lists
            .agents
            .iter()
            .filter(|(agent, ..)| agent.team_id == id)
            .count()
    };
    let teams = lists.teams.iter().map(|team| TeamRow {
        name: team.name.clone(),
        href: format!("/h/{}/teams/{}", caller.home_slug, team.slug),
        root: adapt::root(&team.root),
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
    pub agents: Vec<(team::Agent, Option<turn::Active>, look::Page)>,
    pub teams: Vec<team::Team>,
    pub profiles: Vec<team::Profile>,
}

/// Everything that lists of Agents are made of, of one Team or of all.
pub async fn lists_in(tx: &mut TenantTx, team: Option<TeamId>) -> Result<Lists> {
    let mut agents = Vec::new();
    for agent in team::agent::list(tx, &()).await? {
        if team.is_some_and(|team| team != agent.team_id) {
            continue;
        }
        let open = look::Query {
            agent: agent.id.to_string(),
            view: look::View::Open,
            cursor: None,
            offset: None,
            limit: None,
        };
        let active = turn::active_in(tx, agent.id).await?;
        let listed = queue::list_in(tx, &open).await?;
        agents.push((agent, active, listed));
    }
    Ok(Lists {
        agents,
        teams: team::list(tx, &()).await?,
        profiles: team::profile::list(tx, &()).await?,
    })
}

async fn home_in(tx: &mut TenantTx, (): &()) -> Result<(tenant::Home, Lists)> {
    Ok((tenant::home_in(tx).await?, lists_in(tx, None).await?))
}

/// The Agents of a home as rows, in the order of their names.
pub fn rows(home: &str, lists: &Lists) -> Vec<AgentRow> {
    let row = |(agent, active, listed): &(team::Agent, Option<turn::Active>, look::Page)| {
        let profile = lists
            .profiles
            .iter()
            .find(|profile| profile.id == agent.profile_id);
        let team = lists.teams.iter().find(|team| team.id == agent.team_id);
        AgentRow {
            name: visible_line(&agent.name),
            href: format!("/h/{home}/agents/{}", agent.id),
            team: team.map_or_else(String::new, |team| visible_line(&team.name)),
            model: agent
                .model
                .clone()
                .or(profile.map(|p| p.default_model.clone()))
                .unwrap_or_default(),
            state: adapt::agent_state(agent, active.as_ref(), listed),
            open: listed.totals.open,
        }
    };
    lists.agents.iter().map(row).collect()
}

/// What waits for a person, each with the one action it needs.
fn waiting(home: &str, lists: &Lists) -> Vec<Wait> {
    let mut waits = Vec::new();
    for (agent, _, listed) in &lists.agents {
        let href = format!("/h/{home}/agents/{}#queue", agent.id);
        let mut add = |detail: String, action| {
            waits.push(Wait {
                what: visible_line(&agent.name),
                detail,
                action,
                href: href.clone(),
            });
        };
        let count = |status| {
            listed
                .items
                .iter()
                .filter(|item| item.status == status)
                .count()
        };
        match (count(Status::Uncertain), count(Status::Held)) {
            (0, 0) if listed.control.paused => add("queue is paused".into(), "Resume queue"),
            (0, 0) => {}
            (0, held) => add(format!("{held} held for an approval"), "Decide"),
            (uncertain, _) => add(
                format!("{uncertain} with unknown outcome"),
                "Acknowledge and close",
            ),
        }
    }
    waits
}
