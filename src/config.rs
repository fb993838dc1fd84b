//! Typed settings of a server process, from flags, the environment and one JSON file, checked once at the start.
//!
//! - A setting that cannot work is refused before anything is started, with the next step.
//! - Flags come before the environment, the environment before the file, the file before the defaults.
//! - Where the container engine is, and which directories may be linked, is said here and nowhere else: an endpoint set
//!   over the web would be root on that machine.
//! - The deciding clock can be moved only where no public address is configured.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;

use crate::limits;

/// What stands in the way of a start, and the step that removes it. Both are sentences for a person at a terminal.
#[derive(Debug)]
pub struct Obstacle {
    pub what: String,
    /// What to do, with the exact command where there is one.
    pub next: String,
}

impl Obstacle {
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            next: next.into(),
        }
    }

    /// A file or directory that could not be used, with the step that fits the kind of failure.
    pub fn file(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let path = path.display();
        let next = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                format!("Make {path} writable for you, or choose another with --data-dir.")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("Free some space on the disk of {path}, or choose another with --data-dir.")
            }
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                format!("{path} is in the way: move it, or choose another with --data-dir.")
            }
            _ => format!("Look at {path}, or choose another directory with --data-dir."),
        };
        Self::new(format!("{doing} {path} failed: {error}."), next)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  Next: {}", self.what, self.next)
    }
}

impl std::error::Error for Obstacle {}

/// A container engine and how much of it one instance uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    /// Its name in the database and in messages.
    pub name: String,
    /// Path of the engine's socket.
    pub socket: PathBuf,
    /// Turns at a time.
    pub max_turns: usize,
    pub memory_bytes: u64,
    pub milli_cpus: u32,
    pub pids: i64,
    /// Size of `/tmp` in a command container.
    pub tmp_bytes: u64,
}

impl Default for Executor {
    fn default() -> Self {
        Self {
            name: "local".into(),
            socket: PathBuf::from("/var/run/docker.sock"),
            max_turns: limits::EXECUTOR_MAX_TURNS,
            memory_bytes: limits::SANDBOX_MEMORY,
            milli_cpus: limits::SANDBOX_MILLI_CPUS,
            pids: limits::SANDBOX_PIDS,
            tmp_bytes: limits::SANDBOX_TMP,
        }
    }
}

/// Everything a server process is told from outside, except the database and the master key, which are secrets.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Decides cookies, origins and links. `None` until a listener says which port it got.
    pub public_url: Option<Url>,
    /// Browsers may sign in over plain HTTP beyond this machine.
    pub insecure_http: bool,
    /// Providers may lie at loopback and private addresses.
    pub allow_private_providers: bool,
    /// Moves the clock that decides; only tests set it.
    pub clock_offset: time::Duration,
    /// What belongs to this instance on this machine: node id, keys, managed workspaces.
    pub data_dir: PathBuf,
    /// What can be fetched or built again: Pi, images. Shared by data directories.
    pub cache_dir: PathBuf,
    /// Managed workspaces, inputs, memory and skills of turns lie below it.
    pub workspace_base: PathBuf,
    /// Teams may link directories below these only.
    pub allowed_roots: Vec<PathBuf>,
    pub executor: Executor,
    /// Image of command containers instead of the one that `up` builds.
    pub sandbox_image: Option<String>,
    /// A listener of its own for Prometheus.
    pub metrics_listen: Option<SocketAddr>,
}

/// What a person asked for by flags. Empty fields fall back to the environment, then the file, then the defaults.
#[derive(Debug, Default, Clone)]
pub struct Asked {
    pub listen: Option<String>,
    pub public_url: Option<String>,
    pub data_dir: Option<PathBuf>,
    pub cache_dir: Option<PathBuf>,
    pub allowed_roots: Vec<PathBuf>,
    pub config_file: Option<PathBuf>,
    pub insecure_http: bool,
    pub clock_offset_seconds: Option<i64>,
}

