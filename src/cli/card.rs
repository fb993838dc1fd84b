//! A command's receipt as a card in a terminal: what ran, how it ended, and the end of its output.

use std::fmt::Write as _;

use serde_json::Value;

use crate::console::output::{cell, plain_output, visible_line};
use crate::limits;

/// The whole card, ending in a line break.
pub fn receipt(receipt: &Value) -> String {
    let mut card = String::new();
    let purpose = cell(receipt, "/input/purpose");
    let command = cell(receipt, "/input/command");
    // Writing to a String can not fail.
    let _ = writeln!(card, "── {purpose}: {command}");
    let _ = writeln!(card, "   {}", ending(receipt));
    for line in tail(receipt) {
        let _ = writeln!(card, "   │ {line}");
    }
    for hint in receipt
        .get("hints")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let _ = writeln!(
            card,
            "   hint: {} {}",
            cell(hint, "/code"),
            cell(hint, "/subject")
        );
    }
    let _ = writeln!(card, "   receipt {}", cell(receipt, "/id"));
    card
}

/// Whether the command still runs.
pub fn is_running(receipt: &Value) -> bool {
    receipt.get("state").and_then(Value::as_str) == Some("running")
}

/// State, exit, time and posture in one line.
fn ending(receipt: &Value) -> String {
    let mut parts = vec![cell(receipt, "/state").replace('_', " ")];
    let mut part = |label: &str, pointer: &str| {
        let shown = cell(receipt, pointer);
        if !shown.is_empty() {
            parts.push(format!("{label}{shown}"));
        }
    };
    part("exit ", "/exitCode");
    part("signal ", "/signal");
    part("", "/reason");
    if let Some(ms) = receipt.get("durationMs").and_then(Value::as_u64) {
        parts.push(format!("{}.{} s", ms / 1000, ms % 1000 / 100));
    }
    let posture = cell(receipt, "/environment/posture");
    if !posture.is_empty() {
        parts.push(posture);
    }
    match cell(receipt, "/cleanup").as_str() {
        "" | "confirmed" => {}
        other => parts.push(format!("cleanup {other}")),
    }
    parts.join(" · ")
}

/// The last lines of the output; a first line says how much is folded away.
fn tail(receipt: &Value) -> Vec<String> {
    let text = receipt
        .pointer("/output/tail")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let hidden = lines.len().saturating_sub(limits::CLI_CARD_LINES);
    let dropped = receipt
        .pointer("/output/truncated")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let cut = receipt
        .pointer("/output/truncated")
        .and_then(Value::as_bool)
        .unwrap_or(dropped > 0);
    let mut shown = Vec::new();
    match (hidden, cut) {
        (0, false) => {}
        (0, true) => shown.push("… earlier output was not kept".into()),
        (hidden, _) => shown.push(format!("… {hidden} earlier lines")),
    }
    shown.extend(lines.iter().skip(hidden).map(|line| plain_output(line)));
    shown
}

/// A list of receipts, newest first, as the server orders them.
pub const COLUMNS: &[crate::console::output::Column] = &[
    ("RECEIPT", "/id"),
    ("PURPOSE", "/input/purpose"),
    ("STATE", "/state"),
    ("EXIT", "/exitCode"),
    ("STARTED", "/startedAt"),
    ("COMMAND", "/input/command"),
];

/// One line about a command that has begun.
pub fn begun(receipt: &Value) -> String {
    let command = cell(receipt, "/input/command");
    format!("running: {}", visible_line(&command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_card_shows_the_end_of_a_long_output() {
        let tail: String = (1..=50).map(|n| format!("line {n}\n")).collect();
        let shown = receipt(&json!({
            "id": "r1", "state": "timed_out", "exitCode": null, "signal": "KILL", "durationMs": 3210,
            "input": {"purpose": "test", "command": "cargo test\n--lib"},
            "environment": {"posture": "docker"}, "cleanup": "confirmed",
            "output": {"tail": tail, "truncated": 0},
        }));
        assert_inert(&shown);
        assert!(shown.contains("── test: cargo test\\n--lib\n"));
        assert!(shown.contains("timed out · signal KILL · 3.2 s · docker"));
        assert!(shown.contains("… 30 earlier lines"));
        assert!(shown.contains("│ line 50\n"));
        assert!(!shown.contains("line 30\n"));
    }

    #[test]
    fn d99_hostile_output_is_inert_on_the_card() {
        let shown = receipt(&json!({
            "id": "r", "state": "succeeded",
            "output": {"tail": "\u{1b}[32mok\u{1b}[0m\u{1b}]0;owned\u{7}\r\u{202e}"},
        }));
        assert_inert(&shown);
        assert!(shown.contains("│ ok\\x1b]0;owned\\x07\\r\\u{202e}"));
    }

    #[test]
    fn cleanup_that_is_not_confirmed_is_said() {
        let shown = receipt(&json!({"id": "r", "state": "interrupted", "cleanup": "uncertain"}));
        assert!(shown.contains("interrupted · cleanup uncertain"));
    }

    fn assert_inert(shown: &str) {
        let harmless = |c: char| c == '\n' || !c.is_control();
        assert!(shown.chars().all(harmless), "{shown:?}");
    }
}
