//! A scripted stand-in for Pi: the same trait, the same channel of calls, session lines of the same form; no process.
//!
//! A test gives a function from the prompt to beats; each beat is one thing the engine does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bazilion::clock::{Clock, SystemClock};
use bazilion::runtime::pi::session::{self, Verdict};
use bazilion::runtime::{
    AgentEvent, AgentRuntime, AgentSession, Ended, EngineCheck, Launch, OpenCall, Outcome, Prompt,
    RuntimeError, ToolAnswer, ToolCall, Usage,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// One thing the stand-in does.
#[derive(Debug, Clone)]
pub enum Beat {
    /// Answers, which ends the turn unless more follows.
    Say(String),
    /// Calls tools of one message, together, and waits for all results.
    Call(Vec<(String, Value)>),
    /// The provider fails; the turn ends so.
    Fail(String),
    /// The model says nothing more; only an abort ends it.
    Stall,
    /// The engine is gone, in the middle.
    Die,
    /// Calls a tool and is gone before the result is recorded.
    DieInCall(String, Value),
}

impl Beat {
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }

    pub fn call(tool: &str, arguments: Value) -> Self {
        Self::Call(vec![(tool.into(), arguments)])
    }
}

type Script = dyn Fn(&Prompt) -> Vec<Beat> + Send + Sync;

/// What a turn was started with, for a test to look at.
#[derive(Debug, Clone)]
pub struct Started {
    pub lines: Vec<String>,
    pub tools: Vec<String>,
    pub system_prompt: String,
    pub model: String,
}

#[derive(Clone)]
pub struct PiStandIn {
    script: Arc<Script>,
    started: Arc<Mutex<Vec<Started>>>,
    prompts: Arc<Mutex<Vec<Prompt>>>,
    missing: Arc<Mutex<Option<String>>>,
}

impl PiStandIn {
    pub fn new(script: impl Fn(&Prompt) -> Vec<Beat> + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            started: Arc::default(),
            prompts: Arc::default(),
            missing: Arc::default(),
        }
    }

    /// One that answers every prompt with the same words.
    pub fn saying(text: &'static str) -> Self {
        Self::new(move |_| vec![Beat::say(text)])
    }

    pub fn started(&self) -> Vec<Started> {
        self.started.lock().unwrap().clone()
    }

    pub fn prompts(&self) -> Vec<Prompt> {
        self.prompts.lock().unwrap().clone()
    }

    /// From now on the engine is missing, or is back.
    pub fn set_missing(&self, reason: Option<&str>) {
        *self.missing.lock().unwrap() = reason.map(str::to_owned);
    }
}

#[async_trait]
impl AgentRuntime for PiStandIn {
    async fn start(&self, launch: Launch) -> Result<Box<dyn AgentSession>, RuntimeError> {
        if let Some(reason) = self.missing.lock().unwrap().clone() {
            return Err(RuntimeError::NotReady(reason));
        }
        self.started.lock().unwrap().push(Started {
            lines: launch.lines.clone(),
            tools: launch.tools.iter().map(|tool| tool.name.clone()).collect(),
            system_prompt: launch.system_prompt.clone(),
            model: launch.gateway.model.id.clone(),
        });
        let (events, received) = mpsc::channel(256);
        let file = File::open(&launch, events.clone()).await?;
        let unknown = file.unknown.clone();
        let aborted = CancellationToken::new();
        let (prompted, prompt) = oneshot::channel();
        let player = Player {
            file,
            events,
            calls: launch.calls,
            aborted: aborted.clone(),
            script: Arc::clone(&self.script),
            seen: Arc::clone(&self.prompts),
        };
        Ok(Box::new(Session {
            unknown,
            aborted,
            prompted: Some(prompted),
            received,
            task: tokio::spawn(player.play(prompt)),
        }))
    }

    async fn check(&self) -> EngineCheck {
        let detail = self.missing.lock().unwrap().clone();
        EngineCheck {
            ready: detail.is_none(),
            engine: "a stand-in for Pi".into(),
            detail,
        }
    }
}

struct Session {
    unknown: Vec<OpenCall>,
    aborted: CancellationToken,
    prompted: Option<oneshot::Sender<Prompt>>,
    received: mpsc::Receiver<AgentEvent>,
    task: JoinHandle<Ended>,
}

#[async_trait]
impl AgentSession for Session {
    fn unknown_outcomes(&self) -> &[OpenCall] {
        &self.unknown
    }

