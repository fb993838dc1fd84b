//! Teams, profiles, Agents, conversations and the Team's policy.
//!
//! - An Agent belongs to exactly one Team. Spawning it writes its default policy edges in the same transaction.
//! - Wherever an Agent is named: id, then exact name, then an id prefix of at least 8 characters.
//! - A look-up filters on the home and returns the thing or `not_found`; nobody learns what another home has.

pub mod agent;
pub mod api;
pub mod conversation;
pub mod edges;
pub mod link;
mod live;
pub mod model;
pub mod policy;
pub mod profile;
pub mod store;

use serde::Deserialize;

use crate::db::TenantTx;
use crate::error::{Code, Error, Result};
use crate::identity::{Actor, Caller};
use crate::ids::TeamId;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};
use crate::{limits, tenant};

pub use model::{
    Agent, AgentStatus, Conversation, Persona, Profile, Reasoning, Root, Selection, Team,
};

/// `POST /api/teams`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewTeam {
    pub slug: String,
    pub name: String,
    pub root: Root,
    #[serde(default)]
    pub executor: Option<String>,
}

/// Creates a Team. A linked root needs an instance admin, and a path that the executor has resolved below an allowed
/// base: the caller checks the directory itself before the transaction.
pub async fn create(tx: &mut TenantTx, args: &(TeamId, NewTeam)) -> Result<Team> {
    let (id, new) = args;
    require(tx.caller(), Action::Operate)?;
    if matches!(new.root, Root::Linked { .. }) {
        require(tx.caller(), Action::RunInstance)?;
    }
    check(new)?;
    store::teams::insert(tx, *id, new).await?;
    audit::record(tx, &Act::ok("team.create", id)).await?;
    store::teams::find(tx, &id.to_string()).await
}

/// The Teams of the home, by slug.
pub async fn list(tx: &mut TenantTx, (): &()) -> Result<Vec<Team>> {
    require(tx.caller(), Action::Read)?;
    store::teams::list(tx).await
}

/// One Team, by id or slug.
pub async fn show(tx: &mut TenantTx, named: &str) -> Result<Team> {
    require(tx.caller(), Action::Read)?;
    store::teams::find(tx, named).await
}

/// Replaces the Team's USER.md, which Agents read as an explicit operator instruction.
pub async fn set_user_md(tx: &mut TenantTx, args: &(String, String)) -> Result<Team> {
    let (named, text) = args;
    require(tx.caller(), Action::Operate)?;
    if text.len() > limits::USER_MD_MAX || text.contains('\0') {
        return Err(Error::invalid(
            "userMd",
            "size",
            "USER.md has at most 12,000 bytes, without NUL.",
        ));
    }
    let team = store::teams::find(tx, named).await?;
    store::teams::set_user_md(tx, team.id, text).await?;
    audit::record(tx, &Act::ok("team.user_md", team.id)).await?;
    store::teams::find(tx, named).await
}

/// Deletes a Team without active Agents. Its workspace and any lease stay as they are.
pub async fn delete(tx: &mut TenantTx, named: &str) -> Result<()> {
    require(tx.caller(), Action::Administer)?;
    let team = store::teams::find(tx, named).await?;
    if store::agents::count_active(tx, team.id).await? > 0 {
        return Err(Error::refused(
            Code::TeamNotEmpty,
            "The Team has active Agents. Move or archive them first.",
        ));
    }
    store::teams::delete(tx, team.id).await?;
    audit::record(tx, &Act::ok("team.delete", team.id)).await
}

/// Whether the caller runs the instance: what a linked root asks for, before the disk is looked at.
pub fn may_link(caller: &Caller) -> bool {
    matches!(
        caller.actor(),
        Actor::Operator {
            instance_admin: true,
            ..
        } | Actor::System
    )
}

fn check(new: &NewTeam) -> Result<()> {
    tenant::check_slug(&new.slug)?;
    tenant::check_name("name", &new.name)?;
    if let Some(executor) = &new.executor
        && executor != "local"
    {
        return Err(Error::invalid(
            "executor",
            "executor",
            "This instance has the executor \"local\" only.",
        ));
    }
    if let Root::Linked { path } = &new.root
        && (!path.starts_with('/') || path.len() > 4096 || path.contains('\0'))
    {
        return Err(Error::invalid(
            "root.path",
            "path",
            "Give an absolute path of an existing directory.",
        ));
    }
    Ok(())
}
