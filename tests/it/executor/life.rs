//! From creation to proven removal.

use std::fs;

use bazilion::executor::{
    CleanupProof, End, EngineId, Executor as _, ExecutorError, Exit, Identity, Kind,
};
use bazilion::ids::{HomeId, LeaseId};

use crate::support::docker::{Sandbox, docker, frame, identity, processes_with, wait_code};

#[tokio::test]
async fn a_command_runs_and_its_container_is_proven_gone() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let frame = frame("echo out; echo err >&2; exit 3");
    let mut running = sandbox.executor.run(attached, &frame).await.unwrap();
    let mut output = Vec::new();
    while let Some(bytes) = running.output.recv().await {
        output.extend_from_slice(&bytes);
    }
    assert_eq!(output, b"out\nerr\n");
    let observed = Exit::Observed {
        end: End::Code(3),
        bytes: 8,
        out_of_memory: false,
    };
    assert_eq!(running.exit.await, observed);
    let proof: CleanupProof = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    assert_eq!(proof.container(), &created.id);
    assert_eq!(proof.engine(), &created.engine);
    let id = format!("id={}", created.id);
    assert_eq!(docker(&["ps", "--all", "--quiet", "--filter", &id]), "");
}

#[tokio::test]
async fn removing_again_proves_the_same() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let identity = identity(&spec, &created);
    let first = sandbox.executor.remove(&identity).await.unwrap();
    assert_eq!(sandbox.executor.remove(&identity).await.unwrap(), first);
}

#[tokio::test]
async fn several_servers_may_remove_the_same_container_at_once() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let _attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let identity = identity(&spec, &created);
    let remove = || Box::pin(sandbox.executor.remove(&identity));
    let all = tokio::join!(remove(), remove(), remove(), remove());
    for proof in [all.0, all.1, all.2, all.3] {
        assert_eq!(proof.unwrap().container(), &created.id);
    }
}

#[tokio::test]
async fn a_creation_that_was_not_acknowledged_is_found_by_name_and_labels() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let unknown = Identity {
        id: None,
        ..identity(&spec, &created)
    };
    let proof = sandbox.executor.remove(&unknown).await.unwrap();
    assert_eq!(proof.container(), &created.id);
    // Now it is missing by name, and that alone proves nothing.
    let again = sandbox.executor.remove(&unknown).await.unwrap_err();
    assert!(again.reason.contains("never acknowledged"), "{again}");
}

#[tokio::test]
async fn a_container_with_other_labels_is_left_alone() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let true_identity = identity(&spec, &created);
    let mut foreign = Vec::new();
    for id in [None, Some(created.id.clone())] {
        let mut other_lease = true_identity.clone();
        other_lease.id = id.clone();
        other_lease.labels.lease = Some(LeaseId::new());
        let mut other_home = true_identity.clone();
        other_home.id = id.clone();
        other_home.labels.home = HomeId::new();
        let mut other_generation = true_identity.clone();
        other_generation.id = id;
        other_generation.labels.generation = 2;
        foreign.extend([other_lease, other_home, other_generation]);
    }
    for identity in foreign {
        let refused = sandbox.executor.remove(&identity).await.unwrap_err();
        assert!(refused.reason.contains("left alone"), "{refused}");
    }
    let listed = sandbox.executor.list_ours(sandbox.instance).await.unwrap();
    assert_eq!(listed.len(), 1);
    let _ = sandbox.executor.remove(&true_identity).await.unwrap();
}

