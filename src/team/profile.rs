//! Profiles: Agent templates.

use serde::Deserialize;

use super::model::{self, Persona, Profile, Reasoning};
use super::store;
use crate::db::TenantTx;
use crate::error::Result;
use crate::ids::ProfileId;
use crate::tenant;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

/// `POST /api/profiles`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProfile {
    pub slug: String,
    pub name: String,
    /// `provider:model`
    pub default_model: String,
    #[serde(default)]
    pub reasoning: Option<Reasoning>,
    #[serde(default)]
    pub persona: Persona,
}

/// Creates a profile.
pub async fn create(tx: &mut TenantTx, args: &(ProfileId, NewProfile)) -> Result<Profile> {
    let (id, new) = args;
    require(tx.caller(), Action::Operate)?;
    tenant::check_slug(&new.slug)?;
    tenant::check_name("name", &new.name)?;
    model::check_model("defaultModel", &new.default_model)?;
    model::check_persona(&new.persona)?;
    store::profiles::insert(tx, *id, new).await?;
    audit::record(tx, &Act::ok("profile.create", id)).await?;
    store::profiles::find(tx, &id.to_string()).await
}

/// The profiles of the home, by slug.
pub async fn list(tx: &mut TenantTx, (): &()) -> Result<Vec<Profile>> {
    require(tx.caller(), Action::Read)?;
    store::profiles::list(tx).await
}
