//! Held items and what decides them.

use bazilion::approval::State;
use bazilion::queue::claim::{Outcome, Start};
use bazilion::queue::control::Verb;
use bazilion::queue::hold::{self, Verdict};
use bazilion::queue::{File, Status, WaitingFor};

use crate::support::queue::{Home, because, code};

async fn held_home() -> (Home, bazilion::ids::AgentId) {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.user_edge(agent, Some("approval_required")).await;
    (home, agent)
}

#[tokio::test]
async fn q021_q123_an_approval_holds_no_content_and_delivers_the_exact_input_once() {
    let (home, agent) = held_home().await;
    let file = File::new(Some("secret.txt".into()), "text/plain", "the bytes");
    let item = home
        .submit(&home.input(agent, "the text", vec![file]).await)
        .await
        .unwrap();
    assert_eq!(
        (item.status, item.waiting_for),
        (Status::Held, Some(WaitingFor::Approval))
    );
    let approval = item.approval_id.unwrap();
    let stored: String = sqlx::query_scalar("SELECT approvals::text FROM approvals")
        .fetch_one(&mut home.root().await)
        .await
        .unwrap();
    for private in ["the text", "secret.txt", "the bytes", "dGhlIGJ5dGVz"] {
        assert!(!stored.contains(private), "{stored}");
    }
    let process = home.process().await;
    assert!(home.claim(process, 1).await.is_empty());
    assert_eq!(
        home.decide(approval, Verdict::Approve).await.unwrap().state,
        State::Approved
    );
    // D36: twice dispatches once.
    assert_eq!(
        code(home.decide(approval, Verdict::Approve).await),
        "approval_conflict"
    );
    let claim = home.claim_one(process).await;
    let Start::Running(input) = home.start(&claim).await else {
        panic!("runs")
    };
    assert_eq!(
        (input.text.as_str(), &input.files[0].bytes[..]),
        ("the text", &b"the bytes"[..])
    );
    assert_eq!(input.conversation, item.conversation_id);
    assert!(home.settle(&claim, Outcome::Completed).await);
    let state: String = sqlx::query_scalar("SELECT state FROM approvals")
        .fetch_one(&mut home.root().await)
        .await
        .unwrap();
    assert_eq!(state, "delivered");
    assert!(home.claim(process, 1).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn q121_a_held_item_behind_the_head_or_in_a_paused_queue_cannot_be_approved_yet() {
    let (home, agent) = held_home().await;
    let one = home.say(agent, "one").await.unwrap().approval_id.unwrap();
    let two = home.say(agent, "two").await.unwrap().approval_id.unwrap();
    assert_eq!(
        code(home.decide(two, Verdict::Approve).await),
        "approval_conflict"
    );
    home.control(agent, Verb::Pause, 0).await.unwrap();
    assert_eq!(
        code(home.decide(one, Verdict::Approve).await),
        "approval_conflict"
    );
    let pending = home
        .count("SELECT count(*) FROM approvals WHERE state = 'pending'")
        .await;
    assert_eq!(pending, 2, "the approvals stay as they were");
    home.assert_sound().await;
}

#[tokio::test]
async fn q127_denied_cancelled_and_expired_cancel_the_item_and_do_not_pause() {
    let (home, agent) = held_home().await;
    for (verdict, reason) in [
        (Verdict::Deny, "approval_denied"),
        (Verdict::Cancel, "approval_cancelled"),
    ] {
        let item = home.say(agent, "x").await.unwrap();
        home.decide(item.approval_id.unwrap(), verdict)
            .await
            .unwrap();
        let now = home.item(&item).await;
        assert_eq!(
            (now.status, now.diagnostic.unwrap().code.as_str()),
            (Status::Cancelled, reason)
        );
    }
    // Q135
    let item = home.say(agent, "x").await.unwrap();
    let early = home
        .later(time::Duration::hours(24) - time::Duration::minutes(1))
        .await;
    assert_eq!(hold::expire_overdue(&early, &home.wakes).await.unwrap(), 0);
    let late = home.later(time::Duration::hours(24)).await;
    assert_eq!(hold::expire_overdue(&late, &home.wakes).await.unwrap(), 1);
    let now = home.item(&item).await;
    assert_eq!(
        (now.status, now.diagnostic.unwrap().code.as_str()),
        (Status::Cancelled, "approval_expired")
    );
    assert!(!home.list(agent, Default::default()).await.control.paused);
    home.assert_sound().await;
}

#[tokio::test]
async fn approving_under_a_policy_that_now_denies_denies_and_answers_conflict() {
    let (home, agent) = held_home().await;
    let item = home.say(agent, "x").await.unwrap();
    home.user_edge(agent, None).await;
    let refused = home
        .decide(item.approval_id.unwrap(), Verdict::Approve)
        .await;
    assert_eq!(
        crate::support::queue::extra(&refused, "current")["state"],
        "denied"
    );
    assert_eq!(code(refused), "approval_conflict");
    assert_eq!(home.item(&item).await.status, Status::Cancelled);
    home.assert_sound().await;
}

#[tokio::test]
async fn a_pause_before_an_approved_item_starts_returns_it_held_and_it_goes_on_unasked() {
    let (home, agent) = held_home().await;
    let item = home.say(agent, "x").await.unwrap();
    home.decide(item.approval_id.unwrap(), Verdict::Approve)
        .await
        .unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    home.control(agent, Verb::Pause, 0).await.unwrap();
    assert!(matches!(home.start(&claim).await, Start::Paused));
    let now = home.item(&item).await;
    assert_eq!(
        (now.status, now.waiting_for),
        (Status::Held, Some(WaitingFor::Pause))
    );
    home.assert_sound().await;
    home.control(agent, Verb::Resume, 1).await.unwrap();
    home.run_one(process).await;
    home.assert_sound().await;
}

#[tokio::test]
async fn an_approved_item_that_the_policy_now_denies_fails_visibly() {
    let (home, agent) = held_home().await;
    let item = home.say(agent, "x").await.unwrap();
    home.decide(item.approval_id.unwrap(), Verdict::Approve)
        .await
        .unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    home.user_edge(agent, None).await;
    assert!(matches!(home.start(&claim).await, Start::Failed(_)));
    assert_eq!(home.item(&item).await.status, Status::Failed);
    home.assert_sound().await;
}

#[tokio::test]
async fn a_policy_that_asks_only_after_acceptance_holds_the_item_at_its_start() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "x").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    home.user_edge(agent, Some("approval_required")).await;
    let Start::Held(approval) = home.start(&claim).await else {
        panic!("held")
    };
    assert_eq!(home.item(&item).await.approval_id, Some(approval));
    home.assert_sound().await;
    home.decide(approval, Verdict::Approve).await.unwrap();
    home.run_one(process).await;
    home.assert_sound().await;
}

#[tokio::test]
async fn of_two_people_deciding_at_once_one_wins() {
    let (home, agent) = held_home().await;
    for _ in 0..5 {
        let id = home.say(agent, "x").await.unwrap().approval_id.unwrap();
        let (a, b) = tokio::join!(
            home.decide(id, Verdict::Deny),
            home.decide(id, Verdict::Cancel)
        );
        assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    }
    home.assert_sound().await;
}

#[tokio::test]
async fn q103_an_approved_item_lost_between_claim_and_start_is_uncertain_and_its_approval_used_up()
{
    let (home, agent) = held_home().await;
    let item = home.say(agent, "x").await.unwrap();
    home.decide(item.approval_id.unwrap(), Verdict::Approve)
        .await
        .unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    assert_eq!(home.reap(process).await, 1);
    assert_eq!(home.item(&item).await.status, Status::Uncertain);
    assert_eq!(
        home.count("SELECT count(*) FROM approvals WHERE state = 'delivery_failed'")
            .await,
        1
    );
    assert!(!home.settle(&claim, Outcome::Failed(because("late"))).await);
    home.assert_sound().await;
}
