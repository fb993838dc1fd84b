//! What a failed command probably lacked, read from its output.
//!
//! - A hint is advice for the Agent, never a decision: nothing is provisioned, repeated or moved because of one.
//! - The subject is a word from the output: a host, a package, a program, a path. At most one hint of a kind and subject.

use serde::{Deserialize, Serialize};

/// Most hints of one command.
const HINTS_MAX: usize = 5;
/// Lines looked at, from the end.
const LINES_MAX: usize = 400;
/// Longest subject, in characters.
const SUBJECT_MAX: usize = 120;

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintCode {
    NetworkDisabled,
    ToolMissing,
    PermissionDenied,
}

/// One hint on a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    pub code: HintCode,
    pub subject: String,
}

/// Reads hints from plain output (see [`super::styling::plain`]). A command that succeeded lacked nothing. Without a
/// network only `network_disabled` makes sense of a failed connection, so the posture must be told.
pub fn hints(output: &str, succeeded: bool, network_disabled: bool) -> Vec<Hint> {
    if succeeded {
        return Vec::new();
    }
    let lines: Vec<&str> = output.lines().collect();
    let from = lines.len().saturating_sub(LINES_MAX);
    let mut found: Vec<Hint> = Vec::new();
    for line in &lines[from..] {
        let hint = match (
            missing_tool(line),
            network_disabled.then(|| unreachable(line)).flatten(),
        ) {
            (Some(subject), _) => Some((HintCode::ToolMissing, subject)),
            (None, Some(subject)) => Some((HintCode::NetworkDisabled, subject)),
            (None, None) => denied(line).map(|subject| (HintCode::PermissionDenied, subject)),
        };
        let Some((code, subject)) = hint else {
            continue;
        };
        let hint = Hint {
            code,
            subject: subject.chars().take(SUBJECT_MAX).collect(),
        };
        if !found.contains(&hint) && found.len() < HINTS_MAX {
            found.push(hint);
        }
    }
    found
}

/// `sh: 1: cargo: not found` and its relatives.
fn missing_tool(line: &str) -> Option<&str> {
    let line = line.trim();
    for ending in [
        ": command not found",
        ": not found",
        ": No such file or directory",
    ] {
        if let Some(before) = line.strip_suffix(ending) {
            let shell = [
                "sh: ",
                "/bin/sh: ",
                "bash: ",
                "env: ",
                "/usr/bin/env: ",
                "make: ",
            ]
            .iter()
            .any(|start| before.starts_with(start));
            let name = before.rsplit(": ").next()?;
            return (shell && is_program(name)).then(|| unquoted(name));
        }
    }
    None
}

fn is_program(name: &str) -> bool {
    let name = unquoted(name);
    // A path that does not exist is a file, not a tool; only bare names are looked for in the image.
    !name.is_empty() && !name.contains(['/', ' '])
}

/// Marks of a program that looked for a network.
const NETWORK: [&str; 16] = [
    "ENOTFOUND",
    "EAI_AGAIN",
    "ENETUNREACH",
    "getaddrinfo",
    "Could not resolve host",
    "Couldn't resolve host",
    "Could not resolve hostname",
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "Name or service not known",
    "failed to lookup address",
    "Network is unreachable",
    "network is unreachable",
    "no such host",
    "Failed to establish a new connection",
    "unable to resolve host address",
];

/// The host or package that a failed connection was for.
fn unreachable(line: &str) -> Option<&str> {
    // What a package manager misses says more than the host it asked.
    for before in [
        "No matching distribution found for ",
        "failed to get `",
        "failed to download `",
    ] {
        if let Some((_, rest)) = line.split_once(before) {
            return first_word(rest);
        }
    }
    if !NETWORK.iter().any(|mark| line.contains(mark)) {
        return None;
    }
    if let Some((_, rest)) = line.split_once("://") {
        let end = rest.find(|c: char| c.is_whitespace() || "'\"`)<>,".contains(c));
        let address = &rest[..end.unwrap_or(rest.len())];
        return Some(package_of(address.trim_end_matches(['.', ':', ';'])));
    }
    for before in [
        "resolve hostname ",
        "resolve host: ",
        "resolve host address ",
        "getaddrinfo ENOTFOUND ",
        "getaddrinfo EAI_AGAIN ",
        "lookup ",
        "host='",
        "Temporary failure resolving '",
    ] {
        if let Some(word) = line
            .split_once(before)
            .and_then(|(_, rest)| first_word(rest))
        {
            return Some(word);
        }
    }
    Some("network")
}

/// `registry.example/left-pad` names a package beside its host; keep both, without a query.
fn package_of(address: &str) -> &str {
    address.split(['?', '#']).next().unwrap_or(address)
}

