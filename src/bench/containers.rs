//! One fresh container per command, beside other means, interleaved: each round runs every mode once.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};

use super::measure::{Report, Row, Samples, Target, Unit};
use super::rivals::{Rival, Rivals};
use super::sandbox::{Sandbox, Times};

/// What every mode runs.
const COMMAND: &str = "true";
/// Commands at once in the second half.
const ABREAST: usize = 8;

/// What was measured at one degree of concurrency.
#[derive(Default)]
pub struct Figures {
    result: Samples,
    exit: Samples,
    removed: Samples,
    cold: Samples,
    docker: Samples,
    runc: Samples,
    bubblewrap: Samples,
}

impl Figures {
    fn add_warm(&mut self, times: Times) {
        self.result.push(times.result);
        self.exit.push(times.exit);
        self.removed.push(times.removed);
    }
}

/// One command at a time.
pub async fn one_by_one(
    sandbox: &Sandbox,
    rivals: &Rivals,
    rounds: usize,
) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    for _ in 0..rounds {
        let prepared = sandbox.prepare().await?;
        figures.add_warm(sandbox.warm(prepared, COMMAND).await?);
        figures.cold.push(sandbox.cold(COMMAND).await?.removed);
        for (rival, samples) in [
            (&rivals.docker, &mut figures.docker),
            (&rivals.runc, &mut figures.runc),
            (&rivals.bubblewrap, &mut figures.bubblewrap),
        ] {
            if let Ok(rival) = rival {
                samples.push(rival.time().await?);
            }
        }
    }
    Ok(figures)
}

/// Eight at once, in as many rounds as give `wanted` samples.
pub async fn abreast(sandbox: &Sandbox, rivals: &Rivals, wanted: usize) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    for _ in 0..wanted.div_ceil(ABREAST) {
        let prepared = try_join_all((0..ABREAST).map(|_| sandbox.prepare())).await?;
        let warm = prepared
            .into_iter()
            .map(|prepared| sandbox.warm(prepared, COMMAND));
        for times in try_join_all(warm).await? {
            figures.add_warm(times);
        }
        for times in try_join_all((0..ABREAST).map(|_| sandbox.cold(COMMAND))).await? {
            figures.cold.push(times.removed);
        }
        for (rival, samples) in [
            (&rivals.docker, &mut figures.docker),
            (&rivals.runc, &mut figures.runc),
            (&rivals.bubblewrap, &mut figures.bubblewrap),
        ] {
            if let Ok(rival) = rival {
                for took in eight(rival).await {
                    samples.push(took?);
                }
            }
        }
    }
    Ok(figures)
}

async fn eight(rival: &Rival) -> Vec<anyhow::Result<Duration>> {
    join_all((0..ABREAST).map(|_| rival.time())).await
}

/// Commands per second of eight turns that prepare the next container behind each command, beside `docker run` eight at
/// once.
pub async fn steady(sandbox: &Sandbox, rival: &Rival, each: usize) -> anyhow::Result<(f64, f64)> {
    let turn = async || -> anyhow::Result<()> {
        let mut ahead = sandbox.prepare().await?;
        for left in (0..each).rev() {
            if left == 0 {
                sandbox.warm(ahead, COMMAND).await?;
                break;
            }
            let (next, _) = tokio::try_join!(sandbox.prepare(), sandbox.warm(ahead, COMMAND))?;
            ahead = next;
        }
        Ok(())
    };
    let began = Instant::now();
    try_join_all((0..ABREAST).map(|_| turn())).await?;
    let ours = per_second(ABREAST * each, began.elapsed());
    let began = Instant::now();
    for _ in 0..each {
        for took in eight(rival).await {
            took?;
        }
    }
    Ok((ours, per_second(ABREAST * each, began.elapsed())))
}

fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// The first set's rows: times, and the three ratios that say most.
pub fn main_rows(report: &mut Report, figures: &Figures, rivals: &Rivals) {
    for (name, samples) in [
        ("command, prepared ahead: result", &figures.result),
        ("command, prepared ahead: exit confirmed", &figures.exit),
        ("command, prepared ahead: removal proven", &figures.removed),
        ("command, nothing prepared: removal proven", &figures.cold),
    ] {
        report.add(Row::median(name, Unit::Milliseconds, samples));
    }
    rival_row(report, &rivals.docker, &figures.docker, "docker run --rm");
    rival_row(report, &rivals.runc, &figures.runc, "runc run");
    rival_row(
        report,
        &rivals.bubblewrap,
        &figures.bubblewrap,
        "bubblewrap",
    );
    ratios(report, figures, "");
}

fn rival_row(report: &mut Report, rival: &Result<Rival, String>, samples: &Samples, name: &str) {
    report.add(match rival {
        Ok(_) => Row::median(name, Unit::Milliseconds, samples),
        Err(why) => Row::missing(name, Unit::Milliseconds, why.as_str()),
    });
}

/// Every ratio of the design's table for one command at a time.
fn ratios(report: &mut Report, f: &Figures, suffix: &str) {
    let rows: [(&str, &Samples, &Samples, Target); 9] = [
        (
            "prepared: result / bubblewrap",
            &f.result,
            &f.bubblewrap,
            Target::AtMost(0.6),
        ),
        (
            "prepared: exit / bubblewrap",
            &f.exit,
            &f.bubblewrap,
            Target::AtMost(8.0),
        ),
        (
            "prepared: exit / runc run",
            &f.exit,
            &f.runc,
            Target::AtMost(1.0),
        ),
        (
            "prepared: removed / runc run",
            &f.removed,
            &f.runc,
            Target::AtMost(1.1),
        ),
        (
            "nothing prepared / runc run",
            &f.cold,
            &f.runc,
            Target::AtMost(3.5),
        ),
        (
            "nothing prepared / docker run --rm",
            &f.cold,
            &f.docker,
            Target::AtMost(0.65),
        ),
        (
            "docker run --rm / prepared: result",
            &f.docker,
            &f.result,
            Target::AtLeast(50.0),
        ),
        (
            "docker run --rm / prepared: exit",
            &f.docker,
            &f.exit,
            Target::AtLeast(5.0),
        ),
        (
            "docker run --rm / prepared: removed",
            &f.docker,
            &f.removed,
            Target::AtLeast(4.0),
        ),
    ];
    for (name, of, to, target) in rows {
        let mut row = Row::ratio(format!("{name}{suffix}"), of, to).against(target);
        if row.value.is_some() && name.ends_with("runc run") {
            row = row.noted("runc without a system-call filter: ours has one");
        }
        report.add(row);
    }
}

/// The same at eight, where the design has bounds for `docker run` only.
pub fn abreast_rows(report: &mut Report, f: &Figures) {
    let rows: [(&str, &Samples, &Samples, f64); 3] = [
        (
            "docker run --rm / prepared: result, 8 at once",
            &f.docker,
            &f.result,
            20.0,
        ),
        (
            "docker run --rm / prepared: exit, 8 at once",
            &f.docker,
            &f.exit,
            4.0,
        ),
        (
            "docker run --rm / prepared: removed, 8 at once",
            &f.docker,
            &f.removed,
            4.0,
        ),
    ];
    for (name, of, to, bound) in rows {
        report.add(Row::ratio(name, of, to).against(Target::AtLeast(bound)));
    }
    report.add(Row::ratio(
        "nothing prepared / docker run --rm, 8 at once",
        &f.cold,
        &f.docker,
    ));
}
