//! Git state at the target, read without running or trusting anything of the repository.
//!
//! - Only the deepest `.git` on the way to the target, inside the root; an ancestor outside is never looked for.
//! - gix reads a private copy of the metadata with a configuration of ours (`copy`, `config`); no hook, filter,
//!   include, monitor, external diff, credential helper or alternate can take part, and the repository's index is never
//!   opened for writing.
//! - Everything has a deadline. A reader that hangs in the kernel is left behind and counted; when too many hang, the
//!   answer is `git_timeout` at once.

mod config;
mod copy;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gix::bstr::ByteSlice;
use gix::status::index_worktree::Item as WorktreeItem;
use gix::status::plumbing::index_as_worktree::EntryStatus;

use super::paths::{Seen, see};
use super::report::{Git, GitState, HeadState, Issue, IssueCode};
use super::scope::{Scope, ScopeDir};
use crate::limits::{GIT_COPY_TIMEOUT, GIT_STUCK_MAX, GIT_TIMEOUT};
use copy::PrivateCopy;

/// Readers that are at work or hang.
static READING: AtomicUsize = AtomicUsize::new(0);

/// The part of the report.
pub fn state(scope: &Scope) -> Git {
    let Some(dir) = find(scope) else {
        return Git::bare(GitState::NotRepository);
    };
    let top = dir.path.as_str().to_owned();
    match with_repository(dir, GIT_TIMEOUT, read_state) {
        Ok(git) => Git {
            root: Some(top),
            ..git
        },
        Err(issue) => Git::unavailable(Some(top), issue),
    }
}

/// The deepest directory of the scope that has a `.git`.
pub fn find(scope: &Scope) -> Option<&ScopeDir> {
    scope
        .dirs
        .iter()
        .rev()
        .find(|dir| !matches!(see(dir.fd.as_fd(), ".git"), Ok(Seen::Absent)))
}

/// What a reader gets: the repository over the private copy, its top directory, and the sign to stop.
pub struct Opened {
    pub repo: gix::Repository,
    pub top: OwnedFd,
    pub stop: Arc<AtomicBool>,
    _copy: PrivateCopy,
}

/// Runs `read` over a private copy of a directory's Git metadata, in a thread of its own, for at most `limit`.
pub fn with_repository<T: Send + 'static>(
    dir: &ScopeDir,
    limit: Duration,
    read: fn(&Opened) -> Result<T, Issue>,
) -> Result<T, Issue> {
    if READING.load(Ordering::Relaxed) >= GIT_STUCK_MAX + crate::limits::TOOLBOX_CONCURRENCY {
        return Err(timeout());
    }
    let started = Instant::now();
    let top = rustix::io::fcntl_dupfd_cloexec(&dir.fd, 3).map_err(|_| unreadable())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (answer, answered) = mpsc::sync_channel(1);
    let stopped = Arc::clone(&stop);
    READING.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::Builder::new()
        .name("git".into())
        .spawn(move || {
            let _leave = Leave;
            let result = open(top, stop).and_then(|opened| read(&opened));
            // Nobody listens any more once the deadline has passed.
            let _ = answer.send(result);
        });
    if thread.is_err() {
        READING.fetch_sub(1, Ordering::Relaxed);
        return Err(unreadable());
    }
    let left = limit.saturating_sub(started.elapsed());
    let result = match answered.recv_timeout(left) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(timeout()),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(unreadable()),
    };
    stopped.store(true, Ordering::Relaxed);
    result
}

/// Counts a reader out, also when it panics over bytes that it did not expect.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        READING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn open(top: OwnedFd, stop: Arc<AtomicBool>) -> Result<Opened, Issue> {
    let copy = PrivateCopy::make(top.as_fd(), Instant::now() + GIT_COPY_TIMEOUT)?;
    let options = gix::open::Options::isolated()
        .open_path_as_is(true)
        .strict_config(true)
        .with(gix::sec::Trust::Full)
        // The file system's owner plays no part: what is opened is our own copy with our own configuration.
        .config_overrides(["safe.directory=*"])
        .filter_config_section(|_| true);
    let repo = options.open(copy.git_dir()).map_err(|_| unreadable())?;
    Ok(Opened {
        repo: repo.to_thread_local(),
        top,
        stop,
        _copy: copy,
    })
}

fn read_state(opened: &Opened) -> Result<Git, Issue> {
    let repo = &opened.repo;
    let head = repo.head().map_err(|_| unreadable())?;
    let short = |name: &gix::refs::FullNameRef| name.shorten().to_str_lossy().into_owned();
    let (branch, id, head_state) = match &head.kind {
        gix::head::Kind::Symbolic(reference) => (
            Some(short(reference.name.as_ref())),
            head.id().map(|id| id.to_string()),
            HeadState::Branch,
        ),
        gix::head::Kind::Unborn(name) => (Some(short(name.as_ref())), None, HeadState::Unborn),
        gix::head::Kind::Detached { target, .. } => {
            (None, Some(target.to_string()), HeadState::Detached)
        }
    };
    let mut counts = Counts::default();
    for item in changes(opened)? {
        counts.add(&item);
    }
    if opened.stop.load(Ordering::Relaxed) {
        return Err(timeout());
    }
    Ok(Git {
        branch,
        head: id,
        head_state: Some(head_state),
        staged: Some(counts.staged),
        unstaged: Some(counts.unstaged),
        untracked: Some(counts.untracked),
        conflicted: Some(counts.conflicted),
        ..Git::bare(GitState::Available)
    })
}

/// Every path that differs between HEAD, the index and the working tree.
pub fn changes(opened: &Opened) -> Result<Vec<gix::status::Item>, Issue> {
    let status = opened
        .repo
        .status(gix::progress::Discard)
        .map_err(|_| unreadable())?
        .index_worktree_submodules(None)
        .index_worktree_rewrites(None)
        .tree_index_track_renames(gix::status::tree_index::TrackRenames::Disabled)
        .untracked_files(gix::status::UntrackedFiles::Files)
        .should_interrupt_owned(Arc::clone(&opened.stop));
    let items = status.into_iter(None).map_err(|_| unreadable())?;
    items
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| unreadable())
}

#[derive(Debug, Default)]
struct Counts {
    staged: u64,
    unstaged: u64,
    untracked: u64,
    conflicted: u64,
}

impl Counts {
    fn add(&mut self, item: &gix::status::Item) {
        match item {
            gix::status::Item::TreeIndex(_) => self.staged += 1,
            gix::status::Item::IndexWorktree(WorktreeItem::Modification { status, .. }) => {
                match status {
                    EntryStatus::Conflict { .. } => self.conflicted += 1,
                    EntryStatus::Change(_) | EntryStatus::IntentToAdd => self.unstaged += 1,
                    EntryStatus::NeedsUpdate(_) => {}
                }
            }
            gix::status::Item::IndexWorktree(WorktreeItem::DirectoryContents { entry, .. }) => {
                if matches!(entry.status, gix::dir::entry::Status::Untracked) {
                    self.untracked += 1;
                }
            }
            gix::status::Item::IndexWorktree(WorktreeItem::Rewrite { .. }) => self.unstaged += 1,
        }
    }
}

/// Git's files are there and make no sense to us.
pub fn unreadable() -> Issue {
    Issue::new(
        IssueCode::GitUnreadable,
        "The Git metadata could not be read.",
    )
}

/// It took too long.
pub fn timeout() -> Issue {
    Issue::new(
        IssueCode::GitTimeout,
        "Reading the Git state took longer than is allowed.",
    )
}
