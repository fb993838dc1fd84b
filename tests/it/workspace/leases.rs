//! Who may take a workspace, who is told what, and what ends a lease.

use bazilion::error::Code;
use bazilion::executor::{CleanupProof, ContainerId, EngineId};
use bazilion::ids::{LeaseId, ResourceId};
use bazilion::workspace::{self, NewContainer, ResourceKind};

use crate::support::docker::scratch;
use crate::support::turn::{Home, acquire, arranged, count, incarnation};

fn container(receipt: Option<bazilion::ids::ReceiptId>) -> NewContainer {
    let id = ResourceId::new();
    NewContainer {
        id,
        kind: ResourceKind::Command,
        name: format!("bazilion-{id}"),
        engine: EngineId("engine".into()),
        receipt,
    }
}

fn id_of(n: u8) -> ContainerId {
    ContainerId::parse(&hex::encode([n; 32])).unwrap()
}

#[tokio::test]
async fn w001_two_teams_on_one_root_the_second_is_busy_and_only_its_own_home_is_told_who() {
    let (test, db, home, incarnation) = arranged().await;
    let other = Home::new(&mut test.superuser().await).await;
    let root = scratch();
    std::fs::create_dir(root.join("inner")).unwrap();
    let held = workspace::acquire(&db, &acquire(&home, incarnation, &root))
        .await
        .unwrap();

    for path in [
        root.clone(),
        root.join("inner"),
        root.parent().unwrap().to_owned(),
    ] {
        let refused = workspace::acquire(&db, &acquire(&home, incarnation, &path))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::WorkspaceBusy);
        assert!(format!("{refused:?}").contains(&held.id().to_string()));
        let refused = workspace::acquire(&db, &acquire(&other, incarnation, &path))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::WorkspaceBusy);
        let told = format!("{refused:?}");
        assert!(
            told.contains("elsewhere") && !told.contains(&held.id().to_string()),
            "{told}"
        );
    }
    assert!(
        workspace::release(&db, &home.system(), held.id())
            .await
            .unwrap()
    );
    workspace::acquire(&db, &acquire(&other, incarnation, &root))
        .await
        .unwrap();
}

#[tokio::test]
async fn d68_disjoint_siblings_run_at_once() {
    let (_test, db, home, incarnation) = arranged().await;
    let root = scratch();
    for name in ["a", "b"] {
        std::fs::create_dir(root.join(name)).unwrap();
        workspace::acquire(&db, &acquire(&home, incarnation, &root.join(name)))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn of_many_that_ask_at_once_exactly_one_owns_the_tree() {
    let (test, db, home, incarnation) = arranged().await;
    let root = scratch();
    std::fs::create_dir(root.join("inner")).unwrap();
    let asked: Vec<_> = (0..8)
        .map(|n| {
            let path = if n % 2 == 0 {
                root.clone()
            } else {
                root.join("inner")
            };
            let (db, asked) = (db.clone(), acquire(&home, incarnation, &path));
            tokio::spawn(async move { workspace::acquire(&db, &asked).await.map(|_| ()) })
        })
        .collect();
    let mut won = 0;
    for task in asked {
        match task.await.unwrap() {
            Ok(()) => won += 1,
            Err(error) => assert_eq!(error.code(), Code::WorkspaceBusy),
        }
    }
    assert_eq!(won, 1);
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        1
    );
}

#[tokio::test]
async fn w007_a_lease_of_a_process_that_died_is_recovery_and_not_busy() {
    let (test, db, home, dead) = arranged().await;
    let root = scratch();
    workspace::acquire(&db, &acquire(&home, dead, &root))
        .await
        .unwrap();
    sqlx::query("DELETE FROM incarnations")
        .execute(&mut test.superuser().await)
        .await
        .unwrap();
    let living = incarnation(&mut test.superuser().await).await;
    let refused = workspace::acquire(&db, &acquire(&home, living, &root))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::WorkspaceRecoveryRequired);
}

