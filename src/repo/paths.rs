//! Containment: every open of a repository's file goes through [`Root`].
//!
//! - The root is resolved once, links allowed, and pinned by descriptor. Nothing follows a link after that.
//! - `openat2(RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS)` where the kernel has it; else one component at a time
//!   with `O_NOFOLLOW`, each descriptor the base of the next.
//! - Opens are `O_NONBLOCK`, so that a FIFO or a device can not hold the caller; what came is judged by `fstat`.
//! - No path of the executor leaves this module; messages name paths relative to the root.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::limits::{FILE_DEPTH_MAX, REPO_DEPTH_MAX, REPO_PATH_MAX_CHARS, REPO_TARGET_PARTS_MAX};

/// Set once a kernel or a sandbox has refused `openat2`.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// A path below the root: no empty, `.`, `..` component, no NUL, no backslash. The root itself has no component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct RelPath(String);

/// Why a text is no path below the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Absolute, climbing, too long, or with characters that a path of ours never has.
    #[error(
        "the path must be relative to the workspace root, without `..`, backslashes or control characters"
    )]
    Unsafe,
    /// Deeper than is looked at.
    #[error("the path is nested too deeply")]
    TooDeep,
    /// Inside Git's own directory.
    #[error("paths inside .git are not open to this")]
    GitDir,
}

impl RelPath {
    /// The root.
    pub fn root() -> Self {
        RelPath(String::new())
    }

    /// A target of a repository context: strict, at most 17 components, never inside `.git`.
    pub fn target(text: &str) -> Result<Self, PathError> {
        let path = Self::parse(text, REPO_TARGET_PARTS_MAX)?;
        if path.is_in_git_dir() {
            return Err(PathError::Unsafe);
        }
        Ok(path)
    }

    /// A path of a file tool. Models write `/workspace/…`: read as relative to the root.
    pub fn tool(text: &str) -> Result<Self, PathError> {
        Self::parse(strip_workspace(text), FILE_DEPTH_MAX)
    }

    /// A command's working directory: `.` or at most 16 plain components; `/workspace/…` is accepted.
    pub fn cwd(text: &str) -> Result<Self, PathError> {
        let text = strip_workspace(text);
        if text == "." {
            return Ok(Self::root());
        }
        let odd = |part: &str| part.is_empty() || part == "." || part == "..";
        if text.split('/').any(odd) {
            return Err(PathError::Unsafe);
        }
        let path = Self::parse(text, REPO_DEPTH_MAX)?;
        if path.is_in_git_dir() {
            return Err(PathError::GitDir);
        }
        Ok(path)
    }

    fn parse(text: &str, parts_max: usize) -> Result<Self, PathError> {
        if text.chars().count() > REPO_PATH_MAX_CHARS || text.starts_with('/') {
            return Err(PathError::Unsafe);
        }
        if text.chars().any(|c| c == '\\' || c.is_control()) {
            return Err(PathError::Unsafe);
        }
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        if parts.contains(&"..") {
            return Err(PathError::Unsafe);
        }
        if parts.len() > parts_max {
            return Err(PathError::TooDeep);
        }
        Ok(RelPath(parts.join("/")))
    }

    /// The path, `.` for the root.
    pub fn as_str(&self) -> &str {
        if self.0.is_empty() { "." } else { &self.0 }
    }

    /// Components from the root down.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a component is Git's directory, in any case: some file systems do not tell them apart.
    pub fn is_in_git_dir(&self) -> bool {
        self.parts().any(|part| part.eq_ignore_ascii_case(".git"))
    }

    /// The directory that holds this, and the last name. None for the root.
    pub fn split_last(&self) -> Option<(RelPath, &str)> {
        match self.0.rsplit_once('/') {
            Some((parent, name)) => Some((RelPath(parent.to_owned()), name)),
            None if self.0.is_empty() => None,
            None => Some((Self::root(), &self.0)),
        }
    }

    /// This and one more component, which the caller took from a directory listing or a constant.
    pub fn join(&self, name: &str) -> RelPath {
        if self.0.is_empty() {
            RelPath(name.to_owned())
        } else {
            RelPath(format!("{}/{name}", self.0))
        }
    }
}

fn strip_workspace(text: &str) -> &str {
    match text.strip_prefix("/workspace") {
        Some("") | Some("/") => ".",
        Some(rest) => rest.strip_prefix('/').unwrap_or(text),
        None => text,
    }
}

/// What tells one state of a file or directory from another, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub device: u64,
    pub inode: u64,
    pub size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    /// The mark of a `stat` result.
    pub fn of(stat: &Stat) -> Self {
        Mark {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }

    /// Same device and inode: the same thing, perhaps changed.
    pub fn is_same_file(&self, other: &Mark) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// What is at a name, seen without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Absent,
    File(Mark),
    Directory(Mark),
    Link(Mark),
    /// A FIFO, a socket or a device.
    Special(Mark),
}

