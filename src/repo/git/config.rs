//! The few settings that decide what counts as changed, taken over into a configuration of our own.
//!
//! - Values are read as what they mean and written anew; no text of the repository's file is copied.
//! - What would change the answer and is not carried over makes the state unavailable instead of wrong.

use gix::bstr::ByteSlice;
use gix::config::file::{Metadata, SectionRef, init::Options};

use super::super::report::{Issue, IssueCode};

/// Switches of `[core]` that are carried over.
const SWITCHES: [&str; 4] = ["filemode", "ignorecase", "symlinks", "precomposeunicode"];

/// Our configuration for a repository with this one. `worktree` is where its files are.
pub fn ours(theirs: &[u8], worktree: &str) -> Result<String, Issue> {
    let file =
        gix::config::File::from_bytes_no_includes(theirs, Metadata::default(), Options::default())
            .map_err(|_| unsupported("its configuration could not be read"))?;
    let mut core = vec![
        ("repositoryformatversion".to_owned(), "0".to_owned()),
        ("bare".to_owned(), "false".to_owned()),
        ("logallrefupdates".to_owned(), "false".to_owned()),
        ("safecrlf".to_owned(), "false".to_owned()),
        ("worktree".to_owned(), quoted(worktree)),
    ];
    for section in file.sections() {
        take(&section, &mut core)?;
    }
    let lines: String = core
        .iter()
        .map(|(key, value)| format!("\t{key} = {value}\n"))
        .collect();
    Ok(format!("[core]\n{lines}"))
}

fn take(section: &SectionRef<'_>, core: &mut Vec<(String, String)>) -> Result<(), Issue> {
    let name = section.header().name().to_str_lossy().to_ascii_lowercase();
    match name.as_str() {
        "include" | "includeif" => {
            return Err(unsupported("it includes other configuration files"));
        }
        "filter" => return Err(unsupported("it defines content filters")),
        "extensions" => return extensions(section),
        "core" if section.header().subsection_name().is_none() => {}
        _ => return Ok(()),
    }
    for key in section.value_names() {
        let key = key.to_ascii_lowercase();
        let last = section.value_implicit(&key).flatten();
        let value = last
            .as_ref()
            .map(|value| value.to_str_lossy().to_ascii_lowercase());
        match key.as_str() {
            "worktree" | "attributesfile" | "excludesfile" => {
                return Err(unsupported("it points to files outside its own directory"));
            }
            "bare" if boolean(value.as_deref())? => {
                return Err(unsupported("it says that it has no working tree"));
            }
            "repositoryformatversion" if !matches!(value.as_deref(), Some("0" | "1")) => {
                return Err(unsupported("its format version is not 0 or 1"));
            }
            key if SWITCHES.contains(&key) => {
                set(core, key, boolean(value.as_deref())?.to_string())
            }
            "autocrlf" => {
                let value = match value.as_deref() {
                    Some("input") => "input".to_owned(),
                    other => boolean(other)?.to_string(),
                };
                set(core, &key, value);
            }
            "eol" => match value.as_deref() {
                Some(value @ ("lf" | "crlf" | "native")) => set(core, &key, value.to_owned()),
                _ => return Err(unsupported("its core.eol is none of lf, crlf and native")),
            },
            _ => {}
        }
    }
    Ok(())
}

fn extensions(section: &SectionRef<'_>) -> Result<(), Issue> {
    for key in section.value_names() {
        let value = section
            .value(&key)
            .map(|value| value.to_str_lossy().to_ascii_lowercase());
        match (key.to_ascii_lowercase().as_str(), value.as_deref()) {
            ("objectformat", Some("sha1")) | ("noop", _) => {}
            ("objectformat", _) => return Err(unsupported("its object format is not SHA-1")),
            _ => return Err(unsupported("it uses an extension of Git's format")),
        }
    }
    Ok(())
}

/// The last one counts, as for git.
fn set(core: &mut Vec<(String, String)>, key: &str, value: String) {
    core.retain(|(other, _)| other != key);
    core.push((key.to_owned(), value));
}

/// Git's booleans; a key without a value is true.
fn boolean(value: Option<&str>) -> Result<bool, Issue> {
    match value {
        None | Some("true" | "yes" | "on" | "1") => Ok(true),
        Some("false" | "no" | "off" | "0" | "") => Ok(false),
        Some(other) => match other.parse::<i64>() {
            Ok(number) => Ok(number != 0),
            Err(_) => Err(unsupported(
                "a switch of its [core] section is neither true nor false",
            )),
        },
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn unsupported(why: &str) -> Issue {
    Issue::new(
        IssueCode::UnsupportedGitConfiguration,
        format!("The repository's Git configuration is not one that is read here: {why}."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn helpers_and_monitors_are_left_out() {
        let theirs = b"[core]\n\tfsmonitor = /tmp/evil\n\thooksPath = x\n\tFileMode = no\n\tautocrlf\n[diff]\n\texternal = evil\n[credential]\nhelper = evil\n";
        let ours = ours(theirs, "/w").unwrap();
        assert!(!ours.contains("evil") && !ours.contains("fsmonitor") && !ours.contains("hooks"));
        assert!(ours.contains("filemode = false") && ours.contains("autocrlf = true"));
    }

    #[test]
    fn what_would_make_the_answer_wrong_is_refused() {
        for theirs in [
            "[include]\npath = /etc/passwd\n",
            "[includeIf \"gitdir:/\"]\npath = x\n",
            "[filter \"lfs\"]\nclean = git-lfs\n",
            "[core]\nworktree = /etc\n",
            "[core]\nattributesFile = x\n",
            "[core]\nexcludesFile = x\n",
            "[core]\nbare = true\n",
            "[core]\neol = what\n",
            "[core]\nautocrlf = perhaps\n",
            "[core]\nrepositoryformatversion = 7\n",
            "[extensions]\nobjectFormat = sha256\n",
            "[extensions]\nworktreeConfig = true\n",
            "[core\n",
        ] {
            let issue = ours(theirs.as_bytes(), "/w").unwrap_err();
            assert_eq!(
                issue.code,
                IssueCode::UnsupportedGitConfiguration,
                "{theirs}"
            );
        }
        assert!(ours(b"[extensions]\nobjectformat = sha1\n", "/w").is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in "[\\[\\]a-z\"\\\\ =\n#;.]{0,80}") {
            if let Ok(text) = ours(bytes.as_bytes(), "/w") {
                prop_assert!(text.starts_with("[core]\n"));
            }
        }
    }
}
