//! Making and ending a container under a lease, each step recorded before the next.
//!
//! - Name recorded → created → acknowledged → attached and started, waiting. A crash leaves a recorded thing that never
//!   ran, never an unrecorded thing that runs.
//! - Every failure ends in one of two ways: nothing was made, or its absence was proven; or the workspace is blocked.
//! - Before each engine call the process asks whether it may still act.

use futures_util::StreamExt as _;
use tokio_util::io::StreamReader;

use super::{LeaseHeld, Liveness, NewContainer, ResourceKind};
use crate::db::Db;
use crate::error::{Error, Result};
use crate::executor::{
    Attached, Chunk, ContainerSpec, EngineId, Executor, Identity, Kind, Restriction,
};
use crate::identity::Caller;
use crate::ids::{ReceiptId, ResourceId};
use crate::secret;
use crate::toolbox::Toolbox;

/// Where and under which lease containers are made.
pub struct Making<'a> {
    pub db: &'a Db,
    pub caller: &'a Caller,
    pub lease: &'a LeaseHeld,
    pub executor: &'a dyn Executor,
    pub engine: &'a EngineId,
    pub life: &'a Liveness,
}

/// A started container that waits.
pub struct Made {
    pub resource: ResourceId,
    pub identity: Identity,
    pub attached: Attached,
    pub restrictions: Vec<Restriction>,
}

/// Why there is no container.
#[derive(Debug)]
pub enum NotMade {
    /// Nothing is there; the reason is for people.
    Blocked(String),
    /// Whether something is there is unknown, and the workspace is blocked.
    Uncertain(String),
    /// The record could not be kept.
    Failed(Error),
}

impl From<Error> for NotMade {
    fn from(error: Error) -> Self {
        NotMade::Failed(error)
    }
}

/// What became of a container that was to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Confirmed,
    /// The workspace is blocked with this reason.
    Uncertain(String),
}

impl Making<'_> {
    /// Makes a container and starts its waiting process. `spec` comes without name and labels: they are set here.
    pub async fn make(
        &self,
        mut spec: ContainerSpec,
        receipt: Option<ReceiptId>,
    ) -> Result<Made, NotMade> {
        let unguessable =
            secret::random::<16>().map_err(|e| Error::internal("naming a container", e))?;
        spec.name = format!("bazilion-{}", hex::encode(unguessable));
        spec.labels = self.lease.labels();
        spec.labels.receipt = receipt;
        let new = NewContainer {
            id: ResourceId::new(),
            kind: match spec.kind {
                Kind::Command => ResourceKind::Command,
                Kind::Toolbox => ResourceKind::Toolbox,
            },
            name: spec.name.clone(),
            engine: self.engine.clone(),
            receipt,
        };
        super::record(self.db, self.caller, self.lease, &new).await?;
        self.create_and_open(&spec, new.id).await
    }

    async fn create_and_open(
        &self,
        spec: &ContainerSpec,
        resource: ResourceId,
    ) -> Result<Made, NotMade> {
        let mut identity = Identity {
            engine: self.engine.clone(),
            name: spec.name.clone(),
            id: None,
            labels: spec.labels.clone(),
        };
        if let Err(error) = self.life.check() {
            super::never_made(self.db, self.caller, self.lease.id(), resource).await?;
            return Err(error.into());
        }
        let created = match self.executor.create(spec).await {
            Ok(created) => created,
            Err(error) if !error.may_have_happened() => {
                super::never_made(self.db, self.caller, self.lease.id(), resource).await?;
                return Err(NotMade::Blocked(error.to_string()));
            }
            Err(error) => return Err(self.give_up(resource, &identity, error.to_string()).await?),
        };
        identity.id = Some(created.id.clone());
        if let Err(error) =
            super::bind(self.db, self.caller, self.lease, resource, &created.id).await
        {
            self.end(resource, &identity).await?;
            return Err(error.into());
        }
        let opened = match self.life.check() {
            Ok(()) => self
                .executor
                .open(&created.id, spec)
                .await
                .map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(attached) => Ok(Made {
                resource,
                identity,
                attached,
                restrictions: created.restrictions,
            }),
            Err(reason) => Err(self.give_up(resource, &identity, reason).await?),
        }
    }

    async fn give_up(
        &self,
        resource: ResourceId,
        identity: &Identity,
        reason: String,
    ) -> Result<NotMade> {
        Ok(match self.end(resource, identity).await? {
            Ending::Confirmed => NotMade::Blocked(reason),
            Ending::Uncertain(why) => NotMade::Uncertain(format!("{reason} {why}")),
        })
    }

    /// Removes a container with all that runs in it. Without proof the workspace is blocked.
    pub async fn end(&self, resource: ResourceId, identity: &Identity) -> Result<Ending> {
        match self.executor.remove(identity).await {
            Ok(proof) => {
                super::confirm(self.db, self.caller, self.lease.id(), resource, proof).await?;
                Ok(Ending::Confirmed)
            }
            Err(uncertain) => {
                super::block(self.db, self.caller, self.lease.id(), &uncertain.reason).await?;
                Ok(Ending::Uncertain(uncertain.reason))
            }
        }
    }
}

/// The toolbox speaks over its standard output; what it says on the other stream is for the log.
pub fn toolbox(attached: Attached) -> Toolbox {
    let Attached { input, output, .. } = attached;
    let frames = output.filter_map(async |chunk| match chunk {
        Ok(Chunk::Out(bytes)) => Some(Ok(bytes)),
        Ok(Chunk::Err(bytes)) => {
            tracing::debug!(text = %String::from_utf8_lossy(&bytes), "toolbox");
            None
        }
        Err(error) => Some(Err(error)),
    });
    Toolbox::connect(StreamReader::new(Box::pin(frames)), input)
}