#[tokio::test]
async fn an_absence_on_another_engine_is_no_proof() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    let elsewhere = Identity {
        engine: EngineId("another".into()),
        ..identity(&spec, &created)
    };
    let refused = sandbox.executor.remove(&elsewhere).await.unwrap_err();
    assert!(
        refused.reason.contains("Another container engine"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_name_can_be_claimed_once() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let second = sandbox.executor.create(&spec).await.unwrap_err();
    assert!(
        matches!(second, ExecutorError::Refused { status: 409, .. }),
        "{second}"
    );
    assert!(!second.may_have_happened());
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn d054_a_running_command_has_the_labels_that_recovery_compares() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let running = sandbox
        .executor
        .run(attached, &frame("sleep 60"))
        .await
        .unwrap();
    let labels = docker(&[
        "inspect",
        "--format",
        "{{json .Config.Labels}}",
        created.id.as_str(),
    ]);
    for label in [
        "product",
        "instance",
        "generation",
        "home",
        "team",
        "agent",
        "lease",
        "receipt",
        "owner",
    ] {
        assert!(
            labels.contains(&format!("\"bazilion.{label}\"")),
            "{label} in {labels}"
        );
    }
    let listed = sandbox.executor.list_ours(sandbox.instance).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].labels.as_ref(), Some(&spec.labels));
    assert_eq!(listed[0].id, created.id);
    assert!(listed[0].running);
    drop(running);
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    assert!(
        sandbox
            .executor
            .list_ours(sandbox.instance)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_workspace_that_was_replaced_is_refused() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    fs::rename(&sandbox.workspace, sandbox.directory.join("moved")).unwrap();
    fs::create_dir(&sandbox.workspace).unwrap();
    let refused = sandbox.executor.open(&created.id, &spec).await.unwrap_err();
    assert!(matches!(refused, ExecutorError::Blocked(_)), "{refused}");
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    let refused = sandbox.executor.create(&spec).await.unwrap_err();
    assert!(matches!(refused, ExecutorError::Blocked(_)), "{refused}");
}

#[tokio::test]
async fn d060_a_workspace_that_is_another_directory_inside_runs_nothing() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    // What an engine on another host would do: the same path there is another directory.
    let elsewhere = sandbox.directory.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut admitted = spec.clone();
    admitted.workspace.path = elsewhere.clone();
    admitted.workspace.identity = bazilion::executor::docker::identity_of(&elsewhere)
        .await
        .unwrap();
    let refused = sandbox
        .executor
        .open(&created.id, &admitted)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("not the Team's root"),
        "{refused}"
    );
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_workspace_that_the_user_cannot_write_is_refused() {
    let sandbox = Sandbox::new().await;
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.user.uid += 1;
    spec.user.gid += 1;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let refused = sandbox.executor.open(&created.id, &spec).await.unwrap_err();
    assert!(refused.to_string().contains("cannot write"), "{refused}");
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_image_and_one_with_volumes_are_refused() {
    let sandbox = Sandbox::new().await;
    let missing = sandbox
        .executor
        .image("bazilion/none:such")
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    let volumes = crate::support::docker::image_with_volume(&sandbox).await;
    let refused = sandbox.executor.image(&volumes).await.unwrap_err();
    assert!(refused.to_string().contains("volumes"), "{refused}");
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.image = volumes;
    assert!(matches!(
        sandbox.executor.create(&spec).await,
        Err(ExecutorError::Blocked(_))
    ));
}

#[tokio::test]
async fn a_server_that_dies_leaves_nothing_running() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let marker = sandbox.marker();
    let command = format!("trap '' TERM; setsid sleep {marker} & sleep {marker} & echo up; wait");
    let mut running = sandbox
        .executor
        .run(attached, &frame(&command))
        .await
        .unwrap();
    assert_eq!(
        running.output.recv().await.as_deref(),
        Some(b"up\n".as_slice())
    );
    assert!(processes_with(&marker) > 0);
    // The streams of a dead process are closed by the kernel.
    drop(running);
    assert_eq!(wait_code(&created.id).await, "124");
    assert_eq!(processes_with(&marker), 0);
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_container_prepared_and_never_used_ends_by_itself() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    drop(attached);
    assert_eq!(wait_code(&created.id).await, "125");
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_command_cut_off_in_the_middle_runs_nothing() {
    use tokio::io::AsyncWriteExt as _;
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let mut attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let bytes = frame("touch ran; rm -rf everything").encode().unwrap();
    attached
        .input
        .write_all(&bytes[..bytes.len() - 1])
        .await
        .unwrap();
    attached.input.flush().await.unwrap();
    drop(attached);
    assert_eq!(wait_code(&created.id).await, "125");
    assert_eq!(fs::read_dir(&sandbox.workspace).unwrap().count(), 0);
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn d051_many_commands_leave_no_container() {
    let sandbox = Sandbox::new().await;
    for round in 0..5 {
        let ran = sandbox.run(&format!("echo {round}")).await;
        assert_eq!(ran.text(), format!("{round}\n"));
    }
    assert!(
        sandbox
            .executor
            .list_ours(sandbox.instance)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_engine_that_is_away_blocks_and_proves_nothing() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let away = sandbox.executor_at(&sandbox.directory.join("no.sock"));
    assert!(matches!(away.probe().await, Err(ExecutorError::Blocked(_))));
    assert!(away.remove(&identity(&spec, &created)).await.is_err());
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}
