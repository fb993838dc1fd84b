//! Who owns a directory tree: leases of workspaces, and what must be proven before one ends.
//!
//! - At most one turn owns a tree, across homes, Teams, spellings, parents and children ([`RootIdentity`]).
//! - Whatever could still write is recorded before it is made, and gone only by a [`CleanupProof`].
//! - A lease ends only when every recorded resource is proven gone; the database refuses anything else. Until then it
//!   is `recovery`, with the reason, and blocks.
//! - A lease is ended by its own id: a late second finish cannot free a later one.
//! - Who holds it is told inside its home only; outside it is *in use elsewhere on this executor*.

pub mod api;
pub mod container;
pub mod identity;
pub mod liveness;
pub mod recovery;
pub mod root;
pub(crate) mod store;

use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::db::{Db, Op, SystemTx, TenantTx};
use crate::error::{Code, Error, Result};
use crate::executor::{CleanupProof, ContainerId, EngineId, Labels};
use crate::identity::Caller;
use crate::ids::{
    AgentId, HomeId, IncarnationId, LeaseId, OperatorId, ReceiptId, ResourceId, TeamId, TurnId,
};
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

pub use identity::{DirectoryId, RootIdentity};
pub use liveness::Liveness;

const ACQUIRE: Op = Op::serializable("workspace.acquire");
const RECORD: Op = Op::locking("workspace.record");
const BIND: Op = Op::locking("workspace.bind");
const CONFIRM: Op = Op::locking("workspace.confirm");
const RELEASE: Op = Op::locking("workspace.release");
const BLOCK: Op = Op::locking("workspace.block");
const LIST: Op = Op::locking("workspace.list");
const ACKNOWLEDGE: Op = Op::locking("workspace.acknowledge");

/// What taking a lease needs. Ids are minted before.
#[derive(Debug, Clone)]
pub struct Acquire {
    pub home: HomeId,
    pub lease: LeaseId,
    pub team: TeamId,
    pub agent: AgentId,
    pub turn: TurnId,
    pub executor: String,
    pub root: RootIdentity,
    pub incarnation: IncarnationId,
    pub instance: Uuid,
    pub generation: i64,
}

/// A lease that this process took. Only [`acquire`] makes one.
#[derive(Debug, Clone)]
pub struct LeaseHeld {
    home: HomeId,
    id: LeaseId,
    team: TeamId,
    agent: AgentId,
    turn: TurnId,
    incarnation: IncarnationId,
    instance: Uuid,
    generation: i64,
}

impl LeaseHeld {
    pub fn id(&self) -> LeaseId {
        self.id
    }

    pub fn turn(&self) -> TurnId {
        self.turn
    }

    /// The labels of everything made under this lease.
    pub fn labels(&self) -> Labels {
        Labels {
            instance: self.instance,
            generation: self.generation,
            home: self.home,
            team: self.team,
            agent: Some(self.agent),
            lease: Some(self.id),
            receipt: None,
            owner: self.incarnation,
        }
    }
}

/// State of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Active,
    Recovery,
}

/// A lease as people see it: who, since when, and what is not proven gone.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    pub id: LeaseId,
    pub team_id: TeamId,
    pub agent_id: AgentId,
    pub turn_id: TurnId,
    pub state: State,
    pub reason: Option<String>,
    /// The record came with a restored database: it permits ending nothing.
    pub restored: bool,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub acquired_at: OffsetDateTime,
    pub resources: Vec<Resource>,
    #[serde(skip)]
    held: LeaseHeld,
}

impl Lease {
    /// Its owner, to compare with the living.
    pub fn incarnation(&self) -> IncarnationId {
        self.held.incarnation
    }

    pub fn generation(&self) -> i64 {
        self.held.generation
    }
}

/// What runs, or may run, under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResourceKind {
    Command,
    Toolbox,
    Process,
}

impl ResourceKind {
    fn as_str(self) -> &'static str {
        match self {
            ResourceKind::Command => "command",
            ResourceKind::Toolbox => "toolbox",
            ResourceKind::Process => "process",
        }
    }
}

/// How far a resource came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResourceState {
    /// Named; whether it exists is unknown.
    Recorded,
    Created,
    Started,
    Removed,
}

/// A recorded container or host process.
#[derive(Debug, Clone, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub id: ResourceId,
    pub kind: ResourceKind,
    pub name: String,
    pub container_id: Option<String>,
    pub state: ResourceState,
    #[serde(skip)]
    engine: Option<EngineId>,
    #[serde(skip)]
    receipt: Option<ReceiptId>,
    #[serde(skip)]
    process: Option<recovery::HostProcess>,
}

