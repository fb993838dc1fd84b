//! A command's output on its way to a receipt: secrets out, control sequences inert, the end kept.
//!
//! - A secret is found wherever the chunks were split.
//! - Colour stays as it is (it is inert styling); every other control character and sequence becomes visible text, so
//!   no viewer's title, cursor or reading order is changed.
//! - Kept is the last part, beginning at a whole character, with the number of bytes in all.
//! - Memory is bounded, whatever a command writes.

use aho_corasick::{AhoCorasick, MatchKind};
use secrecy::{ExposeSecret as _, SecretString};

use crate::limits;

/// What stands where a secret was.
const REDACTED: &str = "[redacted]";

/// Every secret that must not appear: of the home, and the instance's own.
pub struct Redaction {
    /// None when there is nothing to look for.
    automaton: Option<AhoCorasick>,
    longest: usize,
}

impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction").finish_non_exhaustive()
    }
}

impl Redaction {
    /// Of a structured secret (a JSON text) its string leaves are looked for too, each by itself.
    pub fn new(secrets: &[SecretString]) -> Self {
        let mut patterns: Vec<String> = Vec::new();
        for secret in secrets {
            let text = secret.expose_secret().trim();
            patterns.push(text.to_owned());
            if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
                leaves(&value, &mut patterns);
            }
        }
        patterns.retain(|p| p.len() >= limits::REDACT_MIN);
        patterns.sort();
        patterns.dedup();
        let longest = patterns.iter().map(String::len).max().unwrap_or(0);
        let automaton = (longest > 0)
            .then(|| {
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(&patterns)
                    .ok()
            })
            .flatten();
        Self { automaton, longest }
    }

    /// Whether the text holds a known secret.
    pub fn finds(&self, text: &str) -> bool {
        self.automaton.as_ref().is_some_and(|a| a.is_match(text))
    }

    /// The text without secrets.
    pub fn clean(&self, text: &str) -> String {
        let mut stream = Stream::default();
        let mut out = stream.push(self, text.as_bytes());
        out.extend(stream.finish(self));
        String::from_utf8_lossy(&out).into_owned()
    }
}

fn leaves(value: &serde_json::Value, patterns: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => patterns.push(text.trim().to_owned()),
        serde_json::Value::Array(items) => items.iter().for_each(|item| leaves(item, patterns)),
        serde_json::Value::Object(map) => map.values().for_each(|item| leaves(item, patterns)),
        _ => {}
    }
}

/// Redacts a stream: what could still become a secret is held back.
#[derive(Default)]
struct Stream {
    held: Vec<u8>,
}

impl Stream {
    fn push(&mut self, redaction: &Redaction, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        // A match that begins before this point lies wholly inside what is held.
        let safe = self
            .held
            .len()
            .saturating_sub(redaction.longest.saturating_sub(1));
        self.take(redaction, safe)
    }

    fn finish(&mut self, redaction: &Redaction) -> Vec<u8> {
        let all = self.held.len();
        self.take(redaction, all)
    }

    fn take(&mut self, redaction: &Redaction, safe: usize) -> Vec<u8> {
        let Some(automaton) = &redaction.automaton else {
            return std::mem::take(&mut self.held);
        };
        let (mut out, mut done) = (Vec::with_capacity(safe), 0);
        for found in automaton.find_iter(&self.held) {
            if found.start() >= safe {
                break;
            }
            out.extend_from_slice(&self.held[done..found.start()]);
            out.extend_from_slice(REDACTED.as_bytes());
            done = found.end();
        }
        let end = safe.max(done);
        out.extend_from_slice(&self.held[done..end]);
        self.held.drain(..end);
        out
    }
}

/// Where the text reader stands in a control sequence.
#[derive(Default)]
enum State {
    #[default]
    Ground,
    /// After ESC, or inside its CSI: what was read since.
    Escape(String),
}

