//! `bazilion bench coding`, and its first part, which the plain `bazilion bench` has too: commands in containers.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::bed::Bed;
use super::containers;
use super::measure::{Report, Row, Samples, Target, Unit};
use super::rivals::Rivals;
use super::sandbox::Sandbox;

/// Files of the repository whose context is captured.
const FILES: usize = 10_000;
/// Output of the one command that shows how much of it the server keeps.
const FLOOD: u64 = 2 << 30;
/// The same in a run of few samples, which only shows that it works.
const SMALL_FLOOD: u64 = 8 << 20;
/// Fewer samples than this make no figure.
const ENOUGH: usize = 20;

/// Fresh-container commands one at a time, in the product and by other means. Without an engine the rows say so.
pub async fn commands(
    report: &mut Report,
    samples: usize,
    bed: &mut Bed,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<()> {
    let (config, directory) = (bed.config.clone(), bed.directory.clone());
    let sandbox = match bed.sandbox().await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            report.add(Row::missing(
                "command in a fresh container",
                Unit::Milliseconds,
                format!("{error:#}"),
            ));
            return Ok(());
        }
    };
    note("Commands in fresh containers, beside other means");
    let rivals = Rivals::find(&config, sandbox, &directory).await;
    let figures = containers::one_by_one(sandbox, &rivals, samples).await?;
    containers::main_rows(report, &figures, &rivals);
    Ok(())
}

/// The whole set.
pub async fn run(
    samples: usize,
    bed: &mut Bed,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<Report> {
    let mut report = Report::new("coding");
    commands(&mut report, samples, bed, note).await?;
    let (config, directory) = (bed.config.clone(), bed.directory.clone());
    let Some(sandbox) = &bed.sandbox else {
        return Ok(report);
    };
    let rivals = Rivals::find(&config, sandbox, &directory.join("again")).await;
    note("Eight commands at once");
    let figures = containers::abreast(sandbox, &rivals, samples).await?;
    containers::abreast_rows(&mut report, &figures);
    steady(&mut report, samples, sandbox, &rivals).await?;
    note("Cancelling commands that ignore SIGTERM");
    cancelling(&mut report, samples, sandbox).await?;
    note("A command that floods its output");
    flood(&mut report, samples, sandbox).await?;
    note("The toolbox on a repository of 10,000 files");
    toolbox(&mut report, samples, sandbox, &directory).await?;
    bed.database(note).await?;
    super::turn::run(&mut report, samples, bed, note).await?;
    report.add(Row::missing(
        "CPU per command, 8 turns at once / docker run --rm",
        Unit::Ratio,
        "this program does not measure it yet",
    ));
    Ok(report)
}

async fn steady(
    report: &mut Report,
    samples: usize,
    sandbox: &Sandbox,
    rivals: &Rivals,
) -> anyhow::Result<()> {
    let name = "commands a second, 8 turns at once / docker run --rm";
    let target = Target::AtLeast(1.5);
    let row = match &rivals.docker {
        Err(why) => Row::missing(name, Unit::Ratio, why.as_str()),
        Ok(docker) => {
            let each = samples.div_ceil(4).max(2);
            let (ours, theirs) = containers::steady(sandbox, docker, each).await?;
            report.add(Row::value(
                "commands a second, 8 turns at once",
                Unit::PerSecond,
                Some(ours),
                each * 8,
            ));
            Row::value(name, Unit::Ratio, Some(ours / theirs), each * 8)
        }
    };
    report.add(row.against(target));
    Ok(())
}

async fn cancelling(report: &mut Report, samples: usize, sandbox: &Sandbox) -> anyhow::Result<()> {
    let mut took = Samples::default();
    for _ in 0..samples {
        took.push(sandbox.cancel().await?);
    }
    report.add(Row::median(
        "cancel to proven removal, SIGTERM ignored",
        Unit::Milliseconds,
        &took,
    ));
    let slowest = Row::value(
        "cancel to proven removal, p99",
        Unit::Milliseconds,
        took.percentile(0.99),
        took.count(),
    );
    report.add(slowest.against(Target::AtMost(1000.0)));
    Ok(())
}

async fn flood(report: &mut Report, samples: usize, sandbox: &Sandbox) -> anyhow::Result<()> {
    let bytes = if samples < ENOUGH { SMALL_FLOOD } else { FLOOD };
    let name = format!("memory growth of the server, {} MB of output", bytes >> 20);
    let prepared = sandbox.prepare().await?;
    // Makes the highest mark begin anew; without it the figure would be of the whole run.
    if std::fs::write("/proc/self/clear_refs", "5").is_err() {
        let prepared = sandbox.warm(prepared, "true").await;
        report.add(Row::missing(
            name,
            Unit::Megabytes,
            "this kernel does not let a process reset its highest memory use",
        ));
        return prepared.map(drop);
    }
    let before = status_kilobytes("VmRSS:")?;
    sandbox
        .warm(prepared, &format!("yes | head -c {bytes}"))
        .await?;
    let most = status_kilobytes("VmHWM:")?;
    let growth = (most - before).max(0.0) / 1024.0;
    report.add(Row::value(name, Unit::Megabytes, Some(growth), 1).against(Target::AtMost(1.0)));
    Ok(())
}

fn status_kilobytes(field: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number.context("the kernel says no memory use")?.parse()?)
}

