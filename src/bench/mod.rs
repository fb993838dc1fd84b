//! `bazilion bench`: measures the product beside what the same machine can do without it.
//!
//! - Ratios count, not times: both sides of a ratio are measured in one run, taking turns.
//! - Every comparison that cannot be had is said, with the reason; no number is invented.
//! - Loopback only, an own database, own containers; all of it is taken away at the end, also after Ctrl-C.

mod acceptance;
mod bed;
mod coding;
mod containers;
mod measure;
mod queue;
mod rivals;
mod sandbox;
mod store;
mod turn;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::bed::Bed;
use self::measure::Report;
use crate::cli::server::{Bench, BenchSet};
use crate::console::Out;
use crate::console::output::to_stderr;
use crate::up::progress::Progress;

/// Runs one set and shows its report.
pub async fn run(bench: Bench) -> ExitCode {
    let progress = Progress::new();
    let ran = Box::pin(measure_and_clear(&bench, &progress)).await;
    progress.clear();
    match ran {
        Ok(report) => show(&bench, &report),
        Err(error) => {
            to_stderr(&format!("bazilion: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn show(bench: &Bench, report: &Report) -> ExitCode {
    let out = Out::new(bench.json);
    out.show(&json!(report), |_| report.table());
    ExitCode::SUCCESS
}

/// Clears whatever was made, however the measuring ended.
async fn measure_and_clear(bench: &Bench, progress: &Progress) -> anyhow::Result<Report> {
    let mut bed = Bed::make()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let ended = tokio::select! {
        ended = Box::pin(measure(bench, &mut bed, progress)) => ended,
        _ = interrupt.recv() => Err(anyhow::anyhow!("stopped before the end; nothing was measured")),
        _ = terminate.recv() => Err(anyhow::anyhow!("stopped before the end; nothing was measured")),
    };
    progress.step("Taking everything away");
    let cleared = bed.clear().await;
    let report = ended?;
    cleared?;
    Ok(report)
}

async fn measure(bench: &Bench, bed: &mut Bed, progress: &Progress) -> anyhow::Result<Report> {
    let note = |text: &str| progress.step(text);
    let samples = usize::from(bench.samples);
    let mut report = match &bench.set {
        None => main_set(samples, bed, &note).await?,
        Some(BenchSet::Queue(queue)) => {
            let deadline = Instant::now() + Duration::from_secs(queue.seconds);
            queue::run(samples, deadline, bed, &note).await?
        }
        Some(BenchSet::Coding) => coding::run(samples, bed, &note).await?,
    };
    report.close();
    Ok(report)
}

/// What people ask first: a command, an acceptance, the way to the model.
async fn main_set(
    samples: usize,
    bed: &mut Bed,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<Report> {
    let mut report = Report::new("main");
    coding::commands(&mut report, samples, bed, note).await?;
    let database = bed.database(note).await?;
    acceptance::run(&mut report, database, samples, None, note).await?;
    turn::run(&mut report, samples, bed, note).await?;
    Ok(report)
}
