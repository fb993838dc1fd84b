//! From an error to a problem document (RFC 9457). The one file that knows status codes.
//!
//! - The document holds what a person can act on; the chain of causes goes to the log, once, here, at 5xx.
//! - No secret, no host path: a refusal is written for the wire, everything else becomes `internal` with the request id.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};

/// The media type of problem documents.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error as it leaves the server.
#[derive(Debug, Clone)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    pub extras: Map<String, Value>,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = error.code();
        if status(code).is_server_error() {
            tracing::error!(
                code = code.as_str(),
                error = &error as &dyn std::error::Error,
                "request failed"
            );
        }
        match error {
            Error::Refused(refusal) => Problem {
                code,
                detail: refusal.detail,
                extras: refusal.extras,
            },
            _ => Problem {
                code,
                detail: server_side(code).into(),
                extras: Map::new(),
            },
        }
    }
}

/// The sentence for what went wrong on our side.
fn server_side(code: Code) -> &'static str {
    match code {
        Code::OutcomeUnknown => {
            "The connection to the database was lost while storing. It may be stored or not. Repeat exactly the same \
             request with the same request id to learn which."
        }
        Code::NotReady => "The database does not answer at the moment. Try again.",
        Code::InsufficientStorage => {
            "The server's disk is full. Nothing was stored. Free some space and try again."
        }
        _ => "Something failed on the server. Its log has the details under this request id.",
    }
}

/// The HTTP status of a code (`surfaces.md`, table of errors).
pub fn status(code: Code) -> StatusCode {
    use Code::*;
    match code {
        MalformedRequest => StatusCode::BAD_REQUEST,
        Unauthenticated | CredentialExpired | CredentialRevoked => StatusCode::UNAUTHORIZED,
        Forbidden | InsufficientScope | CommunicationDenied | CsrfFailed => StatusCode::FORBIDDEN,
        NotFound => StatusCode::NOT_FOUND,
        MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        RequestConflict
        | ItemChanged
        | ItemNotEditable
        | ItemNotUncertain
        | ControlConflict
        | UncertainItems
        | ConversationConflict
        | ConversationRequestConflict
        | AgentBusy
        | AgentTurnActive
        | AgentArchived
        | AmbiguousAgent
        | ApprovalConflict
        | RevisionConflict
        | WorkspaceBusy
        | WorkspaceRecoveryRequired
        | TeamNotEmpty
        | InstructionsIncomplete
        | HandoffRequired
        | AlreadyExists
        | LastOwner => StatusCode::CONFLICT,
        PayloadExpired => StatusCode::GONE,
        BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        InvalidInput => StatusCode::UNPROCESSABLE_ENTITY,
        QueueCapacity | AgentLoopLimit | RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Internal => StatusCode::INTERNAL_SERVER_ERROR,
        NotReady | OutcomeUnknown => StatusCode::SERVICE_UNAVAILABLE,
        InsufficientStorage => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// The short title of a code: its words.
fn title(code: Code) -> String {
    let words = code.as_str().replace('_', " ");
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

impl Problem {
    /// The document, without the request id, which the outermost layer adds.
    pub fn document(&self) -> Value {
        let mut document = json!({
            "type": format!("urn:bazilion:problem:{}", self.code),
            "title": title(self.code),
            "status": status(self.code).as_u16(),
            "detail": self.detail,
            "code": self.code.as_str(),
        });
        if let Value::Object(fields) = &mut document {
            fields.extend(self.extras.clone());
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(seconds) = self.extras.get("retryAfter").and_then(Value::as_u64) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status(self.code) == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let mut response =
            (status(self.code), headers, self.document().to_string()).into_response();
        // Pages turn the same problem into an HTML error page.
        response.extensions_mut().insert(self);
        response
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_carries_its_extras_and_hides_what_is_internal() {
        let refused =
            Error::refused(Code::QueueCapacity, "Full.").with("limit", "open_items_per_agent");
        let document = Problem::from(refused).document();
        assert_eq!(document["status"], 429);
        assert_eq!(document["code"], "queue_capacity");
        assert_eq!(document["title"], "Queue capacity");
        assert_eq!(document["limit"], "open_items_per_agent");

        let internal = Error::internal("opening /secret/path", std::io::Error::other("sk-123"));
        let text = Problem::from(internal).document().to_string();
        assert!(
            !text.contains("secret") && !text.contains("sk-123"),
            "{text}"
        );
    }

    #[test]
    fn every_code_has_an_error_status() {
        for code in Code::ALL {
            assert!(status(*code).as_u16() >= 400, "{code}");
        }
    }
}