/// Collects the output of one command.
pub struct Output<'a> {
    redaction: &'a Redaction,
    stream: Stream,
    /// Bytes of a character that is not complete yet.
    partial: Vec<u8>,
    state: State,
    carriage: bool,
    kept: String,
    total: u64,
}

/// What is kept of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub tail: String,
    /// Bytes of all that was written, as shown; what was dropped is the difference to the tail.
    pub bytes_total: u64,
    pub truncated: bool,
}

/// Longest styling sequence that is kept as it is.
const STYLE_MAX: usize = 64;

impl<'a> Output<'a> {
    pub fn new(redaction: &'a Redaction) -> Self {
        Self {
            redaction,
            stream: Stream::default(),
            partial: Vec::new(),
            state: State::Ground,
            carriage: false,
            kept: String::new(),
            total: 0,
        }
    }

    /// Takes a chunk as it came.
    pub fn push(&mut self, chunk: &[u8]) {
        let clean = self.stream.push(self.redaction, chunk);
        self.decode(&clean, false);
        self.trim();
    }

    /// The tail so far; what could still become a secret is not in it.
    pub fn so_far(&self) -> Kept {
        Kept {
            tail: self.kept[self.start()..].to_owned(),
            bytes_total: self.total,
            truncated: self.total > (self.kept.len() - self.start()) as u64,
        }
    }

    /// The command has ended: everything held back is written.
    pub fn finish(mut self) -> Kept {
        let clean = self.stream.finish(self.redaction);
        self.decode(&clean, true);
        if let State::Escape(seen) = std::mem::take(&mut self.state) {
            self.emit_visible(&seen);
        }
        if std::mem::take(&mut self.carriage) {
            self.emit('\u{240d}');
        }
        self.trim();
        self.so_far()
    }

