//! `/api/instance/leases`: what owns or blocks workspaces, for whoever runs the instance.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Lease;
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::error::{Error, Result};
use crate::http::extract::{Json, Path};
use crate::http::paging::Page;
use crate::ids::{HomeId, LeaseId};

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_leases))
        .routes(routes!(release_lease))
}

/// A lease with its home.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct InstanceLease {
    home_id: HomeId,
    #[serde(flatten)]
    lease: Lease,
}

/// Confirms that the evidence was seen.
#[derive(serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Release {
    acknowledge: bool,
}

/// Every lease of the instance, oldest first.
#[utoipa::path(get, path = "/instance/leases", tag = "instance", responses((status = 200, body = Page<InstanceLease>)))]
async fn list_leases(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<InstanceLease>>> {
    let leases = super::list_all(&app.db, &caller).await?;
    let items = leases
        .into_iter()
        .map(|(home_id, lease)| InstanceLease { home_id, lease })
        .collect();
    Ok(Answer(Page::whole(items)))
}

/// Ends a lease in recovery that cannot prove itself. Audited with its evidence.
#[utoipa::path(post, path = "/instance/leases/{lease}/release", tag = "instance", request_body = Release,
    params(("lease" = String, Path,)), responses((status = 204)))]
async fn release_lease(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(lease): Path<LeaseId>,
    Json(body): Json<Release>,
) -> Result<StatusCode> {
    if !body.acknowledge {
        return Err(Error::invalid(
            "acknowledge",
            "required",
            "Say true when you have seen the lease's evidence.",
        ));
    }
    super::acknowledge(&app.db, &caller, lease).await?;
    Ok(StatusCode::NO_CONTENT)
}
