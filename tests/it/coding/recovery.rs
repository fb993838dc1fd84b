//! A process that dies between two steps: what it left is found by its record, and nothing reports a success.

use bazilion::coding::{self, receipt::State};
use bazilion::db::{Op, TenantTx};
use bazilion::executor::{Executor as _, Kind};
use bazilion::ids::{IncarnationId, ResourceId};
use bazilion::workspace::recovery::{self, Machine};
use bazilion::workspace::{self, NewContainer, ResourceKind};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::docker::{Sandbox, docker};
use crate::support::turn::{Turn, arranged, count};

fn here() -> Machine {
    Machine {
        node_id: Uuid::nil(),
        machine_id: "m".into(),
        boot_id: "b".into(),
    }
}

#[tokio::test]
async fn a_command_of_a_dead_process_is_interrupted_and_its_container_found_and_removed() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = std::sync::Arc::new(Turn::start(&db, &home, incarnation, &sandbox).await);
    let mut live = turn.session.live.subscribe();
    let running = tokio::spawn({
        let turn = turn.clone();
        async move {
            turn.run_within("echo begun; sleep 300", 300, &CancellationToken::new())
                .await
        }
    });
    while !live.recv().await.unwrap().output.tail.contains("begun") {}
    // The process dies: its task is gone without another step, and it is judged dead.
    running.abort();
    let _ = running.await;
    sqlx::query("DELETE FROM incarnations")
        .execute(&mut test.superuser().await)
        .await
        .unwrap();
    let lost = db
        .transact(
            &home.system(),
            Op::locking("test.lose"),
            &incarnation,
            async |tx: &mut TenantTx, id: &IncarnationId| coding::lose_in(tx, *id).await,
        )
        .await
        .unwrap();
    assert_eq!(lost, 1);
    let receipt = db
        .transact(
            &home.system(),
            Op::locking("test.look"),
            &(home.team.to_string(), None, None, 10),
            coding::receipts,
        )
        .await
        .unwrap();
    assert_eq!(receipt[0].state, State::Interrupted);
    assert_eq!(receipt[0].output.tail, "begun\n");

    let found = recovery::lost(&db, 1).await.unwrap();
    assert_eq!(found, [(home.id, turn.lease.id())]);
    assert!(
        recovery::recover(
            &db,
            sandbox.executor.as_ref(),
            &here(),
            home.id,
            turn.lease.id()
        )
        .await
        .unwrap()
    );
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        0
    );
    let label = format!("label=bazilion.instance={}", sandbox.instance);
    assert_eq!(docker(&["ps", "--all", "--quiet", "--filter", &label]), "");
}

#[tokio::test]
async fn w013_an_unacknowledged_container_blocks_until_it_appears_and_is_removed() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.labels = turn.session.labels();
    let new = NewContainer {
        id: ResourceId::new(),
        kind: ResourceKind::Command,
        name: spec.name.clone(),
        engine: sandbox.executor.probe().await.unwrap().id,
        receipt: None,
    };
    workspace::record(&db, &home.system(), &turn.lease, &new)
        .await
        .unwrap();
    // The process dies between the record and the engine's answer.
    sqlx::query("DELETE FROM incarnations")
        .execute(&mut test.superuser().await)
        .await
        .unwrap();
    let machine = here();
    let recover = || {
        recovery::recover(
            &db,
            sandbox.executor.as_ref(),
            &machine,
            home.id,
            turn.lease.id(),
        )
    };
    assert!(
        !recover().await.unwrap(),
        "it is not there, and may still appear"
    );
    assert!(!recover().await.unwrap());
    let _late = sandbox.executor.create(&spec).await.unwrap();
    assert!(
        recover().await.unwrap(),
        "it appeared, was recognised, and is gone"
    );
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        0
    );
}

#[tokio::test]
async fn w005_a_container_with_other_labels_is_left_alone_and_the_workspace_stays_blocked() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let new = NewContainer {
        id: ResourceId::new(),
        kind: ResourceKind::Command,
        name: spec.name.clone(),
        engine: created.engine.clone(),
        receipt: None,
    };
    workspace::record(&db, &home.system(), &turn.lease, &new)
        .await
        .unwrap();
    assert!(
        !recovery::recover(
            &db,
            sandbox.executor.as_ref(),
            &here(),
            home.id,
            turn.lease.id()
        )
        .await
        .unwrap()
    );
    let filter = format!("id={}", created.id);
    assert_ne!(docker(&["ps", "--all", "--quiet", "--filter", &filter]), "");
    assert_eq!(
        count(
            &test,
            "SELECT count(*) FROM workspace_leases WHERE state = 'recovery'"
        )
        .await,
        1
    );
}
