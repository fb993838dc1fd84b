//! The browser session: its cookie, its form token, and where neither may be used.
//!
//! - Over HTTPS the cookie is `__Host-bazilion` and `Secure`; on plain loopback it is `bazilion`; on any other plain HTTP
//!   there is none, unless the operator of the server allowed it (`insecure_http`).
//! - A browser would drop a `Secure` cookie there and ask for the password again and again: a page explains instead.

use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use http::header;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tower_http::csrf::{CsrfLayer, ProtectionError};
use tower_sessions::cookie::SameSite;
use tower_sessions::{Expiry, Session, SessionManagerLayer};

use crate::app::App;
use crate::auth::Account;
use crate::auth::session_store::{OPERATOR, PgSessions};
use crate::error::{Code, Error, Result};
use crate::{limits, secret};

/// The key of the form token in a session's data.
const FORM_TOKEN: &str = "form";

/// Whether people reach this server over HTTPS, as configured.
fn is_https(app: &App) -> bool {
    app.config
        .public_url
        .as_ref()
        .is_some_and(|url| url.scheme() == "https")
}

/// Sessions in the database behind one cookie.
pub fn layer(app: &App) -> SessionManagerLayer<PgSessions> {
    let secure = is_https(app);
    let name = if secure {
        "__Host-bazilion"
    } else {
        "bazilion"
    };
    let idle = i64::try_from(limits::SESSION_IDLE.as_secs()).unwrap_or(i64::MAX);
    SessionManagerLayer::new(PgSessions(app.db.clone()))
        .with_name(name)
        .with_secure(secure)
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_path("/")
        .with_expiry(Expiry::OnInactivity(time::Duration::seconds(idle)))
        // Each request moves the end of the twelve hours.
        .with_always_save(true)
}

/// Refuses form posts that a foreign page made the browser send.
pub fn same_origin(
    app: &App,
) -> CsrfLayer<impl Fn(ProtectionError) -> Response + Clone + Send + Sync + 'static> {
    let layer = CsrfLayer::new();
    let origin = app
        .config
        .public_url
        .as_ref()
        .map(|url| url.origin().ascii_serialization());
    // A proxy may change `Host`; the configured address stays ours.
    let layer = match origin.map(|origin| layer.clone().add_trusted_origin(origin)) {
        Some(Ok(trusting)) => trusting,
        _ => layer,
    };
    layer.with_rejection_response(|_: ProtectionError| {
        csrf_failed("This form was sent from another site.").into_response()
    })
}

fn csrf_failed(detail: &str) -> Error {
    Error::refused(Code::CsrfFailed, detail)
}

/// Starts the session of a person who has just shown who they are. The id is new: one that was planted is worthless.
pub async fn begin(session: &Session, account: &Account) -> Result<()> {
    session.cycle_id().await.map_err(failed)?;
    session.insert(OPERATOR, account.id).await.map_err(failed)?;
    let bits = secret::random::<32>().map_err(|e| Error::internal("making a form token", e))?;
    session
        .insert(FORM_TOKEN, hex::encode(bits))
        .await
        .map_err(failed)
}

/// The token that this session's forms carry.
pub async fn form_token(session: &Session) -> Result<String> {
    let token: Option<String> = session.get(FORM_TOKEN).await.map_err(failed)?;
    Ok(token.unwrap_or_default())
}

/// Checks the token of a form.
pub async fn check_form_token(session: &Session, presented: &SecretString) -> Result<()> {
    let expected = form_token(session).await?;
    let same = expected
        .as_bytes()
        .ct_eq(presented.expose_secret().as_bytes());
    if !expected.is_empty() && bool::from(same) {
        Ok(())
    } else {
        Err(csrf_failed(
            "This form belongs to another session. Reload the page and send it again.",
        ))
    }
}

fn failed(error: tower_sessions::session::Error) -> Error {
    Error::internal("using a session", error)
}

/// Whether a cookie can be set for this request at all.
pub fn may_sign_in(app: &App, headers: &HeaderMap) -> bool {
    is_https(app) || app.config.insecure_http || is_loopback(headers)
}

fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(host: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        is_loopback(&headers)
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:1",
            "127.8.9.1",
            "[::1]:80",
            "LOCALHOST",
        ] {
            assert!(loopback(host), "{host}");
        }
        for host in [
            "192.168.1.4:8080",
            "localhost.example.org",
            "[fe80::1]",
            "127.0.0.1.example.org",
            "",
        ] {
            assert!(!loopback(host), "{host}");
        }
    }
}
