//! The queue's forms. Each calls the operation that the API calls; what differs is only the answer's shape.
//!
//! - htmx gets the panel as it is now, with the refusal in it; a browser without script is led back to the page; the
//!   script that keeps saved requests gets the item or the problem document.

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::agent::{self, Chat, Place};
use super::form::{Form, Upload, UploadedFile};
use super::templates::{EditPage, QueuePart, Shell, form_token, render};
use super::{adapt, session};
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::error::{Code, Error, Result};
use crate::http::extract::Path;
use crate::http::page::wants_html;
use crate::http::problem;
use crate::ids::{AttachmentId, ItemId, RequestId};
use crate::limits;
use crate::queue::control::{Command, Reconcile, Verb};
use crate::queue::edit::{Edit, Expected, Keep, Remove};
use crate::queue::{self, Reason, Submission};
use crate::team::Selection;

type ItemPlace = Path<(String, String, ItemId)>;

/// What the forms of the panel carry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    expected_revision: i64,
    #[serde(default)]
    acknowledge: bool,
}

/// `GET …/queue`: the panel.
pub async fn panel(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named)): Place,
) -> Result<Response> {
    panel_now(&app, &caller, &named, None).await
}

async fn panel_now(
    app: &App,
    caller: &WebCaller,
    named: &str,
    notice: Option<String>,
) -> Result<Response> {
    let Chat { mut queue, .. } = agent::load(app, caller, named, agent::Span::default()).await?;
    queue.notice = notice;
    render(&QueuePart {
        csrf: session::form_token(&caller.session).await?,
        queue,
    })
}

/// `POST …/queue`: a new input.
pub async fn add(
    State(app): State<App>,
    Path((_, named)): Place,
    upload: Upload,
) -> Result<Response> {
    let submission = Submission::new(
        named.clone(),
        upload.parsed::<RequestId>("requestId")?,
        selection(&upload)?,
        upload.text(),
        files(&upload.files),
    )?;
    let item = queue::submit(&app.db, &app.wakes, &upload.caller.caller, &submission).await?;
    Ok(accepted(
        &upload.headers,
        &upload.caller,
        &named,
        StatusCode::CREATED,
        &item,
    ))
}

fn selection(upload: &Upload) -> Result<Selection> {
    let conversation_id = match upload.field("expectedConversation").as_str() {
        "none" => None,
        _ => Some(upload.parsed("expectedConversation")?),
    };
    Ok(Selection {
        conversation_id,
        revision: upload.parsed("expectedSelectionRevision")?,
    })
}

fn files(uploaded: &[UploadedFile]) -> Vec<queue::File> {
    uploaded
        .iter()
        .map(|file| {
            queue::File::new(
                file.name.clone(),
                file.media_type.clone(),
                file.bytes.clone(),
            )
        })
        .collect()
}

fn accepted(
    headers: &HeaderMap,
    caller: &WebCaller,
    named: &str,
    status: StatusCode,
    item: &queue::Item,
) -> Response {
    if wants_html(headers) {
        return back(caller, named);
    }
    (status, axum::Json(item)).into_response()
}

fn back(caller: &WebCaller, named: &str) -> Response {
    Redirect::to(&format!("/h/{}/agents/{named}#queue", caller.home_slug)).into_response()
}

/// `POST …/queue/pause`
pub async fn pause(app: State<App>, place: Place, form: Form<Revision>) -> Result<Response> {
    control(app, place, form, Verb::Pause).await
}

/// `POST …/queue/resume`
pub async fn resume(app: State<App>, place: Place, form: Form<Revision>) -> Result<Response> {
    control(app, place, form, Verb::Resume).await
}

/// `POST …/queue/stop`
pub async fn stop(app: State<App>, place: Place, form: Form<Revision>) -> Result<Response> {
    control(app, place, form, Verb::Stop).await
}

async fn control(
    State(app): State<App>,
    Path((_, named)): Place,
    form: Form<Revision>,
    verb: Verb,
) -> Result<Response> {
    let command = Command {
        agent: named.clone(),
        verb,
        expected_revision: form.fields.expected_revision,
        reason: Reason::Operator,
    };
    let done = queue::control(&app.db, &app.wakes, &form.caller.caller, &command).await;
    acted(&app, &form, &named, done.map(|_| ())).await
}

/// `POST …/queue/{item}/remove`
pub async fn remove(
    State(app): State<App>,
    Path((_, named, item)): ItemPlace,
    form: Form<Revision>,
) -> Result<Response> {
    let remove = Remove {
        agent: named.clone(),
        item,
        expected_revision: form.fields.expected_revision,
    };
    let done = queue::remove(&app.db, &app.wakes, &form.caller.caller, &remove).await;
    acted(&app, &form, &named, done.map(|_| ())).await
}

