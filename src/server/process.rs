//! What a server process consists of, for `bazilion up` and `bazilion serve` alike: engines, state, background loops,
//! and the order in which they end.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::health::{self, Images};
use crate::app::App;
use crate::clock::SystemClock;
use crate::config::{Config, Obstacle};
use crate::console::output::to_stderr;
use crate::db::wake::Wakes;
use crate::db::{Db, Op, SystemTx};
use crate::embedded::account;
use crate::error::Error;
use crate::executor::User;
use crate::executor::inspecting::{Inspecting, Means};
use crate::instance::restored::apply::{self, Opened};
use crate::instance::restored::{self, DataDirectory};
use crate::secret::MasterKey;
use crate::up::engine;
use crate::up::progress::Progress;
use crate::worker::{self, Worker};
use crate::{limits, readiness};

const IDENTITY: Op = Op::locking("process.identity");

/// What a process does. At least one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    pub web: bool,
    pub worker: bool,
}

/// What a process was given, and what it opened by itself.
pub struct Given {
    pub config: Config,
    pub db: Db,
    pub master: MasterKey,
    /// The turns' private directories; of this process alone.
    pub turns: PathBuf,
    /// Secrets of the process itself, for the redactor.
    pub secrets: Vec<SecretString>,
    pub stopping: CancellationToken,
    pub roles: Roles,
}

/// A process that is ready to serve.
pub struct Process {
    pub app: App,
    images: Images,
    user: User,
    secrets: Vec<SecretString>,
    roles: Roles,
}

impl Process {
    /// Puts it together. A part that cannot be had now is said, and what needs it waits.
    pub async fn assemble(given: Given, progress: &Progress) -> Result<Self, Obstacle> {
        let owner = account::of_workspaces()?;
        let user = User {
            uid: owner.uid,
            gid: owner.gid,
        };
        let clock = Arc::new(SystemClock);
        let mut engines = engine::set_up(&given.config, given.turns, clock.clone())?;
        let missing = Box::pin(engines.prepare(&given.config, given.roles.worker, progress)).await;
        for obstacle in missing {
            progress.say(&format!("bazilion: {obstacle}"));
        }
        let identity = given
            .db
            .system(IDENTITY, &(), async |tx: &mut SystemTx, (): &()| {
                restored::find_identity_across_homes(tx).await
            });
        let identity = identity
            .await
            .map_err(|e| failed("Reading the instance", &e))?;
        let inspecting = identity.map_or_else(Inspecting::default, |identity| {
            Inspecting::with(Means {
                toolbox_image: engines.images.toolbox.clone(),
                user,
                instance: identity.instance,
                generation: identity.generation,
            })
        });
        let app = App {
            db: given.db,
            wakes: Wakes::default(),
            clock,
            executor: engines.executor.clone(),
            runtime: engines.runtime.clone(),
            config: Arc::new(given.config),
            master: Arc::new(given.master),
            readiness: readiness::Shared::default(),
            inspecting,
            stopping: given.stopping,
        };
        Ok(Self {
            app,
            images: engines.images,
            user,
            secrets: given.secrets,
            roles: given.roles,
        })
    }

    /// Looks at every part once, so that the first question finds an answer.
    pub async fn look(&self) {
        Box::pin(health::look(&self.app, &self.images)).await;
    }

    /// Serves until `app.stopping`, then ends in order: no new work, what runs, what is left to remove, the database.
    pub async fn run(self, listener: Option<TcpListener>) -> Result<(), Obstacle> {
        let loops = self.spawn_loops().await?;
        let app = self.app;
        let served = match listener {
            Some(listener) => super::serve(app.clone(), listener).await,
            None => {
                app.stopping.cancelled().await;
                Ok(())
            }
        };
        // Without a server nothing else is of use; with a signal this is a repeat.
        app.stopping.cancel();
        to_stderr("bazilion: ending what runs");
        loops.close();
        loops.wait().await;
        app.inspecting.finish().await;
        app.db.close().await;
        served.map_err(|e| Obstacle::new(format!("The server ended: {e}."), "Start it again."))
    }

    /// Background work, each loop until `app.stopping`; the worker ends what it runs first.
    async fn spawn_loops(&self) -> Result<TaskTracker, Obstacle> {
        let loops = TaskTracker::new();
        let app = &self.app;
        let (wakes, db, stop) = (app.wakes.clone(), app.db.clone(), app.stopping.clone());
        loops.spawn(async move { wakes.run(&db, stop).await });
        loops.spawn(health::watch(app.clone(), self.images.clone()));
        if self.roles.worker {
            let settings = worker::Settings {
                sandbox_image: self.images.sandbox.clone(),
                toolbox_image: self.images.toolbox.clone(),
                user: self.user,
                secrets: self.secrets.clone(),
            };
            let (live, _) = broadcast::channel(limits::WAKE_BUFFER);
            let worker = Worker::begin(app.clone(), settings, live).await;
            let worker = worker.map_err(|e| failed("Joining the workers", &e))?;
            loops.spawn(worker.run());
        }
        Ok(loops)
    }
}

/// Recognises the database, and says when it was copied or taken back. Called before anything is claimed or swept.
pub async fn recognise(
    db: &Db,
    config: &Config,
    directory: Option<&DataDirectory>,
    progress: &Progress,
) -> Result<(), Obstacle> {
    let opened = apply::open(db, config, directory).await;
    let opened = opened.map_err(|e| failed("Recognising the database", &e))?;
    if let Opened::Restored { signs, items } = opened {
        let signs: Vec<&str> = signs.iter().map(|sign| sign.as_str()).collect();
        progress.say(&format!(
            "bazilion: this database was copied or taken back ({}). Every queue is paused; {items} open item(s) are \
             uncertain until somebody acknowledges them.",
            signs.join(", ")
        ));
    }
    Ok(())
}

/// The first signal stops in order, the second at once: PostgreSQL then ends with its parent.
pub fn stop_on_signal() -> Result<CancellationToken, Obstacle> {
    let listen = |kind| {
        signal(kind).map_err(|e| {
            Obstacle::new(
                format!("Signals cannot be received: {e}."),
                "Report this with the line above.",
            )
        })
    };
    let (mut interrupt, mut terminate) = (
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
    );
    let stopping = CancellationToken::new();
    let token = stopping.clone();
    tokio::spawn(async move {
        for so_far in 0.. {
            let heard = tokio::select! { heard = interrupt.recv() => heard, heard = terminate.recv() => heard };
            if heard.is_none() {
                return;
            }
            if so_far > 0 {
                to_stderr(
                    "bazilion: stopped at once; the next start looks after what was under way",
                );
                std::process::exit(130);
            }
            to_stderr("bazilion: stopping (once more stops at once)");
            token.cancel();
        }
    });
    Ok(stopping)
}

/// An operation of the product that did not succeed at the start, with the chain of its causes.
pub fn failed(doing: &str, error: &Error) -> Obstacle {
    let mut text = format!("{doing} failed: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Obstacle::new(
        format!("{text}."),
        "Read the database's log (of `up`: postgres/log in the data directory), then start again.",
    )
}
