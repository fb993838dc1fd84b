//! Spans leave by OTLP when the environment says where to, and carry nothing that they should not.

use serde_json::json;

use super::scripted::{Ran, Reply, Scripted, TOKEN, program};

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_delivered_before_the_program_ends() {
    let server = Scripted::start().await;
    server.on("POST /v1/traces", Reply::Json(200, json!({})));
    server.on("POST /v1/metrics", Reply::Json(200, json!({})));
    let mut command = program(&server.home);
    command
        .env("BAZILION_SERVER", &server.url)
        .env("BAZILION_TOKEN", TOKEN);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &server.url);
    let ran = command.args(["agent", "show", "ada"]).output().await;
    let ran = Ran::of(ran.expect("runs"));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let sent = server.asked("POST /v1/traces");
    assert!(sent.iter().any(|sent| sent.text().contains("cli.run")));
    assert!(!sent.iter().any(|sent| sent.text().contains(TOKEN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leaves_without_an_endpoint() {
    let server = Scripted::start().await;
    let ran = server.run(&["agent", "show", "ada"]).await;
    assert_eq!(ran.code, 0);
    assert!(server.asked("POST /v1/traces").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_log_filter_is_said_plainly() {
    let server = Scripted::start().await;
    let mut command = program(&server.home);
    command.env("BAZILION_LOG", "bazilion=loud");
    let ran = Ran::of(
        command
            .args(["agent", "list"])
            .output()
            .await
            .expect("runs"),
    );
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("BAZILION_LOG is not a filter"),
        "{}",
        ran.stderr
    );
}
