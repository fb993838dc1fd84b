//! What a run stands on, and its end: a directory, a PostgreSQL of its own, containers under a label of its own.
//!
//! - Nothing of a user is touched: no data directory, no cache, no configuration but where the engine's socket is.
//! - Everything is removed at the end, also after Ctrl-C. Only images stay, which the next run finds again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rivals;
use super::sandbox::Sandbox;
use super::store::Admin;
use crate::app::App;
use crate::clock::SystemClock;
use crate::config::{self, Asked, Config};
use crate::db::Db;
use crate::db::wake::Wakes;
use crate::embedded::binaries::Search;
use crate::embedded::cluster::Role;
use crate::embedded::{Cluster, Layout, keys};
use crate::executor::docker::{DockerConfig, DockerExecutor};
use crate::ids::{HomeId, ResourceId};
use crate::instance::ways_in::{self, Mint};
use crate::instance::{first, restored};
use crate::runtime::pi::PiRuntime;
use crate::runtime::pi::install::PiInstall;
use crate::{identity, limits, readiness, server};

/// Everything that must be taken away again.
pub struct Bed {
    pub directory: PathBuf,
    pub config: Config,
    pub sandbox: Option<Sandbox>,
    pub database: Option<Database>,
    /// A worker on that database, and the instance that its containers are labelled with.
    pub work: Option<(Uuid, JoinHandle<()>)>,
}

/// The database of a run, with one home.
pub struct Database {
    cluster: Cluster,
    pub layout: Layout,
    pub app: App,
    pub home: HomeId,
    pub token: SecretString,
}

impl Bed {
    /// An empty directory with the configuration of a server that lives in it.
    pub fn make() -> anyhow::Result<Self> {
        let directory = std::env::temp_dir().join(format!("bazilion-bench-{}", ResourceId::new()));
        std::fs::create_dir_all(&directory)?;
        let asked = Asked {
            listen: Some("127.0.0.1:0".into()),
            data_dir: Some(directory.join("data")),
            cache_dir: Some(directory.join("cache")),
            ..Asked::default()
        };
        let only_the_engine = |name: &str| match name {
            "DOCKER_HOST" => config::environment(name),
            _ => None,
        };
        let config = Config::load(&asked, &only_the_engine)?;
        Ok(Self {
            directory,
            config,
            sandbox: None,
            database: None,
            work: None,
        })
    }

    /// The containers' half.
    pub async fn sandbox(&mut self) -> anyhow::Result<&Sandbox> {
        let sandbox = Sandbox::open(&self.config, &self.directory).await?;
        Ok(self.sandbox.insert(sandbox))
    }

    /// The database's half: a migrated cluster with one home, and an API token for it.
    pub async fn database(
        &mut self,
        note: &(dyn Fn(&str) + Send + Sync),
    ) -> anyhow::Result<&Database> {
        let layout = Layout::open(&self.config.data_dir)?;
        let cluster = Cluster::start(&layout, &Search::of_machine(), note).await?;
        Db::migrate(cluster.options(Role::Owner)).await?;
        cluster.grant().await?;
        let db = Db::connect(
            cluster.options(Role::Login),
            limits::DB_CONNECTIONS,
            time::Duration::ZERO,
        )
        .await?;
        // Writes who this instance is; a worker has no identity without it.
        restored::check(&db, None).await?;
        let app = app(&self.config, &layout, db)?;
        let first = first::ensure(&app.db, &app.master).await?;
        let mint = Mint::Home {
            slug: first.slug,
            role: identity::Role::Operator,
        };
        let token = ways_in::token(&app.db, &mint).await?;
        Ok(self.database.insert(Database {
            cluster,
            layout,
            app,
            home: first.home,
            token,
        }))
    }

    /// Takes everything away. What could not be removed is an error that names it.
    pub async fn clear(self) -> anyhow::Result<()> {
        let mut ended = Ok(());
        let mut instances = Vec::new();
        if let (Some(database), Some((instance, work))) = (&self.database, self.work) {
            database.app.stopping.cancel();
            instances.push(instance);
            ended = timeout(limits::STOP_GRACE, work)
                .await
                .context("the bench's worker does not end")
                .map(drop);
        }
        if let Some(sandbox) = &self.sandbox {
            instances.push(sandbox.instance);
            for instance in instances {
                ended = ended.and(sandbox.sweep(instance).await);
            }
            ended = ended.and(rivals::sweep(&self.config, sandbox).await);
        }
        if let Some(database) = self.database {
            database.app.stopping.cancel();
            database.app.db.close().await;
            ended = ended.and(database.cluster.stop().await.map_err(Into::into));
        }
        let removed = std::fs::remove_dir_all(&self.directory)
            .with_context(|| format!("{} could not be removed", self.directory.display()));
        ended.and(removed)
    }
}

impl Database {
    /// Connection settings of the login that the server uses.
    pub fn login(&self) -> sqlx::postgres::PgConnectOptions {
        self.cluster.options(Role::Login)
    }

    /// A connection that may arrange what no operation of the product can.
    pub async fn admin(&self) -> anyhow::Result<Admin> {
        Admin::connect(self.cluster.options(Role::Admin)).await
    }

    /// Serves the real API on a free loopback port until the run ends; gives its address.
    pub async fn serve(&self) -> anyhow::Result<String> {
        let listener = TcpListener::bind(self.app.config.listen).await?;
        let address = format!("http://{}", listener.local_addr()?);
        let (wakes, db) = (self.app.wakes.clone(), self.app.db.clone());
        let stopping = self.app.stopping.clone();
        tokio::spawn(async move { wakes.run(&db, stopping).await });
        tokio::spawn(server::serve(self.app.clone(), listener));
        Ok(address)
    }
}

fn app(config: &Config, layout: &Layout, db: Db) -> anyhow::Result<App> {
    let clock = Arc::new(SystemClock);
    let executor = DockerExecutor::new(DockerConfig {
        socket: config.executor.socket.clone(),
        base: config.workspace_base.clone(),
        toolbox_program: Path::new("/").join("nonexistent"),
        runtime: None,
    });
    let install = PiInstall::at(&config.cache_dir);
    let runtime = PiRuntime::new(install, layout.turns(), clock.clone())?;
    Ok(App {
        db,
        wakes: Wakes::default(),
        clock,
        executor: Arc::new(executor),
        runtime: Arc::new(runtime),
        config: Arc::new(config.clone()),
        master: Arc::new(keys::master_key(&layout.master_key())?),
        readiness: readiness::Shared::default(),
        inspecting: Default::default(),
        stopping: CancellationToken::new(),
    })
}
