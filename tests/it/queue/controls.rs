//! Controls, claims and outcomes.

use bazilion::queue::claim::{Outcome, Start};
use bazilion::queue::control::Verb;
use bazilion::queue::look::View;
use bazilion::queue::{File, Reason, Status, WaitingFor};

use crate::support::queue::{Home, because, code, extra, selection, spawn};

#[tokio::test]
async fn q081_the_control_revision_rises_with_each_write_and_a_stale_one_is_refused() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let paused = home.control(agent, Verb::Pause, 0).await.unwrap().control;
    assert_eq!(
        (paused.revision, paused.paused, paused.reason),
        (1, true, Some(Reason::Operator))
    );
    assert_eq!(paused.changed_by, home.caller.operator());
    let refused = home.control(agent, Verb::Resume, 0).await;
    assert_eq!(extra(&refused, "current")["revision"], 1);
    assert_eq!(code(refused), "control_conflict");
    assert_eq!(
        code(home.control(agent, Verb::Pause, -1).await),
        "invalid_input",
        "q091"
    );
    let resumed = home.control(agent, Verb::Resume, 1).await.unwrap().control;
    assert_eq!(
        (resumed.revision, resumed.paused, resumed.reason),
        (2, false, None)
    );
}

#[tokio::test]
async fn q083_a_paused_queue_hands_out_nothing_and_lets_items_be_removed() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    home.control(agent, Verb::Pause, 0).await.unwrap();
    let process = home.process().await;
    assert!(home.claim(process, 1).await.is_empty());
    assert_eq!(home.item(&item).await.waiting_for, Some(WaitingFor::Pause));
    home.remove(&item).await.unwrap();
    home.assert_sound().await;
}

#[tokio::test]
async fn d18_stop_pauses_first_and_says_what_ran_and_the_rest_waits() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    for text in ["run", "wait 1", "wait 2", "wait 3"] {
        home.say(agent, text).await.unwrap();
    }
    let process = home.process().await;
    let claim = home.run_one(process).await;
    assert_eq!(
        code(home.control(agent, Verb::Stop, 9).await),
        "control_conflict"
    );
    assert!(
        bazilion::queue::claim::stopped(&home.db, process)
            .await
            .unwrap()
            .is_empty(),
        "a stale stop cancels nothing"
    );
    // Q085
    let stopped = home.control(agent, Verb::Stop, 0).await.unwrap();
    assert!(stopped.active && stopped.turn_id.is_some());
    assert_eq!(stopped.control.reason, Some(Reason::OperatorStop));
    assert_eq!(
        bazilion::queue::claim::stopped(&home.db, process)
            .await
            .unwrap(),
        [claim.fence]
    );
    assert!(
        home.settle(&claim, Outcome::Cancelled(because("stopped")))
            .await
    );
    // Q089
    assert!(home.claim(process, 5).await.is_empty());
    assert_eq!(home.open(agent).await.len(), 3);
    // Q087
    home.control(agent, Verb::Resume, 1).await.unwrap();
    assert_eq!(home.claim(process, 5).await.len(), 1);
    let quiet = home.agent("Quiet").await;
    let nothing = home.control(quiet, Verb::Stop, 0).await.unwrap();
    assert!(!nothing.active && nothing.turn_id.is_none() && nothing.control.paused);
    home.assert_sound().await;
}

#[tokio::test]
async fn q141_never_two_claims_of_one_agent_and_two_agents_side_by_side() {
    let home = Home::new().await;
    let (a, b) = (home.agent("A").await, home.agent("B").await);
    for agent in [a, a, b, b] {
        home.say(agent, "x").await.unwrap();
    }
    let process = home.process().await;
    let claims = home.claim(process, 10).await;
    let agents: std::collections::BTreeSet<_> = claims.iter().map(|c| c.agent).collect();
    assert_eq!((claims.len(), agents.len()), (2, 2));
    assert!(claims[0].fence < claims[1].fence);
    home.assert_sound().await;
}

#[tokio::test]
async fn d05_five_inputs_give_five_turns_in_order_with_their_own_text_and_bytes() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    for n in 0..5u8 {
        let file = File::new(Some(format!("{n}")), "a/b", vec![n; 10]);
        home.submit(&home.input(agent, &format!("text {n}"), vec![file]).await)
            .await
            .unwrap();
    }
    let process = home.process().await;
    for n in 0..5u8 {
        let claim = home.claim_one(process).await;
        let Start::Running(input) = home.start(&claim).await else {
            panic!("runs")
        };
        assert_eq!(input.text, format!("text {n}"));
        assert_eq!(input.files[0].bytes, vec![n; 10]);
        // Q053: a failed head does not block the next.
        let outcome = match n % 3 {
            0 => Outcome::Completed,
            1 => Outcome::Failed(because("provider_error")),
            _ => Outcome::Cancelled(because("cancelled")),
        };
        assert!(home.settle(&claim, outcome).await);
    }
    assert!(home.open(agent).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn q143_a_given_back_head_waits_visibly_with_its_revision_unchanged() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    assert!(home.give_back(&claim, WaitingFor::Agent).await);
    let now = home.item(&item).await;
    assert_eq!(
        (now.status, now.revision, now.waiting_for),
        (Status::Pending, item.revision, Some(WaitingFor::Agent))
    );
    assert!(now.version > item.version);
    // The edit with the revision that a person saw goes through.
    let edit = home
        .edit_of(
            &item,
            Some("better"),
            bazilion::queue::edit::Keep::All,
            vec![],
        )
        .await;
    home.edit(&edit).await.unwrap();
    assert!(
        !home.give_back(&claim, WaitingFor::Agent).await,
        "the claim is gone"
    );
    home.assert_sound().await;
}

