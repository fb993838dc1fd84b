//! Containers of the bench, through the product's own executor: the same steps as a command of a turn, without the
//! records between them.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio_util::io::StreamReader;
use uuid::Uuid;

use crate::config::Config;
use crate::executor::ahead::{Ahead, Prepared, Taken};
use crate::executor::docker::{DockerConfig, DockerExecutor, identity_of};
use crate::executor::{
    Attached, Chunk, ContainerSpec, End, Executor as _, Exit, Frame, Identity, Image, Kind, Labels,
    Limits, User, Workspace, base_environment, images,
};
use crate::ids::{AgentId, HomeId, IncarnationId, LeaseId, ResourceId, TeamId};
use crate::toolbox::Toolbox;
use crate::up::engine;

/// A deadline that no measured command comes near.
const DEADLINE: Duration = Duration::from_secs(120);
/// The user of containers when root runs the bench; commands never run as root.
const ORDINARY: u32 = 1000;

/// The executor, an image and a workspace, with labels of an instance that lives as long as the run.
pub struct Sandbox {
    pub executor: Arc<DockerExecutor>,
    pub instance: Uuid,
    pub image: Image,
    pub workspace: PathBuf,
    pub user: User,
    /// Root file system of the image on this machine; only of the small one.
    pub busybox: Option<PathBuf>,
    toolbox_program: PathBuf,
    labels: Labels,
}

/// When a command came to what, counted from the moment it was handed over.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Trailer and every byte of output were here.
    pub result: Duration,
    /// The engine confirmed the end.
    pub exit: Duration,
    /// The engine said that the container does not exist.
    pub removed: Duration,
}

impl Sandbox {
    /// Connects, and makes the small image if it is missing. `scratch` goes away with the run.
    pub async fn open(config: &Config, scratch: &Path) -> anyhow::Result<Self> {
        let toolbox_program = engine::find_toolbox()?;
        let executor = DockerExecutor::new(DockerConfig {
            socket: config.executor.socket.clone(),
            base: scratch.join("executor"),
            toolbox_program: toolbox_program.clone(),
            runtime: None,
        });
        executor
            .probe()
            .await
            .context("the container engine was asked what it is")?;
        let busybox = find_program("busybox");
        let image = match &busybox {
            Some(program) => small_image(&executor, program).await?,
            None => executor.image(&images::sandbox_reference()).await?,
        };
        let workspace = scratch.join("workspace");
        std::fs::create_dir_all(&workspace)?;
        let instance = ResourceId::new().uuid();
        Ok(Self {
            executor: Arc::new(executor),
            instance,
            image,
            user: ordinary_user(&workspace)?,
            workspace,
            busybox,
            toolbox_program,
            labels: labels(instance),
        })
    }

    /// The specification of one container; its name is its own.
    pub async fn spec(&self, kind: Kind, workspace: &Path) -> anyhow::Result<ContainerSpec> {
        let identity = identity_of(workspace)
            .await
            .context("the bench's workspace is gone")?;
        Ok(ContainerSpec {
            name: format!("bazilion-bench-{}", ResourceId::new()),
            kind,
            image: self.image.id.clone(),
            user: self.user,
            workspace: Workspace {
                path: workspace.to_owned(),
                identity,
                writable: true,
            },
            mounts: Vec::new(),
            limits: Limits::default(),
            labels: self.labels.clone(),
        })
    }

    /// A started container that waits for its command.
    pub async fn prepare(&self) -> anyhow::Result<Prepared> {
        let spec = self.spec(Kind::Command, &self.workspace).await?;
        let created = self.executor.create(&spec).await?;
        let attached = self.executor.open(&created.id, &spec).await?;
        Ok(Prepared {
            spec,
            created,
            attached,
        })
    }

    /// A command in a container that was prepared ahead, taken as a turn takes it.
    pub async fn warm(&self, prepared: Prepared, command: &str) -> anyhow::Result<Times> {
        let mut ahead = Ahead::default();
        ahead.keep(prepared);
        let wanted = self.spec(Kind::Command, &self.workspace).await?;
        let began = Instant::now();
        let Taken::Fits(prepared) = ahead.take(&wanted).await else {
            bail!("the prepared container does not fit its command");
        };
        self.finish(*prepared, command, began).await
    }

    /// A command with nothing prepared.
    pub async fn cold(&self, command: &str) -> anyhow::Result<Times> {
        let began = Instant::now();
        let prepared = self.prepare().await?;
        self.finish(prepared, command, began).await
    }

    /// Hands the command over and follows it to the proven removal.
    async fn finish(
        &self,
        prepared: Prepared,
        command: &str,
        began: Instant,
    ) -> anyhow::Result<Times> {
        let identity = prepared.identity();
        let mut running = self
            .executor
            .run(prepared.attached, &frame(command))
            .await?;
        while running.output.recv().await.is_some() {}
        let result = began.elapsed();
        let exit = running.exit.await;
        let confirmed = began.elapsed();
        let _ = self.executor.remove(&identity).await?;
        let removed = began.elapsed();
        if !matches!(
            exit,
            Exit::Observed {
                end: End::Code(0),
                ..
            }
        ) {
            bail!("a measured command ended otherwise than it should: {exit:?}");
        }
        Ok(Times {
            result,
            exit: confirmed,
            removed,
        })
    }

