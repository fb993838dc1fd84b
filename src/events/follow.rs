//! Follows an Agent's events as they are committed, wherever in the fleet that happens.
//!
//! - Register for wake-ups, then look, then wait: nothing that is committed in between is missed. A wake-up that is
//!   lost is made good by polling.
//! - A reader holds no database connection while nothing happens, and none while it is slow: a page is read, the
//!   connection goes back, and the next page is read when the reader has taken this one.

use std::collections::VecDeque;
use std::future::pending;

use futures_util::{Stream, stream};
use serde_json::json;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::{Since, since};
use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, TenantTx};
use crate::error::{Error, Result};
use crate::http::sse::Frame;
use crate::identity::Caller;
use crate::ids::AgentId;
use crate::limits;
use crate::tenant::permission::{self, Action};

const LOOK: Op = Op::locking("events.look");

/// The events behind `last`, then every later one. Without `last`, or when that past is no longer kept, the first frame
/// is `reload` with the number to go on from. Ends when the caller may not read here any more.
pub fn follow(
    db: Db,
    wakes: &Wakes,
    caller: Caller,
    agent: AgentId,
    last: Option<i64>,
) -> impl Stream<Item = Frame> + Send + use<> {
    let follower = Follower {
        wakes: wakes.subscribe(),
        db,
        caller,
        agent,
        last,
        ready: VecDeque::new(),
    };
    stream::unfold(follower, |mut follower| async move {
        let frame = follower.next().await?;
        Some((frame, follower))
    })
}

struct Follower {
    wakes: Receiver<Wake>,
    db: Db,
    caller: Caller,
    agent: AgentId,
    last: Option<i64>,
    ready: VecDeque<Frame>,
}

impl Follower {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            match self.look().await {
                Ok(()) if self.ready.is_empty() => self.woken().await,
                Ok(()) => {}
                // Deleted, or not for this reader any more.
                Err(Error::Refused(_)) => return None,
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "events could not be read; trying again"
                    );
                    tokio::time::sleep(limits::EVENTS_POLL).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<()> {
        let args = (self.agent, self.last);
        match self.db.transact(&self.caller, LOOK, &args, look_in).await? {
            Since::Reload { seq } => {
                self.last = Some(seq);
                self.ready.push_back(Frame {
                    id: Some(seq),
                    event: "reload",
                    data: json!({}),
                });
            }
            Since::Events(events) => {
                for event in events {
                    self.last = Some(event.seq);
                    self.ready.push_back(Frame {
                        id: Some(event.seq),
                        event: event.kind.as_str(),
                        data: event.payload,
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits until this Agent may have news.
    async fn woken(&mut self) {
        let news = async {
            loop {
                match self.wakes.recv().await {
                    Ok(Wake::Agent(id)) if id == self.agent.uuid() => return,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => pending().await,
                }
            }
        };
        // Either way the next step is to look.
        let _ = timeout(limits::EVENTS_POLL, news).await;
    }
}

async fn look_in(tx: &mut TenantTx, (agent, last): &(AgentId, Option<i64>)) -> Result<Since> {
    permission::require(tx.caller(), Action::Read)?;
    since(tx, *agent, *last).await
}
