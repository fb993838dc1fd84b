//! Why a command did not succeed, and the exit code that says so.
//!
//! - Every refusal of the server keeps its stable `code` and its whole problem document.
//! - "Nothing was sent", "the answer was lost" and "the server refused" are three different things here, because only
//!   the second leaves the outcome open.

use std::fmt;

use serde_json::{Map, Value, json};

use super::output::visible;
use crate::error::Code;

/// Exit codes that scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// The server failed, or could not be reached.
    Server = 1,
    /// Wrong usage, invalid input, or a confirmation that is missing.
    Usage = 2,
    /// Something changed meanwhile, or stands in the way.
    Conflict = 3,
    /// Not signed in, or not allowed.
    Permission = 4,
    /// There is no such thing, or no longer.
    NotFound = 5,
    /// A limit.
    Limit = 6,
    /// `agent chat --wait`: the turn failed.
    TurnFailed = 10,
    /// `agent chat --wait`: the item was cancelled.
    TurnCancelled = 11,
    /// `agent chat --wait`: nobody knows what the turn did.
    TurnUncertain = 12,
    /// `agent chat --wait`: the item waits for an approval.
    TurnHeld = 13,
}

impl Exit {
    /// The class of a refusal by its HTTP status.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Exit::Permission,
            404 | 410 => Exit::NotFound,
            409 => Exit::Conflict,
            413 | 429 => Exit::Limit,
            408 | 500.. => Exit::Server,
            400..500 => Exit::Usage,
            _ => Exit::Server,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

/// A refusal as the server wrote it (RFC 9457).
#[derive(Debug, Clone)]
pub struct Problem {
    pub status: u16,
    pub code: String,
    pub detail: String,
    /// The whole document, for `--json` and for `current`, `limit` and `fields`.
    pub document: Map<String, Value>,
    /// Seconds, from `Retry-After`.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// Reads an error body. One that is not ours (a proxy's page) becomes a problem that says only its status.
    pub fn from_body(status: u16, body: &[u8], retry_after: Option<u64>) -> Self {
        let document: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let word = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
        let detail = word("detail")
            .or_else(|| word("title"))
            .unwrap_or_else(|| format!("The server answered {status} without an explanation."));
        let code = word("code").unwrap_or_else(|| format!("http_{status}"));
        let document = if document.contains_key("code") {
            document
        } else {
            object(json!({"status": status, "code": code, "detail": detail}))
        };
        Problem {
            status,
            code,
            detail,
            document,
            retry_after,
        }
    }

    /// What the code brought along for a person: the fields at fault, the limit, the way on.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for field in self
            .document
            .get("fields")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let word = |key: &str| field.get(key).and_then(Value::as_str).unwrap_or_default();
            lines.push(format!("{}: {}", word("path"), word("message")));
        }
        let number = |key: &str| self.document.get(key).and_then(Value::as_u64);
        if let (Some(used), Some(max)) = (number("used"), number("max")) {
            let limit = self
                .document
                .get("limit")
                .and_then(Value::as_str)
                .unwrap_or("limit");
            lines.push(format!("{limit}: {used} of {max} used"));
        }
        if let Some(seconds) = self.retry_after {
            lines.push(format!("try again in {seconds} s"));
        }
        if let Some(hint) = hint(&self.code) {
            lines.push(hint.to_owned());
        }
        lines
    }
}

/// The next step for codes whose own text can not know the command line.
const HINTS: &[(Code, &str)] = &[
    (Code::Unauthenticated, SIGN_IN),
    (Code::CredentialExpired, SIGN_IN),
    (Code::CredentialRevoked, SIGN_IN),
    (Code::ControlConflict, LOOK_AGAIN),
    (Code::ItemChanged, LOOK_AGAIN),
    (Code::RevisionConflict, LOOK_AGAIN),
    (
        Code::ConversationConflict,
        "another conversation is selected now: send a new request",
    ),
    (
        Code::RequestConflict,
        "this request id was used for something else; nothing was changed",
    ),
    (
        Code::UncertainItems,
        "close them first: bazilion queue reconcile AGENT ITEM --expected-revision N --acknowledge",
    ),
    (Code::AmbiguousAgent, "name the Agent by its id"),
];
const SIGN_IN: &str = "sign in again: bazilion login --server URL";
const LOOK_AGAIN: &str = "look again, then repeat with the revision shown there";

fn hint(code: &str) -> Option<&'static str> {
    let known = HINTS.iter().find(|(known, _)| known.as_str() == code);
    known.map(|(_, hint)| *hint)
}

/// How far a request came before its connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// No connection: nothing was sent.
    NotSent,
    /// It was sent, at least in part, and no answer came.
    Unanswered,
}

/// Why a command ends without success.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Refused here; nothing was sent.
    Local {
        exit: Exit,
        code: &'static str,
        message: String,
    },
    /// Refused by the server.
    Refused(Box<Problem>),
    /// The connection failed.
    Connection { lost: Lost, message: String },
    /// The server said yes, in words that we do not understand.
    Answer(String),
}

