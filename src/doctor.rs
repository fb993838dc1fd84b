//! `bazilion doctor`: looks at everything an instance needs, changes nothing, and names the next step of what is missing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::server::Doctor;
use crate::config::{self, Asked, Config, Obstacle};
use crate::console::Out;
use crate::embedded::binaries::Search;
use crate::embedded::{Layout, lock};
use crate::executor::docker::{DockerConfig, DockerExecutor};
use crate::executor::{EngineReport, Executor as _, images};
use crate::limits::DATA_SPACE_MIN;
use crate::runtime::pi::install::{self, PiInstall};
use crate::up::engine;

/// What was found of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// Not there yet, and `bazilion up` brings it.
    Later,
    /// Worth knowing; nothing to do.
    Note,
    Bad,
}

/// One line of the report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Check {
    fn of(name: &'static str, state: State, found: impl Into<String>) -> Self {
        Self {
            name,
            state,
            found: found.into(),
            next: None,
        }
    }

    fn bad(name: &'static str, obstacle: Obstacle) -> Self {
        Self {
            name,
            state: State::Bad,
            found: obstacle.what,
            next: Some(obstacle.next),
        }
    }
}

/// Looks, and prints. Exit code 1 when something is bad.
pub async fn run(doctor: Doctor) -> ExitCode {
    let asked = Asked {
        data_dir: doctor.data_dir,
        ..Asked::default()
    };
    let checks = match Config::load(&asked, &config::environment) {
        Ok(config) => look(&config).await,
        Err(obstacle) => vec![Check::bad("settings", obstacle)],
    };
    let out = Out::new(doctor.json);
    let well = checks.iter().all(|check| check.state != State::Bad);
    if doctor.json {
        out.data(&serde_json::json!({ "ok": well, "checks": checks }).to_string());
    } else {
        checks.iter().for_each(|check| show(&out, check));
    }
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn show(out: &Out, check: &Check) {
    let mark = match check.state {
        State::Ok => "ok     ",
        State::Later => "later  ",
        State::Note => "note   ",
        State::Bad => "MISSING",
    };
    out.data(&format!("{mark} {:<14} {}", check.name, check.found));
    if let Some(next) = &check.next {
        out.data(&format!("        {:<14} next: {next}", ""));
    }
}

async fn look(config: &Config) -> Vec<Check> {
    let layout = Layout::look(&config.data_dir);
    let mut checks = vec![
        data_directory(&layout),
        space(&config.data_dir),
        postgres(&layout),
    ];
    checks.push(toolbox());
    checks.extend(containers(config).await);
    checks.push(pi(&config.cache_dir));
    checks.extend(restores());
    checks
}

fn data_directory(layout: &Layout) -> Check {
    const NAME: &str = "data directory";
    let root = layout.root();
    let Ok(meta) = std::fs::metadata(root) else {
        return Check::of(
            NAME,
            State::Later,
            format!("{} is made by the first start", root.display()),
        );
    };
    if !meta.is_dir() {
        let what = format!("{} is no directory.", root.display());
        return Check::bad(
            NAME,
            Obstacle::new(what, "Move it away, or choose another with --data-dir."),
        );
    }
    let access = rustix::fs::access(root, rustix::fs::Access::WRITE_OK);
    if let Err(e) = access {
        return Check::bad(NAME, Obstacle::file("Writing to", root, &e.into()));
    }
    let held = lock::holder(layout).and_then(|holder| holder.url().map(str::to_owned));
    let served = held.map_or(String::new(), |url| format!(", last served at {url}"));
    Check::of(NAME, State::Ok, format!("{}{served}", root.display()))
}

fn space(data: &Path) -> Check {
    const NAME: &str = "disk space";
    let existing: PathBuf = data
        .ancestors()
        .find(|dir| dir.exists())
        .unwrap_or(Path::new("/"))
        .into();
    match rustix::fs::statvfs(&existing) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let found = format!("{} MiB free at {}", free >> 20, existing.display());
            if free < DATA_SPACE_MIN {
                Check::bad(
                    NAME,
                    Obstacle::new(
                        format!("{found}."),
                        "Free some space, or choose another disk.",
                    ),
                )
            } else {
                Check::of(NAME, State::Ok, found)
            }
        }
        Err(e) => Check::bad(
            NAME,
            Obstacle::file("Looking at the disk of", &existing, &e.into()),
        ),
    }
}

