//! `find` and `grep`: bounded, beneath the root, honouring `.gitignore`.
//!
//! - Directories are opened one below the other without links; `.git` is never entered.
//! - `.gitignore` files are read here, within their limit, and not by a library that would follow links.
//! - Bounds on entries, results, bytes and time; an answer that was cut says so.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use globset::{GlobBuilder, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::files::{EntryKind, FileError, list};
use super::paths::{DIRECTORY, RelPath, Root, open_regular};
use crate::limits::{
    FILE_DEPTH_MAX, IGNORE_FILE_MAX, SEARCH_CONTEXT_MAX, SEARCH_ENTRIES_MAX, SEARCH_FILE_MAX,
    SEARCH_LINE_MAX_CHARS, SEARCH_OUTPUT_MAX, SEARCH_PATTERN_MAX, SEARCH_RESULTS_MAX,
    SEARCH_TIMEOUT,
};

/// Paths that `find` found, relative to the root, directories with a slash at their end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub paths: Vec<String>,
    pub truncated: bool,
}

/// What `grep` looks for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrepQuery {
    /// A regular expression without look-around and back references.
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Only files that match, as in `find`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_case: Option<bool>,
    /// Lines shown around a hit, at most 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
}

/// One line of `grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrepLine {
    pub path: String,
    pub line: u64,
    pub text: String,
    /// False for a line of the context.
    pub is_match: bool,
}

/// What `grep` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    pub lines: Vec<GrepLine>,
    pub truncated: bool,
}

/// Files and directories whose path or, for a pattern without a slash, name matches the glob.
pub fn find(root: &Root, pattern: &str, path: Option<&str>) -> Result<Found, FileError> {
    let glob = Glob::new(pattern)?;
    let mut found = Found {
        paths: Vec::new(),
        truncated: false,
    };
    let mut walk = Walk::new();
    let finished = walk.run(root, path, &mut |item| {
        if glob.is_match(item.below, item.name) {
            if found.paths.len() >= SEARCH_RESULTS_MAX {
                return false;
            }
            let end = if item.kind == EntryKind::Directory {
                "/"
            } else {
                ""
            };
            found.paths.push(format!("{}{end}", item.path.as_str()));
        }
        true
    })?;
    found.truncated = !finished;
    Ok(found)
}

/// Lines that match.
pub fn grep(root: &Root, query: &GrepQuery) -> Result<Hits, FileError> {
    let regex = expression(&query.pattern, query.ignore_case.unwrap_or(false))?;
    let glob = query.glob.as_deref().map(Glob::new).transpose()?;
    let context = (query.context.unwrap_or(0) as usize).min(SEARCH_CONTEXT_MAX);
    let mut hits = Gathered {
        lines: Vec::new(),
        matches: 0,
        bytes: 0,
    };
    if let Some(path) = &query.path {
        let path = RelPath::tool(path)?;
        if !path.is_root() && root.open_dir(&path).is_err() {
            let (file, _) = root.open_file(&path)?;
            let more = grep_file(file, &path, &regex, context, &mut hits);
            return Ok(Hits {
                lines: hits.lines,
                truncated: !more,
            });
        }
    }
    let finished = Walk::new().run(root, query.path.as_deref(), &mut |item| {
        if item.kind != EntryKind::File
            || glob
                .as_ref()
                .is_some_and(|g| !g.is_match(item.below, item.name))
        {
            return true;
        }
        match open_regular(item.dir.as_fd(), item.name) {
            Ok((file, _)) => grep_file(file, item.path, &regex, context, &mut hits),
            // It vanished, or is not ours to read: as if it were not there.
            Err(_) => true,
        }
    })?;
    Ok(Hits {
        lines: hits.lines,
        truncated: !finished,
    })
}

fn expression(pattern: &str, ignore_case: bool) -> Result<Regex, FileError> {
    if pattern.len() > SEARCH_PATTERN_MAX {
        return Err(FileError::Pattern("it is too long".into()));
    }
    RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .size_limit(1 << 20)
        .dfa_size_limit(1 << 20)
        .build()
        .map_err(|error| FileError::Pattern(error.to_string().chars().take(500).collect()))
}

