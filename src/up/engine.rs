//! What turns need beside the database: the static toolbox, the two images, Pi. Looked up at each start, made when
//! missing. A part that cannot be made is said with its next step, and the server serves without it: what needs it
//! waits.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::progress::Progress;
use crate::clock::Clock;
use crate::config::{Config, Obstacle};
use crate::executor::docker::{DockerConfig, DockerExecutor};
use crate::executor::{Executor as _, images};
use crate::runtime::pi::install::{self, PiInstall, Source};
use crate::runtime::pi::{PiRuntime, selftest};
use crate::server::health::Images;

/// Type of a program header that asks for a dynamic loader.
const PT_INTERP: u32 = 3;

/// The real engine and executor of this machine.
pub struct Engines {
    pub executor: Arc<DockerExecutor>,
    pub runtime: Arc<PiRuntime>,
    pub images: Images,
    install: PiInstall,
    turns: PathBuf,
    toolbox: PathBuf,
}

/// Finds the toolbox and sets both up, without asking either for anything yet.
pub fn set_up(config: &Config, turns: PathBuf, clock: Arc<dyn Clock>) -> Result<Engines, Obstacle> {
    let toolbox = keep_toolbox(&find_toolbox()?, &config.cache_dir)?;
    let executor = DockerExecutor::new(DockerConfig {
        socket: config.executor.socket.clone(),
        base: config.workspace_base.clone(),
        toolbox_program: toolbox.clone(),
        runtime: None,
    });
    let install = PiInstall::at(&config.cache_dir);
    let runtime = PiRuntime::new(install.clone(), turns.clone(), clock).map_err(|e| {
        Obstacle::new(
            format!("{e}."),
            "Report this: it is a fault of the program.",
        )
    })?;
    let sandbox = config
        .sandbox_image
        .clone()
        .unwrap_or_else(images::sandbox_reference);
    Ok(Engines {
        executor: Arc::new(executor),
        runtime: Arc::new(runtime),
        images: Images {
            toolbox: String::new(),
            sandbox,
        },
        install,
        turns,
        toolbox,
    })
}

impl Engines {
    /// Makes what is missing, all of it for a process that runs work. What could not be made comes back, for the person
    /// to read.
    pub async fn prepare(
        &mut self,
        config: &Config,
        runs_work: bool,
        progress: &Progress,
    ) -> Vec<Obstacle> {
        let mut missing = Vec::new();
        if let Err(obstacle) = self.prepare_images(config, runs_work, progress).await {
            missing.push(obstacle);
        }
        if runs_work && let Err(obstacle) = self.prepare_pi(progress).await {
            missing.push(obstacle);
        }
        missing
    }

    async fn prepare_images(
        &mut self,
        config: &Config,
        runs_work: bool,
        progress: &Progress,
    ) -> Result<(), Obstacle> {
        progress.step("Looking at the container engine");
        self.executor.probe().await.map_err(|e| {
            Obstacle::new(
                format!("No container engine answers at {}: {e}", config.executor.socket.display()),
                format!(
                    "Install and start Docker ({}), and be root or a member of the group docker. Another socket is named by DOCKER_HOST.\n  \
                     Until then nothing that an Agent is asked starts; it waits in the queue.",
                    crate::embedded::binaries::install_command("docker.io")
                ),
            )
        })?;
        let failed = |e: crate::executor::ExecutorError| {
            Obstacle::new(
                format!("An image could not be prepared: {e}"),
                "Mend what it names, then start again.",
            )
        };
        progress.step("Looking at the toolbox image");
        self.images.toolbox = images::toolbox(&self.executor, &self.toolbox)
            .await
            .map_err(failed)?
            .reference;
        if !runs_work {
            return Ok(());
        }
        if config.sandbox_image.is_some() {
            let wanted = self.executor.image(&self.images.sandbox).await;
            return wanted.map(drop).map_err(failed);
        }
        progress.step("Looking at the sandbox image");
        let detail = |text: &str| progress.step(&format!("Building the sandbox image: {text}"));
        self.images.sandbox = images::sandbox(&self.executor, &config.cache_dir, &detail)
            .await
            .map_err(failed)?
            .reference;
        Ok(())
    }

