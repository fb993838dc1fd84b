//! Lost processes and restored databases.

use bazilion::queue::claim::{Outcome, Start};
use bazilion::queue::control::Verb;
use bazilion::queue::hold::Verdict;
use bazilion::queue::{Reason, Status};

use crate::support::queue::{Home, assert_sound, because, code, extra, selection, spawn};

#[tokio::test]
async fn d01_after_a_crash_the_running_item_is_uncertain_and_the_rest_pending_in_order() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    for n in 1..=10 {
        home.say(agent, &format!("{n}")).await.unwrap();
    }
    let dead = home.process().await;
    let claim = home.run_one(dead).await;
    assert_eq!(home.reap(dead).await, 1);
    let open = home.open(agent).await;
    let texts: Vec<_> = open.iter().map(|i| i.text.clone().unwrap()).collect();
    assert_eq!(texts, (1..=10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(open[0].status, Status::Uncertain);
    assert_eq!(open[0].diagnostic.as_ref().unwrap().code, "owner_lost");
    assert!(open[1..].iter().all(|i| i.status == Status::Pending));
    let control = home.list(agent, Default::default()).await.control;
    assert_eq!(
        (control.paused, control.reason),
        (true, Some(Reason::Interrupted))
    );
    let alive = home.process().await;
    assert!(home.claim(alive, 10).await.is_empty());
    assert!(
        !home.settle(&claim, Outcome::Completed).await,
        "what the dead process writes late is dropped"
    );
    // Q101
    assert_eq!(home.reap(dead).await, 0);
    assert_eq!(home.open(agent).await, open);
    // Resume is refused until the item is closed; closing leaves the queue paused.
    let refused = home.control(agent, Verb::Resume, control.revision).await;
    assert_eq!(extra(&refused, "items")[0], open[0].id.to_string());
    assert_eq!(code(refused), "uncertain_items");
    let closed = home.reconcile(&open[0]).await.unwrap();
    assert_eq!(
        (closed.status, closed.diagnostic.unwrap().code.as_str()),
        (Status::Cancelled, "acknowledged")
    );
    assert!(home.claim(alive, 10).await.is_empty());
    // Q107
    home.control(agent, Verb::Resume, control.revision)
        .await
        .unwrap();
    assert_eq!(home.claim_one(alive).await.item, open[1].id);
    home.assert_sound().await;
}

#[tokio::test]
async fn d08_a_claim_that_never_started_is_uncertain_too() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "x").await.unwrap();
    let dead = home.process().await;
    let claim = home.claim_one(dead).await;
    home.reap(dead).await;
    assert_eq!(home.item(&item).await.status, Status::Uncertain);
    assert!(matches!(home.start(&claim).await, Start::Lost));
    home.assert_sound().await;
}

#[tokio::test]
async fn q105_reconcile_refuses_a_stale_revision_and_what_is_not_uncertain() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "x").await.unwrap();
    assert_eq!(code(home.reconcile(&item).await), "item_not_uncertain");
    let process = home.process().await;
    home.run_one(process).await;
    home.reap(process).await;
    assert_eq!(
        code(home.reconcile(&item).await),
        "item_changed",
        "the outcome raised the revision"
    );
    let now = home.item(&item).await;
    home.reconcile(&now).await.unwrap();
    assert_eq!(code(home.reconcile(&now).await), "item_not_uncertain");
}

#[tokio::test]
async fn a_dead_process_cannot_claim_and_the_work_of_a_live_one_is_not_touched() {
    let home = Home::new().await;
    let (a, b) = (home.agent("A").await, home.agent("B").await);
    home.say(a, "x").await.unwrap();
    let (dead, alive) = (home.process().await, home.process().await);
    home.run_one(dead).await;
    home.say(b, "y").await.unwrap();
    let running = home.run_one(alive).await;
    home.reap(dead).await;
    home.say(a, "z").await.unwrap();
    assert!(home.claim(dead, 5).await.is_empty());
    assert!(home.settle(&running, Outcome::Completed).await);
    home.assert_sound().await;
}

#[tokio::test]
async fn q109_an_unknown_effect_after_start_is_uncertain_and_pauses() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "x").await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    assert!(
        home.settle(&claim, Outcome::Uncertain(because("connection_lost")))
            .await
    );
    assert_eq!(home.item(&item).await.status, Status::Uncertain);
    assert!(home.list(agent, Default::default()).await.control.paused);
    home.assert_sound().await;
}

#[tokio::test]
async fn d41_a_restore_makes_every_open_item_uncertain_once_and_releases_no_approval() {
    let home = Home::new().await;
    let (a, b) = (home.agent("A").await, home.agent("B").await);
    home.say(a, "running").await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    home.say(a, "pending 1").await.unwrap();
    home.say(a, "pending 2").await.unwrap();
    home.user_edge(b, Some("approval_required")).await;
    let held = home.say(b, "held").await.unwrap();
    assert_eq!(home.mark_restored(None).await, 4);
    for item in home.open(a).await.iter().chain(&home.open(b).await) {
        assert_eq!(item.status, Status::Uncertain, "q163: {item:?}");
        assert_eq!(item.diagnostic.as_ref().unwrap().code, "restored");
        assert!(item.text.is_some());
    }
    // Q131
    assert_eq!(
        code(
            home.decide(held.approval_id.unwrap(), Verdict::Approve)
                .await
        ),
        "approval_conflict"
    );
    assert!(!home.settle(&claim, Outcome::Completed).await);
    // Q167
    let open = home.open(a).await;
    assert_eq!(home.mark_restored(None).await, 0);
    assert_eq!(home.open(a).await, open);
    // Q111: all must be acknowledged, in any order.
    let control = home.list(a, Default::default()).await.control;
    assert_eq!(control.reason, Some(Reason::Restored));
    for item in open.iter().rev() {
        assert_eq!(
            code(home.control(a, Verb::Resume, control.revision).await),
            "uncertain_items"
        );
        home.reconcile(item).await.unwrap();
        home.assert_sound().await;
    }
    home.control(a, Verb::Resume, control.revision)
        .await
        .unwrap();
    home.assert_sound().await;
}

#[tokio::test]
async fn q165_restoring_one_home_leaves_the_others_as_they_are() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "mine").await.unwrap();
    let (next, stranger, _) = home.neighbour("next").await;
    let theirs = spawn(&home.db, &stranger, "Ada").await;
    let expected = selection(&home.db, &stranger, theirs).await;
    let input = bazilion::queue::Submission::new(
        "Ada",
        bazilion::ids::RequestId::new(),
        expected,
        "theirs",
        vec![],
    )
    .unwrap();
    bazilion::queue::submit(&home.db, &home.wakes, &stranger, &input)
        .await
        .unwrap();
    assert_eq!(home.mark_restored(Some(next)).await, 1);
    assert_eq!(home.open(agent).await[0].status, Status::Pending);
    home.assert_sound().await;
    assert_sound(&home.db, &stranger).await;
}