#[tokio::test]
async fn a_head_that_waits_for_a_workspace_is_left_alone_until_a_nudge() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    let back = bazilion::queue::claim::GiveBack {
        pause: std::time::Duration::from_secs(3600),
        ..bazilion::queue::claim::GiveBack::new(claim, WaitingFor::Workspace)
    };
    let op = bazilion::db::Op::locking("test");
    home.db
        .transact(
            &claim.caller(),
            op,
            &back,
            bazilion::queue::claim::give_back,
        )
        .await
        .unwrap();
    assert!(home.claim(process, 1).await.is_empty(), "it does not spin");
    let nudged = home
        .db
        .transact(
            &claim.caller(),
            op,
            &(),
            async |tx: &mut bazilion::db::TenantTx, (): &()| {
                bazilion::queue::claim::nudge(tx, None).await
            },
        )
        .await
        .unwrap();
    assert_eq!(nudged, 1);
    assert_eq!(home.claim(process, 1).await.len(), 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn a_pause_between_claim_and_start_gives_the_item_back() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    home.control(agent, Verb::Pause, 0).await.unwrap();
    assert!(matches!(home.start(&claim).await, Start::Paused));
    let now = home.item(&item).await;
    assert_eq!(
        (now.status, now.revision, now.waiting_for),
        (Status::Pending, 1, Some(WaitingFor::Pause))
    );
    home.control(agent, Verb::Resume, 1).await.unwrap();
    home.run_one(process).await;
    home.assert_sound().await;
}

#[tokio::test]
async fn what_changed_since_acceptance_fails_the_item_before_it_starts() {
    for (change, expected) in [
        ("UPDATE agents SET status = 'archived'", "agent_archived"),
        (
            "UPDATE agents SET team_id = (SELECT id FROM teams WHERE slug = 'other')",
            "membership_changed",
        ),
        (
            "UPDATE agents SET conversation_id = NULL",
            "conversation_changed",
        ),
        ("DELETE FROM policy_edges", "policy_denied"),
        ("UPDATE blob_chunks SET bytes = 'other'", "input_corrupt"),
        ("DELETE FROM blob_chunks", "input_corrupt"),
    ] {
        let home = Home::new().await;
        let agent = home.agent("Ada").await;
        home.execute(
            "INSERT INTO teams (home_id, id, slug, name, root_kind, created_at)
             SELECT home_id, gen_random_uuid(), 'other', 'Other', 'managed', now() FROM teams WHERE slug = 't'",
        )
        .await;
        let item = home
            .submit(
                &home
                    .input(agent, "x", vec![File::new(None, "a/b", "bytes")])
                    .await,
            )
            .await
            .unwrap();
        let process = home.process().await;
        let claim = home.claim_one(process).await;
        home.execute(change).await;
        let Start::Failed(why) = home.start(&claim).await else {
            panic!("{expected}")
        };
        assert_eq!(why.code, expected);
        let now = home.item(&item).await;
        assert_eq!(
            (now.status, now.turn_id),
            (Status::Failed, None),
            "q147, q133: visible, not run"
        );
        assert!(!home.list(agent, View::Open).await.control.paused);
    }
}

#[tokio::test]
async fn a_preparation_that_fails_for_every_item_fails_one_and_pauses() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let one = home.say(agent, "one").await.unwrap();
    home.say(agent, "two").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    assert!(
        home.settle(
            &claim,
            Outcome::Unprepared(because("instructions_incomplete"))
        )
        .await
    );
    assert_eq!(home.item(&one).await.status, Status::Failed);
    let page = home.list(agent, View::Open).await;
    assert_eq!(
        (page.items.len(), page.control.reason),
        (1, Some(Reason::Preparation))
    );
    assert!(home.claim(process, 1).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn q149_a_diagnostic_is_cut_at_500_characters() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    let long = bazilion::queue::Diagnostic::new("provider_error", "é".repeat(501));
    assert!(home.settle(&claim, Outcome::Failed(long)).await);
    let now = home.item(&item).await;
    assert_eq!(now.diagnostic.unwrap().message.chars().count(), 500);
    assert!(now.finished_at.is_some() && now.started_at.is_some() && now.turn_id.is_some());
}

#[tokio::test]
async fn homes_take_turns_and_a_flood_does_not_starve_a_neighbour() {
    let home = Home::new().await;
    for n in 0..6 {
        let agent = home.agent(&format!("A{n}")).await;
        home.say(agent, "flood").await.unwrap();
    }
    let (next, stranger, _) = home.neighbour("next").await;
    let theirs = spawn(&home.db, &stranger, "Solo").await;
    let expected = selection(&home.db, &stranger, theirs).await;
    let input = bazilion::queue::Submission::new(
        theirs.to_string(),
        bazilion::ids::RequestId::new(),
        expected,
        "one",
        vec![],
    );
    bazilion::queue::submit(&home.db, &home.wakes, &stranger, &input.unwrap())
        .await
        .unwrap();
    let process = home.process().await;
    let claims = home.claim(process, 2).await;
    assert!(
        claims.iter().any(|c| c.home == next),
        "one of the first two is the neighbour's"
    );
    let last = claims.last().unwrap().home;
    let more = bazilion::queue::claim::claim(&home.db, process, 10, Some(last))
        .await
        .unwrap();
    assert_eq!(more.len(), 5, "nothing is left behind");
    home.assert_sound().await;
}
