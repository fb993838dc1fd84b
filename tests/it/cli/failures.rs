//! Scripts can tell what went wrong: exit codes, stable codes, and JSON alone on standard output.

use serde_json::json;

use super::scripted::{Ran, Reply, Scripted, TOKEN, program};

const LIST: &str = "GET /api/agents/ada/queue";

#[tokio::test(flavor = "multi_thread")]
async fn d134_each_kind_of_failure_has_its_exit_code_and_a_stable_code() {
    let table = [
        (400, "malformed_request", 2),
        (401, "unauthenticated", 4),
        (403, "insufficient_scope", 4),
        (404, "not_found", 5),
        (409, "control_conflict", 3),
        (410, "payload_expired", 5),
        (413, "body_too_large", 6),
        (422, "invalid_input", 2),
        (429, "queue_capacity", 6),
        (500, "internal", 1),
        (503, "not_ready", 1),
    ];
    let server = Scripted::start().await;
    for (status, code, exit) in table {
        server.forget(LIST);
        server.on(
            LIST,
            Reply::Problem(status, code, json!({"limit": "items"})),
        );
        let ran = server.run(&["queue", "list", "ada"]).await;
        assert_eq!(ran.code, exit, "{code}: {}", ran.stderr);
        assert_eq!(ran.json()["code"], code);
        assert_eq!(ran.json()["limit"], "items");
        assert!(ran.stderr.contains(&format!("[{code}]")), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d134_a_server_that_is_down_is_not_a_refusal() {
    let server = Scripted::start().await;
    let mut command = program(&server.home);
    command
        .env("BAZILION_SERVER", closed_port().await)
        .env("BAZILION_TOKEN", TOKEN);
    let ran = Ran::of(
        command
            .args(["queue", "list", "ada"])
            .output()
            .await
            .expect("runs"),
    );
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()["code"], "unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn d134_not_signed_in_is_said_before_anything_is_sent() {
    let server = Scripted::start().await;
    let ran = Ran::of(
        program(&server.home)
            .args(["agent", "list", "--json", "--server", &server.url])
            .output()
            .await
            .expect("runs"),
    );
    assert_eq!(ran.code, 4);
    assert_eq!(ran.json()["code"], "not_signed_in");
    assert!(!server.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_is_told_apart_from_a_server_that_is_down() {
    let server = Scripted::start().await;
    server.on(LIST, Reply::Lost);
    let ran = server.run(&["queue", "list", "ada"]).await;
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()["code"], "no_answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_proxy_is_not_taken_for_an_answer() {
    let server = Scripted::start().await;
    server.on(LIST, Reply::Raw(200, "text/html", "<html>sign in</html>"));
    let ran = server.run(&["queue", "list", "ada"]).await;
    assert_eq!(
        (ran.code, &ran.json()["code"]),
        (1, &json!("unexpected_answer"))
    );
    server.forget(LIST);
    server.on(
        LIST,
        Reply::Raw(502, "text/html", "<html>bad gateway</html>"),
    );
    let ran = server.run(&["queue", "list", "ada"]).await;
    assert_eq!((ran.code, &ran.json()["code"]), (1, &json!("http_502")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_command_line_is_a_usage_error_and_sends_nothing() {
    let server = Scripted::start().await;
    let wrong: &[&[&str]] = &[
        &["queue", "pause", "ada"],
        &["queue", "fly", "ada"],
        &[
            "queue",
            "reconcile",
            "ada",
            "item",
            "--expected-revision",
            "1",
        ],
        &["queue", "edit", "ada", "item", "--expected-revision", "1"],
        &["queue", "add", "ada"],
        &["queue", "list", ".."],
        &["workspace", "release", "lease"],
    ];
    for words in wrong {
        let ran = server.run(words).await;
        assert_eq!(ran.code, 2, "{words:?}: {}", ran.stderr);
        assert!(!ran.stderr.is_empty());
    }
    assert!(!server.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_at_fault_are_named_for_a_person() {
    let server = Scripted::start().await;
    let fields =
        json!({"fields": [{"path": "name", "code": "length", "message": "too \u{1b}[31mlong"}]});
    server.on(
        "POST /api/agents",
        Reply::Problem(422, "invalid_input", fields),
    );
    let ran = server.run(&["agent", "spawn", "x"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(
        ran.stderr.contains("name: too \\x1b[31mlong"),
        "{}",
        ran.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_went_away_is_not_an_error() {
    let server = Scripted::start().await;
    let items: Vec<_> = (0..20_000)
        .map(|n| json!({"id": n, "text": "x".repeat(80)}))
        .collect();
    server.on(LIST, Reply::Json(200, json!({"items": items})));
    let mut command = program(&server.home);
    command
        .env("BAZILION_SERVER", &server.url)
        .env("BAZILION_TOKEN", TOKEN);
    command.args(["queue", "list", "ada"]);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().await.expect("it ends"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

/// An address where nobody listens.
async fn closed_port() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener.local_addr().expect("its address");
    drop(listener);
    format!("http://{address}")
}
