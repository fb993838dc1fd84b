//! Transactions: the only way to a table.
//!
//! - No home, no connection: a tenant table is reached through [`TenantTx`], which a [`Caller`] opens. The role
//!   `bazilion_server` and row-level security hold the second wall.
//! - Work across homes uses [`SystemTx`] under the role `bazilion_system`, whose rights are column-narrow. It cannot
//!   stand where a `TenantTx` is asked.
//! - The body is a plain async function and captures nothing; ids are in `args`, so every attempt uses the same ones.
//!   No file, process or network effect happens inside a body.
//! - Serialization failures and deadlocks are retried as a whole, from the body and from COMMIT.
//! - A connection lost before COMMIT took everything with it: the transaction runs once more on another connection. Lost
//!   during COMMIT nobody knows: [`Error::OutcomeUnknown`], except of [`Db::transact_repeatable`], whose body finds its
//!   own trace.
//! - `now()` is the database's clock, read once per transaction, plus an offset that only tests set.
//!
//! Lock order: team → queue → item → turn → workspace → receipt → home counters. The counters come last, so the row
//! that every submission of a home shares is held shortest.

use std::time::Duration;

use rand::RngExt as _;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Postgres, Transaction};
use time::OffsetDateTime;
use tracing::Instrument as _;

use super::Db;
use crate::error::{Error, Result};
use crate::identity::{Actor, Caller};
use crate::ids::HomeId;
use crate::limits;

/// A transaction's isolation. Row locks by default; see `docs/adr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Lock the parent row first.
    ReadCommitted,
    /// One snapshot for several reads.
    RepeatableRead,
    /// For invariants over rows that nobody can lock beforehand.
    Serializable,
}

impl Isolation {
    fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// A named operation: span and metric label.
#[derive(Debug, Clone, Copy)]
pub struct Op {
    pub name: &'static str,
    pub isolation: Isolation,
}

impl Op {
    /// Row locks.
    pub const fn locking(name: &'static str) -> Self {
        Self {
            name,
            isolation: Isolation::ReadCommitted,
        }
    }

    /// Serializable.
    pub const fn serializable(name: &'static str) -> Self {
        Self {
            name,
            isolation: Isolation::Serializable,
        }
    }
}

/// A transaction inside one home.
pub struct TenantTx {
    tx: Transaction<'static, Postgres>,
    caller: Caller,
    now: OffsetDateTime,
    repeats: bool,
}

impl TenantTx {
    /// The connection, for `store` functions.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// The home everything here belongs to.
    pub fn home(&self) -> HomeId {
        self.caller.home()
    }

    /// Who acts.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The deciding time.
    pub fn now(&self) -> OffsetDateTime {
        self.now
    }

    /// The same body came to its COMMIT before, and the connection was lost there. What it wrote may be here: look for
    /// it under the lock that the first attempt held, and answer with it.
    pub fn is_repeat(&self) -> bool {
        self.repeats
    }
}

/// A transaction across homes, with narrow rights.
pub struct SystemTx {
    tx: Transaction<'static, Postgres>,
    now: OffsetDateTime,
}

impl SystemTx {
    /// The connection, for `store` functions whose names end in `_across_homes`.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// The deciding time.
    pub fn now(&self) -> OffsetDateTime {
        self.now
    }

    /// The caller that a worker uses inside `home` after it learned of work there.
    pub fn enter(home: HomeId) -> Caller {
        Caller::vouch(home, Actor::System)
    }
}

/// What the attempts so far came to.
#[derive(Clone, Copy)]
struct Attempts {
    op: Op,
    repeatable: bool,
    /// How often the database asked for another attempt.
    refused: u32,
    reconnected: bool,
    /// A COMMIT was sent whose answer never came.
    unknown: bool,
}

impl Attempts {
    fn of(op: Op) -> Self {
        Self {
            op,
            repeatable: false,
            refused: 0,
            reconnected: false,
            unknown: false,
        }
    }

    /// Whether a lost connection is made good by one more attempt. Once: after that the database is away.
    fn may_reconnect(&mut self, error: &Error) -> bool {
        let unknown = matches!(error, Error::OutcomeUnknown);
        self.unknown |= unknown;
        let again = !self.reconnected && (error.is_cut() || (unknown && self.repeatable));
        self.reconnected |= again;
        again
    }

    /// After an unanswered COMMIT only a refusal is known: it was decided under the lock that the first attempt held.
    fn tell(&self, error: Error) -> Error {
        match error {
            Error::Refused(_) => error,
            _ if self.unknown => Error::OutcomeUnknown,
            _ => error,
        }
    }
}

impl Db {
    /// Runs `body` in one transaction of the caller's home, again as a whole while the database asks for it.
    pub async fn transact<A, T, F>(&self, caller: &Caller, op: Op, args: &A, body: F) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut TenantTx, &A) -> Result<T>,
    {
        self.transact_with(Attempts::of(op), caller, args, body)
            .await
    }

