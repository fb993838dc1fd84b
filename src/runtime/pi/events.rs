//! What Pi's events mean for a turn.

use std::time::Duration;

use serde_json::Value;

use crate::runtime::{AgentEvent, Outcome};

/// Remembers how the last assistant message ended, because `agent_settled` does not say it.
#[derive(Default)]
pub(super) struct Reader {
    last: Option<Outcome>,
}

impl Reader {
    /// The event for the host, if there is one.
    pub(super) fn read(&mut self, kind: &str, body: &Value) -> Option<AgentEvent> {
        match kind {
            "message_update" => delta(body.get("assistantMessageEvent")?),
            "message_end" => {
                let message = body.get("message")?;
                if message.get("role")? == "assistant" {
                    self.last = Some(outcome(message));
                }
                None
            }
            "tool_execution_start" => Some(AgentEvent::ToolStart {
                call_id: text(body, "toolCallId"),
                name: text(body, "toolName"),
            }),
            "tool_execution_end" => Some(AgentEvent::ToolEnd {
                call_id: text(body, "toolCallId"),
                is_error: body.get("isError").and_then(Value::as_bool) == Some(true),
            }),
            "auto_retry_start" => Some(AgentEvent::Retry {
                attempt: number(body, "attempt"),
                max_attempts: number(body, "maxAttempts"),
                delay: Duration::from_millis(number(body, "delayMs").into()),
                error: text(body, "errorMessage"),
            }),
            "compaction_start" => Some(AgentEvent::Compaction {
                reason: text(body, "reason"),
            }),
            "agent_settled" => Some(self.settled(body.get("aborted") == Some(&Value::Bool(true)))),
            _ => None,
        }
    }

    fn settled(&mut self, aborted: bool) -> AgentEvent {
        let outcome = match self.last.take() {
            _ if aborted => Outcome::Aborted,
            Some(outcome) => outcome,
            None => Outcome::Error {
                message: "The engine settled without an answer.".into(),
            },
        };
        AgentEvent::Settled { aborted, outcome }
    }
}

fn delta(event: &Value) -> Option<AgentEvent> {
    let text = event.get("delta")?.as_str()?.to_owned();
    match event.get("type")?.as_str()? {
        "text_delta" => Some(AgentEvent::TextDelta { text }),
        "thinking_delta" => Some(AgentEvent::ThinkingDelta { text }),
        _ => None,
    }
}

fn outcome(message: &Value) -> Outcome {
    match message.get("stopReason").and_then(Value::as_str) {
        Some("stop" | "toolUse") => Outcome::Stop,
        Some("length") => Outcome::Length,
        Some("aborted") => Outcome::Aborted,
        _ => Outcome::Error {
            message: text(message, "errorMessage"),
        },
    }
}

fn text(body: &Value, key: &str) -> String {
    body.get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn number(body: &Value, key: &str) -> u32 {
    let number = body.get(key).and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_turn_ends_as_its_last_answer_did() {
        let mut reader = Reader::default();
        let end = |stop: &str| json!({"message": {"role": "assistant", "stopReason": stop, "errorMessage": "no"}});
        assert!(reader.read("message_end", &end("error")).is_none());
        assert!(
            reader
                .read("message_end", &json!({"message": {"role": "user"}}))
                .is_none()
        );
        let settled = |outcome| {
            Some(AgentEvent::Settled {
                aborted: false,
                outcome,
            })
        };
        let body = json!({"aborted": false});
        assert_eq!(
            reader.read("agent_settled", &body),
            settled(Outcome::Error {
                message: "no".into()
            })
        );
        reader.read("message_end", &end("length"));
        assert_eq!(
            reader.read("agent_settled", &body),
            settled(Outcome::Length)
        );
        assert!(matches!(
            reader.read("agent_settled", &json!({"aborted": true})),
            Some(AgentEvent::Settled {
                aborted: true,
                outcome: Outcome::Aborted
            })
        ));
    }

    #[test]
    fn records_without_a_meaning_here_are_passed_over() {
        let mut reader = Reader::default();
        for kind in [
            "agent_end",
            "tomorrow",
            "message_update",
            "message_end",
            "queue_update",
        ] {
            assert!(reader.read(kind, &json!({})).is_none());
        }
    }
}
