//! A patch of the working tree against HEAD, without any setting of the repository.
//!
//! - Staged, unstaged and untracked files; renames show as a removal and an addition.
//! - Content is compared as Git would store it, so that line ends alone are no change.
//! - At most 1 MiB, cut between lines; what is binary or large is named only. Links are shown as the text they hold.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use gix::bstr::{BString, ByteSlice};
use gix::diff::blob::unified_diff::{ConsumeHunk, ContextSize, DiffLineKind, HunkHeader};
use gix::diff::blob::{Algorithm, InternedInput, UnifiedDiff};
use gix::objs::tree::EntryKind;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::git::{self, Opened};
use super::paths::{Root, Seen, open_regular, see};
use super::report::{GitState, Issue, IssueCode};
use super::scope::Scope;
use crate::limits::{DIFF_FILE_MAX, DIFF_MAX, DIFF_TIMEOUT};

/// The patch, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    pub state: GitState,
    /// Bytes that are not UTF-8 are shown as replacement characters.
    pub patch: String,
    /// Files that differ, also those that the patch has no room for.
    pub files: u64,
    pub truncated: bool,
    pub issues: Vec<Issue>,
}

/// The patch of the repository at the root.
pub fn diff(root: &Root) -> Patch {
    let none = |state, issues| Patch {
        state,
        patch: String::new(),
        files: 0,
        truncated: false,
        issues,
    };
    let scope = match Scope::resolve(root, ".") {
        Ok(scope) => scope,
        Err(issue) => return none(GitState::Unavailable, vec![issue]),
    };
    let Some(dir) = git::find(&scope) else {
        return none(GitState::NotRepository, Vec::new());
    };
    match git::with_repository(dir, DIFF_TIMEOUT, patch) {
        Ok(patch) => patch,
        Err(issue) => none(GitState::Unavailable, vec![issue]),
    }
}

/// One side of a file.
#[derive(Debug, PartialEq, Eq)]
struct Side {
    mode: &'static str,
    bytes: Vec<u8>,
    is_large: bool,
}

fn patch(opened: &Opened) -> Result<Patch, Issue> {
    let paths = changed_paths(opened)?;
    let mut out = Out {
        text: Vec::new(),
        is_full: false,
    };
    let mut issues = Vec::new();
    let (mut filter, index) = opened
        .repo
        .filter_pipeline(None)
        .map_err(|_| git::unreadable())?;
    let head = opened.repo.head_tree().ok();
    for path in &paths {
        if opened.stop.load(Ordering::Relaxed) {
            return Err(git::timeout());
        }
        if out.is_full {
            break;
        }
        let old = head
            .as_ref()
            .map_or(Ok(None), |tree| committed(tree, path))?;
        let new = match present(opened, path, &mut filter, &index) {
            Ok(new) => new,
            Err(issue) => {
                issues.push(issue);
                continue;
            }
        };
        if old != new {
            file_patch(path, old.as_ref(), new.as_ref(), &mut out);
        }
    }
    Ok(Patch {
        state: GitState::Available,
        patch: String::from_utf8_lossy(&out.text).into_owned(),
        files: paths.len() as u64,
        truncated: out.is_full,
        issues,
    })
}

fn changed_paths(opened: &Opened) -> Result<BTreeSet<BString>, Issue> {
    Ok(git::changes(opened)?
        .iter()
        .map(|item| item.location().to_owned())
        .collect())
}

fn committed(head: &gix::Tree<'_>, path: &BString) -> Result<Option<Side>, Issue> {
    let entry = head
        .lookup_entry(path.split_str("/"))
        .map_err(|_| git::unreadable())?;
    let Some(entry) = entry else { return Ok(None) };
    let mode = match entry.mode().kind() {
        EntryKind::Tree => return Ok(None),
        EntryKind::Blob => "100644",
        EntryKind::BlobExecutable => "100755",
        EntryKind::Link => "120000",
        EntryKind::Commit => {
            let bytes = format!("Subproject commit {}\n", entry.object_id()).into_bytes();
            return Ok(Some(Side {
                mode: "160000",
                bytes,
                is_large: false,
            }));
        }
    };
    let header = entry.id().header().map_err(|_| git::unreadable())?;
    if header.size() > DIFF_FILE_MAX as u64 {
        return Ok(Some(Side {
            mode,
            bytes: Vec::new(),
            is_large: true,
        }));
    }
    let object = entry.object().map_err(|_| git::unreadable())?;
    Ok(Some(Side {
        mode,
        bytes: object.data.clone(),
        is_large: false,
    }))
}

