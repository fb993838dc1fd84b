//! Looking at a queue: pages, one item, a file.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use super::accept::agent_id;
use super::model::{Control, Item};
use super::store;
use crate::db::{Db, Isolation, Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::Caller;
use crate::ids::{AgentId, AttachmentId, ItemId};
use crate::limits;
use crate::tenant::permission::{Action, require};

/// One snapshot: control, totals and items of a page belong together.
const LIST: Op = Op {
    name: "queue.list",
    isolation: Isolation::RepeatableRead,
};
const SHOW: Op = Op::locking("queue.show");
const DOWNLOAD: Op = Op::locking("queue.download");

/// Which items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// In position order.
    #[default]
    Open,
    /// Newest first.
    History,
    /// Open ones, then the history.
    All,
}

/// A page that is asked for.
#[derive(Debug, Clone)]
pub struct Query {
    pub agent: String,
    pub view: View,
    pub cursor: Option<String>,
    pub offset: Option<i64>,
    pub limit: Option<i64>,
}

/// How many items there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = QueueTotals)]
pub struct Totals {
    pub open: i64,
    pub history: i64,
}

/// A page of a queue.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueuePage)]
pub struct Page {
    pub items: Vec<Item>,
    pub control: Control,
    pub totals: Totals,
    pub next_cursor: Option<String>,
}

/// Where the next page begins. Bound to its Agent and view, so that another queue's is recognised.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor {
    agent: AgentId,
    view: View,
    /// The last item shown: open ones by position.
    position: Option<i64>,
    /// Ended ones by their end, in microseconds, and id.
    ended: Option<(i64, ItemId)>,
}

/// One page.
pub async fn list(db: &Db, caller: &Caller, query: &Query) -> Result<Page> {
    db.transact(caller, LIST, query, list_in).await
}

/// The same inside a transaction.
pub async fn list_in(tx: &mut TenantTx, query: &Query) -> Result<Page> {
    require(tx.caller(), Action::Read)?;
    let agent = agent_id(tx, &query.agent).await?;
    let limit = checked_limit(query.limit)?;
    let offset = checked_offset(query.offset)?;
    let cursor = query
        .cursor
        .as_deref()
        .map(|text| decode(text, agent, query.view))
        .transpose()?;
    let lane = store::lane::look(tx, agent).await?;
    let (mut ids, open_left) =
        open_part(tx, query.view, &cursor, offset, limit, agent, &lane.open).await?;
    let open_shown = ids.len();
    if query.view != View::Open && ids.len() < limit {
        let after = cursor.as_ref().and_then(|c| c.ended);
        let skip = match query.view {
            View::All if cursor.is_none() => (offset - lane.open.len() as i64).max(0),
            _ if cursor.is_none() => offset,
            _ => 0,
        };
        let after = after.map(|(micros, id)| (from_micros(micros), id));
        // One more than asked for says whether a page follows.
        let wanted = (limit - ids.len() + 1) as i64;
        ids.extend(store::items::history(tx, agent, after, skip, wanted).await?);
    }
    let more = ids.len() > limit
        || open_left
        || (query.view == View::All && open_shown == limit && lane.ended > 0);
    ids.truncate(limit);
    let items = store::items::by_ids(tx, agent, &ids).await?;
    let next_cursor = more
        .then(|| items.last().map(|last| encode(agent, query.view, last)))
        .flatten();
    Ok(Page {
        items,
        control: lane.control.clone(),
        totals: Totals {
            open: lane.open.len() as i64,
            history: i64::from(lane.ended),
        },
        next_cursor,
    })
}

