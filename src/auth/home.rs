//! `/api/members` and `/api/audit`: who belongs to the caller's home, and what was done in it. For owners.

use axum::Json as Answer;
use axum::extract::State;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::ApiCaller;
use crate::app::App;
use crate::db::Op;
use crate::error::Result;
use crate::http::extract::Query;
use crate::http::paging::{self, Page};
use crate::tenant::{self, Member, audit};

const MEMBERS: Op = Op::locking("tenant.members");
const AUDIT: Op = Op::locking("tenant.audit");

/// The routes of this module.
pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_members))
        .routes(routes!(list_audit))
}

/// The people of the home with their roles.
#[utoipa::path(get, path = "/members", tag = "home", responses((status = 200, body = Page<Member>)))]
async fn list_members(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Member>>> {
    Ok(Answer(Page::whole(
        app.db
            .transact(&caller, MEMBERS, &(), tenant::members)
            .await?,
    )))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuditParams {
    cursor: Option<String>,
    /// 1 to 100.
    limit: Option<i64>,
}

/// The audit log of the home, newest first.
#[utoipa::path(get, path = "/audit", tag = "home", params(AuditParams),
    responses((status = 200, body = Page<audit::Entry>)))]
async fn list_audit(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Query(params): Query<AuditParams>,
) -> Result<Answer<Page<audit::Entry>>> {
    let limit = paging::checked_limit(params.limit)?;
    let before: Option<i64> = params
        .cursor
        .map(|cursor| cursor.parse().map_err(|_| paging::foreign_cursor()))
        .transpose()?;
    // One more than asked for says whether a page follows.
    let args = (before, limit + 1);
    let items = app.db.transact(&caller, AUDIT, &args, audit::page).await?;
    Ok(Answer(Page::cut(items, limit, |last| last.id.to_string())))
}
