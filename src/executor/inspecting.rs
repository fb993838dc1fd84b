//! What inspections outside a turn share in one process: what their containers are made from, how many there are at
//! once, and which of them still have something to remove.
//!
//! - They have no lease. Their labels say the instance and a process, so that a sweep can tell what was left behind.
//! - The process waits for every one of them before it ends ([`Inspecting::finish`]).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::{Labels, User};
use crate::ids::{HomeId, IncarnationId, TeamId};
use crate::limits::INSPECTIONS_AT_ONCE;

/// What a toolbox of an inspection is made from. Known once the process has looked at its engine.
#[derive(Debug, Clone)]
pub struct Means {
    /// Reference of the image that holds only the toolbox. Empty when it could not be prepared.
    pub toolbox_image: String,
    /// Owner of managed workspaces.
    pub user: User,
    pub instance: Uuid,
    pub generation: i64,
}

/// Cheap to clone. The default has no means: nothing can be inspected.
#[derive(Debug, Clone)]
pub struct Inspecting {
    means: Option<Arc<Means>>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    owner: IncarnationId,
}

impl Default for Inspecting {
    fn default() -> Self {
        Self {
            means: None,
            slots: Arc::new(Semaphore::new(INSPECTIONS_AT_ONCE)),
            tasks: TaskTracker::new(),
            owner: IncarnationId::new(),
        }
    }
}

impl Inspecting {
    pub fn with(means: Means) -> Self {
        Self {
            means: Some(Arc::new(means)),
            ..Self::default()
        }
    }

    /// `None` when there is no toolbox image in this process.
    pub fn means(&self) -> Option<&Means> {
        let means = self.means.as_deref();
        means.filter(|means| !means.toolbox_image.is_empty())
    }

    /// One of the few places; waits for it.
    pub async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        self.slots.clone().acquire_owned().await.ok()
    }

    /// Runs work that must reach its end, whoever still waits for its answer.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.tasks.spawn(work)
    }

    /// Labels of a container of a Team, without a lease.
    pub fn labels(&self, means: &Means, home: HomeId, team: TeamId) -> Labels {
        Labels {
            instance: means.instance,
            generation: means.generation,
            home,
            team,
            agent: None,
            lease: None,
            receipt: None,
            owner: self.owner,
        }
    }

    /// Waits until nothing of this process is left to remove.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
