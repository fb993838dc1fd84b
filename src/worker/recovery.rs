//! What the dead left: ended in the record, then looked for, removed and confirmed; then the lease is released.
//!
//! - Idempotent: each step finds its work in the database, so a reaper that dies half way is continued by the next.
//! - The sweep touches only containers of this instance, generation and an ended lease. Others that look like ours
//!   are reported: they may belong to the original of a copied database.

use std::sync::PoisonError;

use super::{Worker, incarnation, store};
use crate::db::{Op, SystemTx, TenantTx};
use crate::error::Result;
use crate::executor::{ContainerId, EngineId, Found, Identity, Labels};
use crate::ids::{HomeId, IncarnationId, LeaseId};
use crate::workspace::recovery as leases;
use crate::{coding, turn};

const ORPHANS: Op = Op::locking("worker.orphans");
const LOSE: Op = Op::locking("worker.lose");
const SWEEP: Op = Op::locking("worker.sweep");

/// One round.
pub async fn tick(worker: &Worker) -> Result<()> {
    let ended = incarnation::reap_dead(&worker.app.db, &worker.incarnation).await?;
    if !ended.is_empty() {
        tracing::warn!(
            count = ended.len(),
            "judged dead processes; their work is uncertain"
        );
    }
    let orphans = worker.app.db.system(ORPHANS, &(), orphans_in).await?;
    for (home, incarnation) in orphans {
        let inside = SystemTx::enter(home);
        worker
            .app
            .db
            .transact(&inside, LOSE, &incarnation, lose_in)
            .await?;
    }
    recover_leases(worker).await?;
    sweep(worker).await
}

async fn orphans_in(tx: &mut SystemTx, (): &()) -> Result<Vec<(HomeId, IncarnationId)>> {
    store::orphans_across_homes(tx).await
}

async fn lose_in(tx: &mut TenantTx, incarnation: &IncarnationId) -> Result<()> {
    turn::lose_in(tx, *incarnation).await?;
    coding::lose_in(tx, *incarnation).await?;
    Ok(())
}

async fn recover_leases(worker: &Worker) -> Result<()> {
    let (db, here) = (&worker.app.db, &worker.incarnation);
    for (home, lease) in leases::lost(db, here.generation).await? {
        let executor = worker.app.executor.as_ref();
        let freed = leases::recover(db, executor, &here.machine, home, lease).await;
        match freed {
            Ok(true) => tracing::info!(%lease, "a workspace is free again"),
            Ok(false) => tracing::warn!(%lease, "a workspace stays blocked"),
            Err(error) => {
                tracing::warn!(%lease, error = &error as &dyn std::error::Error, "recovering a lease")
            }
        }
    }
    Ok(())
}

async fn sweep(worker: &Worker) -> Result<()> {
    let found = match worker.app.executor.list_ours(worker.instance).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "the executor was not swept");
            return Ok(());
        }
    };
    let (inspections, leased) = found.into_iter().partition(is_inspection);
    for container in leased {
        sweep_one(worker, container).await?;
    }
    sweep_inspections(worker, inspections).await;
    Ok(())
}

fn is_inspection(container: &Found) -> bool {
    let labels = container.labels.as_ref();
    labels.is_some_and(|labels| labels.lease.is_none())
}

/// Removes what a process that died left of its inspections: what was here at the last sweep already.
async fn sweep_inspections(worker: &Worker, found: Vec<Found>) {
    let now = found.iter().map(|container| container.id.clone()).collect();
    let before = {
        let mut seen = worker
            .inspections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *seen, now)
    };
    for container in found {
        let ours = |labels: &Labels| labels.generation == worker.incarnation.generation;
        if before.contains(&container.id)
            && let Some(labels) = container.labels.filter(ours)
        {
            remove(
                worker,
                container.engine,
                container.name,
                container.id,
                labels,
            )
            .await;
        }
    }
}

async fn remove(worker: &Worker, engine: EngineId, name: String, id: ContainerId, labels: Labels) {
    let identity = Identity {
        engine,
        name,
        id: Some(id),
        labels,
    };
    if let Err(uncertain) = worker.app.executor.remove(&identity).await {
        tracing::warn!(
            reason = uncertain.reason,
            "a left-over container was not removed"
        );
    }
}

async fn sweep_one(worker: &Worker, container: Found) -> Result<()> {
    let generation = worker.incarnation.generation;
    let Some(labels) = container
        .labels
        .filter(|labels| labels.generation == generation)
    else {
        tracing::info!(
            name = container.name,
            "a container looks like ours and was left alone"
        );
        return Ok(());
    };
    let Some(lease) = labels.lease else {
        return Ok(());
    };
    let ended = worker
        .app
        .db
        .system(SWEEP, &(labels.home, lease, generation), ended_in)
        .await?;
    if ended {
        remove(
            worker,
            container.engine,
            container.name,
            container.id,
            labels,
        )
        .await;
    }
    Ok(())
}

async fn ended_in(tx: &mut SystemTx, args: &(HomeId, LeaseId, i64)) -> Result<bool> {
    let (home, lease, generation) = *args;
    store::lease_ended_across_homes(tx, home, lease, generation).await
}
