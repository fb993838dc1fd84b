//! A database of its own for each test, cloned from a migrated template.
//!
//! The cluster's superuser URL comes from `BAZILION_TEST_POSTGRES`; `.ci/test` starts such a cluster. The product's own
//! roles do the work: a superuser only creates databases. Databases are not dropped: the cluster is thrown away.

use std::str::FromStr as _;

use bazilion::db::{Db, MIGRATOR};
use bazilion::error::Result;
use bazilion::ids::RequestId;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};

/// A migrated, empty database and the ways into it.
pub struct TestDb {
    name: String,
    superuser: PgConnectOptions,
}

impl TestDb {
    /// Clones the template, which the first caller builds under an advisory lock.
    pub async fn new() -> Self {
        let superuser = superuser();
        let mut conn = superuser
            .clone()
            .connect()
            .await
            .expect("the test cluster of .ci/test must run");
        conn.execute("SELECT pg_advisory_lock(6272001)")
            .await
            .unwrap();
        let template = ensure_template(&mut conn, &superuser).await;
        let name = format!("test_{}", RequestId::new().uuid().simple());
        let clone = format!(r#"CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY wal_log"#);
        conn.execute(AssertSqlSafe(clone)).await.unwrap();
        conn.execute("SELECT pg_advisory_unlock(6272001)")
            .await
            .unwrap();
        Self { name, superuser }
    }

    /// The database as the product opens it.
    pub async fn connect(&self) -> Result<Db> {
        self.connect_at(time::Duration::ZERO).await
    }

    /// The same, with the deciding clock moved.
    pub async fn connect_at(&self, offset: time::Duration) -> Result<Db> {
        Db::connect(self.login(), 8, offset).await
    }

    /// Connection settings of the login role, which owns nothing.
    pub fn login(&self) -> PgConnectOptions {
        self.superuser
            .clone()
            .username("bazilion_login")
            .database(&self.name)
    }

    /// The same as a URL, for a real server process.
    pub fn login_url(&self) -> String {
        self.login().to_url_lossy().to_string()
    }

    /// A connection that sees and may change everything: for arranging and for looking.
    pub async fn superuser(&self) -> PgConnection {
        self.superuser
            .clone()
            .database(&self.name)
            .connect()
            .await
            .unwrap()
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn superuser() -> PgConnectOptions {
    let url = std::env::var("BAZILION_TEST_POSTGRES").expect(
        "BAZILION_TEST_POSTGRES must name the test cluster; .ci/test starts one and sets it",
    );
    PgConnectOptions::from_str(&url).unwrap()
}

/// The template's name carries the migrations' checksums, so a changed migration makes a new one.
async fn ensure_template(conn: &mut PgConnection, superuser: &PgConnectOptions) -> String {
    use sha2::Digest as _;
    let mut hash = sha2::Sha256::new();
    MIGRATOR.iter().for_each(|m| hash.update(&m.checksum));
    let name = format!("template_{}", &hex::encode(hash.finalize())[..16]);
    let exists: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)",
    )
    .bind(&name)
    .fetch_one(&mut *conn)
    .await
    .unwrap();
    if !exists {
        build_template(conn, superuser, &name).await;
    }
    name
}

async fn build_template(conn: &mut PgConnection, superuser: &PgConnectOptions, name: &str) {
    for role in [
        "bazilion_owner LOGIN CREATEROLE",
        "bazilion_login LOGIN NOINHERIT",
    ] {
        // Exists already where an earlier template was built.
        let _ = conn
            .execute(AssertSqlSafe(format!("CREATE ROLE {role}")))
            .await;
    }
    for sql in [
        format!(r#"DROP DATABASE IF EXISTS "{name}""#),
        format!(r#"CREATE DATABASE "{name}" OWNER bazilion_owner"#),
    ] {
        conn.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    let mut inside = superuser.clone().database(name).connect().await.unwrap();
    inside
        .execute("ALTER SCHEMA public OWNER TO bazilion_owner")
        .await
        .unwrap();
    inside.close().await.unwrap();
    Db::migrate(superuser.clone().username("bazilion_owner").database(name))
        .await
        .unwrap();
    conn.execute("GRANT bazilion_server, bazilion_system TO bazilion_login")
        .await
        .unwrap();
    conn.execute(AssertSqlSafe(format!(
        r#"ALTER DATABASE "{name}" IS_TEMPLATE true"#
    )))
    .await
    .unwrap();
}
