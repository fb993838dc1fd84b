//! The PostgreSQL process: started as a child, signalled by descriptor, and found again after its parent was killed.
//!
//! - A thread of its own starts the child and waits for it. The kernel's parent-death signal follows the *thread* that
//!   started a child, so that thread must live as long as the child may.
//! - Signals go to a process descriptor, never to a number that may have been given away meanwhile.
//! - A process is taken for a leftover only if it works in the very directory of our cluster.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::limits::POSTGRES_POLL;

/// A running child.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    handle: OwnedFd,
    ended: watch::Receiver<Option<String>>,
}

impl Process {
    /// Starts the command in a process group of its own, so that a terminal's Ctrl-C reaches only us.
    pub async fn start(command: Command) -> std::io::Result<Self> {
        let (started, start) = oneshot::channel();
        let (end, ended) = watch::channel(None);
        std::thread::Builder::new()
            .name("postgres-parent".into())
            .spawn(move || live(command, started, &end))?;
        let (pid, handle) = start
            .await
            .map_err(|_| std::io::Error::other("the parent thread ended"))??;
        Ok(Self { pid, handle, ended })
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    /// Waits for its end.
    pub async fn wait(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_default(),
            Err(_) => "it ended".into(),
        }
    }

    /// Sends a signal; a process that is gone already is no error.
    pub fn signal(&self, signal: Signal) {
        if self.end().is_none() {
            let _ = pidfd_send_signal(&self.handle, signal);
        }
    }
}

/// The life of the parent thread.
fn live(
    mut command: Command,
    started: oneshot::Sender<std::io::Result<(u32, OwnedFd)>>,
    end: &watch::Sender<Option<String>>,
) {
    use std::os::unix::process::CommandExt as _;
    let mut child = match command.process_group(0).spawn() {
        Ok(child) => child,
        Err(e) => {
            let _ = started.send(Err(e));
            return;
        }
    };
    let pid = child.id();
    // Not waited for yet, so the number is still this child's.
    let handle = descriptor(pid)
        .ok_or_else(|| std::io::Error::other("no process descriptor (Linux 5.3 or newer)"));
    let _ = started.send(handle.map(|handle| (pid, handle)));
    let how = match child.wait() {
        Ok(status) => status.to_string(),
        Err(e) => e.to_string(),
    };
    end.send_replace(Some(how));
}

fn descriptor(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// `command` under `setpriv --pdeathsig`, where that program is: the child is told to stop when its parent dies. Without
/// it the next start finds and stops the leftover.
pub fn with_parent_death(program: &Path) -> Command {
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"]
        .into_iter()
        .find(|p| Path::new(p).exists());
    match setpriv {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "INT", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A PostgreSQL that runs in `cluster` and is not our child.
#[derive(Debug)]
pub struct Leftover {
    pub pid: u32,
    handle: OwnedFd,
}

/// Finds it by the cluster's own pid file, and believes that only of a process that works in that directory.
pub fn leftover(cluster: &Path) -> Option<Leftover> {
    let text = std::fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    let pid: u32 = text.lines().next()?.trim().parse().ok()?;
    let handle = descriptor(pid)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let ours = works_in(pid, cluster) && name.starts_with("postgres");
    ours.then_some(Leftover { pid, handle })
}

impl Leftover {
    /// Asks it to stop, waits, and then makes it. `true` when it is gone.
    pub async fn stop(self, cluster: &Path, patience: Duration) -> bool {
        for signal in [Signal::INT, Signal::QUIT] {
            // Gone already is as good.
            let _ = pidfd_send_signal(&self.handle, signal);
            let deadline = Instant::now() + patience;
            while Instant::now() < deadline {
                if !works_in(self.pid, cluster) {
                    return true;
                }
                sleep(POSTGRES_POLL).await;
            }
        }
        false
    }
}

/// A process that has ended works nowhere, even before its parent took notice.
fn works_in(pid: u32, cluster: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir == cluster)
}
