//! An Agent's page: the conversation, the composer, the queue.

use std::collections::{BTreeSet, HashMap};

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::adapt;
use super::templates::{AgentPage, MessagesPart, Shell, StatePart, form_token, render};
use super::views::{AgentHead, Composer, MessageView, QueuePanel, TurnView};
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::coding::receipt::Receipt;
use crate::db::{Isolation, Op, TenantTx};
use crate::error::Result;
use crate::http::extract::{Path, Query};
use crate::queue::look;
use crate::turn::transcript::{self, Message};
use crate::{coding, events, limits, queue, team, tenant, turn};

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
    after: Option<i32>,
    #[serde(default)]
    before: Option<i32>,
}

/// Everything an Agent's page is made of.
pub struct Chat {
    pub home_name: String,
    pub agent: AgentHead,
    pub turn: Option<TurnView>,
    pub messages: Vec<MessageView>,
    /// Where the next older page begins.
    pub older: Option<i32>,
    pub composer: Composer,
    pub queue: QueuePanel,
    /// The newest event that this snapshot contains.
    pub cursor: i64,
}

impl Chat {
    /// Whether a new message would wait behind something.
    pub fn is_working(&self) -> bool {
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
    let working = chat.is_working();
    render(&AgentPage {
        csrf: form_token(&caller).await?,
        shell: Shell::new(&caller, chat.home_name),
        working,
        control_revision: chat.queue.revision,
        older: chat
            .older
            .map(|seq| format!("{}?before={seq}", chat.agent.href)),
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
    let mut chat = load(&app, &caller, &named, span).await?;
    let after = i64::from(span.after.unwrap_or(0));
    chat.messages.retain(|message| message.seq > after);
    render(&MessagesPart {
        messages: chat.messages,
    })
}

/// `GET …/state`: the line below the name.
pub async fn state(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Place,
) -> Result<Response> {
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

struct Asked {
    home: String,
    named: String,
    span: Span,
    may_operate: bool,
}

/// Reads one Agent's page.
pub async fn load(app: &App, caller: &WebCaller, named: &str, span: Span) -> Result<Chat> {
    let asked = Asked {
        home: caller.home_slug.clone(),
        named: named.to_owned(),
        span,
        may_operate: adapt::may_operate(&caller.caller),
    };
    app.db.transact(&caller.caller, PAGE, &asked, load_in).await
}

async fn load_in(tx: &mut TenantTx, asked: &Asked) -> Result<Chat> {
    let agent = team::agent::find(tx, &asked.named).await?;
    let active = turn::active_in(tx, agent.id).await?;
    let listed = queue::list_in(tx, &all_of(&agent)).await?;
    let state = adapt::agent_state(&agent, active.as_ref(), &listed);
    let head = head_in(
        tx,
        &asked.home,
        &agent,
        active.as_ref().map(|turn| turn.model.clone()),
        state,
    )
    .await?;
    let (said, older) = match agent.selection.conversation_id {
        Some(conversation) => {
            let page = (conversation, asked.span.before, limits::MESSAGES_PER_PAGE);
            transcript::messages(tx, &page).await?
        }
        None => (Vec::new(), None),
    };
    let receipts = receipts_in(tx, &agent, &said).await?;
    let cursor = match events::since(tx, agent.id, None).await? {
        events::Since::Reload { seq } => seq,
        events::Since::Events(_) => 0,
    };
    Ok(Chat {
        home_name: tenant::home_in(tx).await?.name,
        turn: active.map(|active| adapt::turn(&active, tx.now())),
        messages: said
            .iter()
            .map(|message| adapt::message(&head, message, &receipts))
            .collect(),
        older,
        composer: adapt::composer(&agent, asked.may_operate),
        queue: adapt::queue(&head.href, &asked.home, &listed, asked.may_operate),
        cursor,
        agent: head,
    })
}

/// Open items and the newest of the history.
fn all_of(agent: &team::Agent) -> look::Query {
    look::Query {
        agent: agent.id.to_string(),
        view: look::View::All,
        cursor: None,
        offset: None,
        limit: None,
    }
}

async fn head_in(
    tx: &mut TenantTx,
    home: &str,
    agent: &team::Agent,
    working_with: Option<String>,
    state: super::views::State,
) -> Result<AgentHead> {
    let team = team::show(tx, &agent.team_id.to_string()).await?;
    let profiles = team::profile::list(tx, &()).await?;
    let default = profiles
        .into_iter()
        .find(|profile| profile.id == agent.profile_id);
    let model = working_with
        .or_else(|| agent.model.clone())
        .or(default.map(|profile| profile.default_model));
    Ok(adapt::agent_head(
        home,
        agent,
        &team,
        model.unwrap_or_default(),
        state,
    ))
}

/// The receipts that a page of messages speaks of, by id.
async fn receipts_in(
    tx: &mut TenantTx,
    agent: &team::Agent,
    said: &[Message],
) -> Result<HashMap<String, Receipt>> {
    let with_commands = said
        .iter()
        .filter(|message| message.tools.iter().any(|tool| tool.receipt_id.is_some()));
    let turns: BTreeSet<_> = with_commands
        .filter_map(|message| message.turn_id)
        .map(|turn| turn.uuid())
        .collect();
    let mut receipts = HashMap::new();
    for turn in turns {
        let listed = coding::store::list(
            tx,
            agent.team_id,
            Some(turn.into()),
            None,
            limits::RECEIPTS_PER_TURN_SHOWN,
        )
        .await?;
        receipts.extend(
            listed
                .into_iter()
                .map(|receipt| (receipt.id.to_string(), receipt)),
        );
    }
    Ok(receipts)
}
