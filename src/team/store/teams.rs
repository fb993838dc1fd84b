//! SQL of Teams.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::db::constraint::{OnConstraint as _, expect_one};
use crate::error::{Code, Error, Result};
use crate::ids::TeamId;
use crate::team::NewTeam;
use crate::team::model::{Root, Team};

struct Row {
    id: Uuid,
    slug: String,
    name: String,
    user_md: String,
    executor: String,
    root_path: Option<String>,
    policy_revision: i64,
    created_at: time::OffsetDateTime,
}

impl From<Row> for Team {
    fn from(row: Row) -> Self {
        Team {
            id: row.id.into(),
            slug: row.slug,
            name: row.name,
            executor: row.executor,
            root: row
                .root_path
                .map_or(Root::Managed, |path| Root::Linked { path }),
            policy_revision: row.policy_revision,
            created_at: row.created_at,
            user_md: row.user_md,
        }
    }
}

/// Inserts a Team.
pub async fn insert(tx: &mut TenantTx, id: TeamId, new: &NewTeam) -> Result<()> {
    let (kind, path) = match &new.root {
        Root::Managed => ("managed", None),
        Root::Linked { path } => ("linked", Some(path.as_str())),
    };
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO teams (home_id, id, slug, name, root_kind, root_path, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        home.uuid(),
        id.uuid(),
        new.slug,
        new.name.trim(),
        kind,
        path,
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("teams_slug_key", || {
        Error::refused(
            Code::AlreadyExists,
            "A Team with this slug exists in this home. Choose another slug.",
        )
    })?;
    Ok(())
}

/// All Teams, by slug.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Team>> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT id, slug, name, user_md, executor, root_path, policy_revision, created_at
         FROM teams WHERE home_id = $1 ORDER BY slug",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows.into_iter().map(Team::from).collect())
}

/// One Team, by id or slug.
pub async fn find(tx: &mut TenantTx, named: &str) -> Result<Team> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, slug, name, user_md, executor, root_path, policy_revision, created_at
         FROM teams WHERE home_id = $1 AND (id = $2 OR slug = $3)",
        tx.home().uuid(),
        Uuid::parse_str(named).ok(),
        named,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Team::from).ok_or_else(Error::not_found)
}

/// The same, locked: its roster or its policy is about to change.
pub async fn lock(tx: &mut TenantTx, named: &str) -> Result<Team> {
    let row = sqlx::query_as!(
        Row,
        "SELECT id, slug, name, user_md, executor, root_path, policy_revision, created_at
         FROM teams WHERE home_id = $1 AND (id = $2 OR slug = $3)
         FOR UPDATE",
        tx.home().uuid(),
        Uuid::parse_str(named).ok(),
        named,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(Team::from).ok_or_else(Error::not_found)
}

/// Replaces USER.md.
pub async fn set_user_md(tx: &mut TenantTx, id: TeamId, text: &str) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE teams SET user_md = $3 WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid(),
        text,
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// Deletes a Team; archived Agents still refer to it and keep it.
pub async fn delete(tx: &mut TenantTx, id: TeamId) -> Result<()> {
    let done = sqlx::query!(
        "DELETE FROM teams WHERE home_id = $1 AND id = $2",
        tx.home().uuid(),
        id.uuid()
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}
