//! From the domain's types to what pages show. The one file of the pages that knows both.

use std::collections::HashMap;
use std::time::Duration;

use time::OffsetDateTime;

use super::views::{
    AgentHead, CommandCard, Composer, DiagnosticView, FileView, ItemRow, MessageView, QueuePanel,
    State, ToolView, TurnView, command_state, item_state, pause_reason, short, span, waiting_for,
};
use crate::coding::receipt::{self, Receipt};
use crate::console::output::{visible, visible_line};
use crate::identity::Caller;
use crate::ids::RequestId;
use crate::queue::{Item, Source, Status, WaitingFor, look};
use crate::tenant::permission::{self, Action};
use crate::turn::Active;
use crate::turn::transcript::{Message, Role, ToolUse};
use crate::{limits, rehearsal, team};

/// Where a Team's files are, in words; never the directory itself.
pub fn root(root: &team::Root) -> String {
    match root {
        team::Root::Managed => "managed directory".into(),
        team::Root::Linked { .. } => "linked directory".into(),
    }
}

/// Whether a caller may send, edit and control.
pub fn may_operate(caller: &Caller) -> bool {
    permission::require(caller, Action::Operate).is_ok()
}

/// Whether a model belongs to the rehearsal provider, whose answers are scripted.
fn is_scripted(model: &str) -> bool {
    model.split(':').next() == Some(rehearsal::PROVIDER)
}

/// An Agent's state from what it does and what its queue holds.
pub fn agent_state(agent: &team::Agent, turn: Option<&Active>, queue: &look::Page) -> State {
    let has = |status| queue.items.iter().any(|item| item.status == status);
    match turn {
        _ if matches!(agent.status, team::AgentStatus::Archived) => State::new("archived", "idle"),
        Some(turn) if turn.cancelling => State::new("stopping", "warn"),
        Some(_) => State::new("working", "busy"),
        None if has(Status::Uncertain) => State::new("uncertain", "warn"),
        None if has(Status::Held) => State::new("held", "warn"),
        None if queue.control.paused => State::new("paused", "warn"),
        None if queue.totals.open > 0 => State::new("queued", "busy"),
        None => State::new("idle", "idle"),
    }
}

/// The Agent of a page.
pub fn agent_head(
    home: &str,
    agent: &team::Agent,
    team: &team::Team,
    model: String,
    state: State,
) -> AgentHead {
    AgentHead {
        name: visible_line(&agent.name),
        href: format!("/h/{home}/agents/{}", agent.id),
        team: visible_line(&team.name),
        team_href: format!("/h/{home}/teams/{}", team.slug),
        scripted: is_scripted(&model),
        model: visible_line(&model),
        state,
    }
}

/// The turn under way.
pub fn turn(active: &Active, now: OffsetDateTime) -> TurnView {
    let tokens = active.input_tokens + active.output_tokens;
    let elapsed = Duration::try_from(now - active.started_at).unwrap_or_default();
    TurnView {
        since: active.started_at.into(),
        elapsed: span(Duration::from_secs(elapsed.as_secs().max(1))),
        tokens: (tokens > 0).then_some(tokens),
    }
}

/// The form of a new message, with a request id that makes posting it twice one request.
pub fn composer(agent: &team::Agent, may_operate: bool) -> Composer {
    let conversation = agent.selection.conversation_id;
    let archived = matches!(agent.status, team::AgentStatus::Archived);
    Composer {
        request_id: RequestId::new().to_string(),
        expected_conversation: conversation.map_or_else(|| "none".into(), |id| id.to_string()),
        expected_revision: agent.selection.revision,
        may_send: may_operate && !archived,
        why_not: if archived {
            "This Agent is archived. Its conversation stays readable."
        } else {
            "You may read here. To write, ask an owner for the role operator."
        },
        max_files: limits::ITEM_FILES_MAX,
        max_bytes: limits::ITEM_FILE_BYTES_MAX,
    }
}

/// The queue panel from a page that lists open items, then history.
pub fn queue(agent_href: &str, home: &str, page: &look::Page, may_control: bool) -> QueuePanel {
    let row = |item: &Item| item_row(agent_href, home, item, may_control);
    let (open, history): (Vec<&Item>, Vec<&Item>) =
        page.items.iter().partition(|item| item.status.is_open());
    QueuePanel {
        base: format!("{agent_href}/queue"),
        paused: page.control.paused,
        reason: page
            .control
            .reason
            .filter(|_| page.control.paused)
            .map(pause_reason),
        revision: page.control.revision,
        open: open.into_iter().map(row).collect(),
        history: history.into_iter().map(row).collect(),
        may_control,
        notice: None,
    }
}