/// `cat: /x: Permission denied`.
fn denied(line: &str) -> Option<&str> {
    let mark = [
        "Permission denied",
        "permission denied",
        "Operation not permitted",
        "Read-only file system",
        "EACCES",
        "EROFS",
    ]
    .into_iter()
    .find(|mark| line.contains(mark))?;
    let (before, after) = line.split_once(mark)?;
    // Python and Node name the path after the mark, in quotes; shells name it before.
    let quoted = after
        .split(['\'', '"'])
        .nth(1)
        .filter(|text| text.contains('/'));
    let named = before
        .trim_end_matches([':', ' ', '('])
        .rsplit(": ")
        .next()
        .map(|text| unquoted(text.rsplit(' ').next().unwrap_or(text)));
    quoted
        .or(named)
        .filter(|text| !text.is_empty())
        .or(Some("file"))
}

fn first_word(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| c.is_whitespace() || "'\"`,;)".contains(c))
        .unwrap_or(text.len());
    let word = text[..end].trim_end_matches([':', '.']);
    (!word.is_empty()).then_some(word)
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(|c| matches!(c, '\'' | '"' | '`' | '‘' | '’'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(output: &str) -> (HintCode, String) {
        let found = hints(output, false, true);
        assert_eq!(found.len(), 1, "{found:?}");
        (found[0].code, found[0].subject.clone())
    }

    #[test]
    fn a_missing_program_is_named() {
        for output in [
            "sh: 1: cargo: not found",
            "/bin/sh: cargo: not found",
            "sh: line 1: cargo: command not found",
            "env: 'cargo': No such file or directory",
            "/usr/bin/env: ‘cargo’: No such file or directory",
            "make: cargo: No such file or directory",
            "/bin/sh: 1: cargo: not found",
        ] {
            assert_eq!(
                only(output),
                (HintCode::ToolMissing, "cargo".into()),
                "{output}"
            );
        }
    }

    #[test]
    fn a_missing_file_is_no_missing_program() {
        assert!(hints("cat: notes.txt: No such file or directory", false, true).is_empty());
        assert!(hints("sh: 1: ./run.sh: not found", false, true).is_empty());
        assert!(hints("Error: module not found", false, true).is_empty());
    }

    #[test]
    fn d061_a_download_without_network_names_what_it_wanted() {
        let cases = [
            (
                "npm error request to https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org",
                "registry.npmjs.org/left-pad",
            ),
            (
                "curl: (6) Could not resolve host: example.com",
                "example.com",
            ),
            (
                "ERROR: No matching distribution found for requests",
                "requests",
            ),
            (
                "fatal: unable to access 'https://example.com/a.git/': Could not resolve host: example.com",
                "example.com/a.git/",
            ),
            (
                "ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
                "example.com",
            ),
            (
                "error: failed to get `serde` as a dependency of package `x`",
                "serde",
            ),
            (
                "dial tcp: lookup proxy.golang.org: no such host",
                "proxy.golang.org",
            ),
            ("connect: Network is unreachable", "network"),
        ];
        for (output, subject) in cases {
            assert_eq!(
                only(output),
                (HintCode::NetworkDisabled, subject.into()),
                "{output}"
            );
        }
    }

    #[test]
    fn a_refused_path_is_named() {
        let cases = [
            ("cat: /etc/shadow: Permission denied", "/etc/shadow"),
            ("touch: /x: Read-only file system", "/x"),
            (
                "PermissionError: [Errno 13] Permission denied: '/memory/a'",
                "/memory/a",
            ),
            (
                "Error: EACCES: permission denied, open '/skills/a'",
                "/skills/a",
            ),
            (
                "sh: 1: cannot create /memory/x: Read-only file system",
                "/memory/x",
            ),
        ];
        for (output, subject) in cases {
            assert_eq!(
                only(output),
                (HintCode::PermissionDenied, subject.into()),
                "{output}"
            );
        }
    }

    #[test]
    fn success_and_an_open_network_give_no_network_hint() {
        let output = "curl: (6) Could not resolve host: example.com";
        assert!(hints(output, true, true).is_empty());
        assert!(hints(output, false, false).is_empty());
    }

    #[test]
    fn repeated_and_endless_hints_are_few() {
        let same = "sh: 1: cargo: not found\n".repeat(50);
        assert_eq!(hints(&same, false, true).len(), 1);
        let many: String = (0..50)
            .map(|n| format!("sh: 1: tool{n}: not found\n"))
            .collect();
        assert_eq!(hints(&many, false, true).len(), HINTS_MAX);
    }
}
