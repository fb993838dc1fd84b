//! The transcript of a conversation: the lines of Pi's session file, raw and in order, and what people see of them.
//!
//! - A line is stored as it comes, with its hash; a turn's file is rebuilt from the rows byte for byte.
//! - A turn may end only when file and rows agree by length and hash.
//! - What people see is a projection: text of people and Agents, names of tools, ids of receipts. Results of tools are
//!   never part of it.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::store::lines as store;
use crate::db::{Db, Op, TenantTx};
use crate::error::{Error, Result};
use crate::events;
use crate::identity::Caller;
use crate::ids::{ConversationId, ItemId, TurnId};
use crate::runtime::Ended;
use crate::tenant::permission::{Action, require};

const READ: Op = Op::locking("turn.transcript.read");
const APPEND: Op = Op::locking("turn.transcript.append");

/// The transcript of one conversation while a turn appends to it. One writer, by the queue's claim.
pub struct Transcript {
    conversation: ConversationId,
    turn: TurnId,
    item: Option<ItemId>,
    next: i32,
    bytes: u64,
    hash: Sha256,
}

/// One line, as the rows keep it.
pub struct Line<'a> {
    pub seq: i32,
    pub entry: Option<String>,
    pub parent: Option<String>,
    pub raw: &'a str,
    pub sha256: [u8; 32],
}

impl Transcript {
    /// Reads the lines so far; each is checked against its hash. They go to the engine as they are.
    pub async fn open(
        db: &Db,
        caller: &Caller,
        conversation: ConversationId,
        turn: TurnId,
        item: Option<ItemId>,
    ) -> Result<(Self, Vec<String>)> {
        let lines = db
            .transact(
                caller,
                READ,
                &conversation,
                async |tx: &mut TenantTx, id: &ConversationId| store::all(tx, *id).await,
            )
            .await?;
        let mut transcript = Self {
            conversation,
            turn,
            item,
            next: 1,
            bytes: 0,
            hash: Sha256::new(),
        };
        for line in &lines {
            transcript.count(line);
        }
        Ok((transcript, lines))
    }

    /// Which conversation it is.
    pub fn conversation(&self) -> ConversationId {
        self.conversation
    }

    fn count(&mut self, line: &str) {
        self.next += 1;
        self.bytes += line.len() as u64 + 1;
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
    }

    /// Stores a new line.
    pub async fn append(&mut self, db: &Db, caller: &Caller, raw: &str) -> Result<()> {
        let parsed: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
        let word = |key: &str| parsed.get(key).and_then(Value::as_str).map(str::to_owned);
        let line = Line {
            seq: self.next,
            entry: word("id"),
            parent: word("parentId"),
            raw,
            sha256: Sha256::digest(raw.as_bytes()).into(),
        };
        let args = (self.conversation, self.turn, self.item, &line);
        db.transact(caller, APPEND, &args, append_in).await?;
        self.count(raw);
        Ok(())
    }

    /// Whether the rows are the file that the engine left, byte for byte.
    pub fn agrees_with(&self, ended: &Ended) -> bool {
        let sha256: [u8; 32] = self.hash.clone().finalize().into();
        ended.bytes == self.bytes
            && ended.lines + 1 == u64::from(self.next.unsigned_abs())
            && ended.sha256 == sha256
    }
}

async fn append_in(
    tx: &mut TenantTx,
    args: &(ConversationId, TurnId, Option<ItemId>, &Line<'_>),
) -> Result<()> {
    let (conversation, turn, item, line) = *args;
    let agent = store::insert(tx, conversation, turn, item, line).await?;
    let stored = Stored {
        seq: line.seq,
        turn: Some(turn),
        item,
        raw: line.raw.to_owned(),
        created_at: tx.now(),
    };
    // What people see of the line, if anything, reaches those who watch.
    for message in project(&[stored]) {
        let payload = serde_json::to_value(&message)
            .map_err(|e| Error::internal("writing a message's event", e))?;
        events::append(tx, agent, events::Kind::Message, &payload).await?;
    }
    Ok(())
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
    /// Something about the conversation itself: it was compacted.
    Note,
}

/// A tool that was called, by name. What it answered is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolUse {
    pub name: String,
    pub call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_id: Option<String>,
    /// Its result is shown to nobody by a reload; a receipt is opened by those who may.
    pub private: bool,
}

/// A message as people see it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    pub id: String,
    pub seq: i32,
    pub turn_id: Option<TurnId>,
    pub item_id: Option<ItemId>,
    pub role: Role,
    pub text: String,
    pub tools: Vec<ToolUse>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// A stored line with what the row knows beside it.
