//! Pi's session file, version 3: one JSON object per line, a header first, then entries that name their parent.
//!
//! - Strict before every turn: Pi itself skips what it cannot read and cuts history at a missing parent, silently.
//! - Three verdicts: clean, repairable (a torn last line; tool calls without a result), blocked. Never "start fresh".
//! - A repair only appends: an interrupted call gets the result that its outcome is unknown.
//! - The file is the truth during a turn; lines leave here as the bytes that are in it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::macros::format_description;

use super::rpc::mend_surrogates;
use crate::limits::{PI_LINE_MAX, PI_SESSION_ENTRIES_MAX, PI_SESSION_MAX};
use crate::runtime::OpenCall;

/// Where Pi believes to work: a directory that exists everywhere and holds nothing of a tenant's.
pub(super) const CWD: &str = "/usr";

/// What the model reads instead of the result of a call that nobody saw end.
const UNKNOWN: &str = "The call was interrupted and its outcome is unknown: it may have happened in full, in part or \
                       not at all. Look before you repeat it.";

/// What a session file is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Clean(Survey),
    /// Usable after [`repair`].
    Repairable(Survey),
    /// Line (from 1) and what is wrong with it.
    Blocked {
        line: usize,
        flaw: String,
    },
}

/// What was found in a file that is not blocked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub entries: usize,
    /// Id of the last entry, under which Pi continues.
    pub leaf: Option<String>,
    /// Calls on the active path without a result, in order.
    pub open: Vec<OpenCall>,
    /// Length of the complete lines; beyond it lies a torn one.
    pub complete: usize,
    pub torn: bool,
}

/// The first line of a new session.
pub fn header(conversation: &str, now: OffsetDateTime) -> String {
    json!({ "type": "session", "version": 3, "id": conversation, "timestamp": iso(now), "cwd": CWD }).to_string()
}

/// Judges the bytes of the session file of `conversation`.
pub fn inspect(bytes: &[u8], conversation: &str) -> Verdict {
    match Reading::of(bytes, conversation) {
        Ok(survey) if survey.torn || !survey.open.is_empty() => Verdict::Repairable(survey),
        Ok(survey) => Verdict::Clean(survey),
        Err((line, flaw)) => Verdict::Blocked { line, flaw },
    }
}

/// Lines to append so that every open call has a result. `id` mints entry ids, which must not be in the file.
pub fn repair(survey: &Survey, now: OffsetDateTime, mut id: impl FnMut() -> String) -> Vec<String> {
    let mut parent = survey.leaf.clone();
    let mut lines = Vec::new();
    for call in &survey.open {
        let entry = id();
        let line = json!({
            "type": "message",
            "id": entry,
            "parentId": parent,
            "timestamp": iso(now),
            "message": {
                "role": "toolResult",
                "toolCallId": call.call_id,
                "toolName": call.name,
                "content": [{ "type": "text", "text": UNKNOWN }],
                "details": { "interrupted": true },
                "isError": true,
                "timestamp": millis(now),
            },
        });
        lines.push(line.to_string());
        parent = Some(entry);
    }
    lines
}

fn iso(at: OffsetDateTime) -> String {
    let form =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    at.to_offset(time::UtcOffset::UTC)
        .format(&form)
        .unwrap_or_default()
}

