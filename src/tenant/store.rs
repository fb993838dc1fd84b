//! SQL of homes, members and counters.

use std::time::Duration;

use time::OffsetDateTime;

use super::{Home, Membership, NewHome, Settings};
use crate::db::constraint::OnConstraint as _;
use crate::db::{SystemTx, TenantTx};
use crate::error::{Error, Result};
use crate::identity::Role;
use crate::ids::{HomeId, OperatorId};

/// Inserts the home with its counters, data key and owner.
pub async fn insert_home_across_homes(tx: &mut SystemTx, home: &NewHome) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO homes (id, slug, name, created_at) VALUES ($1, $2, $3, $4)",
        home.id.uuid(),
        home.slug,
        home.name,
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("homes_slug_key", super::slug_taken)?;
    sqlx::query!(
        "INSERT INTO home_usage (home_id) VALUES ($1)",
        home.id.uuid()
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "INSERT INTO home_keys (home_id, wrapped, created_at) VALUES ($1, $2, $3)",
        home.id.uuid(),
        home.wrapped_key,
        now,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "INSERT INTO memberships (home_id, operator_id, role, created_at) VALUES ($1, $2, 'owner', $3)",
        home.id.uuid(),
        home.owner.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The id behind a slug, whoever asks: for sign-in and the command line on the server's machine.
pub async fn find_home_by_slug_across_homes(
    tx: &mut SystemTx,
    slug: &str,
) -> Result<Option<HomeId>> {
    let id = sqlx::query_scalar!("SELECT id FROM homes WHERE slug = $1", slug)
        .fetch_optional(tx.conn())
        .await?;
    Ok(id.map(HomeId::from))
}

/// The homes a person belongs to, by slug.
pub async fn memberships_across_homes(
    tx: &mut SystemTx,
    operator: OperatorId,
) -> Result<Vec<Membership>> {
    let rows = sqlx::query!(
        "SELECT h.id, h.slug, h.name, m.role
         FROM memberships m JOIN homes h ON h.id = m.home_id
         WHERE m.operator_id = $1
         ORDER BY h.slug",
        operator.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let role = role(&row.role)?;
            Ok(Membership {
                home: row.id.into(),
                slug: row.slug,
                name: row.name,
                role,
            })
        })
        .collect()
}

/// The transaction's home.
pub async fn home(tx: &mut TenantTx) -> Result<Home> {
    let row = sqlx::query!(
        "SELECT id, slug, name, posture, shell_approval, allowed_images, model_silence_seconds, turn_seconds,
                agent_hops, created_at
         FROM homes WHERE id = $1",
        tx.home().uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    let seconds = |s: i32| Duration::from_secs(u64::from(s.unsigned_abs()));
    Ok(Home {
        id: row.id.into(),
        slug: row.slug,
        name: row.name,
        settings: Settings {
            posture: row.posture,
            shell_approval: row.shell_approval,
            allowed_images: row.allowed_images,
            model_silence: seconds(row.model_silence_seconds),
            turn_time: seconds(row.turn_seconds),
            agent_hops: row.agent_hops.unsigned_abs(),
        },
        created_at: row.created_at,
    })
}

/// A person of a home.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub operator_id: OperatorId,
    pub email: String,
    pub name: String,
    pub role: Role,
    /// The server's own, which machine tokens stand for.
    pub built_in: bool,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// The people of the transaction's home, by address.
pub async fn members(tx: &mut TenantTx) -> Result<Vec<Member>> {
    let rows = sqlx::query!(
        "SELECT o.id, o.email, o.name, o.built_in, m.role, m.created_at
         FROM memberships m JOIN operators o ON o.id = m.operator_id
         WHERE m.home_id = $1
         ORDER BY o.email",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Member {
                operator_id: row.id.into(),
                email: row.email,
                name: row.name,
                role: role(&row.role)?,
                built_in: row.built_in,
                created_at: row.created_at,
            })
        })
        .collect()
}

fn role(word: &str) -> Result<Role> {
    word.parse().map_err(|()| Error::Corrupt {
        table: "memberships",
        what: format!("role {word}"),
    })
}

/// The home's data key, wrapped.
pub async fn wrapped_key(tx: &mut TenantTx) -> Result<Vec<u8>> {
    let key = sqlx::query_scalar!(
        "SELECT wrapped FROM home_keys WHERE home_id = $1",
        tx.home().uuid()
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(key)
}

/// Every sealed value of the home, with the purpose it was sealed for.
pub async fn sealed_values(tx: &mut TenantTx) -> Result<Vec<(String, Vec<u8>)>> {
    let rows = sqlx::query!(
        r#"SELECT 'provider:' || name AS "purpose!", sealed_key AS "value!"
           FROM providers WHERE home_id = $1 AND sealed_key IS NOT NULL"#,
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.purpose, row.value))
        .collect())
}
