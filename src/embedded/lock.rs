//! One `bazilion up` a data directory.
//!
//! - The lock is the kernel's: it ends with the process, however that ends. The file's text only says who holds it.
//! - The text is written before the lock is announced; a reader that sees none knows that the holder is still starting.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Layout;
use crate::config::Obstacle;

/// The held lock. Dropping it lets the next one in.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// What the lock file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// The line of `up --json`, once it is ready. It names the address.
    pub ready: Option<Value>,
}

impl Holder {
    /// The address that it serves, once it does.
    pub fn url(&self) -> Option<&str> {
        self.ready.as_ref()?.get("url")?.as_str()
    }
}

/// The result of reaching for the lock.
#[derive(Debug)]
pub enum Hold {
    Ours(Lock),
    /// Another process holds it. `None` when it has not written its name yet.
    Theirs(Option<Holder>),
}

impl Lock {
    /// Reaches for the directory's lock, without waiting.
    pub fn reach(layout: &Layout) -> Result<Hold, Obstacle> {
        let path = layout.lock();
        let failed = |e: std::io::Error| Obstacle::file("Locking", &path, &e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {
                let mut lock = Self { file };
                lock.write(None).map_err(failed)?;
                Ok(Hold::Ours(lock))
            }
            Err(TryLockError::WouldBlock) => Ok(Hold::Theirs(read(file))),
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    /// Writes the line that a second `up` on this directory shows.
    pub fn announce(&mut self, layout: &Layout, ready: Value) -> Result<(), Obstacle> {
        self.write(Some(ready))
            .map_err(|e| Obstacle::file("Writing", &layout.lock(), &e))
    }

    fn write(&mut self, ready: Option<Value>) -> std::io::Result<()> {
        let holder = Holder {
            pid: std::process::id(),
            ready,
        };
        let text = serde_json::to_string(&holder)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

fn read(mut file: File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// What the holder of a directory wrote, without reaching for its lock.
pub fn holder(layout: &Layout) -> Option<Holder> {
    File::open(layout.lock()).ok().and_then(read)
}

/// A holder that serves no address yet, or whose name cannot be read.
pub fn still_starting(layout: &Layout, holder: Option<&Holder>) -> Obstacle {
    let who = holder.map_or("another process".to_owned(), |h| {
        format!("process {}", h.pid)
    });
    Obstacle::new(
        format!(
            "The data directory {} is held by {who}, which is starting or stopping.",
            layout.root().display()
        ),
        "Wait for it, or choose another directory with --data-dir.",
    )
}
