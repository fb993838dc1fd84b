//! Images made on this machine: nothing here pulls one for a command.
//!
//! - An image is tagged by the hash of what it was made from, and looked up by that tag first.
//! - The toolbox image holds our static program and nothing else.
//! - The sandbox image comes from a registry's Debian and the package mirror when the registry answers quickly, else from this machine's own
//!   package mirror alone; both only when an administrator asks for it, never for a command.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{BuildImageOptionsBuilder, CreateImageOptionsBuilder};
use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio_util::io::ReaderStream;

use super::docker::{DockerExecutor, TOOLBOX};
use super::{Executor as _, ExecutorError, Image};
use crate::ids::ResourceId;

/// How long a registry may be silent before it counts as away.
const REGISTRY_PATIENCE: Duration = Duration::from_secs(8);
/// How long an import or a build may take.
const IMPORT_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// What the sandbox image is built on, when a registry is there.
const BASE: (&str, &str) = ("debian", "bookworm-slim");

const DOCKERFILE: &str = include_str!("../../docker/sandbox/Dockerfile");
const SCRIPT: &str = include_str!("../../docker/sandbox/from-packages.sh");
/// Settings that lie in the image, by their path from its root.
const SETTINGS: [(&str, &str); 3] = [
    (
        "etc/npmrc",
        include_str!("../../docker/sandbox/settings/etc/npmrc"),
    ),
    (
        "etc/pip.conf",
        include_str!("../../docker/sandbox/settings/etc/pip.conf"),
    ),
    (
        ".cargo/config.toml",
        include_str!("../../docker/sandbox/settings/.cargo/config.toml"),
    ),
];

/// Told each step, for a person who waits.
pub type Progress<'a> = &'a (dyn Fn(&str) + Send + Sync);

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
    let engine = patient(executor).await?;
    let mut progress = std::pin::pin!(engine.create_image(Some(options), Some(body), None));
    while let Some(step) = progress.next().await {
        step.map_err(|e| ExecutorError::Unanswered {
            call: "import image",
            message: e.to_string(),
        })?;
    }
    executor.image(reference).await
}

/// The engine answers to an import or a build only when it has taken the whole of it.
async fn patient(executor: &DockerExecutor) -> Result<Docker, ExecutorError> {
    Ok(executor
        .engine()
        .await?
        .clone()
        .with_timeout(IMPORT_PATIENCE))
}

/// The reference under which the default sandbox image is looked up.
pub fn sandbox_reference() -> String {
    let mut content = format!("{DOCKERFILE}\0{SCRIPT}");
    for (path, text) in SETTINGS {
        content.push_str(path);
        content.push_str(text);
    }
    format!("bazilion/sandbox:{}", short_hash(content.as_bytes()))
}

/// The default sandbox image, built when it is missing. `base` is a directory with some 2 GB of room.
pub async fn sandbox(
    executor: &DockerExecutor,
    base: &Path,
    progress: Progress<'_>,
) -> Result<Image, ExecutorError> {
    let reference = sandbox_reference();
    if let Ok(image) = executor.image(&reference).await {
        return Ok(image);
    }
    progress("asking the image registry");
    if registry_answers(executor, progress).await? {
        match build(executor, &reference, progress).await {
            Ok(image) => return Ok(image),
            Err(error) => progress(&format!(
                "the build failed ({error}); using this machine's packages"
            )),
        }
    } else {
        progress("no image registry answers; using this machine's packages");
    }
    from_packages(executor, base, &reference, progress).await
}

/// Fetches the base image, unless the registry stays silent or refuses.
async fn registry_answers(
    executor: &DockerExecutor,
    progress: Progress<'_>,
) -> Result<bool, ExecutorError> {
    let (image, tag) = BASE;
    let options = CreateImageOptionsBuilder::default()
        .from_image(image)
        .tag(tag)
        .build();
    let mut steps = std::pin::pin!(executor.engine().await?.create_image(
        Some(options),
        None,
        None
    ));
    progress(&format!("fetching {image}:{tag}"));
    loop {
        match tokio::time::timeout(REGISTRY_PATIENCE, steps.next()).await {
            Ok(Some(Ok(_))) => {}
            Ok(None) => return Ok(true),
            Ok(Some(Err(_))) | Err(_) => return Ok(false),
        }
    }
}

