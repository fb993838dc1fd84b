//! `/api/providers`: keys go in and never come out.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Provider, Put, PutProvider};
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::{Op, TenantTx};
use crate::error::Result;
use crate::http::extract::{Json, Path};
use crate::http::paging::Page;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const READ: Op = Op::locking("provider.read");
const WRITE: Op = Op::locking("provider.write");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, put, delete))
}

/// The providers of the home.
#[utoipa::path(get, path = "/providers", tag = "providers", responses((status = 200, body = Page<Provider>)))]
async fn list(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Provider>>> {
    let items = app
        .db
        .transact(&caller, READ, &(), async |tx: &mut TenantTx, (): &()| {
            require(tx.caller(), Action::Read)?;
            super::list(tx).await
        })
        .await?;
    Ok(Answer(Page::whole(items)))
}

/// One provider.
#[utoipa::path(get, path = "/providers/{name}", tag = "providers", params(("name" = String, Path,)),
    responses((status = 200, body = Provider)))]
async fn show(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
) -> Result<Answer<Provider>> {
    let provider = app
        .db
        .transact(
            &caller,
            READ,
            name.as_str(),
            async |tx: &mut TenantTx, name: &str| {
                require(tx.caller(), Action::Read)?;
                super::find(tx, name).await
            },
        )
        .await?;
    Ok(Answer(provider))
}

/// Creates or replaces a provider. Without `apiKey` a stored key stays.
#[utoipa::path(put, path = "/providers/{name}", tag = "providers", params(("name" = String, Path,)),
    request_body = PutProvider, responses((status = 200, body = Provider)))]
async fn put(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
    Json(body): Json<PutProvider>,
) -> Result<Answer<Provider>> {
    let args = Put {
        name: &name,
        body: &body,
        scripted: false,
        master: &app.master,
        allow_private: app.config.allow_private_providers,
    };
    let provider = app.db.transact(&caller, WRITE, &args, put_in).await?;
    Ok(Answer(provider))
}

async fn put_in(tx: &mut TenantTx, args: &Put<'_>) -> Result<Provider> {
    require(tx.caller(), Action::Administer)?;
    super::put(tx, args).await
}

/// Removes a provider with its key.
#[utoipa::path(delete, path = "/providers/{name}", tag = "providers", params(("name" = String, Path,)),
    responses((status = 204)))]
async fn delete(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
) -> Result<StatusCode> {
    app.db
        .transact(
            &caller,
            WRITE,
            name.as_str(),
            async |tx: &mut TenantTx, name: &str| {
                require(tx.caller(), Action::Administer)?;
                super::delete(tx, name).await?;
                audit::record(tx, &Act::ok("provider.delete", name)).await
            },
        )
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