fn millis(at: OffsetDateTime) -> i64 {
    i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

type Flaw = (usize, String);

struct Entry {
    parent: Option<usize>,
    calls: Vec<OpenCall>,
    answers: Option<String>,
    line: usize,
}

/// A file being read.
#[derive(Default)]
struct Reading {
    entries: Vec<Entry>,
    ids: HashMap<String, usize>,
    leaf: Option<String>,
}

impl Reading {
    fn of(bytes: &[u8], conversation: &str) -> Result<Survey, Flaw> {
        if bytes.len() > PI_SESSION_MAX {
            return Err((0, "the file is larger than 512 MiB".into()));
        }
        let complete = bytes
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        if complete == 0 {
            return Err((1, "there is no complete header".into()));
        }
        let mut reading = Self::default();
        let lines = bytes[..complete - 1].split(|b| *b == b'\n');
        for (number, line) in lines.enumerate() {
            let number = number + 1;
            reading
                .line(number, line, conversation)
                .map_err(|flaw| (number, flaw))?;
        }
        let open = reading.open_calls()?;
        Ok(Survey {
            entries: reading.entries.len(),
            leaf: reading.leaf,
            open,
            complete,
            torn: complete < bytes.len(),
        })
    }

    fn line(&mut self, number: usize, line: &[u8], conversation: &str) -> Result<(), String> {
        if line.len() > PI_LINE_MAX {
            return Err("the line is longer than 64 MiB".into());
        }
        if self.entries.len() >= PI_SESSION_ENTRIES_MAX {
            return Err("the file has too many entries".into());
        }
        let value: Value =
            serde_json::from_slice(&mend_surrogates(line)).map_err(|_| "it is not JSON")?;
        let entry = value.as_object().ok_or("it is not an object")?;
        let kind = text(entry, "type")?;
        match (number, kind) {
            (1, "session") => check_header(entry, conversation),
            (1, _) => Err("the first line is not a header".into()),
            (_, "session") => Err("there is a second header".into()),
            _ => self.entry(number, kind, entry),
        }
    }

    fn entry(&mut self, line: usize, kind: &str, entry: &Map<String, Value>) -> Result<(), String> {
        let id = text(entry, "id")?;
        if id.is_empty() || self.ids.contains_key(id) {
            return Err("its id is empty or was used before".into());
        }
        let parent = match entry.get("parentId") {
            Some(Value::Null) => None,
            Some(Value::String(parent)) => Some(
                *self
                    .ids
                    .get(parent)
                    .ok_or("its parent is no earlier line")?,
            ),
            _ => return Err("parentId is missing".into()),
        };
        text(entry, "timestamp")?;
        self.check_fields(kind, id, entry)?;
        let message = entry
            .get("message")
            .and_then(Value::as_object)
            .filter(|_| kind == "message");
        self.ids.insert(id.to_owned(), self.entries.len());
        self.entries.push(Entry {
            parent,
            calls: message.map(calls_of).unwrap_or_default(),
            answers: message.and_then(answered_by),
            line,
        });
        self.leaf = Some(id.to_owned());
        Ok(())
    }

    /// The fields that each type must have. Types that are not known yet are Pi's to ignore.
    fn check_fields(&self, kind: &str, id: &str, entry: &Map<String, Value>) -> Result<(), String> {
        match kind {
            "message" => {
                let message = entry.get("message").and_then(Value::as_object);
                check_message(message.ok_or("message is missing")?)
            }
            "model_change" => text(entry, "provider")
                .and(text(entry, "modelId"))
                .map(drop),
            "thinking_level_change" => text(entry, "thinkingLevel").map(drop),
            "compaction" => {
                text(entry, "summary")?;
                let kept = text(entry, "firstKeptEntryId")?;
                self.names_earlier(kept, Some(id))
            }
            "branch_summary" => text(entry, "summary").and(text(entry, "fromId")).map(drop),
            "custom" => text(entry, "customType").map(drop),
            "custom_message" => {
                text(entry, "customType")?;
                check_content(entry)
            }
            "label" | "context_edit" => self.names_earlier(text(entry, "targetId")?, None),
            _ => Ok(()),
        }
    }

    fn names_earlier(&self, target: &str, itself: Option<&str>) -> Result<(), String> {
        if self.ids.contains_key(target) || itself == Some(target) {
            Ok(())
        } else {
            Err("it names an entry that is not there".into())
        }
    }

    /// Walks the active path from its root and pairs calls with results.
    fn open_calls(&self) -> Result<Vec<OpenCall>, Flaw> {
        let mut path = Vec::new();
        let mut at = self.entries.len().checked_sub(1);
        while let Some(index) = at {
            path.push(index);
            at = self.entries[index].parent;
        }
        let mut open: Vec<OpenCall> = Vec::new();
        for entry in path.into_iter().rev().map(|index| &self.entries[index]) {
            open.extend(entry.calls.iter().cloned());
            let Some(answer) = &entry.answers else {
                continue;
            };
            match open.iter().position(|call| call.call_id == *answer) {
                Some(found) => drop(open.remove(found)),
                None => return Err((entry.line, "it answers a call that is not open".into())),
            }
        }
        Ok(open)
    }
}

fn check_header(header: &Map<String, Value>, conversation: &str) -> Result<(), String> {
    if header.get("version").and_then(Value::as_u64) != Some(3) {
        return Err("the header's version is not 3".into());
    }
    if text(header, "id")? != conversation {
        return Err("the header names another conversation".into());
    }
    if text(header, "cwd")? != CWD {
        return Err("the header names another working directory".into());
    }
    text(header, "timestamp").map(drop)
}

fn check_message(message: &Map<String, Value>) -> Result<(), String> {
    match text(message, "role")? {
        "user" => check_content(message),
        "assistant" => {
            for field in ["api", "provider", "model", "stopReason"] {
                text(message, field)?;
            }
            message
                .get("usage")
                .and_then(Value::as_object)
                .ok_or("usage is missing")?;
            let blocks = message
                .get("content")
                .and_then(Value::as_array)
                .ok_or("content is no list")?;
            blocks.iter().try_for_each(check_block)
        }
        "toolResult" => {
            text(message, "toolCallId")?;
            text(message, "toolName")?;
            message
                .get("isError")
                .and_then(Value::as_bool)
                .ok_or("isError is missing")?;
            check_content(message)
        }
        "bashExecution" => Err("it records a command that did not go through the host".into()),
        _ => Ok(()),
    }
}

fn check_content(holder: &Map<String, Value>) -> Result<(), String> {
    match holder.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => blocks.iter().try_for_each(check_block),
        _ => Err("content is missing".into()),
    }
}

