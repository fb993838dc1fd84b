//! An Agent's live events, followed across lost connections.
//!
//! - A broken stream is opened again after the last durable event seen; nothing durable is missed or seen twice.
//! - When the server no longer has that past it says `reload`; so do we, and the caller reads the state afresh.
//! - A server that stays away for several attempts in a row is reported, not waited for without end.

use std::pin::Pin;

use eventsource_stream::Eventsource;
use futures_util::{Stream, StreamExt};
use serde_json::Value;

use super::client::Client;
use super::exit::{Failure, Lost};
use crate::limits;

/// What the stream told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// `item`, `control`, `turn`, `message`, `delta` or `command`, with its document.
    Told { kind: String, document: Value },
    /// The past is gone, or the connection was: read the state again.
    Reload,
}

type Frames = Pin<Box<dyn Stream<Item = Option<eventsource_stream::Event>> + Send>>;

/// Follows the events of one Agent.
pub struct Events<'c> {
    client: &'c Client,
    agent: String,
    last_id: Option<String>,
    frames: Frames,
}

impl<'c> Events<'c> {
    /// Opens the stream from now on.
    pub async fn open(client: &'c Client, agent: &str) -> Result<Self, Failure> {
        let frames = connect(client, agent, None).await?;
        Ok(Events {
            client,
            agent: agent.to_owned(),
            last_id: None,
            frames,
        })
    }

    /// The next event. After a reconnection the first is [`Event::Reload`], since live-only events were missed.
    pub async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            match self.frames.next().await {
                Some(Some(frame)) => {
                    if let Some(event) = self.take(frame) {
                        return Ok(event);
                    }
                }
                // The end, a cut or a silence: the server's own stop included.
                Some(None) | None => {
                    self.reconnect().await?;
                    return Ok(Event::Reload);
                }
            }
        }
    }

    fn take(&mut self, frame: eventsource_stream::Event) -> Option<Event> {
        if !frame.id.is_empty() {
            self.last_id = Some(frame.id);
        }
        if frame.event == "reload" {
            self.last_id = None;
            return Some(Event::Reload);
        }
        let document = serde_json::from_str(&frame.data).ok()?;
        Some(Event::Told {
            kind: frame.event,
            document,
        })
    }

    async fn reconnect(&mut self) -> Result<(), Failure> {
        let mut pause = limits::CLI_RECONNECT_FIRST;
        let mut last = None;
        for _ in 0..limits::CLI_RECONNECT_ATTEMPTS {
            match connect(self.client, &self.agent, self.last_id.as_deref()).await {
                Ok(frames) => {
                    self.frames = frames;
                    return Ok(());
                }
                Err(failure) if !failure.is_worth_repeating() => return Err(failure),
                Err(failure) => last = Some(failure),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(limits::CLI_RECONNECT_MAX);
        }
        Err(last.unwrap_or_else(|| Failure::Connection {
            lost: Lost::Unanswered,
            message: "The event stream ended.".into(),
        }))
    }
}

async fn connect(client: &Client, agent: &str, last_id: Option<&str>) -> Result<Frames, Failure> {
    let response = client.stream(&["agents", agent, "events"], last_id).await?;
    // A broken frame ends this connection; the next one goes on after the last whole event.
    let frames = response.bytes_stream().eventsource().map(Result::ok);
    Ok(Box::pin(frames))
}
