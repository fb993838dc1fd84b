//! Pages of lists: `{items, nextCursor}`.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::limits;

/// One page.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass it back as `cursor` for what follows; null at the end.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A list that is never cut.
    pub fn whole(items: Vec<T>) -> Self {
        Self {
            items,
            next_cursor: None,
        }
    }
    /// A page of `limit` out of a list that was read one item further, to see whether something follows.
    pub fn cut(mut items: Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(0);
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        Self { items, next_cursor }
    }
}

/// How many items a page has: 1 to 100, 50 when nothing is said.
pub fn checked_limit(asked: Option<i64>) -> Result<i64> {
    let limit = asked.unwrap_or(limits::QUEUE_PAGE_DEFAULT as i64);
    if (1..=limits::QUEUE_PAGE_MAX as i64).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::invalid(
        "limit",
        "range",
        "A page has 1 to 100 items.",
    ))
}

/// The refusal of a cursor that this list did not give.
pub fn foreign_cursor() -> Error {
    Error::invalid(
        "cursor",
        "cursor",
        "This cursor is not of this list. Begin without one.",
    )
}
