//! `GET /api/agents/{agent}/events`: an Agent's live events.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::agent;
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::Op;
use crate::error::Result;
use crate::events;
use crate::http::extract::Path;
use crate::http::sse;

const FIND: Op = Op::locking("team.events");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(follow))
}

/// Follows an Agent: `item`, `control`, `turn` and `message` carry an id and are kept for an hour. `Last-Event-ID`
/// resumes after it; an id that is no longer kept, or none, is answered with `reload` first.
#[utoipa::path(get, path = "/agents/{agent}/events", tag = "agents", params(("agent" = String, Path,)),
    responses((status = 200, content_type = "text/event-stream", body = String)))]
async fn follow(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(named): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    let agent = app
        .db
        .transact(&caller, FIND, named.as_str(), agent::find)
        .await?;
    let last = sse::resume_after(&headers);
    let frames = events::follow(app.db, &app.wakes, caller, agent.id, last);
    Ok(sse::respond(frames, app.stopping))
}
