//! The HTTP client of the command line.
//!
//! - The bearer token goes to the configured server only: no redirect is followed.
//! - A connection that could not be made is told apart from an answer that was lost.
//! - A proxy of the environment is used, but never for this machine itself.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, header, multipart::Form};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::exit::{Failure, Lost, Problem};
use super::login::Settings;
use crate::limits;

/// A query of names and values.
pub type Query<'q> = [(&'q str, String)];

/// Speaks to one server as one operator.
pub struct Client {
    http: reqwest::Client,
    /// Without the limit on silence: while a form goes out, the server has nothing to say.
    uploads: reqwest::Client,
    base: Url,
    token: SecretString,
    timeout: Duration,
}

impl Client {
    /// A client for these settings. Sends nothing yet.
    pub fn new(settings: Settings) -> Result<Self, Failure> {
        let base = parse_base(&settings.server)?;
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("bazilion/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(limits::CLI_CONNECT_TIMEOUT);
            match is_this_machine(&base) {
                true => builder.no_proxy(),
                false => builder,
            }
        };
        let unmade = |error| Failure::Connection {
            lost: Lost::NotSent,
            message: format!("No HTTP client could be made: {error}"),
        };
        Ok(Client {
            http: builder()
                .read_timeout(settings.timeout)
                .build()
                .map_err(unmade)?,
            uploads: builder().build().map_err(unmade)?,
            base,
            token: settings.token,
            timeout: settings.timeout,
        })
    }

    /// Reads a thing.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &Query<'_>,
    ) -> Result<T, Failure> {
        read(self.send(self.request(Method::GET, path, query)?).await?).await
    }

    /// Asks for an action or creates a thing.
    pub async fn post(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        read(
            self.send(self.request(Method::POST, path, &[])?.json(body))
                .await?,
        )
        .await
    }

    /// Puts a thing in place.
    pub async fn put(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        read(
            self.send(self.request(Method::PUT, path, &[])?.json(body))
                .await?,
        )
        .await
    }

    /// Takes a thing away.
    pub async fn delete(&self, path: &[&str], query: &Query<'_>) -> Result<Value, Failure> {
        read(
            self.send(self.request(Method::DELETE, path, query)?)
                .await?,
        )
        .await
    }

    /// Sends a body that is JSON, or a streamed form where files go along.
    pub async fn submit(
        &self,
        method: Method,
        path: &[&str],
        body: Body,
    ) -> Result<Value, Failure> {
        let url = self.url(path, &[])?;
        let token = self.token.expose_secret();
        let request = match body {
            Body::Json(value) => self.http.request(method, url).json(&value),
            Body::Form { form, bytes } => {
                let sending = Duration::from_secs(bytes / limits::CLI_UPLOAD_SLOWEST);
                let request = self.uploads.request(method, url).multipart(form);
                request.timeout(self.timeout + sending)
            }
        };
        read(self.send(request.bearer_auth(token)).await?).await
    }

    /// Every page of a list, as one `{items}`. Stops at a bound that no honest list reaches.
    pub async fn list(&self, path: &[&str], query: &Query<'_>) -> Result<Value, Failure> {
        let mut items: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..limits::CLI_LIST_PAGES_MAX {
            let mut query = query.to_vec();
            if let Some(cursor) = &cursor {
                query.push(("cursor", cursor.clone()));
            }
            let mut page: Value = self.get(path, &query).await?;
            match page.get_mut("items").map(Value::take) {
                Some(Value::Array(more)) => items.extend(more),
                _ => return Err(Failure::Answer("a list without items".into())),
            }
            match page.get("nextCursor").and_then(Value::as_str) {
                Some(next) => cursor = Some(next.to_owned()),
                None => {
                    cursor = None;
                    break;
                }
            }
        }
        Ok(json!({"items": items, "nextCursor": cursor}))
    }

    /// Opens an event stream, after the last event that was seen.
    pub async fn stream(&self, path: &[&str], last_id: Option<&str>) -> Result<Response, Failure> {
        let mut request = self
            .request(Method::GET, path, &[])?
            .header(header::ACCEPT, "text/event-stream");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        self.send(request).await
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &Query<'_>,
    ) -> Result<RequestBuilder, Failure> {
        let request = self.http.request(method, self.url(path, query)?);
        Ok(request.bearer_auth(self.token.expose_secret()))
    }

    fn url(&self, path: &[&str], query: &Query<'_>) -> Result<Url, Failure> {
        let mut url = self.base.clone();
        let leads_away = |part: &&str| matches!(*part, "" | "." | "..");
        if path.iter().any(leads_away) {
            return Err(Failure::usage("A name in this command is empty or a path."));
        }
        url.path_segments_mut()
            .map_err(|()| Failure::usage("The server's address can not have a path."))?
            .pop_if_empty()
            .push("api")
            .extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.lost(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        if status.is_redirection() {
            return Err(Failure::Answer(format!("a redirect, {status}")));
        }
        let body = response.bytes().await.unwrap_or_default();
        let problem = Problem::from_body(status.as_u16(), &body, retry_after);
        Err(Failure::Refused(Box::new(problem)))
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        let server = &self.base;
        let cause = innermost(error);
        if error.is_connect() || error.is_builder() {
            return Failure::Connection {
                lost: Lost::NotSent,
                message: format!("{server} could not be reached, nothing was sent: {cause}"),
            };
        }
        let what = if error.is_timeout() {
            "did not answer in time"
        } else {
            "closed the connection without an answer"
        };
        Failure::Connection {
            lost: Lost::Unanswered,
            message: format!("{server} {what}: {cause}"),
        }
    }
}

/// A request's body.
pub enum Body {
    /// JSON.
    Json(Value),
    /// `multipart/form-data`, streamed, with this many bytes of files.
    Form { form: Form, bytes: u64 },
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, Failure> {
    let status = response.status();
    let body = response
        .bytes()
        .await
        .map_err(|error| Failure::Connection {
            lost: Lost::Unanswered,
            message: format!("The answer broke off: {}", innermost(&error)),
        })?;
    let body: &[u8] = match &body[..] {
        [] if status == StatusCode::NO_CONTENT || status == StatusCode::OK => b"null",
        body => body,
    };
    serde_json::from_slice(body).map_err(|error| Failure::Answer(error.to_string()))
}

/// The last link of the chain says what happened; the outer ones only that something did.
fn innermost(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn parse_base(server: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::usage(format!("--server {server}: {why}"));
    let url = Url::parse(server).map_err(|_| wrong("not a URL such as http://127.0.0.1:8080"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("only http and https addresses are served"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(Failure::usage(
            "The server's address must be plain: no user, password or query.",
        ));
    }
    Ok(url)
}

/// The address names this machine, where a proxy has no business.
pub fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}
