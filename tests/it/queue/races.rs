//! Two at once, in both orders. The lane's lock is held until both wait for it, so the order is the one that was asked
//! for; claims skip a locked lane, so for them the other order is tried with the claim first.

use std::future::Future;
use std::sync::Arc;

use bazilion::ids::AgentId;
use bazilion::queue::claim::Outcome;
use bazilion::queue::control::Verb;
use bazilion::queue::edit::Keep;
use bazilion::queue::{Item, Status, Submission};
use futures_util::future::BoxFuture;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use crate::support::queue::{Home, because, code};

async fn waiting(root: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    .fetch_one(root)
    .await
    .unwrap()
}

/// Runs both against the lane, the first before the second.
fn in_order<'a, A, B>(
    home: &'a Home,
    agent: AgentId,
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B> + Send + 'static,
) -> BoxFuture<'a, (A, B)>
where
    A: Send + 'static,
    B: Send + 'static,
{
    Box::pin(async move {
        let (mut holder, mut watcher) = (home.root().await, home.root().await);
        let mut lock = holder.begin().await.unwrap();
        sqlx::query("SELECT FROM agent_queues WHERE agent_id = $1 FOR UPDATE")
            .bind(agent.uuid())
            .execute(&mut *lock)
            .await
            .unwrap();
        let first = tokio::spawn(first);
        while waiting(&mut watcher).await < 1 {}
        let second = tokio::spawn(second);
        while waiting(&mut watcher).await < 2 {}
        lock.commit().await.unwrap();
        (first.await.unwrap(), second.await.unwrap())
    })
}

async fn with_item() -> (Arc<Home>, AgentId, Item) {
    let home = Arc::new(Home::new().await);
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "original").await.unwrap();
    (home, agent, item)
}

async fn editing(
    home: &Arc<Home>,
    item: &Item,
    text: &'static str,
) -> impl Future<Output = bazilion::error::Result<Item>> + Send + use<> {
    let edit = home.edit_of(item, Some(text), Keep::All, vec![]).await;
    let home = home.clone();
    async move { home.edit(&edit).await }
}

fn removing(
    home: &Arc<Home>,
    item: &Item,
) -> impl Future<Output = bazilion::error::Result<Item>> + Send + use<> {
    let (home, item) = (home.clone(), item.clone());
    async move { home.remove(&item).await }
}

