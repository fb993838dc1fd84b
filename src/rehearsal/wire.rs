//! The rehearsal's side of the chat-completions protocol: as much of a request as a script needs, and event streams.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::secret;
use crate::turn::prompt::FACTS;

/// A request, as far as a script looks at it.
#[derive(Debug)]
pub(super) struct Chat {
    model: String,
    /// Rough size of what was sent, in tokens, so that counts are not always the same.
    prompt_tokens: usize,
    /// Makes the ids of this answer's calls unlike those of any other.
    tag: String,
    /// What the person wrote for this turn.
    pub(super) input: String,
    /// Calls of this turn with their results, in order.
    pub(super) done: Vec<Done>,
}

/// A call that was made and what it came to.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) result: String,
}

/// A call to make.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Value,
}

impl Call {
    pub(super) fn new(tool: &str, arguments: Value) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments,
        }
    }
}

#[derive(Deserialize)]
struct Request {
    model: String,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct ToolCall {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl Chat {
    pub(super) fn read(body: &[u8]) -> serde_json::Result<Self> {
        let request: Request = serde_json::from_slice(body)?;
        let turn = turn_of(&request.messages);
        let input = turn
            .iter()
            .find(|message| message.role == "user")
            .map(|message| text(&message.content));
        Ok(Self {
            model: request.model,
            prompt_tokens: body.len() / 4,
            tag: secret::random::<8>().map(hex::encode).unwrap_or_default(),
            input: input.unwrap_or_default(),
            done: done(turn),
        })
    }
}

/// The messages of the newest turn: they begin with what the person wrote, right before the runtime's facts. Without
/// facts they begin after the last full answer; a turn that was interrupted has none, so facts go first.
fn turn_of(messages: &[Message]) -> &[Message] {
    let answered = messages
        .iter()
        .rposition(|message| message.role == "assistant" && message.tool_calls.is_empty());
    let written =
        |messages: &[Message]| messages.iter().rposition(|message| message.role == "user");
    let facts = messages
        .iter()
        .rposition(|message| message.role == "user" && text(&message.content).starts_with(FACTS));
    let begun = facts.and_then(|at| written(&messages[..at]));
    &messages[begun.max(answered.map(|at| at + 1)).unwrap_or(0)..]
}

fn done(turn: &[Message]) -> Vec<Done> {
    let mut done = Vec::new();
    let calls = turn.iter().flat_map(|message| &message.tool_calls);
    for call in calls {
        let is_result =
            |message: &&Message| message.tool_call_id.as_deref() == Some(call.id.as_str());
        let Some(result) = turn.iter().find(is_result) else {
            continue;
        };
        done.push(Done {
            tool: call.function.name.clone(),
            arguments: serde_json::from_str(&call.function.arguments).unwrap_or_default(),
            result: text(&result.content),
        });
    }
    done
}

/// A message's text, whether it came as a string or as blocks.
fn text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().into_iter().flatten();
    let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
    texts.join("\n")
}

/// A whole answer as an event stream, a few words at a time.
pub(super) fn answer(chat: &Chat, text: &str) -> String {
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let mut events = String::new();
    for piece in words.chunks(8) {
        events.push_str(&chunk(chat, json!({ "content": piece.concat() }), None));
    }
    events + &finish(chat, "stop", text.len() / 4)
}

/// The beginning of an answer.
pub(super) fn begin(chat: &Chat, text: &str) -> String {
    chunk(chat, json!({ "role": "assistant", "content": text }), None)
}

/// Calls as an event stream.
pub(super) fn calls(chat: &Chat, calls: &[Call]) -> String {
    let first = chat.done.len();
    let list: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| {
            let id = format!("call_{}_{}", first + index + 1, chat.tag);
            json!({
                "index": index,
                "id": id,
                "type": "function",
                "function": { "name": call.tool, "arguments": call.arguments.to_string() },
            })
        })
        .collect();
    let events = chunk(
        chat,
        json!({ "role": "assistant", "tool_calls": list }),
        None,
    );
    events + &finish(chat, "tool_calls", 20 * calls.len())
}

/// The body of a failure.
pub(super) fn error(message: &str) -> String {
    json!({ "error": { "message": message, "type": "rehearsal" } }).to_string()
}

fn finish(chat: &Chat, reason: &str, completion_tokens: usize) -> String {
    let usage = json!({
        "id": "rehearsal",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": chat.model,
        "choices": [],
        "usage": {
            "prompt_tokens": chat.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": chat.prompt_tokens + completion_tokens,
        },
    });
    let last = chunk(chat, json!({}), Some(reason));
    format!("{last}data: {usage}\n\ndata: [DONE]\n\n")
}

fn chunk(chat: &Chat, delta: Value, finish_reason: Option<&str>) -> String {
    let event = json!({
        "id": "rehearsal",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": chat.model,
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    });
    format!("data: {event}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: Value) -> Chat {
        let request = json!({"model": "scripted", "messages": messages});
        Chat::read(request.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_turn_after_an_interrupted_one_is_read_from_its_own_input() {
        let call = json!({"id": "a", "function": {"name": "coding_command", "arguments": "{}"}});
        let facts = format!("{FACTS}\n## Environment");
        let mut messages = json!([
            {"role": "user", "content": "say: first"},
            {"role": "user", "content": facts},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "No result"},
            {"role": "user", "content": "say: second"},
            {"role": "user", "content": facts},
        ]);
        let chat = read(messages.clone());
        assert_eq!((chat.input.as_str(), chat.done.len()), ("say: second", 0));
        messages.as_array_mut().unwrap().extend([
            json!({"role": "assistant", "content": "second"}),
            json!({"role": "user", "content": "say: third"}),
        ]);
        assert_eq!(read(messages).input, "say: third");
    }
}
