//! A new home: its counters and keys, its first owner, a Team `default` and a profile `default`.

use crate::auth::store as accounts;
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::ids::{HomeId, OperatorId, ProfileId, TeamId};
use crate::secret::MasterKey;
use crate::team::profile::NewProfile;
use crate::team::{self, NewTeam, Persona, Root};
use crate::tenant::{self, NewHome};

const ACCOUNT: Op = Op::locking("instance.account");
const DEFAULTS: Op = Op::locking("instance.home_defaults");

/// The model of the profile `default` until somebody sets one: no provider is called this, and the Agent says so.
pub const NO_MODEL: &str = "none:none";

/// Who owns a new home.
pub struct Owner {
    pub email: String,
    pub name: String,
    pub instance_admin: bool,
}

/// Creates a home. The owner's account is made if there is none for the address.
pub async fn create(
    db: &Db,
    master: &MasterKey,
    slug: &str,
    name: &str,
    owner: &Owner,
) -> Result<HomeId> {
    let operator = ensure_account(db, owner).await?;
    create_for(db, master, slug, name, operator).await
}

/// Creates a home for an existing account.
pub async fn create_for(
    db: &Db,
    master: &MasterKey,
    slug: &str,
    name: &str,
    owner: OperatorId,
) -> Result<HomeId> {
    let home = NewHome::prepare(slug, name, owner, master)?;
    tenant::create_home(db, &home).await?;
    let args = (TeamId::new(), ProfileId::new());
    db.transact(&SystemTx::enter(home.id), DEFAULTS, &args, insert_defaults)
        .await?;
    Ok(home.id)
}

async fn ensure_account(db: &Db, owner: &Owner) -> Result<OperatorId> {
    check_email(&owner.email)?;
    tenant::check_name("name", &owner.name)?;
    let new = accounts::NewAccount {
        id: OperatorId::new(),
        email: owner.email.trim().to_lowercase(),
        name: owner.name.clone(),
        instance_admin: owner.instance_admin,
        built_in: false,
    };
    db.system(
        ACCOUNT,
        &new,
        async |tx: &mut SystemTx, new: &accounts::NewAccount| {
            if let Some(account) =
                accounts::find_account_by_email_across_homes(tx, &new.email).await?
            {
                return Ok(account.id);
            }
            accounts::insert_account_across_homes(tx, new).await?;
            Ok(new.id)
        },
    )
    .await
}

async fn insert_defaults(tx: &mut TenantTx, (team, profile): &(TeamId, ProfileId)) -> Result<()> {
    let new = NewTeam {
        slug: "default".into(),
        name: "Default".into(),
        root: Root::Managed,
        executor: None,
    };
    team::create(tx, &(*team, new)).await?;
    let new = NewProfile {
        slug: "default".into(),
        name: "Default".into(),
        default_model: NO_MODEL.into(),
        reasoning: None,
        persona: Persona::default(),
    };
    team::profile::create(tx, &(*profile, new)).await?;
    Ok(())
}

/// An address that a person can be reached at; its spelling is the account's name.
fn check_email(email: &str) -> Result<()> {
    let email = email.trim();
    let plain = !email.chars().any(|c| c.is_whitespace() || c.is_control()) && email.len() <= 254;
    let parts = email
        .split_once('@')
        .is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    if plain && parts && email.matches('@').count() == 1 {
        Ok(())
    } else {
        Err(Error::invalid(
            "ownerEmail",
            "email",
            "Give an address like ada@example.org.",
        ))
    }
}