/// `POST …/queue/{item}/reconcile`: closes an item whose outcome is unknown.
pub async fn reconcile(
    State(app): State<App>,
    Path((_, named, item)): ItemPlace,
    form: Form<Revision>,
) -> Result<Response> {
    if !form.fields.acknowledge {
        let detail = "Acknowledge that the outcome is unknown.";
        return Err(Error::invalid("acknowledge", "required", detail));
    }
    let args = Reconcile {
        agent: named.clone(),
        item,
        expected_revision: form.fields.expected_revision,
    };
    let done = queue::reconcile(&app.db, &app.wakes, &form.caller.caller, &args).await;
    acted(&app, &form, &named, done.map(|_| ())).await
}

/// The answer to a button of the panel.
async fn acted(
    app: &App,
    form: &Form<Revision>,
    named: &str,
    done: Result<()>,
) -> Result<Response> {
    match done {
        Ok(()) if form.htmx => panel_now(app, &form.caller, named, None).await,
        Ok(()) => Ok(back(&form.caller, named)),
        Err(Error::Refused(refusal)) if form.htmx && refusal.code != Code::NotFound => {
            let panel = panel_now(app, &form.caller, named, Some(refusal.detail)).await?;
            Ok((problem::status(refusal.code), panel).into_response())
        }
        Err(error) => Err(error),
    }
}

/// `GET …/queue/{item}`: the form that changes a waiting message.
pub async fn show_edit(
    State(app): State<App>,
    caller: WebCaller,
    Path((_, named, item)): ItemPlace,
) -> Result<Response> {
    edit_page(&app, &caller, &named, item, None).await
}

/// What was typed in vain, and why.
struct Attempt {
    text: String,
    why: String,
}

async fn edit_page(
    app: &App,
    caller: &WebCaller,
    named: &str,
    item: ItemId,
    attempt: Option<Attempt>,
) -> Result<Response> {
    let chat = agent::load(app, caller, named, agent::Span::default()).await?;
    let item = queue::show(&app.db, &caller.caller, named, item).await?;
    let may_operate = adapt::may_operate(&caller.caller);
    let (attempted, notice) = attempt.map(|attempt| (attempt.text, attempt.why)).unzip();
    render(&EditPage {
        csrf: form_token(caller).await?,
        shell: Shell::new(caller, chat.home_name),
        item: adapt::item_row(&chat.agent.href, &caller.home_slug, &item, may_operate),
        agent_name: chat.agent.name,
        agent_href: chat.agent.href,
        request_id: RequestId::new().to_string(),
        composer: chat.composer,
        // The form keeps the exact text; what is shown beside it has its control characters made visible.
        text: attempted.clone().or(item.text).unwrap_or_default(),
        notice,
        attempted,
    })
}

/// `POST …/queue/{item}`: changes a waiting message, or shows the attempt beside what stands there today.
pub async fn edit(
    State(app): State<App>,
    Path((_, named, item)): ItemPlace,
    upload: Upload,
) -> Result<Response> {
    let expected = Expected {
        agent: named.clone(),
        item,
        request_id: upload.parsed("requestId")?,
        revision: upload.parsed("expectedRevision")?,
        selection: selection(&upload)?,
    };
    let edit = Edit::new(
        expected,
        Some(upload.text()),
        Keep::These(kept(&upload)?),
        files(&upload.files),
    )?;
    match queue::edit(&app.db, &app.wakes, &upload.caller.caller, &edit).await {
        Ok(item) => Ok(accepted(
            &upload.headers,
            &upload.caller,
            &named,
            StatusCode::OK,
            &item,
        )),
        Err(Error::Refused(refusal))
            if wants_html(&upload.headers)
                && problem::status(refusal.code) == StatusCode::CONFLICT =>
        {
            let attempt = Attempt {
                text: upload.text(),
                why: refusal.detail,
            };
            let page = edit_page(&app, &upload.caller, &named, item, Some(attempt)).await?;
            Ok((StatusCode::CONFLICT, page).into_response())
        }
        Err(error) => Err(error),
    }
}

/// The files whose boxes are still ticked.
fn kept(upload: &Upload) -> Result<Vec<AttachmentId>> {
    let ticked = upload.fields.iter().filter(|(name, _)| name == "keep");
    ticked
        .take(limits::ITEM_FILES_MAX + 1)
        .map(|(_, id)| {
            id.parse()
                .map_err(|_| Error::invalid("keep", "type", "Name files by their ids."))
        })
        .collect()
}
