//! Images made on this machine: nothing here pulls one for a command.
//!
//! - An image is tagged by the hash of what it was made from, and looked up by that tag first.
//! - The toolbox image holds our static program and nothing else.

use std::path::Path;

use bollard::query_parameters::CreateImageOptionsBuilder;
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _};
use sha2::{Digest as _, Sha256};

use super::docker::{DockerExecutor, TOOLBOX};
use super::{Executor as _, ExecutorError, Image};

/// The toolbox image for this program, imported when it is missing.
pub async fn toolbox(executor: &DockerExecutor, program: &Path) -> Result<Image, ExecutorError> {
    let program = tokio::fs::read(program)
        .await
        .map_err(|e| ExecutorError::Blocked(format!("The toolbox program cannot be read: {e}.")))?;
    let reference = format!("bazilion/toolbox:{}", short_hash(&program));
    if let Ok(image) = executor.image(&reference).await {
        return Ok(image);
    }
    let tar = toolbox_tar(&program)
        .map_err(|e| ExecutorError::Blocked(format!("No archive could be made: {e}.")))?;
    import(
        executor,
        &reference,
        futures_util::stream::iter([Ok(Bytes::from(tar))]),
    )
    .await
}

fn toolbox_tar(program: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::with_capacity(program.len() + 4096));
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(program.len() as u64);
    tar.append_data(&mut header, TOOLBOX.trim_start_matches('/'), program)?;
    tar.into_inner()
}

/// First digits of the SHA-256, enough for a tag.
pub fn short_hash(content: &[u8]) -> String {
    hex::encode(&Sha256::digest(content)[..8])
}

/// Imports a root file system as an image under `repository:tag`.
pub async fn import(
    executor: &DockerExecutor,
    reference: &str,
    tar: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
) -> Result<Image, ExecutorError> {
    let (repository, tag) = reference.rsplit_once(':').unwrap_or((reference, "latest"));
    let options = CreateImageOptionsBuilder::default()
        .from_src("-")
        .repo(repository)
        .tag(tag)
        .build();
    let body = bollard::body_try_stream(tar);
    let mut progress = std::pin::pin!(executor.engine().await?.create_image(
        Some(options),
        Some(body),
        None
    ));
    while let Some(step) = progress.next().await {
        step.map_err(|e| ExecutorError::Unanswered {
            call: "import image",
            message: e.to_string(),
        })?;
    }
    executor.image(reference).await
}
