//! From a claim to a settled item: a free slot first, then the claim, its commit, and only then anything else.
//!
//! - What cannot start yet goes back with what it waits for; the item does not spin.
//! - The start record, and the item's move to `running`, are one transaction; before it nothing acted.
//! - The witness outside the database knows the fencing number before an Agent starts.
//! - Order of the end: transcript stored, receipts ended, cleanup proven, lease released, item ended.

use std::sync::{Arc, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::admission::{self, Admission, NotAdmitted};
use super::facts::{self, Facts};
use super::run::{Running, settle};
use crate::coding::tools;
use crate::db::wake::Wake;
use crate::db::{Op, TenantTx};
use crate::error::{Error, Result};
use crate::ids::{HomeId, TurnId};
use crate::instance::restored::witness;
use crate::limits;
use crate::queue::claim::{self, Claim, GiveBack, Input, Outcome, Start, Starting};
use crate::queue::look;
use crate::queue::model::{Diagnostic, Source, WaitingFor};
use crate::runtime::{AgentSession, Launch, RuntimeError, ToolCall};
use crate::turn::prompt::{self, Standing};
use crate::turn::transcript::Transcript;
use crate::turn::{self, Cause, NewTurn, Posture};
use crate::workspace;

const GIVE_BACK: Op = Op::locking("worker.give_back");
const START: Op = Op::locking("worker.start");
const NUDGE: Op = Op::locking("worker.nudge");

/// Claims and starts until `stop`.
pub async fn run(worker: &Arc<Worker>, stop: &CancellationToken) {
    let mut wakes = worker.app.wakes.subscribe();
    let mut after: Option<HomeId> = None;
    while !stop.is_cancelled() {
        // Register, look, sleep: what is sent between look and sleep is kept by the receiver.
        match claim_free(worker, &mut after).await {
            Ok(0) => {}
            Ok(_) => continue,
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "claiming work"),
        }
        let woken = async { while wakes.recv().await.is_ok_and(|wake| wake != Wake::Dispatch) {} };
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tokio::time::timeout(limits::DISPATCH_POLL, woken) => {}
        }
    }
}

/// One round: as many claims as there are free slots.
async fn claim_free(worker: &Arc<Worker>, after: &mut Option<HomeId>) -> Result<usize> {
    let free = worker.slots.available_permits();
    if free == 0 || !worker.incarnation.life.is_alive() {
        return Ok(0);
    }
    let claims = claim::claim(&worker.app.db, worker.incarnation.id, free, *after).await?;
    let taken = claims.len();
    for claim in claims {
        *after = Some(claim.home);
        // This loop alone takes permits, so the ones it saw are there.
        let Ok(permit) = worker.slots.clone().try_acquire_owned() else {
            give_back(worker, &claim, WaitingFor::Executor).await;
            continue;
        };
        let worker = worker.clone();
        let tracker = worker.turns.clone();
        tracker.spawn(async move {
            Box::pin(work(&worker, claim)).await;
            drop(permit);
            worker.app.wakes.send(Wake::Dispatch);
        });
    }
    Ok(taken)
}

/// Works one claim to its outcome.
async fn work(worker: &Arc<Worker>, claim: Claim) {
    let stop = CancellationToken::new();
    worker
        .stops
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(claim.fence, stop.clone());
    let attempted = Box::pin(attempt(worker, &claim, stop)).await;
    worker
        .stops
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&claim.fence);
    match attempted {
        Ok(()) => {}
        Err(NotAdmitted::Wait(waiting)) => give_back(worker, &claim, waiting).await,
        Err(NotAdmitted::Unprepared(why)) => {
            settle(worker, &claim, None, Outcome::Unprepared(why)).await
        }
        Err(NotAdmitted::Failed(error)) => {
            // Nothing started: it goes back and is tried again.
            tracing::warn!(error = &error as &dyn std::error::Error, item = %claim.item, "a turn could not start");
            give_back(worker, &claim, WaitingFor::Engine).await;
        }
    }
}

async fn give_back(worker: &Worker, claim: &Claim, waiting: WaitingFor) {
    let back = GiveBack::new(*claim, waiting);
    let given = worker
        .app
        .db
        .transact(&claim.caller(), GIVE_BACK, &back, give_back_in)
        .await;
    if let Err(error) = given {
        tracing::warn!(error = &error as &dyn std::error::Error, item = %claim.item, "giving an item back");
    }
}

async fn give_back_in(tx: &mut TenantTx, back: &GiveBack) -> Result<()> {
    claim::give_back(tx, back).await?;
    Ok(())
}

/// Protected where nobody sits at the turn: Telegram and approved deliveries.
async fn posture_of(worker: &Worker, claim: &Claim, facts: &Facts) -> Result<Posture> {
    let item = look::show(
        &worker.app.db,
        &claim.caller(),
        &claim.agent.to_string(),
        claim.item,
    )
    .await?;
    if item.source == Source::Telegram || item.approval_id.is_some() {
        return Ok(Posture::Protected);
    }
    Posture::parse(&facts.settings.posture)
}

