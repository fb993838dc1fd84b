//! Starts, prepares and stops the private PostgreSQL.
//!
//! A cluster is made beside its final place and moved there when it is whole, so that an interrupted first start leaves
//! nothing that looks like a database.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::{Instant, sleep, timeout};

use super::access;
use super::account::{self, Account};
use super::binaries::{Binaries, Search};
use super::layout::{Layout, own};
use super::process::{self, Process};
use super::roles::{self, DATABASE, Passwords};
use crate::config::Obstacle;
use crate::limits;

pub use super::roles::Role;

/// Where progress goes: one line a step, for a person.
pub type Note<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// The running database of one data directory. [`Cluster::stop`] ends it in order; a dropped one is told to stop.
#[derive(Debug)]
pub struct Cluster {
    process: Process,
    socket: PathBuf,
    passwords: Passwords,
    data: PathBuf,
    version: String,
}

impl Cluster {
    /// Makes the cluster if there is none, stops what a killed parent left in it, starts it, and makes its roles and
    /// its database.
    pub async fn start(layout: &Layout, search: &Search, note: Note<'_>) -> Result<Self, Obstacle> {
        let binaries = search.choose(layout.cluster_major())?;
        let account = account::of_database(&layout.cluster())?;
        let account = account.as_ref();
        layout.prepare_postgres(account)?;
        if let Some(account) = account {
            for dir in access::open_way(layout.root(), account)? {
                note(&format!(
                    "Let the user {} pass through {}",
                    account.name,
                    dir.display()
                ));
            }
        }
        let passwords = Passwords::load(layout)?;
        stop_leftover(&layout.cluster(), note).await?;
        if layout.cluster_major().is_none() {
            note(&format!(
                "Making a private PostgreSQL {} database",
                binaries.version
            ));
            make(layout, &binaries, account, &passwords).await?;
        }
        let socket = layout.socket_dir(account)?;
        note(&format!("Starting PostgreSQL {}", binaries.version));
        let process = launch(layout, &binaries, account, &socket).await?;
        let cluster = Self {
            process,
            socket,
            passwords,
            data: layout.cluster(),
            version: binaries.version,
        };
        cluster.wait_until_it_answers(layout).await?;
        let admin = cluster.options(Role::Admin);
        roles::ensure(admin, &cluster.passwords)
            .await
            .map_err(|e| refused("Making the database's roles", &e))?;
        Ok(cluster)
    }

    /// How to connect as `role`.
    pub fn options(&self, role: Role) -> PgConnectOptions {
        options(&self.socket, &self.passwords, role)
    }

    /// The database's passwords, which must never appear in an Agent's output.
    pub fn secrets(&self) -> Vec<SecretString> {
        [Role::Owner, Role::Login]
            .map(|role| self.passwords.of(role).clone())
            .into()
    }

    /// How to connect to the database of a directory that another process holds and serves.
    pub fn options_of_running(layout: &Layout, role: Role) -> Result<PgConnectOptions, Obstacle> {
        let passwords = Passwords::load(layout)?;
        Ok(options(&layout.socket_place(), &passwords, role))
    }

    /// A URL for other programs of this machine, as the role that can only read.
    pub fn reader_url(&self) -> String {
        self.url(Role::Reader)
    }

    /// The socket's directory takes the host's place, every byte that a URL could misread written as `%XX`.
    fn url(&self, role: Role) -> String {
        use std::os::unix::ffi::OsStrExt as _;
        let host: String = self
            .socket
            .as_os_str()
            .as_bytes()
            .iter()
            .map(|b| escape(*b))
            .collect();
        let password = self.passwords.of(role).expose_secret();
        format!("postgresql://{}:{password}@{host}/{DATABASE}", role.name())
    }

    /// Run after the migrations, which make the roles that the server's login enters.
    pub async fn grant(&self) -> Result<(), Obstacle> {
        let admin = self.options(Role::Admin);
        roles::grant(admin)
            .await
            .map_err(|e| refused("Granting the server its roles", &e))
    }

    pub fn pid(&self) -> u32 {
        self.process.pid
    }

