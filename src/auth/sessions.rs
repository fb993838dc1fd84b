//! `/api/sessions`: where a person is signed in with a browser, and ending one of them.
//!
//! - A session is shown under an id derived from what the database knows it by, so a list holds neither a cookie nor
//!   a hash of one.
//! - Ending one ends that one only. Whose session it is decides the person, so another's is not found.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::api::{operator_of, require_change};
use super::extract::ApiCaller;
use super::store::{self, ListedSession};
use crate::app::App;
use crate::db::{Op, SystemTx};
use crate::error::{Error, Result};
use crate::http::extract::Path;
use crate::http::paging::Page;
use crate::ids::{HomeId, OperatorId};
use crate::limits;
use crate::secret;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const LIST: Op = Op::locking("auth.sessions");
const END: Op = Op::locking("auth.end_session");

/// The routes of this module.
pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_sessions))
        .routes(routes!(end_session))
}

/// One browser in which the person is signed in.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct SessionView {
    id: Uuid,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    created_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    last_seen_at: OffsetDateTime,
    /// Without another request; a request moves it, up to seven days after the sign-in.
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    expires_at: OffsetDateTime,
}

impl From<ListedSession> for SessionView {
    fn from(session: ListedSession) -> Self {
        let end = session.created_at + limits::SESSION_MAX;
        SessionView {
            id: public_id(&session.id_hash),
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            expires_at: session.expires_at.min(end),
        }
    }
}

/// A name for a session that nobody can sign in with, nor look its row up by.
fn public_id(hash: &[u8]) -> Uuid {
    let derived = secret::digest(&[b"bazilion session\0", hash].concat());
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = derived;
    uuid::Builder::from_random_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]).into_uuid()
}

/// The caller's own browser sessions, the last used first.
#[utoipa::path(get, path = "/sessions", tag = "account", responses((status = 200, body = Page<SessionView>)))]
async fn list_sessions(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<SessionView>>> {
    require(&caller, Action::Read)?;
    let operator = operator_of(&caller)?;
    let sessions = app
        .db
        .system(
            LIST,
            &operator,
            async |tx: &mut SystemTx, operator: &OperatorId| {
                store::list_sessions_across_homes(tx, *operator).await
            },
        )
        .await?;
    let items = sessions.into_iter().map(SessionView::from).collect();
    Ok(Answer(Page::whole(items)))
}

/// Ends one of the caller's browser sessions, at once.
#[utoipa::path(delete, path = "/sessions/{session}", tag = "account", params(("session" = Uuid, Path,)),
    responses((status = 204)))]
async fn end_session(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<Uuid>,
) -> Result<StatusCode> {
    require_change(&caller)?;
    let args = (operator_of(&caller)?, caller.home(), id);
    app.db.system(END, &args, end).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn end(tx: &mut SystemTx, args: &(OperatorId, HomeId, Uuid)) -> Result<()> {
    let (operator, home, id) = *args;
    let found = store::list_sessions_across_homes(tx, operator)
        .await?
        .into_iter()
        .find(|session| public_id(&session.id_hash) == id)
        .ok_or_else(Error::not_found)?;
    store::delete_session_across_homes(tx, &found.id_hash).await?;
    let act = Act {
        detail: serde_json::json!({"operatorId": operator}),
        ..Act::ok("session.end", id)
    };
    audit::record_across_homes(tx, Some(home), &act).await
}
