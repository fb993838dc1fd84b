//! Pause, resume, stop, and closing what is uncertain.
//!
//! - Every write compares the control revision that the person saw, and raises it. A stale one changes nothing.
//! - Stop commits the pause first; the turn is cancelled afterwards, wherever in the fleet it runs.
//! - A queue with an uncertain item does not resume. Closing it leaves the queue paused.

use serde::Serialize;

use super::accept::agent_id;
use super::edit;
use super::lane::Lane;
use super::model::{Control, Diagnostic, Item, Reason, Status, check_revision, wire};
use super::store;
use super::store::items::Move;
use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::Caller;
use crate::ids::{AgentId, ItemId, TurnId};
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const CONTROL: Op = Op::locking("queue.control");
const RECONCILE: Op = Op::locking("queue.reconcile");
/// Diagnostic of an uncertain item that a person closed.
const ACKNOWLEDGED: &str = "acknowledged";

/// What a control does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Pause,
    Resume,
    Stop,
}

impl Verb {
    fn action(self) -> &'static str {
        match self {
            Verb::Pause => "queue.pause",
            Verb::Resume => "queue.resume",
            Verb::Stop => "queue.stop",
        }
    }
}

/// A control of a queue.
#[derive(Debug, Clone)]
pub struct Command {
    pub agent: String,
    pub verb: Verb,
    pub expected_revision: i64,
    /// `operator`, or `telegram` for a pause from a topic.
    pub reason: Reason,
}

/// The control as it is after a command, and what was active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueControlled)]
pub struct Controlled {
    #[serde(flatten)]
    pub control: Control,
    /// Of a stop: whether an item was being worked on.
    pub active: bool,
    /// Of a stop: the turn that is being cancelled.
    pub turn_id: Option<TurnId>,
    #[serde(skip)]
    pub agent: AgentId,
}

/// Pauses, resumes or stops. After a stop the caller of the same process cancels the turn by [`Wake::Cancel`], which
/// this sends; a process that missed it finds the stop by polling its claims.
pub async fn control(
    db: &Db,
    wakes: &Wakes,
    caller: &Caller,
    command: &Command,
) -> Result<Controlled> {
    check_revision("expectedRevision", command.expected_revision)?;
    let done = db
        .transact_repeatable(caller, CONTROL, command, control_in)
        .await?;
    if let Some(turn) = done.turn_id {
        wakes.send(Wake::Cancel(turn.uuid()));
    }
    wakes.send(Wake::Agent(done.agent.uuid()));
    wakes.send(Wake::Dispatch);
    Ok(done)
}

async fn control_in(tx: &mut TenantTx, command: &Command) -> Result<Controlled> {
    require(tx.caller(), Action::Operate)?;
    let agent = agent_id(tx, &command.agent).await?;
    let mut lane = store::lane::lock(tx, agent).await?;
    if tx.is_repeat() && is_done(tx, &lane, command) {
        let active = lane.is_stopping();
        let turn = head_turn(tx, &lane, active).await?;
        return Ok(controlled(&lane, (active, turn)));
    }
    lane.require_revision(command.expected_revision)?;
    let (by, now) = (tx.caller().operator(), tx.now());
    let mut done = (false, None);
    match command.verb {
        Verb::Pause => lane.pause(command.reason, by, now),
        Verb::Resume => {
            require_nothing_uncertain(tx, &lane).await?;
            lane.resume(by, now);
        }
        Verb::Stop => {
            done = stop(tx, &mut lane).await?;
            lane.pause(stop_reason(command.reason), by, now);
        }
    }
    store::lane::save(tx, &lane).await?;
    audit::record(tx, &Act::ok(command.verb.action(), agent)).await?;
    Ok(controlled(&lane, done))
}

fn controlled(lane: &Lane, done: (bool, Option<TurnId>)) -> Controlled {
    Controlled {
        control: lane.control.clone(),
        active: done.0,
        turn_id: done.1,
        agent: lane.agent,
    }
}

/// Whether the control is what this very command of this person makes of it.
fn is_done(tx: &TenantTx, lane: &Lane, command: &Command) -> bool {
    let reason = match command.verb {
        Verb::Pause => Some(command.reason),
        Verb::Resume => None,
        Verb::Stop => Some(stop_reason(command.reason)),
    };
    let control = &lane.control;
    control.revision == command.expected_revision + 1
        && control.reason == reason
        && control.changed_by == tx.caller().operator()
}

fn stop_reason(door: Reason) -> Reason {
    match door {
        Reason::Telegram => Reason::Telegram,
        _ => Reason::OperatorStop,
    }
}

async fn stop(tx: &mut TenantTx, lane: &mut Lane) -> Result<(bool, Option<TurnId>)> {
    let active = lane.stop_claim();
    Ok((active, head_turn(tx, lane, active).await?))
}

async fn head_turn(tx: &mut TenantTx, lane: &Lane, active: bool) -> Result<Option<TurnId>> {
    let Some(head) = lane.head().filter(|_| active) else {
        return Ok(None);
    };
    Ok(store::items::find(tx, lane.agent, head).await?.turn_id)
}

async fn require_nothing_uncertain(tx: &mut TenantTx, lane: &Lane) -> Result<()> {
    let uncertain = store::items::uncertain_among(tx, &lane.open).await?;
    if uncertain.is_empty() {
        return Ok(());
    }
    let detail =
        "An item's outcome is unknown. See what it did, acknowledge and close it, then resume.";
    Err(Error::refused(Code::UncertainItems, detail).with("items", wire(&uncertain)))
}

/// The closing of an uncertain item. That it is acknowledged is in the call.
#[derive(Debug, Clone)]
pub struct Reconcile {
    pub agent: String,
    pub item: ItemId,
    pub expected_revision: i64,
}

/// Closes an uncertain item as acknowledged. The queue stays paused; nothing is run again.
pub async fn reconcile(db: &Db, wakes: &Wakes, caller: &Caller, args: &Reconcile) -> Result<Item> {
    check_revision("expectedRevision", args.expected_revision)?;
    let item = db
        .transact_repeatable(caller, RECONCILE, args, reconcile_in)
        .await?;
    wakes.send(Wake::Agent(item.agent_id.uuid()));
    Ok(item)
}

async fn reconcile_in(tx: &mut TenantTx, args: &Reconcile) -> Result<Item> {
    require(tx.caller(), Action::Operate)?;
    let agent = agent_id(tx, &args.agent).await?;
    let mut lane = store::lane::lock(tx, agent).await?;
    let item = store::items::find(tx, agent, args.item).await?;
    if tx.is_repeat() && item.ended_as(Status::Cancelled, ACKNOWLEDGED, args.expected_revision) {
        return Ok(item);
    }
    if item.status != Status::Uncertain {
        let detail = "Only an item whose outcome is unknown can be acknowledged and closed.";
        return Err(Error::refused(Code::ItemNotUncertain, detail).with("current", wire(&item)));
    }
    if item.revision != args.expected_revision {
        let detail = "The item was changed meanwhile. Look at it and try again.";
        return Err(Error::refused(Code::ItemChanged, detail).with("current", wire(&item)));
    }
    let why = Diagnostic::new(
        ACKNOWLEDGED,
        "A person acknowledged that the outcome is unknown.",
    );
    edit::end(
        tx,
        &mut lane,
        &Move::end(item.id, Status::Uncertain, Status::Cancelled, Some(&why)),
    )
    .await?;
    audit::record(tx, &Act::ok("queue.reconcile", item.id)).await?;
    store::items::find(tx, agent, item.id).await
}