/// A container to be recorded before it is made.
#[derive(Debug, Clone)]
pub struct NewContainer {
    pub id: ResourceId,
    pub kind: ResourceKind,
    pub name: String,
    pub engine: EngineId,
    pub receipt: Option<ReceiptId>,
}

/// Takes a lease, or refuses with `workspace_busy` (a living turn owns an overlapping tree) or
/// `workspace_recovery_required` (its owner is gone, or its cleanup is not proven).
pub async fn acquire(db: &Db, acquire: &Acquire) -> Result<LeaseHeld> {
    db.system(ACQUIRE, acquire, acquire_in).await
}

async fn acquire_in(tx: &mut SystemTx, acquire: &Acquire) -> Result<LeaseHeld> {
    store::lock_executor_across_homes(tx, &acquire.executor).await?;
    let mut holders = store::holders_across_homes(tx, &acquire.executor).await?;
    // What needs a person is said before what only needs patience.
    holders.sort_by_key(|holder| !holder.needs_recovery);
    if let Some(holder) = holders
        .iter()
        .find(|holder| holder.root.overlaps(&acquire.root))
    {
        return Err(in_use(holder, acquire.home));
    }
    store::insert_lease_across_homes(tx, acquire).await?;
    Ok(LeaseHeld {
        home: acquire.home,
        id: acquire.lease,
        team: acquire.team,
        agent: acquire.agent,
        turn: acquire.turn,
        incarnation: acquire.incarnation,
        instance: acquire.instance,
        generation: acquire.generation,
    })
}

/// The holder is named inside its own home only.
fn in_use(holder: &store::Holder, asking: HomeId) -> Error {
    let (code, what) = if holder.needs_recovery {
        (
            Code::WorkspaceRecoveryRequired,
            "The workspace needs recovery: what ran in it is not proven to be gone.",
        )
    } else {
        (
            Code::WorkspaceBusy,
            "Another turn owns the workspace; it is free when that turn has ended.",
        )
    };
    if holder.home != asking {
        return Error::refused(
            code,
            format!("{what} It is in use elsewhere on this executor."),
        );
    }
    let since = holder
        .acquired_at
        .format(&time::format_description::well_known::Rfc3339);
    Error::refused(code, what).with(
        "holder",
        json!({
            "leaseId": holder.id,
            "teamId": holder.team,
            "agentId": holder.agent,
            "turnId": holder.turn,
            "since": since.unwrap_or_default(),
        }),
    )
}

/// Records a container before it is made. Refused when the lease is no longer active: nothing is attached late.
pub async fn record(db: &Db, caller: &Caller, lease: &LeaseHeld, new: &NewContainer) -> Result<()> {
    db.transact(caller, RECORD, &(lease, new), record_in).await
}

async fn record_in(tx: &mut TenantTx, args: &(&LeaseHeld, &NewContainer)) -> Result<()> {
    let (lease, new) = *args;
    store::lock_active(tx, lease).await?;
    store::insert_container(tx, lease, new).await
}

/// The engine acknowledged the container. From here on it is known by its full id.
pub async fn bind(
    db: &Db,
    caller: &Caller,
    lease: &LeaseHeld,
    id: ResourceId,
    container: &ContainerId,
) -> Result<()> {
    db.transact(caller, BIND, &(lease, id, container), bind_in)
        .await
}

async fn bind_in(tx: &mut TenantTx, args: &(&LeaseHeld, ResourceId, &ContainerId)) -> Result<()> {
    let (lease, id, container) = *args;
    store::lock_active(tx, lease).await?;
    store::set_created(tx, lease.id, id, container).await
}

/// Demands, inside a transaction, that the lease still is this turn's, and active.
pub async fn require_active_in(tx: &mut TenantTx, lease: &LeaseHeld) -> Result<()> {
    store::lock_active(tx, lease).await
}

/// Sets that a container may be running; inside the transaction that records its command.
pub async fn mark_started_in(tx: &mut TenantTx, lease: &LeaseHeld, id: ResourceId) -> Result<()> {
    store::lock_active(tx, lease).await?;
    store::set_started(tx, lease.id, id).await
}

/// The container is proven gone.
pub async fn confirm(
    db: &Db,
    caller: &Caller,
    lease: LeaseId,
    id: ResourceId,
    proof: CleanupProof,
) -> Result<()> {
    let args = (lease, id, proof);
    db.transact(
        caller,
        CONFIRM,
        &args,
        async |tx: &mut TenantTx, (lease, id, proof): &(LeaseId, ResourceId, CleanupProof)| {
            store::set_removed(tx, *lease, *id, proof).await
        },
    )
    .await
}

