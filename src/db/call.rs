//! Whole transactions in one round trip: a statement outside a transaction that calls a function of the database.
//!
//! - The connection has the login's rights, which are none. The function enters its role, and for a tenant the home,
//!   until the statement ends; row-level security holds inside.
//! - These connections are kept beside the pool, which asks a connection twice per use whether it still lives. A dead
//!   one is found by its use: the statement fails, and the caller knows whether it may be asked again.
//! - A connection that was lost, or whose statement was given up, is never used again.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use time::Duration;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::{Db, Op};
use crate::error::{Error, Result};
use crate::identity::Caller;
use crate::ids::HomeId;
use crate::limits;

/// The connections for single statements.
#[derive(Clone)]
pub(super) struct Kept(Arc<Inner>);

struct Inner {
    options: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    places: Semaphore,
}

impl Kept {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self(Arc::new(Inner {
            options,
            idle: Mutex::default(),
            places: Semaphore::new(limits::DB_KEPT_CONNECTIONS as usize),
        }))
    }

    fn pop(&self) -> Option<PgConnection> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self) -> Result<PgConnection> {
        match self.pop() {
            Some(conn) => Ok(conn),
            None => Ok(self.0.options.connect().await?),
        }
    }

    /// Waits for the statements under way and closes everything.
    pub(super) async fn close(&self) {
        let all = self
            .0
            .places
            .acquire_many(limits::DB_KEPT_CONNECTIONS)
            .await;
        self.0.places.close();
        drop(all);
        while let Some(conn) = self.pop() {
            let _ = conn.close().await;
        }
    }

    async fn with<T>(&self, run: impl AsyncFnOnce(&mut PgConnection) -> Result<T>) -> Result<T> {
        let ready = async {
            let place = self.0.places.acquire().await;
            let place = place.map_err(|_| sqlx::Error::PoolClosed)?;
            Ok::<_, Error>((place, self.take().await?))
        };
        let (_place, mut conn) = tokio::time::timeout(limits::DB_ACQUIRE_TIMEOUT, ready)
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)??;
        match run(&mut conn).await {
            Err(error) if error.is_lost_connection() => Err(Error::OutcomeUnknown),
            other => {
                self.idle().push(conn);
                other
            }
        }
    }
}

/// One statement inside one home.
pub struct TenantCall<'a> {
    conn: &'a mut PgConnection,
    home: HomeId,
    clock_offset: Duration,
}

impl TenantCall<'_> {
    /// The connection, for `store` functions that call a function of the database.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.conn
    }

    /// The home everything here belongs to.
    pub fn home(&self) -> HomeId {
        self.home
    }

    /// What tests move deciding times by, in seconds.
    pub fn clock_offset(&self) -> f64 {
        self.clock_offset.as_seconds_f64()
    }
}

/// One statement across homes, with narrow rights.
pub struct SystemCall<'a> {
    conn: &'a mut PgConnection,
    clock_offset: Duration,
}

impl SystemCall<'_> {
    /// The connection, for `store` functions whose names end in `_across_homes`.
    pub fn conn(&mut self) -> &mut PgConnection {
        self.conn
    }

    /// What tests move deciding times by.
    pub fn clock_offset(&self) -> Duration {
        self.clock_offset
    }
}

impl Db {
    /// Makes one call in the caller's home. Nothing is tried again: a connection lost under it is
    /// [`Error::OutcomeUnknown`].
    pub async fn call<A, T, F>(&self, caller: &Caller, op: Op, args: &A, body: F) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut TenantCall<'_>, &A) -> Result<T>,
    {
        let (home, clock_offset) = (caller.home(), self.clock_offset);
        let call = self.kept.with(async |conn| {
            let mut call = TenantCall {
                conn,
                home,
                clock_offset,
            };
            body(&mut call, args).await
        });
        call.instrument(tracing::debug_span!("db.call", op = op.name))
            .await
    }

    /// Makes one call across homes that only reads; again when the connection turns out to be dead.
    pub async fn system_look<A, T, F>(&self, op: Op, args: &A, body: F) -> Result<T>
    where
        A: ?Sized + Sync,
        F: AsyncFn(&mut SystemCall<'_>, &A) -> Result<T>,
    {
        let clock_offset = self.clock_offset;
        let once = async || {
            let call = self.kept.with(async |conn| {
                let mut call = SystemCall { conn, clock_offset };
                body(&mut call, args).await
            });
            call.await
        };
        let looking = async {
            // After a restart of the database every kept connection is dead.
            for _ in 0..limits::DB_KEPT_CONNECTIONS {
                match once().await {
                    Err(Error::OutcomeUnknown) => {}
                    other => return other,
                }
            }
            once().await
        };
        looking
            .instrument(tracing::debug_span!("db.look", op = op.name))
            .await
    }
}
