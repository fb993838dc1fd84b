//! A Team's page.

use axum::extract::State;
use axum::response::Response;

use super::adapt;
use super::homes::{lists_in, rows};
use super::templates::{ReceiptPage, Shell, TeamPage, render};
use super::views::size;
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::db::{Op, TenantTx};
use crate::error::{Error, Result};
use crate::http::extract::Path;
use crate::ids::ReceiptId;
use crate::tenant::permission::{Action, require};
use crate::{coding, team, tenant};

const TEAM: Op = Op::locking("web.team");

/// `GET /h/{home}/teams/{team}`
pub async fn show(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Path<(String, String)>,
) -> Result<Response> {
    let (home, team, lists) = app
        .db
        .transact(
            &caller.caller,
            TEAM,
            named.as_str(),
            async |tx: &mut TenantTx, named: &str| {
                let team = team::show(tx, named).await?;
                let lists = lists_in(tx, Some(team.id)).await?;
                Ok((tenant::home_in(tx).await?, team, lists))
            },
        )
        .await?;
    render(&TeamPage {
        shell: Shell::new(&caller, home.name),
        root: adapt::root(&team.root),
        agents: rows(&caller.home_slug, &lists),
        name: team.name,
        executor: team.executor,
        policy_revision: team.policy_revision,
        user_md: team.user_md,
    })
}

/// `GET /h/{home}/teams/{team}/receipts/{receipt}`: a receipt with its output, for who may read the Team's receipts.
pub async fn receipt(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named, id)): Path<(String, String, ReceiptId)>,
) -> Result<Response> {
    let args = (named, id);
    let (home, team, receipt) = app
        .db
        .transact(
            &caller.caller,
            TEAM,
            &args,
            async |tx: &mut TenantTx, (named, id): &(String, ReceiptId)| {
                require(tx.caller(), Action::Read)?;
                let team = team::show(tx, named).await?;
                let found = coding::store::find(tx, *id).await?;
                let receipt = found
                    .filter(|receipt| receipt.team_id == team.id)
                    .ok_or_else(Error::not_found)?;
                Ok((tenant::home_in(tx).await?, team, receipt))
            },
        )
        .await?;
    let team_href = format!("/h/{}/teams/{}", caller.home_slug, team.slug);
    render(&ReceiptPage {
        shell: Shell::new(&caller, home.name),
        card: adapt::card_with_output(&team_href, &receipt),
        started: receipt.started_at.into(),
        finished: receipt.finished_at.map(Into::into),
        total: size(i64::try_from(receipt.output.bytes_total).unwrap_or(i64::MAX)),
        environment: serde_json::to_string_pretty(&receipt.environment).unwrap_or_default(),
        team: team.name,
        team_href,
    })
}
