//! From a submission to the model: the real worker, container engine and Pi, with a model endpoint that notes when it is
//! first asked and then lets the rehearsal answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};

use super::bed::Bed;
use super::measure::{Report, Row, Samples, Target, Unit};
use super::sandbox::Sandbox;
use crate::app::App;
use crate::clock::SystemClock;
use crate::config::{self, Asked, Config};
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::identity::Caller;
use crate::ids::RequestId;
use crate::instance::first::{self, DEMO_AGENT};
use crate::queue::{self, Item, Submission};
use crate::rehearsal::{self, Rehearsal, sample};
use crate::runtime::pi::PiRuntime;
use crate::runtime::pi::install::PiInstall;
use crate::team::{self, Selection};
use crate::worker::{self, Worker};

const LOOK: Op = Op::locking("bench.selection");
/// How long one turn may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether the item has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const FIRST_REQUEST: &str = "submission to first model request";
const WHOLE: &str = "submission to settled turn, no commands, scripted model";

/// Adds both rows. Stands on the sandbox and the database of the bed.
pub async fn run(
    report: &mut Report,
    samples: usize,
    bed: &mut Bed,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<()> {
    note("Turns from the submission to the model");
    let (mut asked, mut settled) = (Samples::default(), Samples::default());
    let missing = match Box::pin(measure(samples, bed, &mut asked, &mut settled)).await {
        Ok(()) => None,
        Err(error) => Some(format!("{error:#}")),
    };
    for (name, samples, bound) in [
        (FIRST_REQUEST, &asked, None),
        (WHOLE, &settled, Some(700.0)),
    ] {
        let mut row = Row::median(name, Unit::Milliseconds, samples);
        if let Some(why) = &missing {
            row = row.noted(why);
        }
        report.add(match bound {
            Some(bound) => row.against(Target::AtMost(bound)),
            None => row,
        });
    }
    Ok(())
}

async fn measure(
    samples: usize,
    bed: &mut Bed,
    asked: &mut Samples,
    settled: &mut Samples,
) -> anyhow::Result<()> {
    let install = installed_pi()?;
    let rehearsal = Rehearsal::start().await?;
    let (base_url, mut requests) = noting(rehearsal.base_url()).await?;
    let (app, caller) = begin(bed, install, &base_url).await?;
    // The first turn fills caches and is not counted.
    for turn in 0..=samples {
        while requests.try_recv().is_ok() {}
        let item = submit(&app, &caller).await?;
        let began = Instant::now();
        let first = tokio::time::timeout(PATIENCE, requests.recv());
        let first = first.await.context("no model request came")?;
        let ended = tokio::time::timeout(PATIENCE, ended(&app.db, &caller, &item));
        let ended = ended.await.context("a turn did not end")??;
        if let Some(why) = ended.diagnostic {
            anyhow::bail!("a turn ended with {}: {}", why.code, why.message);
        }
        if turn > 0 {
            asked.push(first.context("the endpoint ended")?.duration_since(began));
            settled.push(began.elapsed());
        }
    }
    Ok(())
}

/// Pi as `bazilion up` installed it for this user; it is only run, never changed.
fn installed_pi() -> anyhow::Result<PiInstall> {
    let cache = Config::load(&Asked::default(), &config::environment)?.cache_dir;
    let install = PiInstall::at(&cache);
    install
        .check()
        .context("Pi is not installed; `bazilion up` brings it")?;
    Ok(install)
}

/// Starts a worker of its own on the bench's database, with one Agent on the sample repository.
async fn begin(bed: &mut Bed, install: PiInstall, base_url: &str) -> anyhow::Result<(App, Caller)> {
    let sandbox = bed
        .sandbox
        .as_ref()
        .context("there is no container engine")?;
    let database = bed.database.as_ref().context("there is no database")?;
    // What the other measures left waiting is not for the worker.
    database.admin().await?.empty_lanes().await?;
    let clock = Arc::new(SystemClock);
    let runtime = PiRuntime::new(install, database.layout.turns(), clock)?;
    let app = App {
        executor: sandbox.executor.clone(),
        runtime: Arc::new(runtime),
        ..database.app.clone()
    };
    let named = (rehearsal::PROVIDER, rehearsal::MODEL, base_url);
    let base = &app.config.workspace_base;
    let demo = first::ensure_demo(&app.db, &app.master, named, base).await?;
    repository(&demo.repository, sandbox)?;
    let settings = worker::Settings {
        sandbox_image: sandbox.image.reference.clone(),
        toolbox_image: sandbox.toolbox_image().await?.reference,
        user: sandbox.user,
        secrets: Vec::new(),
    };
    let (live, _) = broadcast::channel(crate::limits::WAKE_BUFFER);
    let worker = Worker::begin(app.clone(), settings, live).await?;
    let instance = worker.instance;
    bed.work = Some((instance, tokio::spawn(worker.run())));
    Ok((app, SystemTx::enter(demo.first.home)))
}

fn repository(place: &std::path::Path, sandbox: &Sandbox) -> anyhow::Result<()> {
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)?;
    }
    sample::create(place)?;
    sandbox.give(place)?;
    Ok(())
}

async fn submit(app: &App, caller: &Caller) -> anyhow::Result<Item> {
    let selection = selection(&app.db, caller).await?;
    let text = "say: Measured.";
    let submission = Submission::new(DEMO_AGENT, RequestId::new(), selection, text, vec![])?;
    Ok(queue::submit(&app.db, &app.wakes, caller, &submission).await?)
}

async fn selection(db: &Db, caller: &Caller) -> anyhow::Result<Selection> {
    let shown = db
        .transact(
            caller,
            LOOK,
            DEMO_AGENT,
            async |tx: &mut TenantTx, named: &str| team::agent::show(tx, named).await,
        )
        .await?;
    Ok(shown.agent.selection)
}

async fn ended(db: &Db, caller: &Caller, item: &Item) -> anyhow::Result<Item> {
    let agent = item.agent_id.to_string();
    loop {
        let now = queue::show(db, caller, &agent, item.id).await?;
        if now.finished_at.is_some() {
            return Ok(now);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[derive(Clone)]
struct Noting {
    behind: String,
    client: reqwest::Client,
    seen: mpsc::UnboundedSender<Instant>,
}

/// An endpoint before another; gives its base URL and the moments of its requests.
async fn noting(behind: String) -> anyhow::Result<(String, mpsc::UnboundedReceiver<Instant>)> {
    let (seen, requests) = mpsc::unbounded_channel();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let base_url = format!("http://{}/v1", listener.local_addr()?);
    let noting = Noting {
        behind,
        client,
        seen,
    };
    let app = Router::new()
        .route("/v1/chat/completions", axum::routing::post(pass_on))
        .layer(axum::extract::DefaultBodyLimit::max(
            crate::limits::MODEL_REQUEST_MAX,
        ))
        .with_state(noting);
    // Ends with the process: a bench runs once.
    tokio::spawn(axum::serve(listener, app).into_future());
    Ok((base_url, requests))
}

async fn pass_on(State(noting): State<Noting>, body: Bytes) -> Response {
    // Nobody listens any more when the measuring is over.
    let _ = noting.seen.send(Instant::now());
    let answer = noting
        .client
        .post(format!("{}/chat/completions", noting.behind))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .send()
        .await;
    match answer {
        Ok(answer) => {
            let kind = [(header::CONTENT_TYPE, "text/event-stream")];
            let status = answer.status();
            (status, kind, Body::from_stream(answer.bytes_stream())).into_response()
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}
