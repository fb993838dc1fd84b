//! The short way in: one statement, whose rules and answers are those of the general way.

use bazilion::queue::{self, Submission};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::queue::Home;

/// The backends that wait in the one statement, when there are at least `count`.
async fn waiting(root: &mut PgConnection, count: usize) -> Vec<i32> {
    loop {
        let pids: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%submit_inputs%'",
        )
        .fetch_all(&mut *root)
        .await
        .unwrap();
        if pids.len() >= count {
            return pids;
        }
        tokio::task::yield_now().await;
    }
}

async fn lock_lanes(root: &mut PgConnection) -> sqlx::Transaction<'_, sqlx::Postgres> {
    let mut tx = root.begin().await.unwrap();
    tx.execute("SELECT FROM agent_queues FOR UPDATE")
        .await
        .unwrap();
    tx
}

async fn receipts(root: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM queue_items")
        .fetch_one(root)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_plain_input_is_one_statement_that_waits_for_the_lane() {
    let home = Home::new().await;
    let ada = home.agent("Ada").await;
    // The first input begins the conversation, which is not plain.
    home.say(ada, "first").await.unwrap();
    let (mut root, mut other) = (home.root().await, home.root().await);
    let input = home.input(ada, "second", vec![]).await;
    let held = lock_lanes(&mut root).await;
    let submitting = {
        let (db, wakes, caller, input) = (
            home.db.clone(),
            home.wakes.clone(),
            home.caller.clone(),
            input.clone(),
        );
        tokio::spawn(async move { queue::submit(&db, &wakes, &caller, &input).await })
    };
    waiting(&mut other, 1).await;
    held.rollback().await.unwrap();
    let item = submitting.await.unwrap().unwrap();
    assert_eq!(item.position, 2);
    // What the short way answered is what is stored, digest included: the exact retry finds it.
    assert_eq!(home.item(&item).await, item);
    assert_eq!(home.submit(&input).await.unwrap(), item);
    assert!(
        queue::violations(&home.db, &home.caller)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_lost_connection_stores_the_input_once_and_answers_with_it() {
    let home = Home::new().await;
    let ada = home.agent("Ada").await;
    home.say(ada, "first").await.unwrap();
    let (mut root, mut other) = (home.root().await, home.root().await);
    let input = home.input(ada, "second", vec![]).await;
    let held = lock_lanes(&mut root).await;
    let submitting = {
        let (db, wakes, caller, input) = (
            home.db.clone(),
            home.wakes.clone(),
            home.caller.clone(),
            input.clone(),
        );
        tokio::spawn(async move { queue::submit(&db, &wakes, &caller, &input).await })
    };
    for pid in waiting(&mut other, 1).await {
        let _: bool = sqlx::query_scalar("SELECT pg_terminate_backend($1)")
            .bind(pid)
            .fetch_one(&mut other)
            .await
            .unwrap();
    }
    held.rollback().await.unwrap();
    let item = submitting.await.unwrap().unwrap();
    assert_eq!(home.item(&item).await, item);
    assert_eq!(receipts(&mut other).await, 2);
}

#[tokio::test]
async fn two_sendings_of_one_request_at_the_same_moment_are_one_item() {
    let home = Home::new().await;
    let ada = home.agent("Ada").await;
    home.say(ada, "first").await.unwrap();
    let (mut root, mut other) = (home.root().await, home.root().await);
    let input = home.input(ada, "second", vec![]).await;
    let (selection, request) = (home.selection(ada).await, input.request_id);
    let again = Submission::new(ada.to_string(), request, selection, "second", vec![]).unwrap();
    let held = lock_lanes(&mut root).await;
    let both = async { tokio::join!(home.submit(&input), home.submit(&again)) };
    let release = async {
        waiting(&mut other, 1).await;
        held.rollback().await.unwrap();
    };
    let ((one, two), ()) = tokio::join!(both, release);
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(receipts(&mut other).await, 2);
}

#[tokio::test]
async fn the_login_itself_may_neither_read_nor_write() {
    let home = Home::new().await;
    let mut login = PgConnection::connect(&home.test.login_url()).await.unwrap();
    for sql in [
        "SELECT count(*) FROM queue_items",
        "SELECT count(*) FROM api_tokens",
        "UPDATE home_usage SET max_receipts = 0",
    ] {
        let refused = login.execute(sql).await.unwrap_err();
        let code = refused.as_database_error().and_then(|e| e.code());
        assert_eq!(code.as_deref(), Some("42501"), "{sql}: {refused}");
    }
    // A call leaves the connection as powerless as it was.
    login
        .execute("SELECT * FROM present_tokens(ARRAY['\\x00'::bytea])")
        .await
        .unwrap();
    let refused = login.execute("SELECT count(*) FROM api_tokens").await;
    assert!(refused.is_err());
}
