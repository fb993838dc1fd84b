//! The page a person sees instead of a problem document.
//!
//! - The handlers of pages refuse with the same errors as the API. Here, outside of them, the answer gets the form that
//!   the asking program can show: HTML for a browser's navigation, a fragment for htmx, the document for a script.
//! - A person who is not signed in is led to the sign-in page and back, when the request was for reading.

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::assets;
use super::layers::REQUEST_ID;
use super::problem::{self, Problem};
use crate::error::Code;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    assets: String,
    status: u16,
    heading: &'static str,
    detail: &'a str,
    reasons: Vec<String>,
    sign_in: bool,
    request_id: &'a str,
}

#[derive(Template)]
#[template(path = "error_part.html")]
struct ErrorPart<'a> {
    detail: &'a str,
    reasons: Vec<String>,
}

/// Whether htmx asks, which swaps a part into the page.
pub fn is_htmx(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// Whether the request wants a page (`Accept` names HTML).
pub fn wants_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"))
}

/// Turns the problems of pages into pages. Must lie inside of [`super::layers::identify`].
pub async fn show_problems(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if path.starts_with("/api") {
        return next.run(request).await;
    }
    let (html, htmx) = (wants_html(request.headers()), is_htmx(request.headers()));
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let asked = request
        .uri()
        .path_and_query()
        .map_or(path, ToString::to_string);
    let response = next.run(request).await;
    let Some(problem) = response.extensions().get::<Problem>().cloned() else {
        return response;
    };
    if htmx {
        return part(&problem);
    }
    if !html {
        return response;
    }
    if reads && problem.code == Code::Unauthenticated {
        let next: String = form_urlencoded::byte_serialize(asked.as_bytes()).collect();
        return Redirect::to(&format!("/sign-in?next={next}")).into_response();
    }
    page(&problem, &response)
}

fn page(problem: &Problem, response: &Response) -> Response {
    let request_id = response
        .headers()
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let page = ErrorPage {
        assets: assets::folder(),
        status: problem::status(problem.code).as_u16(),
        heading: heading(problem.code),
        detail: &problem.detail,
        reasons: reasons(problem),
        sign_in: problem.code == Code::Unauthenticated,
        request_id,
    };
    answer(problem, page.render())
}

fn part(problem: &Problem) -> Response {
    let part = ErrorPart {
        detail: &problem.detail,
        reasons: reasons(problem),
    };
    answer(problem, part.render())
}

fn answer(problem: &Problem, html: askama::Result<String>) -> Response {
    let Ok(html) = html else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut response = (problem::status(problem.code), Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.extras.get("retryAfter").and_then(|v| v.as_u64()) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn heading(code: Code) -> &'static str {
    match problem::status(code).as_u16() {
        401 => "Sign in first",
        403 => "Not allowed",
        404 => "Nothing here",
        405 => "Not this way",
        409 => "Something changed meanwhile",
        410 => "No longer kept",
        413 => "Too large",
        415 | 422 => "Please look at this again",
        429 => "Too much at once",
        503 => "Not ready",
        507 => "No space left",
        _ => "That did not work",
    }
}

/// The messages of `fields`, if the problem names some.
pub fn reasons(problem: &Problem) -> Vec<String> {
    let fields = problem.extras.get("fields").and_then(|f| f.as_array());
    fields
        .into_iter()
        .flatten()
        .filter_map(|field| field.get("message")?.as_str().map(str::to_owned))
        .collect()
}
