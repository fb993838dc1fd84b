//! Wake-ups between processes: `LISTEN`/`NOTIFY`, with polling behind it.
//!
//! - A notification carries no data that anybody relies on; it only makes a loop run sooner.
//! - Register first, then look, then sleep: a wake-up between look and sleep is kept.
//! - Sent after the commit, one statement for all that waits: notifying inside transactions makes commits queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::{Mutex, Notify, broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Db, store};
use crate::error::Result;
use crate::limits;

/// What happened somewhere in the fleet. The id says where to look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// Work may be ready to claim.
    Dispatch,
    /// An Agent's live events moved on (the Agent's id).
    Agent(uuid::Uuid),
    /// A turn shall be cancelled (the turn's id).
    Cancel(uuid::Uuid),
}

const CHANNEL: &str = "bazilion";

impl Wake {
    fn encode(&self) -> String {
        match self {
            Wake::Dispatch => "dispatch".into(),
            Wake::Agent(id) => format!("agent {id}"),
            Wake::Cancel(id) => format!("cancel {id}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (word, id) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "dispatch" => Some(Wake::Dispatch),
            "agent" => id.parse().ok().map(Wake::Agent),
            "cancel" => id.parse().ok().map(Wake::Cancel),
            _ => None,
        }
    }
}

/// Sends and receives wake-ups. Cheap to clone.
#[derive(Clone)]
pub struct Wakes {
    received: broadcast::Sender<Wake>,
    outgoing: mpsc::UnboundedSender<Wake>,
    queue: Arc<Mutex<mpsc::UnboundedReceiver<Wake>>>,
    connected: Arc<Notify>,
}

impl Default for Wakes {
    fn default() -> Self {
        let (outgoing, queue) = mpsc::unbounded_channel();
        Self {
            received: broadcast::channel(limits::WAKE_BUFFER).0,
            outgoing,
            queue: Arc::new(Mutex::new(queue)),
            connected: Arc::default(),
        }
    }
}

impl Wakes {
    /// Wakes this process at once, and the others as soon as the sender gets to it.
    pub fn send(&self, wake: Wake) {
        let _ = self.received.send(wake.clone());
        let _ = self.outgoing.send(wake);
    }

    /// Everything from now on. A receiver that lags must look at the database itself.
    pub fn subscribe(&self) -> broadcast::Receiver<Wake> {
        self.received.subscribe()
    }

    /// Passes wake-ups on until `stop`. Runs once per process.
    pub async fn run(&self, db: &Db, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.deliver(db) => {}
            () = self.listen(db) => {}
        }
    }

    async fn deliver(&self, db: &Db) {
        let mut queue = self.queue.lock().await;
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, limits::WAKE_BUFFER).await > 0 {
            let distinct: BTreeSet<Wake> = batch.drain(..).collect();
            // A wake-up that is lost is made good by polling: log and go on.
            if let Err(error) = send_all(db, &distinct).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "wake-ups were not sent"
                );
            }
        }
    }

    async fn listen(&self, db: &Db) {
        loop {
            if let Err(error) = self.listen_once(db).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the listener lost its connection"
                );
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn listen_once(&self, db: &Db) -> Result<()> {
        let mut listener = PgListener::connect_with(db.pool()).await?;
        listener.listen(CHANNEL).await?;
        self.connected.notify_waiters();
        // Whatever was sent while nobody listened.
        let _ = self.received.send(Wake::Dispatch);
        loop {
            let note = listener.recv().await?;
            if let Some(wake) = Wake::decode(note.payload()) {
                let _ = self.received.send(wake);
            }
        }
    }
}

async fn send_all(db: &Db, wakes: &BTreeSet<Wake>) -> Result<()> {
    let payloads: Vec<String> = wakes.iter().map(Wake::encode).collect();
    let mut conn = db.pool().acquire().await?;
    store::notify(&mut conn, CHANNEL, &payloads).await
}
