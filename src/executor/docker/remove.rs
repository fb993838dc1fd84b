//! Removal with proof.
//!
//! - A name finds a container and proves nothing: the labels must match before it is touched.
//! - Proof is an inspection by the full id that answers "no such container", on the engine that made it.
//! - Everything else is uncertain, with the reason: the caller keeps the workspace blocked and asks again.

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{InspectContainerOptions, RemoveContainerOptionsBuilder};
use tokio::time::Instant;

use super::{DockerExecutor, bounded};
use crate::executor::{
    CleanupProof, CleanupUncertain, ContainerId, EngineId, ExecutorError, Identity, labels,
};
use crate::limits::{REMOVE_PATIENCE, REMOVE_POLL};

pub(super) async fn remove(
    executor: &DockerExecutor,
    identity: &Identity,
) -> Result<CleanupProof, CleanupUncertain> {
    let until = Instant::now() + REMOVE_PATIENCE;
    let reference = identity
        .id
        .as_ref()
        .map_or(identity.name.as_str(), ContainerId::as_str);
    let container = match inspect(executor, reference).await {
        Ok(Some(container)) => container,
        Ok(None) => return absent(executor, identity).await,
        Err(error) => return Err(uncertain(error.to_string())),
    };
    let id = recognise(&container, identity)?;
    let mut last = String::new();
    while Instant::now() < until {
        let options = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        let engine = executor
            .engine()
            .await
            .map_err(|e| uncertain(e.to_string()))?;
        // Whatever the answer, only the absence counts: somebody else may be removing it.
        if let Err(error) = bounded(
            "remove",
            engine.remove_container(id.as_str(), Some(options)),
        )
        .await
        {
            last = error.to_string();
        }
        match inspect(executor, id.as_str()).await {
            Ok(None) => return prove(executor, &identity.engine, id).await,
            Ok(Some(_)) => {}
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(REMOVE_POLL).await;
    }
    Err(uncertain(format!(
        "The container is still there after {} s. {last}",
        REMOVE_PATIENCE.as_secs()
    )))
}

/// `None` when the engine says that there is no such container.
async fn inspect(
    executor: &DockerExecutor,
    reference: &str,
) -> Result<Option<ContainerInspectResponse>, ExecutorError> {
    let engine = executor.engine().await?;
    match bounded(
        "inspect",
        engine.inspect_container(reference, None::<InspectContainerOptions>),
    )
    .await
    {
        Ok(container) => Ok(Some(container)),
        Err(ExecutorError::Refused { status: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn absent(
    executor: &DockerExecutor,
    identity: &Identity,
) -> Result<CleanupProof, CleanupUncertain> {
    match &identity.id {
        Some(id) => prove(executor, &identity.engine, id.clone()).await,
        None => Err(uncertain(format!(
            "The engine never acknowledged the container {}, and none has its name now: it may still appear.",
            identity.name
        ))),
    }
}

/// The container found is the recorded one: same name, same labels, and the same id when one was recorded.
fn recognise(
    container: &ContainerInspectResponse,
    identity: &Identity,
) -> Result<ContainerId, CleanupUncertain> {
    let name = container
        .name
        .as_deref()
        .unwrap_or_default()
        .trim_start_matches('/');
    let id = container.id.as_deref().and_then(ContainerId::parse);
    let map = container.config.as_ref().and_then(|c| c.labels.as_ref());
    let same_labels = map
        .and_then(labels::read)
        .is_some_and(|found| found == identity.labels);
    match id {
        Some(id)
            if name == identity.name
                && same_labels
                && identity.id.as_ref().is_none_or(|known| *known == id) =>
        {
            Ok(id)
        }
        _ => Err(uncertain(format!(
            "A container answers to {}, but its name or labels are not the recorded ones; it was left alone.",
            identity.name
        ))),
    }
}

/// Absence counts only on the engine that made the container.
async fn prove(
    executor: &DockerExecutor,
    engine: &EngineId,
    id: ContainerId,
) -> Result<CleanupProof, CleanupUncertain> {
    match executor.info().await {
        Ok(info) if info.id.as_deref() == Some(engine.0.as_str()) => {
            Ok(CleanupProof::observed(engine.clone(), id))
        }
        Ok(_) => Err(uncertain(
            "Another container engine answers than the one that made the container.".into(),
        )),
        Err(error) => Err(uncertain(error.to_string())),
    }
}

fn uncertain(reason: String) -> CleanupUncertain {
    CleanupUncertain { reason }
}
