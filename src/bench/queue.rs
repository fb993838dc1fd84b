//! `bazilion bench queue`: the queue's own operations, in a bounded time.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use uuid::Uuid;

use super::acceptance::{self, AGENT_IDS, CONVERSATION_IDS, numbered};
use super::bed::{Bed, Database};
use super::measure::{Report, Row, Samples, Target, Unit};
use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, SystemTx};
use crate::ids::{AgentId, HomeId, IncarnationId, RequestId};
use crate::limits;
use crate::queue::claim::{self, Claim, Outcome, Settle};
use crate::queue::{self, Diagnostic, Submission};
use crate::team::Selection;

const END: Op = Op::locking("bench.end");
/// Where the Agents of each part begin.
const WAKE_AGENT: i64 = 2000;
const FEW: (i64, i64) = (3000, 10);
const MANY: (i64, i64) = (10_000, 10_000);
/// Waiting items of each Agent at the start of the cycles.
const BACKLOG: i64 = 5;
/// Clients of the cycles.
const CLIENTS: usize = 8;
/// Cycles of each client in a batch.
const CYCLES: usize = 25;
/// How long a claim may be waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The whole set, ended at `deadline` with what was measured by then.
pub async fn run(
    samples: usize,
    deadline: Instant,
    bed: &mut Bed,
    note: &(dyn Fn(&str) + Send + Sync),
) -> anyhow::Result<Report> {
    let mut report = Report::new("queue");
    let database = bed.database(note).await?;
    let half = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
    acceptance::run(&mut report, database, samples, Some(half), note).await?;
    note("Waking up for a submission");
    waking(&mut report, database, samples).await?;
    note("Cycles of claim, end and submit with few and many keys");
    cycles(&mut report, database, samples, deadline).await?;
    retries(&mut report, database);
    for measure in [
        "buffers of claim, finish, submit: large / small",
        "claim beside a home with 1,000 waiting items / alone",
    ] {
        report.add(Row::missing(
            measure,
            Unit::Ratio,
            "this program does not measure it yet",
        ));
    }
    Ok(report)
}

fn submission(number: u128) -> anyhow::Result<Submission> {
    let selection = Selection {
        conversation_id: Some(numbered(CONVERSATION_IDS, number).into()),
        revision: 1,
    };
    let agent = AgentId::from(numbered(AGENT_IDS, number)).to_string();
    let text = "Run the tests and fix what fails.";
    Ok(Submission::new(
        agent,
        RequestId::new(),
        selection,
        text,
        vec![],
    )?)
}

/// A process that may claim.
async fn process(database: &Database) -> anyhow::Result<IncarnationId> {
    let id = IncarnationId::new();
    database.admin().await?.insert_incarnation(id).await?;
    Ok(id)
}

/// From the answer to a submission to the claim, in another process that waits on its own connection.
async fn waking(report: &mut Report, database: &Database, samples: usize) -> anyhow::Result<()> {
    let mut admin = database.admin().await?;
    admin.insert_agents(database.home, WAKE_AGENT, 1).await?;
    admin.empty_lanes().await?;
    let owner = process(database).await?;
    let other = Db::connect(database.login(), 4, time::Duration::ZERO).await?;
    let wakes = Wakes::default();
    let stop = database.app.stopping.child_token();
    let (listener, listening, ending) = (wakes.clone(), other.clone(), stop.clone());
    let mut woken = wakes.subscribe();
    let task = tokio::spawn(async move { listener.run(&listening, ending).await });
    // The listener's own first wake-up says that it listens.
    woken.recv().await?;
    let caller = SystemTx::enter(database.home);
    let mut took = Samples::default();
    for _ in 0..samples * 5 {
        let input = submission(WAKE_AGENT as u128)?;
        queue::submit(&database.app.db, &database.app.wakes, &caller, &input).await?;
        let began = Instant::now();
        let claim = tokio::time::timeout(PATIENCE, next_claim(&other, owner, &mut woken))
            .await
            .context("nothing woke up for a submission")??;
        took.push(began.elapsed());
        end(&other, claim).await?;
    }
    stop.cancel();
    task.await?;
    other.close().await;
    for (share, name, bound) in [(0.5, "p50", 5.0), (0.99, "p99", 50.0)] {
        let row = Row::value(
            format!("commit of a submit to its claim in another process, {name}"),
            Unit::Milliseconds,
            took.percentile(share),
            took.count(),
        );
        report.add(row.against(Target::AtMost(bound)));
    }
    Ok(())
}

