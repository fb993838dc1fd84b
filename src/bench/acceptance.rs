//! Acceptance over HTTP, beside the same statement run by pgbench on the same database, interleaved.
//!
//! - HTTP pays for what pgbench does not: the token's look-up, checking, JSON, the wake-up.
//! - Both begin each batch with empty lanes, and each client writes to Agents of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use http::StatusCode;
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::ConnectOptions as _;
use tokio::process::Command;
use uuid::Uuid;

use super::bed::Database;
use super::measure::{Report, Row, Samples, Target, Unit};
use super::store::Admin;
use crate::embedded::binaries::Search;
use crate::ids::RequestId;

const SCRIPT: &str = include_str!("submit.sql");
/// Where pgbench's own Agents begin, and how many each of its clients has; the script knows both.
const PGBENCH_AGENTS: i64 = 1000;
const PGBENCH_AGENTS_EACH: i64 = 10;
/// An Agent's queue holds so many.
const LANE: usize = 20;

/// One degree of concurrency.
#[derive(Debug, Clone, Copy)]
struct Load {
    clients: usize,
    /// Agents of each client; it fills all their queues in a batch.
    agents_each: usize,
    /// Transactions of each client of pgbench in a batch.
    transactions: usize,
    target: f64,
}

const LOADS: [Load; 3] = [
    Load {
        clients: 1,
        agents_each: 5,
        transactions: 200,
        target: 0.55,
    },
    Load {
        clients: 8,
        agents_each: 2,
        transactions: 60,
        target: 0.7,
    },
    Load {
        clients: 32,
        agents_each: 1,
        transactions: 30,
        target: 1.0,
    },
];

/// What was measured at one load.
#[derive(Default)]
struct Figures {
    http: Samples,
    latency: Samples,
    pgbench: Samples,
}

/// The two programs against one database.
struct Contest {
    url: String,
    token: String,
    http: Vec<reqwest::Client>,
    pgbench: Result<Pgbench, String>,
    admin: Admin,
}

/// Measures in `rounds` batches of each load, or as many as fit before `deadline`, and adds the rows.
pub async fn run(
    report: &mut Report,
    database: &Database,
    rounds: usize,
    deadline: Option<Instant>,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<()> {
    let mut contest = Contest::begin(database).await?;
    let mut figures: [Figures; 3] = Default::default();
    for round in 0..rounds {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        note(&format!(
            "Acceptance over HTTP and by pgbench: round {} of {rounds}",
            round + 1
        ));
        for (load, figures) in LOADS.iter().zip(&mut figures) {
            contest.batch(*load, figures).await?;
        }
    }
    rows(report, &figures, contest.pgbench.as_ref().err());
    Ok(())
}

fn rows(report: &mut Report, figures: &[Figures; 3], missing: Option<&String>) {
    for (load, figures) in LOADS.iter().zip(figures) {
        let clients = match load.clients {
            1 => "1 client".to_owned(),
            more => format!("{more} clients"),
        };
        report.add(Row::median(
            format!("submit over HTTP, {clients}"),
            Unit::PerSecond,
            &figures.http,
        ));
        report.add(Row::median(
            format!("submit over HTTP, {clients}: each answer"),
            Unit::Milliseconds,
            &figures.latency,
        ));
        let name = format!("the same SQL by pgbench, {clients}");
        let ratio = format!("submit over HTTP / pgbench, {clients}");
        match missing {
            None => {
                report.add(Row::median(name, Unit::PerSecond, &figures.pgbench));
                report.add(
                    Row::ratio(ratio, &figures.http, &figures.pgbench)
                        .against(Target::AtLeast(load.target)),
                );
            }
            Some(why) => {
                report.add(Row::missing(name, Unit::PerSecond, why));
                report.add(
                    Row::missing(ratio, Unit::Ratio, why).against(Target::AtLeast(load.target)),
                );
            }
        }
    }
}

impl Contest {
    async fn begin(database: &Database) -> anyhow::Result<Self> {
        let most = LOADS.iter().map(|load| load.clients).max().unwrap_or(1);
        let agents = LOADS
            .iter()
            .map(|load| load.clients * load.agents_each)
            .max();
        let mut admin = database.admin().await?;
        admin.lift_limits().await?;
        admin
            .insert_agents(database.home, 0, agents.unwrap_or(1) as i64)
            .await?;
        admin
            .insert_agents(
                database.home,
                PGBENCH_AGENTS,
                most as i64 * PGBENCH_AGENTS_EACH,
            )
            .await?;
        let operator = admin.operator().await?;
        let pgbench = Pgbench::find(database, operator)
            .await
            .map_err(|e| format!("{e:#}"));
        let http: Result<Vec<_>, _> = (0..most)
            .map(|_| reqwest::Client::builder().no_proxy().build())
            .collect();
        Ok(Self {
            url: database.serve().await?,
            token: database.token.expose_secret().to_owned(),
            http: http?,
            pgbench,
            admin,
        })
    }

    async fn batch(&mut self, load: Load, figures: &mut Figures) -> anyhow::Result<()> {
        self.admin.empty_lanes().await?;
        let began = Instant::now();
        let clients = (0..load.clients).map(|client| {
            let asking = Asking {
                client: self.http[client].clone(),
                url: self.url.clone(),
                token: self.token.clone(),
                agents: client * load.agents_each..(client + 1) * load.agents_each,
            };
            tokio::spawn(asking.submit_all())
        });
        let done = try_join_all(clients).await?;
        let took = began.elapsed();
        let mut count = 0;
        for answers in done {
            for latency in answers? {
                figures.latency.push(latency);
                count += 1;
            }
        }
        figures
            .http
            .push_value(f64::from(count) / took.as_secs_f64());
        if let Ok(pgbench) = &self.pgbench {
            self.admin.empty_lanes().await?;
            let rate = pgbench.run(load.clients, load.transactions).await?;
            figures.pgbench.push_value(rate);
        }
        Ok(())
    }
}

/// One HTTP client with the Agents it writes to.
struct Asking {
    client: reqwest::Client,
    url: String,
    token: String,
    agents: std::ops::Range<usize>,
}

impl Asking {
    /// Fills every queue of its Agents, one request after the other.
    async fn submit_all(self) -> anyhow::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        for number in self.agents.clone() {
            for _ in 0..LANE {
                let began = Instant::now();
                self.submit(number as u128).await?;
                latencies.push(began.elapsed());
            }
        }
        Ok(latencies)
    }

    async fn submit(&self, number: u128) -> anyhow::Result<()> {
        let agent = numbered(AGENT_IDS, number);
        let body = json!({
            "requestId": RequestId::new(),
            "expectedSelection": {"conversationId": numbered(CONVERSATION_IDS, number), "revision": 1},
            "message": "Run the tests and fix what fails.",
        });
        let answer = self
            .client
            .post(format!("{}/api/agents/{agent}/queue", self.url))
            .bearer_auth(&self.token)
            .json(&body)
            .send()
            .await?;
        let status = answer.status();
        let text = answer.text().await?;
        if status != StatusCode::ACCEPTED {
            bail!("the server refused a measured submission ({status}): {text}");
        }
        Ok(())
    }
}

