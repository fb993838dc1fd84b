//! Who is it: passwords, browser sessions, API tokens, one-time links.
//!
//! - Only hashes are stored. A secret is shown once, when it is made.
//! - Signing in answers the same, after the same work, for an unknown account and for a wrong password.
//! - A browser session is never accepted on `/api`, and a token never on a page.

pub mod api;
pub mod extract;
mod home;
pub mod password;
pub mod session_store;
mod sessions;
pub mod store;
pub mod token;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};

use crate::db::{Db, Op, SystemTx};
use crate::error::{Code, Error, Result};
use crate::identity::{Role, Scopes};
use crate::ids::{HomeId, OperatorId, TokenId};
use crate::secret::{self, MasterKey};
use crate::{limits, tenant};

pub use store::Account;

const SIGN_IN: Op = Op::locking("auth.sign_in");
const LINK: Op = Op::locking("auth.link");
const TOKEN: Op = Op::locking("auth.token");

/// Address and password of a person, and where the request came from.
pub struct SignIn {
    pub email: String,
    pub password: SecretString,
    pub address: String,
}

/// Checks a password. Ten failures in fifteen minutes, of an account or of an address, refuse every further attempt.
pub async fn sign_in(db: &Db, master: &MasterKey, request: SignIn) -> Result<Account> {
    let subjects = [
        master.blind(
            "sign-in account",
            request.email.trim().to_lowercase().as_bytes(),
        ),
        master.blind("sign-in address", request.address.as_bytes()),
    ];
    let args = (subjects, request.email.trim().to_owned());
    let account = db
        .system(
            SIGN_IN,
            &args,
            async |tx: &mut SystemTx, (subjects, email): &([[u8; 32]; 2], String)| {
                for subject in subjects {
                    if store::count_failures_across_homes(tx, subject).await?
                        >= limits::SIGN_IN_FAILURES_MAX
                    {
                        return Err(too_many());
                    }
                }
                store::find_account_by_email_across_homes(tx, email).await
            },
        )
        .await?;
    let hash = account.as_ref().and_then(|a| a.password_hash.clone());
    let right = password::verify(request.password, hash).await?;
    match account.filter(|_| right) {
        Some(account) => Ok(account),
        None => {
            db.system(
                SIGN_IN,
                &subjects,
                async |tx: &mut SystemTx, subjects: &[[u8; 32]; 2]| {
                    for subject in subjects {
                        store::insert_failure_across_homes(tx, subject).await?;
                    }
                    tenant::audit::record_across_homes(tx, None, &failed_sign_in()).await
                },
            )
            .await?;
            Err(Error::refused(
                Code::Unauthenticated,
                "The address or the password is not right.",
            ))
        }
    }
}

fn too_many() -> Error {
    Error::refused(
        Code::RateLimited,
        "Too many failed attempts. Wait fifteen minutes, then try again.",
    )
    .with("retryAfter", limits::SIGN_IN_WINDOW.as_secs())
}

fn failed_sign_in() -> tenant::audit::Act<'static> {
    tenant::audit::Act {
        action: "auth.sign_in",
        target: None,
        outcome: "unauthenticated",
        origin: "web",
        detail: serde_json::json!({}),
    }
}

/// Makes a one-time sign-in link's secret for an account. It works once, for an hour.
pub async fn mint_link(db: &Db, operator: OperatorId) -> Result<SecretString> {
    let bits = secret::random::<32>().map_err(|e| Error::internal("making a sign-in link", e))?;
    let text = URL_SAFE_NO_PAD.encode(bits);
    let args = (secret::digest(text.as_bytes()), operator);
    db.system(
        LINK,
        &args,
        async |tx: &mut SystemTx, (hash, operator): &([u8; 32], OperatorId)| {
            store::insert_link_across_homes(tx, hash, *operator).await
        },
    )
    .await?;
    Ok(SecretString::from(text))
}

/// Uses a link up. Used, expired and invented links get the same answer.
pub async fn use_link(db: &Db, link: &SecretString) -> Result<Account> {
    let hash = secret::digest(link.expose_secret().as_bytes());
    db.system(LINK, &hash, async |tx: &mut SystemTx, hash: &[u8; 32]| {
        let account = match store::use_link_across_homes(tx, hash).await? {
            Some(operator) => store::find_account_across_homes(tx, operator).await?,
            None => None,
        };
        account.ok_or_else(|| {
            let detail = "This sign-in link was used or has expired. Make a new one with: bazilion instance \
                          sign-in-link EMAIL";
            Error::refused(Code::Unauthenticated, detail)
        })
    })
    .await
}

/// What a token is made for.
pub struct TokenRequest {
    pub home: HomeId,
    pub operator: OperatorId,
    pub label: String,
    pub scopes: Scopes,
    pub role_limit: Option<Role>,
    pub instance_admin: bool,
    /// 1 to 365.
    pub days: i64,
}

/// Makes an API token; the text is shown once and never again.
pub async fn mint_token(db: &Db, request: &TokenRequest) -> Result<(TokenId, SecretString)> {
    let label = request.label.trim();
    if label.is_empty() || label.chars().count() > 100 || label.chars().any(char::is_control) {
        return Err(Error::invalid(
            "label",
            "label",
            "Use 1 to 100 characters, no control characters.",
        ));
    }
    if !(1..=limits::TOKEN_DAYS_MAX).contains(&request.days) {
        return Err(Error::invalid(
            "days",
            "range",
            "A token lives 1 to 365 days.",
        ));
    }
    let text = token::mint()?;
    let hash = token::hash(&text)
        .ok_or_else(|| Error::internal("making a token", "its own checksum failed"))?;
    let new = store::NewToken {
        id: TokenId::new(),
        home: request.home,
        operator: request.operator,
        hash,
        label: label.to_owned(),
        scopes: token::scope_words(request.scopes),
        role_limit: request.role_limit,
        instance_admin: request.instance_admin,
        days: request.days,
    };
    db.system(
        TOKEN,
        &new,
        async |tx: &mut SystemTx, new: &store::NewToken| {
            store::insert_token_across_homes(tx, new).await?;
            let act = tenant::audit::Act::ok("token.create", new.id);
            tenant::audit::record_across_homes(tx, Some(new.home), &act).await
        },
    )
    .await?;
    Ok((new.id, text))
}
