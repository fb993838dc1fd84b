//! The repository context report, `version` 1, as the tool, the API and the command line show it.
//!
//! - It holds no path of the executor, only paths relative to the root.
//! - Everything but `capturedAt` enters the fingerprint.

use serde::{Deserialize, Serialize};

/// Version of the report and of its canonical encoding.
pub const VERSION: u32 = 1;

/// Said wherever a fingerprint is shown.
pub const FINGERPRINT_CAVEAT: &str = "A fingerprint is not a full code snapshot, not an environment-readiness result \
and not a test receipt.";

/// What one capture saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub version: u32,
    pub team_id: String,
    /// 64 hex digits over device and inode.
    pub root_identity: String,
    pub target: String,
    /// RFC 3339, UTC. Not part of the fingerprint.
    pub captured_at: String,
    pub fingerprint: String,
    pub instructions: Instructions,
    pub commands: Commands,
    pub git: Git,
    /// What the fingerprint is not.
    pub note: String,
}

/// Whether a section is all that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Complete,
    Incomplete,
}

/// Why something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssueCode {
    UnsafeTarget,
    DepthLimit,
    RootChanged,
    SourceChanged,
    UnsafeFile,
    Unreadable,
    ByteLimit,
    InstructionTotalLimit,
    SourceCountLimit,
    SourceTotalLimit,
    CandidateLimit,
    CommandLimit,
    InvalidManifest,
    UnsupportedGitConfiguration,
    UnsupportedGitMetadata,
    GitMetadataLimit,
    GitTimeout,
    /// Git's files are there and could not be understood.
    GitUnreadable,
    ReportLimit,
}

/// One thing that is missing, for a person and an Agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    pub code: IssueCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub message: String,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Issue {
    /// An issue of the whole section.
    pub fn new(code: IssueCode, message: impl Into<String>) -> Self {
        Issue {
            code,
            path: None,
            message: message.into(),
            fix: None,
        }
    }

    /// Names the file.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// The instructions that govern the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    pub state: State,
    pub files: Vec<InstructionFile>,
    pub issues: Vec<Issue>,
}

/// One `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructionFile {
    pub path: String,
    /// The directory whose subtree it governs.
    pub scope: String,
    /// 0 is the root; deeper is higher.
    pub precedence: u32,
    pub sha256: String,
    pub content: String,
}

/// Commands that the repository's files mention: evidence, neither approved nor tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    pub state: State,
    pub sources: Vec<Source>,
    pub candidates: Vec<Candidate>,
    pub issues: Vec<Issue>,
}

/// A file that suggestions are read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub path: String,
    pub sha256: String,
}

/// Where a candidate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CandidateKind {
    Script,
    Excerpt,
}

/// The package managers that a suggestion may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageManager {
    Npm,
    Pnpm,
    Yarn,
}

/// One suggested command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub source: String,
    /// Of the source.
    pub sha256: String,
    /// `scripts.<name>` or `line N`.
    pub location: String,
    pub cwd: String,
    pub kind: CandidateKind,
    pub command: String,
    pub package_manager: Option<PackageManager>,
    /// Indices of candidates that go by the same name and say something else.
    pub conflicts_with: Vec<usize>,
}

/// Whether Git state could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitState {
    Available,
    NotRepository,
    Unavailable,
}

/// What HEAD is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadState {
    Branch,
    Detached,
    Unborn,
}

/// Git state at the target; never attributed to an Agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Git {
    pub state: GitState,
    /// The working tree's top, relative to the Team's root.
    pub root: Option<String>,
    pub branch: Option<String>,
    pub head: Option<String>,
    pub head_state: Option<HeadState>,
    pub staged: Option<u64>,
    pub unstaged: Option<u64>,
    pub untracked: Option<u64>,
    pub conflicted: Option<u64>,
    pub issues: Vec<Issue>,
}

impl Git {
    /// Nothing is known but the state.
    pub fn bare(state: GitState) -> Self {
        Git {
            state,
            root: None,
            branch: None,
            head: None,
            head_state: None,
            staged: None,
            unstaged: None,
            untracked: None,
            conflicted: None,
            issues: Vec::new(),
        }
    }

    /// There is a repository, and its state could not be read.
    pub fn unavailable(root: Option<String>, issue: Issue) -> Self {
        Git {
            root,
            issues: vec![issue],
            ..Self::bare(GitState::Unavailable)
        }
    }
}

impl Instructions {
    /// Nothing is shown, for this reason.
    pub fn blocked(issue: Issue) -> Self {
        Instructions {
            state: State::Incomplete,
            files: Vec::new(),
            issues: vec![issue],
        }
    }
}

impl Commands {
    /// Nothing is shown, for this reason.
    pub fn blocked(issue: Issue) -> Self {
        Commands {
            state: State::Incomplete,
            sources: Vec::new(),
            candidates: Vec::new(),
            issues: vec![issue],
        }
    }
}
