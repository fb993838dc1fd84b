//! `agent chat --wait`: the answer, the cards, and an exit code by the outcome.

use serde_json::{Value, json};

use super::scripted::{AGENT, ITEM, Reply, Scripted, events, item};

const SAY: &[&str] = &["agent", "chat", "ada", "--wait", "--message", "fix it"];

fn path(rest: &str) -> String {
    format!("/api/agents/{AGENT}/{rest}")
}

fn message(id: &str, seq: u64, text: &str) -> Value {
    json!({"id": id, "seq": seq, "turnId": "turn-1", "itemId": ITEM, "role": "assistant", "text": text})
}

fn command(id: &str, state: &str) -> Value {
    json!({
        "id": id, "turnId": "turn-1", "state": state, "exitCode": 101, "durationMs": 1200,
        "input": {"purpose": "test", "command": "cargo test"},
        "environment": {"posture": "docker"}, "cleanup": "confirmed",
        "output": {"tail": "running 1 test\n\u{1b}[31mFAILED\u{1b}[0m\u{1b}]0;x\u{7}\n", "truncated": 0},
    })
}

async fn server_with(stream: String, now: &[Value]) -> Scripted {
    let server = Scripted::start().await;
    server.on(
        &format!("POST {}", path("queue")),
        Reply::Json(202, item("pending")),
    );
    server.on(&format!("GET {}", path("events")), Reply::Events(stream));
    for now in now {
        let show = format!("GET {}", path(&format!("queue/{ITEM}")));
        server.on(&show, Reply::Json(200, now.clone()));
    }
    let empty = json!({"items": [], "nextCursor": null});
    server.on("GET /api/teams/team-1/receipts", Reply::Json(200, empty));
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_and_each_card_are_printed_once() {
    let stream = events(&[
        (Some(1), "item", item("running")),
        (None, "command", command("r1", "running")),
        (None, "delta", json!({"text": "half an ans"})),
        (None, "command", command("r1", "failed")),
        (None, "command", command("r1", "failed")),
        (Some(2), "message", message("m1", 2, "It failed.\u{202e}")),
        (Some(3), "item", item("completed")),
    ]);
    let server = server_with(stream, &[item("running"), item("completed")]).await;
    let missed =
        json!({"items": [message("m2", 3, "Now it works."), message("m1", 2, "It failed.")]});
    let messages = path("conversations/019a0000-0000-7000-8000-00000000000c/messages");
    server.on(&format!("GET {messages}"), Reply::Json(200, missed));
    let ran = server.run(SAY).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let expected = "── test: cargo test\n   failed · exit 101 · 1.2 s · docker\n   │ running 1 test\n   │ \
                    FAILED\\x1b]0;x\\x07\n   receipt r1\nIt failed.\\u{202e}\nNow it works.\n";
    assert_eq!(ran.stdout, expected);
    assert!(ran.retry_line().contains("agent chat"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_has_its_exit_code() {
    for (status, code) in [
        ("completed", 0),
        ("failed", 10),
        ("cancelled", 11),
        ("uncertain", 12),
        ("held", 13),
    ] {
        let mut ended = item(status);
        ended["diagnostic"] = json!({"code": "why", "message": "because"});
        ended["approvalId"] = json!("approval-1");
        let server = server_with(events(&[(Some(1), "item", item("running"))]), &[ended]).await;
        let ran = server.run(SAY).await;
        assert_eq!(ran.code, code, "{status}: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
        assert!(
            ran.stderr.contains(&format!("{status}: why: because")),
            "{}",
            ran.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_goes_on_after_the_last_event_seen() {
    let server = server_with(
        events(&[(Some(7), "item", item("running"))]),
        &[item("running"), item("running"), item("completed")],
    )
    .await;
    let stream = format!("GET {}", path("events"));
    let rest = events(&[
        (Some(8), "message", message("m1", 1, "Done.")),
        (Some(9), "item", item("completed")),
    ]);
    server.on(&stream, Reply::Problem(503, "not_ready", json!({})));
    server.on(&stream, Reply::Events(rest));
    let ran = server.run(SAY).await;
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Done.\n"),
        "{}",
        ran.stderr
    );
    let asked = server.asked(&stream);
    assert!(asked[0].headers.get("last-event-id").is_none());
    assert_eq!(asked[2].headers["last-event-id"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_reads_the_item_afresh() {
    let server = server_with(events(&[(None, "reload", json!({}))]), &[item("failed")]).await;
    assert_eq!(server.run(SAY).await.code, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_item_is_followed_to_its_successor() {
    let mut replaced = item("superseded");
    replaced["supersededById"] = json!("item-2");
    let mut successor = item("completed");
    successor["id"] = json!("item-2");
    let server = server_with(events(&[(Some(1), "item", item("pending"))]), &[replaced]).await;
    server.on(
        &format!("GET {}", path("queue/item-2")),
        Reply::Json(200, successor),
    );
    assert_eq!(server.run(SAY).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_json_everything_is_one_document() {
    let stream = events(&[
        (Some(1), "item", item("running")),
        (Some(2), "message", message("m1", 1, "Done.")),
        (None, "command", command("r1", "succeeded")),
        (Some(3), "item", item("completed")),
    ]);
    let server = server_with(stream, &[item("running"), item("completed")]).await;
    let ran = server.run(&[SAY, &["--json"]].concat()).await;
    let all = ran.json();
    assert_eq!(all["item"]["status"], "completed");
    assert_eq!(all["messages"][0]["text"], "Done.");
    assert_eq!(all["receipts"][0]["id"], "r1");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_wait_it_only_queues() {
    let server = server_with(String::new(), &[]).await;
    let ran = server
        .run(&["agent", "chat", "ada", "--message", "x"])
        .await;
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, format!("queued {ITEM} (pending)\n").as_str())
    );
    assert!(server.asked(&format!("GET {}", path("events"))).is_empty());
}
