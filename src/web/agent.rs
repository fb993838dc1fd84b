//! An Agent's page: the conversation, the composer, the queue.

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::templates::{AgentPage, MessagesPart, Shell, StatePart, form_token, render};
use super::views::{self, AgentHead, Composer, MessageView, QueuePanel, TurnView};
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::db::{Isolation, Op, TenantTx};
use crate::error::Result;
use crate::http::extract::{Path, Query};
use crate::{team, tenant};

/// One snapshot: what a page shows belongs together, and the stream goes on after it.
const PAGE: Op = Op {
    name: "web.agent",
    isolation: Isolation::RepeatableRead,
};

/// The path parameters of everything below an Agent.
pub type Place = Path<(String, String)>;

/// Which messages: after one that is shown, or before one.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub struct Span {
    #[serde(default)]
    pub after: Option<i64>,
    #[serde(default)]
    pub before: Option<i64>,
}

/// Everything an Agent's page is made of.
pub struct Chat {
    pub home_name: String,
    pub agent: AgentHead,
    pub turn: Option<TurnView>,
    pub messages: Vec<MessageView>,
    pub more: bool,
    pub composer: Composer,
    pub queue: QueuePanel,
    pub cursor: i64,
}

impl Chat {
    /// Whether a new message would wait behind something.
    fn is_working(&self) -> bool {
        self.turn.is_some() || !self.queue.open.is_empty()
    }
}

/// `GET /h/{home}/agents/{agent}`
pub async fn show(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Place,
    Query(span): Query<Span>,
) -> Result<Response> {
    let chat = load(&app, &caller, &named, span).await?;
    let first = chat.messages.first().map(|message| message.seq);
    let older = first.filter(|_| chat.more);
    let working = chat.is_working();
    render(&AgentPage {
        csrf: form_token(&caller).await?,
        shell: Shell::new(&caller, chat.home_name),
        working,
        control_revision: chat.queue.revision,
        older: older.map(|seq| format!("{}?before={seq}", chat.agent.href)),
        last_seq: chat.messages.last().map_or(0, |message| message.seq),
        agent: chat.agent,
        turn: chat.turn,
        messages: chat.messages,
        cursor: chat.cursor,
        composer: chat.composer,
        queue: chat.queue,
    })
}

/// `GET …/messages?after=`: what was said since.
pub async fn messages(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Place,
    Query(span): Query<Span>,
) -> Result<Response> {
    let chat = load(&app, &caller, &named, span).await?;
    render(&MessagesPart { messages: chat.messages })
}

/// `GET …/state`: the line below the name.
pub async fn state(State(app): State<App>, caller: WebCaller, Path((_, named)): Place) -> Result<Response> {
    let chat = load(&app, &caller, &named, Span::default()).await?;
    render(&StatePart {
        csrf: form_token(&caller).await?,
        working: chat.is_working(),
        control_revision: chat.queue.revision,
        agent: chat.agent,
        turn: chat.turn,
        composer: chat.composer,
    })
}

/// Reads one Agent's page.
pub async fn load(app: &App, caller: &WebCaller, named: &str, span: Span) -> Result<Chat> {
    let home = caller.home_slug.clone();
    let args = (home, named.to_owned(), span, views::may_operate(&caller.caller));
    app.db.transact(&caller.caller, PAGE, &args, load_in).await
}

async fn load_in(
    tx: &mut TenantTx,
    (home, named, _span, may_operate): &(String, String, Span, bool),
) -> Result<Chat> {
    let agent = team::agent::find(tx, named).await?;
    let team = team::show(tx, &agent.team_id.to_string()).await?;
    let profiles = team::profile::list(tx, &()).await?;
    let default = profiles.into_iter().find(|profile| profile.id == agent.profile_id);
    let model = agent.model.clone().or(default.map(|profile| profile.default_model));
    let head = views::agent_head(home, &agent, &team, model.unwrap_or_default());
    Ok(Chat {
        home_name: tenant::home_in(tx).await?.name,
        turn: None,
        messages: Vec::new(),
        more: false,
        composer: views::composer(&agent, *may_operate),
        queue: views::empty_queue(&head.href, *may_operate),
        cursor: 0,
        agent: head,
    })
}
