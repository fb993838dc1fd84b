//! The serving side: blocking work on a few threads, over any two streams.
//!
//! - At most eight requests are worked on at once; while all work, nothing more is read.
//! - No request ends the server: unknown bytes, frames over the limit and faults get an error answer.
//! - Writes and edits happen one at a time, so that an edit sees the file that it changes.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use super::{Answer, Call, Refused, RefusedCode, Request, Response, RootIdentity};
use crate::limits::{TOOLBOX_CONCURRENCY, TOOLBOX_FRAME_MAX};
use crate::repo;
use crate::repo::files::{self, FileError};
use crate::repo::paths::Root;
use crate::repo::{CwdError, diff, identities, search};

/// What a server works on.
#[derive(Debug)]
pub struct Workbench {
    root: Root,
    is_read_only: bool,
    writing: Mutex<()>,
}

impl Workbench {
    /// A workbench over a pinned root.
    pub fn new(root: Root, is_read_only: bool) -> Self {
        Workbench {
            root,
            is_read_only,
            writing: Mutex::new(()),
        }
    }

    /// Does one request.
    pub fn answer(&self, request: Request) -> Result<Response, Refused> {
        let root = &self.root;
        Ok(match request {
            Request::Root => Response::Root(RootIdentity {
                root_identity: root.identity(),
                ancestry: root.ancestry().map_err(FileError::from)?,
            }),
            Request::Context {
                team_id,
                target,
                expected_root,
            } => Response::Context(Box::new(repo::context(
                root,
                &team_id,
                &target,
                expected_root.as_deref(),
            ))),
            Request::Environment { cwd } => Response::Environment(identities::capture(root, &cwd)),
            Request::CheckCwd { cwd } => {
                Response::Cwd(repo::check_cwd(root, &cwd)?.as_str().to_owned())
            }
            Request::Read {
                path,
                offset,
                limit,
            } => Response::Content(files::read(root, &path, offset, limit)?),
            Request::Write { path, content } => {
                let _turn = self.write_turn()?;
                Response::Written(files::write(root, &path, &content)?)
            }
            Request::Edit { path, edits } => {
                let _turn = self.write_turn()?;
                Response::Written(files::edit(root, &path, &edits)?)
            }
            Request::Ls { path } => Response::Listing(files::ls(root, path.as_deref())?),
            Request::Find { pattern, path } => {
                Response::Found(search::find(root, &pattern, path.as_deref())?)
            }
            Request::Grep(query) => Response::Hits(search::grep(root, &query)?),
            Request::Diff => Response::Patch(diff::diff(root)),
        })
    }

    fn write_turn(&self) -> Result<MutexGuard<'_, ()>, FileError> {
        if self.is_read_only {
            return Err(FileError::ReadOnly);
        }
        // It guards no data; a writer that failed leaves nothing behind.
        Ok(self.writing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<FileError> for Refused {
    fn from(error: FileError) -> Self {
        let code = match error {
            FileError::ReadOnly => RefusedCode::ReadOnly,
            _ => RefusedCode::Refused,
        };
        Refused {
            code,
            message: error.to_string(),
        }
    }
}

impl From<CwdError> for Refused {
    fn from(error: CwdError) -> Self {
        Refused {
            code: RefusedCode::Refused,
            message: error.to_string(),
        }
    }
}

/// Serves until the input ends. Requests that were read are still answered.
pub fn serve(bench: &Workbench, mut input: impl Read, output: impl Write + Send) -> io::Result<()> {
    let output = Mutex::new(output);
    let (calls, waiting) = mpsc::sync_channel::<Call>(0);
    let waiting = Mutex::new(waiting);
    std::thread::scope(|threads| {
        for _ in 0..TOOLBOX_CONCURRENCY {
            threads.spawn(|| work(bench, &waiting, &output));
        }
        let result = read_calls(&mut input, &calls, &output);
        drop(calls);
        result
    })
}

fn read_calls(
    input: &mut impl Read,
    calls: &mpsc::SyncSender<Call>,
    output: &Mutex<impl Write>,
) -> io::Result<()> {
    while let Some(frame) = read_frame(input)? {
        let call = match &frame {
            Frame::Whole(bytes) => serde_json::from_slice::<Call>(bytes)
                .map_err(|error| format!("this is no request: {error}")),
            Frame::TooLarge => Err("the frame is larger than 16 MiB".to_owned()),
        };
        match call {
            Ok(call) => {
                if calls.send(call).is_err() {
                    return Ok(());
                }
            }
            Err(message) => {
                let id = match &frame {
                    Frame::Whole(bytes) => id_of(bytes),
                    Frame::TooLarge => 0,
                };
                let refused = Refused {
                    code: RefusedCode::BadRequest,
                    message,
                };
                send(
                    output,
                    &Answer {
                        id,
                        result: Err(refused),
                    },
                )?;
            }
        }
    }
    Ok(())
}

/// The id of something that is otherwise no request, so that its sender need not wait for ever.
fn id_of(bytes: &[u8]) -> u64 {
    serde_json::from_slice::<serde_json::Value>(bytes)
        .ok()
        .and_then(|value| value.get("id")?.as_u64())
        .unwrap_or(0)
}

fn work(bench: &Workbench, waiting: &Mutex<mpsc::Receiver<Call>>, output: &Mutex<impl Write>) {
    loop {
        let call = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(Call { id, request }) = call else {
            return;
        };
        let result =
            catch_unwind(AssertUnwindSafe(|| bench.answer(request))).unwrap_or_else(|_| {
                Err(Refused {
                    code: RefusedCode::Internal,
                    message: "the toolbox failed over this request".into(),
                })
            });
        // Where the other side is gone, the reader sees the end of its input.
        let _ = send(output, &Answer { id, result });
    }
}

fn send(output: &Mutex<impl Write>, answer: &Answer) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(answer)?;
    if bytes.len() > TOOLBOX_FRAME_MAX {
        let message = "the answer is larger than 16 MiB".to_owned();
        let refused = Refused {
            code: RefusedCode::TooLarge,
            message,
        };
        bytes = serde_json::to_vec(&Answer {
            id: answer.id,
            result: Err(refused),
        })?;
    }
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(&(bytes.len() as u32).to_be_bytes())?;
    output.write_all(&bytes)?;
    output.flush()
}

enum Frame {
    Whole(Vec<u8>),
    /// Read past, so that the next frame is found.
    TooLarge,
}

fn read_frame(input: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u64::from(u32::from_be_bytes(length));
    if length > TOOLBOX_FRAME_MAX as u64 {
        let passed = io::copy(&mut input.take(length), &mut io::sink())?;
        return Ok((passed == length).then_some(Frame::TooLarge));
    }
    let mut bytes = Vec::new();
    input.take(length).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 == length).then_some(Frame::Whole(bytes)))
}