struct Gathered {
    lines: Vec<GrepLine>,
    matches: usize,
    bytes: usize,
}

impl Gathered {
    fn push(&mut self, path: &RelPath, line: usize, text: &[u8], is_match: bool) -> bool {
        let text = String::from_utf8_lossy(text);
        let mut shown: String = text
            .trim_end()
            .chars()
            .take(SEARCH_LINE_MAX_CHARS)
            .collect();
        if shown.len() < text.trim_end().len() {
            shown.push('…');
        }
        self.bytes += shown.len() + path.as_str().len() + 16;
        if self.bytes > SEARCH_OUTPUT_MAX {
            return false;
        }
        let path = path.as_str().to_owned();
        self.lines.push(GrepLine {
            path,
            line: line as u64 + 1,
            text: shown,
            is_match,
        });
        true
    }
}

/// Searches one file; false when no more is wanted.
fn grep_file(
    file: std::fs::File,
    path: &RelPath,
    regex: &Regex,
    context: usize,
    hits: &mut Gathered,
) -> bool {
    let mut bytes = Vec::new();
    let read = file
        .take(SEARCH_FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes);
    let is_binary = bytes.iter().take(8192).any(|byte| *byte == 0);
    if read.is_err() || bytes.len() > SEARCH_FILE_MAX || is_binary {
        return true;
    }
    if !regex.is_match(&bytes) && !regex.as_str().contains(['^', '$', '\\']) {
        return true;
    }
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let mut shown = 0;
    for (index, line) in lines.iter().enumerate() {
        if !regex.is_match(line.strip_suffix(b"\r").unwrap_or(line)) {
            continue;
        }
        if index + 1 == lines.len() && line.is_empty() {
            continue;
        }
        if hits.matches >= SEARCH_RESULTS_MAX {
            return false;
        }
        hits.matches += 1;
        let from = index.saturating_sub(context).max(shown);
        let to = (index + context + 1).min(lines.len()).max(index + 1);
        for (at, text) in lines.iter().enumerate().take(to).skip(from) {
            let is_match = at == index || regex.is_match(text);
            // Matches among the lines after this one come with their own context.
            if at > index && is_match {
                break;
            }
            if !hits.push(path, at, text, is_match) {
                return false;
            }
            shown = at + 1;
        }
    }
    true
}

/// A glob over the path below the start, or over the name where it has no slash.
struct Glob {
    matcher: GlobMatcher,
    is_name: bool,
}

impl Glob {
    fn new(pattern: &str) -> Result<Self, FileError> {
        if pattern.len() > SEARCH_PATTERN_MAX {
            return Err(FileError::Pattern("it is too long".into()));
        }
        let trimmed = pattern.trim_start_matches("./");
        let glob = GlobBuilder::new(trimmed)
            .literal_separator(true)
            .build()
            .map_err(|error| FileError::Pattern(error.to_string()))?;
        Ok(Glob {
            matcher: glob.compile_matcher(),
            is_name: !trimmed.contains('/'),
        })
    }

    fn is_match(&self, below: &str, name: &str) -> bool {
        self.matcher
            .is_match(if self.is_name { name } else { below })
    }
}

/// One file or directory that a walk met.
struct Item<'a> {
    dir: &'a OwnedFd,
    name: &'a str,
    path: &'a RelPath,
    /// The path below the start of the walk.
    below: &'a str,
    kind: EntryKind,
}

/// A depth-first walk, in the order of names.
struct Walk {
    left: usize,
    deadline: Instant,
    ignores: Vec<(usize, Gitignore)>,
}

impl Walk {
    fn new() -> Self {
        Walk {
            left: SEARCH_ENTRIES_MAX,
            deadline: Instant::now() + SEARCH_TIMEOUT,
            ignores: Vec::new(),
        }
    }

