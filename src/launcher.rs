//! Process 1 of a command container: it waits for one command on its standard input, runs it, and dies.
//!
//! - A container may be started long before its command is known: nothing of a repository runs until a whole
//!   frame has arrived. A frame cut short by a dying server runs nothing.
//! - The command can not speak in our place: this process is not dumpable, its descriptors are not inherited, and the
//!   ready mark and the trailer go to a standard error that the command never had.
//! - Standard output and error of the command are one pipe, so they keep the order in which they were written.
//! - The server's death (end of standard input), the deadline of the frame, and the command's own end all end every
//!   process of the container, also those in sessions and groups of their own.
//! - Every thread exists before the command does: a fork bomb can not keep the launcher from ending it.
//!
//! On standard error: `R <dev> <ino> <uid> <w|r>` when ready, then one of `X <code> <signal> <bytes>` (ended),
//! `D <bytes>` (own deadline) and `F <what>` (nothing was started). Standard output carries the command's bytes
//! and nothing else; as the two streams are not ordered among each other, the byte count says when all has arrived.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use crate::limits::LAUNCH_FRAME_MAX;

/// Where the Team's root is mounted in every container.
pub const WORKSPACE: &str = "/workspace";

/// Set before everything is killed from outside the command: who set it also ends the process and says why.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Exit code of a launcher that ended everything itself: server gone, or deadline.
pub const EXIT_ENDED: u8 = 124;
/// Exit code of a launcher that started nothing.
pub const EXIT_NOT_STARTED: u8 = 125;

/// The one command, on the wire after its length (`u32`, big-endian), as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Frame {
    /// Text for `/bin/sh -c`.
    pub command: String,
    /// Directory below the workspace, `.` for the root itself; no component may be a link.
    pub cwd: String,
    /// The whole environment of the command; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// After so many milliseconds the launcher ends everything by itself: what bounds a command while the engine is dead.
    pub deadline_ms: u64,
}

impl Frame {
    /// The bytes to send: length, then JSON. `None` when the frame is over the limit of the launcher.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let json = serde_json::to_vec(self).ok()?;
        let length = u32::try_from(json.len()).ok()?;
        if json.len() > LAUNCH_FRAME_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(4 + json.len());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&json);
        Some(bytes)
    }
}

/// What the launcher says on its standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Waiting for the frame. Says which directory the workspace is from inside.
    Ready {
        device: u64,
        inode: u64,
        uid: u32,
        writable: bool,
    },
    /// The command ended by itself. `signal` is 0 for a plain exit.
    Ended { code: i32, signal: i32, bytes: u64 },
    /// The deadline of the frame passed, everything was killed.
    Deadline { bytes: u64 },
    /// Nothing was started.
    NotStarted { what: String },
}

impl Mark {
    /// Reads one line; `None` for anything that a launcher does not write.
    pub fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        let words: Vec<&str> = rest.split(' ').collect();
        match (kind, words.as_slice()) {
            ("R", [device, inode, uid, access]) => Some(Mark::Ready {
                device: device.parse().ok()?,
                inode: inode.parse().ok()?,
                uid: uid.parse().ok()?,
                writable: *access == "w",
            }),
            ("X", [code, signal, bytes]) => Some(Mark::Ended {
                code: code.parse().ok()?,
                signal: signal.parse().ok()?,
                bytes: bytes.parse().ok()?,
            }),
            ("D", [bytes]) => Some(Mark::Deadline {
                bytes: bytes.parse().ok()?,
            }),
            ("F", _) => Some(Mark::NotStarted { what: rest.into() }),
            _ => None,
        }
    }

    fn write(&self) -> io::Result<()> {
        let line = match self {
            Mark::Ready {
                device,
                inode,
                uid,
                writable,
            } => {
                let access = if *writable { 'w' } else { 'r' };
                format!("R {device} {inode} {uid} {access}\n")
            }
            Mark::Ended {
                code,
                signal,
                bytes,
            } => format!("X {code} {signal} {bytes}\n"),
            Mark::Deadline { bytes } => format!("D {bytes}\n"),
            Mark::NotStarted { what } => format!("F {what}\n"),
        };
        io::stderr().write_all(line.as_bytes())
    }
}

