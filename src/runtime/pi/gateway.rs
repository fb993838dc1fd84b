//! The model gateway: the place where a turn's token becomes the home's key.
//!
//! - A request passes only with the admitted model and exactly the admitted tools (or none, as for a summary).
//! - Bodies and streams are forwarded as they are; protocols stay Pi's business.
//! - Error answers are scrubbed of the key before Pi, which writes them into the transcript, can see them.
//! - Stop cuts the provider's connection. Redirects are not followed, proxies of the environment are not used.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::usage::UsageScan;
use crate::limits::MODEL_ERROR_MAX;
use crate::runtime::{GatewayTarget, ModelApi, Usage};

/// Request headers that belong to the protocol; nothing else of Pi's is sent out.
const PASSED_ON: [&str; 4] = [
    "content-type",
    "accept",
    "anthropic-version",
    "anthropic-beta",
];
/// Answer headers that Pi acts on.
const PASSED_BACK: [&str; 3] = ["content-type", "retry-after", "retry-after-ms"];

/// The way of one turn to its model.
pub(super) struct Gateway {
    client: reqwest::Client,
    target: GatewayTarget,
    tools: BTreeSet<String>,
    activity: Arc<Activity>,
    stopped: CancellationToken,
}

impl Gateway {
    pub(super) fn new(
        client: reqwest::Client,
        target: GatewayTarget,
        tools: BTreeSet<String>,
        activity: Arc<Activity>,
    ) -> Self {
        Self {
            client,
            target,
            tools,
            activity,
            stopped: CancellationToken::new(),
        }
    }

    /// Ends every model request under way, and refuses later ones.
    pub(super) fn cut(&self) {
        self.stopped.cancel();
    }

    /// Carries one request to the provider and its answer back.
    pub(super) async fn forward(&self, path: &str, headers: &HeaderMap, body: Bytes) -> Response {
        if path != self.target.api.local_path() {
            return refusal(
                StatusCode::NOT_FOUND,
                "Only the model's own path is served here.",
            );
        }
        if let Err(reason) =
            check_request(self.target.api, &self.target.model.id, &self.tools, &body)
        {
            tracing::warn!(reason, "a model request was refused");
            return refusal(StatusCode::BAD_REQUEST, reason);
        }
        let open = Activity::begin(&self.activity);
        let sent = self.request(headers, body).send();
        let answer = tokio::select! {
            answer = sent => answer,
            () = self.stopped.cancelled() => return refusal(StatusCode::SERVICE_UNAVAILABLE, "The turn was stopped."),
        };
        match answer {
            Err(error) => {
                let text = scrub(&describe(&error), self.target.key.as_ref());
                refusal(
                    StatusCode::BAD_GATEWAY,
                    &format!("The provider cannot be reached: {text}"),
                )
            }
            Ok(answer) if answer.status().is_success() => self.stream(answer, open),
            Ok(answer) => self.failure(answer).await,
        }
    }

