//! The event stream of an Agent's open page.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};

use super::agent::Place;
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::db::{Op, TenantTx};
use crate::error::Result;
use crate::http::extract::Path;
use crate::{limits, team};

const FIND: Op = Op::locking("web.events");

/// `GET …/events`: lives until the browser goes or the process stops; the browser comes back with its last id.
pub async fn stream(State(app): State<App>, caller: WebCaller, Path((_, named)): Place) -> Result<Response> {
    app.db
        .transact(&caller.caller, FIND, named.as_str(), async |tx: &mut TenantTx, named: &str| {
            team::agent::find(tx, named).await
        })
        .await?;
    let stopping = app.stopping.clone();
    let events = stream::pending::<std::result::Result<Event, Infallible>>()
        .take_until(async move { stopping.cancelled().await });
    let alive = KeepAlive::new().interval(limits::EVENTS_KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}