async fn toolbox(
    report: &mut Report,
    samples: usize,
    sandbox: &Sandbox,
    scratch: &Path,
) -> anyhow::Result<()> {
    let repository = match repository(scratch, sandbox).await {
        Ok(repository) => repository,
        Err(error) => {
            let why = format!("no repository could be made: {error:#}");
            report.add(Row::missing(
                "toolbox: repository context",
                Unit::Milliseconds,
                why,
            ));
            return Ok(());
        }
    };
    let began = Instant::now();
    let (toolbox, identity) = sandbox.toolbox(&repository).await?;
    toolbox.root().await?;
    let ready = began.elapsed().as_secs_f64() * 1000.0;
    let (mut read, mut find, mut context) =
        (Samples::default(), Samples::default(), Samples::default());
    let measured = async {
        for _ in 0..samples {
            timed(&mut read, toolbox.read("d0/f0.txt", None, None)).await?;
            timed(&mut context, toolbox.context("bench", ".", None)).await?;
            timed(&mut find, toolbox.find("**/f7.txt", None)).await?;
        }
        anyhow::Ok(())
    };
    let measured = measured.await;
    sandbox.remove(&identity).await?;
    measured?;
    let ms = Unit::Milliseconds;
    report.add(Row::value(
        "toolbox: from nothing to its first answer",
        ms,
        Some(ready),
        1,
    ));
    report.add(Row::median("toolbox: read a file", ms, &read));
    report.add(Row::median("toolbox: find among 10,000 files", ms, &find));
    report.add(Row::median(
        "toolbox: repository context, 10,000 files",
        ms,
        &context,
    ));
    Ok(())
}

async fn timed<T, E: std::error::Error + Send + Sync + 'static>(
    samples: &mut Samples,
    call: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<()> {
    let began = Instant::now();
    call.await?;
    samples.push(began.elapsed());
    Ok(())
}

/// A Git repository of many small files, all committed.
async fn repository(scratch: &Path, sandbox: &Sandbox) -> anyhow::Result<PathBuf> {
    let root = scratch.join("repository");
    for number in 0..FILES {
        let dir = root.join(format!("d{}", number / 100));
        if number % 100 == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        std::fs::write(
            dir.join(format!("f{}.txt", number % 100)),
            format!("file {number}\n").repeat(20),
        )?;
    }
    std::fs::write(root.join("README.md"), "# Bench\n\n```sh\nmake test\n```\n")?;
    for arguments in [
        &["init", "-q", "-b", "main"][..],
        &["add", "-A"],
        &[
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@localhost",
            "commit",
            "-q",
            "-m",
            "first",
        ],
    ] {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(&root)
            .kill_on_drop(true)
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "git {}: {}",
                arguments[0],
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    sandbox.give(&root)?;
    Ok(root)
}
