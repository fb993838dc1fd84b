//! What a failed command seems to lack, read from the end of its output: advice, never a verdict.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::limits;

/// A kind of missing prerequisite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HintCode {
    NetworkDisabled,
    ToolMissing,
    PermissionDenied,
}

/// What is missing, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Hint {
    pub code: HintCode,
    pub subject: String,
}

static PATTERNS: LazyLock<Vec<(HintCode, Regex)>> = LazyLock::new(|| {
    use HintCode::{NetworkDisabled, PermissionDenied, ToolMissing};
    let table = [
        (NetworkDisabled, r"request to (\S+) failed"),
        (NetworkDisabled, r"No matching distribution found for (\S+)"),
        (NetworkDisabled, r"failed to download from `([^`]+)`"),
        (NetworkDisabled, r"(?i)could not resolve host:? ([\w.-]+)"),
        (NetworkDisabled, r"(?:EAI_AGAIN|ENOTFOUND) ([\w.-]+)"),
        (NetworkDisabled, r"dial tcp: lookup ([\w.-]+)"),
        (
            NetworkDisabled,
            r"(Temporary failure in name resolution|Network is unreachable|Name or service not known)",
        ),
        (
            ToolMissing,
            r"(?m)^(?:/bin/)?(?:sh|bash|dash): (?:line )?\d+: (\S+): (?:command )?not found",
        ),
        (
            ToolMissing,
            r"(?m)^(?:/bin/)?(?:sh|bash): (\S+): (?:command )?not found",
        ),
        (
            ToolMissing,
            r"env: [‘'`]?([^\s’'`:]+)[’'`]?: No such file or directory",
        ),
        (
            PermissionDenied,
            r"(?m)([^\s:'‘]+)['’]?: (?:Permission denied|Read-only file system)",
        ),
    ];
    table
        .into_iter()
        .filter_map(|(code, pattern)| Some((code, Regex::new(pattern).ok()?)))
        .collect()
});

/// Hints from a failed command's output, each once, in the order of the table.
pub fn read(tail: &str) -> Vec<Hint> {
    let mut hints: Vec<Hint> = Vec::new();
    for (code, pattern) in PATTERNS.iter() {
        for found in pattern.captures_iter(tail) {
            let subject: String = found
                .get(1)
                .map_or("", |m| m.as_str())
                .chars()
                .take(200)
                .collect();
            let hint = Hint {
                code: *code,
                subject,
            };
            if hints.len() < limits::HINTS_MAX && !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d61_what_is_missing_is_named() {
        let cases = [
            (
                "npm ERR! request to https://registry.example.org/left-pad failed, reason: getaddrinfo",
                HintCode::NetworkDisabled,
                "https://registry.example.org/left-pad",
            ),
            (
                "ERROR: No matching distribution found for flask",
                HintCode::NetworkDisabled,
                "flask",
            ),
            (
                "/bin/sh: 1: cargo: not found",
                HintCode::ToolMissing,
                "cargo",
            ),
            (
                "sh: 1: gradle: not found\n",
                HintCode::ToolMissing,
                "gradle",
            ),
            (
                "bash: line 1: foo: command not found",
                HintCode::ToolMissing,
                "foo",
            ),
            (
                "touch: cannot touch '/etc/x': Read-only file system",
                HintCode::PermissionDenied,
                "/etc/x",
            ),
        ];
        for (text, code, subject) in cases {
            let hints = read(text);
            assert_eq!(
                hints.first().map(|h| (h.code, h.subject.as_str())),
                Some((code, subject)),
                "{text}"
            );
        }
        assert!(read("1 test failed").is_empty());
    }
}
