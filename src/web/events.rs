//! The event stream of an Agent's open page.
//!
//! - Durable events come from the database in commit order, each with its number; a reader that was away too long is
//!   told to reload. Between two looks no database connection is held, so a slow reader holds none.
//! - A command's card comes with its output so far, to the pages that are open then. What ended before a page was opened
//!   is not published to it.
//! - A stream ends with the process, and after ten minutes: the browser comes back, and is authorised anew.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::adapt;
use super::agent::Place;
use super::templates::{CardPart, render_part};
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::coding::receipt::{Receipt, State as CommandState};
use crate::db::wake::Wake;
use crate::db::{Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::http::extract::{Path, Query};
use crate::identity::Caller;
use crate::ids::{AgentId, OperatorId, TeamId};
use crate::{coding, events, limits, team, turn};

const OPEN: Op = Op::locking("web.events.open");
const LOOK: Op = Op::locking("web.events.look");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many streams each person holds open in this process.
#[derive(Clone, Default)]
pub struct Streams(Arc<Mutex<HashMap<OperatorId, usize>>>);

impl Streams {
    fn open(&self, operator: OperatorId) -> Result<Held> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(operator).or_default();
        if *count >= limits::EVENT_STREAMS_PER_OPERATOR {
            let detail =
                "Too many live pages are open. Close some; this one works without live parts.";
            return Err(Error::refused(Code::RateLimited, detail).with("retryAfter", 30));
        }
        *count += 1;
        Ok(Held {
            streams: self.clone(),
            operator,
        })
    }
}

/// One open stream; gives its place back when it ends.
struct Held {
    streams: Streams,
    operator: OperatorId,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self
            .streams
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.operator) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.operator);
            }
        }
    }
}

/// The event that a page already shows.
#[derive(Deserialize)]
pub struct From {
    #[serde(default)]
    after: Option<i64>,
}

/// `GET …/events`
pub async fn stream(
    State(app): State<App>,
    Extension(streams): Extension<Streams>,
    caller: WebCaller,
    Path((_, named)): Place,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Result<Response> {
    let place = streams.open(caller.account.id)?;
    let (agent, team) = app
        .db
        .transact(&caller.caller, OPEN, named.as_str(), open_in)
        .await?;
    let last = headers
        .get(LAST_EVENT_ID)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse().ok())
        .or(from.after);
    let follower = Follower {
        wakes: app.wakes.subscribe(),
        until: Instant::now() + limits::EVENT_STREAM_LIFE,
        caller: caller.caller,
        agent,
        team: team.0,
        team_href: format!("/h/{}/teams/{}", caller.home_slug, team.1),
        last,
        shown: None,
        first: true,
        _place: place,
        app,
    };
    let alive = KeepAlive::new().interval(limits::EVENTS_KEEP_ALIVE);
    Ok(Sse::new(follower.stream())
        .keep_alive(alive)
        .into_response())
}

async fn open_in(tx: &mut TenantTx, named: &str) -> Result<(AgentId, (TeamId, String))> {
    let agent = team::agent::find(tx, named).await?;
    let team = team::show(tx, &agent.team_id.to_string()).await?;
    Ok((agent.id, (team.id, team.slug)))
}

/// What a receipt looked like when it was last sent.
type Seen = (CommandState, u64, bool);

struct Follower {
    app: App,
    caller: Caller,
    agent: AgentId,
    team: TeamId,
    team_href: String,
    wakes: broadcast::Receiver<Wake>,
    until: Instant,
    last: Option<i64>,
    /// Receipts as last sent; none before the first look.
    shown: Option<HashMap<Uuid, Seen>>,
    first: bool,
    _place: Held,
}

/// What one look found.
struct Found {
    since: events::Since,
    receipts: Vec<Receipt>,
    working: bool,
}

impl Follower {
    fn stream(self) -> impl Stream<Item = std::result::Result<Event, Infallible>> {
        let stopping = self.app.stopping.clone();
        stream::unfold(self, |mut follower| async move {
            let batch = follower.next().await?;
            Some((stream::iter(batch.into_iter().map(Ok)), follower))
        })
        .flatten()
        .take_until(async move { stopping.cancelled().await })
    }

