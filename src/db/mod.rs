//! PostgreSQL: the pool, migrations, transactions, calls, wake-ups.

mod call;
pub(crate) mod codec;
pub mod constraint;
mod store;
pub mod tx;
pub mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use time::Duration;

use crate::error::{Error, Result};
use crate::limits;

pub use call::{SystemCall, TenantCall};
pub use tx::{Isolation, Op, SystemTx, TenantTx};

/// The migrations, in the binary once.
pub static MIGRATOR: Migrator = sqlx::migrate!("./migrations");

/// The database of an instance. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pool: PgPool,
    kept: call::Kept,
    clock_offset: Duration,
    retries: Arc<AtomicU64>,
}

impl Db {
    /// Opens a pool under a login that is a member of `bazilion_server` and `bazilion_system` and owns nothing.
    /// `clock_offset` moves deciding times; only tests set it.
    pub async fn connect(
        options: PgConnectOptions,
        connections: u32,
        clock_offset: Duration,
    ) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(limits::DB_ACQUIRE_TIMEOUT)
            .connect_with(options.clone())
            .await?;
        Ok(Self {
            pool,
            kept: call::Kept::new(options),
            clock_offset,
            retries: Arc::default(),
        })
    }

    /// Runs the migrations, as the role that owns the tables.
    pub async fn migrate(owner: PgConnectOptions) -> Result<()> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_with(owner)
            .await?;
        let result = MIGRATOR.run(&pool).await;
        pool.close().await;
        result.map_err(|e| Error::internal("running the migrations", e))
    }

    /// Whether a connection can be had and answers.
    pub async fn ping(&self) -> Result<()> {
        let mut conn = self.pool.acquire().await?;
        tx::ping(&mut conn).await
    }

    /// Whether every migration of this binary has run, and no other.
    pub async fn is_migrated(&self) -> Result<bool> {
        let mut conn = self.pool.acquire().await?;
        let versions = store::applied_migrations(&mut conn).await?;
        let ours: Vec<i64> = MIGRATOR.iter().map(|m| m.version).collect();
        Ok(versions == ours)
    }

    /// A handle for wake-ups: sending, and the listener's own connection.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Transactions that had to be run again since the start.
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the pool, waiting for connections in use.
    pub async fn close(&self) {
        self.kept.close().await;
        self.pool.close().await;
    }
}
