//! The output of one command, as it is kept: redacted, harmless, and its end only.
//!
//! - Order of the steps: secrets out, controls made visible, then the last 64 KiB. Redaction is never after trimming.
//! - The tail begins at a whole character, and never in the middle of a style.
//! - Memory is bounded, whatever the command writes.

use serde::{Deserialize, Serialize};

use super::redact::{Redactor, Secrets};
use super::styling::Cleaner;
use crate::limits::OUTPUT_TAIL;

/// What a receipt holds of a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputTail {
    /// Text with styles (`ESC [ … m`) and nothing else that a terminal would act on. At most 64 KiB.
    pub tail: String,
    /// Bytes that the command wrote.
    pub bytes_total: u64,
    /// Whether the beginning was dropped.
    pub truncated: bool,
}

/// Output under way.
#[derive(Debug)]
pub struct Output {
    redactor: Redactor,
    cleaner: Cleaner,
    text: String,
    bytes_total: u64,
    truncated: bool,
    /// Kept between chunks, so that a flood allocates nothing.
    redacted: Vec<u8>,
}

impl Output {
    pub fn new(secrets: Secrets) -> Self {
        Self {
            redactor: Redactor::new(secrets),
            cleaner: Cleaner::default(),
            text: String::new(),
            bytes_total: 0,
            truncated: false,
            redacted: Vec::new(),
        }
    }

    /// Takes the next bytes of the command.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes_total += chunk.len() as u64;
        self.redacted.clear();
        self.redactor.push(chunk, &mut self.redacted);
        self.cleaner.push(&self.redacted, &mut self.text);
        // Trimming moves what is kept, so it is not done for every chunk.
        if self.text.len() > 4 * OUTPUT_TAIL {
            self.trim();
        }
    }

    /// The tail so far. What could still become a secret is not in it yet.
    pub fn so_far(&mut self) -> OutputTail {
        self.trim();
        OutputTail {
            tail: self.text.clone(),
            bytes_total: self.bytes_total,
            truncated: self.truncated,
        }
    }

    /// The command ended.
    pub fn finish(mut self) -> OutputTail {
        self.redacted.clear();
        self.redactor.finish(&mut self.redacted);
        self.cleaner.push(&self.redacted, &mut self.text);
        self.cleaner.finish(&mut self.text);
        self.trim();
        OutputTail {
            tail: self.text,
            bytes_total: self.bytes_total,
            truncated: self.truncated,
        }
    }

    fn trim(&mut self) {
        let Some(over) = self
            .text
            .len()
            .checked_sub(OUTPUT_TAIL)
            .filter(|over| *over > 0)
        else {
            return;
        };
        let mut cut = self.text.ceil_char_boundary(over);
        // A style's own bytes are ASCII: if one was begun before the cut and not ended, it is dropped whole.
        if let Some(begun) = self.text[..cut].rfind('\x1b')
            && let Some(end) = self.text[begun..].find('m')
        {
            cut = cut.max(begun + end + 1);
        }
        self.text.drain(..cut);
        self.truncated = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(secrets: &[&str], chunks: &[&[u8]]) -> OutputTail {
        let mut output = Output::new(Secrets::new(secrets).unwrap());
        for chunk in chunks {
            output.push(chunk);
        }
        output.finish()
    }

    #[test]
    fn short_output_is_whole() {
        let kept = output(&[], &[b"one\n", b"two\n"]);
        assert_eq!(kept.tail, "one\ntwo\n");
        assert_eq!((kept.bytes_total, kept.truncated), (8, false));
    }

    #[test]
    fn d096_the_end_is_kept_and_the_cut_is_told() {
        let mut output = Output::new(Secrets::none());
        for line in 0..1_000_000 {
            output.push(format!("{line:09}\n").as_bytes());
        }
        output.push(b"error: the last line\n");
        let kept = output.finish();
        assert!(kept.tail.ends_with("error: the last line\n"));
        assert!(kept.truncated);
        assert_eq!(kept.bytes_total, 10_000_021);
        assert_eq!(kept.tail.len(), OUTPUT_TAIL);
    }

    #[test]
    fn the_tail_begins_at_a_whole_character() {
        let text = "€".repeat(OUTPUT_TAIL);
        let kept = output(&[], &[text.as_bytes()]);
        assert_eq!(kept.tail.len(), OUTPUT_TAIL - 1);
        assert!(kept.tail.chars().all(|c| c == '€'));
    }

    #[test]
    fn a_secret_at_the_edge_of_the_tail_leaves_nothing() {
        let secret = "S3CRET-value";
        for before in 0..=secret.len() {
            let mut text = format!("head {secret}");
            text.push_str(&"x".repeat(OUTPUT_TAIL - before));
            let kept = output(&[secret], &[text.as_bytes()]);
            assert!(!kept.tail.contains("value"), "{before}");
            assert!(!kept.tail.contains("S3C"), "{before}");
        }
    }

    #[test]
    fn the_cut_is_never_inside_a_style() {
        for before in 0..8 {
            let mut text = String::from("xxxx\x1b[1;31m");
            text.push_str(&"y".repeat(OUTPUT_TAIL - before));
            let kept = output(&[], &[text.as_bytes()]);
            let first = kept
                .tail
                .trim_start_matches("\x1b[1;31m")
                .trim_start_matches('x');
            assert!(
                first.trim_start_matches("\x1b[1;31m").starts_with('y'),
                "{before}"
            );
        }
    }

    #[test]
    fn a_tail_under_way_holds_back_what_may_become_a_secret() {
        let mut output = Output::new(Secrets::new(["secret"]).unwrap());
        output.push(b"a secr");
        assert!(!output.so_far().tail.contains("secr"));
        output.push(b"et b");
        assert_eq!(output.finish().tail, "a [redacted] b");
    }

    #[test]
    fn d103_text_without_known_secrets_is_untouched() {
        let kept = output(&["other"], &[b"set password=hunter2 in test.env"]);
        assert_eq!(kept.tail, "set password=hunter2 in test.env");
    }
}
