//! `bazilion up`: everything on one machine, from one command, in the foreground.
//!
//! - Each step is a line for the person who waits; a step that fails says what stands in the way and what to do.
//! - Only one `up` holds a data directory. A second one shows the address of the first and ends.
//! - What cannot be had now (a container engine, Pi) does not stop the server: it is said, and what needs it waits.
//! - Stopping goes in the order opposite to starting, and the database goes last.

mod demo;
pub mod engine;
pub mod progress;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::engine::Engines;
use self::progress::Progress;
use crate::app::App;
use crate::cli::server::Up;
use crate::clock::SystemClock;
use crate::config::{self, Asked, Config, Obstacle};
use crate::console::Out;
use crate::console::output::to_stderr;
use crate::db::Db;
use crate::db::wake::Wakes;
use crate::embedded::binaries::Search;
use crate::embedded::cluster::Role;
use crate::embedded::{Cluster, Hold, Layout, Lock, account, keys, lock};
use crate::error::Error;
use crate::executor::User;
use crate::instance::first::{self, First};
use crate::instance::restored::DataDirectory;
use crate::instance::restored::apply::{self, Opened};
use crate::instance::ways_in;
use crate::worker::{self, Worker};
use crate::{limits, readiness, server};

/// Runs until it is told to stop.
pub async fn run(up: Up) -> ExitCode {
    let progress = Progress::new();
    match Box::pin(start(&up, &progress)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(obstacle) => {
            progress.say(&format!("bazilion: {obstacle}"));
            ExitCode::FAILURE
        }
    }
}

async fn start(up: &Up, progress: &Progress) -> Result<(), Obstacle> {
    let config = Config::load(&asked(up), &config::environment)?;
    let layout = Layout::open(&config.data_dir)?;
    let lock = match Lock::reach(&layout)? {
        Hold::Ours(lock) => lock,
        Hold::Theirs(holder) => return join(up, &layout, holder.as_ref()),
    };
    let stopping = stop_on_signal()?;
    let listener = server::bind(config.listen).await?;
    let note = |text: &str| progress.step(text);
    let search = Search::of_machine();
    let Some(cluster) = stopping
        .run_until_cancelled(Cluster::start(&layout, &search, &note))
        .await
    else {
        return Ok(());
    };
    let cluster = cluster?;
    let mut instance = Instance {
        up,
        layout,
        lock,
        progress,
        stopping,
    };
    let ended = tokio::select! {
        ended = Box::pin(instance.run(config, listener, &cluster)) => ended,
        obstacle = cluster.ended() => Err(obstacle),
    };
    progress.step("Stopping PostgreSQL");
    let stopped = cluster.stop().await;
    progress.clear();
    ended.and(stopped)?;
    to_stderr("bazilion: stopped; nothing of it runs any more");
    Ok(())
}

fn asked(up: &Up) -> Asked {
    Asked {
        listen: up.listen.clone(),
        public_url: None,
        data_dir: up.data_dir.clone(),
        cache_dir: up.cache_dir.clone(),
        allowed_roots: allowed_roots(up),
        config_file: None,
        insecure_http: up.insecure_http,
        clock_offset_seconds: up.clock_offset,
    }
}

