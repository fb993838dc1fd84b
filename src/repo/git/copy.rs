//! A private, bounded copy of a repository's metadata, removed with the value.
//!
//! - Copied: HEAD, index, packed-refs, shallow, refs, info/exclude. Regular files only; a link or anything else is refused.
//! - Objects stay where they are. The copy's `objects/` is a directory of ours that names the pack directory and
//!   the loose ones by descriptor, so `objects/info`, and with it any alternate, does not exist for the reader.
//! - The index keeps its time: Git compares with it when a file changed in the same moment.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Dir, FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use super::super::paths::{DIRECTORY, Seen, open_regular, private_name, see};
use super::super::report::{Issue, IssueCode};
use super::{config, timeout, unreadable};
use crate::limits::{GIT_CONFIG_MAX, GIT_COPY_ENTRIES_MAX, GIT_COPY_MAX, REPO_DEPTH_MAX};

/// Files at the top of the metadata that are copied where they exist.
const FILES: [&str; 4] = ["HEAD", "index", "packed-refs", "shallow"];

/// The copy's directory, removed when this is dropped.
pub struct PrivateCopy {
    path: PathBuf,
    /// Named by the links in the copy's `objects/`.
    _held: Vec<OwnedFd>,
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // Nothing refers to it; what can not be removed is in a temporary directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl PrivateCopy {
    /// Copies the metadata of the working tree `top`.
    pub fn make(top: BorrowedFd<'_>, deadline: Instant) -> Result<PrivateCopy, Issue> {
        let git = rustix::fs::openat(top, ".git", DIRECTORY, Mode::empty())
            .map_err(|_| foreign("`.git` is not a directory of its own"))?;
        refuse_foreign(git.as_fd())?;
        let theirs = read_small(git.as_fd(), "config")?.unwrap_or_default();
        let ours = config::ours(&theirs, &format!("/proc/self/fd/{}", top.as_raw_fd()))?;

        let path =
            std::env::temp_dir().join(private_name("bazilion-git-").map_err(|_| unreadable())?);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|_| unreadable())?;
        let mut copy = PrivateCopy {
            path,
            _held: Vec::new(),
        };
        fs::write(copy.path.join("config"), ours).map_err(|_| unreadable())?;

        let mut budget = Budget {
            bytes: GIT_COPY_MAX,
            entries: GIT_COPY_ENTRIES_MAX,
            deadline,
        };
        for name in FILES {
            budget.file(git.as_fd(), name, &copy.path.join(name))?;
        }
        copy.info(git.as_fd(), &mut budget)?;
        match rustix::fs::openat(&git, "refs", DIRECTORY, Mode::empty()) {
            Ok(refs) => budget.tree(refs, &copy.path.join("refs"), 0)?,
            Err(_) => return Err(unreadable()),
        }
        copy.objects(git.as_fd(), deadline)?;
        Ok(copy)
    }

    /// The directory to open as a repository.
    pub fn git_dir(&self) -> &Path {
        &self.path
    }

    fn info(&self, git: BorrowedFd<'_>, budget: &mut Budget) -> Result<(), Issue> {
        match rustix::fs::openat(git, "info", DIRECTORY, Mode::empty()) {
            Ok(info) => {
                let to = self.path.join("info");
                fs::create_dir(&to).map_err(|_| unreadable())?;
                budget.file(info.as_fd(), "exclude", &to.join("exclude"))
            }
            Err(Errno::NOENT) => Ok(()),
            Err(_) => Err(foreign("`.git/info` is not a directory of its own")),
        }
    }

    /// Makes `objects/` with a link, by descriptor, to the packs and to each loose directory.
    fn objects(&mut self, git: BorrowedFd<'_>, deadline: Instant) -> Result<(), Issue> {
        let objects = rustix::fs::openat(git, "objects", DIRECTORY, Mode::empty())
            .map_err(|_| foreign("`.git/objects` is not a directory of its own"))?;
        let to = self.path.join("objects");
        fs::create_dir(&to).map_err(|_| unreadable())?;
        for entry in listing(objects.as_fd())? {
            let (name, kind) = entry;
            let is_loose = name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_loose && name != "pack" {
                continue;
            }
            if kind != FileType::Directory {
                return Err(foreign("a directory of its objects is a link"));
            }
            let dir = match rustix::fs::openat(&objects, name.as_str(), DIRECTORY, Mode::empty()) {
                Ok(dir) => dir,
                // Packing removes loose directories while we look.
                Err(Errno::NOENT) => continue,
                Err(_) => return Err(foreign("a directory of its objects is a link")),
            };
            if listing(dir.as_fd())?
                .iter()
                .any(|(_, kind)| *kind != FileType::RegularFile)
            {
                return Err(foreign("an object or a pack is not a regular file"));
            }
            if Instant::now() > deadline {
                return Err(timeout());
            }
            let target = if name == "pack" {
                let target = format!("/proc/self/fd/{}", dir.as_raw_fd());
                self._held.push(dir);
                target
            } else {
                format!("/proc/self/fd/{}/{name}", objects.as_raw_fd())
            };
            symlink(target, to.join(&name)).map_err(|_| unreadable())?;
        }
        self._held.push(objects);
        Ok(())
    }
}

