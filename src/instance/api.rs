//! `/api/instance/homes`: for the instance admin.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::home;
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::error::Result;
use crate::http::extract::Json;
use crate::ids::HomeId;
use crate::tenant::permission::{Action, require};

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create_home))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewHome {
    slug: String,
    name: String,
    /// The account is made if there is none; `bazilion instance sign-in-link EMAIL` lets its person in.
    owner_email: String,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct CreatedHome {
    id: HomeId,
    slug: String,
    name: String,
}

/// Creates a home with its first owner, a Team `default` and a profile `default`.
#[utoipa::path(post, path = "/instance/homes", tag = "instance", request_body = NewHome,
    responses((status = 201, body = CreatedHome)))]
async fn create_home(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Json(new): Json<NewHome>,
) -> Result<(StatusCode, Answer<CreatedHome>)> {
    require(&caller, Action::RunInstance)?;
    let name = new
        .owner_email
        .split('@')
        .next()
        .unwrap_or("owner")
        .to_owned();
    let owner = home::Owner {
        email: new.owner_email,
        name,
        instance_admin: false,
    };
    let id = home::create(&app.db, &app.master, &new.slug, &new.name, &owner).await?;
    Ok((
        StatusCode::CREATED,
        Answer(CreatedHome {
            id,
            slug: new.slug,
            name: new.name,
        }),
    ))
}
