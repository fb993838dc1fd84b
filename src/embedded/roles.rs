//! The roles of the embedded database, and what each may do.
//!
//! | role | used by | may |
//! | --- | --- | --- |
//! | `bazilion_admin` | this module only | everything: it made the cluster |
//! | `bazilion_owner` | migrations | owns the tables, makes the two group roles |
//! | `bazilion_login` | the server | nothing itself; enters `bazilion_server` or `bazilion_system` a transaction |
//! | `bazilion_reader` | a person at the machine | read, in read-only transactions |
//!
//! None bypasses row-level security, so the reader has an explicit policy on each walled table.

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

use super::keys;
use super::layout::Layout;
use crate::config::Obstacle;
use crate::secret;

/// Name of the one database.
pub const DATABASE: &str = "bazilion";

/// A role that logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Admin,
    Owner,
    Login,
    Reader,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Admin => "bazilion_admin",
            Role::Owner => "bazilion_owner",
            Role::Login => "bazilion_login",
            Role::Reader => "bazilion_reader",
        }
    }
}

/// The generated passwords, as the file keeps them. Each is 256 random bits in hexadecimal.
#[derive(Serialize, Deserialize)]
struct Stored {
    admin: String,
    owner: String,
    login: String,
    reader: String,
}

/// The passwords of the roles.
#[derive(Debug, Clone)]
pub struct Passwords {
    admin: SecretString,
    owner: SecretString,
    login: SecretString,
    reader: SecretString,
}

impl Passwords {
    /// Reads the file, or makes it for a new cluster.
    pub fn load(layout: &Layout) -> Result<Self, Obstacle> {
        let path = layout.passwords();
        if let Some(text) = keys::read(&path)? {
            return Self::parse(text.expose_secret()).ok_or_else(|| lost(layout));
        }
        if layout.cluster_major().is_some() {
            return Err(lost(layout));
        }
        let text = generate().ok_or_else(|| {
            Obstacle::new(
                "The system's random source failed.",
                "Look at /dev/urandom, then start again.",
            )
        })?;
        keys::write_new(&path, text.expose_secret())?;
        Self::parse(text.expose_secret()).ok_or_else(|| lost(layout))
    }

    fn parse(text: &str) -> Option<Self> {
        let stored: Stored = serde_json::from_str(text).ok()?;
        Some(Self {
            admin: stored.admin.into(),
            owner: stored.owner.into(),
            login: stored.login.into(),
            reader: stored.reader.into(),
        })
    }

    pub fn of(&self, role: Role) -> &SecretString {
        match role {
            Role::Admin => &self.admin,
            Role::Owner => &self.owner,
            Role::Login => &self.login,
            Role::Reader => &self.reader,
        }
    }
}

fn generate() -> Option<SecretString> {
    let password = || secret::random::<32>().ok().map(hex::encode);
    let stored = Stored {
        admin: password()?,
        owner: password()?,
        login: password()?,
        reader: password()?,
    };
    serde_json::to_string(&stored).ok().map(SecretString::from)
}

fn lost(layout: &Layout) -> Obstacle {
    Obstacle::new(
        format!(
            "The database's passwords in {} are missing or damaged.",
            layout.passwords().display()
        ),
        "Put the file back, or move the directory `postgres` beside it away to begin with an empty database.",
    )
}

/// Makes the roles and the database where they are missing. Run at each start; a repeat changes nothing.
pub async fn ensure(admin: PgConnectOptions, passwords: &Passwords) -> Result<(), sqlx::Error> {
    let mut conn = admin.clone().database("postgres").connect().await?;
    for (role, rights) in [
        (Role::Owner, "LOGIN CREATEROLE"),
        (Role::Login, "LOGIN NOINHERIT"),
        (Role::Reader, "LOGIN"),
    ] {
        if !exists(
            &mut conn,
            "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)",
            role.name(),
        )
        .await?
        {
            // Both are ours: a constant name and hexadecimal digits.
            let password = passwords.of(role).expose_secret();
            let sql = format!("CREATE ROLE {} {rights} PASSWORD '{password}'", role.name());
            conn.execute(AssertSqlSafe(sql)).await?;
        }
    }
    conn.execute("ALTER ROLE bazilion_reader SET default_transaction_read_only = on")
        .await?;
    if !exists(
        &mut conn,
        "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)",
        DATABASE,
    )
    .await?
    {
        conn.execute("CREATE DATABASE bazilion OWNER bazilion_owner")
            .await?;
    }
    conn.close().await?;
    let mut inside = admin.database(DATABASE).connect().await?;
    inside
        .execute("ALTER SCHEMA public OWNER TO bazilion_owner")
        .await?;
    inside.close().await
}

async fn exists(
    conn: &mut PgConnection,
    sql: &'static str,
    name: &str,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql).bind(name).fetch_one(conn).await
}

/// Lets the server's login enter the two group roles, which the migrations made, and the reader read every table.
pub async fn grant(admin: PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut conn = admin.database(DATABASE).connect().await?;
    conn.execute(GRANTS).await?;
    conn.close().await
}

/// The reader's policy is added to each walled table that lacks it, so a new migration needs to know nothing of it.
const GRANTS: &str = r"
DO $$
DECLARE
    walled regclass;
BEGIN
    GRANT bazilion_server, bazilion_system TO bazilion_login;
    GRANT USAGE ON SCHEMA public TO bazilion_reader;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO bazilion_reader;
    FOR walled IN
        SELECT c.oid::regclass
        FROM pg_class c
        WHERE c.relnamespace = 'public'::regnamespace
            AND c.relrowsecurity
            AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'reader')
    LOOP
        EXECUTE format('CREATE POLICY reader ON %s FOR SELECT TO bazilion_reader USING (true)', walled);
    END LOOP;
END
$$";
