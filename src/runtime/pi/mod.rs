//! Pi as the engine: one child process per turn, RPC over its standard streams, one unix socket for its tools and its
//! model.
//!
//! - Pi owns the model and tool loop and the transcript file; this side owns admission, tools, keys and the copy of
//!   the lines.
//! - A process serves one turn and is not reused.
//! - Nothing falls back: an engine that is missing or changed refuses turns and says what to do.

mod bridge;
mod egress;
mod engine;
mod events;
mod gateway;
pub mod install;
mod launch;
mod rpc;
pub mod selftest;
pub mod session;
mod tail;
mod usage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::bridge::Bridge;
use self::engine::{Ask, Driver};
use self::gateway::{Activity, Gateway};
use self::install::PiInstall;
use self::launch::{PROVIDER, TurnDir};
use self::rpc::Command;
use self::session::Verdict;
use super::{
    AgentEvent, AgentRuntime, AgentSession, Ended, EngineCheck, Launch, OpenCall, Prompt,
    RuntimeError,
};
use crate::clock::Clock;
use crate::limits::{PI_EVENT_BUFFER, PI_PROMPT_TIMEOUT, PI_READY_TIMEOUT};
use crate::secret;

/// Makes the engine ready: fetches what is missing, and tries a new installation with one turn before anyone else does.
pub async fn prepare(
    install: &PiInstall,
    source: &install::Source,
    turns: &Path,
    clock: Arc<dyn Clock>,
    progress: &mut (dyn FnMut(install::Progress) + Send),
) -> Result<(), RuntimeError> {
    if install.check().is_ok() && install.is_tried() {
        return Ok(());
    }
    let not_ready = |error: install::InstallError| RuntimeError::NotReady(error.to_string());
    install.install(source, progress).await.map_err(not_ready)?;
    Box::pin(selftest::run(install, turns, clock)).await?;
    install.mark_tried().map_err(not_ready)
}

/// Starts Pi for each turn.
pub struct PiRuntime {
    install: PiInstall,
    /// Where the turns' private directories are made.
    turns: PathBuf,
    clients: egress::Clients,
    clock: Arc<dyn Clock>,
}

impl PiRuntime {
    /// Uses an installation; whether it is there is asked at each start. `turns` is a directory of this instance; what
    /// ended servers left in it is removed.
    pub fn new(
        install: PiInstall,
        turns: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RuntimeError> {
        let clients = egress::Clients::build().map_err(|error| {
            RuntimeError::NotReady(format!("no HTTP client can be made: {error}"))
        })?;
        launch::sweep(&turns);
        Ok(Self {
            install,
            turns,
            clients,
            clock,
        })
    }

    async fn begin(&self, launch: Launch) -> Result<PiSession, RuntimeError> {
        self.install
            .check()
            .map_err(|error| RuntimeError::NotReady(error.to_string()))?;
        let target = &launch.gateway;
        if !target.allow_private && egress::names_private_address(&target.base_url) {
            return Err(RuntimeError::Start(
                "the provider's address is private, which is not allowed here".into(),
            ));
        }
        let id = launch.conversation.to_string();
        let transcript = Transcript::prepare(&launch.lines, &id, self.clock.now())?;
        let dir = TurnDir::create(&self.turns, &id).map_err(RuntimeError::io(
            "the turn's private directory cannot be made",
        ))?;
        let token = token()?;
        dir.fill(&launch, &transcript.file, &token)
            .map_err(RuntimeError::io(
                "the turn's private files cannot be written",
            ))?;
        let activity = Arc::new(Activity::default());
        let bridge = Bridge::open(
            &dir.socket(),
            token,
            launch.calls.clone(),
            self.gateway(&launch, &activity),
        )?;
        let child = dir.spawn(&self.install, &launch)?;
        let tail = tail::Tail::after(&dir.session_file(), &transcript.file[..transcript.known])
            .await
            .map_err(RuntimeError::io("the session file cannot be read"))?;
        let (events, received) = mpsc::channel(PI_EVENT_BUFFER);
        let (asks, asked) = mpsc::unbounded_channel();
        let session_file = dir.session_file();
        let driver = Driver::new(child, tail, events, Arc::clone(&activity), dir)?;
        let session = PiSession {
            unknown: transcript.unknown,
            bridge,
            activity,
            asks,
            events: received,
            driver: tokio::spawn(driver.run(asked)),
            prompted: false,
        };
        let file = session_file.to_string_lossy();
        match session
            .assert_started(&id, &file, &launch.gateway.model.id)
            .await
        {
            Ok(()) => Ok(session),
            Err(error) => {
                Box::new(session).end().await;
                Err(error)
            }
        }
    }

    fn gateway(&self, launch: &Launch, activity: &Arc<Activity>) -> Gateway {
        let tools: BTreeSet<String> = launch.tools.iter().map(|tool| tool.name.clone()).collect();
        let client = self.clients.for_target(&launch.gateway);
        Gateway::new(client, launch.gateway.clone(), tools, Arc::clone(activity))
    }
}

#[async_trait]
impl AgentRuntime for PiRuntime {
    async fn start(&self, launch: Launch) -> Result<Box<dyn AgentSession>, RuntimeError> {
        let session = Box::pin(self.begin(launch)).await?;
        Ok(Box::new(session))
    }

