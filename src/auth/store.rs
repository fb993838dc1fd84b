//! SQL of credentials: operators, tokens, sessions, one-time links, failed sign-ins.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::constraint::{OnConstraint as _, expect_one};
use crate::db::{SystemCall, SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::Role;
use crate::ids::{HomeId, OperatorId, TokenId};
use crate::limits;

/// An account.
#[derive(Debug, Clone)]
pub struct Account {
    pub id: OperatorId,
    pub email: String,
    pub name: String,
    pub password_hash: Option<String>,
    pub instance_admin: bool,
}

/// What a presented token stands for.
pub struct FoundToken {
    pub home: HomeId,
    pub id: TokenId,
    pub operator: OperatorId,
    pub role: Role,
    pub role_limit: Option<Role>,
    pub scopes: Vec<String>,
    pub instance_admin: bool,
    pub expires_at: OffsetDateTime,
    pub revoked: bool,
    pub last_used_at: Option<OffsetDateTime>,
    /// When it was looked up: the deciding time.
    pub asked_at: OffsetDateTime,
}

fn role(word: &str) -> Result<Role> {
    word.parse().map_err(|()| Error::Corrupt {
        table: "memberships",
        what: format!("role {word}"),
    })
}

/// The token behind a hash, whatever home it belongs to, in one round trip.
pub async fn find_token_across_homes(
    call: &mut SystemCall<'_>,
    hash: &[u8; 32],
) -> Result<Option<FoundToken>> {
    let row = sqlx::query!(
        r#"SELECT home_id AS "home_id!", id AS "id!", operator_id AS "operator_id!", role AS "role!", role_limit,
                  scopes AS "scopes!", expires_at AS "expires_at!", last_used_at, revoked AS "revoked!",
                  instance_admin AS "instance_admin!", asked_at AS "asked_at!"
           FROM present_tokens($1)"#,
        &[hash.to_vec()],
    )
    .fetch_optional(call.conn())
    .await?;
    let offset = call.clock_offset();
    row.map(|row| {
        Ok(FoundToken {
            home: row.home_id.into(),
            id: row.id.into(),
            operator: row.operator_id.into(),
            role: role(&row.role)?,
            role_limit: row.role_limit.as_deref().map(role).transpose()?,
            scopes: row.scopes,
            instance_admin: row.instance_admin,
            expires_at: row.expires_at,
            revoked: row.revoked,
            last_used_at: row.last_used_at,
            asked_at: row.asked_at + offset,
        })
    })
    .transpose()
}

/// Notes that a token was used.
pub async fn touch_token_across_homes(tx: &mut SystemTx, home: HomeId, id: TokenId) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE api_tokens SET last_used_at = $3 WHERE home_id = $1 AND id = $2",
        home.uuid(),
        id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A token to insert.
pub struct NewToken {
    pub id: TokenId,
    pub home: HomeId,
    pub operator: OperatorId,
    pub hash: [u8; 32],
    pub label: String,
    pub scopes: Vec<String>,
    pub role_limit: Option<Role>,
    pub instance_admin: bool,
    pub days: i64,
}

/// Inserts a token, from the machine or from its owner.
pub async fn insert_token_across_homes(tx: &mut SystemTx, new: &NewToken) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO api_tokens (home_id, id, operator_id, token_hash, label, scopes, role_limit, instance_admin,
                                 created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        new.home.uuid(),
        new.id.uuid(),
        new.operator.uuid(),
        new.hash.as_slice(),
        new.label,
        &new.scopes,
        new.role_limit.map(Role::as_str),
        new.instance_admin,
        now,
        now + time::Duration::days(new.days),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A token as its operator sees it: never its hash.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub label: String,
    pub scopes: Vec<String>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: OffsetDateTime,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<OffsetDateTime>,
    #[serde(serialize_with = "crate::clock::wire::option::serialize")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<OffsetDateTime>,
}

/// The operator's tokens in this home, newest first.
pub async fn list_tokens(tx: &mut TenantTx, operator: OperatorId) -> Result<Vec<TokenView>> {
    let rows = sqlx::query_as!(
        TokenView,
        "SELECT id, label, scopes, created_at, expires_at, last_used_at, revoked_at
         FROM api_tokens WHERE home_id = $1 AND operator_id = $2
         ORDER BY id DESC",
        tx.home().uuid(),
        operator.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows)
}

/// Revokes one token of the operator, at once.
pub async fn revoke_token(tx: &mut TenantTx, operator: OperatorId, id: TokenId) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE api_tokens SET revoked_at = COALESCE(revoked_at, $4)
         WHERE home_id = $1 AND operator_id = $2 AND id = $3",
        home.uuid(),
        operator.uuid(),
        id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// The account of an address.
pub async fn find_account_by_email_across_homes(
    tx: &mut SystemTx,
    email: &str,
) -> Result<Option<Account>> {
    let row = sqlx::query!(
        "SELECT id, email, name, password_hash, instance_admin
         FROM operators WHERE email = lower($1) AND disabled_at IS NULL",
        email,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Account {
        id: row.id.into(),
        email: row.email,
        name: row.name,
        password_hash: row.password_hash,
        instance_admin: row.instance_admin,
    }))
}

