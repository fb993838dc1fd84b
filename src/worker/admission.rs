//! What a turn is admitted into: posture, image, user, its workspace lease, its toolbox, the root's instructions.
//!
//! - Nothing falls back: what is missing is named, and the item waits or fails.
//! - The lease is taken first; everything made after it is recorded under it, and ended with it.
//! - The root's identity is pinned here for the whole turn.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use tokio_util::io::StreamReader;

use super::Worker;
use super::facts::Facts;
use crate::coding::session::Admitted;
use crate::config;
use crate::error::{Code, Error};
use crate::executor::{
    self, Attached, Chunk, ContainerSpec, EngineReport, ExecutorError, FileIdentity, Identity,
    Image, Kind, Limits, User,
};
use crate::identity::Caller;
use crate::ids::{HomeId, LeaseId, ResourceId, TurnId};
use crate::queue::model::{Diagnostic, WaitingFor};
use crate::repo::report::{Report, State};
use crate::toolbox::Toolbox;
use crate::turn::Posture;
use crate::workspace::container::{Made, Making, NotMade};
use crate::workspace::{self, Acquire, LeaseHeld, RootIdentity};

/// Why a claim is not started.
#[derive(Debug)]
pub enum NotAdmitted {
    /// It goes back, and waits for this.
    Wait(WaitingFor),
    /// It would fail for every item alike.
    Unprepared(Diagnostic),
    /// The record could not be kept; nothing is known to have started.
    Failed(Error),
}

impl From<Error> for NotAdmitted {
    fn from(error: Error) -> Self {
        match error.code() {
            Code::WorkspaceBusy => NotAdmitted::Wait(WaitingFor::Workspace),
            Code::WorkspaceRecoveryRequired => NotAdmitted::Wait(WaitingFor::Recovery),
            _ => NotAdmitted::Failed(error),
        }
    }
}

/// An admitted turn, before its start record.
pub struct Admission {
    pub lease: LeaseHeld,
    pub admitted: Admitted,
    pub toolbox: Toolbox,
    pub toolbox_container: (ResourceId, Identity),
    pub report: Report,
}

/// Admits a turn. On refusal nothing is left but what recovery already knows of.
pub async fn admit(
    worker: &Worker,
    caller: &Caller,
    facts: &Facts,
    posture: Posture,
    turn: TurnId,
) -> Result<Admission, NotAdmitted> {
    if posture == Posture::Host {
        // No adapter runs commands on the host in this build; another posture is never taken instead.
        return Err(NotAdmitted::Wait(WaitingFor::Executor));
    }
    let directory = facts.team.root.directory(
        &worker.app.config.workspace_base,
        caller.home(),
        facts.team.id,
    );
    let managed = matches!(facts.team.root, crate::team::Root::Managed);
    let owner = worker.settings.user;
    let (root, user) = tokio::task::spawn_blocking(move || look(&directory, managed, owner))
        .await
        .map_err(|e| Error::internal("looking at a workspace root", e))?
        .map_err(NotAdmitted::Unprepared)?;
    let (engine, image, toolbox_image) = engine(worker, facts, posture).await?;
    let lease = workspace::acquire(
        &worker.app.db,
        &asked(worker, caller.home(), facts, turn, root.clone()),
    )
    .await?;
    let admitted = Admitted {
        posture,
        image,
        engine: engine.id,
        restrictions: engine.restrictions,
        user,
        workspace: executor::Workspace {
            path: root.path,
            identity: FileIdentity {
                device: root.root.device,
                inode: root.root.inode,
            },
            writable: true,
        },
        mounts: Vec::new(),
        limits: limits(&worker.app.config.executor),
        defaults: facts.defaults_for(posture),
        defaults_revision: facts
            .defaults
            .as_ref()
            .map_or(0, |defaults| defaults.revision),
        root_identity: String::new(),
    };
    let opened = open(worker, caller, facts, &lease, admitted, toolbox_image).await;
    opened.map(|(admitted, toolbox, toolbox_container, report)| Admission {
        lease,
        admitted,
        toolbox,
        toolbox_container,
        report,
    })
}

fn limits(config: &config::Executor) -> Limits {
    Limits {
        memory_bytes: config.memory_bytes,
        milli_cpus: config.milli_cpus,
        pids: config.pids,
        tmp_bytes: config.tmp_bytes,
    }
}

fn asked(
    worker: &Worker,
    home: HomeId,
    facts: &Facts,
    turn: TurnId,
    root: RootIdentity,
) -> Acquire {
    Acquire {
        home,
        lease: LeaseId::new(),
        team: facts.team.id,
        agent: facts.agent.id,
        turn,
        executor: facts.team.executor.clone(),
        root,
        incarnation: worker.incarnation.id,
        instance: worker.instance,
        generation: worker.incarnation.generation,
    }
}

