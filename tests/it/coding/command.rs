//! From a tool call to an ended receipt.

use std::time::{Duration, Instant};

use bazilion::coding::command::Answer;
use bazilion::coding::environment::Config;
use bazilion::coding::receipt::{Cleanup, State};
use bazilion::error::Code;
use tokio_util::sync::CancellationToken;

use crate::support::docker::{Sandbox, docker};
use crate::support::turn::{Turn, arranged, count};

fn containers(sandbox: &Sandbox) -> String {
    docker(&[
        "ps",
        "--all",
        "--quiet",
        "--filter",
        &format!("label=bazilion.instance={}", sandbox.instance),
    ])
}

#[tokio::test]
async fn a_command_leaves_a_receipt_and_after_the_turn_nothing_else() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;

    let passed = turn.run("echo hello; touch made").await;
    assert_eq!(
        (passed.state, passed.exit_code),
        (State::Succeeded, Some(0))
    );
    assert_eq!(
        (passed.output.tail.as_str(), passed.cleanup),
        ("hello\n", Cleanup::Confirmed)
    );
    let failed = turn.run("echo wrong >&2; exit 3").await;
    assert_eq!((failed.state, failed.exit_code), (State::Failed, Some(3)));
    assert!(sandbox.workspace.join("made").exists());

    assert!(turn.end().await, "w017: the lease is released");
    assert_eq!(
        count(&test, "SELECT count(*) FROM workspace_leases").await,
        0
    );
    assert_eq!(
        count(&test, "SELECT count(*) FROM lease_resources").await,
        0
    );
    assert_eq!(containers(&sandbox), "");
}

#[tokio::test]
async fn c007_cancelled_before_its_start_no_container_is_made() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let receipt = turn.run_within("touch made", 10, &cancelled).await;
    assert_eq!(
        (receipt.state, receipt.cleanup),
        (State::Cancelled, Cleanup::Confirmed)
    );
    assert!(!sandbox.workspace.join("made").exists());
    assert_eq!(
        count(&test, "SELECT count(*) FROM lease_resources").await,
        0
    );
}

#[tokio::test]
async fn d48_d55_the_time_limit_ends_every_process_and_the_next_command_works() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let began = Instant::now();
    let receipt = turn
        .run_within("setsid sleep 600 & sleep 600", 2, &CancellationToken::new())
        .await;
    assert!(began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_secs(7));
    assert_eq!(
        (receipt.state, receipt.cleanup),
        (State::TimedOut, Cleanup::Confirmed)
    );
    let next = turn.run("echo ok").await;
    assert_eq!(next.state, State::Succeeded);
    assert!(turn.end().await);
    assert_eq!(containers(&sandbox), "");
}

#[tokio::test]
async fn d46_cancelling_ends_a_running_command_with_its_container() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = std::sync::Arc::new(Turn::start(&db, &home, incarnation, &sandbox).await);
    let cancelled = CancellationToken::new();
    let mut live = turn.session.live.subscribe();
    let running = tokio::spawn({
        let (turn, cancelled) = (turn.clone(), cancelled.clone());
        async move {
            turn.run_within("echo begun; sleep 300", 300, &cancelled)
                .await
        }
    });
    // The tail is shown while the command runs.
    while !live.recv().await.unwrap().output.tail.contains("begun") {}
    let began = Instant::now();
    cancelled.cancel();
    let receipt = running.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(
        (receipt.state, receipt.cleanup),
        (State::Cancelled, Cleanup::Confirmed)
    );
    assert_eq!(receipt.output.tail, "begun\n");
    assert!(turn.end().await);
}

#[tokio::test]
async fn c009_a_second_command_is_refused_while_one_runs() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = std::sync::Arc::new(Turn::start(&db, &home, incarnation, &sandbox).await);
    let cancelled = CancellationToken::new();
    let mut live = turn.session.live.subscribe();
    let first = tokio::spawn({
        let (turn, cancelled) = (turn.clone(), cancelled.clone());
        async move {
            turn.run_within("echo begun; sleep 60", 60, &cancelled)
                .await
        }
    });
    while !live.recv().await.unwrap().output.tail.contains("begun") {}
    let refused = turn
        .call("other", "echo no", 5, &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AgentBusy);
    cancelled.cancel();
    first.await.unwrap();
    assert!(turn.end().await);
}