#[tokio::test]
async fn edit_against_edit_the_first_wins_and_the_other_sees_what_became_of_it() {
    let (home, agent, item) = with_item().await;
    let (one, two) = (
        editing(&home, &item, "one").await,
        editing(&home, &item, "two").await,
    );
    let (one, two) = in_order(&home, agent, one, two).await;
    assert_eq!(one.unwrap().text.as_deref(), Some("one"));
    assert_eq!(code(two), "item_not_editable");
    assert_eq!(home.open(agent).await.len(), 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn edit_against_remove_in_both_orders() {
    let (home, agent, item) = with_item().await;
    let (edit, remove) = (editing(&home, &item, "new").await, removing(&home, &item));
    let (edit, remove) = in_order(&home, agent, edit, remove).await;
    assert!(edit.is_ok());
    assert_eq!(code(remove), "item_not_editable");
    assert_eq!(home.open(agent).await.len(), 1);

    let (home, agent, item) = with_item().await;
    let (edit, remove) = (editing(&home, &item, "new").await, removing(&home, &item));
    let (remove, edit) = in_order(&home, agent, remove, edit).await;
    assert!(remove.is_ok());
    assert_eq!(code(edit), "item_not_editable");
    assert!(home.open(agent).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn edit_or_remove_against_claim_exactly_one_wins_in_a_free_race() {
    for round in 0..12 {
        let (home, agent, item) = with_item().await;
        let process = home.process().await;
        let claimer = home.clone();
        let claim = tokio::spawn(async move { claimer.claim(process, 1).await });
        let change = match round % 2 {
            0 => tokio::spawn(editing(&home, &item, "new").await),
            _ => tokio::spawn(removing(&home, &item)),
        };
        let (claims, changed) = (claim.await.unwrap(), change.await.unwrap());
        let took_original = claims.iter().any(|claim| claim.item == item.id);
        assert!(took_original != changed.is_ok(), "{claims:?} {changed:?}");
        if took_original {
            assert_eq!(code(changed), "item_not_editable");
            assert_eq!(home.item(&item).await.text.as_deref(), Some("original"));
        }
        assert!(home.open(agent).await.len() <= 1);
        home.assert_sound().await;
    }
}

#[tokio::test]
async fn a_claim_skips_a_lane_that_is_being_changed_and_finds_it_afterwards() {
    let (home, agent, _) = with_item().await;
    let process = home.process().await;
    let mut holder = home.root().await;
    let mut lock = holder.begin().await.unwrap();
    sqlx::query("SELECT FROM agent_queues WHERE agent_id = $1 FOR UPDATE")
        .bind(agent.uuid())
        .execute(&mut *lock)
        .await
        .unwrap();
    assert!(
        home.claim(process, 1).await.is_empty(),
        "and waits for nobody"
    );
    lock.commit().await.unwrap();
    assert_eq!(home.claim(process, 1).await.len(), 1);
}

#[tokio::test]
async fn stop_against_settle_in_both_orders() {
    for stop_first in [true, false] {
        let (home, agent, item) = with_item().await;
        let process = home.process().await;
        let claim = home.run_one(process).await;
        let (a, b) = (home.clone(), home.clone());
        let stop = async move { a.control(agent, Verb::Stop, 0).await };
        let settle = async move { b.settle(&claim, Outcome::Completed).await };
        let stopped = if stop_first {
            let (stopped, settled) = in_order(&home, agent, stop, settle).await;
            assert!(settled, "a stop changes no outcome by itself");
            stopped.unwrap()
        } else {
            let (settled, stopped) = in_order(&home, agent, settle, stop).await;
            assert!(settled);
            stopped.unwrap()
        };
        assert_eq!(stopped.active, stop_first);
        assert!(stopped.control.paused);
        assert_eq!(home.item(&item).await.status, Status::Completed);
        home.assert_sound().await;
    }
}

#[tokio::test]
async fn pause_against_start_in_both_orders() {
    for pause_first in [true, false] {
        let (home, agent, item) = with_item().await;
        let process = home.process().await;
        let claim = home.claim_one(process).await;
        let (a, b) = (home.clone(), home.clone());
        let pause = async move { a.control(agent, Verb::Pause, 0).await.map(|_| ()) };
        let start = async move { b.start(&claim).await };
        let started = if pause_first {
            in_order(&home, agent, pause, start).await.1
        } else {
            in_order(&home, agent, start, pause).await.0
        };
        let running = matches!(started, bazilion::queue::claim::Start::Running(_));
        assert_eq!(running, !pause_first, "{started:?}");
        let expected = if pause_first {
            Status::Pending
        } else {
            Status::Running
        };
        assert_eq!(home.item(&item).await.status, expected);
        home.assert_sound().await;
    }
}

#[tokio::test]
async fn reaper_against_settle_in_both_orders() {
    for reap_first in [true, false] {
        let (home, agent, item) = with_item().await;
        let process = home.process().await;
        let claim = home.run_one(process).await;
        let (a, b) = (home.clone(), home.clone());
        let reap = async move { a.reap(process).await };
        let settle = async move { b.settle(&claim, Outcome::Completed).await };
        let (lost, settled) = if reap_first {
            in_order(&home, agent, reap, settle).await
        } else {
            let (settled, lost) = in_order(&home, agent, settle, reap).await;
            (lost, settled)
        };
        assert_eq!((lost == 1, settled), (reap_first, !reap_first));
        let expected = if reap_first {
            Status::Uncertain
        } else {
            Status::Completed
        };
        assert_eq!(home.item(&item).await.status, expected);
        home.assert_sound().await;
    }
}

#[tokio::test]
async fn forty_sends_of_one_request_make_one_item() {
    let home = Arc::new(Home::new().await);
    let agent = home.agent("Ada").await;
    let input = home.input(agent, "once", vec![]).await;
    let mut set = JoinSet::new();
    for _ in 0..40 {
        let (home, input) = (home.clone(), input.clone());
        // Each client mints ids of its own.
        let fresh = Submission::new(
            agent.to_string(),
            input.request_id,
            input.expected,
            "once",
            vec![],
        )
        .unwrap();
        set.spawn(async move { home.submit(&fresh).await.unwrap().id });
    }
    let ids: std::collections::BTreeSet<_> = set.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(home.count("SELECT count(*) FROM conversations").await, 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn one_identity_sent_through_many_agents_at_once_is_accepted_once() {
    let home = Arc::new(Home::new().await);
    let request = bazilion::ids::RequestId::new();
    let mut set = JoinSet::new();
    for n in 0..8 {
        let agent = home.agent(&format!("A{n}")).await;
        let selection = home.selection(agent).await;
        let input = Submission::new(agent.to_string(), request, selection, "x", vec![]).unwrap();
        let home = home.clone();
        set.spawn(async move { home.submit(&input).await });
    }
    let (stored, refused): (Vec<_>, Vec<_>) =
        set.join_all().await.into_iter().partition(|r| r.is_ok());
    assert_eq!(stored.len(), 1);
    assert!(refused.into_iter().all(|r| code(r) == "request_conflict"));
    home.assert_sound().await;
}

#[tokio::test]
async fn many_processes_share_many_agents_without_a_double_claim() {
    let home = Arc::new(Home::new().await);
    for n in 0..10 {
        let agent = home.agent(&format!("A{n}")).await;
        for _ in 0..3 {
            home.say(agent, "x").await.unwrap();
        }
    }
    let mut set = JoinSet::new();
    for _ in 0..4 {
        let process = home.process().await;
        let home = home.clone();
        set.spawn(async move {
            let mut done = 0;
            while home
                .count("SELECT open_items::bigint FROM home_usage")
                .await
                > 0
            {
                for claim in home.claim(process, 2).await {
                    assert!(matches!(
                        home.start(&claim).await,
                        bazilion::queue::claim::Start::Running(_)
                    ));
                    assert!(home.settle(&claim, Outcome::Failed(because("x"))).await);
                    done += 1;
                }
            }
            done
        });
    }
    assert_eq!(set.join_all().await.into_iter().sum::<i32>(), 30);
    home.assert_sound().await;
}
