//! Changing and removing what still waits.
//!
//! - An edit makes a new item at the same position; the old one becomes `superseded`. If anything fails, the original is
//!   untouched.
//! - Against a claim, a removal or another edit exactly one wins. The loser gets the item as it is now.
//! - A Telegram identity or an approval is never reused for other content: a replacement is `http` and freshly authorised.

use super::accept::{self, Accepted, agent_id, exact_retry};
use super::digest::{self, Place};
use super::model::{Diagnostic, Item, Source, Status, check_revision};
use super::store;
use super::store::accept::{NewAttachment, NewItem};
use super::store::blobs::Stored;
use super::store::items::Move;
use super::submission::{File, Fresh, check_files, check_text, field, refuse};
use crate::db::constraint::is_violation;
use crate::db::wake::Wakes;
use crate::db::{Db, Op, TenantTx};
use crate::error::{Error, Result};
use crate::identity::Caller;
use crate::ids::{AttachmentId, ItemId, RequestId};
use crate::limits;
use crate::team::Selection;
use crate::team::policy::Decision;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const EDIT: Op = Op::locking("queue.edit");
const REMOVE: Op = Op::locking("queue.remove");
/// Diagnostic of an item that a person removed.
const REMOVED: &str = "removed";

/// Which files of the original the replacement keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    All,
    These(Vec<AttachmentId>),
}

/// A change of a pending item.
#[derive(Debug, Clone)]
pub struct Edit {
    pub agent: String,
    pub item: ItemId,
    pub request_id: RequestId,
    pub expected_revision: i64,
    pub expected: Selection,
    /// Keeps the text when absent.
    pub message: Option<String>,
    pub keep: Keep,
    /// New files, behind the kept ones.
    pub files: Vec<File>,
    pub span: Option<String>,
    fresh: Fresh,
    kept_ids: Vec<AttachmentId>,
}

/// What an edit names and expects.
#[derive(Debug, Clone)]
pub struct Expected {
    pub agent: String,
    pub item: ItemId,
    pub request_id: RequestId,
    pub revision: i64,
    pub selection: Selection,
}

impl Edit {
    /// Checks what can be checked before the original is read, and mints ids.
    pub fn new(
        expected: Expected,
        message: Option<String>,
        keep: Keep,
        files: Vec<File>,
    ) -> Result<Self> {
        let mut broken = Vec::new();
        check_text(message.as_deref().unwrap_or_default(), &mut broken);
        check_files(&files, &mut broken);
        if let Keep::These(ids) = &keep
            && (ids.len() > limits::ITEM_FILES_MAX
                || (1..ids.len()).any(|n| ids[..n].contains(&ids[n])))
        {
            broken.push(field(
                "keepAttachments",
                "ids",
                "Name each file to keep once.",
            ));
        }
        refuse(broken)?;
        check_revision("expectedRevision", expected.revision)?;
        check_revision("expectedSelection.revision", expected.selection.revision)?;
        Ok(Self {
            agent: expected.agent,
            item: expected.item,
            request_id: expected.request_id,
            expected_revision: expected.revision,
            expected: expected.selection,
            message,
            keep,
            files,
            span: None,
            fresh: Fresh::new(),
            kept_ids: (0..limits::ITEM_FILES_MAX)
                .map(|_| AttachmentId::new())
                .collect(),
        })
    }
}

/// Replaces a pending item, or answers the exact retry of an edit.
pub async fn edit(db: &Db, wakes: &Wakes, caller: &Caller, edit: &Edit) -> Result<Item> {
    let change = async || db.transact_repeatable(caller, EDIT, edit, edit_in).await;
    let accepted = match change().await {
        Err(error) if is_violation(&error, "queue_items_request_key") => change().await,
        other => other,
    };
    let item = accepted?.into_item()?;
    accept::announce(wakes, &item);
    Ok(item)
}

async fn edit_in(tx: &mut TenantTx, edit: &Edit) -> Result<Accepted> {
    require(tx.caller(), Action::Operate)?;
    let agent = agent_id(tx, &edit.agent).await?;
    let mut lane = store::lane::lock(tx, agent).await?;
    let same = |place| digest::of_edit(edit, place);
    if let Some(item) = exact_retry(tx, edit.request_id, agent, same).await? {
        return Ok(Accepted::Item(Box::new(item)));
    }
    let old = store::items::find(tx, agent, edit.item).await?;
    let now = store::accept::lock_agent(tx, agent).await?;
    if old.status != Status::Pending || old.revision != edit.expected_revision {
        return Err(old.lost());
    }
    accept::require_open_to(&now, edit.expected)?;
    if now.selection.conversation_id != Some(old.conversation_id) || now.team != old.team_id {
        // The Agent talks elsewhere or moved since: the item will fail at dispatch, and an edit cannot save it.
        return Err(old.lost());
    }
    let kept = kept(edit, store::blobs::of_item(tx, old.id).await?)?;
    let text = edit
        .message
        .clone()
        .or_else(|| old.text.clone())
        .unwrap_or_default();
    check_whole(&text, &kept, &edit.files)?;
    let verdict = accept::ask_policy(tx, &now).await?;
    if verdict.decision == Decision::Deny {
        return accept::deny(tx, agent, &verdict).await;
    }
    let place = Place {
        agent,
        team: now.team,
        conversation: old.conversation_id,
    };
    let held = verdict.decision == Decision::ApprovalRequired;
    let status = if held { Status::Held } else { Status::Pending };
    lane.replace(old.id, edit.fresh.item, status, tx.now());
    let kept_bytes = kept.iter().map(|file| file.byte_length).sum();
    store::accept::supersede(tx, old.id, edit.fresh.item, kept_bytes).await?;
    accept::store_bytes(tx, &edit.files).await?;
    let new = NewItem {
        id: edit.fresh.item,
        place,
        source: Source::Http,
        origin: None,
        request: edit.request_id,
        digest: digest::of_edit(edit, place),
        position: old.position,
        status,
        text: &text,
        attachments: kept
            .into_iter()
            .chain(edit.files.iter().map(accept::new_attachment))
            .collect(),
        approval: held.then_some(edit.fresh.approval),
        supersedes: Some(old.id),
        span: edit.span.as_deref(),
        open_items: 0,
        new_bytes: edit.files.iter().map(|file| file.byte_length as i64).sum(),
        action: "queue.edit",
    };
    accept::store_item(tx, &new, &lane, &verdict).await
}

