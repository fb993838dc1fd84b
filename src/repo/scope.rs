//! The directories from the root to a target, and the files in them that a section looked at.
//!
//! - Each directory is opened below the one before it, without links, and stays pinned for the capture.
//! - Whatever is looked at, also what is absent, is recorded and looked at again at the end: a section never mixes
//!   two states of the repository without saying so.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Mode;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::paths::{DIRECTORY, Mark, PathError, RelPath, Root, Seen, open_regular, see};
use super::report::{Issue, IssueCode};
use crate::limits::REPO_DEPTH_MAX;

/// One directory of the scope.
#[derive(Debug)]
pub struct ScopeDir {
    pub path: RelPath,
    pub fd: OwnedFd,
    mark: Mark,
}

/// The directories from the root to the target.
#[derive(Debug)]
pub struct Scope {
    pub target: RelPath,
    pub dirs: Vec<ScopeDir>,
}

/// A file, read whole.
#[derive(Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub sha256: String,
}

/// What came of reading one file of the scope.
#[derive(Debug)]
pub enum Reading {
    Absent,
    Content(Content),
    Link,
    Special,
    TooLarge,
    Changed,
    Failed,
}

/// What a section looked at, to be looked at again.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Vec<(usize, String, Seen)>,
}

impl Scope {
    /// Resolves a target that a caller gave.
    pub fn resolve(root: &Root, target: &str) -> Result<Scope, Issue> {
        let target = RelPath::target(target).map_err(|error| match error {
            PathError::TooDeep => depth_limit(),
            PathError::Unsafe | PathError::GitDir => unsafe_target(
                "The target must be a path relative to the Team's root, without `..`, `.git`, backslashes or \
                 control characters, of at most 4,096 characters.",
            ),
        })?;
        Self::walk(root, target)
    }

    fn walk(root: &Root, target: RelPath) -> Result<Scope, Issue> {
        let failed = |_| unsafe_target("The root could not be opened.");
        let fd = rustix::fs::openat(root.fd(), ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        let mark = Mark::of(&rustix::fs::fstat(&fd).map_err(failed)?);
        let mut dirs = vec![ScopeDir {
            path: RelPath::root(),
            fd,
            mark,
        }];
        let parts: Vec<&str> = target.parts().collect();
        for (index, part) in parts.iter().enumerate() {
            let here = &dirs[dirs.len() - 1];
            let path = here.path.join(part);
            match step(here, part, index + 1 == parts.len())? {
                Some((fd, mark)) if dirs.len() <= REPO_DEPTH_MAX => {
                    dirs.push(ScopeDir { path, fd, mark });
                }
                Some(_) => return Err(depth_limit()),
                None => break,
            }
        }
        Ok(Scope { target, dirs })
    }

    /// Whether every directory is still where it was.
    pub fn is_in_place(&self) -> bool {
        self.dirs.windows(2).all(|pair| {
            let name = pair[1].path.split_last().map(|(_, name)| name.to_owned());
            name.is_some_and(|name| {
                matches!(see(pair[0].fd.as_fd(), &name),
                    Ok(Seen::Directory(mark)) if mark.is_same_file(&pair[1].mark))
            })
        })
    }

    /// Reads one file of a directory of the scope, and remembers what it saw.
    pub fn read(&self, watch: &mut Watch, dir: usize, name: &str, max: usize) -> Reading {
        let fd = self.dirs[dir].fd.as_fd();
        let seen = match see(fd, name) {
            Ok(seen) => seen,
            Err(_) => return Reading::Failed,
        };
        watch.seen.push((dir, name.to_owned(), seen));
        match seen {
            Seen::Absent => Reading::Absent,
            Seen::Link(_) => Reading::Link,
            Seen::Directory(_) | Seen::Special(_) => Reading::Special,
            Seen::File(mark) if mark.size > max as i64 => Reading::TooLarge,
            Seen::File(mark) => read_marked(&self.dirs[dir], name, mark, max),
        }
    }

    /// Whether everything that was looked at is still as it was.
    pub fn is_unchanged(&self, watch: &Watch) -> bool {
        self.is_in_place()
            && watch.seen.iter().all(|(dir, name, before)| {
                match (see(self.dirs[*dir].fd.as_fd(), name), before) {
                    // A directory's times change with its content, which nobody looked at.
                    (Ok(Seen::Directory(now)), Seen::Directory(then)) => now.is_same_file(then),
                    (Ok(now), before) => now == *before,
                    (Err(_), _) => false,
                }
            })
    }
}

/// One step down: a directory, or None when the last component is a file or is not there yet.
fn step(here: &ScopeDir, part: &str, is_last: bool) -> Result<Option<(OwnedFd, Mark)>, Issue> {
    let shown = here.path.join(part).as_str().to_owned();
    match see(here.fd.as_fd(), part) {
        Ok(Seen::Directory(_)) => {
            let open = rustix::fs::openat(&here.fd, part, DIRECTORY, Mode::empty());
            let stat = open.and_then(|fd| Ok((rustix::fs::fstat(&fd)?, fd)));
            stat.map(|(stat, fd)| Some((fd, Mark::of(&stat))))
                .map_err(|_| {
                    unsafe_target("A directory of the target could not be opened.").at(shown)
                })
        }
        Ok(Seen::File(_) | Seen::Absent) if is_last => Ok(None),
        Ok(Seen::Link(_)) => Err(unsafe_target("A component of the target is a link.")
            .at(shown)
            .fix("Name the directory that the link leads to.")),
        Ok(Seen::Absent) => {
            Err(unsafe_target("A directory of the target does not exist.").at(shown))
        }
        Ok(_) => Err(unsafe_target("A component of the target is not a directory.").at(shown)),
        Err(_) => Err(unsafe_target("A component of the target could not be looked at.").at(shown)),
    }
}

fn read_marked(dir: &ScopeDir, name: &str, before: Mark, max: usize) -> Reading {
    let (mut file, stat) = match open_regular(dir.fd.as_fd(), name) {
        Ok(opened) => opened,
        Err(Errno::LOOP | Errno::INVAL | Errno::NOENT) => return Reading::Changed,
        Err(_) => return Reading::Failed,
    };
    if Mark::of(&stat) != before {
        return Reading::Changed;
    }
    let mut bytes = Vec::with_capacity(before.size.clamp(0, max as i64) as usize + 1);
    if (&mut file)
        .take(max as u64 + 1)
        .read_to_end(&mut bytes)
        .is_err()
    {
        return Reading::Failed;
    }
    let after = rustix::fs::fstat(&file).map(|stat| Mark::of(&stat));
    if bytes.len() as i64 != before.size || after != Ok(before) {
        return Reading::Changed;
    }
    let sha256 = hex::encode(Sha256::digest(&bytes));
    Reading::Content(Content { bytes, sha256 })
}

fn unsafe_target(message: &str) -> Issue {
    Issue::new(IssueCode::UnsafeTarget, message)
}

fn depth_limit() -> Issue {
    Issue::new(
        IssueCode::DepthLimit,
        "The target is nested more than 16 directories below the root.",
    )
}
