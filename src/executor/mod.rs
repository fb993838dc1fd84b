//! Where commands and toolboxes run: the port, and what every adapter promises.
//!
//! - One container serves one command (or is one turn's toolbox) and is destroyed; an id is never started twice.
//! - The steps are single calls, because the caller records each of them before the next one: the name, then the id,
//!   then the receipt, then the command.
//! - Nothing is pulled, no image is named but by its id, and no other posture is ever taken instead.
//! - Cleanup is proven or it is uncertain, with the reason. A [`CleanupProof`] is made only after the engine that made the
//!   container has said that it does not exist. Cancellation, an ended stream and an unreachable engine prove nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::ids::{AgentId, HomeId, IncarnationId, LeaseId, ReceiptId, TeamId};
use crate::limits::{SANDBOX_MEMORY, SANDBOX_MILLI_CPUS, SANDBOX_PIDS, SANDBOX_TMP};

pub mod ahead;
pub mod docker;
pub mod images;
pub mod inspecting;
mod labels;
pub mod output;
pub mod redact;
pub mod styling;

pub use crate::launcher::Frame;

/// The engine's own identity. A container is looked for only on the engine that made it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EngineId(pub String);

/// The full id of a container: 64 lower-case hexadecimal digits, never a prefix or a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerId(String);

impl ContainerId {
    /// Takes a full id only: an engine would accept a prefix, and a prefix may name another container.
    pub fn parse(text: &str) -> Option<Self> {
        let full = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        full.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An image that the instance allows: the reference people see, and the id that containers are made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub reference: String,
    /// `sha256:…`; a reference can move between admission and command.
    pub id: String,
}

/// A file or directory as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

/// The user and group that a container runs as. Never root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// What runs as the container's first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Our launcher, which waits for one command.
    Command,
    /// Our toolbox, which answers over its standard streams; the image holds nothing else.
    Toolbox,
}

/// The Team's root: the one writable mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Real path on the executor.
    pub path: PathBuf,
    /// What that path was when the turn was admitted. Another directory in its place is refused.
    pub identity: FileIdentity,
    pub writable: bool,
}

/// A directory or file beside the workspace: memory, a skill, an input. Always read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlyMount {
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: String,
}

/// Limits of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: u64,
    pub milli_cpus: u32,
    pub pids: i64,
    pub tmp_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: SANDBOX_MEMORY,
            milli_cpus: SANDBOX_MILLI_CPUS,
            pids: SANDBOX_PIDS,
            tmp_bytes: SANDBOX_TMP,
        }
    }
}

impl From<&crate::config::Executor> for Limits {
    fn from(config: &crate::config::Executor) -> Self {
        Self {
            memory_bytes: config.memory_bytes,
            milli_cpus: config.milli_cpus,
            pids: config.pids,
            tmp_bytes: config.tmp_bytes,
        }
    }
}

/// Whose container it is. Labels are what a sweep and a recovery compare before they touch anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels {
    pub instance: Uuid,
    pub generation: i64,
    pub home: HomeId,
    pub team: TeamId,
    pub agent: Option<AgentId>,
    /// Absent for an inspection outside a turn.
    pub lease: Option<LeaseId>,
    /// The receipt of the command, when it is known before the container is made.
    pub receipt: Option<ReceiptId>,
    /// The process that made it.
    pub owner: IncarnationId,
}

/// Everything that makes a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Recorded by the caller before `create`: an unanswered creation is found by it.
    pub name: String,
    pub kind: Kind,
    /// Image id, `sha256:…`.
    pub image: String,
    pub user: User,
    pub workspace: Workspace,
    pub mounts: Vec<ReadOnlyMount>,
    pub limits: Limits,
    pub labels: Labels,
}

/// A created container that has not been started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub id: ContainerId,
    pub engine: EngineId,
    /// Limits that the engine says it discarded.
    pub restrictions: Vec<Restriction>,
}

/// A named difference from the full posture, for `coding_environment`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restriction {
    pub code: &'static str,
    pub text: String,
}

/// A piece of what a container wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    Out(Bytes),
    Err(Bytes),
}

