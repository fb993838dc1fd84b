//! From claim to outcome, for the dispatcher.
//!
//! - A claim takes a head and gives it a fencing number. Every later write names owner and number under the lane's
//!   lock; whoever lost the claim changes nothing and learns so.
//! - Commit, then run: the claim is committed before anything starts.
//! - Giving back leaves the revision alone, so an edit with the revision that a person saw is not defeated.
//! - Nothing here runs an item twice. What may have started and has no outcome becomes uncertain.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::accept;
use super::digest::Place;
use super::edit;
use super::lane::{Lane, Phase};
use super::model::{Diagnostic, Reason, Source, Status, WaitingFor};
use super::store;
use super::store::items::{Frozen, Move};
use crate::approval;
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::identity::Caller;
use crate::ids::{
    AgentId, ApprovalId, ConversationId, HomeId, IncarnationId, ItemId, TeamId, TurnId,
};
use crate::limits;
use crate::team::AgentStatus;
use crate::team::policy::{Decision, Verdict};

const CLAIM: Op = Op::locking("queue.claim");
const STOPPED: Op = Op::locking("queue.stopped");
const HIGHEST_FENCE: Op = Op::locking("queue.highest_fence");

/// A taken head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    pub home: HomeId,
    pub agent: AgentId,
    pub item: ItemId,
    /// Later than the number of every claim before.
    pub fence: i64,
    pub owner: IncarnationId,
}

impl Claim {
    /// The caller that works on it.
    pub fn caller(&self) -> Caller {
        SystemTx::enter(self.home)
    }
}

/// Takes up to `wanted` heads, at most one per home in each round, beginning behind the home `after`: the last one that
/// this process took from. A process that was judged dead gets nothing.
pub async fn claim(
    db: &Db,
    owner: IncarnationId,
    wanted: usize,
    after: Option<HomeId>,
) -> Result<Vec<Claim>> {
    let args = (owner, i32::try_from(wanted).unwrap_or(i32::MAX), after);
    let taken = db.system(CLAIM, &args, claim_in).await?;
    Ok(taken
        .into_iter()
        .map(|taken| Claim {
            home: taken.home,
            agent: taken.agent,
            item: taken.item,
            fence: taken.fence,
            owner,
        })
        .collect())
}

async fn claim_in(
    tx: &mut SystemTx,
    args: &(IncarnationId, i32, Option<HomeId>),
) -> Result<Vec<store::system::Taken>> {
    let (owner, wanted, after) = *args;
    store::system::claim_across_homes(tx, owner, wanted, after).await
}

/// Fencing numbers of this process's claims that a Stop asked to end. Asked about once a second, it makes good a lost
/// wake-up.
pub async fn stopped(db: &Db, owner: IncarnationId) -> Result<Vec<i64>> {
    db.system(
        STOPPED,
        &owner,
        async |tx: &mut SystemTx, owner: &IncarnationId| {
            store::system::stopped_across_homes(tx, *owner).await
        },
    )
    .await
}

/// The highest fencing number that any claim of this database was committed with, to compare with the witness outside.
pub async fn highest_fence(db: &Db) -> Result<i64> {
    db.system(HIGHEST_FENCE, &(), async |tx: &mut SystemTx, (): &()| {
        store::system::highest_fence_across_homes(tx).await
    })
    .await
}

/// A file for the turn.
#[derive(Debug, Clone)]
pub struct InputFile {
    pub name: Option<String>,
    pub mime_type: String,
    pub bytes: Vec<u8>,
}

/// The exact retained input of a started item.
#[derive(Debug, Clone)]
pub struct Input {
    pub team: TeamId,
    pub conversation: ConversationId,
    pub source: Source,
    pub text: String,
    pub files: Vec<InputFile>,
    /// Trace context of the submission.
    pub span: Option<String>,
}

/// What an attempt to start came to. Only `Running` may be followed by a turn.
#[derive(Debug)]
pub enum Start {
    Running(Box<Input>),
    /// A pause came between; the item waits again.
    Paused,
    /// The policy now asks for an approval.
    Held(ApprovalId),
    /// The item ended with this diagnostic; nothing started.
    Failed(Diagnostic),
    /// The claim was lost meanwhile.
    Lost,
}

/// What a start needs.
#[derive(Debug, Clone, Copy)]
pub struct Starting {
    pub claim: Claim,
    pub turn: TurnId,
    approval: ApprovalId,
}

impl Starting {
    /// Mints what the transaction may need.
    pub fn new(claim: Claim, turn: TurnId) -> Self {
        Self {
            claim,
            turn,
            approval: ApprovalId::new(),
        }
    }
}

