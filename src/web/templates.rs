//! The pages' templates as types, and how they become answers.

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use http::{HeaderValue, header};

use super::session;
use super::views::{
    AgentHead, AgentRow, CommandCard, Composer, HomeRow, ItemRow, MessageView, Moment, QueuePanel,
    TeamRow, TurnView, Wait,
};
use crate::auth::extract::WebCaller;
use crate::error::{Error, Result};
use crate::http::assets;

/// Renders a part of a page.
pub fn render_part(part: &impl Template) -> Result<String> {
    part.render()
        .map_err(|e| Error::internal("rendering a page", e))
}

/// Renders a page. Pages hold what belongs to one person: no cache keeps them.
pub fn render(page: &impl Template) -> Result<Response> {
    let mut response = Html(render_part(page)?).into_response();
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// What every page inside a home shows around its content.
pub struct Shell {
    pub assets: String,
    pub owner: String,
    pub person: String,
    pub role: &'static str,
    pub home_slug: String,
    pub home_name: String,
}

impl Shell {
    pub fn new(caller: &WebCaller, home_name: String) -> Self {
        Self {
            assets: assets::folder(),
            owner: caller.account.id.to_string(),
            person: caller.account.name.clone(),
            role: caller.role.as_str(),
            home_slug: caller.home_slug.clone(),
            home_name,
        }
    }
}

/// What pages outside a home need.
pub struct Plain {
    pub assets: String,
}

impl Plain {
    pub fn new() -> Self {
        Self {
            assets: assets::folder(),
        }
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}

/// The token of a caller's forms.
pub async fn form_token(caller: &WebCaller) -> Result<String> {
    session::form_token(&caller.session).await
}

#[derive(Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    pub plain: Plain,
    pub next: String,
    pub email: String,
    pub refused: Option<String>,
}

#[derive(Template)]
#[template(path = "sign_in_link.html")]
pub struct SignInLinkPage {
    pub plain: Plain,
    pub action: String,
}

#[derive(Template)]
#[template(path = "sign_out.html")]
pub struct SignOutPage {
    pub plain: Plain,
    pub owner: String,
    pub csrf: String,
}

#[derive(Template)]
#[template(path = "unencrypted.html")]
pub struct UnencryptedPage {
    pub plain: Plain,
    pub host: String,
}

#[derive(Template)]
#[template(path = "homes.html")]
pub struct HomesPage {
    pub plain: Plain,
    pub homes: Vec<HomeRow>,
}

#[derive(Template)]
#[template(path = "home.html")]
pub struct HomePage {
    pub shell: Shell,
    pub agents: Vec<AgentRow>,
    pub teams: Vec<TeamRow>,
    pub waiting: Vec<Wait>,
}

#[derive(Template)]
#[template(path = "team.html")]
pub struct TeamPage {
    pub shell: Shell,
    pub name: String,
    pub root: String,
    pub executor: String,
    pub policy_revision: i64,
    pub user_md: String,
    pub agents: Vec<AgentRow>,
}

/// The chat: conversation, composer, queue.
#[derive(Template)]
#[template(path = "agent.html")]
pub struct AgentPage {
    pub shell: Shell,
    pub csrf: String,
    pub agent: AgentHead,
    pub turn: Option<TurnView>,
    pub working: bool,
    pub control_revision: i64,
    pub messages: Vec<MessageView>,
    pub older: Option<String>,
    pub last_seq: i64,
    /// The newest event this page already shows; the stream goes on after it.
    pub cursor: i64,
    pub composer: Composer,
    pub queue: QueuePanel,
}

/// The line below the Agent's name, renewed by itself.
#[derive(Template)]
#[template(path = "agent_state.html")]
pub struct StatePart {
    pub csrf: String,
    pub working: bool,
    pub agent: AgentHead,
    pub turn: Option<TurnView>,
    pub control_revision: i64,
    pub composer: Composer,
}

/// More messages.
#[derive(Template)]
#[template(path = "messages.html")]
pub struct MessagesPart {
    pub messages: Vec<MessageView>,
}

/// One command, live.
#[derive(Template)]
#[template(path = "card.html")]
pub struct CardPart {
    pub card: CommandCard,
}

/// The queue panel, renewed by itself and after each action in it.
#[derive(Template)]
#[template(path = "queue.html")]
pub struct QueuePart {
    pub csrf: String,
    pub queue: QueuePanel,
}

/// The form that changes a waiting message.
#[derive(Template)]
#[template(path = "edit.html")]
pub struct EditPage {
    pub shell: Shell,
    pub csrf: String,
    pub agent_name: String,
    pub agent_href: String,
    pub item: ItemRow,
    pub request_id: String,
    pub notice: Option<String>,
    /// What was typed when somebody else was faster.
    pub attempted: Option<String>,
    pub composer: Composer,
    /// What the text field begins with.
    pub text: String,
}

/// One receipt with its output: for those who may see the Team's receipts.
#[derive(Template)]
#[template(path = "receipt.html")]
pub struct ReceiptPage {
    pub shell: Shell,
    pub team: String,
    pub team_href: String,
    pub card: CommandCard,
    pub started: Moment,
    pub finished: Option<Moment>,
    pub total: String,
    pub environment: String,
}
