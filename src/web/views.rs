//! What pages show, as plain values and words. [`super::adapt`] makes them from the domain's types.
//!
//! Templates decide nothing: words, classes and links are chosen here, so a page's meaning is tested without a browser.

use std::time::Duration;

use time::OffsetDateTime;
use time::macros::format_description;

use super::markdown;
use crate::coding::receipt;
use crate::console::output::visible;
use crate::queue::{Reason, Status, WaitingFor};

/// Lines of a failed command's output that stay in sight.
const END_LINES: usize = 12;

/// A moment, for people and for machines.
#[derive(Debug, Clone)]
pub struct Moment {
    pub iso: String,
    pub shown: String,
}

impl From<OffsetDateTime> for Moment {
    fn from(at: OffsetDateTime) -> Self {
        let at = at.to_offset(time::UtcOffset::UTC);
        let iso = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
        let shown = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");
        // Both descriptions fit every date that the database can hold.
        Self {
            iso: at.format(iso).unwrap_or_default(),
            shown: at.format(shown).unwrap_or_default(),
        }
    }
}

/// A word with the colour it is shown in: one of `good`, `bad`, `warn`, `busy`, `idle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub word: &'static str,
    pub class: &'static str,
}

impl State {
    pub const fn new(word: &'static str, class: &'static str) -> Self {
        Self { word, class }
    }
}

/// The Agent of a page.
#[derive(Debug, Clone)]
pub struct AgentHead {
    pub name: String,
    pub href: String,
    pub team: String,
    pub team_href: String,
    pub model: String,
    /// The provider is a rehearsal: its answers are scripted, and the page says so.
    pub scripted: bool,
    pub state: State,
}

/// The turn under way.
#[derive(Debug, Clone)]
pub struct TurnView {
    pub since: Moment,
    pub elapsed: String,
    pub tokens: Option<i64>,
}

/// A file, without its bytes.
#[derive(Debug, Clone)]
pub struct FileView {
    pub id: String,
    pub name: String,
    pub kind: String,
    pub size: String,
}

impl FileView {
    pub fn new(id: String, name: Option<&str>, kind: &str, bytes: i64) -> Self {
        Self {
            id,
            name: visible(name.unwrap_or("unnamed")),
            kind: visible(kind),
            size: size(bytes),
        }
    }
}

/// One message of a conversation. Either `html` (sanitised Markdown) or `text` is set.
#[derive(Debug, Clone)]
pub struct MessageView {
    pub seq: i64,
    /// `user`, `assistant` or `note`.
    pub role: &'static str,
    pub from: String,
    pub html: String,
    pub text: String,
    pub when: Moment,
    pub files: Vec<FileView>,
    pub tools: Vec<ToolView>,
}

impl MessageView {
    /// What a person typed: shown exactly so.
    pub fn user(seq: i64, text: &str, when: Moment) -> Self {
        Self::new(
            seq,
            "user",
            "You".into(),
            String::new(),
            visible(text),
            when,
        )
    }

    /// What a model wrote: Markdown.
    pub fn assistant(seq: i64, agent: &str, text: &str, when: Moment) -> Self {
        let html = markdown::to_html(text);
        Self::new(seq, "assistant", agent.into(), html, String::new(), when)
    }

    /// What Bazilion noted: a sentence.
    pub fn note(seq: i64, text: &str, when: Moment) -> Self {
        Self::new(
            seq,
            "note",
            "Bazilion".into(),
            String::new(),
            visible(text),
            when,
        )
    }

    fn new(
        seq: i64,
        role: &'static str,
        from: String,
        html: String,
        text: String,
        when: Moment,
    ) -> Self {
        Self {
            seq,
            role,
            from,
            html,
            text,
            when,
            files: Vec::new(),
            tools: Vec::new(),
        }
    }
}

/// A tool that a message used.
#[derive(Debug, Clone)]
pub struct ToolView {
    pub name: String,
    pub call_id: String,
    pub receipt: Option<String>,
    /// Its output is not published again after a reload.
    pub private: bool,
    pub href: Option<String>,
    pub card: Option<CommandCard>,
}

/// A command beside the Agent's words.
#[derive(Debug, Clone)]
pub struct CommandCard {
    pub receipt: String,
    pub short: String,
    pub purpose: String,
    pub command: String,
    pub state: State,
    pub exit: Option<String>,
    pub took: Option<String>,
    pub posture: String,
    pub href: Option<String>,
    pub note: Option<String>,
    pub output: String,
    pub lines: usize,
    pub cut: bool,
    /// The last lines, in sight without unfolding, where something went wrong or still runs.
    pub end: String,
}

impl CommandCard {
    /// Puts output on the card: inert text, folded, with its end in sight when `end_in_sight`.
    pub fn with_output(mut self, output: &str, cut: bool, end_in_sight: bool) -> Self {
        let text = markdown::inert(output);
        self.lines = text.lines().count();
        self.cut = cut;
        if end_in_sight {
            let skipped = self.lines.saturating_sub(END_LINES);
            self.end = text.lines().skip(skipped).collect::<Vec<_>>().join("\n");
        }
        if self.lines <= END_LINES && end_in_sight {
            // All of it is in sight already.
            self.lines = 0;
        }
        self.output = text;
        self
    }
}

