//! Pi's RPC: one JSON object per line, line feeds only.
//!
//! - The commands are a closed set: what is not in [`Command`] cannot be sent, above all Pi's own `bash`.
//! - The reader is tolerant: unknown records are skipped, unknown fields are ignored.
//! - Lines split at LF alone (U+2028 is text) and may be as long as [`PI_LINE_MAX`].

use std::borrow::Cow;

use bytes::{Buf as _, BytesMut};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::limits::PI_LINE_MAX;
use crate::runtime::Image;

/// Everything that is ever said to Pi.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Command {
    GetState,
    GetCommands,
    Prompt {
        message: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageInput>,
    },
    ClearQueue,
    Abort,
}

/// An image as Pi takes it.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "image")]
pub(super) struct ImageInput {
    #[serde(flatten)]
    image: Image,
}

impl From<Image> for ImageInput {
    fn from(image: Image) -> Self {
        Self { image }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: String,
    #[serde(flatten)]
    command: &'a Command,
}

/// The line for a command, line feed included.
pub(super) fn encode(id: u64, command: &Command) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Envelope {
        id: id.to_string(),
        command,
    })?;
    line.push(b'\n');
    Ok(line)
}

/// A line of Pi's, as far as it means something here.
#[derive(Debug)]
pub(super) enum Record {
    Response {
        id: u64,
        result: Result<Value, String>,
    },
    Event {
        kind: String,
        body: Value,
    },
}

/// Reads one line; what is no record of ours is nothing.
pub(super) fn decode(line: &[u8]) -> Option<Record> {
    let mut body: Value = serde_json::from_slice(&mend_surrogates(line)).ok()?;
    let kind = body.get("type")?.as_str()?.to_owned();
    if kind != "response" {
        return Some(Record::Event { kind, body });
    }
    let id = body.get("id")?.as_str()?.parse().ok()?;
    let result = if body.get("success").and_then(Value::as_bool) == Some(true) {
        Ok(body.get_mut("data").map(Value::take).unwrap_or(Value::Null))
    } else {
        let error = body.get("error").and_then(Value::as_str);
        Err(error.unwrap_or("no reason given").to_owned())
    };
    Some(Record::Response { id, result })
}

/// Replaces the escapes of unpaired surrogates by U+FFFD, because JSON readers refuse them. Only for reading: what is
/// stored stays as Pi wrote it.
pub(super) fn mend_surrogates(line: &[u8]) -> Cow<'_, [u8]> {
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(found) = line
        .get(at..)
        .and_then(|r| r.iter().position(|b| *b == b'\\'))
    {
        let escape = at + found;
        let width = match unit_at(line, escape) {
            None => 2,
            Some(high) if is_high(high) && unit_at(line, escape + 6).is_some_and(is_low) => 12,
            Some(unit) if is_high(unit) || is_low(unit) => {
                let text = mended.get_or_insert_with(|| line.to_vec());
                text[escape + 2..escape + 6].copy_from_slice(b"FFFD");
                6
            }
            Some(_) => 6,
        };
        at = escape + width;
    }
    mended.map_or(Cow::Borrowed(line), Cow::Owned)
}

/// The code unit of a `\uXXXX` escape that starts at `at`.
fn unit_at(line: &[u8], at: usize) -> Option<u16> {
    let digits = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

fn is_high(unit: u16) -> bool {
    (0xD800..0xDC00).contains(&unit)
}

fn is_low(unit: u16) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

/// Lines of a stream. Nothing is lost when [`LineReader::next`] is dropped half-way.
pub(super) struct LineReader<R> {
    source: R,
    buffer: BytesMut,
    /// Bytes of `buffer` that are known to hold no line feed.
    searched: usize,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            buffer: BytesMut::with_capacity(64 * 1024),
            searched: 0,
        }
    }

    /// The next complete line without its line feed; nothing at the end of the stream, where a torn line is dropped.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<BytesMut>> {
        loop {
            if let Some(found) = self.buffer[self.searched..]
                .iter()
                .position(|b| *b == b'\n')
            {
                let line = self.buffer.split_to(self.searched + found);
                self.buffer.advance(1);
                self.searched = 0;
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            if self.searched > PI_LINE_MAX {
                return Err(std::io::Error::other("a line is longer than 64 MiB"));
            }
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prompt_is_one_line_with_its_id() {
        let line = encode(
            7,
            &Command::Prompt {
                message: "a\n\u{2028}\0".into(),
                images: vec![],
            },
        );
        let line = line.unwrap();
        assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["id"], "7");
        assert_eq!(value["type"], "prompt");
        assert_eq!(value["message"], "a\n\u{2028}\0");
        assert!(value.get("images").is_none());
    }

    #[test]
    fn lone_surrogates_become_readable_and_pairs_stay() {
        let line =
            br#"{"type":"x","a":"\ud83d","b":"\ud83d\ude00","c":"\\ud83d","d":"\ude00\ud83d"}"#;
        let value: Value = serde_json::from_slice(&mend_surrogates(line)).unwrap();
        assert_eq!(value["a"], "\u{fffd}");
        assert_eq!(value["b"], "😀");
        assert_eq!(value["c"], "\\ud83d");
        assert_eq!(value["d"], "\u{fffd}\u{fffd}");
    }

    #[tokio::test]
    async fn lines_split_at_line_feeds_only() {
        let text = "{\"a\":\"\u{2028}\u{85}\r\"}\nsecond\ntorn".as_bytes();
        let mut lines = LineReader::new(text);
        assert_eq!(
            &lines.next().await.unwrap().unwrap()[..],
            &text[..text.len() - 12]
        );
        assert_eq!(&lines.next().await.unwrap().unwrap()[..], b"second");
        assert!(lines.next().await.unwrap().is_none());
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&line);
            prop_assert_eq!(mend_surrogates(&line).len(), line.len());
        }

        #[test]
        fn every_json_string_with_escapes_can_be_read(units in proptest::collection::vec(any::<u16>(), 0..20)) {
            let escapes: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let line = format!("{{\"type\":\"x\",\"text\":\"{escapes}\"}}");
            prop_assert!(decode(line.as_bytes()).is_some());
        }
    }
}
