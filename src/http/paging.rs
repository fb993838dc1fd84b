//! Pages of lists: `{items, nextCursor}`.

use serde::Serialize;

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
}
