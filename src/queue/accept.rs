//! Acceptance of a new input.
//!
//! - Exact retry comes before every other check: a stored receipt answers, whatever has changed since.
//! - One transaction stores item, bytes, position, counters, audit entry and approval, or nothing.
//! - A refusal by policy stores one audit event and nothing else.

use super::digest::{self, Place};
use super::lane::{Lane, capacity};
use super::model::{Item, Status, wire};
use super::plain;
use super::store;
use super::store::accept::{AgentNow, NewAttachment, NewItem};
use super::submission::{File, Submission};
use crate::approval::{self, NewApproval};
use crate::db::constraint::is_violation;
use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::Caller;
use crate::ids::{AgentId, ApprovalId, ConversationId, ItemId, RequestId};
use crate::team::policy::{self, Decision, Party, Verdict};
use crate::team::{self, AgentStatus, Selection};
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const SUBMIT: Op = Op::locking("queue.submit");

/// What a transaction that accepts came to. A denial is committed, since its audit event stays.
pub enum Accepted {
    Item(Box<Item>),
    Denied,
}

impl Accepted {
    /// The item, or the refusal that the person reads.
    pub fn into_item(self) -> Result<Item> {
        match self {
            Accepted::Item(item) => Ok(*item),
            Accepted::Denied => Err(Error::refused(
                Code::CommunicationDenied,
                "The Team's policy does not let you write to this Agent. An owner can change the policy.",
            )),
        }
    }
}

/// Accepts a new input, or answers its exact retry with the stored receipt.
pub async fn submit(
    db: &Db,
    wakes: &Wakes,
    caller: &Caller,
    submission: &Submission,
) -> Result<Item> {
    let unknown = match plain::submit(db, caller, submission).await {
        Ok(Some(item)) => {
            announce(wakes, &item);
            return Ok(item);
        }
        Ok(None) => false,
        Err(error @ Error::Refused(_)) => return Err(error),
        // Nothing was stored, or nobody knows: the general way looks for the receipt first.
        Err(error) => matches!(error, Error::OutcomeUnknown),
    };
    let item = match submit_generally(db, caller, submission).await {
        // The short way's statement may still be under way, and be stored after this refusal. Only a conflict is sure.
        Err(error) if unknown && error.code() != Code::RequestConflict => {
            return Err(Error::OutcomeUnknown);
        }
        other => other?,
    };
    announce(wakes, &item);
    Ok(item)
}

async fn submit_generally(db: &Db, caller: &Caller, submission: &Submission) -> Result<Item> {
    let submit = async || {
        db.transact_repeatable(caller, SUBMIT, submission, submit_in)
            .await
    };
    let accepted = match submit().await {
        // The same identity was stored meanwhile through another lane, which locks nothing of ours: look again.
        Err(error) if is_violation(&error, "queue_items_request_key") => submit().await,
        other => other,
    };
    accepted?.into_item()
}

/// Wakes dispatchers and live views. After the commit only.
pub(super) fn announce(wakes: &Wakes, item: &Item) {
    wakes.send(Wake::Dispatch);
    wakes.send(Wake::Agent(item.agent_id.uuid()));
}

/// The same inside a transaction, for callers that do more in it.
pub async fn submit_in(tx: &mut TenantTx, submission: &Submission) -> Result<Accepted> {
    require(tx.caller(), Action::Operate)?;
    let agent = agent_id(tx, &submission.agent).await?;
    let mut lane = store::lane::lock(tx, agent).await?;
    let same = |place| digest::of_submission(submission, place);
    if let Some(item) = exact_retry(tx, submission.request_id, agent, same).await? {
        return Ok(Accepted::Item(Box::new(item)));
    }
    let now = store::accept::lock_agent(tx, agent).await?;
    require_open_to(&now, submission.expected)?;
    let verdict = ask_policy(tx, &now).await?;
    if verdict.decision == Decision::Deny {
        return deny(tx, agent, &verdict).await;
    }
    lane.require_room()?;
    let place = Place {
        agent,
        team: now.team,
        conversation: conversation(tx, &now, submission.fresh.conversation).await?,
    };
    store_bytes(tx, &submission.files).await?;
    let held = verdict.decision == Decision::ApprovalRequired;
    let status = if held { Status::Held } else { Status::Pending };
    let at = tx.now();
    let new = NewItem {
        id: submission.fresh.item,
        place,
        source: submission.source,
        origin: submission.origin.as_ref(),
        request: submission.request_id,
        digest: digest::of_submission(submission, place),
        position: lane.append(submission.fresh.item, status, at),
        status,
        text: &submission.text,
        attachments: submission.files.iter().map(new_attachment).collect(),
        approval: held.then_some(submission.fresh.approval),
        supersedes: None,
        span: submission.span.as_deref(),
        open_items: 1,
        new_bytes: submission
            .files
            .iter()
            .map(|file| file.byte_length as i64)
            .sum(),
        action: "queue.submit",
    };
    store_item(tx, &new, &lane, &verdict).await
}

/// Stores the item with its question, if there is one.
pub(super) async fn store_item(
    tx: &mut TenantTx,
    new: &NewItem<'_>,
    lane: &Lane,
    verdict: &Verdict,
) -> Result<Accepted> {
    if !store::accept::insert(tx, new, lane).await? {
        return Err(home_capacity(tx, new).await?);
    }
    if let Some(id) = new.approval {
        ask(tx, id, new.place.agent, new.id, new.digest, verdict).await?;
    }
    let item = store::items::find(tx, new.place.agent, new.id).await?;
    Ok(Accepted::Item(Box::new(item)))
}

