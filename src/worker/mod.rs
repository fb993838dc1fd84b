//! The work of a process that serves `--worker`: named loops, each idempotent, each woken or run on an interval.
//!
//! - Stop order: claim nothing more → cancel what runs → wait for its cleanup → leave the list of the living.
//! - A notification only makes a loop run sooner; every loop finds its work in the database.
//! - A process that was judged dead ends its own turns and writes nothing else.

pub mod admission;
pub mod dispatch;
pub mod facts;
pub mod incarnation;
pub mod recovery;
mod run;
mod store;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::app::App;
use crate::coding::{self, Receipt};
use crate::db::wake::Wake;
use crate::db::{Op, SystemTx};
use crate::error::Result;
use crate::executor::{ContainerId, User};
use crate::workspace::Liveness;
use crate::{events, limits, queue};

use incarnation::Incarnation;

const INSTANCE: Op = Op::locking("worker.instance");

/// What the process was told beside its configuration.
#[derive(Clone)]
pub struct Settings {
    /// Reference of the image for commands where a Team saved none.
    pub sandbox_image: String,
    /// Reference of the image that holds only the toolbox.
    pub toolbox_image: String,
    /// Owner of managed workspaces; commands in them run as this user.
    pub user: User,
    /// Secrets of the process itself, for the redactor: the database's address.
    pub secrets: Vec<SecretString>,
}

/// A worker process. Shared by all of its loops and turns.
pub struct Worker {
    pub app: App,
    pub settings: Settings,
    pub incarnation: Incarnation,
    pub instance: Uuid,
    /// Receipts as they grow, for open pages of this process.
    pub live: broadcast::Sender<Arc<Receipt>>,
    pub slots: Arc<Semaphore>,
    /// Fires when turns shall end because the process does.
    pub ending: CancellationToken,
    pub turns: TaskTracker,
    /// Of each claim of this process, by its fencing number: fires when a person asked for its end.
    pub stops: Mutex<HashMap<i64, CancellationToken>>,
    /// Containers of inspections that the last sweep saw: no inspection lives from one sweep to the next.
    pub inspections: Mutex<HashSet<ContainerId>>,
}

impl Worker {
    /// Registers this process. Nothing is claimed yet.
    pub async fn begin(
        app: App,
        settings: Settings,
        live: broadcast::Sender<Arc<Receipt>>,
    ) -> Result<Arc<Self>> {
        let (instance, generation) = app
            .db
            .system(INSTANCE, &(), async |tx: &mut SystemTx, (): &()| {
                store::instance_across_homes(tx).await
            })
            .await?;
        let clock = app.clock.clone();
        let life = || Liveness::new(clock);
        let incarnation =
            Incarnation::begin(&app.db, &app.config.data_dir, generation, true, life).await?;
        let slots = Arc::new(Semaphore::new(app.config.executor.max_turns));
        Ok(Arc::new(Self {
            app,
            settings,
            incarnation,
            instance,
            live,
            slots,
            ending: CancellationToken::new(),
            turns: TaskTracker::new(),
            stops: Mutex::default(),
            inspections: Mutex::default(),
        }))
    }

    /// Runs every loop until the process stops, then ends in order.
    pub async fn run(self: Arc<Self>) {
        let stop = self.app.stopping.clone();
        let heart = CancellationToken::new();
        let loops = TaskTracker::new();
        loops.spawn(heartbeat(self.clone(), heart.clone()));
        loops.spawn(every(
            "recovery",
            limits::SWEEP_INTERVAL,
            stop.clone(),
            self.clone(),
            recovery_tick,
        ));
        loops.spawn(every(
            "retention",
            limits::SWEEP_INTERVAL,
            stop.clone(),
            self.clone(),
            retention_tick,
        ));
        loops.spawn(stops(self.clone(), heart.clone()));
        dispatch::run(&self, &stop).await;
        // Nothing is claimed any more. What runs is cancelled and recorded; the heart beats until that is done.
        self.ending.cancel();
        self.turns.close();
        if tokio::time::timeout(limits::STOP_GRACE, self.turns.wait())
            .await
            .is_err()
        {
            tracing::warn!("turns did not end in time; they are left to recovery");
        }
        heart.cancel();
        loops.close();
        loops.wait().await;
        if let Some(worker) = Arc::into_inner(self)
            && let Err(error) = worker.incarnation.end(&worker.app.db).await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "leaving the list of the living"
            );
        }
    }
}

/// Renews this life; when somebody ended it, every turn of this process ends too.
async fn heartbeat(worker: Arc<Worker>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(limits::HEARTBEAT) => {}
        }
        match worker.incarnation.renew(&worker.app.db).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::error!(
                    "this process was judged dead; it ends its turns and claims nothing more"
                );
                worker.ending.cancel();
                worker.app.stopping.cancel();
                return;
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "renewing this process's lease"
            ),
        }
    }
}

/// Brings every Stop to the turn it is for: at a wake-up, and by polling that makes good a lost one.
async fn stops(worker: Arc<Worker>, stop: CancellationToken) {
    let mut wakes = worker.app.wakes.subscribe();
    loop {
        match queue::claim::stopped(&worker.app.db, worker.incarnation.id).await {
            Ok(fences) => {
                let held = worker.stops.lock().unwrap_or_else(PoisonError::into_inner);
                fences
                    .iter()
                    .filter_map(|fence| held.get(fence))
                    .for_each(CancellationToken::cancel);
            }
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "asking for stopped claims"
            ),
        }
        let woken = async {
            while wakes
                .recv()
                .await
                .is_ok_and(|wake| !matches!(wake, Wake::Cancel(_)))
            {}
        };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tokio::time::timeout(limits::CANCEL_POLL, woken) => {}
        }
    }
}

/// A named loop: at once, then on its interval; a failure is logged and met again by the next round.
async fn every<F>(
    name: &'static str,
    interval: Duration,
    stop: CancellationToken,
    worker: Arc<Worker>,
    tick: impl Fn(Arc<Worker>) -> F,
) where
    F: Future<Output = Result<()>>,
{
    loop {
        if let Err(error) = tick(worker.clone()).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "a background round failed"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
}

async fn recovery_tick(worker: Arc<Worker>) -> Result<()> {
    recovery::tick(&worker).await?;
    worker.app.wakes.send(Wake::Dispatch);
    Ok(())
}

/// Each feature prunes in small batches, and is asked again until nothing is left.
async fn retention_tick(worker: Arc<Worker>) -> Result<()> {
    let db = &worker.app.db;
    while coding::prune(db).await? > 0 {}
    while events::prune(db).await? > 0 {}
    while queue::retention::expire_payloads(db).await? > 0 {}
    queue::hold::expire_overdue(db, &worker.app.wakes).await?;
    Ok(())
}
