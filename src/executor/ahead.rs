//! One container of a turn, started before its command is known: starting one is most of what a command costs.
//!
//! - It is a recorded resource like every other: the caller records the name, creates, records the id and opens, and only
//!   then keeps it here.
//! - It serves one command or none. What is not taken is removed with proof at the end of the turn.
//! - It is given out only for a command that wants exactly this container, on a workspace that is still the same directory.

use super::docker::identity_of;
use super::{Attached, ContainerSpec, Created, Identity};

/// A started container that waits for a command.
#[derive(Debug)]
pub struct Prepared {
    pub spec: ContainerSpec,
    pub created: Created,
    pub attached: Attached,
}

impl Prepared {
    /// By what it is removed.
    pub fn identity(&self) -> Identity {
        Identity {
            engine: self.created.engine.clone(),
            name: self.spec.name.clone(),
            id: Some(self.created.id.clone()),
            labels: self.spec.labels.clone(),
        }
    }
}

/// What was asked of the container kept ahead.
#[derive(Debug)]
pub enum Taken {
    /// Nothing was kept.
    Nothing,
    /// It fits: hand the command over.
    Fits(Box<Prepared>),
    /// It was made for something else. Its input is closed, so it ends by itself; it must still be removed.
    Stale(Box<Identity>),
}

/// Room for one.
#[derive(Debug, Default)]
pub struct Ahead {
    kept: Option<Prepared>,
}

impl Ahead {
    /// Keeps a container. An earlier one comes back, to be removed.
    pub fn keep(&mut self, prepared: Prepared) -> Option<Identity> {
        self.kept
            .replace(prepared)
            .map(|earlier| earlier.identity())
    }

    /// Takes the container for a command with this specification; name and receipt are the container's own.
    pub async fn take(&mut self, wanted: &ContainerSpec) -> Taken {
        let Some(prepared) = self.kept.take() else {
            return Taken::Nothing;
        };
        let root = identity_of(&wanted.workspace.path).await;
        if same(&prepared.spec, wanted) && root == Some(wanted.workspace.identity) {
            Taken::Fits(Box::new(prepared))
        } else {
            Taken::Stale(Box::new(prepared.identity()))
        }
    }

    /// The turn ends: what is left must be removed.
    pub fn discard(&mut self) -> Option<Identity> {
        self.kept.take().map(|prepared| prepared.identity())
    }
}

fn same(kept: &ContainerSpec, wanted: &ContainerSpec) -> bool {
    let mut comparable = wanted.clone();
    comparable.name.clone_from(&kept.name);
    comparable.labels.receipt = kept.labels.receipt;
    *kept == comparable
}