/// Ids that `Admin::insert_agents` gives, without their number.
pub const AGENT_IDS: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_8000_0000_0000_0000);
pub const CONVERSATION_IDS: Uuid = Uuid::from_u128(0x0000_0000_0000_7000_9000_0000_0000_0000);

/// The id with that number.
pub fn numbered(base: Uuid, number: u128) -> Uuid {
    Uuid::from_u128(base.as_u128() + number)
}

/// The program that comes with PostgreSQL, with the script of one acceptance.
struct Pgbench {
    program: PathBuf,
    script: PathBuf,
    /// Without the password, which other users could read among the arguments, and without what only our driver knows.
    url: Url,
    password: String,
}

impl Pgbench {
    /// Finds it beside the server's programs, and tries the script.
    async fn find(database: &Database, operator: Uuid) -> anyhow::Result<Self> {
        let binaries = Search::of_machine().choose(database.layout.cluster_major())?;
        let program = binaries.program("pgbench");
        if !program.is_file() {
            bail!(
                "pgbench is not among the programs of PostgreSQL in {}",
                binaries.dir.display()
            );
        }
        let script = database.layout.root().join("submit.sql");
        let text = SCRIPT
            .replace("{home}", &database.home.to_string())
            .replace("{operator}", &operator.to_string());
        std::fs::write(&script, text)?;
        let mut url = database.login().to_url_lossy();
        let password = url.password().unwrap_or_default().to_owned();
        url.set_query(None);
        if url.set_password(None).is_err() {
            bail!("the database has an address without a place for a password");
        }
        let found = Self {
            program,
            script,
            url,
            password,
        };
        found.run(1, 1).await?;
        Ok(found)
    }

    /// Transactions per second of so many clients, connecting not counted.
    async fn run(&self, clients: usize, transactions: usize) -> anyhow::Result<f64> {
        let threads = clients.min(std::thread::available_parallelism().map_or(1, usize::from));
        let mut command = Command::new(&self.program);
        command
            .args(["--no-vacuum", "--protocol", "prepared"])
            .args(["--define", "n=-1"])
            .args([
                "--client",
                &clients.to_string(),
                "--jobs",
                &threads.to_string(),
            ])
            .args(["--transactions", &transactions.to_string(), "--file"])
            .arg(&self.script)
            .arg(self.url.as_str())
            .env("PGPASSWORD", &self.password)
            .current_dir(self.script.parent().unwrap_or(Path::new("/")))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || complained.contains("aborted") {
            bail!("pgbench failed: {}", complained.trim());
        }
        rate(&said).with_context(|| format!("pgbench said no rate:\n{said}"))
    }
}

/// `tps = 1234.5 (without initial connection time)`.
fn rate(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.starts_with("tps = "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_pgbench_is_read() {
        let said = "number of failed transactions: 0 (0.000%)\nlatency average = 1.3 ms\n\
            initial connection time = 4.5 ms\ntps = 763.358779 (without initial connection time)\n";
        assert_eq!(rate(said), Some(763.358_779));
        assert_eq!(rate("nothing"), None);
    }

    #[test]
    fn every_placeholder_of_the_script_is_known() {
        let filled = SCRIPT.replace("{home}", "").replace("{operator}", "");
        assert!(!filled.lines().any(|line| line.contains('{')));
    }
}