    /// Walks from `start`; false when it was cut.
    fn run(
        &mut self,
        root: &Root,
        start: Option<&str>,
        visit: &mut dyn FnMut(&Item<'_>) -> bool,
    ) -> Result<bool, FileError> {
        let start = RelPath::tool(start.unwrap_or("."))?;
        let mut at = rustix::fs::openat(root.fd(), ".", DIRECTORY, Mode::empty())?;
        if let Ok((file, _)) = open_regular(at.as_fd(), ".git/info/exclude") {
            self.ignore_from(file, &RelPath::root(), 0);
        }
        let mut path = RelPath::root();
        for part in start.parts() {
            self.ignore_of(&at, &path);
            path = path.join(part);
            at = root.open_dir(&path)?;
        }
        Ok(self.dir(at, &path, &start, visit))
    }

    fn dir(
        &mut self,
        dir: OwnedFd,
        path: &RelPath,
        start: &RelPath,
        visit: &mut dyn FnMut(&Item<'_>) -> bool,
    ) -> bool {
        let depth = path.parts().count();
        if depth >= FILE_DEPTH_MAX {
            return true;
        }
        let held = self.ignores.len();
        self.ignore_of(&dir, path);
        let more = self.entries(&dir, path, start, visit);
        self.ignores.truncate(held);
        more
    }

    fn entries(
        &mut self,
        dir: &OwnedFd,
        path: &RelPath,
        start: &RelPath,
        visit: &mut dyn FnMut(&Item<'_>) -> bool,
    ) -> bool {
        let Ok(entries) = list(dir) else { return true };
        for entry in entries {
            if self.left == 0 || Instant::now() > self.deadline {
                return false;
            }
            self.left -= 1;
            let is_dir = entry.kind == EntryKind::Directory;
            let here = path.join(&entry.name);
            if entry.name.eq_ignore_ascii_case(".git") || self.is_ignored(&here, is_dir) {
                continue;
            }
            let below = match start.is_root() {
                true => here.as_str(),
                false => here
                    .as_str()
                    .get(start.as_str().len() + 1..)
                    .unwrap_or_default(),
            };
            let item = Item {
                dir,
                name: &entry.name,
                path: &here,
                below,
                kind: entry.kind,
            };
            if !visit(&item) {
                return false;
            }
            if is_dir
                && let Ok(next) =
                    rustix::fs::openat(dir, entry.name.as_str(), DIRECTORY, Mode::empty())
                && !self.dir(next, &here, start, visit)
            {
                return false;
            }
        }
        true
    }

    fn ignore_of(&mut self, dir: &OwnedFd, path: &RelPath) {
        if let Ok((file, _)) = open_regular(dir.as_fd(), ".gitignore") {
            self.ignore_from(file, path, path.parts().count());
        }
    }

    fn ignore_from(&mut self, file: std::fs::File, path: &RelPath, depth: usize) {
        let mut bytes = Vec::new();
        let read = file
            .take(IGNORE_FILE_MAX as u64 + 1)
            .read_to_end(&mut bytes);
        if read.is_err() || bytes.len() > IGNORE_FILE_MAX {
            return;
        }
        let mut builder = GitignoreBuilder::new("/");
        for line in String::from_utf8_lossy(&bytes).lines() {
            // A line that is no pattern matches nothing, as for git.
            let _ = builder.add_line(None, line);
        }
        let _ = path;
        if let Ok(matcher) = builder.build() {
            self.ignores.push((depth, matcher));
        }
    }

    /// The deepest file that has something to say decides.
    fn is_ignored(&self, path: &RelPath, is_dir: bool) -> bool {
        let parts: Vec<&str> = path.parts().collect();
        for (depth, matcher) in self.ignores.iter().rev() {
            let below = format!("/{}", parts[*depth..].join("/"));
            match matcher.matched(&below, is_dir) {
                ignore::Match::None => {}
                ignore::Match::Ignore(_) => return true,
                ignore::Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
