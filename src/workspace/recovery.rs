//! Ending what a dead owner left behind: by recorded identity only.
//!
//! - A container is found by its recorded name or full id, and its labels must match, before it is removed.
//! - A missing pid proves nothing. Only an empty recorded cgroup, or a later boot of the same machine, does; so only a
//!   process of the same node and machine judges a host process.
//! - A record that came with a restored database, or from another generation, permits ending nothing.
//! - An unreachable executor is not proof: the lease stays `recovery`.

use uuid::Uuid;

use super::{Lease, Resource, ResourceKind, ResourceState, confirm, release, store};
use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::executor::{ContainerId, Executor, Identity};
use crate::identity::Caller;
use crate::ids::{HomeId, LeaseId};

const FIND: Op = Op::locking("workspace.find_lost");
const LOOK: Op = Op::locking("workspace.look");
const BLOCK: Op = Op::locking("workspace.block_lost");

/// The machine that judges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub node_id: Uuid,
    pub machine_id: String,
    pub boot_id: String,
}

/// A host process, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    pub machine: Machine,
    pub pid: Option<i32>,
    pub cgroup: Option<String>,
}

/// Whether a host process and all it started are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Gone,
    Unknown(&'static str),
}

/// Judges a host process. `cgroup_empty` is what this machine sees of the recorded cgroup, if there was one.
pub fn judge(process: &HostProcess, here: &Machine, cgroup_empty: Option<bool>) -> Judgement {
    if process.machine.node_id != here.node_id || process.machine.machine_id != here.machine_id {
        return Judgement::Unknown(
            "It was started on another machine; only that one can judge it.",
        );
    }
    if process.machine.boot_id != here.boot_id {
        return Judgement::Gone;
    }
    match (&process.cgroup, cgroup_empty) {
        (Some(_), Some(true)) => Judgement::Gone,
        (Some(_), _) => {
            Judgement::Unknown("Its control group still has processes, or cannot be read.")
        }
        (None, _) => {
            Judgement::Unknown("It had no control group: a missing process id proves nothing.")
        }
    }
}

/// Leases whose owner is gone, or whose cleanup was not proven, and which this generation may judge.
pub async fn lost(db: &Db, generation: i64) -> Result<Vec<(HomeId, LeaseId)>> {
    db.system(
        FIND,
        &generation,
        async |tx: &mut SystemTx, generation: &i64| store::lost_across_homes(tx, *generation).await,
    )
    .await
}

/// Moves one lost lease on: everything recorded is looked up, removed and confirmed; then the lease is released. What
/// cannot be proven keeps it, with the reason. Says whether it is free.
pub async fn recover(
    db: &Db,
    executor: &dyn Executor,
    here: &Machine,
    home: HomeId,
    id: LeaseId,
) -> Result<bool> {
    let inside = SystemTx::enter(home);
    let lease = db
        .transact(
            &inside,
            LOOK,
            &id,
            async |tx: &mut TenantTx, id: &LeaseId| {
                store::set_recovery(
                    tx,
                    *id,
                    "Its owner is gone; what it started is being looked for.",
                )
                .await?;
                store::find(tx, *id).await
            },
        )
        .await?;
    if lease.restored {
        return Ok(false);
    }
    let mut reasons = Vec::new();
    for resource in lease
        .resources
        .iter()
        .filter(|r| r.state != ResourceState::Removed)
    {
        if let Err(reason) = end(db, executor, here, &inside, &lease, resource).await? {
            reasons.push(format!("{}: {reason}", resource.name));
        }
    }
    if reasons.is_empty() {
        return release(db, &inside, id).await;
    }
    let reason: String = reasons.join(" ").chars().take(500).collect();
    db.transact(
        &inside,
        BLOCK,
        &(id, reason),
        async |tx: &mut TenantTx, (id, reason): &(LeaseId, String)| {
            store::set_recovery(tx, *id, reason).await
        },
    )
    .await?;
    Ok(false)
}

/// Ends one recorded resource; the inner error is why that is not proven.
async fn end(
    db: &Db,
    executor: &dyn Executor,
    here: &Machine,
    inside: &Caller,
    lease: &Lease,
    resource: &Resource,
) -> Result<Result<(), String>> {
    if resource.kind == ResourceKind::Process {
        return end_process(db, here, inside, lease, resource).await;
    }
    let Some(identity) = identity(lease, resource) else {
        return Ok(Err("Its record names no engine or no full id.".into()));
    };
    match executor.remove(&identity).await {
        Ok(proof) => confirm(db, inside, lease.id, resource.id, proof)
            .await
            .map(Ok),
        Err(uncertain) => Ok(Err(uncertain.reason)),
    }
}

async fn end_process(
    db: &Db,
    here: &Machine,
    inside: &Caller,
    lease: &Lease,
    resource: &Resource,
) -> Result<Result<(), String>> {
    let Some(process) = &resource.process else {
        return Ok(Err(
            "Its record does not say which machine it ran on.".into()
        ));
    };
    let empty = process.cgroup.as_deref().map(cgroup_is_empty);
    match judge(process, here, empty) {
        Judgement::Unknown(reason) => Ok(Err(reason.into())),
        Judgement::Gone => super::never_made(db, inside, lease.id, resource.id)
            .await
            .map(Ok),
    }
}

/// A cgroup that was removed is empty too: the kernel removes none with processes in it.
fn cgroup_is_empty(path: &str) -> bool {
    let events = std::path::Path::new("/sys/fs/cgroup")
        .join(path.trim_start_matches('/'))
        .join("cgroup.events");
    match std::fs::read_to_string(events) {
        Ok(text) => text.lines().any(|line| line == "populated 0"),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// By what a recorded container is known.
pub fn identity(lease: &Lease, resource: &Resource) -> Option<Identity> {
    let id = match &resource.container_id {
        Some(text) => Some(ContainerId::parse(text)?),
        None => None,
    };
    let mut labels = lease.held.labels();
    labels.receipt = resource.receipt;
    Some(Identity {
        engine: resource.engine.clone()?,
        name: resource.name.clone(),
        id,
        labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(node: u128, boot: &str) -> Machine {
        Machine {
            node_id: Uuid::from_u128(node),
            machine_id: "m".into(),
            boot_id: boot.into(),
        }
    }

    #[test]
    fn w015_a_later_boot_of_the_same_machine_ends_every_host_process() {
        let process = HostProcess {
            machine: machine(1, "old"),
            pid: Some(4),
            cgroup: None,
        };
        assert_eq!(judge(&process, &machine(1, "new"), None), Judgement::Gone);
        assert!(matches!(
            judge(&process, &machine(1, "old"), None),
            Judgement::Unknown(_)
        ));
        assert!(matches!(
            judge(&process, &machine(2, "new"), None),
            Judgement::Unknown(_)
        ));
    }

    #[test]
    fn only_an_empty_recorded_cgroup_is_proof_within_one_boot() {
        let process = HostProcess {
            machine: machine(1, "b"),
            pid: None,
            cgroup: Some("/bazilion/x".into()),
        };
        assert_eq!(
            judge(&process, &machine(1, "b"), Some(true)),
            Judgement::Gone
        );
        for seen in [Some(false), None] {
            assert!(matches!(
                judge(&process, &machine(1, "b"), seen),
                Judgement::Unknown(_)
            ));
        }
    }
}
