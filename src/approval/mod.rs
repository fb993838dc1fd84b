//! Approvals: a recorded question to an operator, decided once, used once.
//!
//! - An approval decides one attempt. It never changes policy, and never holds text or bytes.
//! - `pending → approved → delivering → delivered | delivery_failed`; `delivering → approved` before anything started;
//!   or `denied | expired | cancelled`. Every change here is guarded by the state it leaves, so of two people one wins.
//! - Delivery belongs to the claim whose fencing number is stored with it.
//! - What a decision means for the queue is the queue's: it locks its lane first, then calls here.

mod model;
pub mod store;

use crate::db::{Db, Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::http::paging;
use crate::identity::Caller;
use crate::ids::ApprovalId;
use crate::tenant::permission::{Action, require};

pub use model::{Approval, NewApproval, State};

const LIST: Op = Op::locking("approval.list");
const SHOW: Op = Op::locking("approval.show");

/// The approvals of the home, newest first: only the open ones, or all. `before` is the last id of the page before.
pub async fn list(db: &Db, caller: &Caller, page: &Page) -> Result<Vec<Approval>> {
    db.transact(
        caller,
        LIST,
        page,
        async |tx: &mut TenantTx, page: &Page| {
            require(tx.caller(), Action::Read)?;
            if let Some(id) = page.before {
                store::find(tx, id).await.map_err(unknown_cursor)?;
            }
            store::list(tx, page).await
        },
    )
    .await
}

fn unknown_cursor(error: Error) -> Error {
    match error.code() {
        Code::NotFound => paging::foreign_cursor(),
        _ => error,
    }
}

/// Which approvals.
#[derive(Debug, Clone)]
pub struct Page {
    pub open_only: bool,
    pub before: Option<ApprovalId>,
    pub limit: i64,
}

/// One approval.
pub async fn show(db: &Db, caller: &Caller, id: ApprovalId) -> Result<Approval> {
    db.transact(
        caller,
        SHOW,
        &id,
        async |tx: &mut TenantTx, id: &ApprovalId| {
            require(tx.caller(), Action::Read)?;
            store::find(tx, *id).await
        },
    )
    .await
}

/// The refusal of a decision that came too late, with the approval as it is.
pub fn conflict(current: &Approval, detail: &str) -> Error {
    let current = serde_json::to_value(current).unwrap_or(serde_json::Value::Null);
    Error::refused(Code::ApprovalConflict, detail).with("current", current)
}