    fn decode(&mut self, bytes: &[u8], last: bool) {
        let mut buffer = std::mem::take(&mut self.partial);
        buffer.extend_from_slice(bytes);
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    text.chars().for_each(|c| self.read(c));
                    rest = &[];
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    String::from_utf8_lossy(good)
                        .chars()
                        .for_each(|c| self.read(c));
                    match error.error_len() {
                        None if !last => {
                            self.partial = bad.to_vec();
                            return;
                        }
                        length => {
                            self.read('\u{fffd}');
                            rest = &bad[length.unwrap_or(bad.len())..];
                        }
                    }
                }
            }
        }
    }

    fn read(&mut self, c: char) {
        if std::mem::take(&mut self.carriage) && c != '\n' {
            self.emit('\u{240d}');
        }
        match std::mem::take(&mut self.state) {
            State::Ground if c == '\u{1b}' => self.state = State::Escape(String::from(c)),
            State::Ground => self.plain(c),
            State::Escape(mut seen) => {
                let inside = if seen.len() == 1 {
                    c == '['
                } else {
                    c.is_ascii_digit() || c == ';' || c == ':'
                };
                if inside && seen.len() < STYLE_MAX {
                    seen.push(c);
                    self.state = State::Escape(seen);
                } else if seen.len() > 1 && c == 'm' {
                    seen.push(c);
                    seen.chars().for_each(|c| self.emit(c));
                } else {
                    self.emit_visible(&seen);
                    self.read(c);
                }
            }
        }
    }

    fn plain(&mut self, c: char) {
        match c {
            '\n' | '\t' => self.emit(c),
            '\r' => self.carriage = true,
            '\0'..='\u{1f}' => self.emit(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => self.emit('\u{2421}'),
            // C1 controls, and characters that change the reading order.
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => format!("<U+{:04X}>", c as u32)
                .chars()
                .for_each(|c| self.emit(c)),
            _ => self.emit(c),
        }
    }

    fn emit_visible(&mut self, seen: &str) {
        seen.chars()
            .for_each(|c| self.emit(if c == '\u{1b}' { '\u{241b}' } else { c }));
    }

    fn emit(&mut self, c: char) {
        self.kept.push(c);
        self.total += c.len_utf8() as u64;
    }

    /// Keeps memory bounded; twice the limit, so that not every chunk moves the text.
    fn trim(&mut self) {
        if self.kept.len() > 2 * limits::OUTPUT_TAIL {
            let start = self.start();
            self.kept.drain(..start);
        }
    }

    /// Where the tail begins: at a whole character, and not inside a styling sequence.
    fn start(&self) -> usize {
        let Some(mut start) = self
            .kept
            .len()
            .checked_sub(limits::OUTPUT_TAIL)
            .filter(|start| *start > 0)
        else {
            return 0;
        };
        while !self.kept.is_char_boundary(start) {
            start += 1;
        }
        let mut before = start.saturating_sub(STYLE_MAX);
        while !self.kept.is_char_boundary(before) {
            before += 1;
        }
        let unfinished = self.kept[before..start]
            .rfind('\u{1b}')
            .filter(|at| !self.kept[before + at..start].contains('m'));
        match unfinished {
            Some(_) => self.kept[start..]
                .find('m')
                .map_or(start, |at| start + at + 1),
            None => start,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redaction(secrets: &[&str]) -> Redaction {
        Redaction::new(
            &secrets
                .iter()
                .map(|s| SecretString::from(*s))
                .collect::<Vec<_>>(),
        )
    }

    fn collect(redaction: &Redaction, chunks: &[&[u8]]) -> Kept {
        let mut output = Output::new(redaction);
        chunks.iter().for_each(|chunk| output.push(chunk));
        output.finish()
    }

    #[test]
    fn c015_a_secret_is_redacted_at_every_split() {
        let redaction = redaction(&["sk-héllo-secret", "sk-h"]);
        let text = "key=sk-héllo-secret; sk-h sk-".as_bytes();
        for split in 0..=text.len() {
            let kept = collect(&redaction, &[&text[..split], &text[split..]]);
            assert_eq!(
                kept.tail, "key=[redacted]; [redacted] sk-",
                "split at {split}"
            );
        }
    }

    #[test]
    fn c017_the_leaves_of_a_structured_credential_are_redacted_one_by_one() {
        let redaction = redaction(&[r#"{"access": "aaaa1111", "nested": ["bbbb2222"], "n": 5}"#]);
        let kept = collect(&redaction, &[b"aaaa1111 bbbb2222 5"]);
        assert_eq!(kept.tail, "[redacted] [redacted] 5");
    }

    #[test]
    fn d96_the_end_is_kept_and_the_size_is_told() {
        let redaction = redaction(&[]);
        let mut output = Output::new(&redaction);
        for n in 0..200_000 {
            output.push(format!("line {n} with some text around it for size\n").as_bytes());
        }
        output.push("the error: ü\n".as_bytes());
        let kept = output.finish();
        assert!(kept.tail.ends_with("the error: ü\n"));
        assert!(kept.tail.len() <= limits::OUTPUT_TAIL && kept.truncated);
        assert!(kept.bytes_total > 9_000_000);
    }

    #[test]
    fn d99_colour_stays_and_everything_else_becomes_visible() {
        let redaction = redaction(&[]);
        let kept = collect(
            &redaction,
            &[
                b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07 \x1b[2K 10%\r20%\r\n",
                "\u{202e}x\u{9b}\0".as_bytes(),
                b"\x1b[",
            ],
        );
        assert_eq!(
            kept.tail,
            "\x1b[1;31mred\x1b[0m \u{241b}]0;title\u{2407} \u{241b}[2K 10%\u{240d}20%\n<U+202E>x<U+009B>\u{2400}\u{241b}["
        );
    }

    proptest! {
        #[test]
        fn the_split_of_the_chunks_never_shows(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let redaction = redaction(&["abcd", "bcde1"]);
            let cut = cut.min(bytes.len());
            let whole = collect(&redaction, &[&bytes]);
            prop_assert_eq!(whole, collect(&redaction, &[&bytes[..cut], &bytes[cut..]]));
        }
    }
}
