//! Takes secret values out of a stream of bytes.
//!
//! - No chunk split lets a secret through: bytes are held back until no secret can begin in them any more.
//! - Overlapping secrets are taken out together, so that no end of one is left by the removal of another.
//! - Redaction comes before any trimming; a secret cut by the edge of a tail would leave its second half.

use aho_corasick::{AhoCorasick, MatchKind};

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// The values to take out; built once per turn and shared by its commands.
#[derive(Clone)]
pub struct Secrets {
    automaton: Option<AhoCorasick>,
    longest: usize,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    /// Empty values are left out. `None` when the set is too large to search for (some four billion states).
    pub fn new<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> Option<Self> {
        let values: Vec<T> = values
            .into_iter()
            .filter(|value| !value.as_ref().is_empty())
            .collect();
        let longest = values
            .iter()
            .map(|value| value.as_ref().len())
            .max()
            .unwrap_or(0);
        if values.is_empty() {
            return Some(Self::none());
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&values)
            .ok()?;
        Some(Self {
            automaton: Some(automaton),
            longest,
        })
    }

    pub fn none() -> Self {
        Self {
            automaton: None,
            longest: 0,
        }
    }

    /// Whether a text holds a secret: such a command is refused before it starts.
    pub fn found_in(&self, text: &[u8]) -> bool {
        self.automaton
            .as_ref()
            .is_some_and(|automaton| automaton.is_match(text))
    }

    /// A whole text at once, for errors and diagnostics.
    pub fn redact(&self, text: &str) -> String {
        let mut redactor = Redactor::new(self.clone());
        let mut out = Vec::new();
        redactor.push(text.as_bytes(), &mut out);
        redactor.finish(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// One stream under redaction.
#[derive(Debug)]
pub struct Redactor {
    secrets: Secrets,
    /// Bytes in which a secret may still begin, or continue.
    held: Vec<u8>,
    /// So many bytes at the start of `held` belong to a secret that has been marked already.
    covered: usize,
}

impl Redactor {
    pub fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            held: Vec::new(),
            covered: 0,
        }
    }

    /// Takes a chunk; appends what is certain to `out`.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        if self.secrets.automaton.is_none() {
            out.extend_from_slice(chunk);
            return;
        }
        self.held.extend_from_slice(chunk);
        let decided = (self.held.len() + 1).saturating_sub(self.secrets.longest);
        self.emit(decided, out);
    }

    /// The stream ended: everything held back is decided.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.emit(self.held.len(), out);
    }

    /// Writes the first `decided` bytes: every secret that begins in them lies wholly in `held`.
    fn emit(&mut self, decided: usize, out: &mut Vec<u8>) {
        let Some(automaton) = &self.secrets.automaton else {
            return;
        };
        // Spans of secrets, in order, merged; the first one may continue a marked one.
        let mut spans: Vec<(usize, usize)> = Vec::new();
        if self.covered > 0 {
            spans.push((0, self.covered));
        }
        for found in automaton.find_overlapping_iter(&self.held) {
            if found.start() < decided {
                insert(&mut spans, found.start(), found.end());
            }
        }
        let marked = self.covered > 0;
        let mut at = 0;
        for (index, &(start, end)) in spans.iter().enumerate() {
            out.extend_from_slice(&self.held[at.min(start)..start]);
            if !(marked && index == 0) {
                out.extend_from_slice(REDACTED.as_bytes());
            }
            at = end;
        }
        if at < decided {
            out.extend_from_slice(&self.held[at..decided]);
        }
        self.covered = at.saturating_sub(decided);
        self.held.drain(..decided);
    }
}

/// Matches come in the order of their ends: a new span joins the last ones that it overlaps.
fn insert(spans: &mut Vec<(usize, usize)>, mut start: usize, mut end: usize) {
    while let Some(&(earlier, until)) = spans.last() {
        if until <= start {
            break;
        }
        (start, end) = (start.min(earlier), end.max(until));
        spans.pop();
    }
    spans.push((start, end));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_chunks(secrets: &Secrets, text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut redactor = Redactor::new(secrets.clone());
        let mut out = Vec::new();
        let mut at = 0;
        for &cut in cuts {
            let cut = cut.clamp(at, text.len());
            redactor.push(&text[at..cut], &mut out);
            at = cut;
        }
        redactor.push(&text[at..], &mut out);
        redactor.finish(&mut out);
        out
    }

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(values).unwrap()
    }

    #[test]
    fn c015_a_secret_split_at_any_byte_is_redacted() {
        let secrets = secrets(&["sk-verysecret", "tok"]);
        let text = b"before sk-verysecret after tok.";
        for cut in 0..text.len() {
            assert_eq!(
                in_chunks(&secrets, text, &[cut]),
                b"before [redacted] after [redacted].",
                "{cut}"
            );
        }
        let every: Vec<usize> = (0..text.len()).collect();
        assert_eq!(
            in_chunks(&secrets, text, &every),
            b"before [redacted] after [redacted]."
        );
    }

    #[test]
    fn overlapping_secrets_leave_no_end_behind() {
        let secrets = secrets(&["abcd", "cdef", "cd"]);
        assert_eq!(secrets.redact("xabcdefy"), "x[redacted]y");
        assert_eq!(
            in_chunks(&secrets, b"xabcdefy", &[1, 2, 3, 4, 5, 6, 7]),
            b"x[redacted]y"
        );
    }

    #[test]
    fn secrets_side_by_side_are_two() {
        assert_eq!(secrets(&["ab"]).redact("abab"), "[redacted][redacted]");
    }

    #[test]
    fn text_without_secrets_is_untouched() {
        assert_eq!(secrets(&["abc"]).redact("ab ac bc abd"), "ab ac bc abd");
        assert_eq!(Secrets::new([""]).unwrap().redact("plain"), "plain");
        assert!(!secrets(&["abc"]).found_in(b"ab c"));
        assert!(secrets(&["abc"]).found_in(b"xabcx"));
    }

    proptest! {
        #[test]
        fn no_secret_survives_any_chunking(
            values in prop::collection::vec("[ab]{1,6}", 1..5),
            text in "[abc]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..12),
        ) {
            let secrets = Secrets::new(&values).unwrap();
            let mut cuts = cuts;
            cuts.sort_unstable();
            let whole = in_chunks(&secrets, text.as_bytes(), &[]);
            let split = in_chunks(&secrets, text.as_bytes(), &cuts);
            prop_assert_eq!(&whole, &split);
            let left = String::from_utf8(split).unwrap().replace(REDACTED, "\n");
            for value in &values {
                prop_assert!(!left.contains(value.as_str()), "{value} in {left}");
            }
            // Only what belongs to a secret is taken.
            let mut kept = String::new();
            for (at, c) in text.char_indices() {
                let covered = values.iter().any(|v| (0..v.len()).any(|back| {
                    at.checked_sub(back).is_some_and(|from| text[from..].starts_with(v.as_str()))
                }));
                if !covered { kept.push(c); }
            }
            prop_assert_eq!(left.replace('\n', ""), kept);
        }
    }
}