    fn request(&self, headers: &HeaderMap, body: Bytes) -> reqwest::RequestBuilder {
        let url = format!(
            "{}{}",
            self.target.base_url,
            self.target.api.provider_path()
        );
        let mut request = self.client.post(url).body(body);
        for name in PASSED_ON {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value);
            }
        }
        let Some(key) = &self.target.key else {
            return request;
        };
        let (name, text) = match self.target.api {
            ModelApi::OpenaiCompletions => (
                header::AUTHORIZATION,
                format!("Bearer {}", key.expose_secret()),
            ),
            ModelApi::AnthropicMessages => (
                HeaderName::from_static("x-api-key"),
                key.expose_secret().to_owned(),
            ),
        };
        match HeaderValue::from_str(&text) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(name, value)
            }
            // A key with a line feed cannot be sent; the provider's refusal will say that there was none.
            Err(_) => request,
        }
    }

    fn stream(&self, answer: reqwest::Response, open: Open) -> Response {
        let mut response = Response::builder().status(answer.status());
        for name in PASSED_BACK {
            if let Some(value) = answer.headers().get(name) {
                response = response.header(name, value);
            }
        }
        let mut scan = UsageScan::new(self.target.api);
        let stopped = self.stopped.clone().cancelled_owned();
        let parts = answer
            .bytes_stream()
            .map(move |part| {
                open.progress();
                let part = part.map_err(std::io::Error::other)?;
                if let Some(usage) = scan.feed(&part) {
                    open.count(usage);
                }
                Ok::<_, std::io::Error>(part)
            })
            .take_until(stopped);
        response.body(Body::from_stream(parts)).unwrap_or_else(|_| {
            refusal(
                StatusCode::BAD_GATEWAY,
                "The provider's answer has no proper head.",
            )
        })
    }

    async fn failure(&self, answer: reqwest::Response) -> Response {
        let status = answer.status();
        let mut headers = HeaderMap::new();
        for name in PASSED_BACK {
            if let Some(value) = answer.headers().get(name) {
                headers.insert(name, value.clone());
            }
        }
        let mut body = Vec::new();
        let mut parts = answer.bytes_stream();
        while let Some(Ok(part)) = parts.next().await {
            let room = MODEL_ERROR_MAX - body.len();
            body.extend_from_slice(&part[..part.len().min(room)]);
            if body.len() == MODEL_ERROR_MAX {
                break;
            }
        }
        let text = scrub(&String::from_utf8_lossy(&body), self.target.key.as_ref());
        (status, headers, text).into_response()
    }
}

impl ModelApi {
    /// What a base URL is followed by.
    fn provider_path(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "/chat/completions",
            Self::AnthropicMessages => "/v1/messages",
        }
    }

    /// The one path below `/model/` that Pi's client for this protocol calls.
    fn local_path(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "v1/chat/completions",
            Self::AnthropicMessages => "v1/messages",
        }
    }

    /// The base path that Pi's client is given.
    pub(super) fn client_base(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "/model/v1",
            Self::AnthropicMessages => "/model",
        }
    }

    /// Pi's name of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "openai-completions",
            Self::AnthropicMessages => "anthropic-messages",
        }
    }
}

fn refusal(status: StatusCode, message: &str) -> Response {
    let body =
        json!({ "type": "error", "error": { "type": "bazilion_gateway", "message": message } });
    (status, axum::Json(body)).into_response()
}

/// The chain of causes, because the outermost one says only that sending failed.
fn describe(error: &reqwest::Error) -> String {
    let mut text = String::from(if error.is_timeout() {
        "timed out"
    } else {
        "connection failed"
    });
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Whether a request stays within what the turn was admitted with.
fn check_request(
    api: ModelApi,
    model: &str,
    admitted: &BTreeSet<String>,
    body: &[u8],
) -> Result<(), &'static str> {
    let body: Value = serde_json::from_slice(&super::rpc::mend_surrogates(body))
        .map_err(|_| "The request is not JSON.")?;
    if body.get("model").and_then(Value::as_str) != Some(model) {
        return Err("The request names another model than the turn was admitted with.");
    }
    let Some(tools) = body.get("tools").filter(|tools| !tools.is_null()) else {
        return Ok(());
    };
    let tools = tools
        .as_array()
        .ok_or("The request's tools are not a list.")?;
    let mut offered = BTreeSet::new();
    for tool in tools {
        let name = match api {
            ModelApi::OpenaiCompletions => tool.pointer("/function/name"),
            ModelApi::AnthropicMessages => tool.get("name"),
        };
        offered.insert(
            name.and_then(Value::as_str)
                .ok_or("A tool of the request has no name.")?,
        );
    }
    if offered.is_empty()
        || offered
            .iter()
            .copied()
            .eq(admitted.iter().map(String::as_str))
    {
        Ok(())
    } else {
        Err("The request offers other tools than the turn was admitted with.")
    }
}

/// Shortest part of a key that is taken out of an error text.
const KEY_PART: usize = 6;

