//! Drives one Pi process: carries commands in, events and transcript lines out, and ends it.
//!
//! - Pi's output is always drained, also while it is being ended.
//! - A line of the transcript is handed on before the event that it belongs to.
//! - An aborted turn that does not settle in time ends with its process.
//! - The end is asked for in steps: closed input, SIGTERM, SIGKILL of the whole group.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::events::Reader;
use super::gateway::Activity;
use super::launch::TurnDir;
use super::rpc::{self, Command, LineReader, Record};
use super::tail::Tail;
use crate::limits::{PI_ABORT_WAIT, PI_EXIT_WAIT, PI_STDERR_KEPT};
use crate::runtime::{AgentEvent, Ended, RuntimeError};

/// What a session asks of its driver. When the asking side is gone, the process is ended.
pub(super) enum Ask {
    Command {
        command: Command,
        reply: oneshot::Sender<Result<Value, String>>,
    },
    Abort,
}

/// The one task that touches the process.
pub(super) struct Driver {
    child: Child,
    input: Option<ChildStdin>,
    output: LineReader<ChildStdout>,
    stderr: Arc<Mutex<Vec<u8>>>,
    tail: Tail,
    events: mpsc::Sender<AgentEvent>,
    activity: Arc<Activity>,
    pending: HashMap<u64, oneshot::Sender<Result<Value, String>>>,
    next_id: u64,
    reader: Reader,
    /// A prompt was sent and the turn is not over.
    unsettled: bool,
    deadline: Option<Instant>,
    trouble: Option<String>,
    /// Lines that nobody listened for any more.
    late: Vec<String>,
    /// Kept until the process is gone.
    _dir: TurnDir,
}

impl Driver {
    pub(super) fn new(
        mut child: Child,
        tail: Tail,
        events: mpsc::Sender<AgentEvent>,
        activity: Arc<Activity>,
        dir: TurnDir,
    ) -> Result<Self, RuntimeError> {
        let (Some(input), Some(output), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(RuntimeError::Start(
                "its standard streams are missing".into(),
            ));
        };
        let kept = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(keep_end(stderr, Arc::clone(&kept)));
        Ok(Self {
            child,
            input: Some(input),
            output: LineReader::new(output),
            stderr: kept,
            tail,
            events,
            activity,
            pending: HashMap::new(),
            next_id: 1,
            reader: Reader::default(),
            unsettled: false,
            deadline: None,
            trouble: None,
            late: Vec::new(),
            _dir: dir,
        })
    }

    /// Runs until the process is gone.
    pub(super) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) -> Ended {
        self.take_lines().await;
        let mut is_open = true;
        while is_open {
            let deadline = self.deadline;
            is_open = tokio::select! {
                line = self.output.next() => self.take(line).await,
                ask = asks.recv() => match ask {
                    Some(ask) => self.serve(ask).await,
                    None => false,
                },
                () = at(deadline) => {
                    self.trouble = Some("it did not settle after the abort".into());
                    false
                }
            };
        }
        self.pending.clear();
        let status = self.stop().await;
        self.take_lines().await;
        self.finish(status)
    }

    /// Handles one line of output; says whether more can come.
    async fn take(&mut self, line: std::io::Result<Option<BytesMut>>) -> bool {
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => return false,
            Err(error) => {
                self.trouble = Some(error.to_string());
                return false;
            }
        };
        match rpc::decode(&line) {
            Some(Record::Response { id, result }) => {
                if let Some(reply) = self.pending.remove(&id) {
                    // The asking side may have given up.
                    drop(reply.send(result));
                }
            }
            Some(Record::Event { kind, body }) => self.event(&kind, &body).await,
            None => {}
        }
        true
    }

    async fn event(&mut self, kind: &str, body: &Value) {
        if !kind.ends_with("_update") {
            self.take_lines().await;
        }
        for usage in self.activity.take_counted() {
            self.emit(AgentEvent::Usage(usage)).await;
        }
        let Some(event) = self.reader.read(kind, body) else {
            return;
        };
        if matches!(event, AgentEvent::Settled { .. }) {
            self.unsettled = false;
            self.deadline = None;
        }
        self.emit(event).await;
    }

    async fn take_lines(&mut self) {
        match self.tail.take().await {
            Ok(lines) => {
                for raw in lines {
                    self.emit(AgentEvent::Line { raw }).await;
                }
            }
            Err(error) => self.trouble = Some(format!("the session file cannot be read: {error}")),
        }
    }

    async fn emit(&mut self, event: AgentEvent) {
        // A host that ends the session no longer listens; it gets the lines with the report.
        if let Err(mpsc::error::SendError(AgentEvent::Line { raw })) = self.events.send(event).await
        {
            self.late.push(raw);
        }
    }

    async fn serve(&mut self, ask: Ask) -> bool {
        match ask {
            Ask::Command { command, reply } => {
                self.unsettled |= matches!(command, Command::Prompt { .. });
                let id = self.next_id;
                self.pending.insert(id, reply);
                self.write(&command).await
            }
            Ask::Abort => {
                if self.unsettled {
                    self.deadline
                        .get_or_insert_with(|| Instant::now() + PI_ABORT_WAIT);
                }
                self.write(&Command::ClearQueue).await && self.write(&Command::Abort).await
            }
        }
    }

    async fn write(&mut self, command: &Command) -> bool {
        let id = self.next_id;
        self.next_id += 1;
        let (Some(input), Ok(line)) = (self.input.as_mut(), rpc::encode(id, command)) else {
            return false;
        };
        match timeout(PI_ABORT_WAIT, input.write_all(&line)).await {
            Ok(Ok(())) => true,
            _ => {
                self.trouble = Some("it takes no more input".into());
                false
            }
        }
    }

    /// Ends the process in steps and drains what it still says.
    async fn stop(&mut self) -> Option<ExitStatus> {
        drop(self.input.take());
        for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
            if let Some(signal) = signal {
                self.signal(signal);
            }
            let until = Instant::now() + PI_EXIT_WAIT;
            while let Ok(line) = tokio::time::timeout_at(until, self.output.next()).await {
                if !self.take(line).await {
                    break;
                }
            }
            if let Ok(status) = tokio::time::timeout_at(until, self.child.wait()).await {
                return status.ok();
            }
        }
        self.child.wait().await.ok()
    }

    fn signal(&self, signal: Signal) {
        let group = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(group) = group {
            // It may be gone, which is what was wanted.
            let _ = kill_process_group(group, signal);
        }
    }

    fn finish(self, status: Option<ExitStatus>) -> Ended {
        let said = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let said = String::from_utf8_lossy(&said).into_owned();
        let how = status.map_or_else(|| "no exit status".to_owned(), |status| status.to_string());
        if !status.is_some_and(|status| status.success()) {
            tracing::warn!(stderr = %said, how, "the agent engine did not end in order");
        }
        let result = if self.unsettled || self.trouble.is_some() {
            let trouble = self
                .trouble
                .map(|trouble| format!("{trouble}; "))
                .unwrap_or_default();
            Err(RuntimeError::Interrupted(format!("{trouble}{how}")))
        } else {
            Ok(())
        };
        let (lines, bytes, sha256, torn) = self.tail.finish();
        Ended {
            result,
            late: self.late,
            lines,
            bytes,
            sha256,
            torn,
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Reads standard error to its end and keeps the last part.
async fn keep_end(mut stderr: ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut part).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&part[..count]);
        let surplus = kept.len().saturating_sub(PI_STDERR_KEPT);
        kept.drain(..surplus);
    }
}
