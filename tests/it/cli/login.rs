//! `bazilion login` and what later commands make of it.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::scripted::{Ran, Reply, Scripted, TOKEN, program};

async fn login(server: &Scripted, token: &str) -> Ran {
    let mut command = program(&server.home);
    command.args(["login", "--server", &server.url]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin
        .write_all(format!("{token}\n").as_bytes())
        .await
        .expect("written");
    drop(stdin);
    Ran::of(child.wait_with_output().await.expect("it ends"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_stored_for_its_owner_only_and_used_later() {
    let server = Scripted::start().await;
    server.on(
        "GET /api/whoami",
        Reply::Json(200, json!({"role": "owner", "home": {"slug": "h"}})),
    );
    let ran = login(&server, TOKEN).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert!(!ran.stderr.contains(TOKEN));
    let file = server.home.join("config/bazilion/login.json");
    let mode = std::fs::metadata(&file)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let later = program(&server.home)
        .args(["whoami"])
        .output()
        .await
        .expect("runs");
    let later = Ran::of(later);
    assert_eq!(later.code, 0, "{}", later.stderr);
    assert!(later.stdout.contains("owner"));
    let asked = server.asked("GET /api/whoami");
    assert_eq!(asked[1].headers["authorization"], format!("Bearer {TOKEN}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_server_refuses_is_not_stored() {
    let server = Scripted::start().await;
    server.on(
        "GET /api/whoami",
        Reply::Problem(401, "unauthenticated", json!({})),
    );
    let ran = login(&server, "bzl_wrong").await;
    assert_eq!(ran.code, 4);
    assert!(!server.home.join("config/bazilion/login.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stored_token_is_not_sent_to_another_server() {
    let (mine, other) = (Scripted::start().await, Scripted::start().await);
    mine.on("GET /api/whoami", Reply::Json(200, json!({})));
    assert_eq!(login(&mine, TOKEN).await.code, 0);
    let ran = program(&mine.home)
        .args(["whoami", "--server", &other.url])
        .output()
        .await;
    assert_eq!(Ran::of(ran.expect("runs")).code, 4);
    assert!(!other.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_token_that_others_can_read_is_not_used() {
    let server = Scripted::start().await;
    server.on("GET /api/whoami", Reply::Json(200, json!({})));
    assert_eq!(login(&server, TOKEN).await.code, 0);
    let file = server.home.join("config/bazilion/login.json");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("made readable");
    let ran = Ran::of(
        program(&server.home)
            .args(["whoami"])
            .output()
            .await
            .expect("runs"),
    );
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("chmod 600"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_does_not_carry_the_token_away() {
    let server = Scripted::start().await;
    server.on("GET /api/whoami", Reply::Raw(307, "text/plain", ""));
    let ran = server.run(&["whoami", "--json"]).await;
    assert_eq!(
        (ran.code, &ran.json()["code"]),
        (1, &json!("unexpected_answer"))
    );
}
