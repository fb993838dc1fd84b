//! The audit log: who did what, when, from where, with what outcome. Append-only: no role may change a row.

mod store;

use serde_json::Value;

use crate::db::{SystemTx, TenantTx};
use crate::error::Result;
use crate::http::paging;
use crate::ids::HomeId;
use crate::tenant::permission::{Action, require};

pub use store::{Entry, list};

/// One act.
pub struct Act<'a> {
    /// What was done, as `feature.verb`.
    pub action: &'static str,
    /// To what, usually an id.
    pub target: Option<String>,
    /// `ok`, `denied`, or a code.
    pub outcome: &'a str,
    /// Through which door: `web`, `http`, `telegram`, `machine`, `system`.
    pub origin: &'a str,
    /// What else is worth knowing. Never text of a person, never a secret.
    pub detail: Value,
}

impl Act<'_> {
    /// A plain success through the API.
    pub fn ok(action: &'static str, target: impl ToString) -> Self {
        Act {
            action,
            target: Some(target.to_string()),
            outcome: "ok",
            origin: "http",
            detail: Value::Object(serde_json::Map::new()),
        }
    }
}

/// Records an act in the caller's home, in the same transaction as the act.
pub async fn record(tx: &mut TenantTx, act: &Act<'_>) -> Result<()> {
    store::insert(tx, act).await
}

/// Records an act of the server or of a person on its machine.
pub async fn record_across_homes(
    tx: &mut SystemTx,
    home: Option<HomeId>,
    act: &Act<'_>,
) -> Result<()> {
    store::insert_across_homes(tx, home, act).await
}

/// The newest acts before an entry of this home, for an owner.
pub async fn page(tx: &mut TenantTx, args: &(Option<i64>, i64)) -> Result<Vec<Entry>> {
    let (before, limit) = *args;
    require(tx.caller(), Action::Administer)?;
    if let Some(id) = before
        && !store::exists(tx, id).await?
    {
        return Err(paging::foreign_cursor());
    }
    store::list(tx, before, limit).await
}
