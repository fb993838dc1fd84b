//! The walls between homes, seen from raw SQL under the product's own roles.

use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Executor as _};

use crate::support::db::TestDb;

/// Tables that belong to the instance and not to a home. Everything else carries `home_id`.
const GLOBAL: &[&str] = &[
    "_sqlx_migrations",
    "homes",
    "incarnations",
    "instance",
    "operators",
    "sessions",
    "sign_in_failures",
    "sign_in_links",
];

async fn homes_seen(conn: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM homes")
        .fetch_one(conn)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_server_role_sees_nothing_without_a_home_and_only_its_own_with_one() {
    let db = TestDb::new().await;
    let mut root = db.superuser().await;
    root.execute(
        "INSERT INTO homes (id, slug, name, created_at) VALUES
         ('00000000-0000-7000-8000-000000000001', 'a', 'A', now()),
         ('00000000-0000-7000-8000-000000000002', 'b', 'B', now())",
    )
    .await
    .unwrap();

    let mut conn = db.login().connect().await.unwrap();
    assert!(
        sqlx::query("SELECT * FROM homes")
            .fetch_all(&mut conn)
            .await
            .is_err(),
        "the login owns no right"
    );
    conn.execute("BEGIN; SET LOCAL ROLE bazilion_server")
        .await
        .unwrap();
    assert_eq!(homes_seen(&mut conn).await, 0);
    conn.execute("SET LOCAL bazilion.home_id = '00000000-0000-7000-8000-000000000001'")
        .await
        .unwrap();
    assert_eq!(homes_seen(&mut conn).await, 1);
    conn.execute("COMMIT; BEGIN; SET LOCAL ROLE bazilion_server")
        .await
        .unwrap();
    assert_eq!(
        homes_seen(&mut conn).await,
        0,
        "the setting ends with its transaction"
    );
}

#[tokio::test]
async fn every_tenant_table_is_walled_off_and_every_reference_between_them_carries_the_home() {
    let db = TestDb::new().await;
    let mut root = db.superuser().await;
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
         WHERE nspname = 'public' AND relkind = 'r' AND NOT (relrowsecurity AND relforcerowsecurity)
         ORDER BY 1",
    )
    .fetch_all(&mut root)
    .await
    .unwrap();
    let unexpected: Vec<_> = open
        .iter()
        .filter(|t| !GLOBAL.contains(&t.as_str()))
        .collect();
    assert!(
        unexpected.is_empty(),
        "tables without forced row-level security: {unexpected:?}"
    );

    let loose: Vec<String> = sqlx::query_scalar(
        "SELECT con.conname::text FROM pg_constraint con
         JOIN pg_attribute here ON here.attrelid = con.conrelid AND here.attname = 'home_id'
         JOIN pg_attribute there ON there.attrelid = con.confrelid AND there.attname = 'home_id'
         WHERE con.contype = 'f' AND NOT (here.attnum = ANY (con.conkey) AND there.attnum = ANY (con.confkey))",
    )
    .fetch_all(&mut root)
    .await
    .unwrap();
    assert!(
        loose.is_empty(),
        "foreign keys between tenant tables without home_id: {loose:?}"
    );
}

#[tokio::test]
async fn the_product_roles_own_nothing_and_bypass_nothing() {
    let db = TestDb::new().await;
    let mut root = db.superuser().await;
    let strong: Vec<String> = sqlx::query_scalar(
        "SELECT rolname::text FROM pg_roles
         WHERE rolname LIKE 'bazilion%' AND (rolsuper OR rolbypassrls
               OR (rolname <> 'bazilion_owner' AND EXISTS (SELECT FROM pg_class WHERE relowner = pg_roles.oid)))",
    )
    .fetch_all(&mut root)
    .await
    .unwrap();
    assert!(strong.is_empty(), "{strong:?}");
    for (table, right) in [("audit", "UPDATE"), ("audit", "DELETE")] {
        for role in ["bazilion_server", "bazilion_system"] {
            let has: bool = sqlx::query_scalar("SELECT has_table_privilege($1, $2, $3)")
                .bind(role)
                .bind(table)
                .bind(right)
                .fetch_one(&mut root)
                .await
                .unwrap();
            assert!(!has, "{role} must not {right} {table}");
        }
    }
}
