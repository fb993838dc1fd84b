//! What a person or a script sees.
//!
//! - JSON alone on standard output with `--json`; otherwise plain tables and text.
//! - A reader that goes away (`| head`) ends the output, not the command: its exit code stays true.
//! - `NO_COLOR`, pipes and dumb terminals get no colour.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize;
use serde_json::Value;

use super::exit::Failure;

/// Where a command's data and notes go.
pub struct Out {
    json: bool,
    quiet: Cell<bool>,
}

impl Out {
    /// JSON or text.
    pub fn new(json: bool) -> Self {
        Out {
            json,
            quiet: Cell::new(false),
        }
    }

    /// The same streams, but always JSON.
    pub fn always_json(self) -> Self {
        Out { json: true, ..self }
    }

    /// Standard output carries JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Shows a value: itself as JSON, or what `text` makes of it.
    pub fn show(&self, value: &Value, text: impl FnOnce(&Value) -> String) {
        if self.json {
            self.data(&json_text(value));
        } else {
            self.data(text(value).trim_end_matches('\n'));
        }
    }

    /// One piece of data and a line end.
    pub fn data(&self, text: &str) {
        if self.quiet.get() {
            return;
        }
        let mut stdout = anstream::stdout().lock();
        let written = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
        if written.is_err() {
            self.quiet.set(true);
        }
    }

    /// A remark for the person, never data.
    pub fn note(&self, text: &str) {
        to_stderr(text);
    }

    /// Reports a failure: the document for scripts, words for people.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            self.data(&json_text(&failure.to_json()));
        }
        let label = "bazilion:".red();
        to_stderr(&format!("{label} {failure} [{}]", visible(failure.code())));
        for line in failure.lines() {
            to_stderr(&format!("  {line}"));
        }
    }
}

/// Writes a line to standard error; a closed one is no reason to stop.
pub fn to_stderr(text: &str) {
    let mut stderr = anstream::stderr().lock();
    if writeln!(stderr, "{text}").is_err() {
        // Nobody reads it, and there is nowhere else to say so.
    }
}

/// A person watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// JSON with every character that could steer a terminal written as an escape. Still the same value.
pub fn json_text(value: &Value) -> String {
    let plain = serde_json::to_string_pretty(value).unwrap_or_else(|_| "null".into());
    let mut text = String::with_capacity(plain.len());
    for c in plain.chars() {
        // `serde_json` escaped C0 already; those left are the line breaks of the layout.
        if c != '\n' && steers(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a String can not fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Text from outside with its control characters made visible; line breaks and tabs stay.
pub fn visible(text: &str) -> String {
    escape(text, |c| c == '\n' || c == '\t')
}

/// The same for one line of a table or a label: line breaks are made visible too.
pub fn visible_line(text: &str) -> String {
    escape(text, |_| false)
}

/// A command's output as plain text: colours are dropped, everything else that could act is made visible.
pub fn plain_output(text: &str) -> String {
    visible(&without_colour(text))
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if keep(c) || !steers(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if u32::from(c) < 0x100 => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
        }
    }
    shown
}

/// C0, DEL and C1 controls, line separators, and what turns the direction of text around or hides in it.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Drops `ESC [ digits ; … m`; a sequence that is not exactly that stays and becomes visible.
fn without_colour(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        plain.push_str(before);
        let body = &sequence[2..];
        let end = body.find(|c: char| !c.is_ascii_digit() && c != ';' && c != ':');
        match end {
            Some(end) if body[end..].starts_with('m') => rest = &body[end + 1..],
            _ => {
                plain.push('\u{1b}');
                rest = &sequence[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// A column of a table: its title and where its value lies in an item (JSON pointer).
pub type Column = (&'static str, &'static str);

/// A list answer (`{items}`) as a table; an empty one says so.
pub fn table(list: &Value, columns: &[Column]) -> String {
    let items = list.get("items").and_then(Value::as_array);
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return "(none)".into();
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.iter().map(|(title, _)| *title));
    for item in items {
        table.add_row(columns.iter().map(|(_, pointer)| cell(item, pointer)));
    }
    let lines = table.lines();
    // The style pads each cell by one column on both sides.
    let lines = lines.map(|line| {
        line.strip_prefix(" ")
            .unwrap_or(&line)
            .trim_end()
            .to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One thing as `name  value` lines; absent values are left out.
pub fn card(thing: &Value, rows: &[Column]) -> String {
    let width = rows.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, pointer) in rows {
        let shown = cell(thing, pointer);
        if !shown.is_empty() {
            let _ = writeln!(text, "{title:<width$}  {shown}");
        }
    }
    text
}

/// A value in one line, control characters made visible; nothing for `null` and what is not there.
pub fn cell(item: &Value, pointer: &str) -> String {
    match item.pointer(pointer) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => visible_line(text),
        Some(Value::Bool(true)) => "yes".into(),
        Some(Value::Bool(false)) => "no".into(),
        Some(Value::Array(items)) => {
            let shown = items.iter().map(|item| cell(item, ""));
            shown.collect::<Vec<_>>().join(", ")
        }
        Some(other) => visible_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn control_characters_from_outside_are_made_visible() {
        let hostile = "a\u{1b}]0;title\u{7}b\rc\u{9b}31md\u{202e}e\u{0}";
        assert_eq!(
            visible(hostile),
            "a\\x1b]0;title\\x07b\\rc\\x9b31md\\u{202e}e\\x00"
        );
    }

    #[test]
    fn text_keeps_its_lines_and_a_table_cell_does_not() {
        assert_eq!(visible("one\n\ttwo"), "one\n\ttwo");
        assert_eq!(visible_line("one\n\ttwo"), "one\\n\\ttwo");
    }

    #[test]
    fn json_can_not_steer_a_terminal_and_is_the_same_value() {
        let value = json!({"text": "\u{9b}2J \u{202e} \u{e0001} \u{7f} é"});
        let text = json_text(&value);
        assert!(!text.chars().any(|c| c != '\n' && steers(c)), "{text:?}");
        assert!(text.contains('é'));
        let again: Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(again, value);
    }

    #[test]
    fn d99_command_output_is_plain_text() {
        let output = "\u{1b}[1;31mFAILED\u{1b}[0m\u{1b}[2K\u{1b}]8;;http://x\u{7}10%\r100%\u{202e}";
        assert_eq!(
            plain_output(output),
            "FAILED\\x1b[2K\\x1b]8;;http://x\\x0710%\\r100%\\u{202e}"
        );
    }

    #[test]
    fn an_unfinished_colour_sequence_stays_visible() {
        assert_eq!(plain_output("x\u{1b}[31"), "x\\x1b[31");
    }

    #[test]
    fn a_table_has_a_line_for_each_item_and_an_empty_one_says_so() {
        let list = json!({"items": [{"id": "1", "name": "a\nb"}, {"id": "2", "name": null}]});
        let shown = table(&list, &[("ID", "/id"), ("NAME", "/name")]);
        assert_eq!(shown.lines().count(), 3);
        assert!(shown.contains("a\\nb"));
        assert_eq!(table(&json!({"items": []}), &[("ID", "/id")]), "(none)");
    }
}