    /// The cluster's directory, for recognising a copy.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The server's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Resolves when PostgreSQL ended without being asked to.
    pub async fn ended(&self) -> Obstacle {
        let how = self.process.wait().await;
        Obstacle::new(
            format!("PostgreSQL ended by itself: {how}."),
            format!(
                "Read its log: {}",
                self.data.with_file_name("log").display()
            ),
        )
    }

    /// Ends it: connections are cut, everything committed is on disk.
    pub async fn stop(self) -> Result<(), Obstacle> {
        for signal in [Signal::INT, Signal::QUIT] {
            self.process.signal(signal);
            if timeout(limits::POSTGRES_STOP_TIMEOUT, self.process.wait())
                .await
                .is_ok()
            {
                return Ok(());
            }
        }
        Err(Obstacle::new(
            format!("PostgreSQL (process {}) does not stop.", self.pid()),
            format!("End it by hand: kill -QUIT {}", self.pid()),
        ))
    }

    async fn wait_until_it_answers(&self, layout: &Layout) -> Result<(), Obstacle> {
        let deadline = Instant::now() + limits::POSTGRES_START_TIMEOUT;
        let admin = self.options(Role::Admin).database("postgres");
        let mut last = String::new();
        while Instant::now() < deadline {
            if let Some(how) = self.process.end() {
                return Err(did_not_start(layout, &how));
            }
            match admin.connect().await {
                Ok(conn) => {
                    let _ = conn.close().await;
                    return Ok(());
                }
                Err(e) => last = e.to_string(),
            }
            sleep(limits::POSTGRES_POLL).await;
        }
        Err(did_not_start(layout, &last))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.process.signal(Signal::INT);
    }
}

fn options(socket: &Path, passwords: &Passwords, role: Role) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket)
        .port(5432)
        .ssl_mode(PgSslMode::Disable)
        .username(role.name())
        .password(passwords.of(role).expose_secret())
        .database(DATABASE)
        .application_name("bazilion")
        // What is there already is no news at a second start.
        .options([("client_min_messages", "warning")])
}

fn escape(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

async fn stop_leftover(cluster: &Path, note: Note<'_>) -> Result<(), Obstacle> {
    let Some(leftover) = process::leftover(cluster) else {
        return Ok(());
    };
    let pid = leftover.pid;
    note(&format!(
        "Stopping the PostgreSQL that an earlier run left behind (process {pid})"
    ));
    if leftover.stop(cluster, limits::POSTGRES_STOP_TIMEOUT).await {
        return Ok(());
    }
    Err(Obstacle::new(
        format!(
            "A PostgreSQL of an earlier run (process {pid}) still works in {} and does not stop.",
            cluster.display()
        ),
        format!("End it by hand: kill -QUIT {pid}"),
    ))
}

/// `initdb` into a directory beside, then a rename.
async fn make(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
    passwords: &Passwords,
) -> Result<(), Obstacle> {
    let fresh = layout.postgres().join("data.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh)
            .map_err(|e| Obstacle::file("Removing the unfinished", &fresh, &e))?;
    }
    let password_file = layout.postgres().join("pwfile");
    write_password(
        &password_file,
        passwords.of(Role::Admin).expose_secret(),
        account,
    )?;
    let mut command = Command::new(binaries.program("initdb"));
    command
        .args([
            "--username",
            Role::Admin.name(),
            "--auth",
            "scram-sha-256",
            "--encoding",
            "UTF8",
        ])
        .args(["--locale", "C", "--data-checksums", "--no-instructions"])
        .arg("--pwfile")
        .arg(&password_file)
        .arg("--pgdata")
        .arg(&fresh);
    dress(&mut command, layout, account);
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let _ = fs::remove_file(&password_file);
    let said = match output {
        Ok(Ok(output)) if output.status.success() => String::new(),
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Ok(Err(e)) => e.to_string(),
        Err(e) => e.to_string(),
    };
    if !said.is_empty() {
        let _ = fs::remove_dir_all(&fresh);
        return Err(failed_to_make(layout, &said));
    }
    fs::rename(&fresh, layout.cluster())
        .map_err(|e| Obstacle::file("Moving the new database to", &layout.cluster(), &e))
}

fn failed_to_make(layout: &Layout, said: &str) -> Obstacle {
    let root = layout.root().display();
    let next = if said.contains("No space left") {
        format!("Free some space on the disk of {root}, or choose another with --data-dir.")
    } else if said.contains("Permission denied") {
        format!(
            "Let the user who runs PostgreSQL pass through every directory above {root}, or choose another with --data-dir."
        )
    } else {
        "Mend what initdb names, then start again.".to_owned()
    };
    Obstacle::new(format!("Making the database failed:\n{said}"), next)
}

fn write_password(path: &Path, password: &str, account: Option<&Account>) -> Result<(), Obstacle> {
    let _ = fs::remove_file(path);
    let write = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        writeln!(file, "{password}")
    };
    write().map_err(|e| Obstacle::file("Writing", path, &e))?;
    own(path, account)
}

