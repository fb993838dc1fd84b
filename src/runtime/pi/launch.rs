//! The launch contract: what Pi is started with, and nothing else.
//!
//! - An empty environment, one neutral working directory, one private directory per turn, a process group of its own.
//! - Everything that Pi would find by itself is switched off; exactly one extension is loaded, ours.
//! - Node's permission model is on: no child processes, no workers, no add-ons, a list of readable and writable paths.
//! - Prompts and the token travel in private files, because arguments and environments can be read by others.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::install::PiInstall;
use super::session::CWD;
use crate::limits::{MODEL_RETRIES, PI_HEAP_MIB};
use crate::runtime::{Launch, Reasoning, RuntimeError};
use crate::secret;

/// The name under which the gateway is known to Pi.
pub(super) const PROVIDER: &str = "bazilion";

/// What the model is told instead of the neutral working directory.
const CWD_LABEL: &str = "the team's workspace, see repository_context";

const EXTENSION: &str = include_str!("extension.mjs");

/// What the names of private directories begin with.
const PREFIX: &str = "bz-";

/// Longest path of a unix socket that every kernel here takes.
const SOCKET_PATH_MAX: usize = 107;

/// Removes what turns of ended servers left below `base`: directories whose socket nobody serves any more.
pub(super) fn sweep(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_ours = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        let refused = || match UnixStream::connect(path.join("socket")) {
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            Ok(_) => false,
        };
        if is_ours && refused() {
            drop(fs::remove_dir_all(&path));
        }
    }
}

/// The private directory of one turn; removed when dropped.
pub(super) struct TurnDir {
    root: PathBuf,
    conversation: String,
}

impl TurnDir {
    /// Makes the directories below `base`, or below the system's temporary directory when `base` is too long a path
    /// for a socket.
    pub(super) fn create(base: &Path, conversation: &str) -> std::io::Result<Self> {
        let random = secret::random::<8>().map_err(std::io::Error::other)?;
        let name = format!("{PREFIX}{}", hex::encode(random));
        let mut root = base.join(&name);
        if root.as_os_str().len() + "/socket".len() > SOCKET_PATH_MAX {
            root = std::env::temp_dir().join(&name);
        } else {
            DirBuilder::new().mode(0o700).recursive(true).create(base)?;
        }
        private_dir(&root)?;
        let turn = Self {
            root,
            conversation: conversation.to_owned(),
        };
        for part in ["agent", "session", "home", "tmp"] {
            private_dir(&turn.at(part))?;
        }
        Ok(turn)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.at("socket")
    }

    pub(super) fn session_file(&self) -> PathBuf {
        self.at("session")
            .join(format!("{}.jsonl", self.conversation))
    }

    /// Writes everything that Pi reads at its start.
    pub(super) fn fill(
        &self,
        launch: &Launch,
        session: &[u8],
        token: &SecretString,
    ) -> std::io::Result<()> {
        private_file(&self.session_file(), session)?;
        private_file(
            &self.at("agent").join("settings.json"),
            settings().to_string().as_bytes(),
        )?;
        private_file(&self.at("system.md"), launch.system_prompt.as_bytes())?;
        private_file(&self.at("extension.mjs"), EXTENSION.as_bytes())?;
        private_file(
            &self.at("home").join("token"),
            token.expose_secret().as_bytes(),
        )?;
        private_file(
            &self.at("turn.json"),
            self.turn(launch).to_string().as_bytes(),
        )
    }

    fn turn(&self, launch: &Launch) -> Value {
        let target = &launch.gateway;
        let input: &[&str] = if target.model.images {
            &["text", "image"]
        } else {
            &["text"]
        };
        json!({
            "socket": self.socket(),
            "tokenFile": self.at("home").join("token"),
            "provider": PROVIDER,
            "api": target.api.as_str(),
            "modelPath": target.api.client_base(),
            "cwdLabel": CWD_LABEL,
            "tools": launch.tools,
            "model": {
                "id": target.model.id,
                "name": target.model.id,
                "reasoning": target.model.reasoning,
                "input": input,
                "contextWindow": target.model.context_window,
                "maxTokens": target.model.max_tokens,
                "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
            },
        })
    }