fn present(
    opened: &Opened,
    path: &BString,
    filter: &mut gix::filter::Pipeline<'_>,
    index: &gix::index::State,
) -> Result<Option<Side>, Issue> {
    let unreadable = |why: &str| Issue::new(IssueCode::Unreadable, why).at(path.to_str_lossy());
    let Ok(name) = path.to_str() else {
        return Err(unreadable("Its name is not UTF-8."));
    };
    let top = opened.top.as_fd();
    let (file, stat) = match open_regular(top, name) {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Ok(link(top, name)),
        Err(Errno::INVAL | Errno::ISDIR) => return Ok(None),
        Err(_) => return Err(unreadable("It could not be read.")),
    };
    let mode = if stat.st_mode & 0o100 == 0 {
        "100644"
    } else {
        "100755"
    };
    if stat.st_size > DIFF_FILE_MAX as i64 {
        return Ok(Some(Side {
            mode,
            bytes: Vec::new(),
            is_large: true,
        }));
    }
    let stored = filter
        .convert_to_git(file, std::path::Path::new(name), index)
        .map_err(|_| unreadable("It could not be converted as Git would store it."))?;
    let mut bytes = Vec::new();
    let mut stored = stored.take(DIFF_FILE_MAX as u64);
    stored
        .read_to_end(&mut bytes)
        .map_err(|_| unreadable("It could not be read."))?;
    Ok(Some(Side {
        mode,
        bytes,
        is_large: false,
    }))
}

/// A link as Git stores it: its text. A path that goes through a link is not there.
fn link(top: std::os::fd::BorrowedFd<'_>, name: &str) -> Option<Side> {
    let (parent, last) = name.rsplit_once('/').unwrap_or((".", name));
    let dir = super::paths::open_beneath(
        top,
        parent,
        super::paths::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .ok()?;
    if !matches!(see(dir.as_fd(), last), Ok(Seen::Link(_))) {
        return None;
    }
    let text = rustix::fs::readlinkat(&dir, last, Vec::new()).ok()?;
    Some(Side {
        mode: "120000",
        bytes: text.into_bytes(),
        is_large: false,
    })
}

/// The patch as it grows.
struct Out {
    text: Vec<u8>,
    is_full: bool,
}

impl Out {
    fn line(&mut self, prefix: &str, line: &[u8]) {
        let end: &[u8] = match line.ends_with(b"\n") || prefix.is_empty() {
            true => b"",
            false => b"\n\\ No newline at end of file\n",
        };
        if self.is_full || self.text.len() + prefix.len() + line.len() + end.len() > DIFF_MAX {
            self.is_full = true;
            return;
        }
        self.text.extend(prefix.as_bytes());
        self.text.extend(line);
        self.text.extend(end);
    }
}

fn file_patch(path: &BString, old: Option<&Side>, new: Option<&Side>, out: &mut Out) {
    let (a, b) = (quoted("a/", path), quoted("b/", path));
    let mut head = format!("diff --git {a} {b}\n");
    match (old, new) {
        (None, Some(new)) => head.push_str(&format!("new file mode {}\n", new.mode)),
        (Some(old), None) => head.push_str(&format!("deleted file mode {}\n", old.mode)),
        (Some(old), Some(new)) if old.mode != new.mode => {
            head.push_str(&format!("old mode {}\nnew mode {}\n", old.mode, new.mode));
        }
        _ => {}
    }
    let before = old.map_or(&[][..], |side| &side.bytes);
    let after = new.map_or(&[][..], |side| &side.bytes);
    let from = if old.is_some() {
        a.as_str()
    } else {
        "/dev/null"
    };
    let to = if new.is_some() {
        b.as_str()
    } else {
        "/dev/null"
    };
    let is_large = [old, new].into_iter().flatten().any(|side| side.is_large);
    let is_binary = [before, after]
        .iter()
        .any(|bytes| bytes.iter().take(8192).any(|byte| *byte == 0));
    if is_large || is_binary {
        head.push_str(&format!("Binary files {from} and {to} differ\n"));
    } else if before != after {
        head.push_str(&format!("--- {from}\n+++ {to}\n"));
    }
    out.line("", head.as_bytes());
    if !is_large && !is_binary && before != after {
        hunks(before, after, out);
    }
}

fn hunks(before: &[u8], after: &[u8], out: &mut Out) {
    let input = InternedInput::new(before, after);
    let diff = gix::diff::blob::diff_with_slider_heuristics(Algorithm::Histogram, &input);
    // Writing goes to memory and can not fail.
    let _ = UnifiedDiff::new(&diff, &input, Hunks(out), ContextSize::symmetrical(3)).consume();
}

struct Hunks<'a>(&'a mut Out);

impl ConsumeHunk for Hunks<'_> {
    type Out = ();

    fn consume_hunk(
        &mut self,
        header: HunkHeader,
        lines: &[(DiffLineKind, &[u8])],
    ) -> std::io::Result<()> {
        let head = format!(
            "@@ -{},{} +{},{} @@\n",
            header.before_hunk_start,
            header.before_hunk_len,
            header.after_hunk_start,
            header.after_hunk_len
        );
        self.0.line("", head.as_bytes());
        for (kind, line) in lines {
            let prefix = match kind {
                DiffLineKind::Context => " ",
                DiffLineKind::Add => "+",
                DiffLineKind::Remove => "-",
            };
            self.0.line(prefix, line);
        }
        Ok(())
    }

    fn finish(self) {}
}

/// A path as Git shows it: quoted where it holds bytes that a line can not.
fn quoted(side: &str, path: &BString) -> String {
    let is_plain = path
        .iter()
        .all(|byte| *byte >= 0x20 && !matches!(byte, b'"' | b'\\' | 0x7f));
    if is_plain {
        return format!("{side}{}", path.to_str_lossy());
    }
    let mut out = format!("\"{side}");
    for byte in path.iter().copied() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}