    async fn prompt(&mut self, prompt: Prompt) -> Result<(), RuntimeError> {
        let prompted = self.prompted.take();
        let prompted =
            prompted.ok_or_else(|| RuntimeError::Refused("a session takes one prompt".into()))?;
        prompted
            .send(prompt)
            .map_err(|_| RuntimeError::Interrupted("gone".into()))
    }

    async fn abort(&mut self) -> Result<(), RuntimeError> {
        self.aborted.cancel();
        Ok(())
    }

    async fn next(&mut self) -> Option<AgentEvent> {
        self.received.recv().await
    }

    fn model_silence(&self) -> Option<Duration> {
        None
    }

    async fn end(self: Box<Self>) -> Ended {
        let Self {
            aborted,
            prompted,
            mut received,
            task,
            ..
        } = *self;
        drop(prompted);
        aborted.cancel();
        let mut late = Vec::new();
        while let Some(event) = received.recv().await {
            if let AgentEvent::Line { raw } = event {
                late.push(raw);
            }
        }
        Ended {
            late,
            ..task.await.unwrap()
        }
    }
}

/// The transcript as it grows.
struct File {
    lines: Vec<String>,
    leaf: Option<String>,
    unknown: Vec<OpenCall>,
    events: mpsc::Sender<AgentEvent>,
}

impl File {
    async fn open(launch: &Launch, events: mpsc::Sender<AgentEvent>) -> Result<Self, RuntimeError> {
        let id = launch.conversation.to_string();
        let now = SystemClock.now();
        let mut file = Self {
            lines: launch.lines.clone(),
            leaf: None,
            unknown: Vec::new(),
            events,
        };
        if file.lines.is_empty() {
            file.append(session::header(&id, now)).await;
        }
        let survey = match session::inspect(&file.bytes(), &id) {
            Verdict::Clean(survey) | Verdict::Repairable(survey) => survey,
            Verdict::Blocked { line, flaw } => {
                return Err(RuntimeError::Transcript(format!("line {line}: {flaw}")));
            }
        };
        file.leaf = survey.leaf.clone();
        file.unknown = survey.open.clone();
        let mut last = None;
        for line in session::repair(&survey, now, || {
            let id = new_id();
            last = Some(id.clone());
            id
        }) {
            file.append(line).await;
        }
        file.leaf = last.or(file.leaf);
        Ok(file)
    }

    fn bytes(&self) -> Vec<u8> {
        self.lines
            .iter()
            .flat_map(|line| [line.as_bytes(), b"\n"].concat())
            .collect()
    }

    async fn append(&mut self, raw: String) {
        self.lines.push(raw.clone());
        let _ = self.events.send(AgentEvent::Line { raw }).await;
    }

    async fn message(&mut self, mut message: Value) {
        let id = new_id();
        message["timestamp"] = json!(1_700_000_000_000_u64);
        let entry = json!({"type": "message", "id": id, "parentId": self.leaf,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": message});
        self.leaf = Some(id);
        self.append(entry.to_string()).await;
    }

    async fn assistant(&mut self, content: Vec<Value>, stop: &str, error: Option<&str>) {
        let usage = json!({"input": 10, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 12,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}});
        let mut message = json!({"role": "assistant", "content": content, "api": "openai-completions",
            "provider": "bazilion", "model": "stand-in", "usage": usage, "stopReason": stop});
        if let Some(error) = error {
            message["errorMessage"] = json!(error);
        }
        self.message(message).await;
        let usage = Usage {
            input: 10,
            output: 2,
            ..Usage::default()
        };
        let _ = self.events.send(AgentEvent::Usage(usage)).await;
    }

    fn end(self, result: Result<(), RuntimeError>) -> Ended {
        let bytes = self.bytes();
        Ended {
            result,
            late: Vec::new(),
            lines: self.lines.len() as u64,
            bytes: bytes.len() as u64,
            sha256: Sha256::digest(&bytes).into(),
            torn: Vec::new(),
        }
    }
}

fn new_id() -> String {
    bazilion::ids::RequestId::new().to_string()
}

struct Player {
    file: File,
    events: mpsc::Sender<AgentEvent>,
    calls: mpsc::Sender<ToolCall>,
    aborted: CancellationToken,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Prompt>>>,
}

impl Player {
    async fn play(mut self, prompt: oneshot::Receiver<Prompt>) -> Ended {
        let Ok(prompt) = prompt.await else {
            return self.file.end(Ok(()));
        };
        self.seen.lock().unwrap().push(prompt.clone());
        if let Some(context) = &prompt.context {
            let id = new_id();
            let entry = json!({"type": "custom_message", "customType": "bazilion-context", "content": context,
                "display": false, "id": id, "parentId": self.file.leaf, "timestamp": "2026-01-01T00:00:00.000Z"});
            self.file.leaf = Some(id);
            self.file.append(entry.to_string()).await;
        }
        self.file
            .message(json!({"role": "user", "content": [{"type": "text", "text": prompt.text}]}))
            .await;
        let mut outcome = Outcome::Stop;
        for beat in (self.script)(&prompt) {
            match self.beat(beat).await {
                Next::Go => {}
                Next::Settle(how) => {
                    outcome = how;
                    break;
                }
                Next::Gone => {
                    return self
                        .file
                        .end(Err(RuntimeError::Interrupted("killed".into())));
                }
            }
        }
        let aborted = outcome == Outcome::Aborted;
        let _ = self
            .events
            .send(AgentEvent::Settled { aborted, outcome })
            .await;
        self.file.end(Ok(()))
    }