impl Failure {
    /// The command line asks for something that can not be.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::local(Exit::Usage, "usage", message)
    }

    /// Refused before anything was sent.
    pub fn local(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Failure::Local {
            exit,
            code,
            message: message.into(),
        }
    }

    /// The process's exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Local { exit, .. } => *exit,
            Failure::Refused(problem) => Exit::of_status(problem.status),
            Failure::Connection { .. } | Failure::Answer(_) => Exit::Server,
        }
    }

    /// The stable code: the server's, or one of `usage`, `limit`, `not_signed_in`, `unreachable`, `no_answer`, …
    pub fn code(&self) -> &str {
        match self {
            Failure::Local { code, .. } => code,
            Failure::Refused(problem) => &problem.code,
            Failure::Connection {
                lost: Lost::NotSent,
                ..
            } => "unreachable",
            Failure::Connection {
                lost: Lost::Unanswered,
                ..
            } => "no_answer",
            Failure::Answer(_) => "unexpected_answer",
        }
    }

    /// The request may have been carried out: only the same request identity finds out.
    pub fn leaves_outcome_open(&self) -> bool {
        match self {
            Failure::Connection { lost, .. } => *lost == Lost::Unanswered,
            Failure::Refused(problem) => problem.status == 408 || problem.status >= 500,
            Failure::Answer(_) => true,
            Failure::Local { .. } => false,
        }
    }

    /// The same request may still be accepted later: the server was away or asked to wait.
    pub fn is_worth_repeating(&self) -> bool {
        self.leaves_outcome_open()
            || matches!(self, Failure::Connection { .. })
            || matches!(self, Failure::Refused(p) if p.code == "rate_limited" || p.status == 401)
    }

    /// The problem document for scripts.
    pub fn to_json(&self) -> Value {
        match self {
            Failure::Refused(problem) => Value::Object(problem.document.clone()),
            other => json!({"status": null, "code": other.code(), "detail": other.to_string()}),
        }
    }

    /// The lines below the first one, control characters made visible.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Failure::Refused(problem) => problem.lines().iter().map(|line| visible(line)).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Local { message, .. } => f.write_str(message),
            Failure::Refused(problem) => f.write_str(&visible(&problem.detail)),
            Failure::Connection { message, .. } => f.write_str(&visible(message)),
            Failure::Answer(what) => write!(
                f,
                "The server's answer was not understood ({}). Does --server point at Bazilion?",
                visible(what)
            ),
        }
    }
}

impl std::error::Error for Failure {}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_refusal_has_its_exit_code() {
        let table = [
            (400, Exit::Usage),
            (401, Exit::Permission),
            (403, Exit::Permission),
            (404, Exit::NotFound),
            (408, Exit::Server),
            (409, Exit::Conflict),
            (410, Exit::NotFound),
            (413, Exit::Limit),
            (415, Exit::Usage),
            (422, Exit::Usage),
            (429, Exit::Limit),
            (500, Exit::Server),
            (503, Exit::Server),
            (507, Exit::Server),
        ];
        for (status, exit) in table {
            assert_eq!(Exit::of_status(status), exit, "status {status}");
        }
    }

    #[test]
    fn every_code_of_the_product_has_an_exit_code_that_scripts_expect() {
        for code in Code::ALL {
            let exit = Exit::of_status(crate::http::problem::status(*code).as_u16());
            let expected = match code.as_str() {
                "not_found" | "payload_expired" => Exit::NotFound,
                "body_too_large" | "queue_capacity" | "agent_loop_limit" | "rate_limited" => {
                    Exit::Limit
                }
                "unauthenticated"
                | "credential_expired"
                | "credential_revoked"
                | "forbidden"
                | "insufficient_scope"
                | "communication_denied"
                | "csrf_failed" => Exit::Permission,
                "internal" | "not_ready" | "outcome_unknown" | "insufficient_storage" => {
                    Exit::Server
                }
                "malformed_request"
                | "method_not_allowed"
                | "unsupported_media_type"
                | "invalid_input" => Exit::Usage,
                _ => Exit::Conflict,
            };
            assert_eq!(exit, expected, "{code}");
        }
    }

    #[test]
    fn only_a_request_that_may_have_arrived_leaves_its_outcome_open() {
        let connection = |lost| Failure::Connection {
            lost,
            message: String::new(),
        };
        let refused = |status| Failure::Refused(Box::new(Problem::from_body(status, b"", None)));
        assert!(!connection(Lost::NotSent).leaves_outcome_open());
        assert!(connection(Lost::Unanswered).leaves_outcome_open());
        assert!(refused(503).leaves_outcome_open());
        assert!(!refused(409).leaves_outcome_open());
        assert!(!Failure::usage("no").leaves_outcome_open());
    }

    #[test]
    fn a_body_that_is_not_a_problem_document_still_gets_a_stable_code() {
        let problem = Problem::from_body(502, b"<html>bad gateway</html>", None);
        assert_eq!(problem.code, "http_502");
        assert_eq!(problem.document["status"], 502);
    }
}
