//! SQL of leases and their resources.

use time::OffsetDateTime;
use uuid::Uuid;

use super::recovery::{HostProcess, Machine};
use super::{
    Acquire, DirectoryId, Lease, LeaseHeld, NewContainer, Resource, ResourceKind, ResourceState,
    RootIdentity, State,
};
use crate::db::constraint::expect_one;
use crate::db::{SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::executor::{CleanupProof, ContainerId, EngineId};
use crate::ids::{AgentId, HomeId, LeaseId, ResourceId, TeamId, TurnId};

/// A lease on an executor, seen across homes.
pub struct Holder {
    pub home: HomeId,
    pub id: LeaseId,
    pub team: TeamId,
    pub agent: AgentId,
    pub turn: TurnId,
    pub root: RootIdentity,
    pub acquired_at: OffsetDateTime,
    /// Blocked already, or its owner is gone or silent.
    pub needs_recovery: bool,
}

/// Takes the executor's advisory lock for this transaction.
pub async fn lock_executor_across_homes(tx: &mut SystemTx, executor: &str) -> Result<()> {
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended('bazilion executor ' || $1, 0)) AS "locked: ()""#,
        executor,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Every lease on the executor.
pub async fn holders_across_homes(tx: &mut SystemTx, executor: &str) -> Result<Vec<Holder>> {
    let now = tx.now();
    let rows = sqlx::query!(
        r#"SELECT l.home_id, l.id, l.team_id, l.agent_id, l.turn_id, l.root, l.device, l.inode,
                  l.ancestor_devices, l.ancestor_inodes, l.acquired_at,
                  (l.state = 'recovery' OR COALESCE(i.lease_until < $2, true)) AS "needs_recovery!"
           FROM workspace_leases l
           LEFT JOIN incarnations i ON i.id = l.incarnation_id
           WHERE l.executor = $1"#,
        executor,
        now,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Holder {
            home: row.home_id.into(),
            id: row.id.into(),
            team: row.team_id.into(),
            agent: row.agent_id.into(),
            turn: row.turn_id.into(),
            root: RootIdentity {
                path: row.root.into(),
                root: directory(row.device, row.inode),
                ancestors: row
                    .ancestor_devices
                    .iter()
                    .zip(&row.ancestor_inodes)
                    .map(|(device, inode)| directory(*device, *inode))
                    .collect(),
            },
            acquired_at: row.acquired_at,
            needs_recovery: row.needs_recovery,
        })
        .collect())
}

/// The kernel's numbers are unsigned, the database's signed: the bits are kept.
fn directory(device: i64, inode: i64) -> DirectoryId {
    DirectoryId {
        device: device.cast_unsigned(),
        inode: inode.cast_unsigned(),
    }
}

/// Inserts an active lease. The caller holds the executor's lock and has looked for overlaps.
pub async fn insert_lease_across_homes(tx: &mut SystemTx, lease: &Acquire) -> Result<()> {
    let now = tx.now();
    let devices: Vec<i64> = lease
        .root
        .ancestors
        .iter()
        .map(|a| a.device.cast_signed())
        .collect();
    let inodes: Vec<i64> = lease
        .root
        .ancestors
        .iter()
        .map(|a| a.inode.cast_signed())
        .collect();
    let root = lease.root.path.to_string_lossy();
    sqlx::query!(
        "INSERT INTO workspace_leases
             (home_id, id, executor, team_id, agent_id, turn_id, incarnation_id, instance_id, generation, root,
              device, inode, ancestor_devices, ancestor_inodes, state, acquired_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 'active', $15)",
        lease.home.uuid(),
        lease.lease.uuid(),
        lease.executor,
        lease.team.uuid(),
        lease.agent.uuid(),
        lease.turn.uuid(),
        lease.incarnation.uuid(),
        lease.instance,
        lease.generation,
        &*root,
        lease.root.root.device.cast_signed(),
        lease.root.root.inode.cast_signed(),
        &devices,
        &inodes,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Every lease of the instance, oldest first.
pub async fn leases_across_homes(tx: &mut SystemTx) -> Result<Vec<(HomeId, LeaseId)>> {
    let rows = sqlx::query!("SELECT home_id, id FROM workspace_leases ORDER BY acquired_at")
        .fetch_all(tx.conn())
        .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id.into(), row.id.into()))
        .collect())
}

