//! Everything that touches a repository's files: the context report, identities for receipts, file tools, patches.
//!
//! Runs inside `bazilion-toolbox` only, next to a repository that may be hostile. Properties:
//!
//! - Nothing of the repository is run, and no link in it is followed.
//! - Every number of bytes, entries and seconds has a limit; beyond it the answer says so.
//! - No answer holds a path of the executor.

pub mod diff;
pub mod files;
pub mod fingerprint;
mod git;
pub mod identities;
mod instructions;
pub mod layout;
mod markdown;
pub mod paths;
pub mod report;
mod scope;
pub mod search;
mod suggest;

use std::os::fd::AsFd;

use rustix::fs::Mode;
use time::format_description::well_known::Rfc3339;

use crate::clock::{Clock, SystemClock};
use crate::limits::{CONTEXT_REPORT_MAX, REPO_PATH_MAX_CHARS};
use paths::{DIRECTORY, PathError, RelPath, Root, Seen, see};
use report::{
    Commands, FINGERPRINT_CAVEAT, Git, Instructions, Issue, IssueCode, Report, State, VERSION,
};
use scope::{Scope, Watch};

/// A capture under way: everything is read, and not yet looked at again.
pub struct Capture<'a> {
    root: &'a Root,
    scope: Scope,
    instructions: (Instructions, Watch),
    commands: (Commands, Watch),
    git: Git,
}

/// Captures the context of `target`. `expected_root` is the identity that a turn was bound to.
pub fn context(root: &Root, team_id: &str, target: &str, expected_root: Option<&str>) -> Report {
    let is_other = expected_root.is_some_and(|expected| expected != root.identity());
    let sections = match Capture::begin(root, target) {
        _ if is_other => Sections::blocked(given(target), root_changed()),
        Ok(capture) => capture.finish(),
        Err(issue) => Sections::blocked(given(target), issue),
    };
    sections.report(root, team_id)
}

impl<'a> Capture<'a> {
    /// Reads all sections.
    pub fn begin(root: &'a Root, target: &str) -> Result<Capture<'a>, Issue> {
        let scope = Scope::resolve(root, target)?;
        let mut watched = Watch::default();
        let instructions = instructions::read(root, &scope, &mut watched);
        let mut sources = Watch::default();
        let commands = suggest::read(&scope, &mut sources);
        let git = git::state(&scope);
        Ok(Capture {
            root,
            scope,
            instructions: (instructions, watched),
            commands: (commands, sources),
            git,
        })
    }

    /// Looks at everything again and closes the sections.
    pub fn finish(self) -> Sections {
        let target = self.scope.target.as_str().to_owned();
        if !self.root.is_in_place() {
            return Sections::blocked(target, root_changed());
        }
        let (instructions, watched) = self.instructions;
        let (commands, sources) = self.commands;
        Sections {
            target,
            instructions: instructions::revalidate(instructions, &self.scope, &watched),
            commands: suggest::revalidate(commands, &self.scope, &sources),
            git: self.git,
        }
    }
}

/// The sections of a report, closed.
#[derive(Debug)]
pub struct Sections {
    target: String,
    pub instructions: Instructions,
    pub commands: Commands,
    pub git: Git,
}

impl Sections {
    fn blocked(target: String, issue: Issue) -> Self {
        Sections {
            target,
            instructions: Instructions::blocked(issue.clone()),
            commands: Commands::blocked(issue.clone()),
            git: Git::unavailable(None, issue),
        }
    }

    /// The report with its fingerprint, within its size.
    pub fn report(self, root: &Root, team_id: &str) -> Report {
        let mut report = Report {
            version: VERSION,
            team_id: team_id.to_owned(),
            root_identity: root.identity(),
            target: self.target,
            captured_at: now(),
            fingerprint: "0".repeat(64),
            instructions: self.instructions,
            commands: self.commands,
            git: self.git,
            note: FINGERPRINT_CAVEAT.to_owned(),
        };
        let size = serde_json::to_vec(&report).map_or(usize::MAX, |bytes| bytes.len());
        if size > CONTEXT_REPORT_MAX {
            let issue = Issue::new(IssueCode::ReportLimit, "The report is larger than 256 KiB.")
                .fix("Ask for a target that is less deep, or shorten the files on the way to it.");
            report.instructions = Instructions::blocked(issue.clone());
            report.commands = Commands::blocked(issue);
        }
        report.fingerprint = fingerprint::fingerprint("bazilion.repository-context/1", &report);
        report
    }
}

/// Whether a report lets a turn start: its instructions are whole.
pub fn is_whole(report: &Report) -> bool {
    report.instructions.state == State::Complete
}

/// Why a working directory can not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CwdError {
    #[error("{0}; write it relative to the workspace root, as in `packages/api`")]
    Path(#[from] PathError),
    #[error("the directory does not exist")]
    Missing,
    #[error("a component of it is a link")]
    Link,
    #[error("it is not a directory")]
    NotDirectory,
}

/// Checks that a command's working directory is a real directory below the root; returns its normal form.
pub fn check_cwd(root: &Root, cwd: &str) -> Result<RelPath, CwdError> {
    let path = RelPath::cwd(cwd)?;
    let mut at = rustix::fs::openat(root.fd(), ".", DIRECTORY, Mode::empty())
        .map_err(|_| CwdError::Missing)?;
    for part in path.parts() {
        match see(at.as_fd(), part) {
            Ok(Seen::Directory(_)) => {}
            Ok(Seen::Link(_)) => return Err(CwdError::Link),
            Ok(Seen::File(_) | Seen::Special(_)) => return Err(CwdError::NotDirectory),
            Ok(Seen::Absent) | Err(_) => return Err(CwdError::Missing),
        }
        at = rustix::fs::openat(&at, part, DIRECTORY, Mode::empty())
            .map_err(|_| CwdError::Missing)?;
    }
    Ok(path)
}

fn root_changed() -> Issue {
    Issue::new(
        IssueCode::RootChanged,
        "The Team's root is not the directory that it was.",
    )
    .fix("Start a new turn.")
}

/// A target that was not understood, as it was given, within its limit.
fn given(target: &str) -> String {
    target.chars().take(REPO_PATH_MAX_CHARS).collect()
}

fn now() -> String {
    // Formatting a UTC time in this form can not fail.
    SystemClock.now().format(&Rfc3339).unwrap_or_default()
}
