//! `/api/agents/:agent/queue` and the decisions of `/api/approvals`: thin doors to the operations.

use axum::Json as Answer;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::control::{Command, Controlled, Reconcile, Verb};
use super::edit::{Edit, Expected, Keep, Remove};
use super::hold::{self, Verdict};
use super::look::{Page, Query as PageQuery, View};
use super::submission::EncodedFile;
use super::upload::Upload;
use super::{Item, Reason, Submission};
use crate::app::App;
use crate::approval::{self, Approval};
use crate::auth::extract::ApiCaller;
use crate::error::{Error, Result};
use crate::http::extract::{Json, Path, Query, parse_json, revision};
use crate::http::paging;
use crate::identity::Caller;
use crate::ids::{ApprovalId, AttachmentId, ItemId, RequestId};
use crate::limits;
use crate::team::Selection;

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, submit))
        .routes(routes!(show, edit, remove))
        .routes(routes!(download))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(stop))
        .routes(routes!(reconcile))
        .routes(routes!(list_approvals))
        .routes(routes!(show_approval))
        .routes(routes!(approve))
        .routes(routes!(deny))
        .routes(routes!(cancel))
        .layer(DefaultBodyLimit::max(limits::QUEUE_BODY_MAX))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListParams {
    #[serde(default)]
    view: View,
    cursor: Option<String>,
    offset: Option<i64>,
    /// 1 to 100.
    limit: Option<i64>,
}

/// A page of the queue. Open items in position order; history newest first.
#[utoipa::path(get, path = "/agents/{agent}/queue", tag = "queue", params(("agent" = String, Path,), ListParams),
    responses((status = 200, body = Page)))]
async fn list(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    Query(params): Query<ListParams>,
) -> Result<Answer<Page>> {
    let query = PageQuery {
        agent,
        view: params.view,
        cursor: params.cursor,
        offset: params.offset,
        limit: params.limit,
    };
    Ok(Answer(super::list(&app.db, &caller, &query).await?))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewInput {
    request_id: RequestId,
    expected_selection: Selection,
    #[serde(default)]
    message: String,
    #[serde(default)]
    attachments: Vec<EncodedFile>,
}

/// Stores an input. An exact repeat answers with the stored receipt.
#[utoipa::path(post, path = "/agents/{agent}/queue", tag = "queue", params(("agent" = String, Path,)),
    request_body = NewInput, responses((status = 202, body = Item)))]
async fn submit(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    upload: Upload,
) -> Result<(StatusCode, Answer<Item>)> {
    let new: NewInput = parse_json(upload.document())?;
    let files = upload.files(new.attachments)?;
    let submission = Submission::new(
        agent,
        new.request_id,
        new.expected_selection,
        new.message,
        files,
    )?;
    let item = super::submit(&app.db, &app.wakes, &caller, &submission).await?;
    Ok((StatusCode::ACCEPTED, Answer(item)))
}

type ItemPath = Path<(String, ItemId)>;

/// One item.
#[utoipa::path(get, path = "/agents/{agent}/queue/{item}", tag = "queue",
    params(("agent" = String, Path,), ("item" = String, Path,)), responses((status = 200, body = Item)))]
async fn show(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((agent, item)): ItemPath,
) -> Result<Answer<Item>> {
    Ok(Answer(super::show(&app.db, &caller, &agent, item).await?))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    request_id: RequestId,
    #[serde(deserialize_with = "revision")]
    expected_revision: i64,
    expected_selection: Selection,
    /// Keeps the text when absent.
    message: Option<String>,
    /// Ids, or `"all"`; absent keeps all.
    keep_attachments: Option<Kept>,
    #[serde(default)]
    attachments: Vec<EncodedFile>,
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
enum Kept {
    Word(AllFiles),
    These(Vec<AttachmentId>),
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
enum AllFiles {
    All,
}

/// Replaces a pending item at the same position.
#[utoipa::path(patch, path = "/agents/{agent}/queue/{item}", tag = "queue",
    params(("agent" = String, Path,), ("item" = String, Path,)), request_body = Change,
    responses((status = 202, body = Item)))]
