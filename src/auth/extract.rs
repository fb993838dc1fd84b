//! From a credential to a [`Caller`]: the doors of the API and of the pages.
//!
//! - The home comes from the token, or from the person's membership in the home that the page's address names. A home
//!   the person does not belong to is not found.

use axum::RequestPartsExt as _;
use axum::extract::{FromRequestParts, RawPathParams};
use http::header;
use http::request::Parts;
use secrecy::SecretString;
use tower_sessions::Session;

use super::{session_store, store, token};
use crate::app::App;
use crate::db::{Db, Op, SystemTx};
use crate::error::{Code, Error, Result};
use crate::identity::{Actor, Caller, Credential, Role, Scopes};
use crate::ids::{HomeId, OperatorId, TokenId};
use crate::limits;

const AUTHENTICATE: Op = Op::locking("auth.authenticate");

/// A caller who presented an API token.
#[derive(Debug, Clone)]
pub struct ApiCaller(pub Caller);

impl FromRequestParts<App> for ApiCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let presented = parts
            .headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| SecretString::from(token.trim().to_owned()))
            .ok_or_else(|| unauthenticated("Send an API token: Authorization: Bearer bzl_…"))?;
        let hash = token::hash(&presented).ok_or_else(|| {
            unauthenticated("This is not an API token of this server. Check it was copied whole.")
        })?;
        authenticate(&app.db, &hash).await.map(ApiCaller)
    }
}

/// One round trip; another one when the token's last use is due to be noted.
async fn authenticate(db: &Db, hash: &[u8; 32]) -> Result<Caller> {
    let found = db
        .system_look(AUTHENTICATE, hash, store::find_token_across_homes)
        .await?
        .ok_or_else(|| unauthenticated("This API token is not known."))?;
    if found.revoked {
        return Err(Error::refused(
            Code::CredentialRevoked,
            "This API token was revoked. Create a new one.",
        ));
    }
    let now = found.asked_at;
    if found.expires_at <= now {
        return Err(Error::refused(
            Code::CredentialExpired,
            "This API token has expired. Create a new one.",
        ));
    }
    if found
        .last_used_at
        .is_none_or(|at| at + limits::TOKEN_USE_PRECISION <= now)
    {
        let token = (found.home, found.id);
        db.system(AUTHENTICATE, &token, touch).await?;
    }
    let role = found
        .role_limit
        .map_or(found.role, |limit| limit.min(found.role));
    Ok(Caller::vouch(
        found.home,
        Actor::Operator {
            id: found.operator,
            role,
            scopes: token::parse_scopes(&found.scopes)?,
            credential: Credential::Token(found.id),
            instance_admin: found.instance_admin,
        },
    ))
}

async fn touch(tx: &mut SystemTx, (home, id): &(HomeId, TokenId)) -> Result<()> {
    store::touch_token_across_homes(tx, *home, *id).await
}

/// A signed-in person, without a home: for the list of homes and the account's own pages.
#[derive(Debug, Clone)]
pub struct SignedIn {
    pub account: super::Account,
    pub session: Session,
}

impl FromRequestParts<App> for SignedIn {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let session = parts
            .extract::<Session>()
            .await
            .map_err(|_| not_signed_in())?;
        let operator: Option<OperatorId> = session
            .get(session_store::OPERATOR)
            .await
            .map_err(|e| Error::internal("reading a session", e))?;
        let operator = operator.ok_or_else(not_signed_in)?;
        let account = app
            .db
            .system(
                AUTHENTICATE,
                &operator,
                async |tx: &mut SystemTx, id: &OperatorId| {
                    store::find_account_across_homes(tx, *id).await
                },
            )
            .await?
            .ok_or_else(not_signed_in)?;
        Ok(Self { account, session })
    }
}

/// A signed-in person in the home of the page's address (`/h/:home/…`).
#[derive(Debug, Clone)]
pub struct WebCaller {
    pub caller: Caller,
    pub home_slug: String,
    pub role: Role,
    pub account: super::Account,
    pub session: Session,
}

impl FromRequestParts<App> for WebCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let signed_in = SignedIn::from_request_parts(parts, app).await?;
        let params = parts
            .extract::<RawPathParams>()
            .await
            .map_err(|_| Error::not_found())?;
        let slug = params
            .iter()
            .find(|(name, _)| *name == "home")
            .map(|(_, value)| value.to_owned())
            .ok_or_else(Error::not_found)?;
        let args = (signed_in.account.id, slug);
        let found: Option<(HomeId, Role)> = app
            .db
            .system(
                AUTHENTICATE,
                &args,
                async |tx: &mut SystemTx, (id, slug): &(OperatorId, String)| {
                    store::find_membership_across_homes(tx, *id, slug).await
                },
            )
            .await?;
        let (home, role) = found.ok_or_else(Error::not_found)?;
        let actor = Actor::Operator {
            id: signed_in.account.id,
            role,
            scopes: Scopes::ALL,
            credential: Credential::Session,
            instance_admin: signed_in.account.instance_admin,
        };
        Ok(Self {
            caller: Caller::vouch(home, actor),
            home_slug: args.1,
            role,
            account: signed_in.account,
            session: signed_in.session,
        })
    }
}

fn unauthenticated(detail: &str) -> Error {
    Error::refused(Code::Unauthenticated, detail)
}

fn not_signed_in() -> Error {
    unauthenticated("Sign in first.")
}
