//! The file tools `read`, `write`, `edit` and `ls`.
//!
//! - Beneath the root, following no link; never writing into `.git`.
//! - A write is a new file beside the old one, then a rename: a reader sees the old content or the new one. Mode, and owner
//!   where it can be set, stay.
//! - Text keeps the line ends that its file had; an edit's old text must occur exactly once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::paths::{DIRECTORY, PathError, RelPath, Root, Seen, open_regular, private_name, see};
use crate::limits::{EDITS_MAX, LS_MAX, READ_IMAGE_MAX, READ_MAX, READ_SCAN_MAX, WRITE_MAX};

/// Why a file tool did not do what it was asked. The text is for the Agent; it names no path of the executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("there is nothing at this path")]
    Missing,
    #[error("a component of the path is a symbolic link; links are not followed")]
    Link,
    #[error("it is a directory")]
    Directory,
    #[error("a component of the path is not a directory")]
    NotDirectory,
    #[error("it is not a regular file")]
    Special,
    #[error("it is not text")]
    Binary,
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    #[error("offset {offset} is beyond the end: the file has {lines} lines")]
    BeyondEnd { offset: u64, lines: u64 },
    #[error("edit {0}: the old text is empty")]
    EmptyEdit(usize),
    #[error(
        "edit {0}: the old text does not occur in the file; it must match exactly, with its white space"
    )]
    NoMatch(usize),
    #[error(
        "edit {index}: the old text occurs {count} times; give more of its surroundings so that it occurs once"
    )]
    ManyMatches { index: usize, count: usize },
    #[error("edits {0} and {1} overlap")]
    Overlap(usize, usize),
    #[error("between 1 and {EDITS_MAX} edits are possible")]
    EditCount,
    #[error("the workspace is open for reading only")]
    ReadOnly,
    #[error("permission denied")]
    Denied,
    #[error("the disk is full")]
    Full,
    #[error("the pattern is not valid: {0}")]
    Pattern(String),
    #[error("it changed meanwhile; read it again")]
    Changed,
    #[error("the file system refused")]
    Io,
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => FileError::Missing,
            Errno::LOOP | Errno::XDEV => FileError::Link,
            Errno::NOTDIR => FileError::NotDirectory,
            Errno::ISDIR => FileError::Directory,
            Errno::INVAL | Errno::NXIO => FileError::Special,
            Errno::ACCESS | Errno::PERM => FileError::Denied,
            Errno::ROFS => FileError::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => FileError::Full,
            _ => FileError::Io,
        }
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Errno::from_io_error(&error).map_or(FileError::Io, FileError::from)
    }
}

/// What `read` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum FileContent {
    Text {
        text: String,
        /// Number of the first line, from 1.
        first_line: u64,
        lines: u64,
        /// Where the next call goes on; absent at the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_offset: Option<u64>,
        /// A line was cut: the call can not show more of it.
        cut: bool,
        /// Bytes that are not UTF-8 are shown as replacement characters.
        lossy: bool,
        total_bytes: u64,
    },
    Image {
        mime: String,
        base64: String,
        total_bytes: u64,
    },
}

/// Reads lines from `offset` (from 1), at most `limit` of them and 64 KiB, or an image.
pub fn read(
    root: &Root,
    path: &str,
    offset: Option<u64>,
    limit: Option<u64>,
) -> Result<FileContent, FileError> {
    let path = RelPath::tool(path)?;
    let (file, stat) = open(root, &path)?;
    let total_bytes = stat.st_size as u64;
    let mut reader = BufReader::with_capacity(64 * 1024, file.take(READ_SCAN_MAX as u64));
    let start = reader.fill_buf()?;
    if let Some(mime) = image(start) {
        return read_image(reader, mime, total_bytes);
    }
    if start.iter().take(8192).any(|byte| *byte == 0) {
        return Err(FileError::Binary);
    }
    let offset = offset.unwrap_or(1).max(1);
    let skipped = skip_lines(&mut reader, offset - 1)?;
    if skipped < offset - 1 {
        return Err(FileError::BeyondEnd {
            offset,
            lines: skipped,
        });
    }
    read_lines(reader, offset, limit.unwrap_or(u64::MAX), total_bytes)
}

fn open(root: &Root, path: &RelPath) -> Result<(std::fs::File, Stat), FileError> {
    root.open_file(path).map_err(|error| match error {
        Errno::INVAL | Errno::ISDIR if root.open_dir(path).is_ok() => FileError::Directory,
        other => other.into(),
    })
}

