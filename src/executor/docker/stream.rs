//! The streams of a container: readiness, handing the command over, output, and the end.
//!
//! - Standard output and error are not ordered among each other, so the end is known when the trailer *and* as many bytes
//!   as it names have arrived.
//! - An end counts as observed only when launcher and engine say the same. Everything else is `Lost`, never a success.
//! - Every wait is bounded: by the frame's deadline while the command runs, by the engine's bound after it.

use std::io;
use std::time::Duration;

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::query_parameters::{InspectContainerOptions, WaitContainerOptionsBuilder};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::bounded;
use crate::executor::{
    Attached, Chunk, ContainerId, ContainerSpec, End, ExecutorError, Exit, FileIdentity, Frame,
    Running,
};
use crate::launcher::Mark;
use crate::limits::{ENGINE_CALL_TIMEOUT, ENGINE_START_TIMEOUT, OUTPUT_BUFFER};

/// Longest line that a launcher writes; more is not a launcher.
const MARK_MAX: usize = 4096;

pub(super) fn attached(id: ContainerId, io: AttachContainerResults) -> Attached {
    let output = io.output.map(|piece| match piece {
        Ok(LogOutput::StdErr { message }) => Ok(Chunk::Err(message)),
        Ok(other) => Ok(Chunk::Out(other.into_bytes())),
        Err(error) => Err(io::Error::other(error)),
    });
    Attached {
        id,
        input: io.input,
        output: output.boxed(),
    }
}

/// Waits for the launcher, and compares the workspace that it sees with the admitted one.
pub(super) async fn until_ready(
    mut attached: Attached,
    spec: &ContainerSpec,
) -> Result<Attached, ExecutorError> {
    let mut marks = Marks::default();
    let wait = tokio::time::timeout(
        ENGINE_START_TIMEOUT,
        first_mark(&mut attached.output, &mut marks),
    );
    let mark = wait.await.map_err(|_| ExecutorError::Unanswered {
        call: "start",
        message: "the launcher was not ready in time".into(),
    })?;
    let Some(Mark::Ready {
        device,
        inode,
        uid,
        writable,
    }) = mark
    else {
        return Err(ExecutorError::Blocked(match mark {
            Some(Mark::NotStarted { what }) => {
                format!("The launcher could not prepare the command: {what}.")
            }
            _ => "The container ended before it was ready for a command.".into(),
        }));
    };
    if (FileIdentity { device, inode }) != spec.workspace.identity {
        return Err(ExecutorError::Blocked(
            "The workspace seen inside the container is not the Team's root on the executor: another directory is \
             mounted (check how paths of this server map to the engine's host)."
                .into(),
        ));
    }
    if uid != spec.user.uid || (spec.workspace.writable && !writable) {
        return Err(ExecutorError::Blocked(format!(
            "User id {} cannot write the Team's root inside the container.",
            spec.user.uid
        )));
    }
    Ok(attached)
}

async fn first_mark(
    output: &mut BoxStream<'static, io::Result<Chunk>>,
    marks: &mut Marks,
) -> Option<Mark> {
    loop {
        match output.next().await {
            Some(Ok(Chunk::Err(bytes))) => match marks.push(&bytes) {
                Pushed::Incomplete => {}
                Pushed::Mark(mark) => return Some(mark),
                Pushed::Broken => return None,
            },
            Some(Ok(Chunk::Out(_)) | Err(_)) | None => return None,
        }
    }
}

pub(super) async fn run(
    docker: Docker,
    mut attached: Attached,
    frame: &Frame,
) -> Result<Running, ExecutorError> {
    let bytes = frame.encode().ok_or_else(|| {
        ExecutorError::Blocked("The command is too large for the launcher.".into())
    })?;
    let write = async {
        attached.input.write_all(&bytes).await?;
        attached.input.flush().await
    };
    match tokio::time::timeout(ENGINE_CALL_TIMEOUT, write).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(unanswered(&error.to_string())),
        Err(_) => return Err(unanswered("the command was not taken in time")),
    }
    let (sender, output) = mpsc::channel(OUTPUT_BUFFER);
    // The launcher ends by its own deadline; an engine that says nothing of it for two more calls will not.
    let bound = Duration::from_millis(frame.deadline_ms) + 2 * ENGINE_CALL_TIMEOUT;
    let pump = AbortOnDropHandle::new(tokio::spawn(async move {
        let follow = follow(&docker, attached, sender);
        tokio::time::timeout(bound, follow)
            .await
            .unwrap_or_else(|_| lost("neither the launcher nor the engine reported an end in time"))
    }));
    let exit = async move {
        pump.await
            .unwrap_or_else(|_| lost("reading the output failed"))
    };
    Ok(Running {
        output,
        exit: Box::pin(exit),
    })
}