    /// The next events; nothing when the stream shall end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            if !std::mem::take(&mut self.first) {
                self.wait().await;
            }
            if Instant::now() >= self.until {
                return None;
            }
            // A database that does not answer: the browser comes back later, with its number.
            let found = self
                .app
                .db
                .transact(
                    &self.caller,
                    LOOK,
                    &(self.agent, self.team, self.last),
                    look,
                )
                .await
                .ok()?;
            let events = self.tell(found);
            if !events.is_empty() {
                return Some(events);
            }
        }
    }

    /// Until something of this Agent moved, or a running command may have written.
    async fn wait(&mut self) {
        let mine = Wake::Agent(self.agent.uuid());
        let moved = async {
            loop {
                match self.wakes.recv().await {
                    Ok(wake) if wake == mine => return,
                    Ok(_) => {}
                    // Missed some, or there is no sender any more: look for ourselves.
                    Err(_) => return tokio::time::sleep(limits::LIVE_TAIL_EVERY).await,
                }
            }
        };
        let _ = timeout(limits::LIVE_TAIL_EVERY, moved).await;
    }

    fn tell(&mut self, found: Found) -> Vec<Event> {
        let mut out = Vec::new();
        match found.since {
            events::Since::Reload { seq } => {
                let follows = self.last == Some(seq);
                self.last = Some(seq);
                if !follows {
                    out.push(
                        Event::default()
                            .event("reload")
                            .id(seq.to_string())
                            .data("{}"),
                    );
                }
            }
            events::Since::Events(list) => {
                for event in list {
                    self.last = Some(event.seq);
                    let data = event.payload.to_string();
                    out.push(
                        Event::default()
                            .event(event.kind.as_str())
                            .id(event.seq.to_string())
                            .data(data),
                    );
                }
            }
        }
        // Cards come before the message that refers to them.
        let mut cards = self.cards(&found.receipts, found.working);
        cards.append(&mut out);
        cards
    }

    fn cards(&mut self, receipts: &[Receipt], working: bool) -> Vec<Event> {
        let seen = |receipt: &Receipt| {
            (
                receipt.state,
                receipt.output.bytes_total,
                receipt.finished_at.is_some(),
            )
        };
        let first = self.shown.is_none();
        let shown = self.shown.get_or_insert_default();
        let mut out = Vec::new();
        // Newest first as listed; shown oldest first.
        for receipt in receipts.iter().rev() {
            let before = shown.insert(receipt.id.uuid(), seen(receipt));
            let ended_before = first && receipt.finished_at.is_some();
            if before != Some(seen(receipt)) && !ended_before {
                out.extend(self::card(&self.team_href, receipt));
            }
        }
        if !working && receipts.is_empty() {
            shown.clear();
        }
        out
    }
}

async fn look(tx: &mut TenantTx, args: &(AgentId, TeamId, Option<i64>)) -> Result<Found> {
    let (agent, team, last) = *args;
    let active = turn::active_in(tx, agent).await?;
    let recent = coding::store::list(
        tx,
        team,
        active.as_ref().map(|turn| turn.id),
        None,
        limits::RECEIPTS_KEPT,
    )
    .await?;
    let receipts = recent
        .into_iter()
        .filter(|receipt| receipt.agent_id == agent)
        .collect();
    Ok(Found {
        since: events::since(tx, agent, last).await?,
        receipts,
        working: active.is_some(),
    })
}

fn card(team_href: &str, receipt: &Receipt) -> Option<Event> {
    let html = render_part(&CardPart {
        card: adapt::card_with_output(team_href, receipt),
    })
    .ok()?;
    let data = json!({ "receiptId": receipt.id, "callId": receipt.tool_call_id, "turnId": receipt.turn_id, "html": html });
    Some(Event::default().event("command").data(data.to_string()))
}
