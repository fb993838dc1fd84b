//! The pages: server-rendered, working without script, alive with it. They call the same operations as the API.
//!
//! - A page's door is the browser session; a token is never accepted here, a session never below `/api`.
//! - Every change is a form post from our own origin with a token that is bound to the session.
//! - What people, models and repositories wrote is text: it is escaped or, as Markdown, sanitised.

mod adapt;
mod agent;
mod events;
mod form;
mod homes;
mod markdown;
mod queue;
mod session;
mod sign_in;
mod team;
pub mod templates;
pub mod views;

use axum::extract::DefaultBodyLimit;
use axum::response::Redirect;
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};

use crate::app::App;
use crate::http::{assets, layers, page};
use crate::limits;

/// All pages, with their session, their same-origin check and their error pages.
pub fn router(app: &App) -> Router<App> {
    let pages = Router::new()
        .route("/", get(homes::first))
        .route("/sign-in", get(sign_in::show).post(sign_in::password))
        .route(
            "/sign-in/link/{token}",
            get(sign_in::show_link).post(sign_in::link),
        )
        .route("/sign-out", get(sign_in::show_out).post(sign_in::out))
        .nest("/h/{home}", home())
        .method_not_allowed_fallback(layers::method_not_allowed)
        .layer(DefaultBodyLimit::max(limits::FORM_MAX))
        .layer(session::same_origin(app))
        .layer(session::layer(app));
    Router::new()
        .merge(pages)
        .route("/static/{version}/{*name}", get(assets::serve))
        .route(
            "/favicon.ico",
            get(|| async { Redirect::temporary(&format!("{}/icon.svg", assets::folder())) }),
        )
        .layer(middleware::from_fn(page::show_problems))
}

fn home() -> Router<App> {
    let queue = Router::new()
        .route("/queue", get(queue::panel).post(queue::add))
        .route("/queue/pause", post(queue::pause))
        .route("/queue/resume", post(queue::resume))
        .route("/queue/stop", post(queue::stop))
        .route("/queue/{item}", get(queue::show_edit).post(queue::edit))
        .route("/queue/{item}/remove", post(queue::remove))
        .route("/queue/{item}/reconcile", post(queue::reconcile))
        .layer(DefaultBodyLimit::max(limits::FORM_WITH_FILES_MAX));
    let agent = Router::new()
        .route("/", get(agent::show))
        .route("/messages", get(agent::messages))
        .route("/state", get(agent::state))
        .route("/events", get(events::stream))
        .merge(queue)
        .layer(Extension(events::Streams::default()));
    Router::new()
        .route("/", get(homes::home))
        .route("/teams/{team}", get(team::show))
        .route("/teams/{team}/receipts/{receipt}", get(team::receipt))
        .nest("/agents/{agent}", agent)
}