    async fn prepare_pi(&self, progress: &Progress) -> Result<(), Obstacle> {
        let name = install::engine_name();
        progress.step(&format!("Looking at {name}"));
        if self.install.check().is_ok() {
            return Ok(());
        }
        progress.step(&format!("Fetching {name}"));
        let mut show = |step: install::Progress| progress.detail(&describe(&step));
        self.install.install(&Source::registry(), &mut show).await.map_err(|e| {
            Obstacle::new(
                format!("{name} could not be installed: {e}."),
                "Let this machine reach an npm registry (npm_config_registry names one), then start again.",
            )
        })?;
        progress.step(&format!("Trying {name} with one turn"));
        let took = selftest::run(
            &self.install,
            &self.turns,
            Arc::new(crate::clock::SystemClock),
        )
        .await;
        took.map(drop).map_err(|e| {
            Obstacle::new(
                format!("{name} is installed and does not work: {e}."),
                "Run `bazilion doctor`, and start again.",
            )
        })
    }
}

fn describe(step: &install::Progress) -> String {
    match step {
        install::Progress::Fetching {
            package,
            received,
            total: Some(total),
        } => format!("{package}, {} of {} MiB", received >> 20, total >> 20),
        install::Progress::Fetching {
            package, received, ..
        } => format!("{package}, {} MiB", received >> 20),
        install::Progress::Unpacking { package } => format!("unpacking {package}"),
        install::Progress::Done => "done".to_owned(),
    }
}

/// The static toolbox: named by `BAZILION_TOOLBOX`, or beside this program.
pub fn find_toolbox() -> Result<PathBuf, Obstacle> {
    let next = "Build it: ./.ci/build (BAZILION_TOOLBOX names one elsewhere).";
    let named = std::env::var_os("BAZILION_TOOLBOX")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from);
    let exe = std::env::current_exe()
        .and_then(|exe| exe.canonicalize())
        .unwrap_or_default();
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let places = match named {
        Some(named) => vec![named],
        None => vec![
            beside.join("toolbox/bazilion-toolbox"),
            beside.join("bazilion-toolbox"),
        ],
    };
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        return Err(Obstacle::new(
            "The toolbox program, which alone touches repository files, is not built.",
            next,
        ));
    };
    match is_static(found) {
        Ok(true) => Ok(found.clone()),
        Ok(false) => Err(Obstacle::new(
            format!(
                "The toolbox {} needs libraries, and its container has none.",
                found.display()
            ),
            next,
        )),
        Err(e) => Err(Obstacle::new(
            format!("The toolbox {} cannot be read: {e}.", found.display()),
            next,
        )),
    }
}

/// Whether an ELF program runs without a loader.
fn is_static(program: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    std::fs::File::open(program)?
        .take(4096)
        .read_to_end(&mut head)?;
    let wrong = || std::io::Error::other("it is no 64-bit program");
    let number = |at: usize, length: usize| {
        let bytes = head.get(at..at + length)?;
        let mut all = [0_u8; 8];
        all[..length].copy_from_slice(bytes);
        usize::try_from(u64::from_le_bytes(all)).ok()
    };
    if head.get(..5) != Some(b"\x7fELF\x02") {
        return Err(wrong());
    }
    let fields = (number(32, 8), number(54, 2), number(56, 2));
    let (Some(offset), Some(size), Some(count)) = fields else {
        return Err(wrong());
    };
    let interpreted = (0..count).any(|i| number(offset + i * size, 4) == Some(PT_INTERP as usize));
    Ok(!interpreted)
}

/// Keeps a copy under its hash, so that a rebuild during a run changes no container's first process.
fn keep_toolbox(program: &Path, cache: &Path) -> Result<PathBuf, Obstacle> {
    let keep = || -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(cache)?;
        let content = std::fs::read(program)?;
        let kept = cache.join(format!("bazilion-toolbox-{}", images::short_hash(&content)));
        if !kept.exists() {
            let fresh = cache.join(format!(".toolbox-{}", std::process::id()));
            std::fs::write(&fresh, &content)?;
            std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))?;
            std::fs::rename(&fresh, &kept)?;
        }
        Ok(kept)
    };
    keep().map_err(|e| {
        Obstacle::new(
            format!(
                "The cache directory {} cannot be used: {e}.",
                cache.display()
            ),
            "Make it writable, or choose another with --cache-dir.",
        )
    })
}