#[tokio::test]
async fn a_repeated_call_never_runs_again() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let go = CancellationToken::new();
    let Answer::Ran(first) = turn.call("same", "echo x >> log", 10, &go).await.unwrap() else {
        panic!("it had not run");
    };
    let Answer::Repeated(again) = turn.call("same", "echo x >> log", 10, &go).await.unwrap() else {
        panic!("it ran again");
    };
    assert_eq!(first.id, again.id);
    assert_eq!(
        turn.call("same", "echo y", 10, &go)
            .await
            .unwrap_err()
            .code(),
        Code::RequestConflict
    );
    assert_eq!(
        std::fs::read_to_string(sandbox.workspace.join("log")).unwrap(),
        "x\n"
    );
    assert!(turn.end().await);
}

#[tokio::test]
async fn c011_the_65th_command_of_a_turn_is_refused() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    sqlx::query("UPDATE turns SET command_calls = (SELECT array_agg('c' || n) FROM generate_series(1, 63) AS n)")
        .execute(&mut test.superuser().await)
        .await
        .unwrap();
    assert_eq!(turn.run("true").await.state, State::Succeeded);
    let refused = turn
        .call("late", "true", 5, &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::RateLimited);
    assert!(turn.end().await);
}

#[tokio::test]
async fn secrets_are_refused_in_the_text_and_redacted_in_the_output() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start_with(
        &db,
        &home,
        incarnation,
        &sandbox,
        &["sk-very-secret"],
        Config::default(),
    )
    .await;
    let refused = turn
        .call("a", "echo sk-very-secret", 5, &CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidInput);
    assert_eq!(
        count(&test, "SELECT count(*) FROM coding_receipts").await,
        0
    );
    let receipt = turn.run("printf sk-very; printf -- '-sec'; echo ret").await;
    assert_eq!(receipt.output.tail, "[redacted]\n");
    assert!(turn.end().await);
}

#[tokio::test]
async fn c039_inside_are_the_saved_values_and_the_working_directory() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let defaults = Config {
        env: [("CI", "true"), ("NO_COLOR", "1"), ("TZ", "Europe/Vienna")]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
        ..Config::default()
    };
    let turn = Turn::start_with(&db, &home, incarnation, &sandbox, &[], defaults).await;
    let receipt = turn.run("pwd; echo $CI $NO_COLOR $TZ $HOME").await;
    assert_eq!(
        receipt.output.tail,
        "/workspace\ntrue 1 Europe/Vienna /tmp\n"
    );
    assert!(turn.end().await);
}

#[tokio::test]
async fn a_missing_tool_is_named_and_a_missing_image_blocks() {
    let (_test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let receipt = turn.run("cargo test").await;
    assert_eq!(receipt.exit_code, Some(127));
    assert_eq!(receipt.hints[0].subject, "cargo");
    assert!(turn.end().await);
}

#[tokio::test]
async fn with_shell_approval_a_risky_command_is_blocked_because_nobody_can_be_asked() {
    let (test, db, home, incarnation) = arranged().await;
    let sandbox = Sandbox::new().await;
    sqlx::query("UPDATE homes SET shell_approval = 'dangerous'")
        .execute(&mut test.superuser().await)
        .await
        .unwrap();
    let turn = Turn::start(&db, &home, incarnation, &sandbox).await;
    let receipt = turn.run("rm -rf build").await;
    assert_eq!(
        (receipt.state, receipt.reason.as_deref()),
        (State::Blocked, Some("approval_unavailable"))
    );
    assert_eq!(turn.run("echo fine").await.state, State::Succeeded);
    assert!(turn.end().await);
}
