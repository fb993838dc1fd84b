//! Command suggestions: what the repository's own files say about how it is built and tested.
//!
//! - A suggestion is evidence: neither approved nor tested. Nothing is run, no workspace glob is expanded.
//! - A file that breaks a limit is named and the rest stays; the instructions are never touched by it.

use serde_json::Value;

use super::markdown;
use super::report::{
    Candidate, CandidateKind, Commands, Issue, IssueCode, PackageManager, Source, State,
};
use super::scope::{Content, Reading, Scope, ScopeDir, Watch};
use crate::limits::{
    COMMAND_CANDIDATE_MAX_CHARS, COMMAND_CANDIDATES_MAX, COMMAND_SOURCE_MAX, COMMAND_SOURCES_MAX,
    COMMAND_SOURCES_TOTAL_MAX,
};

/// Sources of one directory, in order.
pub const SOURCE_NAMES: [&str; 4] = [
    "package.json",
    "pnpm-workspace.yaml",
    "README.md",
    "CONTRIBUTING.md",
];

/// Directories that hold dependencies, generated files, or the Team's memory.
const SKIPPED: [&str; 7] = [
    "node_modules",
    ".git",
    "dist",
    "build",
    "coverage",
    ".next",
    ".bazilion",
];

/// Whether a directory may hold sources of suggestions.
pub fn is_source_dir(dir: &ScopeDir) -> bool {
    dir.path.parts().all(|part| !SKIPPED.contains(&part))
}

/// Reads the section; [`revalidate`] ends it.
pub fn read(scope: &Scope, watch: &mut Watch) -> Commands {
    let mut gather = Gather::default();
    let dirs = scope
        .dirs
        .iter()
        .enumerate()
        .filter(|(_, dir)| is_source_dir(dir));
    'dirs: for (index, dir) in dirs {
        for name in SOURCE_NAMES {
            let path = dir.path.join(name).as_str().to_owned();
            match scope.read(watch, index, name, COMMAND_SOURCE_MAX) {
                Reading::Absent => {}
                reading if gather.sources.len() >= COMMAND_SOURCES_MAX => {
                    drop(reading);
                    gather.refuse(IssueCode::SourceCountLimit, path, "More than 32 files.");
                    break 'dirs;
                }
                Reading::Content(content) => gather.source(name, path, dir.path.as_str(), content),
                other => gather.unusable(other, path),
            }
        }
    }
    gather.finish()
}

/// Looks at everything again: what changed meanwhile empties the section.
pub fn revalidate(section: Commands, scope: &Scope, watch: &Watch) -> Commands {
    if scope.is_unchanged(watch) {
        return section;
    }
    Commands::blocked(
        Issue::new(
            IssueCode::SourceChanged,
            "A file that suggestions are read from changed during the capture.",
        )
        .fix("Ask again."),
    )
}

#[derive(Default)]
struct Gather {
    sources: Vec<Source>,
    candidates: Vec<Candidate>,
    /// What two candidates have in common when they conflict.
    names: Vec<String>,
    issues: Vec<Issue>,
    total: usize,
    is_full: bool,
}

/// A source while its candidates are taken.
struct Origin<'a> {
    path: &'a str,
    sha256: &'a str,
    cwd: &'a str,
}

impl Gather {
    fn source(&mut self, name: &str, path: String, cwd: &str, content: Content) {
        if self.total + content.bytes.len() > COMMAND_SOURCES_TOTAL_MAX {
            let why = "With this file the sources are larger than 256 KiB together.";
            return self.refuse(IssueCode::SourceTotalLimit, path, why);
        }
        self.total += content.bytes.len();
        self.sources.push(Source {
            path: path.clone(),
            sha256: content.sha256.clone(),
        });
        let from = Origin {
            path: &path,
            sha256: &content.sha256,
            cwd,
        };
        match name {
            "package.json" => self.manifest(&from, &content.bytes),
            "pnpm-workspace.yaml" => {}
            _ => match std::str::from_utf8(&content.bytes) {
                Ok(text) => self.markdown(&from, text),
                Err(_) => self.refuse(IssueCode::Unreadable, path, "It is not UTF-8."),
            },
        }
    }

    fn manifest(&mut self, from: &Origin<'_>, bytes: &[u8]) {
        let Some(manifest) = Manifest::parse(bytes) else {
            let why = "It is not a JSON object whose `scripts` is an object.";
            return self.refuse(IssueCode::InvalidManifest, from.path.to_owned(), why);
        };
        for (name, body) in &manifest.scripts {
            let conflict = format!("script {name}");
            self.candidate(
                from,
                Candidate {
                    source: from.path.to_owned(),
                    sha256: from.sha256.to_owned(),
                    location: format!("scripts.{name}"),
                    cwd: from.cwd.to_owned(),
                    kind: CandidateKind::Script,
                    command: body.clone(),
                    package_manager: manifest.package_manager,
                    conflicts_with: Vec::new(),
                },
                conflict,
            );
        }
    }

    fn markdown(&mut self, from: &Origin<'_>, text: &str) {
        for excerpt in markdown::excerpts(text) {
            let mut words = excerpt.command.split_whitespace();
            let first = words.next().unwrap_or_default();
            let conflict = format!("excerpt {first} {}", words.next().unwrap_or_default());
            let package_manager = manager(first);
            self.candidate(
                from,
                Candidate {
                    source: from.path.to_owned(),
                    sha256: from.sha256.to_owned(),
                    location: format!("line {}", excerpt.line),
                    cwd: from.cwd.to_owned(),
                    kind: CandidateKind::Excerpt,
                    command: excerpt.command,
                    package_manager,
                    conflicts_with: Vec::new(),
                },
                conflict,
            );
        }
    }

