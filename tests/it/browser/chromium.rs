//! A browser of our own: a driver on a free port, a fresh profile, nothing that calls out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thirtyfour::LoggingPrefsLogLevel;
use thirtyfour::prelude::*;

use crate::support::server::PATIENCE;

/// A window of the browser, which ends with it.
pub struct Chromium {
    /// Ends the browser when it is dropped.
    _process: Driver,
    pub driver: WebDriver,
    client: reqwest::Client,
    session: String,
}

/// The driver's process with the browser's profile.
struct Driver {
    child: Child,
    profile: PathBuf,
    port: u16,
    session: Option<String>,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The process ends the session itself; the client would wait for an answer in a runtime that is busy here.
        let _ = self.driver.clone().leak();
    }
}

impl Driver {
    /// Ends the browser; a driver that is killed would leave it running.
    fn end_session(&self, session: &str) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = "Host: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0";
        write!(
            stream,
            "DELETE /session/{session} HTTP/1.1\r\n{head}\r\n\r\n"
        )?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = self.end_session(&session);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

impl Chromium {
    pub async fn start() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let profile = std::env::temp_dir().join(format!("bz-profile-{}", std::process::id()));
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need chromedriver: run .ci/install --test");
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut process = Driver {
            child,
            profile,
            port: 0,
            session: None,
        };
        let mut line = String::new();
        process.port = loop {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "chromedriver ended");
            let port = line.split("successfully on port ").nth(1);
            if let Some(port) = port {
                break port.trim().trim_end_matches('.').parse().unwrap();
            }
        };
        let address = format!("http://127.0.0.1:{}", process.port);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let driver = WebDriver::builder(&address, capabilities(&process.profile))
            .client(client.clone())
            .connect()
            .await
            .unwrap();
        let session = driver.session_id().to_string();
        process.session = Some(session.clone());
        Self {
            _process: process,
            driver,
            client,
            session: format!("{address}/session/{session}"),
        }
    }

    /// A size of the page itself, whatever the window's frame takes.
    pub async fn resize(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// What the person's system prefers: `dark` or `light`.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.tell("Emulation.setEmulatedMedia", json!({"features": features}))
            .await;
    }

    /// The value of an expression in the page.
    pub async fn value(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        let value = self.driver.execute(script, Vec::new()).await;
        value.unwrap().json().clone()
    }

    /// The value, once it is the expected one.
    pub async fn until(&self, expression: &str, expected: Value) {
        let begun = Instant::now();
        loop {
            let now = self.value(expression).await;
            if now == expected {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let page = self.value("document.body.innerText").await;
                panic!("{expression} stays {now}, not {expected}: {page}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The whole window as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        self.driver.screenshot_as_png().await.unwrap()
    }

    /// What the browser complained about since the last call: script errors, failed requests, breaches of the policy.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.driver.browser_log().await.unwrap();
        let severe = entries.into_iter().filter(|entry| entry.level != "INFO");
        severe.map(|entry| entry.message).collect()
    }

    /// A command of the browser's own protocol.
    async fn tell(&self, command: &str, parameters: Value) {
        let address = format!("{}/goog/cdp/execute", self.session);
        let body = json!({"cmd": command, "params": parameters});
        let answer = self.client.post(address).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{command}: {answer:?}");
    }
}

fn capabilities(profile: &std::path::Path) -> Capabilities {
    let mut chromium = DesiredCapabilities::chrome();
    let profile = format!("--user-data-dir={}", profile.display());
    for argument in [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=1280,900",
        profile.as_str(),
    ] {
        chromium.add_arg(argument).unwrap();
    }
    chromium
        .set_browser_log_level(LoggingPrefsLogLevel::All)
        .unwrap();
    chromium.into()
}
