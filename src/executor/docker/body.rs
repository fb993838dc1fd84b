//! The body of a container: the whole posture in one place.
//!
//! - No network twice over (`NetworkDisabled`, mode `none`), no capability, no new privileges, the engine's seccomp
//!   filter, a read-only root, limits, nothing logged, no health check, no restart, no volume.
//! - `Mounts` only: a missing source is an error, where `Binds` would make it as root. Mounts are not recursive.
//! - The entry point is an array of ours and the working directory is `/`: nothing of the image is run or made.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use super::DockerConfig;
use crate::executor::{ContainerSpec, ExecutorError, Kind, User, labels};
use crate::launcher::WORKSPACE;
use crate::limits::SANDBOX_OPEN_FILES;

/// Where our program is inside a command container.
const LAUNCHER: &str = "/.bazilion-toolbox";
/// Where it is in the toolbox image, which holds nothing else.
pub(in crate::executor) const TOOLBOX: &str = "/bazilion-toolbox";

pub(super) async fn container(
    config: &DockerConfig,
    spec: &ContainerSpec,
) -> Result<ContainerCreateBody, ExecutorError> {
    let accounts = account_files(&config.base, spec.user).await.map_err(|e| {
        ExecutorError::Blocked(format!(
            "The executor's base directory cannot be written: {e}."
        ))
    })?;
    let mut mounts = vec![bind(
        &spec.workspace.path,
        WORKSPACE,
        !spec.workspace.writable,
    )];
    mounts.extend(
        accounts
            .iter()
            .map(|(source, target)| bind(Path::new(source), target, true)),
    );
    mounts.extend(
        spec.mounts
            .iter()
            .map(|mount| bind(&mount.source, &mount.target, true)),
    );
    if spec.kind == Kind::Command {
        mounts.push(bind(&config.toolbox_program, LAUNCHER, true));
    }
    Ok(ContainerCreateBody {
        image: Some(spec.image.clone()),
        entrypoint: Some(entrypoint(spec)),
        cmd: Some(Vec::new()),
        env: Some(Vec::new()),
        user: Some(format!("{}:{}", spec.user.uid, spec.user.gid)),
        hostname: Some("sandbox".into()),
        working_dir: Some("/".into()),
        network_disabled: Some(true),
        labels: Some(labels::write(&spec.labels, spec.kind)),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(false),
        // Process 1 takes no other signal; an engine that stops would wait in vain.
        stop_signal: Some("SIGKILL".into()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".into()]),
            ..HealthConfig::default()
        }),
        host_config: Some(host(config, spec, mounts)),
        ..ContainerCreateBody::default()
    })
}

fn entrypoint(spec: &ContainerSpec) -> Vec<String> {
    let words: &[&str] = match (spec.kind, spec.workspace.writable) {
        (Kind::Command, _) => &[LAUNCHER, "launch"],
        (Kind::Toolbox, true) => &[TOOLBOX, "serve", "--root", WORKSPACE],
        (Kind::Toolbox, false) => &[TOOLBOX, "serve", "--root", WORKSPACE, "--read-only"],
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

fn host(config: &DockerConfig, spec: &ContainerSpec, mounts: Vec<Mount>) -> HostConfig {
    let memory = i64::try_from(spec.limits.memory_bytes).unwrap_or(i64::MAX);
    let tmp = format!(
        "rw,exec,nosuid,nodev,size={},mode=1777",
        spec.limits.tmp_bytes
    );
    HostConfig {
        network_mode: Some("none".into()),
        readonly_rootfs: Some(true),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), tmp)])),
        mounts: Some(mounts),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges:true".into()]),
        privileged: Some(false),
        ipc_mode: Some("private".into()),
        pids_limit: Some(spec.limits.pids),
        memory: Some(memory),
        // Equal to the memory limit: no swap beyond it.
        memory_swap: Some(memory),
        nano_cpus: Some(i64::from(spec.limits.milli_cpus) * 1_000_000),
        ulimits: Some(vec![
            ulimit("nofile", SANDBOX_OPEN_FILES),
            ulimit("core", 0),
        ]),
        init: Some(false),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".into()),
            config: None,
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        runtime: config.runtime.clone(),
        ..HostConfig::default()
    }
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.into()),
        soft: Some(value),
        hard: Some(value),
    }
}

fn bind(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.into()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Files that give the user a name and `localhost` an address: without them tools that ask who they are fail. Written
/// once per user, under a name that says their content.
async fn account_files(base: &Path, user: User) -> std::io::Result<[(String, &'static str); 3]> {
    let User { uid, gid } = user;
    let directory = base.join("accounts").join(format!("{uid}-{gid}"));
    tokio::fs::create_dir_all(&directory).await?;
    let passwd = format!(
        "root:x:0:0:root:/:/sbin/nologin\nagent:x:{uid}:{gid}:Bazilion Agent:/tmp:/bin/sh\n"
    );
    let group = format!("root:x:0:\nagent:x:{gid}:\n");
    let hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    let files = [
        ("passwd", passwd, "/etc/passwd"),
        ("group", group, "/etc/group"),
        ("hosts", hosts, "/etc/hosts"),
    ];
    let mut made = [(); 3].map(|()| (String::new(), ""));
    for (slot, (name, content, target)) in made.iter_mut().zip(files) {
        let path = directory.join(name);
        if tokio::fs::read(&path).await.ok().as_deref() != Some(content.as_bytes()) {
            replace(&path, &content).await?;
        }
        *slot = (path.to_string_lossy().into_owned(), target);
    }
    Ok(made)
}

/// Written beside and renamed: another process may mount the file at this moment.
async fn replace(path: &Path, content: &str) -> std::io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    tokio::fs::write(&beside, content).await?;
    tokio::fs::rename(&beside, path).await
}
