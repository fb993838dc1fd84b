//! A look at a Team's repository outside a turn: a toolbox of its own, read-only, without a lease.
//!
//! - It runs nothing of the repository and writes nothing; a turn may write meanwhile, and then the report says so.
//! - Its container is removed with proof, also when nobody waits for the answer any more. One that could not be proven
//!   gone is met by the sweep.
//! - Few at once, each bounded in time. What is missing is named; another way is never taken instead.

use tokio::time::timeout;

use crate::app::App;
use crate::db::TenantTx;
use crate::error::{Code, Error, Result};
use crate::executor::inspecting::Means;
use crate::executor::{
    self, ContainerSpec, ExecutorError, FileIdentity, Identity, Image, Kind, Limits,
};
use crate::ids::HomeId;
use crate::repo::report::Report;
use crate::team::{self, Root, Team};
use crate::workspace::{container, root};
use crate::{limits, secret, workspace};

/// Said in the note of a report that was captured beside a turn.
const WRITTEN_MEANWHILE: &str =
    " A turn owned the workspace meanwhile: files may have changed during the capture.";

/// A Team, and whether a turn owns its workspace now.
pub async fn subject(tx: &mut TenantTx, named: &str) -> Result<(Team, bool)> {
    let team = team::show(tx, named).await?;
    let state = workspace::state_in(tx, team.id).await?;
    Ok((team, state != "free"))
}

/// Captures the repository context of a target. A dropped future leaves nothing behind.
pub async fn context(app: &App, home: HomeId, team: Team, target: String) -> Result<Report> {
    let slot = timeout(limits::INSPECTION_WAIT, app.inspecting.slot()).await;
    let Ok(Some(slot)) = slot else {
        let detail = "Too many repositories are being looked at. Try again in a moment.";
        return Err(Error::refused(Code::RateLimited, detail).with("retryAfter", 5));
    };
    let mine = app.clone();
    let looking = app.inspecting.spawn(async move {
        let report = Box::pin(look(&mine, home, &team, &target)).await;
        drop(slot);
        report
    });
    looking
        .await
        .map_err(|e| Error::internal("looking at a repository", e))?
}

/// Adds to a report that a turn was writing.
pub fn beside_a_turn(report: &mut Report) {
    report.note.push_str(WRITTEN_MEANWHILE);
}

async fn look(app: &App, home: HomeId, team: &Team, target: &str) -> Result<Report> {
    let away = |error: ExecutorError| not_ready("executor", error.to_string());
    let means = app.inspecting.means().ok_or_else(|| {
        let detail = "The toolbox image is not there. An administrator finds the next step with `bazilion doctor`.";
        not_ready("images", detail.into())
    })?;
    let engine = app.executor.probe().await.map_err(away)?;
    let image = app.executor.image(&means.toolbox_image).await;
    let image = image.map_err(|error| not_ready("images", error.to_string()))?;
    let spec = spec(app, means, home, team, &image).await?;
    let mut identity = Identity {
        engine: engine.id,
        name: spec.name.clone(),
        id: None,
        labels: spec.labels.clone(),
    };
    let report = match app.executor.create(&spec).await {
        Ok(created) => {
            identity.id = Some(created.id);
            capture(app, &spec, &identity, team, target).await
        }
        Err(error) if !error.may_have_happened() => return Err(away(error)),
        Err(error) => Err(away(error)),
    };
    if let Err(uncertain) = app.executor.remove(&identity).await {
        tracing::warn!(
            name = identity.name,
            reason = uncertain.reason,
            "the container of an inspection may be left"
        );
    }
    report
}

async fn capture(
    app: &App,
    spec: &ContainerSpec,
    identity: &Identity,
    team: &Team,
    target: &str,
) -> Result<Report> {
    let captured = timeout(limits::INSPECTION_TIME, async {
        let Some(id) = &identity.id else {
            return Err("it was not made".to_owned());
        };
        let attached = app.executor.open(id, spec).await;
        let toolbox = container::toolbox(attached.map_err(|e| e.to_string())?);
        let report = toolbox.context(&team.id.to_string(), target, None).await;
        report.map_err(|e| e.to_string())
    })
    .await
    .unwrap_or_else(|_| Err("it took too long".to_owned()));
    captured.map_err(|why| {
        tracing::warn!(why, "an inspection has no answer");
        let detail = "The toolbox did not answer. Try again; the server's log says why.";
        not_ready("executor", detail.into())
    })
}

async fn spec(
    app: &App,
    means: &Means,
    home: HomeId,
    team: &Team,
    image: &Image,
) -> Result<ContainerSpec> {
    let directory = team
        .root
        .directory(&app.config.workspace_base, home, team.id);
    let (is_managed, owner) = (matches!(team.root, Root::Managed), means.user);
    let prepared =
        tokio::task::spawn_blocking(move || root::prepare(&directory, is_managed, owner)).await;
    let (root, user) = prepared
        .map_err(|e| Error::internal("looking at a workspace root", e))?
        .map_err(|unusable| not_ready(unusable.code(), unusable.to_string()))?;
    let name = secret::random::<16>()
        .map_err(|e| Error::internal("naming an inspection's container", e))?;
    Ok(ContainerSpec {
        name: format!("bazilion-{}", hex::encode(name)),
        kind: Kind::Toolbox,
        image: image.id.clone(),
        user,
        workspace: executor::Workspace {
            path: root.path,
            identity: FileIdentity {
                device: root.root.device,
                inode: root.root.inode,
            },
            writable: false,
        },
        mounts: Vec::new(),
        limits: Limits::from(&app.config.executor),
        labels: app.inspecting.labels(means, home, team.id),
    })
}

fn not_ready(missing: &str, detail: String) -> Error {
    Error::refused(Code::NotReady, detail).with("missing", missing)
}