/// Takes the key, and words that show a part of it, out of a provider's error text.
fn scrub(text: &str, key: Option<&SecretString>) -> String {
    let Some(key) = key
        .map(SecretString::expose_secret)
        .filter(|key| !key.is_empty())
    else {
        return text.to_owned();
    };
    let text = text.replace(key, "[redacted]");
    let parts: Vec<&[u8]> = key.as_bytes().windows(KEY_PART.min(key.len())).collect();
    let is_word =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '*' | '.' | '…' | '+' | '/');
    let mut clean = String::with_capacity(text.len());
    for piece in text.split_inclusive(|c| !is_word(c)) {
        let word = piece.trim_end_matches(|c| !is_word(c));
        let shows = parts
            .iter()
            .any(|part| word.as_bytes().windows(part.len()).any(|w| w == *part));
        clean.push_str(if shows { "[redacted]" } else { word });
        clean.push_str(&piece[word.len()..]);
    }
    clean
}

/// What the model does right now, for the host that waits for it.
#[derive(Default)]
pub(super) struct Activity(Mutex<Moment>);

#[derive(Default)]
struct Moment {
    open: u32,
    last: Option<Instant>,
    counted: Vec<Usage>,
}

impl Activity {
    fn moment(&self) -> MutexGuard<'_, Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(activity: &Arc<Self>) -> Open {
        let mut moment = activity.moment();
        moment.open += 1;
        moment.last = Some(Instant::now());
        drop(moment);
        Open(Arc::clone(activity))
    }

    /// Time since the open request's last byte.
    pub(super) fn silence(&self) -> Option<Duration> {
        let moment = self.moment();
        (moment.open > 0).then(|| moment.last.map(|at| at.elapsed()))?
    }

    /// Counts of requests that ended since the last look.
    pub(super) fn take_counted(&self) -> Vec<Usage> {
        std::mem::take(&mut self.moment().counted)
    }
}

/// A model request under way.
struct Open(Arc<Activity>);

impl Open {
    fn progress(&self) {
        self.0.moment().last = Some(Instant::now());
    }

    fn count(&self, usage: Usage) {
        self.0.moment().counted.push(usage);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut moment = self.0.moment();
        moment.open -= 1;
        moment.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn only_the_admitted_model_and_tools_pass() {
        let api = ModelApi::OpenaiCompletions;
        let admitted = tools(&["read", "edit"]);
        let body = |model: &str, names: &[&str]| {
            let tools: Vec<Value> = names
                .iter()
                .map(|n| json!({"function": {"name": n}}))
                .collect();
            json!({"model": model, "tools": tools}).to_string()
        };
        let check = |body: String| check_request(api, "m", &admitted, body.as_bytes());
        assert!(check(body("m", &["read", "edit"])).is_ok());
        assert!(check(body("m", &[])).is_ok());
        assert!(check(json!({"model": "m"}).to_string()).is_ok());
        assert!(check(body("other", &["read", "edit"])).is_err());
        assert!(check(body("m", &["read"])).is_err());
        assert!(check(body("m", &["read", "edit", "bash"])).is_err());
        assert!(check("nonsense".into()).is_err());
        assert!(check(json!({"model": "m", "tools": {"read": {}}}).to_string()).is_err());
    }

    #[test]
    fn error_texts_lose_the_key_and_what_hints_at_it() {
        let key = SecretString::from("sk-live-abcdef0123456789");
        let text =
            "Incorrect API key sk-live-abcdef0123456789 (sk-live-****6789), see \"sk-live-abc\".";
        let clean = scrub(text, Some(&key));
        assert_eq!(
            clean,
            "Incorrect API key [redacted] ([redacted]), see \"[redacted]\"."
        );
        assert_eq!(scrub("rate limited", Some(&key)), "rate limited");
        assert_eq!(scrub("rate limited", None), "rate limited");
    }

    #[test]
    fn silence_is_told_only_while_a_request_is_open() {
        let activity = Arc::new(Activity::default());
        assert!(activity.silence().is_none());
        let open = Activity::begin(&activity);
        assert!(activity.silence().is_some());
        drop(open);
        assert!(activity.silence().is_none());
    }
}