    /// From the cancellation of a command that ignores SIGTERM to the proof that nothing of it is left.
    pub async fn cancel(&self) -> anyhow::Result<Duration> {
        let prepared = self.prepare().await?;
        let identity = prepared.identity();
        let id = prepared.created.id.clone();
        let stubborn = frame("trap '' TERM INT; echo on; while :; do sleep 60; done");
        let mut running = self.executor.run(prepared.attached, &stubborn).await?;
        running
            .output
            .recv()
            .await
            .context("the command to cancel did not begin")?;
        let began = Instant::now();
        self.executor.kill(&id).await?;
        let _ = self.executor.remove(&identity).await?;
        Ok(began.elapsed())
    }

    /// The image that holds our static program alone, made when it is missing.
    pub async fn toolbox_image(&self) -> anyhow::Result<Image> {
        Ok(images::toolbox(&self.executor, &self.toolbox_program).await?)
    }

    /// A toolbox in its own container, on a workspace of the bench.
    pub async fn toolbox(&self, workspace: &Path) -> anyhow::Result<(Toolbox, Identity)> {
        let image = self.toolbox_image().await?;
        let mut spec = self.spec(Kind::Toolbox, workspace).await?;
        spec.image = image.id;
        let created = self.executor.create(&spec).await?;
        let attached = self.executor.open(&created.id, &spec).await?;
        let identity = Identity {
            engine: created.engine,
            name: spec.name,
            id: Some(created.id),
            labels: spec.labels,
        };
        Ok((connect(attached), identity))
    }

    /// Removes one container, with proof.
    pub async fn remove(&self, identity: &Identity) -> anyhow::Result<()> {
        let _ = self.executor.remove(identity).await?;
        Ok(())
    }

    /// Gives a tree that the run made to the containers' user.
    pub fn give(&self, path: &Path) -> std::io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(self.user.uid), Some(self.user.gid))?;
        if std::fs::symlink_metadata(path)?.is_dir() {
            for entry in std::fs::read_dir(path)? {
                self.give(&entry?.path())?;
            }
        }
        Ok(())
    }

    /// Removes whatever an interrupted run left under that instance, with proof.
    pub async fn sweep(&self, instance: Uuid) -> anyhow::Result<()> {
        for found in self.executor.list_ours(instance).await? {
            let Some(labels) = found.labels else { continue };
            let identity = Identity {
                engine: found.engine,
                name: found.name,
                id: Some(found.id),
                labels,
            };
            let _ = self.executor.remove(&identity).await?;
        }
        Ok(())
    }
}

fn connect(attached: Attached) -> Toolbox {
    let frames = attached.output.filter_map(async |chunk| match chunk {
        Ok(Chunk::Out(bytes)) => Some(Ok(bytes)),
        Ok(Chunk::Err(_)) => None,
        Err(error) => Some(Err(error)),
    });
    Toolbox::connect(StreamReader::new(Box::pin(frames)), attached.input)
}

fn frame(command: &str) -> Frame {
    Frame {
        command: command.into(),
        cwd: ".".into(),
        env: base_environment(),
        deadline_ms: u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX),
    }
}

fn labels(instance: Uuid) -> Labels {
    Labels {
        instance,
        generation: 1,
        home: HomeId::new(),
        team: TeamId::new(),
        agent: Some(AgentId::new()),
        lease: Some(LeaseId::new()),
        receipt: None,
        owner: IncarnationId::new(),
    }
}

/// The workspace's owner; a workspace that root made is given to an ordinary user.
fn ordinary_user(workspace: &Path) -> anyhow::Result<User> {
    let metadata = std::fs::metadata(workspace)?;
    if metadata.uid() != 0 {
        return Ok(User {
            uid: metadata.uid(),
            gid: metadata.gid(),
        });
    }
    std::os::unix::fs::chown(workspace, Some(ORDINARY), Some(ORDINARY))?;
    Ok(User {
        uid: ORDINARY,
        gid: ORDINARY,
    })
}

/// A program by its name, as `PATH` has it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// The programs that a static busybox can be called by.
pub const APPLETS: [&str; 8] = ["sh", "true", "echo", "cat", "sleep", "yes", "head", "tr"];

/// Two megabytes: a shell and what the measured commands need. Kept for the next run.
async fn small_image(executor: &DockerExecutor, busybox: &Path) -> anyhow::Result<Image> {
    let program = std::fs::read(busybox)?;
    let reference = format!("bazilion/bench:{}", images::short_hash(&program));
    if let Ok(image) = executor.image(&reference).await {
        return Ok(image);
    }
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(program.len() as u64);
    tar.append_data(&mut header, "bin/busybox", program.as_slice())?;
    for applet in APPLETS {
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, format!("bin/{applet}"), "busybox")?;
    }
    let tar = Bytes::from(tar.into_inner()?);
    Ok(images::import(executor, &reference, futures_util::stream::iter([Ok(tar)])).await?)
}