#[tokio::test]
async fn a_lease_ends_only_with_a_proof_for_each_recorded_container() {
    let (test, db, home, incarnation) = arranged().await;
    let caller = home.system();
    let held = workspace::acquire(&db, &acquire(&home, incarnation, &scratch()))
        .await
        .unwrap();
    let (one, two) = (container(None), container(None));
    for (n, new) in [(1, &one), (2, &two)] {
        workspace::record(&db, &caller, &held, new).await.unwrap();
        workspace::bind(&db, &caller, &held, new.id, &id_of(n))
            .await
            .unwrap();
    }
    let proof = |engine: &str, n| CleanupProof::observed(EngineId(engine.into()), id_of(n));
    workspace::confirm(&db, &caller, held.id(), one.id, proof("engine", 1))
        .await
        .unwrap();
    for wrong in [proof("engine", 1), proof("another engine", 2)] {
        assert!(
            workspace::confirm(&db, &caller, held.id(), two.id, wrong)
                .await
                .is_err()
        );
    }
    assert!(!workspace::release(&db, &caller, held.id()).await.unwrap());
    assert_eq!(
        count(
            &test,
            "SELECT count(*) FROM workspace_leases WHERE state = 'recovery'"
        )
        .await,
        1
    );

    workspace::confirm(&db, &caller, held.id(), two.id, proof("engine", 2))
        .await
        .unwrap();
    assert!(workspace::release(&db, &caller, held.id()).await.unwrap());
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        0,
        "w017"
    );
}

#[tokio::test]
async fn w009_a_late_finish_frees_no_later_lease_and_nothing_is_attached_late() {
    let (_test, db, home, incarnation) = arranged().await;
    let caller = home.system();
    let root = scratch();
    let first = workspace::acquire(&db, &acquire(&home, incarnation, &root))
        .await
        .unwrap();
    assert!(workspace::release(&db, &caller, first.id()).await.unwrap());
    let second = workspace::acquire(&db, &acquire(&home, incarnation, &root))
        .await
        .unwrap();
    assert!(workspace::release(&db, &caller, first.id()).await.unwrap());
    let refused = workspace::acquire(&db, &acquire(&home, incarnation, &root))
        .await
        .unwrap_err();
    assert_eq!(
        refused.code(),
        Code::WorkspaceBusy,
        "the second lease still holds"
    );

    assert!(
        workspace::record(&db, &caller, &first, &container(None))
            .await
            .is_err()
    );
    workspace::block(&db, &caller, second.id(), "unsure")
        .await
        .unwrap();
    assert!(
        workspace::record(&db, &caller, &second, &container(None))
            .await
            .is_err()
    );
}

#[tokio::test]
async fn only_an_instance_admin_ends_a_lease_that_cannot_prove_itself_and_it_is_audited() {
    use bazilion::identity::{Actor, Caller, Credential, Role, Scopes};
    let (test, db, home, incarnation) = arranged().await;
    let held = workspace::acquire(&db, &acquire(&home, incarnation, &scratch()))
        .await
        .unwrap();
    let person = |instance_admin| {
        let actor = Actor::Operator {
            id: bazilion::ids::OperatorId::new(),
            role: Role::Owner,
            scopes: Scopes::ALL,
            credential: Credential::Session,
            instance_admin,
        };
        Caller::vouch(home.id, actor)
    };
    let refused = workspace::acknowledge(&db, &person(false), held.id())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Forbidden);
    let refused = workspace::acknowledge(&db, &person(true), held.id())
        .await
        .unwrap_err();
    assert_eq!(
        refused.code(),
        Code::WorkspaceBusy,
        "a living turn's lease is not released by hand"
    );
    workspace::record(&db, &home.system(), &held, &container(None))
        .await
        .unwrap();
    workspace::block(&db, &home.system(), held.id(), "unsure")
        .await
        .unwrap();
    workspace::acknowledge(&db, &person(true), held.id())
        .await
        .unwrap();
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        0
    );
    let audited = "SELECT count(*) FROM audit WHERE action = 'workspace.release' AND detail->>'reason' = 'unsure'";
    assert_eq!(count(&test, audited).await, 1);
    let missing = workspace::acknowledge(&db, &person(true), LeaseId::new())
        .await
        .unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}