fn read_image(
    mut reader: impl Read,
    mime: &str,
    total_bytes: u64,
) -> Result<FileContent, FileError> {
    if total_bytes > READ_IMAGE_MAX as u64 {
        return Err(FileError::TooLarge(READ_IMAGE_MAX));
    }
    let mut bytes = Vec::new();
    (&mut reader)
        .take(READ_IMAGE_MAX as u64)
        .read_to_end(&mut bytes)?;
    Ok(FileContent::Image {
        mime: mime.to_owned(),
        base64: BASE64.encode(bytes),
        total_bytes,
    })
}

fn image(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// Passes over lines without keeping them; returns how many there were.
fn skip_lines(reader: &mut impl BufRead, count: u64) -> Result<u64, FileError> {
    let mut skipped = 0;
    while skipped < count {
        let buffer = reader.fill_buf()?;
        let Some(first) = buffer.first() else { break };
        let _ = first;
        match buffer.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                skipped += 1;
                reader.consume(end + 1);
            }
            None => {
                let len = buffer.len();
                reader.consume(len);
                if reader.fill_buf()?.is_empty() {
                    // A last line without its end.
                    skipped += 1;
                }
            }
        }
    }
    Ok(skipped)
}

fn read_lines(
    mut reader: impl BufRead,
    offset: u64,
    limit: u64,
    total_bytes: u64,
) -> Result<FileContent, FileError> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut lines = 0;
    let mut cut = false;
    let mut is_end = false;
    while lines < limit {
        let mut line = Vec::new();
        let room = READ_MAX + 1 - bytes.len();
        (&mut reader)
            .take(room as u64)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            is_end = true;
            break;
        }
        if bytes.len() + line.len() > READ_MAX {
            if lines == 0 {
                line.truncate(READ_MAX);
                bytes = whole_characters(line);
                lines = 1;
                cut = true;
            }
            break;
        }
        bytes.extend(line);
        lines += 1;
    }
    let is_end = is_end || (!cut && lines == limit && reader.fill_buf()?.is_empty());
    let next_offset = (!is_end).then_some(offset + lines);
    let (text, lossy) = match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    };
    Ok(FileContent::Text {
        text,
        first_line: offset,
        lines,
        next_offset,
        cut,
        lossy,
        total_bytes,
    })
}

/// Drops the beginning of a character whose rest was cut away.
fn whole_characters(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
    bytes
}

/// What `write` or `edit` left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    pub path: String,
    pub bytes: u64,
    pub created: bool,
}

/// One replacement of `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit {
    pub old_text: String,
    pub new_text: String,
}

/// Writes a whole file, with the directories on the way to it.
pub fn write(root: &Root, path: &str, content: &str) -> Result<Written, FileError> {
    let path = writable(path)?;
    if content.len() > WRITE_MAX {
        return Err(FileError::TooLarge(WRITE_MAX));
    }
    let (parent, name) = path.split_last().ok_or(FileError::Directory)?;
    let dir = make_dirs(root, &parent)?;
    let old = match see(dir.as_fd(), name)? {
        Seen::Absent => None,
        Seen::File(_) => Some(read_whole(&dir, name)?),
        Seen::Directory(_) => return Err(FileError::Directory),
        Seen::Link(_) => return Err(FileError::Link),
        Seen::Special(_) => return Err(FileError::Special),
    };
    let is_crlf = old.as_ref().is_some_and(|(text, _)| has_crlf_only(text));
    let text = match is_crlf && !content.contains('\r') {
        true => content.replace('\n', "\r\n"),
        false => content.to_owned(),
    };
    replace(
        &dir,
        name,
        text.as_bytes(),
        old.as_ref().map(|(_, stat)| stat),
    )?;
    Ok(Written {
        path: path.as_str().to_owned(),
        bytes: text.len() as u64,
        created: old.is_none(),
    })
}