async fn next_claim(
    db: &Db,
    owner: IncarnationId,
    woken: &mut tokio::sync::broadcast::Receiver<Wake>,
) -> anyhow::Result<Claim> {
    loop {
        if woken.recv().await? == Wake::Dispatch
            && let Some(claim) = claim::claim(db, owner, 1, None).await?.first()
        {
            return Ok(*claim);
        }
    }
}

async fn end(db: &Db, claim: Claim) -> anyhow::Result<()> {
    let args = Settle {
        claim,
        outcome: Outcome::Failed(Diagnostic::new("bench", "Measured.")),
    };
    db.transact(&claim.caller(), END, &args, claim::settle)
        .await?;
    Ok(())
}

/// Claim, end, submit: eight clients over ten keys and over ten thousand, taking turns.
async fn cycles(
    report: &mut Report,
    database: &Database,
    samples: usize,
    deadline: Instant,
) -> anyhow::Result<()> {
    let mut admin = database.admin().await?;
    for (first, count) in [FEW, MANY] {
        admin.insert_agents(database.home, first, count).await?;
    }
    let owner = process(database).await?;
    let (mut few, mut many) = (Samples::default(), Samples::default());
    for _ in 0..samples {
        for (keys, rates) in [(FEW, &mut few), (MANY, &mut many)] {
            if Instant::now() >= deadline {
                break;
            }
            admin.empty_lanes().await?;
            admin
                .fill_lanes(database.home, keys.0, keys.1, BACKLOG)
                .await?;
            admin.settle().await?;
            rates.push_value(batch(database, owner).await?);
        }
    }
    let unit = Unit::PerSecond;
    report.add(Row::median("claim, end, submit with 10 keys", unit, &few));
    report.add(Row::median(
        "claim, end, submit with 10,000 keys",
        unit,
        &many,
    ));
    let ratio = Row::ratio("cycles with 10,000 keys / with 10 keys", &many, &few);
    report.add(ratio.against(Target::AtLeast(0.9)));
    Ok(())
}

async fn batch(database: &Database, owner: IncarnationId) -> anyhow::Result<f64> {
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|_| {
        let (db, wakes) = (database.app.db.clone(), database.app.wakes.clone());
        tokio::spawn(cycle_on(db, wakes, database.home, owner))
    });
    let mut done = 0;
    for cycles in try_join_all(clients).await? {
        done += cycles?;
    }
    Ok(f64::from(done) / began.elapsed().as_secs_f64())
}

async fn cycle_on(db: Db, wakes: Wakes, home: HomeId, owner: IncarnationId) -> anyhow::Result<u32> {
    let caller = SystemTx::enter(home);
    let mut done = 0;
    for _ in 0..CYCLES {
        // With fewer keys than clients all may be taken for a moment.
        let Some(claim) = claim::claim(&db, owner, 1, None).await?.first().copied() else {
            tokio::task::yield_now().await;
            continue;
        };
        end(&db, claim).await?;
        let number = Uuid::from(claim.agent).as_u128() - AGENT_IDS.as_u128();
        queue::submit(&db, &wakes, &caller, &submission(number)?).await?;
        done += 1;
    }
    Ok(done)
}

/// Serialization failures and deadlocks met, of all that this process committed through the product's operations.
fn retries(report: &mut Report, database: &Database) {
    let retries = database.app.db.retries() as f64;
    let row = Row::value(
        "transactions run again, in the whole run",
        Unit::Count,
        Some(retries),
        1,
    );
    report.add(row.noted(format!(
        "of up to {} attempts each; the target is 5 per 1,000 commits",
        limits::TX_ATTEMPTS
    )));
}
