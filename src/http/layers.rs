//! What every answer carries: a request id, security headers, no caching below `/api`.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use serde_json::Value;
use tracing::Instrument as _;

use super::problem::{PROBLEM_JSON, Problem};
use crate::error::{Code, Error};
use crate::ids::RequestId;

/// The header that names a request in answers and logs.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// No inline script, no foreign origin, no framing.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; manifest-src 'self'";

/// Gives the request an id of ours, a span, and the id to the answer, also inside a problem document.
pub async fn identify(request: Request, next: Next) -> Response {
    let id = RequestId::new().to_string();
    let span = tracing::info_span!(
        "http.request",
        request.id = %id,
        http.method = %request.method(),
        http.path = loggable(request.uri().path()),
        http.status = tracing::field::Empty,
    );
    let mut response = next.run(request).instrument(span.clone()).await;
    span.record("http.status", response.status().as_u16());
    if response.extensions().get::<Problem>().is_some() && is_problem(&response) {
        response = with_request_id(response, &id).await;
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// A path without the secret that a sign-in link carries in it.
fn loggable(path: &str) -> &str {
    const LINK: &str = "/sign-in/link/";
    if path.starts_with(LINK) { LINK } else { path }
}

fn is_problem(response: &Response) -> bool {
    response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|v| v == PROBLEM_JSON)
}

/// Problem documents are made by us and small: rewriting one is cheap.
async fn with_request_id(response: Response, id: &str) -> Response {
    let (mut parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, crate::limits::MIB)
        .await
        .unwrap_or_default();
    let document = match serde_json::from_slice(&bytes) {
        Ok(Value::Object(mut document)) => {
            document.insert("requestId".into(), id.into());
            Bytes::from(Value::Object(document).to_string())
        }
        _ => bytes,
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, document.into())
}

/// Security headers for every answer; what an answer set itself stays.
pub async fn secure(request: Request, next: Next) -> Response {
    let api = request.uri().path().starts_with("/api");
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    if api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Nothing is mounted here.
pub async fn fallback() -> Response {
    Error::not_found().into_response()
}

/// Mounted, but not for this method.
pub async fn method_not_allowed() -> Response {
    Error::refused(
        Code::MethodNotAllowed,
        "This address does not take this method.",
    )
    .into_response()
}
