//! Which server, and as whom: flags, then the environment, then the file that `bazilion login` wrote.
//!
//! - The file is readable by its owner only, and one that others can read is not used.
//! - The stored token is never sent to another server than the one it was stored for.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::exit::{Exit, Failure};

/// Where requests go, and the credential that goes with them.
pub struct Settings {
    pub server: String,
    pub token: SecretString,
    /// Longest silence before a request counts as unanswered.
    pub timeout: Duration,
}

/// What the command line and the environment say; either may be absent.
pub struct Given {
    pub server: Option<String>,
    pub token: Option<SecretString>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    server: String,
    token: String,
}

impl Given {
    /// Fills in what the flags left open.
    pub fn from_flags(server: Option<String>, token: Option<SecretString>) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Given {
            server: server.or_else(|| set("BAZILION_SERVER")),
            token: token.or_else(|| set("BAZILION_TOKEN").map(SecretString::from)),
        }
    }

    /// Settings that are complete, or the one step that is missing.
    pub fn resolve(self, timeout: Duration) -> Result<Settings, Failure> {
        let stored = if self.server.is_some() && self.token.is_some() {
            None
        } else {
            load(&stored_path()?)?
        };
        let stored_token = stored
            .as_ref()
            .map(|s| SecretString::from(s.token.as_str()));
        let (server, stored_token) = match (self.server, stored) {
            (Some(server), Some(stored)) if same(&server, &stored.server) => (server, stored_token),
            (Some(server), _) => (server, None),
            (None, Some(stored)) => (stored.server, stored_token),
            (None, None) => return Err(not_signed_in("No server is known.")),
        };
        let token = self.token.or(stored_token);
        let token = token.ok_or_else(|| not_signed_in("There is no token for this server."))?;
        Ok(Settings {
            server,
            token,
            timeout,
        })
    }
}

fn not_signed_in(what: &str) -> Failure {
    Failure::local(
        Exit::Permission,
        "not_signed_in",
        format!(
            "{what} Run `bazilion login --server URL`, or set BAZILION_SERVER and BAZILION_TOKEN."
        ),
    )
}

fn same(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}

/// The file of `bazilion login`: `$XDG_CONFIG_HOME/bazilion/login.json`, or below `~/.config`.
pub fn stored_path() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CONFIG_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".config")))
        .map(|config| config.join("bazilion").join("login.json"))
        .ok_or_else(|| Failure::usage("Neither HOME nor XDG_CONFIG_HOME is set."))
}

fn load(path: &Path) -> Result<Option<Stored>, Failure> {
    let unusable = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(unusable(
            "others can read this file; run `chmod 600` on it, and consider a new token".into(),
        ));
    }
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let stored = serde_json::from_slice(&text);
    stored
        .map(Some)
        .map_err(|_| unusable("not written by `bazilion login`".into()))
}

/// Stores server and token for later commands, mode 0600, in place of what was there.
pub fn store(settings: &Settings) -> Result<PathBuf, Failure> {
    let path = stored_path()?;
    write(&path, settings).map_err(|error| {
        let path = path.display();
        Failure::local(Exit::Server, "not_stored", format!("{path}: {error}"))
    })?;
    Ok(path)
}

fn write(path: &Path, settings: &Settings) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let stored = Stored {
        server: settings.server.clone(),
        token: settings.token.expose_secret().to_owned(),
    };
    let text = serde_json::to_vec_pretty(&stored)?;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    let written = file
        .write_all(&text)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        fs::remove_file(&draft)?;
    }
    written
}

/// Reads a secret from standard input: unseen on a terminal, the first line otherwise.
pub fn read_secret(prompt: &str) -> Result<SecretString, Failure> {
    let stdin = io::stdin();
    let failed = |error: io::Error| Failure::usage(format!("Standard input: {error}"));
    let mut line = String::new();
    if stdin.is_terminal() {
        let _hidden = Hidden::new(prompt).map_err(failed)?;
        stdin.lock().read_line(&mut line).map_err(failed)?;
    } else {
        stdin.lock().read_line(&mut line).map_err(failed)?;
    }
    let secret = line.trim();
    if secret.is_empty() {
        return Err(Failure::usage("Nothing was given on standard input."));
    }
    Ok(SecretString::from(secret))
}

/// The terminal shows nothing of what is typed while this lives.
struct Hidden {
    before: rustix::termios::Termios,
}

impl Hidden {
    fn new(prompt: &str) -> io::Result<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        write!(io::stderr(), "{prompt}")?;
        Ok(Hidden { before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        // A terminal that is gone needs no echo.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
        super::output::to_stderr("");
    }
}
