//! The lane: one Agent's order and its single active slot, as a value under lock.
//!
//! - Made only by `store::lane::lock`, so whoever holds a `Lane` holds the row's lock.
//! - Every change goes through a method here and is written back whole; `ready_at` is derived in one place.

use time::OffsetDateTime;

use super::model::{Control, Reason, Status};
use crate::db::codec::text_enum;
use crate::error::{Code, Error, Result};
use crate::ids::{AgentId, IncarnationId, ItemId, OperatorId};
use crate::limits;

text_enum! {
    /// What the head is in the middle of. A pending head has no phase.
    pub enum Phase in "agent_queues" {
        Held => "held",
        /// Held, and its approval was granted: it can be claimed.
        Approved => "approved",
        Claimed => "claimed",
        Running => "running",
        Uncertain => "uncertain",
    }
}

impl Phase {
    /// The phase of a head in this state.
    pub fn of(status: Option<Status>) -> Option<Self> {
        match status {
            Some(Status::Held) => Some(Phase::Held),
            Some(Status::Uncertain) => Some(Phase::Uncertain),
            _ => None,
        }
    }
}

/// The locked lane row.
#[derive(Debug, Clone)]
pub struct Lane {
    pub(super) agent: AgentId,
    pub(super) control: Control,
    pub(super) open: Vec<ItemId>,
    pub(super) phase: Option<Phase>,
    pub(super) owner: Option<IncarnationId>,
    pub(super) fence: i64,
    pub(super) stopped_fence: Option<i64>,
    pub(super) next_position: i64,
    pub(super) ended: i32,
    pub(super) ready_at: Option<OffsetDateTime>,
}

impl Lane {
    /// The item whose turn is next, or that has it.
    pub fn head(&self) -> Option<ItemId> {
        self.open.first().copied()
    }

    /// Refuses the twenty-first open item.
    pub fn require_room(&self) -> Result<()> {
        if self.open.len() < limits::AGENT_OPEN_ITEMS_MAX {
            return Ok(());
        }
        Err(capacity(
            "agent_open_items",
            self.open.len() as i64,
            limits::AGENT_OPEN_ITEMS_MAX as i64,
            "This Agent has 20 open items, the most it may have. Wait until one ends, or remove one.",
        ))
    }

    /// Compares the control revision that a person saw.
    pub fn require_revision(&self, expected: i64) -> Result<()> {
        if self.control.revision == expected {
            return Ok(());
        }
        let detail = "The queue's controls changed meanwhile. Look at them and try again.";
        Err(Error::refused(Code::ControlConflict, detail)
            .with("current", super::model::wire(&self.control)))
    }

    /// Puts an item at the end; its position.
    pub(super) fn append(&mut self, item: ItemId, status: Status, now: OffsetDateTime) -> i64 {
        let position = self.next_position;
        self.next_position += 1;
        self.open.push(item);
        if self.open.len() == 1 {
            self.phase = Phase::of(Some(status));
        }
        self.derive(now);
        position
    }

    /// Puts the replacement where the replaced item was.
    pub(super) fn replace(
        &mut self,
        old: ItemId,
        new: ItemId,
        status: Status,
        now: OffsetDateTime,
    ) {
        if self.head() == Some(old) {
            self.phase = Phase::of(Some(status));
            // A replacement was not tried yet: a pause from a failed start does not bind it.
            self.ready_at = None;
        }
        for id in &mut self.open {
            if *id == old {
                *id = new;
            }
        }
        self.ended += 1;
        self.derive(now);
    }

    /// Takes an ended item out. `next` is the state of what follows, when the item was the head.
    pub(super) fn end(&mut self, item: ItemId, next: Option<Status>, now: OffsetDateTime) {
        let was_head = self.head() == Some(item);
        self.open.retain(|id| *id != item);
        self.ended += 1;
        if was_head {
            self.set_head(Phase::of(next), now);
        }
        self.derive(now);
    }

    /// What comes after `item`, if that is the head: whose state the caller must know to end it.
    pub(super) fn follower_of_head(&self, item: ItemId) -> Option<ItemId> {
        (self.head() == Some(item))
            .then(|| self.open.get(1).copied())
            .flatten()
    }

    /// The head goes into a phase that nobody owns, claimable at `at` if at all.
    pub(super) fn set_head(&mut self, phase: Option<Phase>, at: OffsetDateTime) {
        self.phase = phase;
        self.owner = None;
        self.ready_at = None;
        self.derive(at);
    }

    /// The claimed head runs.
    pub(super) fn run_head(&mut self) {
        self.phase = Some(Phase::Running);
    }

    /// Writes a control: who, why, when.
    pub(super) fn pause(&mut self, reason: Reason, by: Option<OperatorId>, now: OffsetDateTime) {
        self.write_control(Some(reason), by, now);
        self.derive(now);
    }

    /// The queue goes on.
    pub(super) fn resume(&mut self, by: Option<OperatorId>, now: OffsetDateTime) {
        self.write_control(None, by, now);
        self.derive(now);
    }

    /// Marks the claim under way as asked to stop; whether there is one.
    pub(super) fn stop_claim(&mut self) -> bool {
        let active = matches!(self.phase, Some(Phase::Claimed | Phase::Running));
        if active {
            self.stopped_fence = Some(self.fence);
        }
        active
    }

    /// Whether the claim under way was asked to stop.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Some(Phase::Claimed | Phase::Running))
            && self.stopped_fence == Some(self.fence)
    }

    fn write_control(
        &mut self,
        reason: Option<Reason>,
        by: Option<OperatorId>,
        now: OffsetDateTime,
    ) {
        self.control = Control {
            paused: reason.is_some(),
            revision: self.control.revision + 1,
            reason,
            changed_by: by,
            changed_at: Some(now),
        };
    }

    /// The lane can be claimed exactly when it is not paused and its head is pending, or held and approved.
    fn derive(&mut self, at: OffsetDateTime) {
        let claimable = !self.control.paused
            && !self.open.is_empty()
            && matches!(self.phase, None | Some(Phase::Approved));
        self.ready_at = claimable.then(|| self.ready_at.unwrap_or(at));
    }
}

/// A limit is reached: which, how much is used, how much there is.
pub(super) fn capacity(limit: &str, used: i64, max: i64, detail: &str) -> Error {
    Error::refused(Code::QueueCapacity, detail)
        .with("limit", limit)
        .with("used", used)
        .with("max", max)
}
