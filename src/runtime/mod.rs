//! The agent runtime: what runs the model and tool loop of one turn and owns its transcript.
//!
//! - The host sees three things only: events, tool calls on a channel, and raw transcript lines in file order.
//! - A turn is over when the runtime says [`AgentEvent::Settled`]. A runtime that ends before it was *interrupted*,
//!   and what its last calls did is unknown.
//! - The runtime never holds a provider's key; [`GatewayTarget`] stays in this process.
//! - Cancelling and having cancelled are two things: an aborted tool call waits for the host's answer.

pub mod pi;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::ids::ConversationId;

/// Starts turns. One real adapter ([`pi::PiRuntime`]); tests bring a scripted one.
#[async_trait]
pub trait AgentRuntime: Send + Sync {
    /// Starts the engine for one turn and proves that it runs what was asked. Nothing was sent to a model yet.
    async fn start(&self, launch: Launch) -> Result<Box<dyn AgentSession>, RuntimeError>;

    /// Whether turns can start here, and if not, what is missing.
    async fn check(&self) -> EngineCheck;
}

/// One running engine: one turn of one conversation. Dropping it kills the engine.
#[async_trait]
pub trait AgentSession: Send {
    /// Tool calls that an earlier turn of this conversation left without an answer. Their results were just recorded
    /// as "interrupted, outcome unknown"; the prompt of this turn must say so too.
    fn unknown_outcomes(&self) -> &[OpenCall];

    /// Gives the turn its input. Returns when it is accepted, not when it is answered. Once per session.
    async fn prompt(&mut self, prompt: Prompt) -> Result<(), RuntimeError>;

    /// Asks the engine to stop. Returns at once; `Settled` follows when every tool call has its answer, and the engine
    /// is killed when that takes longer than [`crate::limits::PI_ABORT_WAIT`].
    async fn abort(&mut self) -> Result<(), RuntimeError>;

    /// The next event, or nothing when the engine is gone. Safe to use in `select!`.
    async fn next(&mut self) -> Option<AgentEvent>;

    /// How long the model under way has sent nothing; nothing when no model request is open.
    fn model_silence(&self) -> Option<Duration>;

    /// Ends the engine, gently first, and reports the transcript as it was left, with the lines that
    /// [`AgentSession::next`] did not give yet.
    async fn end(self: Box<Self>) -> Ended;
}

/// Everything one turn is started with.
#[derive(Debug)]
pub struct Launch {
    pub conversation: ConversationId,
    /// The transcript so far: complete lines without their line feed, in order, header first. Empty for a new
    /// conversation.
    pub lines: Vec<String>,
    pub reasoning: Reasoning,
    /// Stable over the turns of a conversation; what varies belongs into [`Prompt::context`].
    pub system_prompt: String,
    /// Exactly these are offered to the model.
    pub tools: Vec<ToolSpec>,
    /// Where the host takes tool calls from.
    pub calls: mpsc::Sender<ToolCall>,
    pub gateway: GatewayTarget,
}

/// The input of a turn.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// What the person wrote; it reaches the model byte for byte and is never read as a command.
    pub text: String,
    pub images: Vec<Image>,
    /// Facts of this turn that the model reads beside the text: root instructions, fingerprint, posture.
    pub context: Option<String>,
}

/// An image in base64, as providers take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    pub data: String,
    pub mime_type: String,
}

/// How much a model thinks before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reasoning {
    #[default]
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

impl Reasoning {
    /// The name on the wire, in the database and for Pi.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments, an object.
    pub parameters: Value,
    pub execution_mode: ExecutionMode,
}

/// Whether calls of one assistant message may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionMode {
    Parallel,
    Sequential,
}

/// A call that the host must answer. A dropped `reply` is an error result for the model.
#[derive(Debug)]
pub struct ToolCall {
    pub name: String,
    /// Chosen by the model's provider: unique in one assistant message at best.
    pub call_id: String,
    pub arguments: Map<String, Value>,
    /// Fires on abort and when the engine is gone. It asks for the end of the call; the answer is still awaited.
    pub cancelled: CancellationToken,
    pub reply: oneshot::Sender<ToolAnswer>,
}

/// What a tool call came to.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswer {
    /// What the model reads.
    pub content: Vec<Block>,
    /// Kept in the transcript, never sent to the model (receipt id, state, exit).
    pub details: Value,
    pub is_error: bool,
    /// Ends the turn without another model call, when every call of the message says so.
    pub terminate: bool,
}

