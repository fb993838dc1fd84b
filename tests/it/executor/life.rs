//! From creation to proven removal.

use bazilion::executor::{CleanupProof, End, Executor as _, Exit, Kind};

use crate::support::docker::{Sandbox, docker, frame, identity};

#[tokio::test]
async fn a_command_runs_and_its_container_is_proven_gone() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let mut running = sandbox
        .executor
        .run(attached, &frame("echo out; echo err >&2; exit 3"))
        .await
        .unwrap();
    let mut output = Vec::new();
    while let Some(bytes) = running.output.recv().await {
        output.extend_from_slice(&bytes);
    }
    assert_eq!(output, b"out\nerr\n");
    let exit = running.exit.await;
    assert_eq!(
        exit,
        Exit::Observed {
            end: End::Code(3),
            bytes: 8,
            out_of_memory: false
        }
    );
    let proof: CleanupProof = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    assert_eq!(proof.container(), &created.id);
    assert_eq!(
        docker(&[
            "ps",
            "--all",
            "--quiet",
            "--no-trunc",
            "--filter",
            &format!("id={}", created.id)
        ]),
        ""
    );
}
