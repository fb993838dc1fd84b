//! Containers started before their command is known, and what that saves.

use std::time::{Duration, Instant};

use bazilion::executor::ahead::{Ahead, Prepared, Taken};
use bazilion::executor::{Executor as _, Exit, Kind, images};
use bazilion::ids::ReceiptId;

use crate::support::docker::{Sandbox, docker, frame, identity};

async fn prepared(sandbox: &Sandbox) -> Prepared {
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    Prepared {
        spec,
        created,
        attached,
    }
}

#[tokio::test]
async fn a_prepared_container_serves_exactly_the_command_it_was_made_for() {
    let sandbox = Sandbox::new().await;
    let mut ahead = Ahead::default();
    assert!(matches!(
        ahead.take(&sandbox.spec(Kind::Command).await).await,
        Taken::Nothing
    ));

    let first = prepared(&sandbox).await;
    let mut wanted = first.spec.clone();
    wanted.name = "another".into();
    wanted.labels.receipt = Some(ReceiptId::new());
    assert!(ahead.keep(first).is_none());
    let Taken::Fits(fits) = ahead.take(&wanted).await else {
        panic!("it fits")
    };
    let identity = fits.identity();
    let mut running = sandbox
        .executor
        .run(fits.attached, &frame("echo hi"))
        .await
        .unwrap();
    assert_eq!(
        running.output.recv().await.as_deref(),
        Some(b"hi\n".as_slice())
    );
    assert!(matches!(running.exit.await, Exit::Observed { .. }));
    let _ = sandbox.executor.remove(&identity).await.unwrap();

    let second = prepared(&sandbox).await;
    let mut other = second.spec.clone();
    other.limits.pids += 1;
    ahead.keep(second);
    let Taken::Stale(stale) = ahead.take(&other).await else {
        panic!("it does not fit")
    };
    let _ = sandbox.executor.remove(&stale).await.unwrap();
    assert!(ahead.discard().is_none());
}

#[tokio::test]
async fn the_toolbox_image_holds_only_the_program_and_is_made_once() {
    let sandbox = Sandbox::new().await;
    let program = sandbox.toolbox_program();
    let image = images::toolbox(&sandbox.executor, &program).await.unwrap();
    assert_eq!(
        images::toolbox(&sandbox.executor, &program).await.unwrap(),
        image
    );
    let mut spec = sandbox.spec(Kind::Toolbox).await;
    spec.image = image.id;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let changed = docker(&[
        "export",
        created.id.as_str(),
        "--output",
        &sandbox.directory.join("fs.tar").display().to_string(),
    ]);
    assert_eq!(changed, "");
    let mut archive =
        tar::Archive::new(std::fs::File::open(sandbox.directory.join("fs.tar")).unwrap());
    let files: Vec<String> = archive
        .entries()
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.header().size().unwrap() > 0)
        .map(|entry| entry.path().unwrap().display().to_string())
        .collect();
    assert_eq!(files, ["bazilion-toolbox"]);
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

/// Ratios on one machine in one interleaved run, never absolute times.
#[tokio::test]
async fn a_container_of_ours_costs_a_fraction_of_a_docker_run() {
    let sandbox = Sandbox::new().await;
    let (mut cold, mut warm, mut result, mut run) = (vec![], vec![], vec![], vec![]);
    for _ in 0..7 {
        let begun = Instant::now();
        let ready = prepared(&sandbox).await;
        let handed = Instant::now();
        let identity = ready.identity();
        let mut running = sandbox
            .executor
            .run(ready.attached, &frame("true"))
            .await
            .unwrap();
        // The channel closes when the launcher's trailer has come.
        while running.output.recv().await.is_some() {}
        result.push(handed.elapsed());
        assert!(matches!(running.exit.await, Exit::Observed { .. }));
        let _ = sandbox.executor.remove(&identity).await.unwrap();
        warm.push(handed.elapsed());
        cold.push(begun.elapsed());

        let begun = Instant::now();
        docker(&[
            "run",
            "--rm",
            "--network",
            "none",
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--pids-limit",
            "256",
            "--memory",
            "2g",
            "--tmpfs",
            "/tmp",
            "--user",
            "1000:1000",
            &sandbox.image.id,
            "/bin/true",
        ]);
        run.push(begun.elapsed());
    }
    let [result, warm, cold, run] = [result, warm, cold, run].map(median);
    println!("result {result:?}, warm {warm:?}, cold {cold:?}, docker run {run:?}");
    assert!(cold < run, "cold {cold:?}, docker run {run:?}");
    assert!(warm * 2 < run, "warm {warm:?}, docker run {run:?}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
