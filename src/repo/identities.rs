//! What a receipt's inputs were: identities of the files that decide whether the receipt still applies.
//!
//! - From the root to the working directory: instructions, sources of command suggestions, manifests, lockfiles. Absence is
//!   an identity too.
//! - Dependencies and code are not hashed.
//! - One file that can not be read, or more than 4 MiB of manifests and lockfiles, and there is no fingerprint: the
//!   receipt's applicability is then unknown. The command still runs.

use serde::{Deserialize, Serialize};

use super::fingerprint::fingerprint;
use super::instructions;
use super::paths::Root;
use super::report::{Issue, IssueCode, State};
use super::scope::{Reading, Scope, Watch};
use super::suggest;
use crate::limits::{COMMAND_SOURCE_MAX, IDENTITY_TOTAL_MAX, INSTRUCTION_FILE_MAX};

/// Manifests that decide what a command means.
pub const MANIFESTS: [&str; 5] = [
    "package.json",
    "Cargo.toml",
    "go.mod",
    "pyproject.toml",
    "Gemfile",
];

/// Lockfiles of their package managers.
pub const LOCKFILES: [&str; 9] = [
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "Cargo.lock",
    "go.sum",
    "poetry.lock",
    "uv.lock",
    "Gemfile.lock",
    "requirements.txt",
];

/// Why a file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    Instruction,
    CommandSource,
    Manifest,
    Lockfile,
}

/// One file, or its absence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    pub kind: InputKind,
    pub path: String,
    /// None: absent.
    pub sha256: Option<String>,
}

/// The repository's part of a receipt's evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identities {
    pub root_identity: String,
    pub cwd: String,
    /// Whether the scope's instructions are whole; a command is refused where they are not.
    pub instructions: State,
    pub inputs: Vec<Input>,
    /// None where an input could not be read.
    pub input_fingerprint: Option<String>,
    pub issues: Vec<Issue>,
}

/// Identities for a command in `cwd`.
pub fn capture(root: &Root, cwd: &str) -> Identities {
    let mut out = Identities {
        root_identity: root.identity(),
        cwd: cwd.to_owned(),
        instructions: State::Incomplete,
        inputs: Vec::new(),
        input_fingerprint: None,
        issues: Vec::new(),
    };
    let scope = match Scope::resolve(root, cwd) {
        Ok(scope) => scope,
        Err(issue) => {
            out.issues.push(issue);
            return out;
        }
    };
    out.cwd = scope.target.as_str().to_owned();
    let mut watch = Watch::default();
    let section = instructions::read(root, &scope, &mut watch);
    out.instructions = section.state;
    out.issues = section.issues;
    let mut left = IDENTITY_TOTAL_MAX;
    for index in 0..scope.dirs.len() {
        scope_inputs(&scope, index, &mut watch, &mut left, &mut out);
    }
    if !scope.is_unchanged(&watch) {
        out.instructions = State::Incomplete;
        out.issues.push(Issue::new(
            IssueCode::SourceChanged,
            "An input changed during the capture.",
        ));
    }
    if !root.is_in_place() {
        out.instructions = State::Incomplete;
        out.issues.push(Issue::new(
            IssueCode::RootChanged,
            "The Team's root was replaced.",
        ));
    }
    if out.issues.is_empty() {
        out.input_fingerprint = Some(fingerprint(
            "bazilion.inputs/1",
            &(&out.root_identity, &out.cwd, &out.inputs),
        ));
    }
    out
}

fn scope_inputs(
    scope: &Scope,
    index: usize,
    watch: &mut Watch,
    left: &mut usize,
    out: &mut Identities,
) {
    let mut take = |kind, name: &str, max: usize, is_counted: bool| {
        let path = scope.dirs[index].path.join(name).as_str().to_owned();
        let reading = scope.read(
            watch,
            index,
            name,
            max.min(if is_counted { *left } else { max }),
        );
        let sha256 = match reading {
            Reading::Absent => None,
            Reading::Content(content) => {
                if is_counted {
                    *left -= content.bytes.len();
                }
                Some(content.sha256)
            }
            // The instructions' own section has named it already.
            _ if kind == InputKind::Instruction => return,
            // No suggestion comes from it, so it is like a file that is not there.
            _ if kind == InputKind::CommandSource => None,
            other => return out.issues.push(unusable(&other, is_counted).at(path)),
        };
        out.inputs.push(Input { kind, path, sha256 });
    };
    take(
        InputKind::Instruction,
        instructions::FILE_NAME,
        INSTRUCTION_FILE_MAX,
        false,
    );
    if suggest::is_source_dir(&scope.dirs[index]) {
        for name in suggest::SOURCE_NAMES {
            // A manifest is looked at once, below.
            if !MANIFESTS.contains(&name) {
                take(InputKind::CommandSource, name, COMMAND_SOURCE_MAX, false);
            }
        }
    }
    for name in MANIFESTS {
        take(InputKind::Manifest, name, IDENTITY_TOTAL_MAX, true);
    }
    for name in LOCKFILES {
        take(InputKind::Lockfile, name, IDENTITY_TOTAL_MAX, true);
    }
}

fn unusable(reading: &Reading, is_counted: bool) -> Issue {
    match reading {
        Reading::Link | Reading::Special => {
            Issue::new(IssueCode::UnsafeFile, "It is not a regular file.")
        }
        Reading::TooLarge if is_counted => Issue::new(
            IssueCode::ByteLimit,
            "With this file manifests and lockfiles are larger than 4 MiB together.",
        ),
        Reading::TooLarge => Issue::new(IssueCode::ByteLimit, "It is larger than 64 KiB."),
        Reading::Changed => Issue::new(IssueCode::SourceChanged, "It changed while it was read."),
        _ => Issue::new(IssueCode::Unreadable, "It could not be read."),
    }
}