    async fn check(&self) -> EngineCheck {
        let detail = self.install.check().err().map(|error| error.to_string());
        EngineCheck {
            ready: detail.is_none(),
            engine: install::engine_name(),
            detail,
        }
    }
}

/// The session file as a turn starts with it.
struct Transcript {
    file: Vec<u8>,
    /// How much of `file` the caller knows already; the rest is new lines of ours.
    known: usize,
    unknown: Vec<OpenCall>,
}

impl Transcript {
    fn prepare(lines: &[String], id: &str, now: OffsetDateTime) -> Result<Self, RuntimeError> {
        let mut file = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            file.extend_from_slice(line.as_bytes());
            file.push(b'\n');
        }
        let known = file.len();
        if lines.is_empty() {
            file.extend_from_slice(session::header(id, now).as_bytes());
            file.push(b'\n');
        }
        let survey = match session::inspect(&file, id) {
            Verdict::Clean(survey) | Verdict::Repairable(survey) => survey,
            Verdict::Blocked { line, flaw } => {
                return Err(RuntimeError::Transcript(format!("line {line}: {flaw}")));
            }
        };
        let random = random::<8>()?;
        let mut number = 0;
        let fresh = || {
            number += 1;
            format!("{}{number:04x}", hex::encode(random))
        };
        for line in session::repair(&survey, now, fresh) {
            file.extend_from_slice(line.as_bytes());
            file.push(b'\n');
        }
        Ok(Self {
            file,
            known,
            unknown: survey.open,
        })
    }
}

/// A running Pi.
struct PiSession {
    unknown: Vec<OpenCall>,
    bridge: Bridge,
    activity: Arc<Activity>,
    asks: mpsc::UnboundedSender<Ask>,
    events: mpsc::Receiver<AgentEvent>,
    driver: JoinHandle<Ended>,
    prompted: bool,
}

impl PiSession {
    async fn command(&self, command: Command, patience: Duration) -> Result<Value, RuntimeError> {
        let (reply, answer) = oneshot::channel();
        let gone = || RuntimeError::Start("the engine ended".into());
        self.asks
            .send(Ask::Command { command, reply })
            .map_err(|_| gone())?;
        match timeout(patience, answer).await {
            Ok(Ok(Ok(data))) => Ok(data),
            Ok(Ok(Err(reason))) => Err(RuntimeError::Refused(reason)),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(RuntimeError::Start(
                "the engine gave no answer in time".into(),
            )),
        }
    }

    /// Proves that the process runs this conversation with this model and knows no command of anyone's.
    async fn assert_started(&self, id: &str, file: &str, model: &str) -> Result<(), RuntimeError> {
        let state = self.command(Command::GetState, PI_READY_TIMEOUT).await?;
        let expected = [
            ("/sessionId", Value::from(id)),
            ("/sessionFile", Value::from(file)),
            ("/model/id", Value::from(model)),
            ("/model/provider", Value::from(PROVIDER)),
            ("/isStreaming", Value::from(false)),
            ("/pendingMessageCount", Value::from(0)),
        ];
        for (pointer, value) in expected {
            if state.pointer(pointer) != Some(&value) {
                return Err(RuntimeError::Start(format!(
                    "its state differs at {pointer}"
                )));
            }
        }
        let commands = self.command(Command::GetCommands, PI_READY_TIMEOUT).await?;
        match commands.get("commands").and_then(Value::as_array) {
            Some(commands) if commands.is_empty() => Ok(()),
            _ => Err(RuntimeError::Start("it has commands of its own".into())),
        }
    }
}

#[async_trait]
impl AgentSession for PiSession {
    fn unknown_outcomes(&self) -> &[OpenCall] {
        &self.unknown
    }

    async fn prompt(&mut self, prompt: Prompt) -> Result<(), RuntimeError> {
        if std::mem::replace(&mut self.prompted, true) {
            return Err(RuntimeError::Refused("a session takes one prompt".into()));
        }
        self.bridge.set_context(prompt.context);
        let command = Command::Prompt {
            message: prompt.text,
            images: prompt.images.into_iter().map(Into::into).collect(),
        };
        let data = self.command(command, PI_PROMPT_TIMEOUT).await?;
        match data.get("disposition").and_then(Value::as_str) {
            Some("started") => Ok(()),
            other => Err(RuntimeError::Refused(format!(
                "the prompt was {}",
                other.unwrap_or("lost")
            ))),
        }
    }

    async fn abort(&mut self) -> Result<(), RuntimeError> {
        let gone = |_| RuntimeError::Interrupted("it is gone already".into());
        self.asks.send(Ask::Abort).map_err(gone)
    }

    async fn next(&mut self) -> Option<AgentEvent> {
        self.events.recv().await
    }

    fn model_silence(&self) -> Option<Duration> {
        self.activity.silence()
    }

    async fn end(self: Box<Self>) -> Ended {
        let Self {
            bridge,
            asks,
            mut events,
            driver,
            ..
        } = *self;
        drop(asks);
        events.close();
        let mut late = Vec::new();
        while let Some(event) = events.recv().await {
            if let AgentEvent::Line { raw } = event {
                late.push(raw);
            }
        }
        let mut ended = driver.await.unwrap_or_else(|error| Ended {
            result: Err(RuntimeError::Interrupted(format!(
                "its driver failed: {error}"
            ))),
            late: Vec::new(),
            lines: 0,
            bytes: 0,
            sha256: [0; 32],
            torn: Vec::new(),
        });
        drop(bridge);
        late.append(&mut ended.late);
        ended.late = late;
        ended
    }
}

fn token() -> Result<SecretString, RuntimeError> {
    random::<32>().map(|bytes| SecretString::from(hex::encode(bytes)))
}

fn random<const N: usize>() -> Result<[u8; N], RuntimeError> {
    secret::random().map_err(|error| RuntimeError::Start(error.to_string()))
}
