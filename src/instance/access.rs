//! The way back in, for whoever holds the data directory: reading its master key is the right to it. Both acts are
//! audited.

use secrecy::SecretString;
use serde_json::json;

use super::home;
use crate::auth::{self, TokenRequest, store as accounts, token};
use crate::db::{Db, Op, SystemTx};
use crate::error::{Error, Result};
use crate::identity::Role;
use crate::ids::{HomeId, OperatorId};
use crate::limits;
use crate::tenant::audit::{self, Act};

const LOCAL: Op = Op::locking("instance.local_operator");
const LINK: Op = Op::locking("instance.sign_in_link");

/// The address of the built-in operator: it cannot be written to and has no password.
const LOCAL_EMAIL: &str = "local@localhost";

/// Mints a token of the built-in operator `local` for one home.
pub async fn token(
    db: &Db,
    home_slug: &str,
    role: Role,
    instance_admin: bool,
) -> Result<SecretString> {
    let home = home::find(db, home_slug).await?;
    let args = (home, OperatorId::new());
    let operator = db.system(LOCAL, &args, ensure_local).await?;
    let request = TokenRequest {
        home,
        operator,
        label: "made on the server's machine".into(),
        scopes: token::scopes_of(role),
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
