//! What the product's containers are compared with: the same command by other means of the same machine.
//!
//! - Each is tried once before it counts. What is not installed or does not work here is missing, with the reason.
//! - `docker run --rm` has the whole posture of a command container, from the same image.
//! - `runc run` and bubblewrap are lower bounds: neither filters system calls here, and bubblewrap has no limits.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::sandbox::{APPLETS, Sandbox, find_program};
use crate::config::Config;
use crate::executor::Limits;
use crate::ids::ResourceId;
use crate::limits::SANDBOX_OPEN_FILES;

/// Label of the containers that `docker run` makes for us.
const LABEL: &str = "bazilion.bench";

/// One other way to run a command.
pub struct Rival {
    pub name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
    /// An argument that must be new each time.
    fresh: bool,
}

impl Rival {
    /// Runs it once, from start to finish.
    pub async fn time(&self) -> anyhow::Result<Duration> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if self.fresh {
            command.arg(ResourceId::new().to_string());
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let began = Instant::now();
        let output = command.output().await?;
        let took = began.elapsed();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{} ended with {}: {}",
                self.name,
                output.status,
                said.trim()
            );
        }
        Ok(took)
    }
}

/// Those that work on this machine, and why the others do not.
pub struct Rivals {
    pub docker: Result<Rival, String>,
    pub runc: Result<Rival, String>,
    pub bubblewrap: Result<Rival, String>,
}

impl Rivals {
    /// Looks for each and tries it.
    pub async fn find(config: &Config, sandbox: &Sandbox, scratch: &Path) -> Self {
        let bundle = scratch.join("runc");
        Self {
            docker: tried(docker(config, sandbox)).await,
            runc: tried(runc(sandbox, &bundle).await).await,
            bubblewrap: tried(bubblewrap(sandbox)).await,
        }
    }
}

async fn tried(rival: anyhow::Result<Rival>) -> Result<Rival, String> {
    let rival = rival.map_err(|e| format!("{e:#}"))?;
    rival.time().await.map_err(|e| format!("{e:#}"))?;
    Ok(rival)
}

fn installed(name: &str) -> anyhow::Result<PathBuf> {
    find_program(name).with_context(|| format!("{name} is not installed"))
}

fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.map(OsString::from).into()
}

/// `docker run --rm` with the posture of a command container.
fn docker(config: &Config, sandbox: &Sandbox) -> anyhow::Result<Rival> {
    let limits = Limits::default();
    let host = format!("unix://{}", config.executor.socket.display());
    let user = format!("{}:{}", sandbox.user.uid, sandbox.user.gid);
    let mount = format!(
        "type=bind,source={},target=/workspace,bind-nonrecursive=true",
        sandbox.workspace.display()
    );
    let tmp = format!(
        "/tmp:rw,exec,nosuid,nodev,size={},mode=1777",
        limits.tmp_bytes
    );
    let memory = limits.memory_bytes.to_string();
    let cpus = (f64::from(limits.milli_cpus) / 1000.0).to_string();
    let files = format!("nofile={SANDBOX_OPEN_FILES}:{SANDBOX_OPEN_FILES}");
    let label = format!("{LABEL}={}", sandbox.instance);
    let mut arguments = words([
        "--host",
        &host,
        "run",
        "--rm",
        "--label",
        &label,
        "--user",
        &user,
        "--network",
        "none",
    ]);
    arguments.extend(words([
        "--read-only",
        "--tmpfs",
        &tmp,
        "--mount",
        &mount,
        "--workdir",
        "/workspace",
    ]));
    arguments.extend(words([
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges:true",
        "--ipc",
        "private",
    ]));
    arguments.extend(words([
        "--memory",
        &memory,
        "--memory-swap",
        &memory,
        "--cpus",
        &cpus,
    ]));
    let pids = limits.pids.to_string();
    arguments.extend(words([
        "--pids-limit",
        &pids,
        "--ulimit",
        &files,
        "--ulimit",
        "core=0:0",
        "--log-driver",
        "none",
    ]));
    arguments.extend(words([
        "--no-healthcheck",
        "--entrypoint",
        "/bin/sh",
        &sandbox.image.id,
        "-c",
        "true",
    ]));
    Ok(Rival {
        name: "docker run --rm",
        program: installed("docker")?,
        arguments,
        fresh: false,
    })
}