/// Builds from the Dockerfile, with the engine's own network.
async fn build(
    executor: &DockerExecutor,
    reference: &str,
    progress: Progress<'_>,
) -> Result<Image, ExecutorError> {
    let context = build_context()
        .map_err(|e| ExecutorError::Blocked(format!("No archive could be made: {e}.")))?;
    let options = BuildImageOptionsBuilder::default()
        .t(reference)
        .rm(true)
        .forcerm(true)
        .build();
    let body = bollard::body_full(Bytes::from(context));
    let engine = patient(executor).await?;
    let mut steps = std::pin::pin!(engine.build_image(options, None, Some(body)));
    while let Some(step) = steps.next().await {
        let step = step.map_err(|e| ExecutorError::Blocked(e.to_string()))?;
        if let Some(line) = step
            .stream
            .as_deref()
            .map(str::trim)
            .filter(|line| line.starts_with("Step"))
        {
            progress(line);
        }
    }
    executor.image(reference).await
}

fn build_context() -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let settings = SETTINGS.map(|(path, text)| (format!("settings/{path}"), text));
    let files = std::iter::once(("Dockerfile".to_owned(), DOCKERFILE)).chain(settings);
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, path, text.as_bytes())?;
    }
    tar.into_inner()
}

/// Runs the packages' script in a directory of its own and imports what it writes.
async fn from_packages(
    executor: &DockerExecutor,
    base: &Path,
    reference: &str,
    progress: Progress<'_>,
) -> Result<Image, ExecutorError> {
    let directory = base.join(format!("build-{}", ResourceId::new()));
    let built = unpack_and_import(executor, &directory, reference, progress).await;
    // Large, and of no use any more; a failure to remove it changes nothing about the image.
    if let Err(error) = tokio::fs::remove_dir_all(&directory).await {
        tracing::warn!(%error, "a build directory was left behind");
    }
    built
}

async fn unpack_and_import(
    executor: &DockerExecutor,
    directory: &Path,
    reference: &str,
    progress: Progress<'_>,
) -> Result<Image, ExecutorError> {
    let blocked = |what: std::io::Error| {
        ExecutorError::Blocked(format!("The sandbox image cannot be built: {what}."))
    };
    let script = lay_out(directory).await.map_err(blocked)?;
    let mut child = Command::new("sh")
        .arg(&script)
        .arg(directory.join("settings"))
        .env("TMPDIR", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(blocked)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(blocked(std::io::Error::from(
            std::io::ErrorKind::BrokenPipe,
        )));
    };
    let tar = ReaderStream::with_capacity(stdout, 256 * 1024).chain(ended_well(child));
    let import = import(executor, reference, tar);
    let mut lines = BufReader::new(stderr).lines();
    let mut last = String::new();
    let follow = async {
        while let Ok(Some(line)) = lines.next_line().await {
            progress(&line);
            last = line;
        }
    };
    let (imported, ()) = tokio::join!(import, follow);
    imported.map_err(|error| {
        ExecutorError::Blocked(format!(
            "The sandbox image could not be built from packages: {last} ({error})."
        ))
    })
}

/// Nothing more, or an error when the script failed: the engine then drops what it got.
fn ended_well(mut child: Child) -> impl Stream<Item = std::io::Result<Bytes>> {
    let end = async move {
        let status = child.wait().await?;
        if status.success() {
            Ok(Bytes::new())
        } else {
            Err(std::io::Error::other(format!(
                "the script ended with {status}"
            )))
        }
    };
    futures_util::stream::once(end).try_filter(|bytes| std::future::ready(!bytes.is_empty()))
}

async fn lay_out(directory: &Path) -> std::io::Result<PathBuf> {
    for (path, text) in SETTINGS {
        let path = directory.join("settings").join(path);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent).await?;
        }
        tokio::fs::write(path, text).await?;
    }
    let script = directory.join("from-packages.sh");
    tokio::fs::write(&script, SCRIPT).await?;
    Ok(script)
}
