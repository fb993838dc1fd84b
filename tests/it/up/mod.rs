//! `bazilion up` as a person runs it: the real program, a data directory from nothing.

mod serve;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::embedded::Scratch;

/// A running `up`; stopped with the test.
struct Up {
    child: Child,
    ready: Value,
}

fn command(data: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_bazilion"));
    let mut command = Command::new(program);
    command
        .env(
            "BAZILION_TOOLBOX",
            program.with_file_name("toolbox").join("bazilion-toolbox"),
        )
        .args(["up", "--demo", "--json", "--data-dir"])
        .arg(data)
        .env("BAZILION_LISTEN", "127.0.0.1:0")
        .arg("--cache-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    command
}

impl Up {
    /// Starts it and waits for its one line.
    fn start(data: &Path) -> Self {
        let mut child = command(data).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = serde_json::from_str(&line).expect("one line of JSON when it is ready");
        Self { child, ready }
    }

    fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn up_starts_from_nothing_survives_a_kill_and_stops_in_order() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut first = Up::start(&data);
    assert_eq!(first.ready["home"], "demo");
    let url = first.ready["url"].as_str().unwrap().to_owned();
    assert!(
        first.ready["signInLink"]
            .as_str()
            .unwrap()
            .starts_with(&url)
    );

    // A second one on the same directory shows the first's address, and the link to nobody else.
    let joined = command(&data).output().unwrap();
    assert!(joined.status.success());
    let joined: Value = serde_json::from_slice(&joined.stdout).unwrap();
    assert_eq!(
        (joined["url"].as_str(), &joined["signInLink"]),
        (Some(url.as_str()), &Value::Null)
    );

    // A taken port is said with the next step, and nothing is started.
    let other = scratch.path().join("other");
    let taken = command(&other)
        .args(["--listen", url.trim_start_matches("http://")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        !taken.status.success() && said.contains("--listen"),
        "{said}"
    );
    assert!(!other.join("postgres").exists());

    first.signal(Signal::KILL);
    let mut second = Up::start(&data);
    let postgres = second.ready["pids"][1].as_u64().unwrap();
    assert!(second.signal(Signal::TERM).success());
    assert!(
        !Path::new(&format!("/proc/{postgres}")).exists(),
        "the database stopped too"
    );
}