/// The file that `BAZILION_CONFIG` names.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    executor: Option<FileExecutor>,
    allowed_roots: Vec<PathBuf>,
    workspace_base: Option<PathBuf>,
    sandbox_image: Option<String>,
    metrics_listen: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FileExecutor {
    name: Option<String>,
    endpoint: Option<String>,
    max_turns: Option<usize>,
    memory_bytes: Option<u64>,
    milli_cpus: Option<u32>,
    pids: Option<i64>,
    tmp_bytes: Option<u64>,
}

/// The environment, as a function so that a test can say what it holds.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's environment; an empty variable counts as absent.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Config {
    /// Puts the settings together and checks them.
    pub fn load(asked: &Asked, env: Environment<'_>) -> Result<Self, Obstacle> {
        let file = read_file(
            asked
                .config_file
                .clone()
                .or(env("BAZILION_CONFIG").map(Into::into)),
        )?;
        let data_dir = absolute(
            match asked
                .data_dir
                .clone()
                .or(env("BAZILION_DATA_DIR").map(Into::into))
            {
                Some(dir) => dir,
                None => default_data_dir(env)?,
            },
        )?;
        let cache_dir = absolute(
            match asked
                .cache_dir
                .clone()
                .or(env("BAZILION_CACHE_DIR").map(Into::into))
            {
                Some(dir) => dir,
                None => default_cache_dir(env)?,
            },
        )?;
        let listen = listen(asked.listen.clone().or(env("BAZILION_LISTEN")))?;
        let public_url = asked.public_url.clone().or(env("BAZILION_PUBLIC_URL"));
        let public_url = public_url.as_deref().map(public).transpose()?;
        let roots = match asked.allowed_roots.as_slice() {
            [] => file.allowed_roots,
            asked => asked.to_vec(),
        };
        Ok(Self {
            clock_offset: clock_offset(asked.clock_offset_seconds, public_url.as_ref())?,
            listen,
            insecure_http: asked.insecure_http,
            allow_private_providers: private_providers(env, listen, public_url.as_ref())?,
            public_url,
            workspace_base: match file.workspace_base {
                Some(base) => absolute(base)?,
                None => data_dir.join("workspaces"),
            },
            allowed_roots: roots
                .iter()
                .map(|root| allowed_root(root))
                .collect::<Result<_, _>>()?,
            executor: executor(file.executor.unwrap_or_default(), env)?,
            sandbox_image: file.sandbox_image.or(env("BAZILION_SANDBOX_IMAGE")),
            metrics_listen: file
                .metrics_listen
                .or(env("BAZILION_METRICS_LISTEN"))
                .map(|text| address("The metrics address", &text))
                .transpose()?,
            data_dir,
            cache_dir,
        })
    }

    /// The address people use, once the listener has its port.
    pub fn address(&self, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("http://{}", reachable(bound)),
        }
    }
}

/// An address to type into a browser on this machine: every-address listeners are reached over loopback.
fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), bound.port())
    } else {
        bound
    }
}

fn read_file(path: Option<PathBuf>) -> Result<File, Obstacle> {
    let Some(path) = path else {
        return Ok(File::default());
    };
    let text = std::fs::read_to_string(&path).map_err(|e| {
        Obstacle::new(
            format!(
                "The configuration file {} cannot be read: {e}.",
                path.display()
            ),
            "Correct BAZILION_CONFIG, or unset it.",
        )
    })?;
    serde_json::from_str(&text).map_err(|e| {
        Obstacle::new(
            format!(
                "The configuration file {} is not valid: {e}.",
                path.display()
            ),
            "Correct that line; docs/OPERATIONS.md lists the fields.",
        )
    })
}

fn absolute(path: PathBuf) -> Result<PathBuf, Obstacle> {
    std::path::absolute(&path).map_err(|e| Obstacle::file("Reading the path", &path, &e))
}

/// `$XDG_DATA_HOME/bazilion`; for root a place that other users may pass through.
fn default_data_dir(env: Environment<'_>) -> Result<PathBuf, Obstacle> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/bazilion"));
    }
    home_dir(env, "XDG_DATA_HOME", ".local/share").map(|dir| dir.join("bazilion"))
}

