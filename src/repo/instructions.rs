//! `AGENTS.md` from the root down to the target.
//!
//! - Only files of exactly that name, in directories on the way to the target: no siblings, nothing above the root, no
//!   includes.
//! - A file that breaks a rule is named and no byte of it is shown; the section is then incomplete.
//! - Bytes are kept as they are: a byte-order mark and CRLF are content.

use super::paths::{LinkTarget, Root, link_target};
use super::report::{InstructionFile, Instructions, Issue, IssueCode, State};
use super::scope::{Content, Reading, Scope, Watch};
use crate::limits::{INSTRUCTION_FILE_MAX, INSTRUCTIONS_TOTAL_MAX};

/// The name, exactly.
pub const FILE_NAME: &str = "AGENTS.md";

/// Reads the section; [`revalidate`] ends it.
pub fn read(root: &Root, scope: &Scope, watch: &mut Watch) -> Instructions {
    let mut files = Vec::new();
    let mut issues = Vec::new();
    let mut total = 0;
    for (index, dir) in scope.dirs.iter().enumerate() {
        let path = dir.path.join(FILE_NAME).as_str().to_owned();
        match scope.read(watch, index, FILE_NAME, INSTRUCTION_FILE_MAX) {
            Reading::Absent => {}
            Reading::Content(content) if total + content.bytes.len() > INSTRUCTIONS_TOTAL_MAX => {
                issues.push(too_much_together(path));
            }
            Reading::Content(Content { bytes, sha256 }) => match String::from_utf8(bytes) {
                Ok(content) => {
                    total += content.len();
                    files.push(InstructionFile {
                        path,
                        scope: dir.path.as_str().to_owned(),
                        precedence: index as u32,
                        sha256,
                        content,
                    });
                }
                Err(_) => issues.push(not_utf8(path)),
            },
            Reading::Link => issues.push(link(path, link_target(root, &dir.path, FILE_NAME))),
            other => issues.extend(unusable(other, path)),
        }
    }
    if issues
        .iter()
        .any(|issue| issue.code == IssueCode::SourceChanged)
    {
        files.clear();
    }
    let state = if issues.is_empty() {
        State::Complete
    } else {
        State::Incomplete
    };
    Instructions {
        state,
        files,
        issues,
    }
}

/// Looks at everything again: what changed meanwhile empties the section.
pub fn revalidate(section: Instructions, scope: &Scope, watch: &Watch) -> Instructions {
    if scope.is_unchanged(watch) {
        return section;
    }
    Instructions {
        state: State::Incomplete,
        files: Vec::new(),
        issues: section
            .issues
            .into_iter()
            .filter(|issue| issue.code != IssueCode::SourceChanged)
            .chain([Issue::new(
                IssueCode::SourceChanged,
                "An instruction file or a directory of the scope changed during the capture.",
            )
            .fix("Ask again.")])
            .collect(),
    }
}

fn unusable(reading: Reading, path: String) -> Option<Issue> {
    let issue = match reading {
        Reading::Absent | Reading::Content(_) | Reading::Link => return None,
        Reading::Special => Issue::new(IssueCode::UnsafeFile, "It is not a regular file.")
            .fix("Commit a regular file of that name, or remove it."),
        Reading::TooLarge => Issue::new(IssueCode::ByteLimit, "It is larger than 64 KiB.")
            .fix("Shorten it to at most 65,536 bytes, or move parts into deeper directories."),
        Reading::Changed => {
            Issue::new(IssueCode::SourceChanged, "It changed while it was read.").fix("Ask again.")
        }
        Reading::Failed => Issue::new(IssueCode::Unreadable, "It could not be read.")
            .fix("Make it readable for the Team's user."),
    };
    Some(issue.at(path))
}

fn link(path: String, target: LinkTarget) -> Issue {
    let message = match target {
        LinkTarget::Inside => "It is a symbolic link; its target lies inside the Team's root.",
        LinkTarget::Outside => "It is a symbolic link; its target lies outside the Team's root.",
        LinkTarget::Missing => "It is a symbolic link; its target does not exist.",
    };
    Issue::new(IssueCode::UnsafeFile, message)
        .at(path)
        .fix("Replace the link by a regular file with the same content, and commit that.")
}

fn not_utf8(path: String) -> Issue {
    Issue::new(IssueCode::Unreadable, "It is not UTF-8.")
        .at(path)
        .fix("Save it as UTF-8.")
}

fn too_much_together(path: String) -> Issue {
    Issue::new(
        IssueCode::InstructionTotalLimit,
        "With this file the instructions of the scope are larger than 128 KiB together.",
    )
    .at(path)
    .fix("Shorten the instruction files on the way to the target.")
}
