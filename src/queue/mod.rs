//! The follow-up queue: each Agent's durable first-in-first-out order of what people send.
//!
//! Properties:
//! - An acknowledgement means *stored*. Nothing acknowledged is lost, doubled or replayed.
//! - Everything of one Agent is decided under its lane's row lock. Lock order: lane → item → blob (in hash order) →
//!   Agent → home counters.
//! - A request identity belongs to a home for ever: its exact retry gets the stored receipt, any other content a conflict.
//! - A later input cannot pass an earlier one that is held or uncertain.
//! - Limits are exact under any concurrency: the Agent's by its lane, the home's by a conditional update of its counters.
//! - The moves an item may make are a table, here and in a trigger of the database.
//! - Every change of an item or a control writes its live event in the same transaction, by trigger.
//!
//! Accepted: two different submissions under one identity through two Agents race on a unique index; the loser looks
//! again in a new transaction and gets the conflict.

pub mod accept;
pub mod api;
pub mod claim;
pub mod control;
pub mod digest;
pub mod edit;
pub mod hold;
pub mod lane;
pub mod look;
pub mod model;
mod plain;
pub mod recover;
pub mod retention;
mod store;
pub mod submission;
pub mod upload;

use crate::db::{Db, Isolation, Op, TenantTx};
use crate::error::Result;
use crate::identity::Caller;

pub use accept::{submit, submit_in};
pub use control::{control, reconcile};
pub use edit::{edit, remove};
pub use look::{download, list, list_in, show};
pub use model::{
    Attachment, Control, Diagnostic, Item, Origin, Reason, Source, Status, WaitingFor,
};
pub use submission::{File, Submission};

const CHECK: Op = Op {
    name: "queue.violations",
    isolation: Isolation::RepeatableRead,
};

/// What contradicts itself in the caller's home: counters against lanes, lanes against items, items against bytes and
/// approvals. Empty in a sound database. Reads everything; for tests and `doctor`.
pub async fn violations(db: &Db, caller: &Caller) -> Result<Vec<String>> {
    db.transact(caller, CHECK, &(), async |tx: &mut TenantTx, (): &()| {
        store::check::violations(tx).await
    })
    .await
}