/// A started container and its open streams. Dropping it closes its input, which ends whatever runs inside.
pub struct Attached {
    pub id: ContainerId,
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
    pub output: BoxStream<'static, std::io::Result<Chunk>>,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// A command under way. Dropping it ends the command, without any proof of that.
pub struct Running {
    /// Output as it came, standard output and error in the order of writing. A reader that stops reading holds the
    /// command back; a dropped receiver discards.
    pub output: mpsc::Receiver<Bytes>,
    /// Resolves when the engine has seen the end too, or when nothing more can be learned.
    pub exit: BoxFuture<'static, Exit>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// How a command ended, as far as it was seen. The state of a receipt follows from this *and* from what the caller did
/// (time limit, cancellation): a code alone never says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// Seen by the launcher and confirmed by the engine.
    Observed {
        end: End,
        /// Bytes of output; all of them were delivered.
        bytes: u64,
        /// The engine's memory flag: something inside was killed for memory. The command itself may have gone on.
        out_of_memory: bool,
    },
    /// The launcher started nothing; says why.
    NotStarted { reason: String },
    /// The launcher's own deadline passed.
    Deadline { bytes: u64 },
    /// The end was not seen, or launcher and engine disagree.
    Lost { reason: String },
}

/// The end of the command's own process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
}

/// By what a container is known. The name finds it, the labels must match, the full id proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub engine: EngineId,
    pub name: String,
    /// `None` when the answer to the creation was lost.
    pub id: Option<ContainerId>,
    pub labels: Labels,
}

/// The engine that made this container says that it does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a lease is released only with this"]
pub struct CleanupProof {
    engine: EngineId,
    container: ContainerId,
}

impl CleanupProof {
    /// For adapters and fakes, which must have *seen* the absence of this container on this engine.
    pub fn observed(engine: EngineId, container: ContainerId) -> Self {
        Self { engine, container }
    }

    pub fn engine(&self) -> &EngineId {
        &self.engine
    }

    pub fn container(&self) -> &ContainerId {
        &self.container
    }
}

/// Nobody knows whether the container is gone: the workspace stays blocked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CleanupUncertain {
    /// For a person who must judge it; no secret, no host path.
    pub reason: String,
}

/// A container with our product label, as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub engine: EngineId,
    pub id: ContainerId,
    pub name: String,
    pub running: bool,
    /// `None` when a label is missing or unreadable: not ours to touch.
    pub labels: Option<Labels>,
}

/// What the engine is, and what it can not enforce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineReport {
    pub id: EngineId,
    pub version: String,
    pub runtime: String,
    pub restrictions: Vec<Restriction>,
}

/// Why a step did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// The engine, the image or the workspace is not what a command needs. Nothing of it ran.
    #[error("{0}")]
    Blocked(String),
    /// The engine answered with a refusal.
    #[error("the container engine refused to {call} ({status}): {message}")]
    Refused {
        call: &'static str,
        status: u16,
        message: String,
    },
    /// No answer: it may have happened.
    #[error("the container engine did not answer ({call}): {message}")]
    Unanswered { call: &'static str, message: String },
}

impl ExecutorError {
    /// Whether the step may have happened all the same, so that its trace must be looked for.
    pub fn may_have_happened(&self) -> bool {
        match self {
            ExecutorError::Blocked(_) => false,
            ExecutorError::Refused { status, .. } => *status >= 500,
            ExecutorError::Unanswered { .. } => true,
        }
    }
}

/// The environment of every command; the Team's own three come on top.
pub fn base_environment() -> BTreeMap<String, String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    [
        ("PATH", path),
        ("HOME", "/tmp"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// One place where containers run.
#[async_trait::async_trait]
pub trait Executor: Send + Sync {
    /// Asks the engine what it is. `Blocked` when it is of a kind that can not hold what we promise.
    async fn probe(&self) -> Result<EngineReport, ExecutorError>;

    /// Looks an image up; never pulls. `Blocked` when it is missing or has volumes.
    async fn image(&self, reference: &str) -> Result<Image, ExecutorError>;

    /// Makes a container and starts nothing. On an error that [may have happened](ExecutorError::may_have_happened), the
    /// recorded name must be removed.
    async fn create(&self, spec: &ContainerSpec) -> Result<Created, ExecutorError>;

    /// Attaches, then starts. Of a command container it waits until the launcher is ready, and compares the workspace
    /// inside with the admitted one. Nothing of the repository has run when this returns.
    async fn open(&self, id: &ContainerId, spec: &ContainerSpec)
    -> Result<Attached, ExecutorError>;

    /// Hands the one command over.
    async fn run(&self, attached: Attached, frame: &Frame) -> Result<Running, ExecutorError>;

    /// Ends every process inside at once. No proof of anything.
    async fn kill(&self, id: &ContainerId) -> Result<(), ExecutorError>;

    /// Removes a container and proves its absence. May be repeated, also by another process.
    async fn remove(&self, identity: &Identity) -> Result<CleanupProof, CleanupUncertain>;

    /// Every container with our product label and this instance, stopped ones too.
    async fn list_ours(&self, instance: Uuid) -> Result<Vec<Found>, ExecutorError>;
}