/// The last check before an item runs, in the transaction that records the turn: still this claim, not paused, Agent
/// active, same Team, same conversation, policy asked again, bytes verified.
pub async fn start(tx: &mut TenantTx, starting: &Starting) -> Result<Start> {
    let claim = &starting.claim;
    let Some(mut lane) = claimed(tx, claim).await? else {
        return Ok(Start::Lost);
    };
    if lane.phase != Some(Phase::Claimed) {
        return Ok(Start::Lost);
    }
    if lane.control.paused {
        put_back(tx, &mut lane, claim, WaitingFor::Pause, Duration::ZERO).await?;
        return Ok(Start::Paused);
    }
    let frozen = store::items::frozen(tx, claim.item).await?;
    let agent = store::accept::lock_agent(tx, claim.agent).await?;
    let (team, conversation) = (agent.team, agent.selection.conversation_id);
    if let Some(why) = unfit(agent.status, team, conversation, &frozen.place) {
        return fail_claimed(tx, lane, claim, why).await;
    }
    let verdict = accept::ask_policy(tx, &agent).await?;
    match verdict.decision {
        Decision::Deny => {
            let why = Diagnostic::new(
                "policy_denied",
                "The Team's policy no longer lets this input reach the Agent.",
            );
            return fail_claimed(tx, lane, claim, why).await;
        }
        Decision::ApprovalRequired if frozen.approval.is_none() => {
            return hold(tx, lane, starting, &frozen, &verdict).await;
        }
        Decision::ApprovalRequired | Decision::Allow => {}
    }
    let Some(input) = verified_input(tx, claim.item, frozen).await? else {
        let why = Diagnostic::new(
            "input_corrupt",
            "The stored input is not what was sent. Send it again as a new request.",
        );
        return fail_claimed(tx, lane, claim, why).await;
    };
    lane.run_head();
    let change = Move {
        revises: false,
        turn: Some(starting.turn),
        ..Move::end(claim.item, Status::Claimed, Status::Running, None)
    };
    store::items::apply(tx, &change).await?;
    approval::store::delivered(tx, claim.item, claim.fence).await?;
    store::lane::save(tx, &lane).await?;
    Ok(Start::Running(Box::new(input)))
}

/// Why the Agent of today may not run what was accepted for the Agent of then.
fn unfit(
    status: AgentStatus,
    team: TeamId,
    conversation: Option<ConversationId>,
    place: &Place,
) -> Option<Diagnostic> {
    if status == AgentStatus::Archived {
        Some(Diagnostic::new(
            "agent_archived",
            "The Agent was archived before this could start.",
        ))
    } else if team != place.team {
        Some(Diagnostic::new(
            "membership_changed",
            "The Agent moved to another Team after this was accepted.",
        ))
    } else if conversation != Some(place.conversation) {
        Some(Diagnostic::new(
            "conversation_changed",
            "The Agent talks elsewhere since this was accepted.",
        ))
    } else {
        None
    }
}

async fn hold(
    tx: &mut TenantTx,
    mut lane: Lane,
    starting: &Starting,
    frozen: &Frozen,
    verdict: &Verdict,
) -> Result<Start> {
    let (claim, approval) = (&starting.claim, starting.approval);
    let digest = frozen.digest.as_slice().try_into().unwrap_or([0; 32]);
    accept::ask(tx, approval, claim.agent, claim.item, digest, verdict).await?;
    let change = Move {
        approval: Some(approval),
        ..Move::end(claim.item, Status::Claimed, Status::Held, None)
    };
    store::items::apply(tx, &change).await?;
    lane.set_head(Some(Phase::Held), tx.now());
    store::lane::save(tx, &lane).await?;
    Ok(Start::Held(approval))
}

async fn fail_claimed(
    tx: &mut TenantTx,
    mut lane: Lane,
    claim: &Claim,
    why: Diagnostic,
) -> Result<Start> {
    approval::store::delivery_failed(tx, claim.item, claim.fence).await?;
    let change = Move::end(claim.item, Status::Claimed, Status::Failed, Some(&why));
    edit::end(tx, &mut lane, &change).await?;
    Ok(Start::Failed(why))
}

/// Text and bytes, compared with their hashes. None when something is missing or differs.
async fn verified_input(tx: &mut TenantTx, item: ItemId, frozen: Frozen) -> Result<Option<Input>> {
    let Some(text) = frozen.text else {
        return Ok(None);
    };
    let mut files = Vec::new();
    for (_, file) in store::blobs::of_item(tx, item).await? {
        let bytes = store::blobs::read(tx, &file.sha256).await?;
        if Sha256::digest(&bytes)[..] != file.sha256[..] {
            return Ok(None);
        }
        files.push(InputFile {
            name: file.name,
            mime_type: file.mime_type,
            bytes,
        });
    }
    Ok(Some(Input {
        team: frozen.place.team,
        conversation: frozen.place.conversation,
        source: frozen.source,
        text,
        files,
        span: frozen.span,
    }))
}

/// An unstarted claim that goes back.
#[derive(Debug, Clone, Copy)]
pub struct GiveBack {
    pub claim: Claim,
    pub waiting_for: WaitingFor,
    /// How long it is left alone; a nudge ends the pause early.
    pub pause: Duration,
}