/// The open items of a page, and whether more open ones follow.
async fn open_part(
    tx: &mut TenantTx,
    view: View,
    cursor: &Option<Cursor>,
    offset: i64,
    limit: usize,
    agent: AgentId,
    open: &[ItemId],
) -> Result<(Vec<ItemId>, bool)> {
    if view == View::History || cursor.as_ref().is_some_and(|c| c.ended.is_some()) {
        return Ok((Vec::new(), false));
    }
    let rest: Vec<ItemId> = match cursor.as_ref().and_then(|c| c.position) {
        Some(position) => {
            let items = store::items::by_ids(tx, agent, open).await?;
            items
                .iter()
                .filter(|item| item.position > position)
                .map(|item| item.id)
                .collect()
        }
        None => open.iter().copied().skip(offset as usize).collect(),
    };
    let left = rest.len() > limit;
    Ok((rest.into_iter().take(limit).collect(), left))
}

fn checked_limit(limit: Option<i64>) -> Result<usize> {
    let limit = limit.unwrap_or(limits::QUEUE_PAGE_DEFAULT as i64);
    match usize::try_from(limit) {
        Ok(limit) if (1..=limits::QUEUE_PAGE_MAX).contains(&limit) => Ok(limit),
        _ => Err(Error::invalid(
            "limit",
            "range",
            "A page has 1 to 100 items.",
        )),
    }
}

fn checked_offset(offset: Option<i64>) -> Result<i64> {
    match offset.unwrap_or(0) {
        offset if offset >= 0 => Ok(offset),
        _ => Err(Error::invalid(
            "offset",
            "range",
            "An offset is zero or more.",
        )),
    }
}

fn encode(agent: AgentId, view: View, last: &Item) -> String {
    let ended = last.finished_at.map(|at| (to_micros(at), last.id));
    let cursor = Cursor {
        agent,
        view,
        position: ended.is_none().then_some(last.position),
        ended,
    };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&cursor).unwrap_or_default())
}

fn decode(text: &str, agent: AgentId, view: View) -> Result<Cursor> {
    URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Cursor>(&bytes).ok())
        .filter(|cursor| cursor.agent == agent && cursor.view == view)
        .ok_or_else(|| {
            Error::invalid(
                "cursor",
                "foreign",
                "This cursor does not belong to this list.",
            )
        })
}

fn to_micros(at: OffsetDateTime) -> i64 {
    (at.unix_timestamp_nanos() / 1000) as i64
}

fn from_micros(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// One item.
pub async fn show(db: &Db, caller: &Caller, agent: &str, item: ItemId) -> Result<Item> {
    db.transact(caller, SHOW, &(agent, item), show_in).await
}

async fn show_in(tx: &mut TenantTx, args: &(&str, ItemId)) -> Result<Item> {
    require(tx.caller(), Action::Read)?;
    let agent = agent_id(tx, args.0).await?;
    store::items::find(tx, agent, args.1).await
}

/// A file as it was sent.
#[derive(Debug)]
pub struct Download {
    pub name: Option<String>,
    pub mime_type: String,
    pub bytes: Vec<u8>,
}

/// The exact bytes of a file, compared with their hash before they are given out.
pub async fn download(
    db: &Db,
    caller: &Caller,
    args: &(String, ItemId, AttachmentId),
) -> Result<Download> {
    db.transact(caller, DOWNLOAD, args, download_in).await
}

async fn download_in(tx: &mut TenantTx, args: &(String, ItemId, AttachmentId)) -> Result<Download> {
    require(tx.caller(), Action::Read)?;
    let (agent, item, id) = args;
    let agent = agent_id(tx, agent).await?;
    let file = store::blobs::find(tx, agent, *item, *id).await?;
    let Some(blob) = file.blob else {
        let detail =
            "The file expired: files of ended items are kept for 7 days. The receipt stays.";
        return Err(Error::refused(Code::PayloadExpired, detail));
    };
    let bytes = store::blobs::read(tx, &blob).await?;
    if Sha256::digest(&bytes)[..] != file.sha256[..] || bytes.len() as i64 != file.byte_length {
        return Err(Error::Corrupt {
            table: "blob_chunks",
            what: format!("bytes of attachment {id} are not those that were sent"),
        });
    }
    Ok(Download {
        name: file.name,
        mime_type: file.mime_type,
        bytes,
    })
}