fn default_cache_dir(env: Environment<'_>) -> Result<PathBuf, Obstacle> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/bazilion"));
    }
    home_dir(env, "XDG_CACHE_HOME", ".cache").map(|dir| dir.join("bazilion"))
}

fn home_dir(env: Environment<'_>, variable: &str, below_home: &str) -> Result<PathBuf, Obstacle> {
    let named = env(variable)
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    named
        .or_else(|| env("HOME").map(|home| Path::new(&home).join(below_home)))
        .ok_or_else(|| {
            Obstacle::new(
                format!("Neither {variable} nor HOME is set, so there is no place for data."),
                "Name one: --data-dir DIR --cache-dir DIR.",
            )
        })
}

fn listen(text: Option<String>) -> Result<SocketAddr, Obstacle> {
    match text {
        Some(text) => address("The address to listen on", &text),
        None => Ok(SocketAddr::from((
            Ipv4Addr::LOCALHOST,
            limits::DEFAULT_PORT,
        ))),
    }
}

fn address(what: &str, text: &str) -> Result<SocketAddr, Obstacle> {
    text.parse().map_err(|_| {
        Obstacle::new(
            format!("{what} is not an IP address with a port: {text:?}."),
            "Write it like 127.0.0.1:8080; port 0 picks a free one.",
        )
    })
}

fn public(text: &str) -> Result<Url, Obstacle> {
    let next = "Write scheme and host only, like https://bazilion.example.org.";
    let url = Url::parse(text).map_err(|e| {
        Obstacle::new(
            format!("The public address {text:?} is not a URL: {e}."),
            next,
        )
    })?;
    let plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let named = url.username().is_empty() && url.password().is_none() && url.has_host();
    if plain && named && matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(Obstacle::new(
            format!("The public address {text:?} cannot be used."),
            next,
        ))
    }
}

/// A moved clock would end leases and links at the wrong time for people who rely on them.
fn clock_offset(
    seconds: Option<i64>,
    public_url: Option<&Url>,
) -> Result<time::Duration, Obstacle> {
    match (seconds, public_url) {
        (Some(s), Some(_)) if s != 0 => Err(Obstacle::new(
            "--clock-offset is for tests and is refused where a public address is configured.",
            "Leave --clock-offset out, or unset BAZILION_PUBLIC_URL.",
        )),
        (seconds, _) => Ok(time::Duration::seconds(seconds.unwrap_or(0))),
    }
}

/// Allowed on a laptop's loopback listener; elsewhere only when it is said.
fn private_providers(
    env: Environment<'_>,
    listen: SocketAddr,
    public_url: Option<&Url>,
) -> Result<bool, Obstacle> {
    match env("BAZILION_ALLOW_PRIVATE_PROVIDERS").as_deref() {
        None => Ok(listen.ip().is_loopback() && public_url.is_none()),
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(other) => Err(Obstacle::new(
            format!("BAZILION_ALLOW_PRIVATE_PROVIDERS is {other:?}."),
            "Set it to 1 or 0, or unset it.",
        )),
    }
}

fn allowed_root(root: &Path) -> Result<PathBuf, Obstacle> {
    let real = root.canonicalize().map_err(|e| {
        Obstacle::new(
            format!("The directory {} cannot be allowed: {e}.", root.display()),
            "Name an existing directory with --allow-root.",
        )
    })?;
    if real.parent().is_none() || !real.is_dir() {
        return Err(Obstacle::new(
            format!(
                "{} cannot be allowed: it is the whole machine, or no directory.",
                root.display()
            ),
            "Name a directory that holds repositories with --allow-root.",
        ));
    }
    Ok(real)
}

