//! A real Docker Engine, a tiny image, our static program, and workspaces that belong to an ordinary user. Without an
//! engine the tests fail: start one with `.ci/docker-up`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use bazilion::executor::docker::{DockerConfig, DockerExecutor, identity_of};
use bazilion::executor::{
    ContainerId, ContainerSpec, Created, Executor as _, Exit, Frame, Identity, Image, Kind, Labels,
    Limits, User, Workspace, base_environment, images,
};
use bazilion::ids::{AgentId, HomeId, IncarnationId, LeaseId, ReceiptId, ResourceId, TeamId};
use bytes::Bytes;
use uuid::Uuid;

const BUSYBOX: &str = "/usr/bin/busybox";

/// One executor, one tiny image, one instance of its own: tests do not see each other's containers.
pub struct Sandbox {
    pub executor: Arc<DockerExecutor>,
    pub image: Image,
    pub instance: Uuid,
    pub directory: PathBuf,
    pub workspace: PathBuf,
    pub user: User,
}

/// What a whole command came to.
pub struct Ran {
    pub exit: Exit,
    pub output: Vec<u8>,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

impl Sandbox {
    pub async fn new() -> Self {
        let directory = scratch();
        let workspace = directory.join("workspace");
        fs::create_dir(&workspace).unwrap();
        let user = ordinary_user(&workspace);
        let executor = Arc::new(executor_at(&socket(), &directory));
        executor
            .probe()
            .await
            .expect("these tests need a running Docker Engine: run .ci/docker-up");
        let image = tiny_image(&executor).await;
        Self {
            executor,
            image,
            instance: ResourceId::new().uuid(),
            directory,
            workspace,
            user,
        }
    }

    /// The same executor behind another socket.
    pub fn executor_at(&self, socket: &Path) -> DockerExecutor {
        executor_at(socket, &self.directory)
    }

    /// Our static program.
    pub fn toolbox_program(&self) -> PathBuf {
        static_toolbox()
    }

    /// A number that no other process of this machine has as an argument, for `sleep`.
    pub fn marker(&self) -> String {
        let id = ResourceId::new().uuid().as_u128();
        format!("1{:09}", id % 1_000_000_000)
    }

    pub async fn spec(&self, kind: Kind) -> ContainerSpec {
        ContainerSpec {
            name: format!("bazilion-test-{}", ResourceId::new().uuid()),
            kind,
            image: self.image.id.clone(),
            user: self.user,
            workspace: Workspace {
                path: self.workspace.clone(),
                identity: identity_of(&self.workspace).await.unwrap(),
                writable: true,
            },
            mounts: Vec::new(),
            limits: Limits::default(),
            labels: Labels {
                instance: self.instance,
                generation: 1,
                home: HomeId::new(),
                team: TeamId::new(),
                agent: Some(AgentId::new()),
                lease: Some(LeaseId::new()),
                receipt: Some(ReceiptId::new()),
                owner: IncarnationId::new(),
            },
        }
    }

    /// A whole command in a container of its own, removed with proof.
    pub async fn run(&self, command: &str) -> Ran {
        let spec = self.spec(Kind::Command).await;
        self.run_in(&spec, &frame(command)).await
    }