async fn attempt(
    worker: &Arc<Worker>,
    claim: &Claim,
    stop: CancellationToken,
) -> Result<(), NotAdmitted> {
    let (db, caller, id) = (&worker.app.db, claim.caller(), TurnId::new());
    let facts = facts::read(worker, &caller, claim.agent).await?;
    let posture = posture_of(worker, claim, &facts).await?;
    let Some(conversation) = facts.agent.selection.conversation_id else {
        return Err(NotAdmitted::Wait(WaitingFor::Agent));
    };
    let Some(resolved) = &facts.resolved else {
        return Err(NotAdmitted::Wait(WaitingFor::Provider));
    };
    let (transcript, lines) =
        Transcript::open(db, &caller, conversation, id, Some(claim.item)).await?;
    let (calls, received) = mpsc::channel(limits::PI_EVENT_BUFFER);
    let launch = Launch {
        conversation,
        lines,
        reasoning: facts.reasoning(),
        system_prompt: prompt::system(&Standing {
            agent: &facts.agent.name,
            team: &facts.team.name,
            persona: &facts.profile.persona,
            user_md: &facts.team.user_md,
            skills: &[],
        }),
        tools: tools::specs(),
        calls,
        gateway: facts::gateway(resolved, worker.app.config.allow_private_providers),
    };
    // The engine's start hides behind lease, toolbox and instructions.
    let (session, admission) = tokio::join!(
        worker.app.runtime.start(launch),
        admission::admit(worker, &caller, &facts, posture, id),
    );
    let (session, admission) = match (session, admission) {
        (Ok(session), Ok(admission)) => (session, admission),
        (session, Err(why)) => {
            if let Ok(session) = session {
                session.end().await;
            }
            return Err(why);
        }
        (Err(error), Ok(admission)) => {
            abandon(worker, claim, admission).await?;
            return Err(no_engine(error));
        }
    };
    let prepared = Prepared {
        turn: id,
        stop,
        facts,
        session,
        received,
        admission,
        transcript,
    };
    Box::pin(start(worker, claim, prepared)).await
}

fn no_engine(error: RuntimeError) -> NotAdmitted {
    tracing::warn!(%error, "the engine did not start");
    match error {
        RuntimeError::Transcript(what) => {
            let text = format!(
                "The conversation's transcript cannot be continued: {what} Start a new conversation."
            );
            NotAdmitted::Unprepared(Diagnostic::new("transcript_blocked", text))
        }
        _ => NotAdmitted::Wait(WaitingFor::Engine),
    }
}

/// Everything that a start record waits for.
struct Prepared {
    turn: TurnId,
    stop: CancellationToken,
    facts: Facts,
    session: Box<dyn AgentSession>,
    received: mpsc::Receiver<ToolCall>,
    admission: Admission,
    transcript: Transcript,
}

async fn start(worker: &Arc<Worker>, claim: &Claim, prepared: Prepared) -> Result<(), NotAdmitted> {
    if let Err(error) = raise_witness(worker, claim.fence).await {
        prepared.session.end().await;
        abandon(worker, claim, prepared.admission).await?;
        return Err(error.into());
    }
    let new = NewTurn {
        id: prepared.turn,
        agent: claim.agent,
        team: prepared.facts.team.id,
        conversation: prepared.transcript.conversation(),
        cause: Cause::Item(claim.item),
        posture: prepared.admission.admitted.posture,
        lease: prepared.admission.lease.id(),
        fence: claim.fence,
        incarnation: worker.incarnation.id,
        generation: worker.incarnation.generation,
        model: prepared.facts.model.clone(),
        span: None,
    };
    let starting = Starting::new(*claim, prepared.turn);
    let started = worker
        .app
        .db
        .transact(&claim.caller(), START, &(starting, new), start_in)
        .await;
    match started {
        Ok(Start::Running(input)) => {
            run_started(worker, claim, prepared, *input).await;
            Ok(())
        }
        // Paused, held, failed or lost: the queue has said so already; nothing started.
        Ok(_) => {
            prepared.session.end().await;
            abandon(worker, claim, prepared.admission).await?;
            Ok(())
        }
        Err(error) => {
            prepared.session.end().await;
            abandon(worker, claim, prepared.admission).await?;
            Err(error.into())
        }
    }
}

async fn start_in(tx: &mut TenantTx, args: &(Starting, NewTurn)) -> Result<Start> {
    let (starting, new) = args;
    let started = claim::start(tx, starting).await?;
    if matches!(started, Start::Running(_)) {
        turn::start_in(tx, new).await?;
    }
    Ok(started)
}

async fn run_started(worker: &Arc<Worker>, claim: &Claim, prepared: Prepared, input: Input) {
    let running = Running::new(
        worker,
        claim,
        prepared.turn,
        prepared.stop,
        &prepared.facts,
        prepared.admission,
        prepared.session,
        prepared.received,
        prepared.transcript,
    );
    running.carry_out(input).await;
    let nudged = worker
        .app
        .db
        .transact(&claim.caller(), NUDGE, &(), nudge_in)
        .await;
    if let Err(error) = nudged {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "waking what waited for a workspace"
        );
    }
}

async fn nudge_in(tx: &mut TenantTx, (): &()) -> Result<u64> {
    claim::nudge(tx, None).await
}

/// Synced before an Agent starts: a database that knows only lower numbers was taken back in time.
async fn raise_witness(worker: &Worker, fence: i64) -> Result<()> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = ONE_AT_A_TIME.lock().await;
    let (base, instance) = (worker.app.config.workspace_base.clone(), worker.instance);
    tokio::task::spawn_blocking(move || witness::raise(&base, instance, fence))
        .await
        .map_err(|e| Error::internal("raising the fence witness", e))?
        .map_err(|e| Error::internal("raising the fence witness", e))
}

/// Ends what was admitted and never started.
async fn abandon(worker: &Worker, claim: &Claim, admission: Admission) -> Result<(), NotAdmitted> {
    let caller = claim.caller();
    let (resource, identity) = &admission.toolbox_container;
    drop(admission.toolbox);
    let making = workspace::container::Making {
        db: &worker.app.db,
        caller: &caller,
        lease: &admission.lease,
        executor: worker.app.executor.as_ref(),
        engine: &admission.admitted.engine,
        life: &worker.incarnation.life,
    };
    making.end(*resource, identity).await?;
    workspace::release(&worker.app.db, &caller, admission.lease.id()).await?;
    Ok(())
}
