//! What a turn is admitted into: posture, image, user, its workspace lease, its toolbox, the root's instructions.
//!
//! - Nothing falls back: what is missing is named, and the item waits or fails.
//! - The lease is taken first; everything made after it is recorded under it, and ended with it.
//! - The root's identity is pinned here for the whole turn.

use super::Worker;
use super::facts::Facts;
use crate::coding::session::Admitted;
use crate::error::{Code, Error};
use crate::executor::{
    self, ContainerSpec, EngineReport, ExecutorError, FileIdentity, Identity, Image, Kind, Limits,
};
use crate::identity::Caller;
use crate::ids::{HomeId, LeaseId, ResourceId, TurnId};
use crate::queue::model::{Diagnostic, WaitingFor};
use crate::repo::report::{Report, State};
use crate::toolbox::Toolbox;
use crate::turn::Posture;
use crate::workspace::container::{self, Made, Making, NotMade};
use crate::workspace::{self, Acquire, LeaseHeld, RootIdentity, root};

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
    let (found, user) =
        tokio::task::spawn_blocking(move || root::prepare(&directory, managed, owner))
            .await
            .map_err(|e| Error::internal("looking at a workspace root", e))?
            .map_err(|unusable| {
                NotAdmitted::Unprepared(Diagnostic::new(unusable.code(), unusable.to_string()))
            })?;
    let (engine, image, toolbox_image) = engine(worker, facts, posture).await?;
    let lease = workspace::acquire(
        &worker.app.db,
        &asked(worker, caller.home(), facts, turn, found.clone()),
    )
    .await?;
    let admitted = Admitted {
        posture,
        image,
        engine: engine.id,
        restrictions: engine.restrictions,
        user,
        workspace: executor::Workspace {
            path: found.path,
            identity: FileIdentity {
                device: found.root.device,
                inode: found.root.inode,
            },
            writable: true,
        },
        mounts: Vec::new(),
        limits: Limits::from(&worker.app.config.executor),
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
    let toolbox = container::toolbox(attached);
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