/// The user, an empty environment and a directory that the user may stand in.
fn dress(command: &mut Command, layout: &Layout, account: Option<&Account>) {
    command
        .env_clear()
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("PATH", "/usr/bin:/bin");
    command.current_dir(layout.postgres()).stdin(Stdio::null());
    if let Some(account) = account {
        // The standard library drops the supplementary groups with the user.
        command.uid(account.uid).gid(account.gid);
    }
}

async fn launch(
    layout: &Layout,
    binaries: &Binaries,
    account: Option<&Account>,
    socket: &Path,
) -> Result<Process, Obstacle> {
    let log = open_log(layout)?;
    let also = log
        .try_clone()
        .map_err(|e| Obstacle::file("Opening", &layout.postgres_log(), &e))?;
    let mut command = process::with_parent_death(&binaries.program("postgres"));
    command.arg("-D").arg(layout.cluster());
    let mut socket_setting = std::ffi::OsString::from("unix_socket_directories=");
    socket_setting.push(socket);
    command.arg("-c").arg(socket_setting);
    let connections = format!("max_connections={}", limits::POSTGRES_CONNECTIONS);
    for setting in [
        "listen_addresses=",
        "port=5432",
        "unix_socket_permissions=0700",
        connections.as_str(),
        "shared_buffers=64MB",
        "cluster_name=bazilion",
        "timezone=UTC",
        "log_timezone=UTC",
        "logging_collector=off",
        "log_destination=stderr",
    ] {
        command.arg("-c").arg(setting);
    }
    dress(&mut command, layout, account);
    command.stdout(also).stderr(log);
    Process::start(command).await.map_err(|e| {
        Obstacle::new(
            format!("PostgreSQL could not be started: {e}."),
            format!("Check {} by hand.", binaries.program("postgres").display()),
        )
    })
}

fn open_log(layout: &Layout) -> Result<fs::File, Obstacle> {
    let path = layout.postgres_log();
    let failed = |e: std::io::Error| Obstacle::file("Opening", &path, &e);
    if fs::metadata(&path).is_ok_and(|m| m.len() > limits::POSTGRES_LOG_MAX) {
        fs::rename(&path, path.with_extension("old")).map_err(failed)?;
    }
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)
}

/// The last lines of the log say why, better than we could.
fn did_not_start(layout: &Layout, how: &str) -> Obstacle {
    let log = fs::read(layout.postgres_log()).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    let tail: Vec<&str> = lines.into_iter().rev().collect();
    let next = if tail.iter().any(|l| l.contains("No space left")) {
        format!(
            "Free some space on the disk of {}, then start again.",
            layout.root().display()
        )
    } else {
        format!(
            "Mend what the log names: {}",
            layout.postgres_log().display()
        )
    };
    Obstacle::new(
        format!(
            "PostgreSQL did not start ({how}). Its last words:\n{}",
            tail.join("\n")
        ),
        next,
    )
}

fn refused(doing: &str, error: &sqlx::Error) -> Obstacle {
    Obstacle::new(
        format!("{doing} failed: {error}."),
        "Read the database's log in the data directory, then start again.",
    )
}
