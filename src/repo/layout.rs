//! Lays out what commands see beside the workspace: inputs, memory notes, skill files, read-only.
//!
//! - Below a directory of the executor's base; following no link, never over something that exists.
//! - Directories 0555 and files 0444 at the end; what is laid out is removed as a whole.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::files::{EntryKind, FileError, list};
use super::paths::{DIRECTORY, PathError, RelPath, Root, Seen, see};
use crate::limits::{LAYOUT_FILES_MAX, LAYOUT_TOTAL_MAX};

/// One file to lay out.
#[derive(Debug, Clone)]
pub struct LaidFile {
    /// Relative to the layout's directory.
    pub path: RelPath,
    pub bytes: Vec<u8>,
    /// Skills may hold scripts.
    pub is_executable: bool,
}

/// Makes the directory `name` below `base` and writes the files into it; nothing may exist there.
/// On failure, what was written is removed again.
pub fn lay_out(base: &Path, name: &str, files: &[LaidFile]) -> Result<(), FileError> {
    let total: usize = files.iter().map(|file| file.bytes.len()).sum();
    if files.len() > LAYOUT_FILES_MAX || total > LAYOUT_TOTAL_MAX {
        return Err(FileError::TooLarge(LAYOUT_TOTAL_MAX));
    }
    let base = Root::open(base)?;
    single(name)?;
    rustix::fs::mkdirat(base.fd(), name, Mode::from_raw_mode(0o700))?;
    let result = fill(&base, name, files);
    if result.is_err() {
        // The first error is the one that matters.
        let _ = remove_below(&base, name);
    }
    result
}

/// Removes a directory that [`lay_out`] made, if it is there.
pub fn remove(base: &Path, name: &str) -> Result<(), FileError> {
    single(name)?;
    remove_below(&Root::open(base)?, name)
}

fn single(name: &str) -> Result<(), FileError> {
    let path = RelPath::tool(name)?;
    if path.parts().count() == 1 && path.as_str() == name {
        Ok(())
    } else {
        Err(PathError::Unsafe.into())
    }
}

fn fill(base: &Root, name: &str, files: &[LaidFile]) -> Result<(), FileError> {
    let top = rustix::fs::openat(base.fd(), name, DIRECTORY, Mode::empty())?;
    for file in files {
        let (parent, last) = file.path.split_last().ok_or(FileError::Directory)?;
        let mut dir = rustix::fs::openat(&top, ".", DIRECTORY, Mode::empty())?;
        for part in parent.parts() {
            match rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            dir = rustix::fs::openat(&dir, part, DIRECTORY, Mode::empty())?;
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&dir, last, flags, Mode::from_raw_mode(0o600))?;
        let mode = if file.is_executable { 0o555 } else { 0o444 };
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        std::fs::File::from(fd).write_all(&file.bytes)?;
    }
    set_dirs(&top, 0o555)
}

fn set_dirs(dir: &OwnedFd, mode: u32) -> Result<(), FileError> {
    for entry in list(dir)?
        .into_iter()
        .filter(|entry| entry.kind == EntryKind::Directory)
    {
        let next = rustix::fs::openat(dir, entry.name.as_str(), DIRECTORY, Mode::empty())?;
        set_dirs(&next, mode)?;
    }
    Ok(rustix::fs::fchmod(dir, Mode::from_raw_mode(mode))?)
}

fn remove_below(base: &Root, name: &str) -> Result<(), FileError> {
    match see(base.fd(), name)? {
        Seen::Absent => return Ok(()),
        Seen::Directory(_) => {}
        _ => return Err(FileError::NotDirectory),
    }
    empty(rustix::fs::openat(
        base.fd(),
        name,
        DIRECTORY,
        Mode::empty(),
    )?)?;
    Ok(rustix::fs::unlinkat(base.fd(), name, AtFlags::REMOVEDIR)?)
}

fn empty(dir: OwnedFd) -> Result<(), FileError> {
    rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700))?;
    for entry in list(&dir)? {
        let name = entry.name.as_str();
        match see(dir.as_fd(), name)? {
            Seen::Directory(_) => {
                empty(rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?)?;
                rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?;
            }
            _ => rustix::fs::unlinkat(&dir, name, AtFlags::empty())?,
        }
    }
    Ok(())
}