async fn edit(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((agent, item)): ItemPath,
    upload: Upload,
) -> Result<(StatusCode, Answer<Item>)> {
    let change: Change = parse_json(upload.document())?;
    let files = upload.files(change.attachments)?;
    let keep = match change.keep_attachments {
        None | Some(Kept::Word(AllFiles::All)) => Keep::All,
        Some(Kept::These(ids)) => Keep::These(ids),
    };
    let expected = Expected {
        agent,
        item,
        request_id: change.request_id,
        revision: change.expected_revision,
        selection: change.expected_selection,
    };
    let edit = Edit::new(expected, change.message, keep, files)?;
    let item = super::edit(&app.db, &app.wakes, &caller, &edit).await?;
    Ok((StatusCode::ACCEPTED, Answer(item)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RemoveParams {
    #[serde(deserialize_with = "revision")]
    expected_revision: i64,
}

/// Cancels a pending item.
#[utoipa::path(delete, path = "/agents/{agent}/queue/{item}", tag = "queue",
    params(("agent" = String, Path,), ("item" = String, Path,), RemoveParams), responses((status = 200, body = Item)))]
async fn remove(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((agent, item)): ItemPath,
    Query(params): Query<RemoveParams>,
) -> Result<Answer<Item>> {
    let remove = Remove {
        agent,
        item,
        expected_revision: params.expected_revision,
    };
    Ok(Answer(
        super::remove(&app.db, &app.wakes, &caller, &remove).await?,
    ))
}

/// A file, byte for byte.
#[utoipa::path(get, path = "/agents/{agent}/queue/{item}/attachments/{attachment}", tag = "queue",
    params(("agent" = String, Path,), ("item" = String, Path,), ("attachment" = String, Path,)),
    responses((status = 200, content_type = "application/octet-stream")))]
async fn download(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(path): Path<(String, ItemId, AttachmentId)>,
) -> Result<Response> {
    let file = super::download(&app.db, &caller, &path).await?;
    let disposition = disposition(file.name.as_deref().unwrap_or("attachment"));
    let kind = HeaderValue::from_str(&file.mime_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_DISPOSITION, disposition),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ];
    Ok((headers, file.bytes).into_response())
}

/// Always a download, with the name in the form that survives every character (RFC 8187).
fn disposition(name: &str) -> HeaderValue {
    let encoded: String = name
        .bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                char::from(b).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{encoded}"))
        .unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExpectedControl {
    #[serde(deserialize_with = "revision")]
    expected_revision: i64,
}

/// No new claim; a running turn goes on.
#[utoipa::path(post, path = "/agents/{agent}/queue/pause", tag = "queue", params(("agent" = String, Path,)),
    request_body = ExpectedControl, responses((status = 200, body = Controlled)))]
async fn pause(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    Json(body): Json<ExpectedControl>,
) -> Result<Answer<Controlled>> {
    control(&app, &caller, agent, Verb::Pause, &body).await
}

/// The queue goes on. Refused while an item is uncertain.
#[utoipa::path(post, path = "/agents/{agent}/queue/resume", tag = "queue", params(("agent" = String, Path,)),
    request_body = ExpectedControl, responses((status = 200, body = Controlled)))]
async fn resume(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    Json(body): Json<ExpectedControl>,
) -> Result<Answer<Controlled>> {
    control(&app, &caller, agent, Verb::Resume, &body).await
}

/// Pauses, then cancels the active turn.
#[utoipa::path(post, path = "/agents/{agent}/queue/stop", tag = "queue", params(("agent" = String, Path,)),
    request_body = ExpectedControl, responses((status = 200, body = Controlled)))]
async fn stop(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(agent): Path<String>,
    Json(body): Json<ExpectedControl>,
) -> Result<Answer<Controlled>> {
    control(&app, &caller, agent, Verb::Stop, &body).await
}