    fn candidate(&mut self, from: &Origin<'_>, candidate: Candidate, name: String) {
        if candidate.command.chars().count() > COMMAND_CANDIDATE_MAX_CHARS {
            let why = format!(
                "{} is longer than 4,096 characters.",
                shorten(&candidate.location)
            );
            return self.refuse(IssueCode::CommandLimit, from.path.to_owned(), &why);
        }
        if self.candidates.len() >= COMMAND_CANDIDATES_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                let why = "More than 32 suggestions; the rest is not shown.";
                self.refuse(IssueCode::CandidateLimit, from.path.to_owned(), why);
            }
            return;
        }
        self.candidates.push(candidate);
        self.names.push(name);
    }

    fn refuse(&mut self, code: IssueCode, path: String, why: &str) {
        let repeated = self
            .issues
            .iter()
            .any(|issue| issue.code == code && issue.path.as_deref() == Some(&path));
        if !repeated {
            self.issues.push(Issue::new(code, why).at(path));
        }
    }

    fn unusable(&mut self, reading: Reading, path: String) {
        let (code, why) = match reading {
            Reading::Absent | Reading::Content(_) => return,
            Reading::Link => (IssueCode::UnsafeFile, "It is a symbolic link."),
            Reading::Special => (IssueCode::UnsafeFile, "It is not a regular file."),
            Reading::TooLarge => (IssueCode::ByteLimit, "It is larger than 64 KiB."),
            Reading::Changed => (IssueCode::SourceChanged, "It changed while it was read."),
            Reading::Failed => (IssueCode::Unreadable, "It could not be read."),
        };
        self.refuse(code, path, why);
    }

    fn finish(mut self) -> Commands {
        for one in 0..self.candidates.len() {
            let conflicts = (0..self.candidates.len())
                .filter(|two| *two != one && self.names[*two] == self.names[one])
                .filter(|two| self.says_otherwise(one, *two))
                .collect();
            self.candidates[one].conflicts_with = conflicts;
        }
        let state = if self.issues.is_empty() {
            State::Complete
        } else {
            State::Incomplete
        };
        if self
            .issues
            .iter()
            .any(|issue| issue.code == IssueCode::SourceChanged)
        {
            self.sources.clear();
            self.candidates.clear();
        }
        Commands {
            state,
            sources: self.sources,
            candidates: self.candidates,
            issues: self.issues,
        }
    }

    fn says_otherwise(&self, one: usize, two: usize) -> bool {
        let (one, two) = (&self.candidates[one], &self.candidates[two]);
        one.command != two.command || one.package_manager != two.package_manager
    }
}

/// What a `package.json` says here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Manifest {
    scripts: Vec<(String, String)>,
    package_manager: Option<PackageManager>,
}

impl Manifest {
    fn parse(bytes: &[u8]) -> Option<Manifest> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let Value::Object(manifest) = serde_json::from_slice(bytes).ok()? else {
            return None;
        };
        let scripts = match manifest.get("scripts") {
            None => Vec::new(),
            Some(Value::Object(scripts)) => scripts
                .iter()
                .filter_map(|(name, body)| Some((name.clone(), body.as_str()?.to_owned())))
                .collect(),
            Some(_) => return None,
        };
        let package_manager = manifest
            .get("packageManager")
            .and_then(Value::as_str)
            .and_then(|text| text.split_once('@'))
            .and_then(|(name, _)| manager(name));
        Some(Manifest {
            scripts,
            package_manager,
        })
    }
}

fn manager(name: &str) -> Option<PackageManager> {
    match name {
        "npm" => Some(PackageManager::Npm),
        "pnpm" => Some(PackageManager::Pnpm),
        "yarn" => Some(PackageManager::Yarn),
        _ => None,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn d94_odd_keys_keep_their_order_and_the_last_duplicate_wins() {
        let text = br#"{"scripts":{"====":"a","z z":"b","====":"c","n":5,"\ud83d\ude00":"d\n\u001b[31m"}}"#;
        let manifest = Manifest::parse(text).unwrap();
        let scripts: Vec<_> = manifest
            .scripts
            .iter()
            .map(|(n, b)| (n.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            scripts,
            [("====", "c"), ("z z", "b"), ("😀", "d\n\u{1b}[31m")]
        );
    }

    #[test]
    fn the_package_manager_is_taken_from_its_prefix_only() {
        let of = |text: &str| Manifest::parse(text.as_bytes()).unwrap().package_manager;
        assert_eq!(
            of(r#"{"packageManager":"pnpm@9.1.0"}"#),
            Some(PackageManager::Pnpm)
        );
        assert_eq!(of(r#"{"packageManager":"pnpm"}"#), None);
        assert_eq!(of(r#"{"packageManager":"bun@1"}"#), None);
        assert_eq!(of(r#"{"packageManager":7}"#), None);
    }

    #[test]
    fn deep_nesting_is_an_invalid_manifest_and_no_overflow() {
        let text = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert_eq!(Manifest::parse(text.as_bytes()), None);
        let text = format!("{{\"scripts\":{}", "{\"a\":".repeat(10_000));
        assert_eq!(Manifest::parse(text.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::parse(&bytes);
        }

        #[test]
        fn near_json_is_read_without_harm(text in r#"[{}\[\]",:\\a-c0-9 u]{0,80}"#) {
            let _ = Manifest::parse(format!("{{\"scripts\":{{{text}}}}}").as_bytes());
        }
    }
}
