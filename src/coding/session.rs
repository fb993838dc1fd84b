//! One turn, as its coding tools see it: what it was admitted into, and the container that waits for its next command.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Mutex, broadcast};

use super::environment::Config;
use super::output::Redaction;
use super::receipt::Receipt;
use crate::db::Db;
use crate::db::wake::Wakes;
use crate::error::Result;
use crate::executor::{
    self, ContainerSpec, EngineId, Executor, Image, Kind, Labels, ReadOnlyMount, Restriction, User,
};
use crate::identity::Caller;
use crate::ids::{AgentId, IncarnationId, ReceiptId, TeamId, TurnId};
use crate::turn::Posture;
use crate::workspace::container::{Ending, Made, Making, NotMade};
use crate::workspace::{LeaseHeld, Liveness};

/// What a turn was admitted into. Nothing in it changes before the turn's end.
pub struct Admitted {
    pub posture: Posture,
    pub image: Image,
    pub engine: EngineId,
    pub restrictions: Vec<Restriction>,
    pub user: User,
    pub workspace: executor::Workspace,
    pub mounts: Vec<ReadOnlyMount>,
    pub limits: executor::Limits,
    /// The Team's saved defaults; none in the protected posture.
    pub defaults: Config,
    pub defaults_revision: i64,
    /// 64 hex digits over device and inode of the root.
    pub root_identity: String,
}

/// One turn's coding tools.
pub struct Session {
    pub db: Db,
    pub wakes: Wakes,
    pub executor: Arc<dyn Executor>,
    pub life: Arc<Liveness>,
    /// The Agent, in this turn.
    pub caller: Caller,
    pub incarnation: IncarnationId,
    pub agent: AgentId,
    pub team: TeamId,
    pub turn: TurnId,
    pub lease: LeaseHeld,
    pub admitted: Admitted,
    pub redaction: Arc<Redaction>,
    /// Receipts as they grow, for the open pages of this process.
    pub live: broadcast::Sender<Arc<Receipt>>,
    pub prepared: Mutex<Slot>,
}

/// Where the container for the next command waits.
#[derive(Default)]
pub struct Slot {
    waiting: Option<Prepared>,
    /// The turn is ending: nothing more is prepared.
    closed: bool,
}

/// A container that waits for its one command, with the id that the command's receipt will have.
pub struct Prepared {
    pub receipt: ReceiptId,
    pub made: Made,
}

impl Session {
    /// How containers of this turn are made and ended.
    pub fn making(&self) -> Making<'_> {
        Making {
            db: &self.db,
            caller: &self.caller,
            lease: &self.lease,
            executor: self.executor.as_ref(),
            engine: &self.admitted.engine,
            life: &self.life,
        }
    }

    /// Makes the container that waits for the next command, unless one waits already. A failure is no news yet: the
    /// command will meet it and say so.
    pub async fn prepare(&self) {
        let mut slot = self.prepared.lock().await;
        if slot.closed || slot.waiting.is_some() {
            return;
        }
        let receipt = ReceiptId::new();
        match self.making().make(self.spec(), Some(receipt)).await {
            Ok(made) => slot.waiting = Some(Prepared { receipt, made }),
            Err(why) => tracing::debug!(?why, "no container was prepared ahead"),
        }
    }

    /// The waiting container, or a new one for this receipt.
    pub(super) async fn take(&self) -> Option<Prepared> {
        self.prepared.lock().await.waiting.take()
    }

    /// Puts a container back that was not used. Where another took its place meanwhile, or the turn is ending, it is
    /// destroyed: nothing that was made is ever forgotten.
    pub(super) async fn put_back(&self, prepared: Option<Prepared>) -> Result<()> {
        let Some(unused) = prepared else {
            return Ok(());
        };
        {
            let mut slot = self.prepared.lock().await;
            if !slot.closed && slot.waiting.is_none() {
                slot.waiting = Some(unused);
                return Ok(());
            }
        }
        self.destroy(unused).await
    }

    pub(super) async fn make(&self, receipt: ReceiptId) -> Result<Made, NotMade> {
        self.making().make(self.spec(), Some(receipt)).await
    }

    /// Destroys the container that was not needed, and prepares no other. At the end of the turn; a preparation under
    /// way holds the slot until it is done, so none is missed.
    pub async fn discard(&self) -> Result<()> {
        let unused = {
            let mut slot = self.prepared.lock().await;
            slot.closed = true;
            slot.waiting.take()
        };
        match unused {
            Some(unused) => self.destroy(unused).await,
            None => Ok(()),
        }
    }

    async fn destroy(&self, unused: Prepared) -> Result<()> {
        let Made {
            resource,
            identity,
            attached,
            ..
        } = unused.made;
        drop(attached);
        if let Ending::Uncertain(reason) = self.making().end(resource, &identity).await? {
            tracing::warn!(reason, "a prepared container is not proven to be gone");
        }
        Ok(())
    }

    fn spec(&self) -> ContainerSpec {
        let admitted = &self.admitted;
        ContainerSpec {
            name: String::new(),
            kind: Kind::Command,
            image: admitted.image.id.clone(),
            user: admitted.user,
            workspace: admitted.workspace.clone(),
            mounts: admitted.mounts.clone(),
            limits: admitted.limits,
            labels: self.lease.labels(),
        }
    }

    /// The whole environment of a command: the fixed part, and the Team's three.
    pub(super) fn variables(&self) -> BTreeMap<String, String> {
        let mut variables = executor::base_environment();
        variables.extend(self.admitted.defaults.env.clone());
        variables
    }

    /// What a receipt says about where it ran.
    pub(super) fn describe(&self) -> Value {
        let admitted = &self.admitted;
        json!({
            "posture": admitted.posture,
            "image": {"reference": admitted.image.reference, "id": admitted.image.id},
            "rootIdentity": admitted.root_identity,
            "network": "none",
            "env": admitted.defaults.env,
            "defaultsRevision": admitted.defaults_revision,
        })
    }

    /// Labels of everything this turn makes.
    pub fn labels(&self) -> Labels {
        self.lease.labels()
    }
}
