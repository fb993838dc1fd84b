//! The Docker Engine as executor, over its local socket.
//!
//! - Every call is bounded; a call without an answer is reported as such and never as a failure that did not happen.
//! - Containers are made with [`body`], which holds the whole posture, from an image id, without network, and never with
//!   a pull: the engine's `create` call does not pull, and no other call of ours that could is made here.
//! - Attach comes before start: output of a container attached later can be lost.

mod body;
mod remove;
mod stream;

pub(super) use body::TOOLBOX;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bollard::errors::Error as EngineError;
use bollard::models::SystemInfo;
use bollard::query_parameters::{
    AttachContainerOptionsBuilder, CreateContainerOptionsBuilder, KillContainerOptionsBuilder,
    ListContainersOptionsBuilder, StartContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::{Mutex, OnceCell};
use uuid::Uuid;

use super::labels;
use super::{
    Attached, CleanupProof, CleanupUncertain, ContainerId, ContainerSpec, Created, EngineId,
    EngineReport, Executor, ExecutorError, FileIdentity, Found, Frame, Identity, Image, Kind,
    Restriction, Running, Workspace,
};
use crate::limits::{ENGINE_CALL_TIMEOUT, ENGINE_START_TIMEOUT};

/// Where the engine is, and what of ours its containers mount.
#[derive(Debug, Clone)]
pub struct DockerConfig {
    /// Path of the engine's socket.
    pub socket: PathBuf,
    /// A directory on the executor that belongs to us; account files of containers are laid out in it.
    pub base: PathBuf,
    /// Our static program, on the executor: process 1 of command containers.
    pub toolbox_program: PathBuf,
    /// Name of another runtime that the engine knows; it is never replaced by the default one.
    pub runtime: Option<String>,
}

/// The engine behind one socket. Connects at the first call, so that a server can start while the engine is away.
pub struct DockerExecutor {
    config: DockerConfig,
    engine: OnceCell<Docker>,
    seen: Mutex<Option<EngineId>>,
}

impl DockerExecutor {
    pub fn new(config: DockerConfig) -> Self {
        Self {
            config,
            engine: OnceCell::new(),
            seen: Mutex::new(None),
        }
    }

    /// The client of the engine's interface, for building images.
    pub(super) async fn engine(&self) -> Result<&Docker, ExecutorError> {
        self.engine.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Docker, ExecutorError> {
        let away = |_| {
            ExecutorError::Blocked(
                "The container engine is away: its socket cannot be reached.".into(),
            )
        };
        let socket = self.config.socket.to_str().unwrap_or_default();
        let seconds = ENGINE_START_TIMEOUT.as_secs();
        let docker =
            Docker::connect_with_unix(socket, seconds, API_DEFAULT_VERSION).map_err(away)?;
        bounded("version", docker.negotiate_version())
            .await
            .map_err(away_of)
    }

    async fn info(&self) -> Result<SystemInfo, ExecutorError> {
        let info = bounded("info", self.engine().await?.info()).await?;
        let id = EngineId(info.id.clone().unwrap_or_default());
        *self.seen.lock().await = Some(id);
        Ok(info)
    }

    async fn engine_id(&self) -> Result<EngineId, ExecutorError> {
        if let Some(id) = self.seen.lock().await.clone() {
            return Ok(id);
        }
        Ok(EngineId(self.info().await?.id.unwrap_or_default()))
    }
}

#[async_trait::async_trait]
impl Executor for DockerExecutor {
    async fn probe(&self) -> Result<EngineReport, ExecutorError> {
        let info = self.info().await?;
        refuse_kind(&info, self.config.runtime.as_deref())?;
        Ok(EngineReport {
            id: EngineId(info.id.clone().unwrap_or_default()),
            version: info.server_version.clone().unwrap_or_default(),
            runtime: self
                .config
                .runtime
                .clone()
                .or_else(|| info.default_runtime.clone())
                .unwrap_or_default(),
            restrictions: missing_limits(&info),
        })
    }

    async fn image(&self, reference: &str) -> Result<Image, ExecutorError> {
        let engine = self.engine().await?;
        let image = match bounded("inspect image", engine.inspect_image(reference)).await {
            Err(ExecutorError::Refused { status: 404, .. }) => {
                return Err(ExecutorError::Blocked(format!(
                    "The image {reference} is missing on the executor; it is never pulled."
                )));
            }
            other => other?,
        };
        let volumes = image.config.and_then(|c| c.volumes).unwrap_or_default();
        if !volumes.is_empty() {
            return Err(ExecutorError::Blocked(format!(
                "The image {reference} declares volumes; they would be writable places outside the workspace."
            )));
        }
        let id = image.id.unwrap_or_default();
        Ok(Image {
            reference: reference.into(),
            id,
        })
    }

    async fn create(&self, spec: &ContainerSpec) -> Result<Created, ExecutorError> {
        if spec.user.uid == 0 {
            return Err(ExecutorError::Blocked(
                "Containers never run as root.".into(),
            ));
        }
        self.image(&spec.image).await?;
        same_directory(&spec.workspace).await?;
        let engine = self.engine_id().await?;
        let body = body::container(&self.config, spec).await?;
        let options = CreateContainerOptionsBuilder::default()
            .name(&spec.name)
            .build();
        let create = self.engine().await?.create_container(Some(options), body);
        let made = match bounded("create", create).await {
            Err(ExecutorError::Refused {
                status: 400 | 404,
                message,
                ..
            }) => {
                return Err(ExecutorError::Blocked(message));
            }
            other => other?,
        };
        let id = ContainerId::parse(&made.id).ok_or_else(|| ExecutorError::Unanswered {
            call: "create",
            message: "the answer holds no full container id".into(),
        })?;
        let restrictions = made.warnings.into_iter().map(|text| Restriction {
            code: "limit_discarded",
            text,
        });
        Ok(Created {
            id,
            engine,
            restrictions: restrictions.collect(),
        })
    }

    async fn open(
        &self,
        id: &ContainerId,
        spec: &ContainerSpec,
    ) -> Result<Attached, ExecutorError> {
        let engine = self.engine().await?;
        let options = AttachContainerOptionsBuilder::default()
            .stream(true)
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .build();
        let io = bounded(
            "attach",
            engine.attach_container(id.as_str(), Some(options)),
        )
        .await?;
        same_directory(&spec.workspace).await?;
        let start = engine.start_container(id.as_str(), None::<StartContainerOptions>);
        match within(ENGINE_START_TIMEOUT, "start", start).await {
            Err(ExecutorError::Refused { message, .. }) => {
                return Err(ExecutorError::Blocked(message));
            }
            other => other?,
        }
        let attached = stream::attached(id.clone(), io);
        match spec.kind {
            Kind::Toolbox => Ok(attached),
            Kind::Command => stream::until_ready(attached, spec).await,
        }
    }

    async fn run(&self, attached: Attached, frame: &Frame) -> Result<Running, ExecutorError> {
        stream::run(self.engine().await?.clone(), attached, frame).await
    }

    async fn kill(&self, id: &ContainerId) -> Result<(), ExecutorError> {
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        let kill = self
            .engine()
            .await?
            .kill_container(id.as_str(), Some(options));
        match bounded("kill", kill).await {
            // Not there, or not running: there is nothing to end.
            Ok(())
            | Err(ExecutorError::Refused {
                status: 404 | 409, ..
            }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, identity: &Identity) -> Result<CleanupProof, CleanupUncertain> {
        Box::pin(remove::remove(self, identity)).await
    }

    async fn list_ours(&self, instance: Uuid) -> Result<Vec<Found>, ExecutorError> {
        let engine = EngineId(self.info().await?.id.unwrap_or_default());
        let product = format!("{}={}", labels::PRODUCT, labels::PRODUCT_VALUE);
        let ours = format!("{}={instance}", labels::INSTANCE);
        let filters = HashMap::from([("label".to_owned(), vec![product, ours])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filters)
            .build();
        let listed = bounded("list", self.engine().await?.list_containers(Some(options))).await?;
        Ok(listed
            .into_iter()
            .filter_map(|summary| found(&engine, summary))
            .collect())
    }
}

fn found(engine: &EngineId, summary: bollard::models::ContainerSummary) -> Option<Found> {
    use bollard::models::ContainerSummaryStateEnum::{PAUSED, RESTARTING, RUNNING};
    let name = summary
        .names
        .unwrap_or_default()
        .into_iter()
        .next()
        .unwrap_or_default();
    Some(Found {
        engine: engine.clone(),
        id: ContainerId::parse(&summary.id?)?,
        name: name.trim_start_matches('/').to_owned(),
        running: matches!(summary.state, Some(RUNNING | PAUSED | RESTARTING)),
        labels: labels::read(&summary.labels.unwrap_or_default()),
    })
}

/// Refuses engines that map user ids: files in the workspace would belong to somebody else.
fn refuse_kind(info: &SystemInfo, runtime: Option<&str>) -> Result<(), ExecutorError> {
    let blocked = |text: &str| Err(ExecutorError::Blocked(text.into()));
    if info.os_type.as_deref() != Some("linux") {
        return blocked("The container engine does not run Linux containers.");
    }
    let options = info.security_options.iter().flatten();
    for option in options {
        if option.contains("name=rootless") || option.contains("name=userns") {
            return blocked(
                "The container engine maps user ids (rootless, or user namespace remapping): files that commands make \
                 would not belong to the workspace's owner.",
            );
        }
    }
    match (runtime, &info.runtimes) {
        (Some(name), Some(known)) if !known.contains_key(name) => blocked(&format!(
            "The container engine has no runtime named {name}; no other is taken instead."
        )),
        _ => Ok(()),
    }
}

/// Limits that this engine can not hold, each by name.
fn missing_limits(info: &SystemInfo) -> Vec<Restriction> {
    let seccomp = info
        .security_options
        .iter()
        .flatten()
        .any(|option| option.contains("name=seccomp") && !option.contains("unconfined"));
    [
        (
            info.memory_limit,
            "memory_unlimited",
            "The engine cannot limit memory.",
        ),
        (
            info.swap_limit,
            "swap_unlimited",
            "The engine cannot limit swap.",
        ),
        (
            info.pids_limit,
            "pids_unlimited",
            "The engine cannot limit the number of processes.",
        ),
        (
            info.cpu_cfs_quota,
            "cpu_unlimited",
            "The engine cannot limit processor time.",
        ),
        (
            Some(seccomp),
            "no_seccomp",
            "The engine filters no system calls.",
        ),
    ]
    .into_iter()
    .filter(|(held, ..)| *held == Some(false))
    .map(|(_, code, text)| Restriction {
        code,
        text: text.into(),
    })
    .collect()
}

/// The admitted root is still the directory at its path.
async fn same_directory(workspace: &Workspace) -> Result<(), ExecutorError> {
    match identity_of(&workspace.path).await {
        Some(identity) if identity == workspace.identity => Ok(()),
        Some(_) => Err(ExecutorError::Blocked(
            "The Team's root was replaced since the turn was admitted.".into(),
        )),
        None => Err(ExecutorError::Blocked(
            "The Team's root is no longer a directory on the executor.".into(),
        )),
    }
}

/// The directory at a path; the last component is not followed when it is a link.
pub async fn identity_of(path: &Path) -> Option<FileIdentity> {
    let metadata = tokio::fs::symlink_metadata(path).await.ok()?;
    metadata.is_dir().then(|| FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// One call to the engine, bounded, with its error told apart: refused, or not answered.
pub(super) async fn bounded<T>(
    call: &'static str,
    future: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, ExecutorError> {
    within(ENGINE_CALL_TIMEOUT, call, future).await
}

async fn within<T>(
    limit: std::time::Duration,
    call: &'static str,
    future: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, ExecutorError> {
    match tokio::time::timeout(limit, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(EngineError::DockerResponseServerError {
            status_code,
            message,
        })) => Err(ExecutorError::Refused {
            call,
            status: status_code,
            message,
        }),
        Ok(Err(error)) => Err(ExecutorError::Unanswered {
            call,
            message: chain(&error),
        }),
        Err(_) => Err(ExecutorError::Unanswered {
            call,
            message: format!("no answer within {} s", limit.as_secs()),
        }),
    }
}

fn away_of(error: ExecutorError) -> ExecutorError {
    ExecutorError::Blocked(format!("The container engine is away: {error}."))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