pub struct Stored {
    pub seq: i32,
    pub turn: Option<TurnId>,
    pub item: Option<ItemId>,
    pub raw: String,
    pub created_at: OffsetDateTime,
}

/// A page of a conversation, newest lines last: those below `before`, at most `limit` lines of the file.
/// The second value is the `before` of the next older page.
pub async fn messages(
    tx: &mut TenantTx,
    args: &(ConversationId, Option<i32>, i64),
) -> Result<(Vec<Message>, Option<i32>)> {
    require(tx.caller(), Action::Read)?;
    let (conversation, before, limit) = *args;
    let lines = store::page(tx, conversation, before, limit).await?;
    let full = i64::try_from(lines.len()).is_ok_and(|count| count == limit);
    let next = lines
        .first()
        .filter(|first| full && first.seq > 1)
        .map(|first| first.seq);
    Ok((project(&lines), next))
}

/// Projects lines, in file order, to what people see.
pub fn project(lines: &[Stored]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for line in lines {
        let Ok(entry) = serde_json::from_str::<Value>(&line.raw) else {
            continue;
        };
        if let Some((call, receipt)) = receipt_of(&entry) {
            let uses = messages.iter_mut().rev().flat_map(|m| m.tools.iter_mut());
            if let Some(tool) = uses.into_iter().find(|tool| tool.call_id == call) {
                tool.receipt_id = Some(receipt);
            }
        }
        let Some((role, text, tools)) = visible(&entry) else {
            continue;
        };
        messages.push(Message {
            id: entry["id"].as_str().unwrap_or_default().to_owned(),
            seq: line.seq,
            turn_id: line.turn,
            item_id: line.item,
            role,
            text,
            tools,
            created_at: line.created_at,
        });
    }
    messages
}

fn visible(entry: &Value) -> Option<(Role, String, Vec<ToolUse>)> {
    match entry["type"].as_str()? {
        "message" => {
            let message = &entry["message"];
            let role = match message["role"].as_str()? {
                "user" => Role::User,
                "assistant" => Role::Assistant,
                _ => return None,
            };
            let (text, tools) = (text_of(&message["content"]), tools_of(&message["content"]));
            (!text.is_empty() || !tools.is_empty()).then_some((role, text, tools))
        }
        "compaction" => Some((
            Role::Note,
            "Older messages were replaced by a summary for the model; they are still shown here."
                .into(),
            Vec::new(),
        )),
        _ => None,
    }
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter(|block| block["type"] == "text");
            texts
                .filter_map(|block| block["text"].as_str())
                .collect::<Vec<_>>()
                .join("\n")
        }
        _ => String::new(),
    }
}

fn tools_of(content: &Value) -> Vec<ToolUse> {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    let calls = blocks.iter().filter(|block| block["type"] == "toolCall");
    calls
        .filter_map(|block| {
            Some(ToolUse {
                name: block["name"].as_str()?.to_owned(),
                call_id: block["id"].as_str()?.to_owned(),
                receipt_id: None,
                private: true,
            })
        })
        .collect()
}

/// The receipt that a tool's result names in what is kept beside it.
fn receipt_of(entry: &Value) -> Option<(String, String)> {
    let message = &entry["message"];
    if message["role"] != "toolResult" {
        return None;
    }
    let call = message["toolCallId"].as_str()?.to_owned();
    Some((call, message["details"]["receiptId"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(seq: i32, raw: Value) -> Stored {
        Stored {
            seq,
            turn: None,
            item: None,
            raw: raw.to_string(),
            created_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn people_see_words_and_tool_names_and_never_a_tool_result() {
        use serde_json::json;
        let lines = [
            stored(1, json!({"type": "session", "version": 3, "id": "c"})),
            stored(
                2,
                json!({"type": "message", "id": "a", "message": {"role": "user", "content": "Fix it"}}),
            ),
            stored(
                3,
                json!({"type": "message", "id": "b", "message": {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "On it."},
                {"type": "toolCall", "id": "call1", "name": "coding_command", "arguments": {"command": "x"}}]}}),
            ),
            stored(
                4,
                json!({"type": "message", "id": "c", "message": {"role": "toolResult", "toolCallId": "call1",
                "content": [{"type": "text", "text": "SECRET OUTPUT"}], "details": {"receiptId": "r1"}}}),
            ),
            stored(
                5,
                json!({"type": "custom_message", "id": "d", "content": "context"}),
            ),
        ];
        let seen = project(&lines);
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[1].tools[0].receipt_id.as_deref(), Some("r1"));
        let text = serde_json::to_string(&seen).unwrap();
        assert!(!text.contains("SECRET") && !text.contains("hm") && !text.contains("context"));
    }
}