impl GiveBack {
    /// With the usual pause.
    pub fn new(claim: Claim, waiting_for: WaitingFor) -> Self {
        Self {
            claim,
            waiting_for,
            pause: limits::GIVE_BACK_PAUSE,
        }
    }
}

/// Returns an unstarted item to where it was: `pending`, or `held` with its approval unused. False when the claim was
/// lost.
pub async fn give_back(tx: &mut TenantTx, args: &GiveBack) -> Result<bool> {
    let Some(mut lane) = claimed(tx, &args.claim).await? else {
        return Ok(false);
    };
    if lane.phase != Some(Phase::Claimed) {
        return Ok(false);
    }
    put_back(tx, &mut lane, &args.claim, args.waiting_for, args.pause).await?;
    Ok(true)
}

async fn put_back(
    tx: &mut TenantTx,
    lane: &mut Lane,
    claim: &Claim,
    waiting_for: WaitingFor,
    pause: Duration,
) -> Result<()> {
    let approved = store::items::frozen(tx, claim.item)
        .await?
        .approval
        .is_some();
    let (status, phase) = match approved {
        true => (Status::Held, Some(Phase::Approved)),
        false => (Status::Pending, None),
    };
    // "Paused" is read from the lane when the item is shown; stored it would outlive the pause.
    let stored = (waiting_for != WaitingFor::Pause).then_some(waiting_for);
    let change = Move {
        revises: false,
        waiting_for: stored,
        ..Move::end(claim.item, Status::Claimed, status, None)
    };
    store::items::apply(tx, &change).await?;
    approval::store::release(tx, claim.item, claim.fence).await?;
    lane.set_head(phase, tx.now() + pause);
    store::lane::save(tx, lane).await
}

/// How a claimed or running item ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The turn ended normally. Only of a running item.
    Completed,
    /// Nothing more will happen.
    Failed(Diagnostic),
    Cancelled(Diagnostic),
    /// It may have acted. Pauses the queue.
    Uncertain(Diagnostic),
    /// What failed would fail for every item alike. Pauses the queue. Before the start only.
    Unprepared(Diagnostic),
}

/// An outcome of a claim.
#[derive(Debug, Clone)]
pub struct Settle {
    pub claim: Claim,
    pub outcome: Outcome,
}

/// Records how the item ended. False when the claim was lost: somebody declared it uncertain first, and that stands.
pub async fn settle(tx: &mut TenantTx, args: &Settle) -> Result<bool> {
    let Some(mut lane) = claimed(tx, &args.claim).await? else {
        return Ok(false);
    };
    let item = args.claim.item;
    let from = match lane.phase {
        Some(Phase::Running) => Status::Running,
        _ => Status::Claimed,
    };
    // Of a running item the approval is delivered already, and this changes nothing.
    approval::store::delivery_failed(tx, item, args.claim.fence).await?;
    let now = tx.now();
    match &args.outcome {
        Outcome::Uncertain(why) => {
            store::items::apply(tx, &Move::end(item, from, Status::Uncertain, Some(why))).await?;
            lane.set_head(Some(Phase::Uncertain), now);
            lane.pause(Reason::Interrupted, None, now);
            store::lane::save(tx, &lane).await?;
        }
        Outcome::Completed => {
            edit::end(
                tx,
                &mut lane,
                &Move::end(item, from, Status::Completed, None),
            )
            .await?
        }
        Outcome::Failed(why) => {
            edit::end(
                tx,
                &mut lane,
                &Move::end(item, from, Status::Failed, Some(why)),
            )
            .await?
        }
        Outcome::Cancelled(why) => {
            edit::end(
                tx,
                &mut lane,
                &Move::end(item, from, Status::Cancelled, Some(why)),
            )
            .await?;
        }
        Outcome::Unprepared(why) => {
            lane.pause(Reason::Preparation, None, now);
            edit::end(
                tx,
                &mut lane,
                &Move::end(item, from, Status::Failed, Some(why)),
            )
            .await?;
        }
    }
    Ok(true)
}

/// Makes waiting heads claimable now: a workspace, an Agent or a provider may be free again. All Agents of the home
/// when none is named.
pub async fn nudge(tx: &mut TenantTx, agents: Option<&[AgentId]>) -> Result<u64> {
    let ids: Option<Vec<uuid::Uuid>> =
        agents.map(|agents| agents.iter().map(|a| a.uuid()).collect());
    store::lane::nudge(tx, ids.as_deref()).await
}

/// The lane under lock, if the claim still holds.
async fn claimed(tx: &mut TenantTx, claim: &Claim) -> Result<Option<Lane>> {
    let lane = store::lane::lock(tx, claim.agent).await?;
    let holds = lane.owner == Some(claim.owner)
        && lane.fence == claim.fence
        && lane.head() == Some(claim.item);
    if !holds {
        tracing::warn!(item = %claim.item, fence = claim.fence, "a claim was lost; its write is dropped");
    }
    Ok(holds.then_some(lane))
}