fn executor(file: FileExecutor, env: Environment<'_>) -> Result<Executor, Obstacle> {
    let default = Executor::default();
    let socket = match file.endpoint.or(env("DOCKER_HOST")) {
        None => default.socket,
        Some(endpoint) => engine_socket(&endpoint)?,
    };
    let executor = Executor {
        name: file.name.unwrap_or(default.name),
        socket,
        max_turns: file.max_turns.unwrap_or(default.max_turns),
        memory_bytes: file.memory_bytes.unwrap_or(default.memory_bytes),
        milli_cpus: file.milli_cpus.unwrap_or(default.milli_cpus),
        pids: file.pids.unwrap_or(default.pids),
        tmp_bytes: file.tmp_bytes.unwrap_or(default.tmp_bytes),
    };
    let zero = executor.max_turns == 0 || executor.memory_bytes == 0 || executor.milli_cpus == 0;
    if zero || executor.pids <= 0 || executor.tmp_bytes == 0 {
        return Err(Obstacle::new(
            "A limit of the executor is zero or less.",
            "Give maxTurns, memoryBytes, milliCpus, pids and tmpBytes above zero, or leave them out.",
        ));
    }
    Ok(executor)
}

fn engine_socket(endpoint: &str) -> Result<PathBuf, Obstacle> {
    match endpoint.strip_prefix("unix://").map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => Err(Obstacle::new(
            format!("The container engine's endpoint {endpoint:?} is not supported."),
            "Use a local socket: DOCKER_HOST=unix:///var/run/docker.sock, or unset DOCKER_HOST.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(asked: Asked, vars: &[(&str, &str)]) -> Result<Config, Obstacle> {
        let env = |name: &str| {
            let all = vars.iter().chain(&[("HOME", "/home/ada")]);
            all.into_iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        };
        Config::load(&asked, &env)
    }

    #[test]
    fn the_defaults_are_one_machine_on_loopback() {
        let config = load(Asked::default(), &[]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert!(config.allow_private_providers);
        assert_eq!(config.executor, Executor::default());
        assert_eq!(
            config.address("0.0.0.0:99".parse().unwrap()),
            "http://127.0.0.1:99"
        );
    }

    #[test]
    fn a_moved_clock_is_refused_beside_a_public_address() {
        let asked = Asked {
            clock_offset_seconds: Some(60),
            ..Asked::default()
        };
        assert_eq!(
            load(asked.clone(), &[]).unwrap().clock_offset,
            time::Duration::MINUTE
        );
        let refusal = load(asked, &[("BAZILION_PUBLIC_URL", "https://b.example")]).unwrap_err();
        assert!(refusal.what.contains("--clock-offset"));
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_next_step() {
        let cases = [
            ("BAZILION_LISTEN", "localhost"),
            ("BAZILION_PUBLIC_URL", "ftp://x"),
            ("BAZILION_PUBLIC_URL", "https://b.example/path"),
            ("DOCKER_HOST", "tcp://10.0.0.1:2375"),
            ("BAZILION_ALLOW_PRIVATE_PROVIDERS", "maybe"),
            ("BAZILION_CONFIG", "/nonexistent/file.json"),
        ];
        for (name, value) in cases {
            let refusal = load(Asked::default(), &[(name, value)]).unwrap_err();
            assert!(!refusal.next.is_empty(), "{name}={value}");
        }
        let root = Asked {
            allowed_roots: vec![PathBuf::from("/")],
            ..Asked::default()
        };
        assert!(load(root, &[]).is_err());
    }

    #[test]
    fn flags_come_before_the_environment() {
        let asked = Asked {
            listen: Some("127.0.0.1:0".into()),
            data_dir: Some("/d".into()),
            ..Asked::default()
        };
        let vars = [
            ("BAZILION_LISTEN", "127.0.0.1:9"),
            ("BAZILION_DATA_DIR", "/e"),
        ];
        let config = load(asked, &vars).unwrap();
        assert_eq!(config.listen.port(), 0);
        assert_eq!(config.workspace_base, Path::new("/d/workspaces"));
    }

    #[test]
    fn a_public_listener_does_not_open_private_providers() {
        let public = [("BAZILION_LISTEN", "0.0.0.0:8080")];
        assert!(
            !load(Asked::default(), &public)
                .unwrap()
                .allow_private_providers
        );
        let said = [
            ("BAZILION_LISTEN", "0.0.0.0:8080"),
            ("BAZILION_ALLOW_PRIVATE_PROVIDERS", "1"),
        ];
        assert!(
            load(Asked::default(), &said)
                .unwrap()
                .allow_private_providers
        );
    }
}
