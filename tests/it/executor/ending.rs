//! How commands end: by themselves, by us, by their limits; and what they leave.

use std::time::Duration;

use bazilion::executor::output::Output;
use bazilion::executor::redact::Secrets;
use bazilion::executor::{End, Executor as _, Exit, Frame, Kind};

use crate::support::docker::{Sandbox, frame, identity, processes_with};

/// Starts a command, waits until it says that it is up, kills its container, and proves the removal. Returns how long
/// the kill took to be seen.
async fn killed(sandbox: &Sandbox, command: &str) -> (Exit, Duration) {
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let mut running = sandbox
        .executor
        .run(attached, &frame(command))
        .await
        .unwrap();
    assert_eq!(
        running.output.recv().await.as_deref(),
        Some(b"up\n".as_slice())
    );
    let begun = tokio::time::Instant::now();
    sandbox.executor.kill(&created.id).await.unwrap();
    while running.output.recv().await.is_some() {}
    let exit = running.exit.await;
    let took = begun.elapsed();
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    (exit, took)
}

#[tokio::test]
async fn d046_d048_a_kill_ends_the_whole_tree() {
    let sandbox = Sandbox::new().await;
    let marker = sandbox.marker();
    let (exit, took) = killed(
        &sandbox,
        &format!("echo up; sleep {marker} & sleep {marker}"),
    )
    .await;
    assert!(matches!(exit, Exit::Lost { .. }), "{exit:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(processes_with(&marker), 0);
}

#[tokio::test]
async fn a_kill_ends_what_left_its_session_and_ignores_signals() {
    let sandbox = Sandbox::new().await;
    let marker = sandbox.marker();
    let command = format!(
        "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM HUP; sleep {marker}; sleep {marker}' </dev/null >/dev/null 2>&1 &)
         echo up; while :; do sleep {marker}; done"
    );
    killed(&sandbox, &command).await;
    assert_eq!(processes_with(&marker), 0);
}

#[tokio::test]
async fn d055_the_next_command_works_after_a_kill() {
    let sandbox = Sandbox::new().await;
    killed(&sandbox, "echo up; sleep 300").await;
    assert_eq!(sandbox.run("echo ok").await.text(), "ok\n");
}

#[tokio::test]
async fn the_launcher_ends_a_command_by_its_own_deadline() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let marker = sandbox.marker();
    let frame = Frame {
        deadline_ms: 400,
        ..frame(&format!(
            "trap '' TERM; setsid sleep {marker} & sleep {marker}"
        ))
    };
    let begun = tokio::time::Instant::now();
    let ran = sandbox.run_in(&spec, &frame).await;
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert!(matches!(ran.exit, Exit::Deadline { .. }), "{:?}", ran.exit);
    assert_eq!(processes_with(&marker), 0);
}

#[tokio::test]
async fn children_left_behind_neither_delay_the_end_nor_survive_it() {
    let sandbox = Sandbox::new().await;
    let marker = sandbox.marker();
    let begun = tokio::time::Instant::now();
    let ran = sandbox
        .run(&format!(
            "(setsid sleep {marker} &); sleep {marker} & echo done; exit 4"
        ))
        .await;
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(4),
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
    assert_eq!(ran.text(), "done\n");
    assert_eq!(processes_with(&marker), 0);
}

#[tokio::test]
async fn closing_both_outputs_does_not_end_a_command() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox
        .run("exec >&- 2>&-; sleep 0.3; touch finished; exit 6")
        .await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(6),
                bytes: 0,
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
    assert!(sandbox.workspace.join("finished").exists());
}

#[tokio::test]
async fn reading_input_gives_its_end_at_once() {
    let sandbox = Sandbox::new().await;
    assert_eq!(
        sandbox.run("cat; read x; echo read=$?").await.text(),
        "read=1\n"
    );
}

#[tokio::test]
async fn a_signal_is_told_from_a_code() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox.run("kill -TERM $$").await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Signal(15),
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
    let ran = sandbox.run("exit 143").await;
    assert!(
        matches!(
            ran.exit,
            Exit::Observed {
                end: End::Code(143),
                ..
            }
        ),
        "{:?}",
        ran.exit
    );
}

#[tokio::test]
async fn output_and_errors_keep_their_order() {
    let sandbox = Sandbox::new().await;
    let ran = sandbox
        .run("i=0; while [ $i -lt 500 ]; do echo $i; echo e$i >&2; i=$((i+1)); done")
        .await;
    let expected: String = (0..500).map(|i| format!("{i}\ne{i}\n")).collect();
    assert_eq!(ran.text(), expected);
}

#[tokio::test]
async fn a_flood_keeps_its_exact_end_and_count() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let command = frame("yes 0123456789abcde | head -c 209715200; echo the end");
    let mut running = sandbox.executor.run(attached, &command).await.unwrap();
    let mut output = Output::new(Secrets::none());
    while let Some(bytes) = running.output.recv().await {
        output.push(&bytes);
    }
    let exit = running.exit.await;
    assert!(
        matches!(
            exit,
            Exit::Observed {
                end: End::Code(0),
                bytes: 209_715_208,
                ..
            }
        ),
        "{exit:?}"
    );
    let kept = output.finish();
    assert_eq!((kept.bytes_total, kept.truncated), (209_715_208, true));
    assert_eq!(kept.tail.len(), 65_536);
    assert!(kept.tail.ends_with("0123456789abcde\nthe end\n"));
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_fork_bomb_is_held_by_the_process_limit_and_ended() {
    let sandbox = Sandbox::new().await;
    let mut spec = sandbox.spec(Kind::Command).await;
    spec.limits.pids = 64;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let marker = sandbox.marker();
    let command =
        format!("echo up; bomb() {{ bomb | bomb & sleep {marker}; }}; bomb; sleep {marker}");
    let mut running = sandbox
        .executor
        .run(attached, &frame(&command))
        .await
        .unwrap();
    let mut seen = Vec::new();
    while let Some(bytes) = running.output.recv().await {
        seen.extend_from_slice(&bytes);
        if String::from_utf8_lossy(&seen).contains("fork") {
            break;
        }
    }
    sandbox.executor.kill(&created.id).await.unwrap();
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
    assert_eq!(processes_with(&marker), 0);
}

#[tokio::test]
async fn a_reader_that_goes_away_does_not_stop_the_command() {
    let sandbox = Sandbox::new().await;
    let spec = sandbox.spec(Kind::Command).await;
    let created = sandbox.executor.create(&spec).await.unwrap();
    let attached = sandbox.executor.open(&created.id, &spec).await.unwrap();
    let command = frame("yes | head -c 3000000; touch finished");
    let running = sandbox.executor.run(attached, &command).await.unwrap();
    drop(running.output);
    let exit = running.exit.await;
    assert!(
        matches!(
            exit,
            Exit::Observed {
                end: End::Code(0),
                bytes: 3_000_000,
                ..
            }
        ),
        "{exit:?}"
    );
    assert!(sandbox.workspace.join("finished").exists());
    let _ = sandbox
        .executor
        .remove(&identity(&spec, &created))
        .await
        .unwrap();
}

#[tokio::test]
async fn the_longest_command_arrives_whole() {
    let sandbox = Sandbox::new().await;
    let text = "x".repeat(4096 - 7);
    assert_eq!(
        sandbox.run(&format!("echo '{text}'")).await.text(),
        format!("{text}\n")
    );
}
