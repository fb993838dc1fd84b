//! The one state of a process: what every handler and every loop is given. It knows ports, not features.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::Config;
use crate::db::Db;
use crate::db::wake::Wakes;
use crate::executor::Executor;
use crate::executor::inspecting::Inspecting;
use crate::readiness;
use crate::runtime::AgentRuntime;
use crate::secret::MasterKey;

/// Cheap to clone; the axum state.
#[derive(Clone)]
pub struct App {
    pub db: Db,
    pub wakes: Wakes,
    pub clock: Arc<dyn Clock>,
    pub executor: Arc<dyn Executor>,
    pub runtime: Arc<dyn AgentRuntime>,
    pub config: Arc<Config>,
    pub master: Arc<MasterKey>,
    /// What the instance needs, as last seen.
    pub readiness: readiness::Shared,
    /// What looks at repositories outside turns need.
    pub inspecting: Inspecting,
    /// Cancelled when the process begins to stop; long answers end then.
    pub stopping: CancellationToken,
}