/// Replaces texts that each occur exactly once in the file as it is now.
pub fn edit(root: &Root, path: &str, edits: &[Edit]) -> Result<Written, FileError> {
    let path = writable(path)?;
    let (parent, name) = path.split_last().ok_or(FileError::Directory)?;
    let dir = root.open_dir(&parent)?;
    match see(dir.as_fd(), name)? {
        Seen::File(_) => {}
        Seen::Absent => return Err(FileError::Missing),
        Seen::Directory(_) => return Err(FileError::Directory),
        Seen::Link(_) => return Err(FileError::Link),
        Seen::Special(_) => return Err(FileError::Special),
    }
    let (bytes, stat) = read_whole(&dir, name)?;
    if bytes.len() > WRITE_MAX {
        return Err(FileError::TooLarge(WRITE_MAX));
    }
    let text = String::from_utf8(bytes).map_err(|_| FileError::Binary)?;
    let edited = apply(&text, edits)?;
    if edited.len() > WRITE_MAX {
        return Err(FileError::TooLarge(WRITE_MAX));
    }
    replace(&dir, name, edited.as_bytes(), Some(&stat))?;
    Ok(Written {
        path: path.as_str().to_owned(),
        bytes: edited.len() as u64,
        created: false,
    })
}

fn writable(path: &str) -> Result<RelPath, FileError> {
    let path = RelPath::tool(path)?;
    if path.is_in_git_dir() {
        return Err(PathError::GitDir.into());
    }
    Ok(path)
}

/// Applies edits to a text; where all its line ends are CRLF, edits are written with LF and it keeps CRLF.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, FileError> {
    if edits.is_empty() || edits.len() > EDITS_MAX {
        return Err(FileError::EditCount);
    }
    let is_crlf = has_crlf_only(text.as_bytes());
    let plain = |text: &str| {
        if is_crlf {
            text.replace("\r\n", "\n")
        } else {
            text.to_owned()
        }
    };
    let base = plain(text);
    let mut places = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let old = plain(&edit.old_text);
        if old.is_empty() {
            return Err(FileError::EmptyEdit(index));
        }
        let mut found = base.match_indices(&old).map(|(at, _)| at);
        let at = found.next().ok_or(FileError::NoMatch(index))?;
        let more = found.count() + usize::from(overlaps_itself(&base, &old, at));
        if more > 0 {
            return Err(FileError::ManyMatches {
                index,
                count: more + 1,
            });
        }
        places.push((at, at + old.len(), plain(&edit.new_text), index));
    }
    places.sort_by_key(|place| place.0);
    if let Some(pair) = places.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Err(FileError::Overlap(pair[0].3, pair[1].3));
    }
    let mut out = String::with_capacity(base.len());
    let mut done = 0;
    for (start, end, new, _) in &places {
        out.push_str(&base[done..*start]);
        out.push_str(new);
        done = *end;
    }
    out.push_str(&base[done..]);
    Ok(if is_crlf {
        out.replace('\n', "\r\n")
    } else {
        out
    })
}

/// Whether the text occurs again inside its own first occurrence, as `aa` in `aaa`.
fn overlaps_itself(base: &str, old: &str, at: usize) -> bool {
    let next = at + base[at..].chars().next().map_or(1, char::len_utf8);
    base[next..]
        .find(old)
        .is_some_and(|again| next + again < at + old.len())
}

fn has_crlf_only(bytes: &[u8]) -> bool {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    let pairs = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    ends > 0 && ends == pairs
}

fn read_whole(dir: &OwnedFd, name: &str) -> Result<(Vec<u8>, Stat), FileError> {
    let (file, stat) = open_regular(dir.as_fd(), name)?;
    let mut bytes = Vec::new();
    file.take(WRITE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes, stat))
}

/// Opens the directory of a new file, making what is missing of it.
fn make_dirs(root: &Root, path: &RelPath) -> Result<OwnedFd, FileError> {
    let mut at = rustix::fs::openat(root.fd(), ".", DIRECTORY, Mode::empty())?;
    for part in path.parts() {
        match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        at = match rustix::fs::openat(&at, part, DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(_) if matches!(see(at.as_fd(), part), Ok(Seen::Link(_))) => {
                return Err(FileError::Link);
            }
            Err(error) => return Err(error.into()),
        };
    }
    Ok(at)
}

/// Puts a new file in the place of `name`, whole or not at all.
fn replace(dir: &OwnedFd, name: &str, bytes: &[u8], old: Option<&Stat>) -> Result<(), FileError> {
    let temporary = private_name(".bazilion-tmp-")?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::openat(dir, temporary.as_str(), flags, Mode::from_raw_mode(0o666))?;
    let result = fill(fd, bytes, old)
        .and_then(|()| Ok(rustix::fs::renameat(dir, temporary.as_str(), dir, name)?));
    if result.is_err() {
        // The error that matters is the one that is returned.
        let _ = rustix::fs::unlinkat(dir, temporary.as_str(), AtFlags::empty());
    }
    result
}