/// Runs as process 1 until the one command has ended. Anywhere else it refuses: it would kill every process that the
/// user may signal.
pub fn main() -> ExitCode {
    if !rustix::process::getpid().is_init() {
        eprintln!("bazilion-toolbox launch runs only as the first process of a container");
        return ExitCode::from(EXIT_NOT_STARTED);
    }
    match serve() {
        Ok(code) => ExitCode::from(code),
        Err(what) => {
            // The server may be gone; there is nobody else to tell.
            let _ = Mark::NotStarted { what }.write();
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

fn serve() -> Result<u8, String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| format!("not-dumpable {e}"))?;
    let (pipe, writer) = io::pipe().map_err(|e| format!("pipe {e}"))?;
    let bytes = Arc::new(AtomicU64::new(0));
    let copier = {
        let bytes = Arc::clone(&bytes);
        thread::Builder::new().spawn(move || copy(pipe, &bytes))
    }
    .map_err(|e| format!("thread {e}"))?;
    let (deadline, at) = mpsc::channel::<Duration>();
    {
        let bytes = Arc::clone(&bytes);
        thread::Builder::new().spawn(move || end_at_deadline(&at, &bytes))
    }
    .map_err(|e| format!("thread {e}"))?;
    let (hand_over, frames) = mpsc::channel::<Frame>();
    thread::Builder::new()
        .spawn(move || read_input(&hand_over))
        .map_err(|e| format!("thread {e}"))?;

    ready().map_err(|e| format!("workspace {e}"))?;
    let Ok(frame) = frames.recv() else {
        return Ok(EXIT_NOT_STARTED);
    };
    enter(&frame.cwd).map_err(|e| format!("cwd {e}"))?;
    let child = spawn(&frame, writer).map_err(|e| format!("sh {e}"))?;
    // The receiving thread lives as long as the process.
    let _ = deadline.send(Duration::from_millis(frame.deadline_ms));

    let status = reap_until(child);
    // Killed by us, the command did not end by itself, and its status is not reported as if it had.
    while ENDING.load(Ordering::Acquire) {
        thread::park();
    }
    kill_everything();
    reap_all();
    // Every writer of the pipe is dead: the copier reaches its end as soon as the server has taken the rest.
    let _ = copier.join();
    let (code, signal) = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (code, 0),
        (None, Some(signal)) => (0, signal),
        (None, None) => (i32::from(EXIT_NOT_STARTED), 0),
    };
    let bytes = bytes.load(Ordering::Acquire);
    let _ = Mark::Ended {
        code,
        signal,
        bytes,
    }
    .write();
    let shown = if signal == 0 { code } else { 128 + signal };
    Ok(u8::try_from(shown).unwrap_or(EXIT_NOT_STARTED))
}

/// Says which directory the workspace is, seen from here, and whether this user may write in it.
fn ready() -> io::Result<()> {
    let root = open_directory(rustix::fs::CWD, WORKSPACE)?;
    let stat = rustix::fs::fstat(&root)?;
    let writable = rustix::fs::accessat(
        &root,
        ".",
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
        rustix::fs::AtFlags::empty(),
    )
    .is_ok();
    let mark = Mark::Ready {
        device: stat.st_dev,
        inode: stat.st_ino,
        uid: rustix::process::getuid().as_raw(),
        writable,
    };
    mark.write()
}

