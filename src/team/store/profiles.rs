//! SQL of profiles.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::OnConstraint as _;
use crate::error::{Code, Error, Result};
use crate::ids::ProfileId;
use crate::team::model::{Persona, Profile, Reasoning};
use crate::team::profile::NewProfile;

struct Row {
    id: Uuid,
    slug: String,
    name: String,
    default_model: String,
    reasoning: String,
    skills_mode: String,
    soul: String,
    identity: String,
    agents: Option<String>,
    tools: Option<String>,
    created_at: time::OffsetDateTime,
}

impl TryFrom<Row> for Profile {
    type Error = Error;
    fn try_from(row: Row) -> Result<Self> {
        Ok(Profile {
            id: row.id.into(),
            slug: row.slug,
            name: row.name,
            default_model: row.default_model,
            reasoning: Reasoning::parse(&row.reasoning)?,
            skills_mode: row.skills_mode,
            persona: Persona {
                soul: row.soul,
                identity: row.identity,
                agents: row.agents,
                tools: row.tools,
            },
            created_at: row.created_at,
        })
    }
}

/// Inserts a profile.
pub async fn insert(tx: &mut TenantTx, id: ProfileId, new: &NewProfile) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO profiles
             (home_id, id, slug, name, default_model, reasoning, soul, identity, agents, tools, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        home.uuid(),
        id.uuid(),
        new.slug,
        new.name.trim(),
        new.default_model,
        new.reasoning.unwrap_or(Reasoning::Off).as_str(),
        new.persona.soul,
        new.persona.identity,
        new.persona.agents,
        new.persona.tools,
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("profiles_slug_key", || {
        Error::refused(Code::AlreadyExists, "A profile with this slug exists in this home. Choose another slug.")
    })?;
    Ok(())
}

/// All profiles, by slug.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Profile>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, slug, name, default_model, reasoning, skills_mode, soul, identity, agents, tools, created_at
         FROM profiles WHERE home_id = $1 ORDER BY slug",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Profile::try_from).collect()
}

/// One profile, by id or slug.
pub async fn find(tx: &mut TenantTx, named: &str) -> Result<Profile> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, slug, name, default_model, reasoning, skills_mode, soul, identity, agents, tools, created_at
         FROM profiles WHERE home_id = $1 AND (id = $2 OR slug = $3)",
        tx.home().uuid(),
        Uuid::parse_str(named).ok(),
        named,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Profile::try_from)
        .transpose()?
        .ok_or_else(Error::not_found)
}
