//! The real program with the demo: started as a person starts it, asked over HTTP and by its own command line, killed
//! and started again on the same directory. The demo's model is the scripted one; everything else is real.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bazilion::ids::RequestId;
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::docker::docker;

/// How long a fact may take. Longer than anything here needs, so that a slow machine fails nothing.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// `bazilion up --demo` on a directory of its own. Dropping it ends the process, its containers and the directory.
pub struct Server {
    directory: PathBuf,
    child: Child,
    /// The line of `--json`.
    pub ready: Value,
    /// As the demo's owner.
    pub owner: Door,
    /// Id of the demo's home, a label of all its containers.
    pub home: String,
}

impl Server {
    pub async fn start() -> Self {
        // A socket's path has at most 107 bytes, and other users must reach the workspaces.
        let name = RequestId::new().uuid().simple().to_string();
        let directory = std::env::temp_dir().join(format!("bz-{}", &name[20..]));
        std::fs::create_dir(&directory).unwrap();
        let (child, ready) = launch(&directory);
        let mut server = Self {
            directory,
            child,
            ready,
            owner: Door::new("", ""),
            home: String::new(),
        };
        server.owner = server.door("demo");
        server.home = text(&server.owner.get("whoami").await["home"]["id"]);
        server
    }

    /// A way in for another home's owner, with a token that the command line mints.
    pub fn door(&self, home: &str) -> Door {
        self.door_by(&["--home", home, "--role", "owner"])
    }

    /// A way in for the administrator of the instance.
    pub fn administrator(&self) -> Door {
        self.door_by(&["--instance-admin"])
    }

    fn door_by(&self, whose: &[&str]) -> Door {
        let minted = Command::new(program())
            .args(["instance", "token", "--data-dir"])
            .arg(self.data())
            .args(whose)
            .output()
            .unwrap();
        assert!(minted.status.success(), "{minted:?}");
        let token = String::from_utf8(minted.stdout).unwrap();
        Door::new(self.url(), token.trim())
    }

    /// The command line, as the demo's owner.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(program())
            .args(arguments)
            .env("BAZILION_SERVER", self.url())
            .env("BAZILION_TOKEN", &self.owner.token)
            .env("XDG_CONFIG_HOME", &self.directory)
            .output()
            .unwrap()
    }

    /// No farewell: what the process was doing stays as it was.
    pub fn kill_hard(&mut self) {
        self.signal(Signal::KILL);
    }

    /// Stops in order.
    pub fn stop(&mut self) {
        let ended = self.signal(Signal::TERM);
        assert!(ended.success(), "{ended}");
    }

    /// Starts again on the same directory, on another port.
    pub fn restart(&mut self) {
        (self.child, self.ready) = launch(&self.directory);
        self.owner.url = self.url().to_owned();
    }

    pub fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    /// Ids of the home's containers, running or not.
    pub fn containers(&self) -> String {
        let label = format!("label=bazilion.home={}", self.home);
        docker(&["ps", "--all", "--quiet", "--filter", &label])
    }

    /// Where the demo's Team works.
    pub async fn workspace(&self) -> PathBuf {
        let team = text(&self.owner.get("teams/demo").await["id"]);
        let place = self.data().join("workspaces").join(&self.home).join(team);
        assert!(place.is_dir(), "{}", place.display());
        place
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn signal(&mut self, signal: Signal) -> std::process::ExitStatus {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap()
    }

    /// Ends the process without a panic: in order where it obeys, hard where it does not.
    fn end(&mut self) {
        let pid = self.child.id().try_into().ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process(pid, Signal::TERM);
            let asked = Instant::now();
            while asked.elapsed() < Duration::from_secs(30) {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        if !self.home.is_empty() {
            for id in self.containers().split_whitespace() {
                docker(&["rm", "--force", id]);
            }
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bazilion"))
}

/// Starts it and waits for its one line.
fn launch(directory: &Path) -> (Child, Value) {
    let cache = std::env::var_os("BAZILION_CACHE_DIR").map_or_else(
        || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("e2e-cache"),
        PathBuf::from,
    );
    let toolbox = program().with_file_name("toolbox").join("bazilion-toolbox");
    let mut child = Command::new(program())
        .args(["up", "--demo", "--json", "--listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(directory.join("data"))
        .arg("--cache-dir")
        .arg(cache)
        .env("BAZILION_TOOLBOX", toolbox)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).expect("one line of JSON when it is ready");
    (child, ready)
}

/// The API with one token.
#[derive(Clone)]
pub struct Door {
    client: reqwest::Client,
    pub url: String,
    pub token: String,
}

impl Door {
    pub fn new(url: &str, token: &str) -> Self {
        // Another test of this process may have installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        Self {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            url: url.into(),
            token: token.into(),
        }
    }

    /// A request below `/api` with a body as it is: status and body.
    pub async fn send(&self, method: Method, path: &str, body: impl Into<String>) -> (u16, String) {
        let mut request = self
            .client
            .request(method.clone(), format!("{}/api/{path}", self.url));
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if method != Method::GET {
            request = request
                .header("content-type", "application/json")
                .body(body.into());
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// What is there.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// An act that must succeed.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(Method::POST, path, body.to_string()).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The body of a new input for the conversation that is selected now.
    pub async fn input(&self, agent: &str, message: &str) -> Value {
        let selection = self.get(&format!("agents/{agent}")).await["selection"].clone();
        json!({"requestId": RequestId::new(), "expectedSelection": selection, "message": message})
    }

    /// Sends a message; the stored item.
    pub async fn say(&self, agent: &str, message: &str) -> Value {
        let input = self.input(agent, message).await;
        self.post(&format!("agents/{agent}/queue"), &input).await
    }

    /// The item, once it has the status.
    pub async fn until(&self, item: &Value, status: &str) -> Value {
        let (agent, id) = (text(&item["agentId"]), text(&item["id"]));
        let path = format!("agents/{agent}/queue/{id}");
        self.until_that(&path, |item| item["status"] == status)
            .await
    }

    /// What is there, once it is so.
    pub async fn until_that(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let now = self.get(path).await;
            if is_so(&now) {
                return now;
            }
            assert!(begun.elapsed() < PATIENCE, "{path} stays {now}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A string of a document.
pub fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}