impl ToolAnswer {
    /// A plain text result.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![Block::Text { text: text.into() }],
            ..Self::default()
        }
    }

    /// A refusal or failure of the tool itself; a failing test is not one.
    pub fn error(text: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::text(text)
        }
    }

    /// Adds what the transcript keeps beside the text.
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

/// One block of a tool result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Block {
    Text {
        text: String,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        data: String,
        mime_type: String,
    },
}

/// Where model requests go, and what they may say. Stays in this process.
#[derive(Clone)]
pub struct GatewayTarget {
    pub api: ModelApi,
    /// Without a trailing slash; for [`ModelApi::OpenaiCompletions`] it includes `/v1`.
    pub base_url: String,
    /// None for an endpoint that asks for no key.
    pub key: Option<SecretString>,
    pub model: Model,
    /// Whether loopback and private addresses may be called (`up` on loopback, or by configuration).
    pub allow_private: bool,
}

impl fmt::Debug for GatewayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayTarget")
            .field("api", &self.api)
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The protocols a provider may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelApi {
    #[serde(rename = "openai-completions")]
    OpenaiCompletions,
    #[serde(rename = "anthropic-messages")]
    AnthropicMessages,
}

/// A model as its provider's settings describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub id: String,
    /// Tokens.
    pub context_window: u32,
    /// Tokens.
    pub max_tokens: u32,
    pub images: bool,
    pub reasoning: bool,
}

impl Model {
    /// A text model of which nothing but the id is known.
    pub fn named(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            context_window: crate::limits::MODEL_CONTEXT_WINDOW,
            max_tokens: crate::limits::MODEL_MAX_TOKENS,
            images: false,
            reasoning: false,
        }
    }
}

/// What happens in a turn, in order. A line comes before the events that it explains.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// A complete new line of the transcript, without its line feed, exactly as it is in the file.
    Line { raw: String },
    /// More of the answer's text.
    TextDelta { text: String },
    /// More of the model's thinking.
    ThinkingDelta { text: String },
    /// A tool call begins; its arguments come over the channel of calls.
    ToolStart { call_id: String, name: String },
    /// A tool call has its result.
    ToolEnd { call_id: String, is_error: bool },
    /// The model failed in a way that may pass; another attempt follows.
    Retry {
        attempt: u32,
        max_attempts: u32,
        delay: Duration,
        error: String,
    },
    /// Older messages are being replaced by a summary.
    Compaction { reason: String },
    /// Tokens of one finished model request.
    Usage(Usage),
    /// The turn is over; nothing follows but the end of the engine.
    Settled { aborted: bool, outcome: Outcome },
}

/// Tokens of one model request, as the provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Without what was read from or written to the provider's cache.
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

/// How the last answer of a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Stop,
    /// Cut by the longest answer the model may give.
    Length,
    /// The model or its provider failed; the text is scrubbed of the key.
    Error {
        message: String,
    },
    Aborted,
}

/// A call of an earlier turn that never got a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    pub call_id: String,
    pub name: String,
}

/// The transcript as an ended engine left it, to compare with what was stored.
#[derive(Debug)]
pub struct Ended {
    /// [`RuntimeError::Interrupted`] when the engine was gone before it settled.
    pub result: Result<(), RuntimeError>,
    /// Lines that came too late to be events: the last ones of the file, in order.
    pub late: Vec<String>,
    /// Complete lines of the whole file, header included.
    pub lines: u64,
    /// Bytes of those lines, line feeds included.
    pub bytes: u64,
    /// SHA-256 of those bytes.
    pub sha256: [u8; 32],
    /// Bytes after the last line feed; never stored, kept for the log.
    pub torn: Vec<u8>,
}

/// Whether the engine is here and as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EngineCheck {
    pub ready: bool,
    /// Name and versions.
    pub engine: String,
    /// What is missing and the next step; nothing when ready.
    pub detail: Option<String>,
}

/// Why a turn could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The engine is not installed, or not as it was installed.
    #[error("the agent engine is not ready: {0}")]
    NotReady(String),
    /// The transcript breaks its rules; it is never replaced by an empty one.
    #[error("the transcript of this conversation cannot be continued: {0}")]
    Transcript(String),
    /// The engine started and is not what was asked for.
    #[error("the agent engine did not start as agreed: {0}")]
    Start(String),
    /// The engine was gone before it settled: what its last calls did is unknown.
    #[error("the agent engine ended before the turn was over: {0}")]
    Interrupted(String),
    /// The engine refused a command.
    #[error("the agent engine refused: {0}")]
    Refused(String),
    #[error("{context}")]
    Io {
        context: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl RuntimeError {
    pub(crate) fn io(context: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { context, source }
    }
}