fn postgres(layout: &Layout) -> Check {
    match Search::of_machine().choose(layout.cluster_major()) {
        Ok(found) => Check::of(
            "postgresql",
            State::Ok,
            format!("{} in {}", found.version, found.dir.display()),
        ),
        Err(obstacle) => Check::bad("postgresql", obstacle),
    }
}

fn toolbox() -> Check {
    match engine::find_toolbox() {
        Ok(path) => Check::of("toolbox", State::Ok, format!("static, {}", path.display())),
        Err(obstacle) => Check::bad("toolbox", obstacle),
    }
}

async fn containers(config: &Config) -> Vec<Check> {
    let socket = &config.executor.socket;
    let executor = DockerExecutor::new(DockerConfig {
        socket: socket.clone(),
        base: config.workspace_base.clone(),
        toolbox_program: engine::find_toolbox().unwrap_or_default(),
        runtime: None,
    });
    let report = match executor.probe().await {
        Ok(report) => report,
        Err(e) => {
            let next = "Install and start Docker, and be root or a member of the group docker; DOCKER_HOST names another socket.";
            let what = format!("{}: {e}", socket.display());
            return vec![Check::bad("containers", Obstacle::new(what, next))];
        }
    };
    let found = format!(
        "engine {}, runtime {}, {}",
        report.version,
        report.runtime,
        socket.display()
    );
    let mut checks = vec![Check::of("containers", State::Ok, found)];
    checks.extend(restrictions(&report));
    let sandbox = config
        .sandbox_image
        .clone()
        .unwrap_or_else(images::sandbox_reference);
    checks.push(match executor.image(&sandbox).await {
        Ok(image) => Check::of("sandbox image", State::Ok, image.reference),
        Err(_) if config.sandbox_image.is_none() => Check::of(
            "sandbox image",
            State::Later,
            format!("{sandbox} is built by the next `bazilion up`"),
        ),
        Err(e) => {
            let next = "Build or load that image; nothing is pulled.";
            Check::bad("sandbox image", Obstacle::new(e.to_string(), next))
        }
    });
    checks
}

/// Limits that the engine cannot enforce: commands run all the same, and say so.
fn restrictions(report: &EngineReport) -> Vec<Check> {
    let note = |restriction| {
        Check::of(
            "containers",
            State::Note,
            format!("{restriction:?} is not enforced here"),
        )
    };
    report.restrictions.iter().map(note).collect()
}

fn pi(cache: &Path) -> Check {
    match PiInstall::at(cache).verify() {
        Ok(()) => Check::of(
            "engine",
            State::Ok,
            format!("{}, every file as fetched", install::engine_name()),
        ),
        Err(install::InstallError::Missing(_)) => Check::of(
            "engine",
            State::Later,
            format!(
                "{} is fetched by the next `bazilion up`",
                install::engine_name()
            ),
        ),
        Err(e) => Check::bad(
            "engine",
            Obstacle::new(
                format!("{e}."),
                "Remove that directory and start `bazilion up`.",
            ),
        ),
    }
}

/// What the recognition of copies and rewinds can see, and what nothing can.
fn restores() -> Vec<Check> {
    let seen = "seen by itself: a dump that was loaded, a copied database or data directory, another timeline or \
                cluster, a directory that was taken back";
    let unseen =
        "not seen: a snapshot of the whole machine; say it with `bazilion instance mark-restored`";
    vec![
        Check::of("restores", State::Note, seen),
        Check::of("restores", State::Note, unseen),
    ]
}