    /// The same for a body that, asked [`TenantTx::is_repeat`], finds out what its first attempt did and never does it
    /// twice: it runs again also after a connection lost during COMMIT.
    pub async fn transact_repeatable<A, T, F>(
        &self,
        caller: &Caller,
        op: Op,
        args: &A,
        body: F,
    ) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut TenantTx, &A) -> Result<T>,
    {
        let attempts = Attempts {
            repeatable: true,
            ..Attempts::of(op)
        };
        self.transact_with(attempts, caller, args, body).await
    }

    async fn transact_with<A, T, F>(
        &self,
        mut attempts: Attempts,
        caller: &Caller,
        args: &A,
        body: F,
    ) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut TenantTx, &A) -> Result<T>,
    {
        let op = attempts.op;
        let span = tracing::debug_span!("db.transact", op = op.name);
        async {
            loop {
                let result: Result<T> = async {
                    let mut tx = self.begin_tenant(caller, op.isolation).await?;
                    tx.repeats = attempts.unknown;
                    let value = body(&mut tx, args).await;
                    finish(tx.tx, value).await
                }
                .await;
                match result {
                    Ok(value) => return Ok(value),
                    Err(error) => self.before_next(&mut attempts, error).await?,
                }
            }
        }
        .instrument(span)
        .await
    }

    /// Runs `body` in one transaction across homes.
    pub async fn system<A, T, F>(&self, op: Op, args: &A, body: F) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut SystemTx, &A) -> Result<T>,
    {
        let span = tracing::debug_span!("db.system", op = op.name);
        async {
            let mut attempts = Attempts::of(op);
            loop {
                let result: Result<T> = async {
                    let mut tx = self.begin_system(op.isolation).await?;
                    let value = body(&mut tx, args).await;
                    finish(tx.tx, value).await
                }
                .await;
                match result {
                    Ok(value) => return Ok(value),
                    Err(error) => self.before_next(&mut attempts, error).await?,
                }
            }
        }
        .instrument(span)
        .await
    }

    /// Waits as long as is due before the next attempt; gives the error to tell when there is none.
    async fn before_next(&self, attempts: &mut Attempts, error: Error) -> Result<()> {
        let op = attempts.op;
        if attempts.may_reconnect(&error) {
            tracing::info!(op = op.name, "a connection was lost; once more on another");
            return Ok(());
        }
        if !error.is_retryable() {
            return Err(attempts.tell(error));
        }
        self.count_retry();
        attempts.refused += 1;
        if attempts.refused >= limits::TX_ATTEMPTS {
            tracing::warn!(op = op.name, "a transaction did not get through");
            return Err(attempts.tell(error));
        }
        tokio::time::sleep(pause(attempts.refused)).await;
        Ok(())
    }

    async fn begin_tenant(&self, caller: &Caller, isolation: Isolation) -> Result<TenantTx> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL {}; SET LOCAL ROLE bazilion_server; SET LOCAL bazilion.home_id = '{}'",
            isolation.sql(),
            caller.home().uuid(),
        );
        let mut tx = self.pool.begin_with(AssertSqlSafe(begin)).await?;
        let now = self.read_clock(&mut tx).await?;
        Ok(TenantTx {
            tx,
            caller: caller.clone(),
            now,
            repeats: false,
        })
    }

    async fn begin_system(&self, isolation: Isolation) -> Result<SystemTx> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL {}; SET LOCAL ROLE bazilion_system",
            isolation.sql()
        );
        let mut tx = self.pool.begin_with(AssertSqlSafe(begin)).await?;
        let now = self.read_clock(&mut tx).await?;
        Ok(SystemTx { tx, now })
    }

    async fn read_clock(&self, tx: &mut PgConnection) -> Result<OffsetDateTime> {
        let now = super::store::clock(tx).await?;
        Ok(now + self.clock_offset)
    }
}

/// COMMIT after a success. After a refusal ROLLBACK is awaited: whoever is told of it must not find its locks still there.
async fn finish<T>(tx: Transaction<'static, Postgres>, value: Result<T>) -> Result<T> {
    match value {
        Ok(value) => {
            commit(tx).await?;
            Ok(value)
        }
        Err(error) => {
            if let Err(lost) = tx.rollback().await {
                tracing::debug!(
                    error = &lost as &dyn std::error::Error,
                    "a refused transaction could not be rolled back"
                );
            }
            Err(error)
        }
    }
}

/// COMMIT, telling apart *refused* (retryable or not) and *unknown*.
async fn commit(tx: Transaction<'static, Postgres>) -> Result<()> {
    match tx.commit().await {
        Ok(()) => Ok(()),
        Err(error) => {
            let error = Error::Db(error);
            // A server that ends says so behind the answer too, when COMMIT is done already.
            if error.is_of_database() && !error.is_cut() {
                return Err(error);
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "connection lost during COMMIT"
            );
            Err(Error::OutcomeUnknown)
        }
    }
}

/// Exponential, with full jitter.
fn pause(attempt: u32) -> Duration {
    let ceiling = limits::TX_BACKOFF_FIRST
        .saturating_mul(1 << attempt.min(10))
        .min(limits::TX_BACKOFF_MAX);
    ceiling.mul_f64(rand::rng().random::<f64>())
}

/// Whether the connection still answers.
pub(super) async fn ping(conn: &mut PgConnection) -> Result<()> {
    conn.ping().await.map_err(Error::Db)
}