/// Records the question whether an item may go ahead.
pub(super) async fn ask(
    tx: &mut TenantTx,
    id: ApprovalId,
    agent: AgentId,
    item: ItemId,
    digest: [u8; 32],
    verdict: &Verdict,
) -> Result<()> {
    let new = NewApproval {
        id,
        agent,
        item,
        digest,
        reason: verdict.reason,
        policy: wire(verdict),
    };
    approval::store::insert(tx, &new).await
}

/// The Agent's id, however it is named. An id is checked when its lane is locked.
pub async fn agent_id(tx: &mut TenantTx, named: &str) -> Result<AgentId> {
    match named.parse::<AgentId>() {
        Ok(id) => Ok(id),
        Err(_) => Ok(team::agent::find(tx, named).await?.id),
    }
}

/// The stored item, if this very request was accepted before; a conflict, if another one has its identity.
pub(super) async fn exact_retry(
    tx: &mut TenantTx,
    request: RequestId,
    agent: AgentId,
    digest_at: impl Fn(Place) -> [u8; 32],
) -> Result<Option<Item>> {
    let Some(receipt) = store::accept::find_receipt(tx, request).await? else {
        return Ok(None);
    };
    if receipt.place.agent == agent && receipt.digest == digest_at(receipt.place) {
        return store::items::find(tx, agent, receipt.item).await.map(Some);
    }
    let detail = "This request id was used for a different request. Nothing was changed. Use a new request id for new content.";
    Err(Error::refused(Code::RequestConflict, detail))
}

/// Refuses new input for an archived Agent, and input meant for another conversation than today's.
pub(super) fn require_open_to(agent: &AgentNow, expected: Selection) -> Result<()> {
    if agent.status == AgentStatus::Archived {
        let detail = "The Agent is archived and takes no input. Unarchive it first.";
        return Err(Error::refused(Code::AgentArchived, detail));
    }
    if agent.selection == expected {
        return Ok(());
    }
    let detail = "The Agent's conversation changed meanwhile. Look at it, and send again if the input still fits.";
    Err(Error::refused(Code::ConversationConflict, detail).with("current", wire(&agent.selection)))
}

/// Whether a person may write to the Agent, as the policy stands now.
pub(super) async fn ask_policy(tx: &mut TenantTx, agent: &AgentNow) -> Result<Verdict> {
    let target = Party::Agent {
        id: agent.id,
        team: agent.team,
    };
    let policies = team::store::policy::load(tx, Party::User, target).await?;
    Ok(policy::authorize(Party::User, target, &policies))
}

pub(super) async fn deny(tx: &mut TenantTx, agent: AgentId, verdict: &Verdict) -> Result<Accepted> {
    let act = Act {
        outcome: Code::CommunicationDenied.as_str(),
        detail: wire(verdict),
        ..Act::ok("queue.submit", agent)
    };
    audit::record(tx, &act).await?;
    Ok(Accepted::Denied)
}

async fn conversation(
    tx: &mut TenantTx,
    agent: &AgentNow,
    fresh: ConversationId,
) -> Result<ConversationId> {
    if let Some(selected) = agent.selection.conversation_id {
        return Ok(selected);
    }
    store::accept::begin_conversation(tx, agent.id, fresh).await?;
    Ok(fresh)
}

/// Stores contents in hash order, so that two submissions with the same files do not wait for each other in a circle.
pub(super) async fn store_bytes(tx: &mut TenantTx, files: &[File]) -> Result<()> {
    let mut ordered: Vec<&File> = files.iter().collect();
    ordered.sort_by_key(|file| file.sha256);
    for file in ordered {
        store::blobs::store(tx, &file.sha256, file.byte_length, &file.pieces).await?;
    }
    Ok(())
}

pub(super) fn new_attachment(file: &File) -> NewAttachment {
    NewAttachment {
        id: file.id,
        name: file.name.clone(),
        mime_type: file.mime_type.clone(),
        byte_length: file.byte_length as i64,
        sha256: file.sha256.to_vec(),
    }
}

/// Which of the home's limits refused.
async fn home_capacity(tx: &mut TenantTx, new: &NewItem<'_>) -> Result<Error> {
    let usage = store::accept::usage(tx).await?;
    if usage.open_items + i64::from(new.open_items) > usage.max_open_items {
        let detail =
            "This home has as many open items as it may have. Wait until one ends, or remove one.";
        return Ok(capacity(
            "home_open_items",
            usage.open_items,
            usage.max_open_items,
            detail,
        ));
    }
    if usage.retained_bytes + new.new_bytes > usage.max_retained_bytes {
        let detail =
            "This home's files fill their space. Files of ended items go 7 days after their end.";
        return Ok(capacity(
            "home_retained_bytes",
            usage.retained_bytes,
            usage.max_retained_bytes,
            detail,
        ));
    }
    let detail =
        "This home has as many receipts as it may have. Ask the instance admin to raise the limit.";
    Ok(capacity(
        "home_receipts",
        usage.receipts,
        usage.max_receipts,
        detail,
    ))
}