fn unanswered(message: &str) -> ExecutorError {
    ExecutorError::Unanswered {
        call: "hand over",
        message: message.into(),
    }
}

fn lost(reason: &str) -> Exit {
    Exit::Lost {
        reason: reason.into(),
    }
}

/// Reads until trailer and bytes are complete. The input stays open as long: its end would end the command.
async fn follow(docker: &Docker, attached: Attached, sender: mpsc::Sender<Bytes>) -> Exit {
    let Attached {
        id,
        input,
        mut output,
    } = attached;
    let mut marks = Marks::default();
    let mut delivered = 0_u64;
    let mut trailer = None;
    while !trailer
        .as_ref()
        .is_some_and(|mark| complete(mark, delivered))
    {
        let next = match trailer {
            None => output.next().await,
            Some(_) => match tokio::time::timeout(ENGINE_CALL_TIMEOUT, output.next()).await {
                Ok(next) => next,
                Err(_) => break,
            },
        };
        match next {
            Some(Ok(Chunk::Out(bytes))) => {
                delivered += bytes.len() as u64;
                // A reader that went away wants no more of it; the command goes on.
                let _ = sender.send(bytes).await;
            }
            Some(Ok(Chunk::Err(bytes))) => match marks.push(&bytes) {
                Pushed::Incomplete => {}
                Pushed::Mark(mark) => trailer = Some(mark),
                Pushed::Broken => break,
            },
            Some(Err(_)) | None => break,
        }
    }
    drop(sender);
    let exit = conclude(docker, &id, trailer, delivered).await;
    drop(input);
    exit
}

fn complete(mark: &Mark, delivered: u64) -> bool {
    match mark {
        Mark::Ended { bytes, .. } | Mark::Deadline { bytes } => delivered >= *bytes,
        Mark::Ready { .. } | Mark::NotStarted { .. } => true,
    }
}

async fn conclude(
    docker: &Docker,
    id: &ContainerId,
    trailer: Option<Mark>,
    delivered: u64,
) -> Exit {
    let (code, signal, bytes) = match trailer {
        Some(Mark::Ended {
            code,
            signal,
            bytes,
        }) => (code, signal, bytes),
        Some(Mark::Deadline { bytes }) => return Exit::Deadline { bytes },
        Some(Mark::NotStarted { what }) => return Exit::NotStarted { reason: what },
        Some(Mark::Ready { .. }) => return lost("the launcher started twice"),
        None => return lost("the container ended, or was lost, before the command's end was seen"),
    };
    if delivered != bytes {
        return lost("part of the output did not arrive");
    }
    let Some(engine_code) = engine_code(docker, id).await else {
        return lost("the engine did not confirm the command's end");
    };
    let shown = if signal == 0 { code } else { 128 + signal };
    if engine_code != i64::from(shown) {
        return lost("launcher and engine report different ends");
    }
    let out_of_memory = memory_flag(docker, id).await;
    let end = if signal == 0 {
        End::Code(code)
    } else {
        End::Signal(signal)
    };
    Exit::Observed {
        end,
        bytes,
        out_of_memory,
    }
}

async fn engine_code(docker: &Docker, id: &ContainerId) -> Option<i64> {
    let options = WaitContainerOptionsBuilder::default()
        .condition("not-running")
        .build();
    let mut answers = docker.wait_container(id.as_str(), Some(options));
    let answer = tokio::time::timeout(ENGINE_CALL_TIMEOUT, answers.next())
        .await
        .ok()?;
    match answer? {
        Ok(answer) => Some(answer.status_code),
        // The client turns every other code than 0 into an error.
        Err(bollard::errors::Error::DockerContainerWaitError { code, .. }) => Some(code),
        Err(_) => None,
    }
}

/// An annotation: when it can not be read it is not claimed.
async fn memory_flag(docker: &Docker, id: &ContainerId) -> bool {
    let inspect = docker.inspect_container(id.as_str(), None::<InspectContainerOptions>);
    match bounded("inspect", inspect).await {
        Ok(container) => container.state.and_then(|s| s.oom_killed).unwrap_or(false),
        Err(_) => false,
    }
}

/// Collects the launcher's lines out of pieces that are cut anywhere.
#[derive(Default)]
struct Marks(BytesMut);

enum Pushed {
    Incomplete,
    Mark(Mark),
    Broken,
}

impl Marks {
    fn push(&mut self, bytes: &[u8]) -> Pushed {
        self.0.extend_from_slice(bytes);
        let Some(end) = self.0.iter().position(|&b| b == b'\n') else {
            return if self.0.len() > MARK_MAX {
                Pushed::Broken
            } else {
                Pushed::Incomplete
            };
        };
        let line = self.0.split_to(end + 1);
        match std::str::from_utf8(&line[..end]).ok().and_then(Mark::parse) {
            Some(mark) => Pushed::Mark(mark),
            None => Pushed::Broken,
        }
    }
}