/// Reads the one frame, hands it over, and then waits for the end of the input, which ends everything.
fn read_input(hand_over: &mpsc::Sender<Frame>) {
    let mut input = io::stdin().lock();
    match read_frame(&mut input) {
        Ok(frame) => {
            // The main thread takes the frame or has ended the process.
            let _ = hand_over.send(frame);
        }
        Err(_) => std::process::exit(i32::from(EXIT_NOT_STARTED)),
    }
    let mut rest = [0_u8; 256];
    loop {
        match input.read(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    ENDING.store(true, Ordering::Release);
    kill_everything();
    std::process::exit(i32::from(EXIT_ENDED));
}

fn read_frame(input: &mut impl Read) -> io::Result<Frame> {
    let mut length = [0_u8; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LAUNCH_FRAME_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let mut json = vec![0; length];
    input.read_exact(&mut json)?;
    serde_json::from_slice(&json).map_err(io::Error::from)
}

fn end_at_deadline(at: &mpsc::Receiver<Duration>, bytes: &AtomicU64) {
    let Ok(after) = at.recv() else { return };
    thread::sleep(after);
    ENDING.store(true, Ordering::Release);
    kill_everything();
    let _ = Mark::Deadline {
        bytes: bytes.load(Ordering::Acquire),
    }
    .write();
    std::process::exit(i32::from(EXIT_ENDED));
}

/// Copies the command's output. A server that reads slowly holds the command back; nothing is dropped.
fn copy(mut pipe: PipeReader, bytes: &AtomicU64) {
    let mut out = File::from(match io::stdout().as_fd().try_clone_to_owned() {
        Ok(out) => out,
        Err(_) => return,
    });
    let mut buffer = vec![0_u8; 64 * 1024];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) if out.write_all(&buffer[..n]).is_ok() => {
                bytes.fetch_add(n as u64, Ordering::AcqRel);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Enters a directory below the workspace, component by component, through no link.
fn enter(cwd: &str) -> io::Result<()> {
    let mut directory = open_directory(rustix::fs::CWD, WORKSPACE)?;
    for part in cwd
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        if part == ".." {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        directory = open_directory(&directory, part)?;
    }
    Ok(rustix::process::fchdir(&directory)?)
}

fn open_directory(at: impl AsFd, path: &str) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, path, flags, Mode::empty())?)
}

fn spawn(frame: &Frame, output: io::PipeWriter) -> io::Result<Pid> {
    let child = Command::new("/bin/sh")
        .args(["-c", &frame.command])
        .env_clear()
        .envs(&frame.env)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Waits for the command itself; what it left behind is reaped on the way, else it would fill the process limit.
fn reap_until(child: Pid) -> WaitStatus {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return status,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Without children the command is gone unseen; that can not happen, and must not hang.
            Err(_) => std::process::exit(i32::from(EXIT_NOT_STARTED)),
        }
    }
}

fn reap_all() {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills every process of the container but this one. The "group of process 1" is how the call spells *all*.
fn kill_everything() {
    // An error means that there was nothing left to kill.
    let _ = rustix::process::kill_process_group(Pid::INIT, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            command: "echo hi".into(),
            cwd: ".".into(),
            env: BTreeMap::from([("PATH".into(), "/bin".into())]),
            deadline_ms: 1000,
        }
    }

    #[test]
    fn a_frame_survives_the_wire() {
        let bytes = frame().encode().unwrap();
        assert_eq!(read_frame(&mut bytes.as_slice()).unwrap(), frame());
    }

    #[test]
    fn a_frame_cut_anywhere_is_no_frame() {
        let bytes = frame().encode().unwrap();
        for cut in 0..bytes.len() {
            assert!(read_frame(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_on_both_sides() {
        let mut big = frame();
        big.command = "x".repeat(LAUNCH_FRAME_MAX);
        assert!(big.encode().is_none());
        assert!(read_frame(&mut u32::MAX.to_be_bytes().as_slice()).is_err());
    }

    #[test]
    fn marks_are_read_as_they_are_written() {
        let ready = Mark::Ready {
            device: 4,
            inode: 7,
            uid: 1000,
            writable: true,
        };
        assert_eq!(Mark::parse("R 4 7 1000 w"), Some(ready));
        let ended = Mark::Ended {
            code: 0,
            signal: 9,
            bytes: 12,
        };
        assert_eq!(Mark::parse("X 0 9 12"), Some(ended));
        assert_eq!(Mark::parse("D 12"), Some(Mark::Deadline { bytes: 12 }));
        assert_eq!(Mark::parse("X 0 9"), None);
        assert_eq!(Mark::parse("hello"), None);
    }
}
