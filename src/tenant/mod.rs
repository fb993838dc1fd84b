//! Homes: the tenants of an instance, their settings, members and audit log.
//!
//! - A home is created in one transaction with its counters, its data key and its first owner.
//! - Work across homes is named so (`…_across_homes`) and uses `SystemTx`.

pub mod audit;
pub mod permission;
mod store;

use secrecy::SecretString;
use time::OffsetDateTime;

use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::{Caller, Role};
use crate::ids::{HomeId, OperatorId};
use crate::secret::{HomeKey, MasterKey};

use permission::{Action, require};
pub use store::{Member, find_home_by_slug_across_homes, memberships_across_homes};

const CREATE_HOME: Op = Op::locking("tenant.create_home");
const READ_HOME: Op = Op::locking("tenant.home");

/// A tenant.
#[derive(Debug, Clone)]
pub struct Home {
    pub id: HomeId,
    pub slug: String,
    pub name: String,
    pub settings: Settings,
    pub created_at: OffsetDateTime,
}

/// What an instance admin or an owner set for a home.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Posture of HTTP, web and CLI items: `docker`, or `host` where allowed.
    pub posture: String,
    pub shell_approval: String,
    pub allowed_images: Vec<String>,
    pub model_silence: std::time::Duration,
    pub turn_time: std::time::Duration,
    pub agent_hops: u32,
}

/// A person's place in one home.
#[derive(Debug, Clone)]
pub struct Membership {
    pub home: HomeId,
    pub slug: String,
    pub name: String,
    pub role: Role,
}

/// What a new home needs.
pub struct NewHome {
    pub id: HomeId,
    pub slug: String,
    pub name: String,
    pub owner: OperatorId,
    /// The home's data key, wrapped by the instance key.
    pub wrapped_key: Vec<u8>,
}

impl NewHome {
    /// Mints the id and the data key, outside any transaction.
    pub fn prepare(slug: &str, name: &str, owner: OperatorId, master: &MasterKey) -> Result<Self> {
        check_slug(slug)?;
        check_name("name", name)?;
        let id = HomeId::new();
        let wrapped_key = master
            .new_home_key(id)
            .map_err(|e| Error::internal("making a home's data key", e))?;
        Ok(Self {
            id,
            slug: slug.into(),
            name: name.trim().into(),
            owner,
            wrapped_key,
        })
    }
}

/// Creates a home with its counters, data key and first owner.
pub async fn create_home(db: &Db, home: &NewHome) -> Result<()> {
    db.system(
        CREATE_HOME,
        home,
        async |tx: &mut SystemTx, home: &NewHome| store::insert_home_across_homes(tx, home).await,
    )
    .await
}

/// The caller's own home.
pub async fn home(db: &Db, caller: &Caller) -> Result<Home> {
    db.transact(
        caller,
        READ_HOME,
        &(),
        async |tx: &mut TenantTx, (): &()| store::home(tx).await,
    )
    .await
}

/// The caller's own home, inside a transaction.
pub async fn home_in(tx: &mut TenantTx) -> Result<Home> {
    store::home(tx).await
}

/// The people of the transaction's home, for an owner.
pub async fn members(tx: &mut TenantTx, (): &()) -> Result<Vec<Member>> {
    require(tx.caller(), Action::Administer)?;
    store::members(tx).await
}

/// The data key of the transaction's home.
pub async fn home_key(tx: &mut TenantTx, master: &MasterKey) -> Result<HomeKey> {
    let wrapped = store::wrapped_key(tx).await?;
    master
        .home_key(tx.home(), &wrapped)
        .map_err(|e| Error::internal("opening a home's data key", e))
}

/// Every secret of the home, opened, for the redactor. Never logged, never sent.
pub async fn secrets(tx: &mut TenantTx, master: &MasterKey) -> Result<Vec<SecretString>> {
    let key = home_key(tx, master).await?;
    let sealed = store::sealed_values(tx).await?;
    sealed
        .into_iter()
        .map(|(purpose, value)| {
            key.open(&purpose, &value)
                .map_err(|e| Error::internal("opening a home's secret", e))
        })
        .collect()
}

/// A slug: lower-case letters, digits and inner hyphens, at most 40 characters.
pub fn check_slug(slug: &str) -> Result<()> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ok = (1..=40).contains(&slug.len())
        && slug.chars().all(|c| inner(c) || c == '-')
        && !slug.starts_with('-')
        && !slug.ends_with('-');
    if ok {
        Ok(())
    } else {
        Err(Error::invalid(
            "slug",
            "slug",
            "Use 1 to 40 lower-case letters, digits and inner hyphens.",
        ))
    }
}

/// A name for people: 1 to 200 characters, no control characters.
pub fn check_name(path: &str, name: &str) -> Result<()> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > 200 || name.chars().any(char::is_control) {
        return Err(Error::invalid(
            path,
            "name",
            "Use 1 to 200 characters, no control characters.",
        ));
    }
    Ok(())
}

/// The slug is taken in this instance.
fn slug_taken() -> Error {
    Error::refused(
        Code::AlreadyExists,
        "A home with this slug exists. Choose another slug.",
    )
}