/// Resolves the root and the user that commands run as; makes a managed root.
fn look(directory: &Path, managed: bool, owner: User) -> Result<(RootIdentity, User), Diagnostic> {
    let unusable = |_| {
        Diagnostic::new(
            "root_unusable",
            "The Team's root directory is missing or cannot be read. Mend it, then resume.",
        )
    };
    if managed {
        make_managed(directory, owner).map_err(unusable)?;
    }
    let root = RootIdentity::capture(directory).map_err(unusable)?;
    if managed {
        return Ok((root, owner));
    }
    let meta = std::fs::metadata(&root.path).map_err(unusable)?;
    if meta.uid() == 0 {
        let text = format!(
            "The linked directory belongs to root, and commands never run as root. Give it to an ordinary user: \
             chown -R {}:{} DIRECTORY, then resume.",
            owner.uid, owner.gid
        );
        return Err(Diagnostic::new("root_owned", text));
    }
    let user = User {
        uid: meta.uid(),
        gid: meta.gid(),
    };
    Ok((root, user))
}

fn make_managed(directory: &Path, owner: User) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, chown};
    if directory.is_dir() {
        return Ok(());
    }
    let home: PathBuf = directory.parent().map(Path::to_owned).unwrap_or_default();
    std::fs::create_dir_all(&home)?;
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    if rustix::process::geteuid().is_root() {
        chown(directory, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(())
}

async fn engine(
    worker: &Worker,
    facts: &Facts,
    posture: Posture,
) -> Result<(EngineReport, Image, Image), NotAdmitted> {
    let away = |error: ExecutorError| {
        tracing::info!(%error, "the executor cannot take a turn");
        NotAdmitted::Wait(WaitingFor::Executor)
    };
    let executor = &worker.app.executor;
    let report = executor.probe().await.map_err(away)?;
    let saved = facts.defaults_for(posture).image;
    let reference = saved.as_deref().unwrap_or(&worker.settings.sandbox_image);
    let image = executor.image(reference).await.map_err(away)?;
    let toolbox = executor
        .image(&worker.settings.toolbox_image)
        .await
        .map_err(away)?;
    Ok((report, image, toolbox))
}

type Opened = (Admitted, Toolbox, (ResourceId, Identity), Report);

/// Starts the toolbox and captures the root's instructions. On failure the lease is released, or blocked.
async fn open(
    worker: &Worker,
    caller: &Caller,
    facts: &Facts,
    lease: &LeaseHeld,
    admitted: Admitted,
    image: Image,
) -> Result<Opened, NotAdmitted> {
    let db = &worker.app.db;
    let engine = admitted.engine.clone();
    let making = Making {
        db,
        caller,
        lease,
        executor: worker.app.executor.as_ref(),
        engine: &engine,
        life: &worker.incarnation.life,
    };
    let made = match making
        .make(toolbox_spec(&admitted, lease, &image), None)
        .await
    {
        Ok(made) => made,
        Err(why) => {
            workspace::release(db, caller, lease.id()).await?;
            tracing::warn!(?why, "a toolbox did not start");
            return Err(match why {
                NotMade::Blocked(_) => NotAdmitted::Wait(WaitingFor::Executor),
                NotMade::Uncertain(_) => NotAdmitted::Wait(WaitingFor::Recovery),
                NotMade::Failed(error) => error.into(),
            });
        }
    };
    let Made {
        resource,
        identity,
        attached,
        ..
    } = made;
    let toolbox = connect(attached);
    let captured = toolbox.context(&facts.team.id.to_string(), ".", None).await;
    match captured {
        Ok(report) if report.instructions.state == State::Complete => {
            let mut admitted = admitted;
            admitted.root_identity = report.root_identity.clone();
            Ok((admitted, toolbox, (resource, identity), report))
        }
        other => {
            drop(toolbox);
            making.end(resource, &identity).await?;
            workspace::release(db, caller, lease.id()).await?;
            Err(match other {
                Ok(report) => NotAdmitted::Unprepared(incomplete(&report)),
                Err(error) => {
                    tracing::warn!(%error, "a toolbox did not answer");
                    NotAdmitted::Wait(WaitingFor::Executor)
                }
            })
        }
    }
}

fn incomplete(report: &Report) -> Diagnostic {
    let first = report.instructions.issues.first();
    let what = first.map_or(String::new(), |issue| {
        format!(
            " {}: {}",
            issue.path.as_deref().unwrap_or("AGENTS.md"),
            issue.message
        )
    });
    let text = format!(
        "The repository's root instructions are incomplete.{what} Inspect the Team's repository context."
    );
    Diagnostic::new("instructions_incomplete", text)
}

fn toolbox_spec(admitted: &Admitted, lease: &LeaseHeld, image: &Image) -> ContainerSpec {
    ContainerSpec {
        name: String::new(),
        kind: Kind::Toolbox,
        image: image.id.clone(),
        user: admitted.user,
        workspace: admitted.workspace.clone(),
        mounts: Vec::new(),
        limits: admitted.limits,
        labels: lease.labels(),
    }
}

/// The toolbox speaks over its standard output; what it says on the other stream is for the log.
fn connect(attached: Attached) -> Toolbox {
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