    async fn beat(&mut self, beat: Beat) -> Next {
        match beat {
            Beat::Say(text) => {
                let _ = self
                    .events
                    .send(AgentEvent::TextDelta { text: text.clone() })
                    .await;
                self.file
                    .assistant(vec![json!({"type": "text", "text": text})], "stop", None)
                    .await;
                Next::Go
            }
            Beat::Call(calls) => self.call(calls).await,
            Beat::Fail(message) => {
                self.file
                    .assistant(Vec::new(), "error", Some(&message))
                    .await;
                Next::Settle(Outcome::Error { message })
            }
            Beat::Stall => {
                self.aborted.cancelled().await;
                self.file.assistant(Vec::new(), "aborted", None).await;
                Next::Settle(Outcome::Aborted)
            }
            Beat::Die => Next::Gone,
            Beat::DieInCall(name, arguments) => {
                self.ask(vec![(name, arguments)]).await;
                Next::Gone
            }
        }
    }

    /// Writes the message with the calls and sends them.
    async fn ask(
        &mut self,
        calls: Vec<(String, Value)>,
    ) -> Vec<(String, String, oneshot::Receiver<ToolAnswer>)> {
        let named: Vec<(String, String, Value)> = calls
            .into_iter()
            .map(|(name, arguments)| {
                (
                    format!("call_{}", bazilion::ids::RequestId::new()),
                    name,
                    arguments,
                )
            })
            .collect();
        let blocks = named
            .iter()
            .map(|(id, name, arguments)| json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments}));
        self.file.assistant(blocks.collect(), "toolUse", None).await;
        let mut open = Vec::new();
        for (call_id, name, arguments) in named {
            let start = AgentEvent::ToolStart {
                call_id: call_id.clone(),
                name: name.clone(),
            };
            let _ = self.events.send(start).await;
            let (reply, answer) = oneshot::channel();
            let call = ToolCall {
                name: name.clone(),
                call_id: call_id.clone(),
                arguments: arguments.as_object().cloned().unwrap_or_else(Map::new),
                cancelled: self.aborted.child_token(),
                reply,
            };
            let _ = self.calls.send(call).await;
            open.push((call_id, name, answer));
        }
        open
    }

    async fn call(&mut self, calls: Vec<(String, Value)>) -> Next {
        let mut terminate = true;
        for (call_id, name, answer) in self.ask(calls).await {
            let answer = answer
                .await
                .unwrap_or_else(|_| ToolAnswer::error("The turn host gave no answer."));
            terminate &= answer.terminate;
            self.file
                .message(json!({"role": "toolResult", "toolCallId": call_id, "toolName": name,
                    "content": answer.content, "details": answer.details, "isError": answer.is_error}))
                .await;
            let end = AgentEvent::ToolEnd {
                call_id,
                is_error: answer.is_error,
            };
            let _ = self.events.send(end).await;
        }
        if self.aborted.is_cancelled() {
            self.file.assistant(Vec::new(), "aborted", None).await;
            return Next::Settle(Outcome::Aborted);
        }
        if terminate {
            Next::Settle(Outcome::Stop)
        } else {
            Next::Go
        }
    }
}

enum Next {
    Go,
    Settle(Outcome),
    Gone,
}