fn check_block(block: &Value) -> Result<(), String> {
    let block = block.as_object().ok_or("a block is not an object")?;
    match text(block, "type")? {
        "text" => text(block, "text").map(drop),
        "thinking" => text(block, "thinking").map(drop),
        "image" => text(block, "data").and(text(block, "mimeType")).map(drop),
        "toolCall" => {
            text(block, "id").and(text(block, "name"))?;
            let arguments = block.get("arguments").and_then(Value::as_object);
            arguments
                .map(drop)
                .ok_or_else(|| "a call has no arguments".into())
        }
        _ => Ok(()),
    }
}

/// The calls that an assistant message really made. Pi leaves failed and aborted messages out of the context, and
/// records no results for their calls.
fn calls_of(message: &Map<String, Value>) -> Vec<OpenCall> {
    let word = |key: &str| message.get(key).and_then(Value::as_str);
    if word("role") != Some("assistant") || matches!(word("stopReason"), Some("error" | "aborted"))
    {
        return Vec::new();
    }
    let blocks = message.get("content").and_then(Value::as_array);
    let calls = blocks
        .into_iter()
        .flatten()
        .filter(|block| block["type"] == "toolCall");
    calls
        .map(|block| OpenCall {
            call_id: block["id"].as_str().unwrap_or_default().to_owned(),
            name: block["name"].as_str().unwrap_or_default().to_owned(),
        })
        .collect()
}

fn answered_by(message: &Map<String, Value>) -> Option<String> {
    let is_result = message.get("role").and_then(Value::as_str) == Some("toolResult");
    let id = message.get("toolCallId").and_then(Value::as_str)?;
    is_result.then(|| id.to_owned())
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    object
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("{key} is missing"))
}
