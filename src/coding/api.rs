//! A Team's receipts, runtime defaults and repository context over HTTP.

use std::path::Path as FilePath;

use axum::Json as Answer;
use axum::extract::State;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::environment::{self, Defaults, PutEnvironment, TeamEnvironment};
use super::inspection;
use super::receipt::Receipt;
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::{Op, TenantTx};
use crate::error::{Error, Result};
use crate::executor::images;
use crate::http::extract::{Json, Path, Query};
use crate::http::paging::Page;
use crate::ids::{ReceiptId, TurnId};
use crate::limits;
use crate::repo::report::Report;
use crate::team::{self, Team};

const READ: Op = Op::locking("coding.read");
// A revision, and the workspace's freedom, are checked together.
const WRITE: Op = Op::serializable("coding.environment.put");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_receipts))
        .routes(routes!(show_receipt))
        .routes(routes!(show_context))
        .routes(routes!(show_environment, put_environment))
}

/// Which receipts.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiptPage {
    #[param(value_type = Option<String>)]
    turn_id: Option<TurnId>,
    #[param(value_type = Option<String>)]
    cursor: Option<ReceiptId>,
}

/// A Team's receipts, newest first.
#[utoipa::path(get, path = "/teams/{team}/receipts", tag = "coding", params(("team" = String, Path,), ReceiptPage),
    responses((status = 200, body = Page<Receipt>)))]
async fn list_receipts(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
    Query(page): Query<ReceiptPage>,
) -> Result<Answer<Page<Receipt>>> {
    let args = (team, page.turn_id, page.cursor, limits::RECEIPTS_PAGE);
    let items = app
        .db
        .transact(&caller, READ, &args, super::receipts)
        .await?;
    let full = i64::try_from(items.len()).is_ok_and(|count| count == limits::RECEIPTS_PAGE);
    let next_cursor = items
        .last()
        .filter(|_| full)
        .map(|receipt| receipt.id.to_string());
    Ok(Answer(Page { items, next_cursor }))
}

/// One receipt.
#[utoipa::path(get, path = "/teams/{team}/receipts/{receipt}", tag = "coding",
    params(("team" = String, Path,), ("receipt" = String, Path,)), responses((status = 200, body = Receipt)))]
async fn show_receipt(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(args): Path<(String, ReceiptId)>,
) -> Result<Answer<Receipt>> {
    Ok(Answer(
        app.db
            .transact(&caller, READ, &args, super::receipt)
            .await?,
    ))
}

/// Which place of the repository.
#[derive(Deserialize, utoipa::IntoParams)]
struct Target {
    /// A file or directory below the Team's root; the root when it is absent.
    target: Option<String>,
}

/// A fresh look at a Team's repository: instructions, command suggestions, Git's state. Runs nothing of it. A bad target
/// is an incomplete report. A fingerprint is not a full code snapshot, not an environment-readiness result and not a
/// test receipt.
#[utoipa::path(get, path = "/teams/{team}/repository-context", tag = "coding", params(("team" = String, Path,), Target),
    responses((status = 200, body = serde_json::Value)))]
async fn show_context(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
    Query(asked): Query<Target>,
) -> Result<Answer<Report>> {
    let look = || {
        app.db
            .transact(&caller, READ, named.as_str(), inspection::subject)
    };
    let (team, busy_before) = look().await?;
    let target = asked.target.unwrap_or_else(|| ".".into());
    let mut report = inspection::context(&app, caller.home(), team, target).await?;
    if busy_before || look().await?.1 {
        inspection::beside_a_turn(&mut report);
    }
    Ok(Answer(report))
}

/// What a Team has saved, and what a turn admitted now would be given.
#[utoipa::path(get, path = "/teams/{team}/coding-environment", tag = "coding", params(("team" = String, Path,)),
    responses((status = 200, body = TeamEnvironment)))]
async fn show_environment(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(team): Path<String>,
) -> Result<Answer<TeamEnvironment>> {
    let image = app
        .config
        .sandbox_image
        .clone()
        .unwrap_or_else(images::sandbox_reference);
    Ok(Answer(
        app.db
            .transact(&caller, READ, &(team, image), environment::show)
            .await?,
    ))
}

/// Saves runtime defaults. Runs nothing.
#[utoipa::path(put, path = "/teams/{team}/coding-environment", tag = "coding", params(("team" = String, Path,)),
    request_body = PutEnvironment, responses((status = 200, body = Defaults)))]
async fn put_environment(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
    Json(body): Json<PutEnvironment>,
) -> Result<Answer<Defaults>> {
    let config = environment::check(&body.config)?;
    if let Some(cwd) = config.cwd.clone() {
        let team = app
            .db
            .transact(&caller, READ, named.as_str(), team_in)
            .await?;
        let root = team
            .root
            .directory(&app.config.workspace_base, caller.home(), team.id);
        let found = tokio::task::spawn_blocking(move || is_directory(&root, &cwd)).await;
        if !found.map_err(|e| Error::internal("looking at a working directory", e))? {
            return Err(Error::invalid(
                "config.cwd",
                "cwd",
                "Name an existing directory that is no link.",
            ));
        }
    }
    let args = (named, body.expected_revision, config);
    Ok(Answer(
        app.db
            .transact(&caller, WRITE, &args, environment::put)
            .await?,
    ))
}

async fn team_in(tx: &mut TenantTx, named: &str) -> Result<Team> {
    team::show(tx, named).await
}

/// Each component below the root is a real directory. Looks at names only; nothing is opened. The root itself is always
/// there: a managed one is made when it is first needed.
fn is_directory(root: &FilePath, cwd: &str) -> bool {
    let mut path = root.to_owned();
    cwd.split('/').filter(|part| *part != ".").all(|part| {
        path.push(part);
        std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir())
    })
}
