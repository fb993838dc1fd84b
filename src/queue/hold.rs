//! What a decision about an approval means for the queue.
//!
//! - The lane is locked first, so a decision and a claim, a pause or a removal come one after the other.
//! - Approving moves the head to the front of the same dispatch path with the exact retained input, once. It is refused
//!   while paused, and for an item that is not the head; the approval stays as it was.
//! - An approval answers the policy it was asked under: any later revision turns it to `denied`.
//! - Denied, expired or cancelled: the item is `cancelled` with that reason. The queue goes on.

use super::accept;
use super::edit;
use super::lane::{Lane, Phase};
use super::model::{Diagnostic, Status, wire};
use super::store;
use super::store::items::Move;
use crate::approval::{self, Approval, State, conflict};
use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::identity::Caller;
use crate::ids::ApprovalId;
use crate::limits;
use crate::team::policy::Decision;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const DECIDE: Op = Op::locking("queue.decide");
const OVERDUE: Op = Op::locking("queue.overdue_approvals");

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Approve,
    Deny,
    Cancel,
    /// The clock's: 24 hours are over.
    Expire,
}

impl Verdict {
    fn action(self) -> &'static str {
        match self {
            Verdict::Approve => "approval.approve",
            Verdict::Deny => "approval.deny",
            Verdict::Cancel => "approval.cancel",
            Verdict::Expire => "approval.expire",
        }
    }

    fn state(self) -> State {
        match self {
            Verdict::Approve => State::Approved,
            Verdict::Deny => State::Denied,
            Verdict::Cancel => State::Cancelled,
            Verdict::Expire => State::Expired,
        }
    }

    fn diagnostic(self) -> Diagnostic {
        match self {
            Verdict::Deny => Diagnostic::new("approval_denied", "The approval was denied."),
            Verdict::Cancel => Diagnostic::new("approval_cancelled", "The approval was cancelled."),
            Verdict::Approve | Verdict::Expire => {
                Diagnostic::new("approval_expired", "Nobody approved this within 24 hours.")
            }
        }
    }
}

/// A decision that was committed, and, when that was not the one asked for, why.
enum Decided {
    AsAsked(Approval),
    Otherwise(Approval, &'static str),
}

/// Decides an approval. Of two people deciding at once one wins; the other gets 409 with the approval as it is.
pub async fn decide(
    db: &Db,
    wakes: &Wakes,
    caller: &Caller,
    id: ApprovalId,
    verdict: Verdict,
) -> Result<Approval> {
    let decided = db
        .transact_repeatable(caller, DECIDE, &(id, verdict), decide_in)
        .await?;
    let (approval, otherwise) = match decided {
        Decided::AsAsked(approval) => (approval, None),
        Decided::Otherwise(approval, why) => (approval, Some(why)),
    };
    wakes.send(Wake::Dispatch);
    wakes.send(Wake::Agent(approval.agent_id.uuid()));
    match otherwise {
        None => Ok(approval),
        Some(why) => Err(conflict(&approval, why)),
    }
}

async fn decide_in(tx: &mut TenantTx, args: &(ApprovalId, Verdict)) -> Result<Decided> {
    let (id, verdict) = *args;
    require(tx.caller(), Action::Approve)?;
    let agent = approval::store::find(tx, id).await?.agent_id;
    let mut lane = store::lane::lock(tx, agent).await?;
    let approval = approval::store::find(tx, id).await?;
    let decided = (approval.state, approval.decided_by);
    if tx.is_repeat() && decided == (verdict.state(), tx.caller().operator()) {
        return Ok(Decided::AsAsked(approval));
    }
    let open: &[State] = match verdict {
        // A granted one that did not start yet can be taken back.
        Verdict::Deny | Verdict::Cancel => &[State::Pending, State::Approved],
        Verdict::Approve | Verdict::Expire => &[State::Pending],
    };
    if !open.contains(&approval.state) {
        return Err(conflict(&approval, "The approval was decided already."));
    }
    if verdict == Verdict::Expire && approval.expires_at > tx.now() {
        return Err(conflict(&approval, "The approval still has time."));
    }
    if verdict != Verdict::Approve {
        close(tx, &mut lane, &approval, verdict).await?;
        return Ok(Decided::AsAsked(approval::store::find(tx, id).await?));
    }
    let refused = match ready_to_approve(tx, &lane, &approval).await? {
        None => {
            approval::store::decide(tx, id, open, State::Approved).await?;
            lane.set_head(Some(Phase::Approved), tx.now());
            store::lane::save(tx, &lane).await?;
            audit::record(tx, &Act::ok(verdict.action(), id)).await?;
            None
        }
        Some((instead, why)) => {
            close(tx, &mut lane, &approval, instead).await?;
            Some(why)
        }
    };
    let now = approval::store::find(tx, id).await?;
    Ok(match refused {
        None => Decided::AsAsked(now),
        Some(why) => Decided::Otherwise(now, why),
    })
}

/// Whether the approval may be granted now: an error leaves it pending, a verdict closes it.
async fn ready_to_approve(
    tx: &mut TenantTx,
    lane: &Lane,
    approval: &Approval,
) -> Result<Option<(Verdict, &'static str)>> {
    if approval.expires_at <= tx.now() {
        return Ok(Some((
            Verdict::Expire,
            "The approval expired. Send the input again.",
        )));
    }
    if lane.head() != Some(approval.item_id) {
        return Err(conflict(
            approval,
            "An earlier item comes first. Approve this when it is at the front.",
        ));
    }
    if lane.control.paused {
        return Err(conflict(
            approval,
            "The queue is paused. Resume it, then approve.",
        ));
    }
    let agent = store::accept::lock_agent(tx, approval.agent_id).await?;
    let answer = accept::ask_policy(tx, &agent).await?;
    let changed = approval.policy.get("revisions") != wire(&answer).get("revisions");
    let refused = changed || answer.decision == Decision::Deny;
    Ok(refused.then_some((
        Verdict::Deny,
        "The Team's policy changed since this was asked. Send the input again.",
    )))
}

/// The question is closed without a grant: the item is cancelled.
async fn close(
    tx: &mut TenantTx,
    lane: &mut Lane,
    approval: &Approval,
    verdict: Verdict,
) -> Result<()> {
    let open = [State::Pending, State::Approved];
    approval::store::decide(tx, approval.id, &open, verdict.state()).await?;
    let why = verdict.diagnostic();
    audit::record(tx, &Act::ok(verdict.action(), approval.id)).await?;
    edit::end(
        tx,
        lane,
        &Move::end(
            approval.item_id,
            Status::Held,
            Status::Cancelled,
            Some(&why),
        ),
    )
    .await
}

/// Expires what nobody decided within 24 hours; how many.
pub async fn expire_overdue(db: &Db, wakes: &Wakes) -> Result<usize> {
    let overdue = db
        .system(OVERDUE, &(), async |tx: &mut SystemTx, (): &()| {
            approval::store::overdue_across_homes(tx, limits::EXPIRY_BATCH).await
        })
        .await?;
    let mut expired = 0;
    for (home, _, id) in overdue {
        let caller = SystemTx::enter(home);
        match decide(db, wakes, &caller, id, Verdict::Expire).await {
            Ok(_) => expired += 1,
            // Somebody decided meanwhile.
            Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(expired)
}
