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

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::progress::Progress;
use crate::app::App;
use crate::cli::server::Up;
use crate::config::{self, Asked, Config, Obstacle};
use crate::console::Out;
use crate::console::output::to_stderr;
use crate::db::Db;
use crate::embedded::binaries::Search;
use crate::embedded::cluster::Role;
use crate::embedded::{Cluster, Hold, Layout, Lock, keys, lock};
use crate::instance::first::{self, First};
use crate::instance::restored::DataDirectory;
use crate::instance::ways_in;
use crate::server::process::{self, Given, Process, Roles, failed};
use crate::{limits, server};

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
    let stopping = process::stop_on_signal()?;
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
        let (process, demo) = prepared?;
        let ready = self.ready(&process.app, cluster, demo.as_ref()).await?;
        self.lock.announce(&self.layout, ready.clone())?;
        self.show(&ready, demo.is_some());
        process.run(Some(listener)).await
    }

    /// Everything that must be there before the first request.
    async fn prepare(
        &self,
        mut config: Config,
        listener: &TcpListener,
        cluster: &Cluster,
    ) -> Result<(Process, Option<demo::Running>), Obstacle> {
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
        let given = Given {
            config,
            db,
            master,
            turns: self.layout.turns(),
            secrets: cluster.secrets(),
            stopping: self.stopping.clone(),
            roles: Roles {
                web: true,
                worker: true,
            },
        };
        let process = Process::assemble(given, self.progress).await?;
        let app = &process.app;
        let wanted = self.up.demo
            || demo::is_there(app)
                .await
                .map_err(|e| failed("Looking for the demo", &e))?;
        let demo = if wanted {
            self.progress.step("Preparing the demo");
            Some(demo::start(app).await?)
        } else {
            None
        };
        process.look().await;
        Ok((process, demo))
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
        process::recognise(&db, config, Some(&directory), self.progress).await?;
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