/// The container was never made: the engine refused its creation outright.
pub async fn never_made(db: &Db, caller: &Caller, lease: LeaseId, id: ResourceId) -> Result<()> {
    db.transact(
        caller,
        CONFIRM,
        &(lease, id),
        async |tx: &mut TenantTx, (lease, id): &(LeaseId, ResourceId)| {
            store::set_never_made(tx, *lease, *id).await
        },
    )
    .await
}

/// Ends the lease when every resource is proven gone, and says whether it did. Otherwise it stays, as `recovery`.
/// A lease that is gone already is not an error: nobody else's lease is touched.
pub async fn release(db: &Db, caller: &Caller, lease: LeaseId) -> Result<bool> {
    db.transact(
        caller,
        RELEASE,
        &lease,
        async |tx: &mut TenantTx, lease: &LeaseId| {
            let left = store::count_unproven(tx, *lease).await?;
            if left == 0 {
                store::delete_lease(tx, *lease).await?;
                return Ok(true);
            }
            store::set_recovery(
                tx,
                *lease,
                &format!("{left} resource(s) are not proven to be gone."),
            )
            .await?;
            Ok(false)
        },
    )
    .await
}

/// Blocks the workspace until recovery proves itself, or an instance admin releases it.
pub async fn block(db: &Db, caller: &Caller, lease: LeaseId, reason: &str) -> Result<()> {
    db.transact(caller, BLOCK, &(lease, reason.to_owned()), block_in)
        .await
}

async fn block_in(tx: &mut TenantTx, (lease, reason): &(LeaseId, String)) -> Result<()> {
    store::set_recovery(tx, *lease, reason).await
}

/// The leases of the home, with what is known about each.
pub async fn list(tx: &mut TenantTx, (): &()) -> Result<Vec<Lease>> {
    require(tx.caller(), Action::Read)?;
    store::list(tx).await
}

/// Whether a Team's workspace is `free`, `busy` or in `recovery`, seen from its own home.
pub async fn state_in(tx: &mut TenantTx, team: TeamId) -> Result<&'static str> {
    Ok(match store::team_state(tx, team).await? {
        None => "free",
        Some(State::Active) => "busy",
        Some(State::Recovery) => "recovery",
    })
}

/// Every lease of the instance, for whoever runs it.
pub async fn list_all(db: &Db, caller: &Caller) -> Result<Vec<(HomeId, Lease)>> {
    require(caller, Action::RunInstance)?;
    let leases = db
        .system(LIST, &(), async |tx: &mut SystemTx, (): &()| {
            store::leases_across_homes(tx).await
        })
        .await?;
    let mut all = Vec::with_capacity(leases.len());
    for (home, id) in leases {
        let inside = SystemTx::enter(home);
        let found = db.transact(
            &inside,
            LIST,
            &id,
            async |tx: &mut TenantTx, id: &LeaseId| store::find(tx, *id).await,
        );
        // A lease that ended meanwhile is no finding.
        match found.await {
            Ok(lease) => all.push((home, lease)),
            Err(error) if error.code() == Code::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Ends a lease that cannot prove itself, on the word of an instance admin who saw the evidence. Only in `recovery`,
/// and audited in the home with that evidence.
pub async fn acknowledge(db: &Db, caller: &Caller, lease: LeaseId) -> Result<()> {
    require(caller, Action::RunInstance)?;
    let home = db
        .system(LIST, &lease, async |tx: &mut SystemTx, lease: &LeaseId| {
            store::home_across_homes(tx, *lease).await
        })
        .await?;
    let inside = SystemTx::enter(home);
    db.transact(
        &inside,
        ACKNOWLEDGE,
        &(lease, caller.operator()),
        acknowledge_in,
    )
    .await
}

async fn acknowledge_in(tx: &mut TenantTx, args: &(LeaseId, Option<OperatorId>)) -> Result<()> {
    let (id, operator) = *args;
    let lease = store::find(tx, id).await?;
    if lease.state != State::Recovery {
        return Err(Error::refused(
            Code::WorkspaceBusy,
            "A living turn owns this workspace. Stop the turn; only a lease in recovery can be released.",
        ));
    }
    store::delete_acknowledged(tx, id).await?;
    let mut act = Act::ok("workspace.release", id);
    act.detail =
        json!({"reason": lease.reason, "resources": lease.resources, "operatorId": operator});
    audit::record(tx, &act).await
}

/// The database was restored: every lease in it is blocked until an instance admin releases it by hand.
pub async fn restored_across_homes(tx: &mut SystemTx) -> Result<()> {
    let reason = "The database was restored; what its record names may belong to the original.";
    store::restore_leases_across_homes(tx, reason).await
}
