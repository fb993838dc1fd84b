//! Token counts, read off a model's event stream while it passes.
//!
//! Nothing here can hold up or change the stream: what cannot be read is not counted.

use serde_json::Value;

use crate::limits::MODEL_EVENT_MAX;
use crate::runtime::{ModelApi, Usage};

/// Watches one answer.
pub(super) struct UsageScan {
    api: ModelApi,
    line: Vec<u8>,
    /// Counts of an Anthropic answer come in two parts.
    begun: Usage,
    /// Some providers repeat growing counts; only what is new is told.
    told: Usage,
}

impl UsageScan {
    pub(super) fn new(api: ModelApi) -> Self {
        Self {
            api,
            line: Vec::new(),
            begun: Usage::default(),
            told: Usage::default(),
        }
    }

    /// Takes the next bytes; returns what they add to the counts.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<Usage> {
        let mut found: Option<Usage> = None;
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            if self.line.len() + piece.len() <= MODEL_EVENT_MAX {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                found = self.event().or(found);
                self.line.clear();
            }
        }
        let total = found?;
        let new = Usage {
            input: total.input.saturating_sub(self.told.input),
            output: total.output.saturating_sub(self.told.output),
            cache_read: total.cache_read.saturating_sub(self.told.cache_read),
            cache_write: total.cache_write.saturating_sub(self.told.cache_write),
        };
        self.told = total;
        (new != Usage::default()).then_some(new)
    }

    fn event(&mut self) -> Option<Usage> {
        let data = self.line.strip_prefix(b"data:")?;
        if !data.windows(7).any(|w| w == b"\"usage\"") {
            return None;
        }
        let event: Value = serde_json::from_slice(data).ok()?;
        match self.api {
            ModelApi::OpenaiCompletions => openai(event.get("usage")?),
            ModelApi::AnthropicMessages => self.anthropic(&event),
        }
    }

    fn anthropic(&mut self, event: &Value) -> Option<Usage> {
        if let Some(usage) = event.pointer("/message/usage") {
            self.begun = Usage {
                input: count(usage, "/input_tokens"),
                output: count(usage, "/output_tokens"),
                cache_read: count(usage, "/cache_read_input_tokens"),
                cache_write: count(usage, "/cache_creation_input_tokens"),
            };
            return None;
        }
        let usage = event.get("usage")?;
        Some(Usage {
            output: count(usage, "/output_tokens"),
            ..self.begun
        })
    }
}

fn openai(usage: &Value) -> Option<Usage> {
    usage.as_object()?;
    let cached = count(usage, "/prompt_tokens_details/cached_tokens");
    Some(Usage {
        input: count(usage, "/prompt_tokens").saturating_sub(cached),
        output: count(usage, "/completion_tokens"),
        cache_read: cached,
        cache_write: 0,
    })
}

fn count(usage: &Value, pointer: &str) -> u64 {
    usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_a_stream_cut_anywhere() {
        let stream = b"data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4,\
            \"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n";
        for cut in 0..stream.len() {
            let mut scan = UsageScan::new(ModelApi::OpenaiCompletions);
            let found = [scan.feed(&stream[..cut]), scan.feed(&stream[cut..])];
            let expected = Usage {
                input: 7,
                output: 4,
                cache_read: 3,
                cache_write: 0,
            };
            assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn both_parts_of_the_other_protocol_are_added_up() {
        let mut scan = UsageScan::new(ModelApi::AnthropicMessages);
        let first =
            "data: {\"message\":{\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":2}}}\n";
        assert!(scan.feed(first.as_bytes()).is_none());
        let last = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n";
        let expected = Usage {
            input: 5,
            output: 9,
            cache_read: 2,
            cache_write: 0,
        };
        assert_eq!(scan.feed(last.as_bytes()), Some(expected));
    }
}