fn fill(fd: OwnedFd, bytes: &[u8], old: Option<&Stat>) -> Result<(), FileError> {
    if let Some(old) = old {
        // Only a privileged toolbox can give a file to its old owner; others own what they write.
        let _ = rustix::fs::fchown(
            &fd,
            Some(Uid::from_raw(old.st_uid)),
            Some(Gid::from_raw(old.st_gid)),
        );
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(old.st_mode & 0o777))?;
    }
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes)?;
    file.sync_data()?;
    Ok(())
}

/// One line of `ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub kind: EntryKind,
}

/// What an entry is; links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Special,
}

/// A directory's entries, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    pub entries: Vec<Entry>,
    pub truncated: bool,
}

/// Lists a directory, the root without a path.
pub fn ls(root: &Root, path: Option<&str>) -> Result<Listing, FileError> {
    let path = RelPath::tool(path.unwrap_or("."))?;
    let dir = root.open_dir(&path)?;
    let mut entries = list(&dir)?;
    let truncated = entries.len() > LS_MAX;
    entries.truncate(LS_MAX);
    Ok(Listing { entries, truncated })
}

/// Every entry of a directory, sorted; names that are not UTF-8 are shown with replacement characters.
pub fn list(dir: &OwnedFd) -> Result<Vec<Entry>, FileError> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Link,
            FileType::Unknown => match see(dir.as_fd(), &name) {
                Ok(Seen::File(_)) => EntryKind::File,
                Ok(Seen::Directory(_)) => EntryKind::Directory,
                Ok(Seen::Link(_)) => EntryKind::Link,
                _ => EntryKind::Special,
            },
            _ => EntryKind::Special,
        };
        entries.push(Entry {
            name: name.into_owned(),
            kind,
        });
    }
    entries.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit_of(old: &str, new: &str) -> Edit {
        Edit {
            old_text: old.into(),
            new_text: new.into(),
        }
    }

    #[test]
    fn edits_apply_to_the_text_as_it_was_and_keep_crlf() {
        let text = "a\r\nb\r\nc\r\n";
        let out = apply(text, &[edit_of("c\n", "d\n"), edit_of("a\nb", "b\nc")]).unwrap();
        assert_eq!(out, "b\r\nc\r\nd\r\n");
    }

    #[test]
    fn an_old_text_must_occur_exactly_once() {
        assert_eq!(
            apply("aXbXc", &[edit_of("X", "y")]),
            Err(FileError::ManyMatches { index: 0, count: 2 })
        );
        assert_eq!(
            apply("aaa", &[edit_of("aa", "b")]),
            Err(FileError::ManyMatches { index: 0, count: 2 })
        );
        assert_eq!(
            apply("abc", &[edit_of("x", "y")]),
            Err(FileError::NoMatch(0))
        );
        assert_eq!(
            apply("abc", &[edit_of("", "y")]),
            Err(FileError::EmptyEdit(0))
        );
        assert_eq!(
            apply("abc", &[edit_of("ab", "x"), edit_of("bc", "y")]),
            Err(FileError::Overlap(0, 1))
        );
        assert_eq!(apply("abc", &[]), Err(FileError::EditCount));
    }

    #[test]
    fn mixed_line_ends_are_matched_as_they_are() {
        assert_eq!(
            apply("a\r\nb\n", &[edit_of("b\n", "c\n")]).unwrap(),
            "a\r\nc\n"
        );
    }

    proptest! {
        #[test]
        fn an_edit_of_a_unique_text_changes_only_that(before in "[ab\n]{0,20}", after in "[ab\n]{0,20}", new in "[ab\n]{0,5}") {
            let text = format!("{before}#é#{after}");
            let out = apply(&text, &[edit_of("#é#", &new)]).unwrap();
            prop_assert_eq!(out, format!("{before}{new}{after}"));
        }

        #[test]
        fn lines_read_in_pieces_are_the_file(text in "[abé\n]{0,60}", limit in 1u64..5) {
            let mut offset = 1;
            let mut whole = String::new();
            loop {
                let mut reader = std::io::Cursor::new(text.as_bytes());
                prop_assert_eq!(skip_lines(&mut reader, offset - 1).unwrap(), offset - 1);
                let FileContent::Text { text, next_offset, .. } = read_lines(reader, offset, limit, 0).unwrap() else { unreachable!() };
                whole.push_str(&text);
                match next_offset {
                    Some(next) => offset = next,
                    None => break,
                }
            }
            prop_assert_eq!(whole, text);
        }
    }
}
