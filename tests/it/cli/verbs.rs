//! The other client verbs: the request each one makes, and what a person sees.

use serde_json::{Value, json};

use super::scripted::{Reply, Scripted};

#[tokio::test(flavor = "multi_thread")]
async fn verbs_make_the_requests_of_the_contract() {
    let link = std::env::temp_dir().display().to_string();
    let turn = ["agent", "cancel", "ada", "--turn", "t1"];
    let table: &[(&[&str], &str, Value)] = &[
        (
            &["agent", "spawn", "bob", "--model", "p:m"],
            "POST /api/agents",
            json!({"name": "bob", "team": "default", "profile": "default", "model": "p:m"}),
        ),
        (
            &["agent", "move", "ada", "core"],
            "POST /api/agents/ada/move",
            json!({"team": "core"}),
        ),
        (
            &["agent", "archive", "ada"],
            "POST /api/agents/ada/archive",
            json!({}),
        ),
        (
            &turn,
            "POST /api/agents/ada/turn/cancel",
            json!({"turnId": "t1"}),
        ),
        (
            &["team", "add", "My Parser", "--link", &link],
            "POST /api/teams",
            json!({"slug": "my-parser", "name": "My Parser", "root": {"kind": "linked", "path": link}}),
        ),
        (
            &["profile", "add", "coder", "--model", "p:m"],
            "POST /api/profiles",
            json!({"slug": "coder", "name": "coder", "defaultModel": "p:m"}),
        ),
        (
            &[
                "provider",
                "set",
                "p",
                "--base-url",
                "http://127.0.0.1:1/v1",
                "--model",
                "m",
                "--images",
            ],
            "PUT /api/providers/p",
            json!({"kind": "openai-completions", "baseUrl": "http://127.0.0.1:1/v1",
                "models": [{"id": "m", "images": true}]}),
        ),
        (
            &["provider", "test", "p"],
            "POST /api/providers/p/test",
            json!({}),
        ),
        (
            &["approval", "approve", "a1"],
            "POST /api/approvals/a1/approve",
            json!({}),
        ),
        (
            &["inbox", "acknowledge", "ada", "m1"],
            "POST /api/agents/ada/inbox/m1/acknowledge",
            json!({}),
        ),
        (
            &["token", "create", "--label", "ci", "--scope", "read"],
            "POST /api/tokens",
            json!({"label": "ci", "scopes": ["read"], "days": 90}),
        ),
        (
            &["workspace", "release", "l1", "--acknowledge"],
            "POST /api/instance/leases/l1/release",
            json!({"acknowledge": true}),
        ),
        (
            &[
                "queue",
                "reconcile",
                "ada",
                "i",
                "--expected-revision",
                "5",
                "--acknowledge",
            ],
            "POST /api/agents/ada/queue/i/reconcile",
            json!({"expectedRevision": 5, "acknowledge": true}),
        ),
        (
            &["instance", "home", "create", "acme", "--owner", "a@b.c"],
            "POST /api/instance/homes",
            json!({"slug": "acme", "name": "acme", "ownerEmail": "a@b.c"}),
        ),
    ];
    let server = Scripted::start().await;
    for (words, request, body) in table {
        server.on(request, Reply::Json(200, json!({"id": "x"})));
        let ran = server.run(words).await;
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.stderr);
        let asked = server.asked(request);
        assert_eq!(
            asked.last().map(|asked| asked.json()),
            Some(body.clone()),
            "{words:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_follows_its_pages_and_is_a_table_for_people() {
    let server = Scripted::start().await;
    let page = |name: &str, next: Option<&str>| json!({"items": [{"id": "i", "slug": name, "name": name}], "nextCursor": next});
    server.on(
        "GET /api/teams",
        Reply::Json(200, page("on\u{1b}e", Some("c1"))),
    );
    server.on("GET /api/teams", Reply::Json(200, page("two", None)));
    let ran = server.run(&["team", "list"]).await;
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.stdout);
    assert!(
        lines[0].starts_with("ID") && lines[1].contains("on\\x1be") && lines[2].contains("two")
    );
    assert_eq!(server.asked("GET /api/teams")[1].query, "cursor=c1");
}

#[tokio::test(flavor = "multi_thread")]
async fn team_context_with_json_is_the_report_itself() {
    let server = Scripted::start().await;
    let report = json!({"version": 1, "target": "src", "git": {"state": "not_repository"},
        "note": "This is not a code snapshot."});
    server.on(
        "GET /api/teams/core/repository-context",
        Reply::Json(200, report.clone()),
    );
    let ran = server
        .run(&["team", "context", "core", "--target", "src", "--json"])
        .await;
    assert_eq!(ran.json(), report);
    assert_eq!(
        server.asked("GET /api/teams/core/repository-context")[0].query,
        "target=src"
    );
    let ran = server.run(&["team", "context", "core"]).await;
    assert!(ran.stdout.contains("not a code snapshot"));
}

#[tokio::test(flavor = "multi_thread")]
async fn configure_without_an_expected_revision_is_refused_and_prints_todays() {
    let server = Scripted::start().await;
    let path = "/api/teams/core/coding-environment";
    let today = json!({"environment": {"revision": 3}, "posture": "docker"});
    server.on(&format!("GET {path}"), Reply::Json(200, today));
    server.on(
        &format!("PUT {path}"),
        Reply::Json(200, json!({"environment": {"revision": 4}})),
    );
    let file = server.home.join("env.json");
    std::fs::write(&file, r#"{"config": {"env": {"CI": "true"}}}"#).expect("a file");
    let words = [
        "team",
        "environment",
        "configure",
        "core",
        "--file",
        "env.json",
    ];
    let ran = server.run(&words).await;
    assert_eq!(ran.code, 2);
    assert!(
        ran.stdout.contains("revision") && ran.stdout.contains('3'),
        "{}",
        ran.stdout
    );
    assert!(server.asked(&format!("PUT {path}")).is_empty());

    let whole = json!({"expectedRevision": 3, "config": {"env": {"CI": "true"}}});
    std::fs::write(&file, whole.to_string()).expect("a file");
    assert_eq!(server.run(&words).await.code, 0);
    assert_eq!(server.asked(&format!("PUT {path}"))[0].json(), whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_stands_alone_on_standard_output() {
    let server = Scripted::start().await;
    server.on(
        "POST /api/tokens",
        Reply::Json(201, json!({"id": "1", "token": "bzl_new"})),
    );
    let ran = server.run(&["token", "create", "--label", "ci"]).await;
    assert_eq!(ran.stdout, "bzl_new\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_odd_characters_stays_one_segment_of_the_path() {
    let server = Scripted::start().await;
    server.on(
        "GET /api/agents/a%2Fb%20c%3F",
        Reply::Json(200, json!({"name": "a/b c?"})),
    );
    assert_eq!(server.run(&["agent", "show", "a/b c?"]).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_and_completions_are_data() {
    let server = Scripted::start().await;
    for words in [
        &["--help"][..],
        &["completion", "bash"],
        &["queue", "add", "--help"],
    ] {
        let ran = server.run(words).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        assert!(ran.stdout.len() > 200);
    }
}