/// The kind of file of a `stat` result.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Looks at one name in a directory, following nothing.
pub fn see(dir: BorrowedFd<'_>, name: &str) -> Result<Seen, Errno> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            let mark = Mark::of(&stat);
            Ok(match kind(&stat) {
                FileType::RegularFile => Seen::File(mark),
                FileType::Directory => Seen::Directory(mark),
                FileType::Symlink => Seen::Link(mark),
                _ => Seen::Special(mark),
            })
        }
        Err(Errno::NOENT) => Ok(Seen::Absent),
        Err(error) => Err(error),
    }
}

/// A workspace root, pinned by descriptor.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Root {
    /// Opens and pins the root. It may be a link, which is resolved here and never again.
    pub fn open(path: &Path) -> Result<Root, Errno> {
        let fd = rustix::fs::openat(CWD, path, DIRECTORY & !OFlags::NOFOLLOW, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Root {
            fd,
            path: path.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// 64 hex digits over device and inode: says whether two roots are one, and nothing of where they are.
    pub fn identity(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"bazilion.root.v1\0");
        hash.update(self.device.to_be_bytes());
        hash.update(self.inode.to_be_bytes());
        hex::encode(hash.finalize())
    }

    /// Whether the path that was opened still leads to the pinned directory.
    pub fn is_in_place(&self) -> bool {
        rustix::fs::stat(&self.path)
            .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode))
    }

    /// The pinned directory.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a directory below the root, following nothing.
    pub fn open_dir(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        open_beneath(self.fd(), &path.0, DIRECTORY, Mode::empty())
    }

    /// Opens a regular file below the root for reading, following nothing and never waiting.
    /// `INVAL` says that something else is there.
    pub fn open_file(&self, path: &RelPath) -> Result<(File, Stat), Errno> {
        open_regular(self.fd(), &path.0)
    }

    /// Device and inode of the root and of each directory above it, as recorded for a workspace lease.
    pub fn ancestry(&self) -> Result<Vec<(u64, u64)>, Errno> {
        let mut line = vec![(self.device, self.inode)];
        let mut at = rustix::io::dup(&self.fd)?;
        loop {
            at = rustix::fs::openat(&at, "..", DIRECTORY, Mode::empty())?;
            let stat = rustix::fs::fstat(&at)?;
            let here = (stat.st_dev, stat.st_ino);
            if line.last() == Some(&here) {
                return Ok(line);
            }
            line.push(here);
        }
    }
}

/// A file name that nothing else has, and that nobody can guess.
pub fn private_name(prefix: &str) -> Result<String, Errno> {
    let random = crate::secret::random::<16>().map_err(|_| Errno::AGAIN)?;
    Ok(format!("{prefix}{}", hex::encode(random)))
}

/// Flags of a directory that is walked through.
pub const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// Flags of a file that is read: never waits, never becomes a terminal.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// Opens a regular file beneath `base`; anything else is `INVAL` (a link is `LOOP`).
pub fn open_regular(base: BorrowedFd<'_>, path: &str) -> Result<(File, Stat), Errno> {
    let fd = open_beneath(base, path, READ, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if kind(&stat) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok((File::from(fd), stat))
}

/// Opens `path` beneath `base`, following no link at any component.
pub fn open_beneath(
    base: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(base, path, flags, mode, resolve) {
            // EPERM is also how old seccomp filters answer a call that they do not know.
            Err(Errno::NOSYS) => NO_OPENAT2.store(true, Ordering::Relaxed),
            Err(Errno::PERM) => {}
            answer => return answer,
        }
    }
    walk_beneath(base, path, flags, mode)
}

/// The same without `openat2`: each component is opened below the one before it.
fn walk_beneath(
    base: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    if path.starts_with('/') {
        return Err(Errno::XDEV);
    }
    let mut parts = path.split('/').filter(|p| !p.is_empty()).peekable();
    let mut held: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        if part == ".." {
            return Err(Errno::XDEV);
        }
        let at = held.as_ref().map_or(base, AsFd::as_fd);
        let next = if parts.peek().is_some() {
            rustix::fs::openat(at, part, DIRECTORY, Mode::empty()).map_err(|error| {
                // O_DIRECTORY hides what was there; a link is told as openat2 tells it.
                match see(at, part) {
                    Ok(Seen::Link(_)) => Errno::LOOP,
                    _ => error,
                }
            })?
        } else {
            rustix::fs::openat(at, part, flags | OFlags::NOFOLLOW, mode)?
        };
        held = Some(next);
    }
    held.ok_or(Errno::NOENT)
}

/// Where the link `name` in the directory `dir` leads, for a message: never opened for reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTarget {
    Inside,
    Outside,
    Missing,
}

