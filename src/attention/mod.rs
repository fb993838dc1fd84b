//! `/api/attention`: what in a home needs a person, each with the one action it needs.
//!
//! - Nothing here holds a person's text, a file's name or a path of the host.
//! - A paused queue with an uncertain item is listed once, by the item: that is what comes first.

mod store;

use axum::Json as Answer;
use axum::extract::State;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::db::codec::text_enum;
use crate::db::{Isolation, Op, TenantTx};
use crate::error::Result;
use crate::http::paging::Page;
use crate::ids::{AgentId, ItemId};
use crate::tenant::permission::{Action, require};

/// One snapshot: an item that moves on meanwhile is seen once.
const LIST: Op = Op {
    name: "attention.list",
    isolation: Isolation::RepeatableRead,
};

text_enum! {
    /// Why something needs a person.
    pub enum Kind in "attention" {
        Held => "held",
        Uncertain => "uncertain",
        Paused => "paused",
        Failed => "failed",
        Recovery => "recovery",
        Receipts => "receipts",
    }
}

/// One thing that needs a person.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Matter {
    pub kind: Kind,
    pub agent_name: Option<String>,
    pub agent_id: Option<AgentId>,
    pub item_id: Option<ItemId>,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<OffsetDateTime>,
    /// What is the matter, for a person.
    pub text: String,
    /// The one action it needs.
    pub action: &'static str,
}

/// A matter as it was found, without its words.
struct Found {
    kind: Kind,
    agent_name: Option<String>,
    agent_id: Option<AgentId>,
    item_id: Option<ItemId>,
    since: Option<OffsetDateTime>,
    /// A diagnostic, or the reason of a pause.
    detail: Option<String>,
}

impl From<Found> for Matter {
    fn from(found: Found) -> Self {
        Matter {
            text: text(found.kind, found.detail),
            action: action(found.kind),
            kind: found.kind,
            agent_name: found.agent_name,
            agent_id: found.agent_id,
            item_id: found.item_id,
            since: found.since,
        }
    }
}

fn text(kind: Kind, detail: Option<String>) -> String {
    let fixed = match kind {
        Kind::Held => "An input waits for an approval.",
        Kind::Uncertain => "The outcome of an input is unknown. It is not run again on its own.",
        Kind::Paused => {
            return format!("The queue is paused ({}).", detail.unwrap_or_default());
        }
        Kind::Failed => {
            return detail.unwrap_or_else(|| "An input failed.".into());
        }
        Kind::Recovery => "A workspace waits until what ran in it is proven gone.",
        Kind::Receipts => {
            return format!(
                "The home keeps {} % of the receipts it may have.",
                detail.unwrap_or_default()
            );
        }
    };
    fixed.into()
}

fn action(kind: Kind) -> &'static str {
    match kind {
        Kind::Held => "Approve or deny it",
        Kind::Uncertain => "Acknowledge and close it",
        Kind::Paused => "Resume the queue",
        Kind::Failed => "Read why, then send it again",
        Kind::Recovery => "Ask the instance admin to look at the lease",
        Kind::Receipts => "Ask the instance admin to raise the limit",
    }
}

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_attention))
}

/// What needs a person, the oldest first.
#[utoipa::path(get, path = "/attention", tag = "home", responses((status = 200, body = Page<Matter>)))]
async fn list_attention(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<Matter>>> {
    Ok(Answer(Page::whole(
        app.db.transact(&caller, LIST, &(), list).await?,
    )))
}

/// The same inside a transaction.
pub async fn list(tx: &mut TenantTx, (): &()) -> Result<Vec<Matter>> {
    require(tx.caller(), Action::Read)?;
    let found = store::list(tx).await?;
    Ok(found.into_iter().map(Matter::from).collect())
}
