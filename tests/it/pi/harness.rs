//! An engine for every test of this binary, and one turn of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bazilion::clock::SystemClock;
use bazilion::ids::ConversationId;
use bazilion::runtime::pi::install::{PACKAGES, PiInstall, Source};
use bazilion::runtime::pi::{self, PiRuntime};
use bazilion::runtime::{
    AgentEvent, AgentRuntime as _, AgentSession, ExecutionMode, GatewayTarget, Launch, Model,
    ModelApi, Outcome, Prompt, Reasoning, RuntimeError, ToolAnswer, ToolCall, ToolSpec,
};
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::{OnceCell, mpsc};

use crate::support::model::FakeModel;

pub const KEY: &str = "sk-test-0123456789abcdefghij";

/// The folder that keeps what tests fetch: `BAZILION_CACHE_DIR`, else `target/pi-cache`.
pub fn cache() -> PathBuf {
    std::env::var_os("BAZILION_CACHE_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pi-cache"),
        PathBuf::from,
    )
}

/// The tarballs, fetched once by `npm pack` when they are not there.
pub fn tarballs() -> PathBuf {
    let folder = cache().join("tarballs");
    std::fs::create_dir_all(&folder).unwrap();
    let present = std::fs::read_dir(&folder).unwrap().count();
    if present < PACKAGES.len() {
        let names = PACKAGES.iter().map(|p| format!("{}@{}", p.name, p.version));
        let status = std::process::Command::new("npm")
            .args(["pack", "--silent", "--ignore-scripts"])
            .args(names)
            .current_dir(&folder)
            .stdout(std::process::Stdio::null())
            .status()
            .expect("these tests need npm to fetch the pinned engine, or its tarballs in the cache directory");
        assert!(status.success(), "npm pack failed");
    }
    folder
}

pub async fn install() -> PiInstall {
    static READY: OnceCell<()> = OnceCell::const_new();
    let install = PiInstall::at(&cache());
    READY
        .get_or_init(|| async {
            if install.check().is_err() {
                let source = Source::Folder(tarballs());
                let clock = Arc::new(SystemClock);
                pi::prepare(&install, &source, &turns_dir(), clock, &mut |_| {})
                    .await
                    .unwrap();
            }
        })
        .await;
    install
}

pub fn turns_dir() -> PathBuf {
    std::env::temp_dir().join("bazilion-test-turns")
}

pub async fn runtime() -> PiRuntime {
    PiRuntime::new(install().await, turns_dir(), Arc::new(SystemClock)).unwrap()
}

/// A tool that takes anything.
pub fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        description: format!("The tool {name}."),
        parameters: json!({"type": "object", "properties": {}, "additionalProperties": true}),
        execution_mode: ExecutionMode::Parallel,
    }
}

pub struct Turn {
    pub session: Box<dyn AgentSession>,
    pub calls: mpsc::Receiver<ToolCall>,
    /// All lines of the transcript, as a host would store them.
    pub lines: Vec<String>,
    pub events: Vec<AgentEvent>,
}

pub fn launch(
    model: &FakeModel,
    lines: Vec<String>,
    conversation: ConversationId,
) -> (Launch, mpsc::Receiver<ToolCall>) {
    let (calls, received) = mpsc::channel(16);
    let launch = Launch {
        conversation,
        lines,
        reasoning: Reasoning::Off,
        system_prompt: "You test an engine.".into(),
        tools: vec![tool("read"), tool("coding_command")],
        calls,
        gateway: GatewayTarget {
            api: ModelApi::OpenaiCompletions,
            base_url: model.base_url(),
            key: Some(SecretString::from(KEY)),
            model: Model::named("test/model:1b"),
            allow_private: true,
        },
    };
    (launch, received)
}

impl Turn {
    pub async fn start(model: &FakeModel) -> Self {
        Self::resume(model, ConversationId::new(), Vec::new())
            .await
            .unwrap()
    }

    pub async fn resume(
        model: &FakeModel,
        conversation: ConversationId,
        lines: Vec<String>,
    ) -> Result<Self, RuntimeError> {
        let (launch, calls) = launch(model, lines.clone(), conversation);
        let session = runtime().await.start(launch).await?;
        Ok(Self {
            session,
            calls,
            lines,
            events: Vec::new(),
        })
    }

    pub async fn prompt(&mut self, text: &str) {
        let prompt = Prompt {
            text: text.into(),
            ..Prompt::default()
        };
        self.session.prompt(prompt).await.unwrap();
    }

    /// The next event; lines are kept beside the others.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        let event = tokio::time::timeout(Duration::from_secs(60), self.session.next());
        let event = event.await.expect("the engine says nothing")?;
        if let AgentEvent::Line { raw } = &event {
            self.lines.push(raw.clone());
        }
        self.events.push(event.clone());
        Some(event)
    }

    /// Runs to the end of the turn; each tool call is answered by `answer`.
    pub async fn settle(&mut self, mut answer: impl FnMut(&ToolCall) -> ToolAnswer) -> Outcome {
        loop {
            tokio::select! {
                Some(call) = self.calls.recv() => {
                    let result = answer(&call);
                    call.reply.send(result).unwrap();
                }
                event = self.session.next() => {
                    let event = event.expect("the engine ended before it settled");
                    if let AgentEvent::Line { raw } = &event {
                        self.lines.push(raw.clone());
                    }
                    self.events.push(event.clone());
                    if let AgentEvent::Settled { outcome, .. } = event {
                        return outcome;
                    }
                }
            }
        }
    }

    pub async fn settle_without_tools(&mut self) -> Outcome {
        self.settle(|call| panic!("no call of {} was expected", call.name))
            .await
    }

    /// Ends the engine and checks the lines against the file.
    pub async fn end(mut self) -> Vec<String> {
        let ended = self.session.end().await;
        ended.result.unwrap();
        assert!(ended.torn.is_empty());
        self.lines.extend(ended.late);
        assert_eq!(ended.lines as usize, self.lines.len());
        let mut file = self.lines.join("\n").into_bytes();
        file.push(b'\n');
        assert_eq!(ended.bytes as usize, file.len());
        assert_eq!(ended.sha256, bazilion::secret::digest(&file));
        std::mem::take(&mut self.lines)
    }

    pub fn text(&self) -> String {
        let deltas = self.events.iter().filter_map(|event| match event {
            AgentEvent::TextDelta { text } => Some(text.as_str()),
            _ => None,
        });
        deltas.collect()
    }
}
