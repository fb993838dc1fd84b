//! Turns and conversations over HTTP: cancel a turn, read messages.

use axum::Json as Answer;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::transcript::{self, Message};
use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::{Op, TenantTx};
use crate::error::Result;
use crate::http::extract::{Json, Path, Query};
use crate::http::paging::{self, Page};
use crate::ids::{AgentId, ConversationId, TurnId};
use crate::limits;
use crate::team;

const READ: Op = Op::locking("turn.read");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cancel_turn))
        .routes(routes!(list_messages))
}

/// Which turn to end.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CancelTurn {
    turn_id: TurnId,
}

/// Whether there was one.
#[derive(Serialize, utoipa::ToSchema)]
struct Cancelled {
    cancelled: bool,
}

/// Ends this turn only; the queue goes on with the next item.
#[utoipa::path(post, path = "/agents/{agent}/turn/cancel", tag = "agents", request_body = CancelTurn,
    params(("agent" = String, Path,)), responses((status = 200, body = Cancelled)))]
async fn cancel_turn(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    Json(body): Json<CancelTurn>,
) -> Result<Answer<Cancelled>> {
    let agent = app
        .db
        .transact(&caller, READ, agent.as_str(), agent_in)
        .await?;
    let cancelled = super::cancel(&app.db, &app.wakes, &caller, agent, body.turn_id).await?;
    Ok(Answer(Cancelled { cancelled }))
}

async fn agent_in(tx: &mut TenantTx, named: &str) -> Result<AgentId> {
    Ok(team::agent::find(tx, named).await?.id)
}

/// Where a page begins.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
struct MessagePage {
    before: Option<i32>,
    /// Lines to read, 1 to 100.
    limit: Option<i64>,
}

/// A page of a conversation, newest first page by page; within a page in order.
#[utoipa::path(get, path = "/agents/{agent}/conversations/{conversation}/messages", tag = "agents",
    params(("agent" = String, Path,), ("conversation" = String, Path,), MessagePage),
    responses((status = 200, body = Page<Message>)))]
async fn list_messages(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((agent, conversation)): Path<(String, ConversationId)>,
    Query(page): Query<MessagePage>,
) -> Result<Answer<Page<Message>>> {
    let limit = paging::checked_limit(page.limit.or(Some(limits::MESSAGES_PAGE)))?;
    let args = (agent, conversation, page.before, limit);
    let (items, next) = app.db.transact(&caller, READ, &args, messages_in).await?;
    Ok(Answer(Page {
        items,
        next_cursor: next.map(|seq| seq.to_string()),
    }))
}

type MessageArgs = (String, ConversationId, Option<i32>, i64);

async fn messages_in(tx: &mut TenantTx, args: &MessageArgs) -> Result<(Vec<Message>, Option<i32>)> {
    let (agent, conversation, before, limit) = args;
    let agent = team::agent::find(tx, agent).await?;
    // Of this Agent, or not at all.
    team::store::conversations::find(tx, agent.id, *conversation).await?;
    transcript::messages(tx, &(*conversation, *before, *limit)).await
}