/// Judges the link `path` without reading its target. Without `openat2` only the text is judged.
pub fn link_target(root: &Root, dir: &RelPath, name: &str) -> LinkTarget {
    let path = dir.join(name);
    let probe = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root.fd(), path.as_str(), probe, Mode::empty(), resolve) {
        Ok(_) => LinkTarget::Inside,
        Err(Errno::NOENT) => LinkTarget::Missing,
        Err(Errno::NOSYS | Errno::PERM) => link_text(root, dir, name),
        Err(_) => LinkTarget::Outside,
    }
}

fn link_text(root: &Root, dir: &RelPath, name: &str) -> LinkTarget {
    let text = root
        .open_dir(dir)
        .and_then(|fd| rustix::fs::readlinkat(&fd, name, Vec::new()));
    let Ok(text) = text else {
        return LinkTarget::Missing;
    };
    let text = text.to_string_lossy();
    let mut depth = dir.parts().count();
    if text.starts_with('/') {
        return LinkTarget::Outside;
    }
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return LinkTarget::Outside,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    LinkTarget::Inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_target_drops_dots_and_keeps_names() {
        assert_eq!(RelPath::target("./a//b/.").unwrap().as_str(), "a/b");
        assert_eq!(RelPath::target("").unwrap().as_str(), ".");
    }

    #[test]
    fn r005_unsafe_targets_are_refused() {
        for text in [
            "../x",
            "/tmp",
            "a/../../x",
            "a\\b",
            ".git/HEAD",
            "a\0b",
            "a\nb",
            "x/.GIT",
        ] {
            assert_eq!(RelPath::target(text), Err(PathError::Unsafe), "{text:?}");
        }
        assert_eq!(RelPath::target(&"é".repeat(4096)).map(|_| ()), Ok(()));
        assert_eq!(RelPath::target(&"é".repeat(4097)), Err(PathError::Unsafe));
    }

    #[test]
    fn r013_eighteen_components_are_too_deep() {
        assert!(RelPath::target(&["a"; 17].join("/")).is_ok());
        assert_eq!(
            RelPath::target(&["a"; 18].join("/")),
            Err(PathError::TooDeep)
        );
    }

    #[test]
    fn a_cwd_is_strict_but_takes_the_mount_path_that_models_write() {
        assert_eq!(RelPath::cwd("/workspace/a/b").unwrap().as_str(), "a/b");
        assert_eq!(RelPath::cwd("/workspace").unwrap().as_str(), ".");
        assert_eq!(RelPath::cwd(".").unwrap().as_str(), ".");
        for text in [
            "",
            "../escape",
            "a//b",
            "./a",
            "/etc",
            "/workspaces/a",
            ".git",
            "a/.git/b",
        ] {
            assert!(RelPath::cwd(text).is_err(), "{text:?}");
        }
        assert!(RelPath::cwd(&["a"; 16].join("/")).is_ok());
        assert_eq!(RelPath::cwd(&["a"; 17].join("/")), Err(PathError::TooDeep));
    }

    #[test]
    fn the_walk_without_openat2_refuses_links_and_climbing() {
        let dir = std::env::temp_dir().join(private_name("bazilion-walk-").unwrap());
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/b/f"), "x").unwrap();
        std::os::unix::fs::symlink("a", dir.join("link")).unwrap();
        std::os::unix::fs::symlink("a/b/f", dir.join("file")).unwrap();
        let root = Root::open(&dir).unwrap();
        let walk = |path| walk_beneath(root.fd(), path, READ, Mode::empty()).map(|_| ());
        assert_eq!(walk("a/b/f"), Ok(()));
        assert_eq!(walk("link/b/f"), Err(Errno::LOOP));
        assert_eq!(walk("file"), Err(Errno::LOOP));
        assert_eq!(walk("a/../a/b/f"), Err(Errno::XDEV));
        assert_eq!(walk("/etc/passwd"), Err(Errno::XDEV));
        for path in ["a/b/f", "link/b/f", "file"] {
            let fast = open_beneath(root.fd(), path, READ, Mode::empty()).map(|_| ());
            assert_eq!(fast, walk(path), "{path}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_becomes_a_path_that_climbs(text in "[a./\\\\\u{0}é-]{0,40}") {
            for path in [RelPath::target(&text), RelPath::tool(&text), RelPath::cwd(&text)].into_iter().flatten() {
                prop_assert!(!path.as_str().starts_with('/'));
                prop_assert!(path.parts().all(|p| !p.is_empty() && p != "." && p != ".."));
                prop_assert!(!path.as_str().contains(['\\', '\0']));
            }
        }

        #[test]
        fn a_target_is_stable_when_parsed_again(text in "[ab./]{0,30}") {
            if let Ok(path) = RelPath::target(&text) {
                prop_assert_eq!(RelPath::target(path.as_str()).unwrap(), path);
            }
        }
    }
}