/// Removes what an interrupted `docker run` left.
pub async fn sweep(config: &Config, sandbox: &Sandbox) -> anyhow::Result<()> {
    let Some(docker) = find_program("docker") else {
        return Ok(());
    };
    let host = format!("unix://{}", config.executor.socket.display());
    let filter = format!("label={LABEL}={}", sandbox.instance);
    let run = async |arguments: &[&str]| {
        Command::new(&docker)
            .args(["--host", &host])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await
    };
    let listed = run(&["ps", "--all", "--quiet", "--filter", &filter]).await?;
    for id in String::from_utf8_lossy(&listed.stdout).lines() {
        run(&["rm", "--force", "--volumes", id]).await?;
    }
    Ok(())
}

/// A bundle with the same programs, of the form that the engine itself hands to `runc`.
async fn runc(sandbox: &Sandbox, bundle: &Path) -> anyhow::Result<Rival> {
    let program = installed("runc")?;
    let busybox = sandbox
        .busybox
        .as_ref()
        .context("a static busybox, of which its root file system is made, is not installed")?;
    let root = bundle.join("rootfs");
    for dir in ["bin", "proc", "dev", "sys", "tmp", "workspace"] {
        std::fs::create_dir_all(root.join(dir))?;
    }
    std::fs::copy(busybox, root.join("bin/busybox"))?;
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet))?;
    }
    let written = Command::new(&program)
        .arg("spec")
        .current_dir(bundle)
        .output()
        .await?;
    if !written.status.success() {
        bail!(
            "runc spec: {}",
            String::from_utf8_lossy(&written.stderr).trim()
        );
    }
    let file = bundle.join("config.json");
    let mut spec: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    fill_in(&mut spec, sandbox);
    std::fs::write(&file, serde_json::to_vec(&spec)?)?;
    let mut arguments = vec!["--root".into(), bundle.join("state").into_os_string()];
    arguments.extend(words(["run", "--bundle"]));
    arguments.push(bundle.as_os_str().to_owned());
    Ok(Rival {
        name: "runc run",
        program,
        arguments,
        fresh: true,
    })
}

fn fill_in(spec: &mut Value, sandbox: &Sandbox) {
    let limits = Limits::default();
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(["/bin/sh", "-c", "true"]);
    spec["process"]["cwd"] = json!("/workspace");
    spec["process"]["user"] = json!({"uid": sandbox.user.uid, "gid": sandbox.user.gid});
    spec["process"]["capabilities"] = json!({});
    spec["process"]["noNewPrivileges"] = json!(true);
    spec["root"]["readonly"] = json!(true);
    spec["linux"]["resources"] = json!({
        "memory": {"limit": limits.memory_bytes, "swap": limits.memory_bytes},
        "pids": {"limit": limits.pids},
        "cpu": {"quota": i64::from(limits.milli_cpus) * 100, "period": 100_000},
    });
    if let Some(mounts) = spec["mounts"].as_array_mut() {
        mounts.push(json!({
            "destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
            "options": ["rw", "exec", "nosuid", "nodev", format!("size={}", limits.tmp_bytes), "mode=1777"],
        }));
        mounts.push(json!({
            "destination": "/workspace", "type": "bind", "source": sandbox.workspace,
            "options": ["bind", "rw"],
        }));
    }
}

/// Namespaces, a read-only root and an empty `/tmp`.
fn bubblewrap(sandbox: &Sandbox) -> anyhow::Result<Rival> {
    let mut arguments = words(["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    arguments.extend(words([
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ]));
    let workspace = sandbox.workspace.as_os_str();
    arguments.extend(["--bind".into(), workspace.to_owned(), workspace.to_owned()]);
    arguments.extend(["--chdir".into(), workspace.to_owned()]);
    arguments.extend(words(["/bin/sh", "-c", "true"]));
    Ok(Rival {
        name: "bubblewrap",
        program: installed("bwrap")?,
        arguments,
        fresh: false,
    })
}