/// The home of a lease.
pub async fn home_across_homes(tx: &mut SystemTx, lease: LeaseId) -> Result<HomeId> {
    let home = sqlx::query_scalar!(
        "SELECT home_id FROM workspace_leases WHERE id = $1",
        lease.uuid()
    )
    .fetch_optional(tx.conn())
    .await?;
    home.map(HomeId::from).ok_or_else(Error::not_found)
}

/// Leases in recovery, or of an owner whose incarnation was judged ended; of this generation, and not restored.
pub async fn lost_across_homes(
    tx: &mut SystemTx,
    generation: i64,
) -> Result<Vec<(HomeId, LeaseId)>> {
    let rows = sqlx::query!(
        "SELECT l.home_id, l.id FROM workspace_leases l
         WHERE l.generation = $1 AND NOT l.restored
           AND (l.state = 'recovery' OR NOT EXISTS (SELECT FROM incarnations i WHERE i.id = l.incarnation_id))
         ORDER BY l.acquired_at",
        generation,
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (row.home_id.into(), row.id.into()))
        .collect())
}

/// Locks the lease and demands that it still is this turn's, and active.
pub async fn lock_active(tx: &mut TenantTx, lease: &LeaseHeld) -> Result<()> {
    let found = sqlx::query_scalar!(
        "SELECT id FROM workspace_leases
         WHERE home_id = $1 AND id = $2 AND turn_id = $3 AND incarnation_id = $4 AND state = 'active'
         FOR UPDATE",
        tx.home().uuid(),
        lease.id.uuid(),
        lease.turn.uuid(),
        lease.incarnation.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    match found {
        Some(_) => Ok(()),
        None => Err(Error::refused(
            Code::WorkspaceRecoveryRequired,
            "This turn no longer owns its workspace; nothing more is started.",
        )),
    }
}

/// Records a container under its unguessable name.
pub async fn insert_container(
    tx: &mut TenantTx,
    lease: &LeaseHeld,
    new: &NewContainer,
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "INSERT INTO lease_resources (home_id, id, lease_id, kind, name, engine_id, receipt_id, state, recorded_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 'recorded', $8)",
        home.uuid(),
        new.id.uuid(),
        lease.id().uuid(),
        new.kind.as_str(),
        new.name,
        new.engine.0,
        new.receipt.map(|id| id.uuid()),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The engine acknowledged the container.
pub async fn set_created(
    tx: &mut TenantTx,
    lease: LeaseId,
    id: ResourceId,
    container: &ContainerId,
) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE lease_resources SET state = 'created', container_id = $4
         WHERE home_id = $1 AND lease_id = $2 AND id = $3 AND state = 'recorded'",
        tx.home().uuid(),
        lease.uuid(),
        id.uuid(),
        container.as_str(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// From here on something may be running in it.
pub async fn set_started(tx: &mut TenantTx, lease: LeaseId, id: ResourceId) -> Result<()> {
    let done = sqlx::query!(
        "UPDATE lease_resources SET state = 'started'
         WHERE home_id = $1 AND lease_id = $2 AND id = $3 AND state = 'created'",
        tx.home().uuid(),
        lease.uuid(),
        id.uuid(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// The proof must speak of the recorded engine, and of the recorded container where one was acknowledged.
pub async fn set_removed(
    tx: &mut TenantTx,
    lease: LeaseId,
    id: ResourceId,
    proof: &CleanupProof,
) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    let done = sqlx::query!(
        "UPDATE lease_resources SET state = 'removed', removed_at = $6, container_id = $5
         WHERE home_id = $1 AND lease_id = $2 AND id = $3 AND state <> 'removed'
           AND engine_id = $4 AND COALESCE(container_id, $5) = $5",
        home.uuid(),
        lease.uuid(),
        id.uuid(),
        proof.engine().0,
        proof.container().as_str(),
        now,
    )
    .execute(tx.conn())
    .await?;
    if done.rows_affected() == 1 {
        return Ok(());
    }
    // Somebody else proved it first, or the proof is of something else.
    let removed = sqlx::query_scalar!(
        "SELECT state = 'removed' FROM lease_resources WHERE home_id = $1 AND lease_id = $2 AND id = $3",
        tx.home().uuid(),
        lease.uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    match removed.flatten() {
        Some(false) => Err(Error::Corrupt {
            table: "lease_resources",
            what: "a proof of cleanup names another container".into(),
        }),
        Some(true) | None => Ok(()),
    }
}

/// Nothing came into being: the engine refused, or a later boot of the machine has ended the process.
pub async fn set_never_made(tx: &mut TenantTx, lease: LeaseId, id: ResourceId) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "UPDATE lease_resources SET state = 'removed', removed_at = $4
         WHERE home_id = $1 AND lease_id = $2 AND id = $3 AND (state = 'recorded' OR kind = 'process')",
        home.uuid(),
        lease.uuid(),
        id.uuid(),
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Locks the lease, and counts what is not proven gone.
pub async fn count_unproven(tx: &mut TenantTx, lease: LeaseId) -> Result<i64> {
    let home = tx.home();
    sqlx::query!(
        "SELECT id FROM workspace_leases WHERE home_id = $1 AND id = $2 FOR UPDATE",
        home.uuid(),
        lease.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    let left = sqlx::query_scalar!(
        r#"SELECT count(*) AS "left!" FROM lease_resources
           WHERE home_id = $1 AND lease_id = $2 AND state <> 'removed'"#,
        home.uuid(),
        lease.uuid(),
    )
    .fetch_one(tx.conn())
    .await?;
    Ok(left)
}

/// Deletes a lease and its proven resources. The foreign key refuses while one is left.
pub async fn delete_lease(tx: &mut TenantTx, lease: LeaseId) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "DELETE FROM lease_resources WHERE home_id = $1 AND lease_id = $2 AND state = 'removed'",
        home.uuid(),
        lease.uuid(),
    )
    .execute(tx.conn())
    .await?;
    sqlx::query!(
        "DELETE FROM workspace_leases WHERE home_id = $1 AND id = $2",
        home.uuid(),
        lease.uuid()
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// Deletes a lease in recovery with all that was recorded, on a person's word.
pub async fn delete_acknowledged(tx: &mut TenantTx, lease: LeaseId) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "DELETE FROM lease_resources r USING workspace_leases l
         WHERE r.home_id = $1 AND r.lease_id = $2 AND l.home_id = $1 AND l.id = $2 AND l.state = 'recovery'",
        home.uuid(),
        lease.uuid(),
    )
    .execute(tx.conn())
    .await?;
    let done = sqlx::query!(
        "DELETE FROM workspace_leases WHERE home_id = $1 AND id = $2 AND state = 'recovery'",
        home.uuid(),
        lease.uuid(),
    )
    .execute(tx.conn())
    .await?;
    expect_one(done.rows_affected(), Error::not_found)
}

/// Blocks the lease; a newer reason replaces an older one. Without the lease there is nothing to block.
pub async fn set_recovery(tx: &mut TenantTx, lease: LeaseId, reason: &str) -> Result<()> {
    let (home, now) = (tx.home(), tx.now());
    sqlx::query!(
        "UPDATE workspace_leases
         SET state = 'recovery', reason = left($3, 500), recovery_at = COALESCE(recovery_at, $4)
         WHERE home_id = $1 AND id = $2",
        home.uuid(),
        lease.uuid(),
        reason,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

/// The state of a Team's own lease. Recovery is said first.
pub async fn team_state(tx: &mut TenantTx, team: TeamId) -> Result<Option<State>> {
    let state = sqlx::query_scalar!(
        "SELECT state FROM workspace_leases WHERE home_id = $1 AND team_id = $2 ORDER BY state DESC LIMIT 1",
        tx.home().uuid(),
        team.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?;
    state.as_deref().map(parse_state).transpose()
}

fn parse_state(word: &str) -> Result<State> {
    match word {
        "active" => Ok(State::Active),
        "recovery" => Ok(State::Recovery),
        other => Err(Error::Corrupt {
            table: "workspace_leases",
            what: format!("state {other}"),
        }),
    }
}

/// The home's leases, oldest first.
pub async fn list(tx: &mut TenantTx) -> Result<Vec<Lease>> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM workspace_leases WHERE home_id = $1 ORDER BY acquired_at",
        tx.home().uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    let mut leases = Vec::with_capacity(ids.len());
    for id in ids {
        leases.push(find(tx, id.into()).await?);
    }
    Ok(leases)
}

/// One lease with its resources.
pub async fn find(tx: &mut TenantTx, id: LeaseId) -> Result<Lease> {
    let home = tx.home();
    let row = sqlx::query!(
        "SELECT team_id, agent_id, turn_id, incarnation_id, instance_id, generation, state, reason, restored, acquired_at
         FROM workspace_leases WHERE home_id = $1 AND id = $2",
        home.uuid(),
        id.uuid(),
    )
    .fetch_optional(tx.conn())
    .await?
    .ok_or_else(Error::not_found)?;
    Ok(Lease {
        id,
        team_id: row.team_id.into(),
        agent_id: row.agent_id.into(),
        turn_id: row.turn_id.into(),
        state: parse_state(&row.state)?,
        reason: row.reason,
        restored: row.restored,
        acquired_at: row.acquired_at,
        resources: resources(tx, id).await?,
        held: LeaseHeld {
            home,
            id,
            team: row.team_id.into(),
            agent: row.agent_id.into(),
            turn: row.turn_id.into(),
            incarnation: row.incarnation_id.into(),
            instance: row.instance_id,
            generation: row.generation,
        },
    })
}

struct ResourceRow {
    id: Uuid,
    kind: String,
    name: String,
    engine_id: Option<String>,
    container_id: Option<String>,
    receipt_id: Option<Uuid>,
    state: String,
    node_id: Option<Uuid>,
    machine_id: Option<String>,
    boot_id: Option<String>,
    pid: Option<i32>,
    cgroup: Option<String>,
}

impl TryFrom<ResourceRow> for Resource {
    type Error = Error;

    fn try_from(row: ResourceRow) -> Result<Self> {
        let corrupt = |what: &str| Error::Corrupt {
            table: "lease_resources",
            what: what.into(),
        };
        let machine = match (row.node_id, row.machine_id, row.boot_id) {
            (Some(node_id), Some(machine_id), Some(boot_id)) => Some(Machine {
                node_id,
                machine_id,
                boot_id,
            }),
            _ => None,
        };
        Ok(Resource {
            id: row.id.into(),
            kind: match row.kind.as_str() {
                "command" => ResourceKind::Command,
                "toolbox" => ResourceKind::Toolbox,
                "process" => ResourceKind::Process,
                _ => return Err(corrupt("kind")),
            },
            name: row.name,
            engine: row.engine_id.map(EngineId),
            container_id: row.container_id,
            receipt: row.receipt_id.map(Into::into),
            state: match row.state.as_str() {
                "recorded" => ResourceState::Recorded,
                "created" => ResourceState::Created,
                "started" => ResourceState::Started,
                "removed" => ResourceState::Removed,
                _ => return Err(corrupt("state")),
            },
            process: machine.map(|machine| HostProcess {
                machine,
                pid: row.pid,
                cgroup: row.cgroup,
            }),
        })
    }
}

async fn resources(tx: &mut TenantTx, lease: LeaseId) -> Result<Vec<Resource>> {
    let rows = sqlx::query_as!(
        ResourceRow,
        "SELECT id, kind, name, engine_id, container_id, receipt_id, state, node_id, machine_id, boot_id, pid, cgroup
         FROM lease_resources WHERE home_id = $1 AND lease_id = $2 ORDER BY recorded_at, id",
        tx.home().uuid(),
        lease.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter().map(Resource::try_from).collect()
}

/// After a restore every lease is blocked: its record permits ending nothing.
pub async fn restore_leases_across_homes(tx: &mut SystemTx, reason: &str) -> Result<()> {
    let now = tx.now();
    sqlx::query!(
        "UPDATE workspace_leases SET state = 'recovery', restored = true, reason = COALESCE(reason, $1),
                recovery_at = COALESCE(recovery_at, $2)
         WHERE NOT restored",
        reason,
        now,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
