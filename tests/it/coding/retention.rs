//! What is kept of a Team's receipts, and for how long.

use bazilion::coding;
use bazilion::coding::receipt::State;
use tokio_util::sync::CancellationToken;

use crate::support::docker::Sandbox;
use crate::support::turn::{Turn, arranged, count};

#[tokio::test]
async fn c019_the_newest_twenty_ended_receipts_of_a_team_are_kept() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    // A command cancelled before its start ends like any other, and needs no container.
    let first = turn.run_within("true", 5, &cancelled).await;
    for _ in 0..21 {
        turn.run_within("true", 5, &cancelled).await;
    }
    assert_eq!(turn.run("true").await.state, State::Succeeded);
    assert_eq!(
        count(&test, "SELECT count(*) FROM coding_receipts").await,
        20
    );
    let gone = turn
        .call(&first.tool_call_id, "true", 5, &CancellationToken::new())
        .await
        .unwrap_err();
    assert!(gone.to_string().contains("evicted"), "{gone}");
    assert!(turn.end().await);
}

#[tokio::test]
async fn after_seven_days_a_receipt_is_shown_to_nobody_and_then_deleted() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let receipt = turn.run("true").await;
    let later = test
        .connect_at(time::Duration::days(7) + time::Duration::minutes(1))
        .await
        .unwrap();
    let op = bazilion::db::Op::locking("test.look");
    let args = (home.team.to_string(), receipt.id);
    assert!(
        db.transact(&home.system(), op, &args, coding::receipt)
            .await
            .is_ok()
    );
    assert!(
        later
            .transact(&home.system(), op, &args, coding::receipt)
            .await
            .is_err()
    );
    assert_eq!(coding::prune(&db).await.unwrap(), 0);
    assert_eq!(coding::prune(&later).await.unwrap(), 1);
    assert!(turn.end().await);
}
