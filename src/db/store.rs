//! The few statements that belong to no feature.

use sqlx::postgres::PgConnection;
use time::OffsetDateTime;

use crate::error::Result;

/// The database's own time, which decides.
pub async fn clock(conn: &mut PgConnection) -> Result<OffsetDateTime> {
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
        .fetch_one(conn)
        .await?;
    Ok(now)
}

/// Sends wake-ups, all in one statement.
pub async fn notify(conn: &mut PgConnection, channel: &str, payloads: &[String]) -> Result<()> {
    sqlx::query!(
        r#"SELECT pg_notify($1, payload) AS "sent?: ()" FROM unnest($2::text[]) AS payload"#,
        channel,
        payloads,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The versions of the migrations that ran, oldest first.
pub async fn applied_migrations(conn: &mut PgConnection) -> Result<Vec<i64>> {
    let rows =
        sqlx::query_scalar!("SELECT version FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(conn)
            .await?;
    Ok(rows)
}