    /// Starts Pi.
    pub(super) fn spawn(
        &self,
        install: &PiInstall,
        launch: &Launch,
    ) -> Result<Child, RuntimeError> {
        let mut command = Command::new(install.node());
        command
            .args(self.node_flags(install))
            .arg(install.entry())
            .args(self.pi_flags(launch))
            .env_clear()
            .envs(self.environment(install))
            .current_dir(CWD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
            .spawn()
            .map_err(RuntimeError::io("the agent engine cannot be started"))
    }

    fn node_flags(&self, install: &PiInstall) -> Vec<String> {
        let mut flags = vec![
            "--permission".to_owned(),
            format!("--max-old-space-size={PI_HEAP_MIB}"),
        ];
        let probed = ["/.agents/skills", "/usr/.agents/skills"].map(PathBuf::from);
        let read = [
            install.packages(),
            install.compile_cache(),
            self.root.clone(),
            CWD.into(),
        ];
        for path in read.iter().chain(&probed) {
            flags.push(format!("--allow-fs-read={}", path.display()));
        }
        let mut write = vec![
            self.at("agent"),
            self.at("session"),
            self.at("home"),
            self.at("tmp"),
        ];
        if install.is_filling_cache() {
            write.push(install.compile_cache());
        }
        for path in write {
            flags.push(format!("--allow-fs-write={}", path.display()));
        }
        flags
    }

    fn pi_flags(&self, launch: &Launch) -> Vec<String> {
        let model = &launch.gateway.model;
        let level = if model.reasoning {
            launch.reasoning
        } else {
            Reasoning::Off
        };
        let path = |name: &str| self.at(name).display().to_string();
        let mut flags: Vec<String> = [
            "--mode rpc --offline --no-extensions --no-skills --no-prompt-templates --no-themes",
            "--no-context-files --no-approve --no-mcp --no-builtin-tools",
        ]
        .iter()
        .flat_map(|line| line.split(' '))
        .map(str::to_owned)
        .collect();
        let names: Vec<&str> = launch.tools.iter().map(|tool| tool.name.as_str()).collect();
        let pairs = [
            ("-e", path("extension.mjs")),
            ("--system-prompt", path("system.md")),
            ("--session", self.session_file().display().to_string()),
            ("--session-dir", path("session")),
            ("--model", format!("{PROVIDER}/{}", model.id)),
            ("--thinking", level.as_str().to_owned()),
            ("--tools", names.join(",")),
        ];
        for (flag, value) in pairs {
            if !value.is_empty() {
                flags.push(flag.to_owned());
                flags.push(value);
            }
        }
        flags
    }

    fn environment(&self, install: &PiInstall) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.at("home")),
            ("PI_CODING_AGENT_DIR", self.at("agent")),
            ("TMPDIR", self.at("tmp")),
            ("NODE_COMPILE_CACHE", install.compile_cache()),
            ("BAZILION_TURN", self.at("turn.json")),
            ("PI_OFFLINE", "1".into()),
            ("PI_TELEMETRY", "0".into()),
            ("PI_SKIP_VERSION_CHECK", "1".into()),
            ("TZ", "UTC".into()),
            ("LANG", "C.UTF-8".into()),
        ]
    }
}

impl Drop for TurnDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(error = %error, "a turn's private directory was not removed");
        }
    }
}

/// Pi's own settings. Retries of the protocol client are off, so that Pi itself sees every failure.
fn settings() -> Value {
    json!({
        "cacheWarming": "off",
        "compaction": { "enabled": true },
        "retry": { "enabled": true, "maxRetries": MODEL_RETRIES, "provider": { "maxRetries": 0 } },
        "enableInstallTelemetry": false,
        "enableAnalytics": false,
        "defaultProjectTrust": "never",
        "packages": [],
        "extensions": [],
        "skills": [],
        "prompts": [],
        "themes": [],
    })
}

fn private_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn private_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)
}
