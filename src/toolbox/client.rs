//! The calling side: one connection, many calls at once.
//!
//! - A call that is dropped leaves the connection whole: frames are written by one task, and an answer that nobody
//!   waits for is thrown away.
//! - When the stream ends, each call that waits fails with [`ToolboxError::Closed`]; none waits for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::{Answer, Call, Refused, Request, Response, RootIdentity};
use crate::limits::{TOOLBOX_CONCURRENCY, TOOLBOX_FRAME_MAX};
use crate::repo::diff::Patch;
use crate::repo::files::{Edit, FileContent, Listing, Written};
use crate::repo::identities::Identities;
use crate::repo::report::Report;
use crate::repo::search::{Found, GrepQuery, Hits};

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolboxError {
    /// The toolbox answered with a refusal; its text is for the Agent.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The toolbox ended, or its stream broke: whether a write happened is unknown.
    #[error("the toolbox is gone")]
    Closed,
    /// It answered something else than it was asked.
    #[error("the toolbox answered something else than it was asked")]
    Confused,
    /// The request is larger than a frame; it was not sent.
    #[error("the request is larger than 16 MiB")]
    TooLarge,
}

type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Result<Response, Refused>>>>>>;

/// A connection to a toolbox; clones share it. The tasks end when the last clone is dropped or the stream ends.
#[derive(Debug, Clone)]
pub struct Toolbox {
    frames: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
    next: Arc<AtomicU64>,
}

macro_rules! ask {
    ($toolbox:ident, $request:expr, $answer:ident) => {
        match $toolbox.call($request).await? {
            Response::$answer(value) => Ok(value),
            _ => Err(ToolboxError::Confused),
        }
    };
}

impl Toolbox {
    /// Speaks the protocol over the two streams of a toolbox that was started already.
    pub fn connect(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Toolbox {
        let (frames, to_write) = mpsc::channel(TOOLBOX_CONCURRENCY);
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(write_frames(writer, to_write, Arc::clone(&waiting)));
        tokio::spawn(read_answers(reader, Arc::clone(&waiting)));
        Toolbox {
            frames,
            waiting,
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Asks, and waits for the answer.
    pub async fn call(&self, request: Request) -> Result<Response, ToolboxError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let frame =
            serde_json::to_vec(&Call { id, request }).map_err(|_| ToolboxError::Confused)?;
        if frame.len() > TOOLBOX_FRAME_MAX {
            return Err(ToolboxError::TooLarge);
        }
        let (answer, answered) = oneshot::channel();
        match self
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            Some(waiting) => waiting.insert(id, answer),
            None => return Err(ToolboxError::Closed),
        };
        self.frames
            .send(frame)
            .await
            .map_err(|_| ToolboxError::Closed)?;
        Ok(answered.await.map_err(|_| ToolboxError::Closed)??)
    }

    /// Identity of the root and of the directories above it.
    pub async fn root(&self) -> Result<RootIdentity, ToolboxError> {
        ask!(self, Request::Root, Root)
    }

    /// The repository context of a target. `expected_root`: the identity that the turn was bound to.
    pub async fn context(
        &self,
        team_id: &str,
        target: &str,
        expected_root: Option<&str>,
    ) -> Result<Report, ToolboxError> {
        let request = Request::Context {
            team_id: team_id.to_owned(),
            target: target.to_owned(),
            expected_root: expected_root.map(str::to_owned),
        };
        let report: Box<Report> = ask!(self, request, Context)?;
        Ok(*report)
    }

    /// Identities of a command's inputs, for its receipt.
    pub async fn environment(&self, cwd: &str) -> Result<Identities, ToolboxError> {
        ask!(
            self,
            Request::Environment {
                cwd: cwd.to_owned()
            },
            Environment
        )
    }

    /// The normal form of a working directory that exists and is no link.
    pub async fn check_cwd(&self, cwd: &str) -> Result<String, ToolboxError> {
        ask!(
            self,
            Request::CheckCwd {
                cwd: cwd.to_owned()
            },
            Cwd
        )
    }

    /// Lines of a file, or an image.
    pub async fn read(
        &self,
        path: &str,
        offset: Option<u64>,
        limit: Option<u64>,
    ) -> Result<FileContent, ToolboxError> {
        ask!(
            self,
            Request::Read {
                path: path.to_owned(),
                offset,
                limit
            },
            Content
        )
    }

    /// Writes a whole file.
    pub async fn write(&self, path: &str, content: &str) -> Result<Written, ToolboxError> {
        ask!(
            self,
            Request::Write {
                path: path.to_owned(),
                content: content.to_owned()
            },
            Written
        )
    }

    /// Replaces texts that occur exactly once.
    pub async fn edit(&self, path: &str, edits: Vec<Edit>) -> Result<Written, ToolboxError> {
        ask!(
            self,
            Request::Edit {
                path: path.to_owned(),
                edits
            },
            Written
        )
    }

    /// A directory's entries.
    pub async fn ls(&self, path: Option<&str>) -> Result<Listing, ToolboxError> {
        ask!(
            self,
            Request::Ls {
                path: path.map(str::to_owned)
            },
            Listing
        )
    }

    /// Paths that match a glob.
    pub async fn find(&self, pattern: &str, path: Option<&str>) -> Result<Found, ToolboxError> {
        let request = Request::Find {
            pattern: pattern.to_owned(),
            path: path.map(str::to_owned),
        };
        ask!(self, request, Found)
    }

    /// Lines that match an expression.
    pub async fn grep(&self, query: GrepQuery) -> Result<Hits, ToolboxError> {
        ask!(self, Request::Grep(query), Hits)
    }

    /// A patch of the working tree against HEAD.
    pub async fn diff(&self) -> Result<Patch, ToolboxError> {
        ask!(self, Request::Diff, Patch)
    }
}

async fn write_frames(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Vec<u8>>,
    waiting: Waiting,
) {
    while let Some(frame) = frames.recv().await {
        let length = (frame.len() as u32).to_be_bytes();
        let written = async {
            writer.write_all(&length).await?;
            writer.write_all(&frame).await?;
            writer.flush().await
        };
        if written.await.is_err() {
            close(&waiting);
            return;
        }
    }
    // Nobody can ask any more: the toolbox sees the end of its input. An error says that it has gone before.
    let _ = writer.shutdown().await;
}

async fn read_answers(mut reader: impl AsyncRead + Unpin, waiting: Waiting) {
    while let Some(answer) = read_answer(&mut reader).await {
        let sender = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .and_then(|waiting| waiting.remove(&answer.id));
        if let Some(sender) = sender {
            // The caller may have stopped waiting.
            let _ = sender.send(answer.result);
        }
    }
    close(&waiting);
}

/// The next answer; None when the stream ends or makes no sense any more.
async fn read_answer(reader: &mut (impl AsyncRead + Unpin)) -> Option<Answer> {
    let length = reader.read_u32().await.ok()? as usize;
    if length > TOOLBOX_FRAME_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Fails everyone who waits, and everyone who comes.
fn close(waiting: &Waiting) {
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