/// What a single person needs: Teams may be linked below their own home directory.
fn allowed_roots(up: &Up) -> Vec<PathBuf> {
    let home = || {
        config::environment("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_dir())
    };
    match up.allow_roots.as_slice() {
        [] => home()
            .filter(|home| home.parent().is_some())
            .into_iter()
            .collect(),
        named => named.to_vec(),
    }
}

/// Another process serves this directory already: that is what was asked for.
fn join(up: &Up, layout: &Layout, holder: Option<&lock::Holder>) -> Result<(), Obstacle> {
    let Some((holder, url)) = holder.and_then(|h| Some((h, h.url()?))) else {
        return Err(lock::still_starting(layout, holder));
    };
    let out = Out::new(up.json);
    to_stderr(&format!(
        "bazilion: process {} serves {} already",
        holder.pid,
        layout.root().display()
    ));
    match (&holder.ready, up.json) {
        (Some(ready), true) => {
            // A link works once, and this one was shown to somebody else.
            let mut ready = ready.clone();
            ready["signInLink"] = Value::Null;
            out.data(&ready.to_string());
        }
        _ => out.data(url),
    }
    Ok(())
}

/// The first signal stops in order, the second at once: PostgreSQL then ends with its parent.
fn stop_on_signal() -> Result<CancellationToken, Obstacle> {
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

/// The part of a life between the database's start and its stop.
struct Instance<'a> {
    up: &'a Up,
    layout: Layout,
    lock: Lock,
    progress: &'a Progress,
    stopping: CancellationToken,
}

impl Instance<'_> {
    async fn run(
        &mut self,
        config: Config,
        listener: TcpListener,
        cluster: &Cluster,
    ) -> Result<(), Obstacle> {
        let stopping = self.stopping.clone();
        let Some(prepared) = stopping
            .run_until_cancelled(Box::pin(self.prepare(config, &listener, cluster)))
            .await
        else {
            return Ok(());
        };
        let (app, engines, demo) = prepared?;
        let ready = self.ready(&app, cluster, demo.as_ref()).await?;
        self.lock.announce(&self.layout, ready.clone())?;
        self.show(&ready, demo.is_some());
        let loops = self.spawn_loops(&app, &engines, cluster).await?;
        let served = server::serve(app.clone(), listener).await;
        // Without a server nothing else is of use; with a signal this is a repeat.
        app.stopping.cancel();
        self.progress.step("Ending what runs");
        loops.close();
        loops.wait().await;
        app.db.close().await;
        served.map_err(|e| Obstacle::new(format!("The server ended: {e}."), "Start it again."))
    }

    /// Everything that must be there before the first request.
    async fn prepare(
        &self,
        mut config: Config,
        listener: &TcpListener,
        cluster: &Cluster,
    ) -> Result<(App, Engines, Option<demo::Running>), Obstacle> {
        let bound = listener.local_addr().map_err(|e| {
            Obstacle::new(
                format!("The listener has no address: {e}."),
                "Choose another address with --listen.",
            )
        })?;
        if config.public_url.is_none() {
            config.public_url = config.address(bound).parse().ok();
        }
        let master = keys::master_key(&self.layout.master_key())?;
        let db = self.database(&config, cluster).await?;
        account::of_workspaces()?;
        let clock = Arc::new(SystemClock);
        let mut engines = engine::set_up(&config, self.layout.turns(), clock.clone())?;
        for obstacle in Box::pin(engines.prepare(&config, self.progress)).await {
            self.progress.say(&format!("bazilion: {obstacle}"));
        }
        let app = App {
            db,
            wakes: Wakes::default(),
            clock,
            executor: engines.executor.clone(),
            runtime: engines.runtime.clone(),
            config: Arc::new(config),
            master: Arc::new(master),
            readiness: readiness::Shared::default(),
            stopping: self.stopping.clone(),
        };
        let wanted = self.up.demo
            || demo::is_there(&app)
                .await
                .map_err(|e| failed("Looking for the demo", &e))?;
        let demo = if wanted {
            self.progress.step("Preparing the demo");
            Some(demo::start(&app).await?)
        } else {
            None
        };
        Box::pin(server::health::look(&app, &engines.images)).await;
        Ok((app, engines, demo))
    }

    /// Migrated, opened as the login that owns nothing, and recognised.
    async fn database(&self, config: &Config, cluster: &Cluster) -> Result<Db, Obstacle> {
        self.progress.step("Bringing the database to this version");
        Db::migrate(cluster.options(Role::Owner))
            .await
            .map_err(|e| failed("Migrating the database", &e))?;
        cluster.grant().await?;
        let db = Db::connect(
            cluster.options(Role::Login),
            limits::DB_CONNECTIONS,
            config.clock_offset,
        )
        .await
        .map_err(|e| failed("Connecting to the database", &e))?;
        let directory = DataDirectory::look(cluster.data())
            .map_err(|e| Obstacle::file("Looking at", cluster.data(), &e))?;
        let opened = apply::open(&db, config, Some(&directory)).await;
        if let Opened::Restored { signs, items } =
            opened.map_err(|e| failed("Recognising the database", &e))?
        {
            let signs: Vec<&str> = signs.iter().map(|sign| sign.as_str()).collect();
            self.progress.say(&format!(
                "bazilion: this database was copied or taken back ({}). Every queue is paused; {items} open item(s) are \
                 uncertain until somebody acknowledges them.",
                signs.join(", ")
            ));
        }
        Ok(db)
    }

    /// The one line of `--json`.
    async fn ready(
        &self,
        app: &App,
        cluster: &Cluster,
        demo: Option<&demo::Running>,
    ) -> Result<Value, Obstacle> {
        let first = match demo {
            Some(running) => running.demo.first.clone(),
            None => first::ensure(&app.db, &app.master)
                .await
                .map_err(|e| failed("Making the first home", &e))?,
        };
        let url = app
            .config
            .public_url
            .as_ref()
            .map(|url| url.as_str().trim_end_matches('/').to_owned());
        let url = url.unwrap_or_default();
        Ok(json!({
            "url": url,
            "home": first.slug,
            "signInLink": self.link(app, &first, &url).await?,
            "dataDir": self.layout.root(),
            "postgresUrl": cluster.reader_url(),
            "pid": std::process::id(),
            "pids": [std::process::id(), cluster.pid()],
            "version": env!("CARGO_PKG_VERSION"),
        }))
    }

    /// A way in for an owner who has none yet. With a password set, the sign-in page is the way.
    async fn link(&self, app: &App, first: &First, url: &str) -> Result<Option<String>, Obstacle> {
        if first.owner.password_hash.is_some() {
            return Ok(None);
        }
        let path = ways_in::sign_in_link(&app.db, &first.owner.email).await;
        let path = path.map_err(|e| failed("Making a sign-in link", &e))?;
        Ok(Some(format!("{url}{path}")))
    }

    /// Background work of the process, each loop until `app.stopping`; the worker ends what it runs first.
    async fn spawn_loops(
        &self,
        app: &App,
        engines: &Engines,
        cluster: &Cluster,
    ) -> Result<TaskTracker, Obstacle> {
        let loops = TaskTracker::new();
        let (wakes, db, stop) = (app.wakes.clone(), app.db.clone(), app.stopping.clone());
        loops.spawn(async move { wakes.run(&db, stop).await });
        loops.spawn(server::health::watch(app.clone(), engines.images.clone()));
        let owner = account::of_workspaces()?;
        let settings = worker::Settings {
            sandbox_image: engines.images.sandbox.clone(),
            toolbox_image: engines.images.toolbox.clone(),
            user: User {
                uid: owner.uid,
                gid: owner.gid,
            },
            secrets: cluster.secrets(),
        };
        let (live, _) = broadcast::channel(limits::WAKE_BUFFER);
        let worker = Worker::begin(app.clone(), settings, live).await;
        let worker = worker.map_err(|e| failed("Joining the workers", &e))?;
        loops.spawn(worker.run());
        Ok(loops)
    }

    fn show(&self, ready: &Value, demo: bool) {
        self.progress.clear();
        let out = Out::new(self.up.json);
        if self.up.json {
            out.data(&ready.to_string());
            return;
        }
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        out.data(&format!(
            "Bazilion is ready at {} ({:.1} s)",
            text("url"),
            self.progress.elapsed().as_secs_f32()
        ));
        if !ready["signInLink"].is_null() {
            out.data(&format!("Sign in once with {}", text("signInLink")));
        }
        if demo {
            to_stderr(
                "The demo's Agent is `ada`; its model is a script. Try: Fix this bug and run the relevant test.",
            );
        }
        to_stderr("Ctrl-C stops everything.");
    }
}

/// An operation of the product that did not succeed at the start, with the chain of its causes.
fn failed(doing: &str, error: &Error) -> Obstacle {
    let mut text = format!("{doing} failed: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Obstacle::new(
        format!("{text}."),
        "Read the log in the data directory (postgres/log), then start again.",
    )
}
