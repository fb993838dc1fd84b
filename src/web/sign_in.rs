//! Signing in and out.
//!
//! - A one-time link is used up by the button on its page, never by opening it: programs that preview links open them.
//! - Where no cookie can be set, the page says so and offers the ways out; it never asks for a password that would lead
//!   back to itself.

use std::net::SocketAddr;

use axum::extract::FromRequest as _;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use http::HeaderMap;
use secrecy::SecretString;
use serde::Deserialize;
use tower_sessions::Session;

use super::form;
use super::session;
use super::templates::{Plain, SignInLinkPage, SignInPage, SignOutPage, UnencryptedPage, render};
use crate::app::App;
use crate::auth::extract::SignedIn;
use crate::auth::{self, Account};
use crate::error::{Code, Error, Result};
use crate::http::extract::{Path, Query};

/// Where to go afterwards.
#[derive(Deserialize, Default)]
pub struct Next {
    #[serde(default)]
    next: String,
}

/// A path of ours. Anything else, `//elsewhere` included, is not followed.
fn ours(next: &str) -> &str {
    let path = next.starts_with('/') && !next.starts_with("//") && !next.contains('\\');
    if path && !next.chars().any(char::is_control) {
        next
    } else {
        "/"
    }
}

/// `GET /sign-in`
pub async fn show(
    State(app): State<App>,
    Query(next): Query<Next>,
    headers: HeaderMap,
    signed_in: Result<SignedIn>,
) -> Result<Response> {
    if !session::may_sign_in(&app, &headers) {
        return unencrypted(&headers);
    }
    if signed_in.is_ok() {
        return Ok(Redirect::to(ours(&next.next)).into_response());
    }
    render(&SignInPage {
        plain: Plain::new(),
        next: ours(&next.next).into(),
        email: String::new(),
        refused: None,
    })
}

#[derive(Deserialize)]
struct Credentials {
    email: String,
    password: SecretString,
    #[serde(default)]
    next: String,
}

/// `POST /sign-in`
pub async fn password(
    State(app): State<App>,
    session: Session,
    request: Request,
) -> Result<Response> {
    if !session::may_sign_in(&app, request.headers()) {
        return unencrypted(request.headers());
    }
    let address = address(&request);
    let body = Bytes::from_request(request, &app)
        .await
        .map_err(|_| Error::refused(Code::BodyTooLarge, "This form is larger than it may be."))?;
    let typed: Credentials = form::parse(&body)?;
    let attempt = auth::SignIn {
        email: typed.email.clone(),
        password: typed.password,
        address,
    };
    match auth::sign_in(&app.db, &app.master, attempt).await {
        Ok(account) => enter(&session, &account, &typed.next).await,
        Err(Error::Refused(refusal)) => {
            let status = crate::http::problem::status(refusal.code);
            let page = render(&SignInPage {
                plain: Plain::new(),
                next: ours(&typed.next).into(),
                email: typed.email,
                refused: Some(refusal.detail),
            })?;
            Ok((status, page).into_response())
        }
        Err(error) => Err(error),
    }
}

/// `GET /sign-in/link/{token}`: a page with a button, which changes nothing.
pub async fn show_link(
    State(app): State<App>,
    Path(token): Path<String>,
    headers: HeaderMap,
) -> Result<Response> {
    if !session::may_sign_in(&app, &headers) {
        return unencrypted(&headers);
    }
    render(&SignInLinkPage {
        plain: Plain::new(),
        action: format!("/sign-in/link/{}", segment(&token)),
    })
}

/// A path segment, escaped.
fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// `POST /sign-in/link/{token}`: uses the link up.
pub async fn link(
    State(app): State<App>,
    Path(token): Path<String>,
    session: Session,
    headers: HeaderMap,
) -> Result<Response> {
    if !session::may_sign_in(&app, &headers) {
        return unencrypted(&headers);
    }
    let account = auth::use_link(&app.db, &SecretString::from(token)).await?;
    enter(&session, &account, "/").await
}

async fn enter(session: &Session, account: &Account, next: &str) -> Result<Response> {
    session::begin(session, account).await?;
    Ok(Redirect::to(ours(next)).into_response())
}

/// `GET /sign-out`: asks, because unsent input in this browser goes too.
pub async fn show_out(signed_in: SignedIn) -> Result<Response> {
    render(&SignOutPage {
        plain: Plain::new(),
        owner: signed_in.account.id.to_string(),
        csrf: session::form_token(&signed_in.session).await?,
    })
}

#[derive(Deserialize)]
struct Token {
    csrf: SecretString,
}

/// `POST /sign-out`
pub async fn out(
    State(app): State<App>,
    signed_in: SignedIn,
    request: Request,
) -> Result<Response> {
    let body = Bytes::from_request(request, &app)
        .await
        .map_err(|_| Error::refused(Code::BodyTooLarge, "This form is larger than it may be."))?;
    let token: Token = form::parse(&body)?;
    session::check_form_token(&signed_in.session, &token.csrf).await?;
    signed_in
        .session
        .flush()
        .await
        .map_err(|e| Error::internal("ending a session", e))?;
    Ok(Redirect::to("/sign-in").into_response())
}

fn unencrypted(headers: &HeaderMap) -> Result<Response> {
    let host = headers
        .get(http::header::HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("this address");
    let page = render(&UnencryptedPage {
        plain: Plain::new(),
        host: host.into(),
    })?;
    Ok((http::StatusCode::FORBIDDEN, page).into_response())
}

/// Where the attempt came from: the peer of the connection.
fn address(request: &Request) -> String {
    request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map_or_else(
            || "unknown".into(),
            |ConnectInfo(peer)| peer.ip().to_string(),
        )
}

#[cfg(test)]
mod tests {
    use super::ours;

    #[test]
    fn only_paths_of_ours_are_followed() {
        assert_eq!(ours("/h/one/agents/a?b=c"), "/h/one/agents/a?b=c");
        for elsewhere in [
            "",
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "/a\nb",
        ] {
            assert_eq!(ours(elsewhere), "/", "{elsewhere:?}");
        }
    }
}