/// One input as a row.
pub fn item_row(agent_href: &str, home: &str, item: &Item, may_control: bool) -> ItemRow {
    let id = item.id.to_string();
    let pending = item.status == Status::Pending;
    ItemRow {
        short: short(&id),
        href: format!("{agent_href}/queue/{id}"),
        state: item_state(item.status),
        waiting_for: item.waiting_for.map(waits),
        position: item.position,
        source: match item.source {
            Source::Http => "web or API",
            Source::Telegram => "Telegram",
        },
        text: item.text.as_deref().map(visible),
        files: item.attachments.iter().map(file).collect(),
        revision: item.revision,
        diagnostic: item.diagnostic.as_ref().map(|diagnostic| DiagnosticView {
            code: diagnostic.code.clone(),
            message: visible(&diagnostic.message),
        }),
        approval: item
            .approval_id
            .map(|approval| format!("/h/{home}/approvals/{approval}")),
        created: item.created_at.into(),
        may_edit: pending && may_control,
        may_reconcile: item.status == Status::Uncertain && may_control,
        id,
    }
}

fn waits(what: WaitingFor) -> &'static str {
    waiting_for(what)
}

fn file(attachment: &crate::queue::Attachment) -> FileView {
    FileView::new(
        attachment.id.to_string(),
        attachment.name.as_deref(),
        &attachment.mime_type,
        attachment.byte_length,
    )
}

/// Where a Team's receipts are shown.
pub fn receipt_href(team_href: &str, id: &str) -> String {
    format!("{team_href}/receipts/{id}")
}

/// A stored message. Cards stand where their receipts are still kept, without output: a reload publishes none.
pub fn message(
    head: &AgentHead,
    message: &Message,
    receipts: &HashMap<String, Receipt>,
) -> MessageView {
    let (seq, at) = (i64::from(message.seq), message.created_at.into());
    let mut view = match message.role {
        Role::User => MessageView::user(seq, &message.text, at),
        Role::Assistant => MessageView::assistant(seq, &head.name, &message.text, at),
        Role::Note => MessageView::note(seq, &message.text, at),
    };
    view.tools = message
        .tools
        .iter()
        .map(|tool| tool_view(head, tool, receipts))
        .collect();
    view
}

fn tool_view(head: &AgentHead, tool: &ToolUse, receipts: &HashMap<String, Receipt>) -> ToolView {
    let receipt = tool.receipt_id.as_ref().and_then(|id| receipts.get(id));
    ToolView {
        name: visible_line(&tool.name),
        call_id: tool.call_id.clone(),
        private: tool.private,
        href: receipt.map(|receipt| receipt_href(&head.team_href, &receipt.id.to_string())),
        // At the call that made it; a call that only looked at it links there.
        card: receipt
            .filter(|receipt| receipt.tool_call_id == tool.call_id)
            .map(|receipt| card(&head.team_href, receipt)),
        receipt: tool.receipt_id.clone(),
    }
}

/// A command's card without its output.
pub fn card(team_href: &str, receipt: &Receipt) -> CommandCard {
    let id = receipt.id.to_string();
    let words = |key: &str| visible(receipt.input[key].as_str().unwrap_or_default());
    CommandCard {
        short: short(&id),
        purpose: words("purpose"),
        command: words("command"),
        state: command_state(receipt.state),
        exit: exit(receipt),
        took: receipt
            .duration_ms
            .and_then(|ms| u64::try_from(ms).ok())
            .map(|ms| span(Duration::from_millis(ms))),
        posture: visible_line(
            receipt.environment["posture"]
                .as_str()
                .unwrap_or("posture not recorded"),
        ),
        href: Some(receipt_href(team_href, &id)),
        note: note(receipt),
        output: String::new(),
        lines: 0,
        cut: false,
        end: String::new(),
        receipt: id,
    }
}

/// A command's card with its output so far: for the open page it is delivered to, and for the receipt's own page.
pub fn card_with_output(team_href: &str, receipt: &Receipt) -> CommandCard {
    let in_sight = !matches!(receipt.state, receipt::State::Succeeded);
    card(team_href, receipt).with_output(&receipt.output.tail, receipt.output.truncated, in_sight)
}

fn exit(receipt: &Receipt) -> Option<String> {
    match (receipt.exit_code, receipt.signal) {
        (Some(code), _) => Some(code.to_string()),
        (None, Some(signal)) => Some(format!("signal {signal}")),
        (None, None) => None,
    }
}

fn note(receipt: &Receipt) -> Option<String> {
    let mut parts: Vec<String> = receipt
        .reason
        .iter()
        .map(|reason| visible(reason))
        .collect();
    match receipt.cleanup {
        receipt::Cleanup::Uncertain => {
            parts.push("Whether all of its processes are gone is not known.".into())
        }
        receipt::Cleanup::Pending if receipt.finished_at.is_some() => {
            parts.push("Cleaning up.".into())
        }
        _ => {}
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}