    pub async fn run_in(&self, spec: &ContainerSpec, frame: &Frame) -> Ran {
        let created = self.executor.create(spec).await.unwrap();
        let attached = self.executor.open(&created.id, spec).await.unwrap();
        let mut running = self.executor.run(attached, frame).await.unwrap();
        let mut output = Vec::new();
        while let Some(bytes) = running.output.recv().await {
            output.extend_from_slice(&bytes);
        }
        let exit = running.exit.await;
        let _ = self
            .executor
            .remove(&identity(spec, &created))
            .await
            .unwrap();
        Ran { exit, output }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // A failed test leaves containers of its own instance behind; nobody else's are touched.
        let label = format!("label=bazilion.instance={}", self.instance);
        let listed = docker(&["ps", "--all", "--quiet", "--filter", &label]);
        for id in listed.lines() {
            docker(&["rm", "--force", "--volumes", id]);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn executor_at(socket: &Path, directory: &Path) -> DockerExecutor {
    DockerExecutor::new(DockerConfig {
        socket: socket.to_owned(),
        base: directory.join("base"),
        toolbox_program: static_toolbox(),
        runtime: None,
    })
}

pub fn identity(spec: &ContainerSpec, created: &Created) -> Identity {
    Identity {
        engine: created.engine.clone(),
        name: spec.name.clone(),
        id: Some(created.id.clone()),
        labels: spec.labels.clone(),
    }
}

pub fn frame(command: &str) -> Frame {
    Frame {
        command: command.into(),
        cwd: ".".into(),
        env: base_environment(),
        deadline_ms: 60_000,
    }
}

/// Runs the engine's own command line; the tests' second opinion.
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker")
        .arg("--host")
        .arg(format!("unix://{}", socket().display()))
        .args(arguments)
        .output()
        .expect("the docker command line is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until a container has ended; its exit code. The runtime goes on meanwhile, as a dropped stream needs it.
pub async fn wait_code(id: &ContainerId) -> String {
    let id = id.to_string();
    let waiting = tokio::task::spawn_blocking(move || docker(&["wait", &id]));
    waiting.await.unwrap().trim().to_owned()
}

pub fn socket() -> PathBuf {
    let host =
        std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    PathBuf::from(host.trim_start_matches("unix://"))
}

/// A new directory below the build's own temporary directory.
pub fn scratch() -> PathBuf {
    let directory =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(ResourceId::new().uuid().to_string());
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Commands never run as root: a root that tests gives its workspace to somebody else.
fn ordinary_user(workspace: &Path) -> User {
    let metadata = fs::metadata(workspace).unwrap();
    if metadata.uid() != 0 {
        return User {
            uid: metadata.uid(),
            gid: metadata.gid(),
        };
    }
    std::os::unix::fs::chown(workspace, Some(1000), Some(1000)).unwrap();
    User {
        uid: 1000,
        gid: 1000,
    }
}

async fn tiny_image(executor: &DockerExecutor) -> Image {
    let busybox =
        fs::read(BUSYBOX).expect("these tests need a static busybox (Debian: busybox-static)");
    let reference = format!("bazilion/tiny:{}", images::short_hash(&busybox));
    if let Ok(image) = executor.image(&reference).await {
        return image;
    }
    let tar = Bytes::from(tiny_tar());
    images::import(executor, &reference, futures_util::stream::iter([Ok(tar)]))
        .await
        .unwrap()
}

fn tiny_tar() -> Vec<u8> {
    let busybox = fs::read(BUSYBOX).unwrap();
    let listed = Command::new(BUSYBOX).arg("--list").output().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(busybox.len() as u64);
    tar.append_data(&mut header, "bin/busybox", busybox.as_slice())
        .unwrap();
    let applets = String::from_utf8(listed.stdout).unwrap();
    for applet in applets.lines().filter(|&applet| applet != "busybox") {
        let mut link = tar::Header::new_gnu();
        link.set_entry_type(tar::EntryType::Symlink);
        link.set_size(0);
        tar.append_link(&mut link, format!("bin/{applet}"), "busybox")
            .unwrap();
    }
    tar.into_inner().unwrap()
}

/// Our program, linked statically, built once per state of its own sources.
pub fn static_toolbox() -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toolbox");
    fs::create_dir_all(&kept).unwrap();
    let _lock = alone("toolbox.lock");
    let program = kept.join("bazilion-toolbox");
    let sources = newest_source();
    let fresh = fs::metadata(&program)
        .and_then(|m| m.modified())
        .is_ok_and(|made| made == sources);
    if !fresh {
        let status = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["rustc", "--quiet", "--bin", "bazilion-toolbox", "--"])
            .args(["-C", "target-feature=+crt-static"])
            .status()
            .unwrap();
        assert!(status.success(), "the static toolbox could not be built");
        let beside = kept.join("new");
        fs::copy(env!("CARGO_BIN_EXE_bazilion-toolbox"), &beside).unwrap();
        let file = fs::File::options().write(true).open(&beside).unwrap();
        file.set_modified(sources).unwrap();
        drop(file);
        fs::rename(&beside, &program).unwrap();
    }
    program
}

/// A lock of all test processes of this build; held until it is dropped.
pub fn alone(name: &str) -> fs::File {
    let lock = fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)).unwrap();
    lock.lock().unwrap();
    lock
}

/// When the newest source of the toolbox was changed; the rest of the library is not in it.
fn newest_source() -> SystemTime {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    [
        "Cargo.lock",
        "src/bin",
        "src/launcher.rs",
        "src/limits.rs",
        "src/repo",
        "src/toolbox",
    ]
    .into_iter()
    .map(|path| newest(&root.join(path)))
    .fold(SystemTime::UNIX_EPOCH, SystemTime::max)
}

fn newest(path: &Path) -> SystemTime {
    let Ok(metadata) = fs::metadata(path) else {
        return SystemTime::UNIX_EPOCH;
    };
    let own = metadata.modified().unwrap();
    let Ok(entries) = fs::read_dir(path) else {
        return own;
    };
    entries
        .flatten()
        .map(|entry| newest(&entry.path()))
        .fold(own, SystemTime::max)
}

/// How many processes of this machine have a text in their arguments.
pub fn processes_with(marker: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let arguments = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    arguments
        .filter(|text| {
            String::from_utf8_lossy(text)
                .split('\0')
                .any(|word| word == marker)
        })
        .count()
}

/// An image that declares a volume; its reference.
pub async fn image_with_volume(sandbox: &Sandbox) -> String {
    variant(sandbox, "volume", "VOLUME /data").await
}

/// An image with an entry point, an environment and a working directory of its own; its reference.
pub async fn image_with_own_ideas(sandbox: &Sandbox) -> String {
    variant(
        sandbox,
        "ideas",
        "ENTRYPOINT [\"/bin/echo\", \"evil\"]\nENV EVIL=1\nWORKDIR /made",
    )
    .await
}

/// The tiny image with another configuration. `import` takes changes as a build file has them.
async fn variant(sandbox: &Sandbox, name: &str, changes: &str) -> String {
    let reference = format!(
        "bazilion/tiny-{name}:{}",
        sandbox.image.reference.rsplit(':').next().unwrap()
    );
    if docker(&["images", "--quiet", &reference]).trim().is_empty() {
        let busybox = sandbox.directory.join("tiny.tar");
        fs::write(&busybox, tiny_tar()).unwrap();
        let mut arguments = vec!["import".to_owned()];
        for change in changes.lines() {
            arguments.extend(["--change".to_owned(), change.to_owned()]);
        }
        arguments.extend([busybox.display().to_string(), reference.clone()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        docker(&arguments);
    }
    reference
}