/// The kept files, under new ids, in their old order.
fn kept(edit: &Edit, stored: Vec<(AttachmentId, Stored)>) -> Result<Vec<NewAttachment>> {
    if let Keep::These(ids) = &edit.keep
        && ids
            .iter()
            .any(|id| !stored.iter().any(|(have, _)| have == id))
    {
        return Err(Error::invalid(
            "keepAttachments",
            "unknown",
            "The item has no such file.",
        ));
    }
    Ok(stored
        .into_iter()
        .filter(|(id, _)| match &edit.keep {
            Keep::All => true,
            Keep::These(ids) => ids.contains(id),
        })
        .zip(&edit.kept_ids)
        .map(|((_, file), id)| NewAttachment {
            id: *id,
            name: file.name,
            mime_type: file.mime_type,
            byte_length: file.byte_length,
            sha256: file.sha256,
        })
        .collect())
}

/// The rules for an input, over kept and new files together.
fn check_whole(text: &str, kept: &[NewAttachment], new: &[File]) -> Result<()> {
    let mut broken = Vec::new();
    let bytes: usize = kept
        .iter()
        .map(|f| f.byte_length as usize)
        .chain(new.iter().map(|f| f.byte_length))
        .sum();
    if kept.len() + new.len() > limits::ITEM_FILES_MAX {
        broken.push(field(
            "attachments",
            "count",
            "An input has at most 16 files, kept ones included.",
        ));
    }
    if bytes > limits::ITEM_FILE_BYTES_MAX {
        broken.push(field(
            "attachments",
            "size",
            "Files of one input have at most 25 MiB together, kept ones included.",
        ));
    }
    if text.trim().is_empty() && kept.is_empty() && new.is_empty() {
        broken.push(field(
            "message",
            "blank",
            "Write a message, or keep or attach a file.",
        ));
    }
    refuse(broken)
}

/// A removal of a pending item.
#[derive(Debug, Clone)]
pub struct Remove {
    pub agent: String,
    pub item: ItemId,
    pub expected_revision: i64,
}

/// Cancels a pending item; its text stays readable in the history until it expires.
pub async fn remove(db: &Db, wakes: &Wakes, caller: &Caller, remove: &Remove) -> Result<Item> {
    check_revision("expectedRevision", remove.expected_revision)?;
    let item = db
        .transact_repeatable(caller, REMOVE, remove, remove_in)
        .await?;
    accept::announce(wakes, &item);
    Ok(item)
}

async fn remove_in(tx: &mut TenantTx, remove: &Remove) -> Result<Item> {
    require(tx.caller(), Action::Operate)?;
    let agent = agent_id(tx, &remove.agent).await?;
    let mut lane = store::lane::lock(tx, agent).await?;
    let old = store::items::find(tx, agent, remove.item).await?;
    if tx.is_repeat() && old.ended_as(Status::Cancelled, REMOVED, remove.expected_revision) {
        return Ok(old);
    }
    if old.status != Status::Pending || old.revision != remove.expected_revision {
        return Err(old.lost());
    }
    let removed = Diagnostic::new(REMOVED, "Removed before it started.");
    end(
        tx,
        &mut lane,
        &Move::end(old.id, Status::Pending, Status::Cancelled, Some(&removed)),
    )
    .await?;
    audit::record(tx, &Act::ok("queue.remove", old.id)).await?;
    store::items::find(tx, agent, old.id).await
}

/// Ends an item of a locked lane: item, lane, and last the home's counter.
pub(super) async fn end(
    tx: &mut TenantTx,
    lane: &mut super::lane::Lane,
    change: &Move<'_>,
) -> Result<()> {
    store::items::apply(tx, change).await?;
    let next = store::items::status(tx, lane.follower_of_head(change.item)).await?;
    lane.end(change.item, next, tx.now());
    store::lane::save(tx, lane).await?;
    store::items::count_ended(tx).await
}
