//! `bazilion serve`: one stateless process on a database that somebody else keeps; web, worker, or both.
//!
//! - It migrates nothing: a database of another version is refused, with the command that brings it to this one.
//! - It makes no key: the instance's master key is named, because every process must have the same.
//! - The state directory belongs to one process: node id, lock, cache.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr as _;

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::PgConnectOptions;

use crate::app::App;
use crate::cli::server::Serve;
use crate::config::{self, Asked, Config, Obstacle};
use crate::console::Out;
use crate::console::output::to_stderr;
use crate::db::Db;
use crate::embedded::{Hold, Layout, Lock, keys};
use crate::instance::{first, ways_in};
use crate::server::process::{self, Given, Process, Roles, failed};
use crate::up::progress::Progress;
use crate::{limits, server};

/// Runs until it is told to stop.
pub async fn run(serve: Serve) -> ExitCode {
    let progress = Progress::new();
    match Box::pin(start(&serve, &progress)).await {
        Ok(()) => {
            to_stderr("bazilion: stopped");
            ExitCode::SUCCESS
        }
        Err(obstacle) => {
            progress.say(&format!("bazilion: {obstacle}"));
            ExitCode::FAILURE
        }
    }
}

async fn start(serve: &Serve, progress: &Progress) -> Result<(), Obstacle> {
    let mut config = Config::load(&asked(serve), &config::environment)?;
    let roles = roles(serve);
    let layout = Layout::open(&config.data_dir)?;
    let _lock = lock(&layout)?;
    let master = keys::existing_master_key(&master_key_file(&layout))?;
    let url = database_url(serve)?;
    let stopping = process::stop_on_signal()?;
    let listener = match roles.web {
        true => Some(server::bind(config.listen).await?),
        false => None,
    };
    let bound = listener.as_ref().and_then(|l| l.local_addr().ok());
    let address = config.address(bound.unwrap_or(config.listen));
    if config.public_url.is_none() {
        config.public_url = address.parse().ok();
    }
    let prepared = async {
        let db = database(&url, &config, progress).await?;
        let given = Given {
            turns: layout.turns(),
            secrets: secrets_of(&url),
            stopping: stopping.clone(),
            config,
            db,
            master,
            roles,
        };
        let process = Process::assemble(given, progress).await?;
        if roles.web {
            invite(&process.app, &address).await?;
        }
        process.look().await;
        Ok(process)
    };
    // A signal during the start ends it; nothing was claimed yet.
    let Some(process) = stopping.run_until_cancelled(Box::pin(prepared)).await else {
        return Ok(());
    };
    let process = process?;
    progress.clear();
    let line = match roles.web {
        true => format!("Bazilion serves at {address}"),
        false => "Bazilion works".to_owned(),
    };
    Out::new(false).data(&line);
    process.run(listener).await
}

fn asked(serve: &Serve) -> Asked {
    let cache = config::environment("BAZILION_CACHE_DIR").map(PathBuf::from);
    Asked {
        listen: serve.listen.clone(),
        public_url: serve.public_url.clone(),
        data_dir: serve.state_dir.clone(),
        cache_dir: cache.or_else(|| serve.state_dir.as_ref().map(|dir| dir.join("cache"))),
        allowed_roots: Vec::new(),
        config_file: serve.config.clone(),
        insecure_http: serve.insecure_http,
        clock_offset_seconds: serve.clock_offset,
    }
}

fn roles(serve: &Serve) -> Roles {
    let both = !serve.web && !serve.worker;
    Roles {
        web: serve.web || both,
        worker: serve.worker || both,
    }
}

fn lock(layout: &Layout) -> Result<Lock, Obstacle> {
    match Lock::reach(layout)? {
        Hold::Ours(lock) => Ok(lock),
        Hold::Theirs(_) => Err(Obstacle::new(
            format!(
                "Another process uses the state directory {}.",
                layout.root().display()
            ),
            "Give each process one of its own: BAZILION_STATE_DIR or --state-dir.",
        )),
    }
}

fn master_key_file(layout: &Layout) -> PathBuf {
    config::environment("BAZILION_MASTER_KEY_FILE")
        .map_or_else(|| layout.master_key(), |file| Path::new(&file).to_owned())
}

fn database_url(serve: &Serve) -> Result<SecretString, Obstacle> {
    let url = serve.database_url.clone();
    url.ok_or_else(|| Obstacle::new("No database is named.", DATABASE_NEXT))
}

const DATABASE_NEXT: &str = "Give it as BAZILION_DATABASE_URL, with a login that is a member of the roles bazilion_server and bazilion_system.";

/// Reached, of this version, and recognised.
async fn database(
    url: &SecretString,
    config: &Config,
    progress: &Progress,
) -> Result<Db, Obstacle> {
    progress.step("Looking at the database");
    // The parser's message may repeat the URL, which holds a password.
    let options = PgConnectOptions::from_str(url.expose_secret())
        .map_err(|_| Obstacle::new("The database's URL cannot be read.", DATABASE_NEXT))?;
    let db = Db::connect(options, limits::DB_CONNECTIONS, config.clock_offset).await;
    let db = db.map_err(|e| failed("Connecting to the database", &e))?;
    // A database without any of our tables fails to answer: it is unmigrated too.
    if !db.is_migrated().await.unwrap_or(false) {
        return Err(Obstacle::new(
            "The database is not at this program's version.",
            "Stop every process on it, then run `bazilion migrate` as the role that owns the tables.",
        ));
    }
    process::recognise(&db, config, None, progress).await?;
    Ok(db)
}

/// The database's URL and its password, as written and as meant.
fn secrets_of(url: &SecretString) -> Vec<SecretString> {
    let mut secrets = vec![url.clone()];
    let parsed = reqwest::Url::parse(url.expose_secret()).ok();
    if let Some(password) = parsed.as_ref().and_then(reqwest::Url::password) {
        secrets.push(password.to_owned().into());
        let form = format!("p={}", password.replace('+', "%2B"));
        secrets.extend(
            form_urlencoded::parse(form.as_bytes()).map(|(_, meant)| meant.into_owned().into()),
        );
    }
    secrets
}

/// Makes the first home where there is none, and says the way in while its owner has none.
async fn invite(app: &App, address: &str) -> Result<(), Obstacle> {
    let first = first::ensure(&app.db, &app.master)
        .await
        .map_err(|e| failed("Making the first home", &e))?;
    if first.owner.password_hash.is_none() {
        let path = ways_in::sign_in_link(&app.db, &first.owner.email)
            .await
            .map_err(|e| failed("Making a sign-in link", &e))?;
        to_stderr(&format!("bazilion: sign in once with {address}{path}"));
    }
    Ok(())
}
