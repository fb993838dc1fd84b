//! The life of a server process in the database: registered, renewed, and judged ended by others.
//!
//! - A row exists as long as nobody has judged that life ended. Claims refer to it.
//! - Renewed every 10 s, for 30 s; nobody judges it before a grace of 5 s, counted also from the database's start.
//! - A process holds a lock on a file of its own. On the same machine and boot, a lock that can be taken means that the
//!   process is gone, and it is judged at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::store;
use crate::db::{Db, Op, SystemTx};
use crate::error::{Error, Result};
use crate::ids::IncarnationId;
use crate::queue;
use crate::workspace::Liveness;
use crate::workspace::recovery::Machine;

const REGISTER: Op = Op::locking("worker.register");
const RENEW: Op = Op::locking("worker.renew");
const FIND: Op = Op::locking("worker.find_dead");
const REAP: Op = Op::locking("worker.reap");

/// This process, as others know it.
pub struct Incarnation {
    pub id: IncarnationId,
    pub machine: Machine,
    pub generation: i64,
    pub life: Arc<Liveness>,
    /// Held until the process ends, however it ends.
    _lock: File,
    lock_path: PathBuf,
}

/// A row to be written.
pub struct Registration {
    pub id: IncarnationId,
    pub machine: Machine,
    pub pid: i32,
    pub worker: bool,
    pub generation: i64,
    pub lock_path: String,
}

/// This machine and this boot, with the node id that the data directory keeps.
pub fn machine(data_dir: &Path) -> Result<Machine> {
    let failed = |e: std::io::Error| Error::internal("reading this machine's identity", e);
    let node = data_dir.join("node-id");
    let node_id = match std::fs::read_to_string(&node) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|e| Error::internal("reading the node id", e))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let fresh: Uuid = IncarnationId::new().uuid();
            std::fs::create_dir_all(data_dir).map_err(failed)?;
            std::fs::write(&node, fresh.to_string()).map_err(failed)?;
            fresh
        }
        Err(error) => return Err(failed(error)),
    };
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    Ok(Machine {
        node_id,
        machine_id: read("/etc/machine-id").unwrap_or_else(|_| "unknown".into()),
        boot_id: read("/proc/sys/kernel/random/boot_id").map_err(failed)?,
    })
}

impl Incarnation {
    /// Takes the lock file, then registers the life.
    pub async fn begin(
        db: &Db,
        data_dir: &Path,
        generation: i64,
        worker: bool,
        life: impl FnOnce() -> Liveness,
    ) -> Result<Self> {
        let failed = |e: std::io::Error| Error::internal("taking this process's lock file", e);
        let (id, machine) = (IncarnationId::new(), machine(data_dir)?);
        let locks = data_dir.join("processes");
        std::fs::create_dir_all(&locks).map_err(failed)?;
        let lock_path = locks.join(id.to_string());
        let lock = File::create(&lock_path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        let registration = Registration {
            id,
            machine: machine.clone(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            worker,
            generation,
            lock_path: lock_path.to_string_lossy().into_owned(),
        };
        // Aged from before the row is written, never from after.
        let life = Arc::new(life());
        db.system(
            REGISTER,
            &registration,
            async |tx: &mut SystemTx, new: &Registration| {
                store::insert_incarnation_across_homes(tx, new).await
            },
        )
        .await?;
        Ok(Self {
            id,
            machine,
            generation,
            life,
            _lock: lock,
            lock_path,
        })
    }

    /// Renews the lease. `false`, for good, when somebody judged this life ended.
    pub async fn renew(&self, db: &Db) -> Result<bool> {
        let moment = self.life.moment();
        let renewed = db
            .system(
                RENEW,
                &self.id,
                async |tx: &mut SystemTx, id: &IncarnationId| {
                    store::renew_across_homes(tx, *id).await
                },
            )
            .await?;
        if renewed {
            self.life.renewed(moment);
        } else {
            self.life.lose();
        }
        Ok(renewed)
    }

    /// Leaves in order: nothing is claimed any more, so nothing is lost.
    pub async fn end(self, db: &Db) -> Result<()> {
        self.life.lose();
        reap(db, self.id).await?;
        let _ = std::fs::remove_file(&self.lock_path);
        Ok(())
    }
}

/// A life that may be over.
pub struct Suspect {
    pub id: IncarnationId,
    pub machine: Machine,
    pub lock_path: Option<String>,
    /// Its lease and the grace are over.
    pub lapsed: bool,
}

/// Judges every other process. Returns those whose life was ended here.
pub async fn reap_dead(db: &Db, here: &Incarnation) -> Result<Vec<IncarnationId>> {
    let suspects = db
        .system(
            FIND,
            &here.id,
            async |tx: &mut SystemTx, id: &IncarnationId| {
                store::suspects_across_homes(tx, *id).await
            },
        )
        .await?;
    let mut ended = Vec::new();
    for suspect in suspects {
        if (suspect.lapsed || lock_is_free(&suspect, &here.machine)) && reap(db, suspect.id).await?
        {
            ended.push(suspect.id);
        }
    }
    Ok(ended)
}

/// On the same machine and boot, a process whose lock can be taken is gone.
fn lock_is_free(suspect: &Suspect, here: &Machine) -> bool {
    let Some(path) = suspect
        .lock_path
        .as_ref()
        .filter(|_| suspect.machine == *here)
    else {
        return false;
    };
    // A missing file proves nothing: another data directory may be mounted there.
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Ends one life: what it held becomes uncertain, and the row goes, in one transaction. A row lock makes one of
/// several reapers do it.
async fn reap(db: &Db, id: IncarnationId) -> Result<bool> {
    db.system(REAP, &id, async |tx: &mut SystemTx, id: &IncarnationId| {
        if !store::lock_incarnation_across_homes(tx, *id).await? {
            return Ok(false);
        }
        queue::recover::lose(tx, *id).await?;
        store::delete_incarnation_across_homes(tx, *id).await?;
        Ok(true)
    })
    .await
}