async fn control(
    app: &App,
    caller: &Caller,
    agent: String,
    verb: Verb,
    body: &ExpectedControl,
) -> Result<Answer<Controlled>> {
    let command = Command {
        agent,
        verb,
        expected_revision: body.expected_revision,
        reason: Reason::Operator,
    };
    Ok(Answer(
        super::control(&app.db, &app.wakes, caller, &command).await?,
    ))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Acknowledgement {
    #[serde(deserialize_with = "revision")]
    expected_revision: i64,
    /// Must be true: the outcome stays unknown, and nothing is run again.
    acknowledge: bool,
}

/// Closes an uncertain item. The queue stays paused.
#[utoipa::path(post, path = "/agents/{agent}/queue/{item}/reconcile", tag = "queue",
    params(("agent" = String, Path,), ("item" = String, Path,)), request_body = Acknowledgement,
    responses((status = 200, body = Item)))]
async fn reconcile(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path((agent, item)): ItemPath,
    Json(body): Json<Acknowledgement>,
) -> Result<Answer<Item>> {
    if !body.acknowledge {
        let message = "Set acknowledge to true: the outcome of this item stays unknown.";
        return Err(Error::invalid("acknowledge", "required", message));
    }
    let args = Reconcile {
        agent,
        item,
        expected_revision: body.expected_revision,
    };
    Ok(Answer(
        super::reconcile(&app.db, &app.wakes, &caller, &args).await?,
    ))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApprovalParams {
    /// Decided ones too.
    #[serde(default)]
    all: bool,
    cursor: Option<ApprovalId>,
    limit: Option<i64>,
}

/// Approvals, newest first.
#[utoipa::path(get, path = "/approvals", tag = "approvals", params(ApprovalParams),
    responses((status = 200, body = paging::Page<Approval>)))]
async fn list_approvals(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Query(params): Query<ApprovalParams>,
) -> Result<Answer<paging::Page<Approval>>> {
    let limit = paging::checked_limit(params.limit)?;
    let page = approval::Page {
        open_only: !params.all,
        before: params.cursor,
        limit: limit + 1,
    };
    let items = approval::list(&app.db, &caller, &page).await?;
    Ok(Answer(paging::Page::cut(items, limit, |last| {
        last.id.to_string()
    })))
}

/// One approval: agent, item and digest, never text or bytes.
#[utoipa::path(get, path = "/approvals/{approval}", tag = "approvals", params(("approval" = String, Path,)),
    responses((status = 200, body = Approval)))]
async fn show_approval(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<ApprovalId>,
) -> Result<Answer<Approval>> {
    Ok(Answer(approval::show(&app.db, &caller, id).await?))
}

/// Lets this exact attempt go ahead, once.
#[utoipa::path(post, path = "/approvals/{approval}/approve", tag = "approvals", params(("approval" = String, Path,)),
    responses((status = 200, body = Approval)))]
async fn approve(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<ApprovalId>,
) -> Result<Answer<Approval>> {
    Ok(Answer(
        hold::decide(&app.db, &app.wakes, &caller, id, Verdict::Approve).await?,
    ))
}

/// Cancels the held item.
#[utoipa::path(post, path = "/approvals/{approval}/deny", tag = "approvals", params(("approval" = String, Path,)),
    responses((status = 200, body = Approval)))]
async fn deny(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<ApprovalId>,
) -> Result<Answer<Approval>> {
    Ok(Answer(
        hold::decide(&app.db, &app.wakes, &caller, id, Verdict::Deny).await?,
    ))
}

/// Withdraws the question; the held item is cancelled.
#[utoipa::path(post, path = "/approvals/{approval}/cancel", tag = "approvals", params(("approval" = String, Path,)),
    responses((status = 200, body = Approval)))]
async fn cancel(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<ApprovalId>,
) -> Result<Answer<Approval>> {
    Ok(Answer(
        hold::decide(&app.db, &app.wakes, &caller, id, Verdict::Cancel).await?,
    ))
}
