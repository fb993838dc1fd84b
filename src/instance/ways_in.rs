//! Ways in for the person at the machine: an API token of the built-in operator, a one-time sign-in link.
//!
//! Being able to read the data directory's master key is the right to do so. Both are in the audit log.

use secrecy::{ExposeSecret as _, SecretString};

use super::{first, store};
use crate::auth::{self, TokenRequest};
use crate::db::{Db, Op, SystemTx};
use crate::error::{Code, Error, Result};
use crate::identity::{Role, Scopes};
use crate::ids::{HomeId, OperatorId};
use crate::tenant::audit::{self, Act};
use crate::{limits, tenant};

const LOOK: Op = Op::locking("instance.find_home");
const JOIN: Op = Op::locking("instance.join_local");
const ACCOUNT: Op = Op::locking("instance.find_account");
const AUDIT: Op = Op::locking("instance.audit");

/// Address of the built-in operator, who owns the tokens that the command line mints.
pub const LOCAL: &str = "local";

/// What a minted token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mint {
    Home { slug: String, role: Role },
    InstanceAdmin,
}

/// Mints a token of the built-in operator. The text is shown once.
pub async fn token(db: &Db, mint: &Mint) -> Result<SecretString> {
    // Whoever can mint a token runs the instance: an owner's token may link a directory too. The instance admin's own
    // reads nothing in any home.
    let (home, role, scopes, instance_admin) = match mint {
        Mint::Home { slug, role } => (
            find_home(db, slug).await?,
            *role,
            auth::token::scopes_of(*role),
            *role == Role::Owner,
        ),
        Mint::InstanceAdmin => {
            let scopes = Scopes {
                admin: true,
                ..Scopes::default()
            };
            (any_home(db).await?, Role::Viewer, scopes, true)
        }
    };
    let operator = first::account(db, LOCAL, "local", true).await?.id;
    join(db, home, operator).await?;
    let request = TokenRequest {
        home,
        operator,
        label: "made on the machine".into(),
        scopes,
        role_limit: Some(role),
        instance_admin,
        days: limits::TOKEN_DAYS,
    };
    let (_, text) = auth::mint_token(db, &request).await?;
    Ok(text)
}

/// Makes a one-time sign-in link for an account: the path below the server's address.
pub async fn sign_in_link(db: &Db, email: &str) -> Result<String> {
    let account = find_account(db, email).await?;
    let secret = auth::mint_link(db, account.id).await?;
    let act = Act {
        origin: "machine",
        ..Act::ok("auth.sign_in_link", account.id)
    };
    db.system(AUDIT, &act, async |tx: &mut SystemTx, act: &Act<'_>| {
        audit::record_across_homes(tx, None, act).await
    })
    .await?;
    Ok(link_path(&secret))
}

/// Where a link's secret is used up. The secret is no part of the path, which is logged.
pub fn link_path(secret: &SecretString) -> String {
    format!("/sign-in/link/{}", secret.expose_secret())
}

/// The home of that slug.
pub async fn find_home(db: &Db, slug: &str) -> Result<HomeId> {
    let found = db
        .system(LOOK, slug, async |tx: &mut SystemTx, slug: &str| {
            tenant::find_home_by_slug_across_homes(tx, slug).await
        })
        .await?;
    found.ok_or_else(|| {
        Error::refused(
            Code::NotFound,
            format!("There is no home {slug:?}. `bazilion up` names the one it made."),
        )
    })
}

async fn any_home(db: &Db) -> Result<HomeId> {
    let found = db
        .system(LOOK, &(), async |tx: &mut SystemTx, (): &()| {
            store::first_home_across_homes(tx).await
        })
        .await?;
    found.map(|(home, _)| home).ok_or_else(|| {
        Error::refused(
            Code::NotFound,
            "This instance has no home yet. Start it once: bazilion up",
        )
    })
}

async fn find_account(db: &Db, email: &str) -> Result<auth::Account> {
    let found = db
        .system(ACCOUNT, email, async |tx: &mut SystemTx, email: &str| {
            auth::store::find_account_by_email_across_homes(tx, email).await
        })
        .await?;
    found.ok_or_else(|| {
        Error::refused(
            Code::NotFound,
            "There is no account with this address. The first owner is owner@localhost.",
        )
    })
}

/// Makes the built-in operator a member of a home, so that its tokens work there.
pub(super) async fn join(db: &Db, home: HomeId, operator: OperatorId) -> Result<()> {
    let args = (home, operator);
    db.system(
        JOIN,
        &args,
        async |tx: &mut SystemTx, (home, operator): &(HomeId, OperatorId)| {
            auth::store::insert_membership_across_homes(tx, *home, *operator, Role::Owner).await
        },
    )
    .await
}
