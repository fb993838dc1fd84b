//! Browser sessions in PostgreSQL: the store behind tower-sessions.
//!
//! - The table holds the hash of a session's id, so it holds no cookie.
//! - A session ends 12 hours after its last request and 7 days after its sign-in, whatever its cookie says.

use std::fmt;

use async_trait::async_trait;
use tower_sessions::SessionStore;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error as StoreError, Result as StoreResult};

use super::store::{self, StoredSession};
use crate::db::{Db, Op, SystemTx};
use crate::error::Error;
use crate::ids::OperatorId;
use crate::secret;

const CREATE: Op = Op::locking("auth.session_create");
const SAVE: Op = Op::locking("auth.session_save");
const LOAD: Op = Op::locking("auth.session_load");
const DELETE: Op = Op::locking("auth.session_delete");

/// The key of the operator's id in a session's data.
pub const OPERATOR: &str = "operator";

/// Sessions of every process, in the database.
#[derive(Clone)]
pub struct PgSessions(pub Db);

impl fmt::Debug for PgSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PgSessions")
    }
}

/// What the database knows a session by.
pub fn id_hash(id: &Id) -> [u8; 32] {
    secret::digest(&id.0.to_be_bytes())
}

fn backend(error: Error) -> StoreError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "the session store failed"
    );
    StoreError::Backend("the session store failed".into())
}

fn stored(record: &Record) -> StoreResult<(StoredSession, Option<OperatorId>)> {
    let data = serde_json::to_value(&record.data).map_err(|e| StoreError::Encode(e.to_string()))?;
    let operator = record
        .data
        .get(OPERATOR)
        .and_then(|id| id.as_str())
        .and_then(|id| id.parse().ok());
    Ok((
        StoredSession {
            data,
            expires_at: record.expiry_date,
        },
        operator,
    ))
}

#[async_trait]
impl SessionStore for PgSessions {
    async fn create(&self, record: &mut Record) -> StoreResult<()> {
        loop {
            let (session, operator) = stored(record)?;
            let args = (id_hash(&record.id), session, operator);
            let inserted = self.0.system(
                CREATE,
                &args,
                async |tx: &mut SystemTx, (hash, session, operator)| {
                    store::insert_session_across_homes(tx, hash, session, *operator).await
                },
            );
            if inserted.await.map_err(backend)? {
                return Ok(());
            }
            record.id = Id::default();
        }
    }

    async fn save(&self, record: &Record) -> StoreResult<()> {
        let (session, operator) = stored(record)?;
        let args = (id_hash(&record.id), session, operator);
        self.0
            .system(
                SAVE,
                &args,
                async |tx: &mut SystemTx, (hash, session, operator)| {
                    store::save_session_across_homes(tx, hash, session, *operator).await
                },
            )
            .await
            .map_err(backend)
    }

    async fn load(&self, id: &Id) -> StoreResult<Option<Record>> {
        let found = self
            .0
            .system(
                LOAD,
                &id_hash(id),
                async |tx: &mut SystemTx, hash: &[u8; 32]| {
                    store::load_session_across_homes(tx, hash).await
                },
            )
            .await
            .map_err(backend)?;
        found
            .map(|session| {
                let data = serde_json::from_value(session.data)
                    .map_err(|e| StoreError::Decode(e.to_string()))?;
                Ok(Record {
                    id: *id,
                    data,
                    expiry_date: session.expires_at,
                })
            })
            .transpose()
    }

    async fn delete(&self, id: &Id) -> StoreResult<()> {
        self.0
            .system(
                DELETE,
                &id_hash(id),
                async |tx: &mut SystemTx, hash: &[u8; 32]| {
                    store::delete_session_across_homes(tx, hash).await
                },
            )
            .await
            .map_err(backend)
    }
}