/// The account of an id.
pub async fn find_account_across_homes(
    tx: &mut SystemTx,
    id: OperatorId,
) -> Result<Option<Account>> {
    let row = sqlx::query!(
        "SELECT id, email, name, password_hash, instance_admin
         FROM operators WHERE id = $1 AND disabled_at IS NULL",
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| Account {
        id: row.id.into(),
        email: row.email,
        name: row.name,
        password_hash: row.password_hash,
        instance_admin: row.instance_admin,
    }))
}

/// An account to insert.
pub struct NewAccount {
    pub id: OperatorId,
    pub email: String,
    pub name: String,
    pub instance_admin: bool,
    pub built_in: bool,
}

/// Inserts an account without a password; a one-time link is the first way in.
pub async fn insert_account_across_homes(tx: &mut SystemTx, new: &NewAccount) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO operators (id, email, name, instance_admin, built_in, created_at)
         VALUES ($1, lower($2), $3, $4, $5, $6)",
        new.id.uuid(),
        new.email,
        new.name,
        new.instance_admin,
        new.built_in,
        now,
    )
    .execute(tx.conn())
    .await
    .on_constraint("operators_email_key", || {
        Error::refused(Code::AlreadyExists, "An account with this address exists.")
    })?;
    Ok(())
}

/// Replaces a password and ends the account's other sessions.
pub async fn set_password_across_homes(
    tx: &mut SystemTx,
    operator: OperatorId,
    hash: &str,
    keep_session: Option<&[u8; 32]>,
) -> Result<()> {
    sqlx::query!(
        "UPDATE operators SET password_hash = $2 WHERE id = $1",
        operator.uuid(),
        hash
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "DELETE FROM sessions WHERE operator_id = $1 AND id_hash IS DISTINCT FROM $2",
        operator.uuid(),
        keep_session.map(|hash| hash.as_slice()),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Makes an account a member of a home, unless it is one.
pub async fn insert_membership_across_homes(
    tx: &mut SystemTx,
    home: HomeId,
    operator: OperatorId,
    role: Role,
) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO memberships (home_id, operator_id, role, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING",
        home.uuid(),
        operator.uuid(),
        role.as_str(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A person's role in a home, by the home's slug.
pub async fn find_membership_across_homes(
    tx: &mut SystemTx,
    operator: OperatorId,
    slug: &str,
) -> Result<Option<(HomeId, Role)>> {
    let row = sqlx::query!(
        "SELECT m.home_id, m.role FROM memberships m JOIN homes h ON h.id = m.home_id
         WHERE m.operator_id = $1 AND h.slug = $2",
        operator.uuid(),
        slug,
    )
    .fetch_optional(tx.conn())
    .await?;
    row.map(|row| Ok((row.home_id.into(), role(&row.role)?)))
        .transpose()
}

/// Inserts a one-time link.
pub async fn insert_link_across_homes(
    tx: &mut SystemTx,
    hash: &[u8; 32],
    operator: OperatorId,
) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "INSERT INTO sign_in_links (token_hash, operator_id, created_at, expires_at) VALUES ($1, $2, $3, $4)",
        hash.as_slice(),
        operator.uuid(),
        now,
        now + limits::SIGN_IN_LINK,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Uses a one-time link up; nothing if it was used, has expired or never was.
pub async fn use_link_across_homes(
    tx: &mut SystemTx,
    hash: &[u8; 32],
) -> Result<Option<OperatorId>> {
    let now = tx.now();
    let row = sqlx::query_scalar!(
        "UPDATE sign_in_links SET used_at = $2
         WHERE token_hash = $1 AND used_at IS NULL AND expires_at > $2
         RETURNING operator_id",
        hash.as_slice(),
        now,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(OperatorId::from))
}

/// Failed sign-ins of one subject within the window.
pub async fn count_failures_across_homes(tx: &mut SystemTx, subject: &[u8; 32]) -> Result<i64> {
    let since = tx.now() - limits::SIGN_IN_WINDOW;
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM sign_in_failures WHERE subject_hash = $1 AND at > $2"#,
        subject.as_slice(),
        since,
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(count)
}

/// Notes a failed sign-in, and forgets the subject's old ones.
pub async fn insert_failure_across_homes(tx: &mut SystemTx, subject: &[u8; 32]) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "DELETE FROM sign_in_failures WHERE subject_hash = $1 AND at <= $2",
        subject.as_slice(),
        now - limits::SIGN_IN_WINDOW,
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "INSERT INTO sign_in_failures (subject_hash, at) VALUES ($1, $2)",
        subject.as_slice(),
        now
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A stored browser session.
pub struct StoredSession {
    pub data: Value,
    pub expires_at: OffsetDateTime,
}

/// Inserts a session under a fresh id; false if the id is taken.
pub async fn insert_session_across_homes(
    tx: &mut SystemTx,
    hash: &[u8; 32],
    session: &StoredSession,
    operator: Option<OperatorId>,
) -> Result<bool> {
    let now = tx.now();
    let done = sqlx::query!(
        "INSERT INTO sessions (id_hash, operator_id, data, created_at, last_seen_at, expires_at)
         VALUES ($1, $2, $3, $4, $4, $5)
         ON CONFLICT DO NOTHING",
        hash.as_slice(),
        operator.map(OperatorId::uuid),
        session.data,
        now,
        session.expires_at,
    )
    .execute(tx.conn())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Saves a session that exists; one that was ended meanwhile stays ended.
pub async fn save_session_across_homes(
    tx: &mut SystemTx,
    hash: &[u8; 32],
    session: &StoredSession,
    operator: Option<OperatorId>,
) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE sessions SET data = $2, expires_at = $3, last_seen_at = $4, operator_id = $5 WHERE id_hash = $1",
        hash.as_slice(),
        session.data,
        session.expires_at,
        now,
        operator.map(OperatorId::uuid),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// A live session.
pub async fn load_session_across_homes(
    tx: &mut SystemTx,
    hash: &[u8; 32],
) -> Result<Option<StoredSession>> {
    let now = tx.now();
    let row = sqlx::query_as!(
        StoredSession,
        "SELECT data, expires_at FROM sessions
         WHERE id_hash = $1 AND expires_at > $2 AND created_at > $3",
        hash.as_slice(),
        now,
        now - limits::SESSION_MAX,
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row)
}

/// A live session as its owner sees it.
pub struct ListedSession {
    pub id_hash: [u8; 32],
    pub created_at: OffsetDateTime,
    pub last_seen_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
}

/// A person's live sessions, the last used first.
pub async fn list_sessions_across_homes(
    tx: &mut SystemTx,
    operator: OperatorId,
) -> Result<Vec<ListedSession>> {
    let now = tx.now();
    let rows = sqlx::query!(
        "SELECT id_hash, created_at, last_seen_at, expires_at FROM sessions
         WHERE operator_id = $1 AND expires_at > $2 AND created_at > $3
         ORDER BY last_seen_at DESC, id_hash",
        operator.uuid(),
        now,
        now - limits::SESSION_MAX,
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            let id_hash = row.id_hash.try_into().map_err(|_| Error::Corrupt {
                table: "sessions",
                what: "a hash of another length".into(),
            })?;
            Ok(ListedSession {
                id_hash,
                created_at: row.created_at,
                last_seen_at: row.last_seen_at,
                expires_at: row.expires_at,
            })
        })
        .collect()
}

/// Ends a session.
pub async fn delete_session_across_homes(tx: &mut SystemTx, hash: &[u8; 32]) -> Result<()> {
    sqlx::query!("DELETE FROM sessions WHERE id_hash = $1", hash.as_slice())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Ends every session: the database was restored.
pub async fn delete_all_sessions_across_homes(tx: &mut SystemTx) -> Result<()> {
    sqlx::query!("DELETE FROM sessions")
        .execute(tx.conn())
        .await?;
    Ok(())
}