/// Metadata that lives elsewhere, or that belongs to a worktree or a submodule.
fn refuse_foreign(git: BorrowedFd<'_>) -> Result<(), Issue> {
    for name in ["commondir", "gitdir"] {
        if !matches!(see(git, name), Ok(Seen::Absent)) {
            return Err(foreign("it is a linked worktree"));
        }
    }
    let info = match rustix::fs::openat(git, "objects/info", DIRECTORY, Mode::empty()) {
        Ok(info) => info,
        Err(Errno::NOENT) => return Ok(()),
        Err(_) => return Err(foreign("`.git/objects/info` is not a directory of its own")),
    };
    for name in ["alternates", "http-alternates"] {
        if !matches!(see(info.as_fd(), name), Ok(Seen::Absent)) {
            return Err(foreign(
                "its objects are shared with another repository (alternates)",
            ));
        }
    }
    Ok(())
}

fn read_small(git: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Issue> {
    let (file, _) = match open_regular(git, name) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(None),
        Err(_) => return Err(foreign("a file of its metadata is not a regular file")),
    };
    let mut bytes = Vec::new();
    file.take(GIT_CONFIG_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|_| unreadable())?;
    if bytes.len() > GIT_CONFIG_MAX {
        return Err(limit());
    }
    Ok(Some(bytes))
}

/// What the copy may still take.
struct Budget {
    bytes: usize,
    entries: usize,
    deadline: Instant,
}

impl Budget {
    fn entry(&mut self) -> Result<(), Issue> {
        self.entries = self.entries.checked_sub(1).ok_or_else(limit)?;
        if Instant::now() > self.deadline {
            Err(timeout())
        } else {
            Ok(())
        }
    }

    /// Copies one file, if it exists.
    fn file(&mut self, from: BorrowedFd<'_>, name: &str, to: &Path) -> Result<(), Issue> {
        let (mut file, stat) = match open_regular(from, name) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => return Err(foreign("a file of its metadata is not a regular file")),
        };
        self.entry()?;
        let mut out = fs::File::create(to).map_err(|_| unreadable())?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = file.read(&mut buffer).map_err(|_| unreadable())?;
            if read == 0 {
                break;
            }
            self.bytes = self.bytes.checked_sub(read).ok_or_else(limit)?;
            if Instant::now() > self.deadline {
                return Err(timeout());
            }
            out.write_all(&buffer[..read]).map_err(|_| unreadable())?;
        }
        let modified = Timespec {
            tv_sec: stat.st_mtime as _,
            tv_nsec: stat.st_mtime_nsec as _,
        };
        let times = Timestamps {
            last_access: modified,
            last_modification: modified,
        };
        rustix::fs::futimens(&out, &times).map_err(|_| unreadable())
    }

    /// Copies a directory of refs.
    fn tree(&mut self, from: OwnedFd, to: &Path, depth: usize) -> Result<(), Issue> {
        if depth > 2 * REPO_DEPTH_MAX {
            return Err(limit());
        }
        self.entry()?;
        fs::create_dir(to).map_err(|_| unreadable())?;
        for (name, kind) in listing(from.as_fd())? {
            let to = to.join(&name);
            match kind {
                FileType::RegularFile => self.file(from.as_fd(), &name, &to)?,
                FileType::Directory => {
                    let dir = rustix::fs::openat(&from, name.as_str(), DIRECTORY, Mode::empty())
                        .map_err(|_| foreign("a directory of refs is a link"))?;
                    self.tree(dir, &to, depth + 1)?;
                }
                _ => return Err(foreign("a ref is not a regular file")),
            }
        }
        Ok(())
    }
}

/// Names and kinds in a directory, without `.` and `..`.
fn listing(dir: BorrowedFd<'_>) -> Result<Vec<(String, FileType)>, Issue> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir).map_err(|_| unreadable())? {
        let entry = entry.map_err(|_| unreadable())?;
        let Ok(name) = entry.file_name().to_str() else {
            return Err(foreign("a name in its metadata is not UTF-8"));
        };
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match see(dir, name) {
                Ok(Seen::File(_)) => FileType::RegularFile,
                Ok(Seen::Directory(_)) => FileType::Directory,
                _ => FileType::Symlink,
            },
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

fn foreign(why: &str) -> Issue {
    Issue::new(
        IssueCode::UnsupportedGitMetadata,
        format!("The repository's Git metadata is not read here: {why}."),
    )
}

fn limit() -> Issue {
    Issue::new(
        IssueCode::GitMetadataLimit,
        "The repository's Git metadata is larger than 64 MiB or 16,384 entries.",
    )
    .fix("Run `git pack-refs --all` in the repository.")
}
