//! `bazilion serve` as a person runs it: the real program on a database that was there before.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bazilion::secret::MasterKey;
use rustix::process::{Pid, Signal, kill_process};
use secrecy::ExposeSecret as _;

use crate::embedded::Scratch;
use crate::support::db::TestDb;
use crate::support::docker::{Sandbox, static_toolbox};

struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(state: &Path, database: &str) -> Command {
    let key = state.with_extension("key");
    if !key.exists() {
        let (_, text) = MasterKey::generate().unwrap();
        let file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&key);
        file.unwrap()
            .write_all(text.expose_secret().as_bytes())
            .unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_bazilion"));
    command
        .arg("serve")
        .env("BAZILION_TOOLBOX", static_toolbox())
        .env("BAZILION_DATABASE_URL", database)
        .env("BAZILION_LISTEN", "127.0.0.1:0")
        .env("BAZILION_STATE_DIR", state)
        .env("BAZILION_MASTER_KEY_FILE", key)
        // Pi is not fetched here: a process without it says so and serves.
        .env("npm_config_registry", "http://127.0.0.1:9/");
    command
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn serve_answers_and_works_on_a_migrated_database_and_stops_in_order() {
    let (database, sandbox, scratch) = (TestDb::new().await, Sandbox::new().await, Scratch::new());
    let state = scratch.path().join("state");
    let mut served = Served(
        command(&state, &database.login_url())
            .env("BAZILION_SANDBOX_IMAGE", &sandbox.image.reference)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    let mut output = BufReader::new(served.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("Bazilion serves at http://")
        .unwrap();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    let mut root = database.superuser().await;
    let workers: i64 = sqlx::query_scalar("SELECT count(*) FROM incarnations")
        .fetch_one(&mut root)
        .await
        .unwrap();
    assert_eq!(workers, 1);

    // The state directory is of one process.
    let second = command(&state, &database.login_url()).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("BAZILION_STATE_DIR"), "{said}");

    let pid = Pid::from_raw(served.0.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(served.0.wait().unwrap().success());
    let workers: i64 = sqlx::query_scalar("SELECT count(*) FROM incarnations")
        .fetch_one(&mut root)
        .await
        .unwrap();
    assert_eq!(workers, 0, "it left the list of the living");
}

#[tokio::test]
async fn serve_refuses_a_database_that_was_not_migrated_and_names_the_command() {
    let (database, scratch) = (TestDb::new().await, Scratch::new());
    let elsewhere = database.login().database("postgres");
    let url = sqlx::ConnectOptions::to_url_lossy(&elsewhere).to_string();
    let refused = command(&scratch.path().join("state"), &url)
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("bazilion migrate"), "{said}");
}