/// The queue beside the conversation.
#[derive(Debug, Clone)]
pub struct QueuePanel {
    pub base: String,
    pub paused: bool,
    pub reason: Option<&'static str>,
    pub revision: i64,
    pub open: Vec<ItemRow>,
    pub history: Vec<ItemRow>,
    pub may_control: bool,
    pub notice: Option<String>,
}

/// One input.
#[derive(Debug, Clone)]
pub struct ItemRow {
    pub id: String,
    pub short: String,
    pub href: String,
    pub state: State,
    pub waiting_for: Option<&'static str>,
    pub position: i64,
    pub source: &'static str,
    pub text: Option<String>,
    pub files: Vec<FileView>,
    pub revision: i64,
    pub diagnostic: Option<DiagnosticView>,
    pub approval: Option<String>,
    pub created: Moment,
    pub may_edit: bool,
    pub may_reconcile: bool,
}

/// Why an item is as it is.
#[derive(Debug, Clone)]
pub struct DiagnosticView {
    pub code: String,
    pub message: String,
}

/// What the composer's form carries.
#[derive(Debug, Clone)]
pub struct Composer {
    pub request_id: String,
    /// An id, or `none`.
    pub expected_conversation: String,
    pub expected_revision: i64,
    pub may_send: bool,
    pub why_not: &'static str,
    pub max_files: usize,
    pub max_bytes: usize,
}

/// An Agent in a list.
#[derive(Debug, Clone)]
pub struct AgentRow {
    pub name: String,
    pub href: String,
    pub team: String,
    pub model: String,
    pub state: State,
    pub open: i64,
}

/// A Team in a list.
#[derive(Debug, Clone)]
pub struct TeamRow {
    pub name: String,
    pub href: String,
    pub root: String,
    pub agents: usize,
}

/// Something that waits for a person, with the one action it needs.
#[derive(Debug, Clone)]
pub struct Wait {
    pub what: String,
    pub detail: String,
    pub action: &'static str,
    pub href: String,
}

/// A home in the list of homes.
#[derive(Debug, Clone)]
pub struct HomeRow {
    pub slug: String,
    pub name: String,
    pub role: &'static str,
}

/// Bytes in a unit that people read.
pub fn size(bytes: i64) -> String {
    let bytes = bytes.max(0);
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", (bytes + 1023) / 1024),
        _ => format!(
            "{}.{} MiB",
            bytes / 1_048_576,
            bytes % 1_048_576 * 10 / 1_048_576
        ),
    }
}

/// A length of time in the two units that matter.
pub fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => format!("{} ms", length.as_millis()),
        1..60 => format!("{}.{} s", seconds, length.subsec_millis() / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The first eight characters of an id.
pub fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// What an item's status is called and how it looks.
pub fn item_state(status: Status) -> State {
    let class = match status {
        Status::Pending | Status::Superseded | Status::Cancelled => "idle",
        Status::Claimed | Status::Running => "busy",
        Status::Held | Status::Uncertain => "warn",
        Status::Completed => "good",
        Status::Failed => "bad",
    };
    State::new(status.as_str(), class)
}

/// What a command's state is called and how it looks.
pub fn command_state(state: receipt::State) -> State {
    use receipt::State::*;
    match state {
        Running => State::new("running", "busy"),
        Succeeded => State::new("succeeded", "good"),
        Failed => State::new("failed", "bad"),
        TimedOut => State::new("timed out", "bad"),
        Cancelled => State::new("cancelled", "idle"),
        Blocked => State::new("blocked", "warn"),
        Interrupted => State::new("interrupted", "warn"),
    }
}

/// What an item waits for, as the end of a sentence.
pub fn waiting_for(what: WaitingFor) -> &'static str {
    match what {
        WaitingFor::Agent => "waits for the work before it",
        WaitingFor::Workspace => "waits for the Team's directory",
        WaitingFor::Recovery => "waits for a recovery",
        WaitingFor::Executor => "waits for the container engine",
        WaitingFor::Engine => "waits for the Agent engine",
        WaitingFor::Provider => "waits for the model provider",
        WaitingFor::Approval => "waits for an approval",
        WaitingFor::Pause => "waits for Resume",
    }
}

/// Why a queue is paused, and what ends it.
pub fn pause_reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Operator => "Paused by a person. New messages are stored and wait for Resume.",
        Reason::OperatorStop => "Stopped by a person. Nothing more starts before Resume.",
        Reason::Telegram => "Paused from Telegram. Nothing starts before Resume.",
        Reason::Interrupted => {
            "Paused because work was interrupted and its outcome is unknown. Look at the uncertain item and close it, \
             then Resume."
        }
        Reason::Preparation => {
            "Paused because a turn could not be prepared several times. See the item's diagnostic, then Resume."
        }
        Reason::Restored => {
            "Paused because this home was restored from a backup. Check it, then Resume."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_are_readable() {
        assert_eq!(size(12), "12 B");
        assert_eq!(size(1500), "2 KiB");
        assert_eq!(size(26_214_400), "25.0 MiB");
        assert_eq!(span(Duration::from_millis(420)), "420 ms");
        assert_eq!(span(Duration::from_millis(3_240)), "3.2 s");
        assert_eq!(span(Duration::from_secs(125)), "2 min 5 s");
    }
}
