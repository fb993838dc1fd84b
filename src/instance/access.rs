//! The way back in, for whoever holds the data directory: reading its master key is the right to it. Both acts are
//! audited.

use secrecy::SecretString;
use serde_json::json;

use super::home;
use crate::auth::{self, TokenRequest, store as accounts, token};
use crate::db::{Db, Op, SystemTx};
use crate::error::{Error, Result};
use crate::identity::{Role, Scopes};
use crate::ids::{HomeId, OperatorId};
use crate::limits;
use crate::tenant::audit::{self, Act};

const LOCAL: Op = Op::locking("instance.local_operator");
const LINK: Op = Op::locking("instance.sign_in_link");

/// The address of the built-in operator: it cannot be written to and has no password.
const LOCAL_EMAIL: &str = "local@localhost";

/// Mints a token of the built-in operator `local` for one home. Whoever can mint it runs the instance, so a token of
/// the role owner may also do what needs the instance admin, such as linking a directory.
pub async fn home_token(db: &Db, home_slug: &str, role: Role) -> Result<SecretString> {
    let home = home::find(db, home_slug).await?;
    mint(db, home, role, token::scopes_of(role), role == Role::Owner).await
}

/// Mints a token for the administration of the instance. It reads nothing in any home.
pub async fn instance_admin_token(db: &Db) -> Result<SecretString> {
    let home = home::oldest(db).await?;
    mint(
        db,
        home,
        Role::Viewer,
        Scopes {
            admin: true,
            ..Scopes::default()
        },
        true,
    )
    .await
}

async fn mint(
    db: &Db,
    home: HomeId,
    role: Role,
    scopes: Scopes,
    instance_admin: bool,
) -> Result<SecretString> {
    let operator = db
        .system(LOCAL, &(home, OperatorId::new()), ensure_local)
        .await?;
    let request = TokenRequest {
        home,
        operator,
        label: "made on the server's machine".into(),
        scopes,
        role_limit: Some(role),
        instance_admin,
        days: limits::TOKEN_DAYS,
    };
    let (_, text) = auth::mint_token(db, &request).await?;
    Ok(text)
}

async fn ensure_local(
    tx: &mut SystemTx,
    (home, fresh): &(HomeId, OperatorId),
) -> Result<OperatorId> {
    let id = match accounts::find_account_by_email_across_homes(tx, LOCAL_EMAIL).await? {
        Some(account) => account.id,
        None => {
            let new = accounts::NewAccount {
                id: *fresh,
                email: LOCAL_EMAIL.into(),
                name: "local".into(),
                instance_admin: true,
                built_in: true,
            };
            accounts::insert_account_across_homes(tx, &new).await?;
            *fresh
        }
    };
    accounts::insert_membership_across_homes(tx, *home, id, Role::Owner).await?;
    Ok(id)
}

/// Makes a one-time sign-in link's secret for an existing account.
pub async fn sign_in_link(db: &Db, email: &str) -> Result<SecretString> {
    let operator = db
        .system(LINK, email, async |tx: &mut SystemTx, email: &str| {
            let account = accounts::find_account_by_email_across_homes(tx, email.trim()).await?;
            let id = account.map(|a| a.id).ok_or_else(Error::not_found)?;
            let act = Act {
                action: "auth.sign_in_link",
                target: Some(id.to_string()),
                outcome: "ok",
                origin: "machine",
                detail: json!({}),
            };
            audit::record_across_homes(tx, None, &act).await?;
            Ok(id)
        })
        .await?;
    auth::mint_link(db, operator).await
}
