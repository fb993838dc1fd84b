//! `queue add` and `queue edit`: the identity is printed first, and a retry is the same request.

use std::path::Path;

use serde_json::{Value, json};

use super::scripted::{AGENT, CONVERSATION, Ran, Reply, Scripted, TOKEN, agent, item, program};

fn add_path() -> String {
    format!("POST /api/agents/{AGENT}/queue")
}

/// Runs a printed command line in a shell, signed in as before.
async fn run_line(server: &Scripted, line: &str) -> Ran {
    let environment = program(&server.home);
    let mut shell = tokio::process::Command::new("bash");
    shell.env_clear();
    for (name, value) in environment.as_std().get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
        .env("BAZILION_SERVER", &server.url)
        .env("BAZILION_TOKEN", TOKEN);
    let output = shell.current_dir("/").args(["-c", line]).output().await;
    Ran::of(output.expect("the shell runs"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_added_with_the_selection_as_it_is_now() {
    let server = Scripted::start().await;
    server.on(&add_path(), Reply::Json(202, item("pending")));
    let ran = server
        .run(&["queue", "add", "ada", "--message", "-fix it"])
        .await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["status"], "pending");
    let asked = server.asked(&add_path());
    let body = asked[0].json();
    assert_eq!(body["message"], "-fix it");
    assert_eq!(
        body["expectedSelection"],
        json!({"conversationId": CONVERSATION, "revision": 4})
    );
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {TOKEN}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn q195_retry_parameters_are_printed_even_if_the_request_then_fails() {
    let server = Scripted::start().await;
    for reply in [
        Reply::Lost,
        Reply::Problem(409, "conversation_conflict", json!({})),
        Reply::Problem(
            429,
            "queue_capacity",
            json!({"limit": "open_items", "used": 20, "max": 20}),
        ),
        Reply::Problem(503, "outcome_unknown", json!({})),
    ] {
        server.forget(&add_path());
        server.on(&add_path(), reply);
        let ran = server.run(&["queue", "add", "ada", "--message", "x"]).await;
        assert_ne!(ran.code, 0);
        let asked = server.asked(&add_path());
        let id = asked.last().expect("a request").json()["requestId"].clone();
        let id = id.as_str().expect("an id").to_owned();
        assert!(
            ran.stderr.contains(&format!("request id: {id}")),
            "{}",
            ran.stderr
        );
        let line = ran.retry_line();
        assert!(line.contains(&format!("--request-id {id}")), "{line}");
        assert!(
            line.contains(&format!("--expected-conversation {CONVERSATION}")),
            "{line}"
        );
        assert!(line.contains("--expected-selection-revision 4"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d32_the_exact_retry_uses_the_printed_parameters_not_the_new_selection() {
    let server = Scripted::start().await;
    let notes = server.home.join("it's a note.txt");
    std::fs::write(&notes, "notes\n").expect("a file");
    server.on(&add_path(), Reply::Lost);
    let message = "don't\n$(touch /tmp/x) \u{1b}[31m";
    let first = server
        .run(&[
            "queue",
            "add",
            "ada",
            "--message",
            message,
            "--file",
            "it's a note.txt",
        ])
        .await;
    assert_eq!(first.code, 1);
    assert!(
        first.stderr.contains("A new request would be wrong"),
        "{}",
        first.stderr
    );
    assert_eq!(first.stderr.matches(&first.retry_line()).count(), 2);
    assert!(!first.stderr.contains('\u{1b}'));

    server.forget("GET /api/agents/ada");
    server.on("GET /api/agents/ada", Reply::Json(200, agent(None, 9)));
    server.forget(&add_path());
    server.on(&add_path(), Reply::Json(202, item("completed")));
    let again = run_line(&server, &first.retry_line()).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(again.json()["status"], "completed");

    let asked = server.asked(&add_path());
    let requests: Vec<Value> = asked.iter().map(|one| form_request(&one.text())).collect();
    assert_eq!(requests[0], requests[1]);
    assert_eq!(requests[0]["message"], message);
    assert_eq!(server.asked("GET /api/agents/ada").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_first_message_expects_no_conversation() {
    let server = Scripted::start().await;
    server.forget("GET /api/agents/ada");
    server.on("GET /api/agents/ada", Reply::Json(200, agent(None, 0)));
    server.on(&add_path(), Reply::Json(202, item("pending")));
    let first = server.run(&["queue", "add", "ada", "--message", "x"]).await;
    let again = run_line(&server, &first.retry_line()).await;
    assert_eq!(again.code, 0, "{}", again.stderr);
    let asked = server.asked(&add_path());
    assert_eq!(asked[0].json(), asked[1].json());
    assert_eq!(
        asked[1].json()["expectedSelection"]["conversationId"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_without_both_expectations_is_refused_before_anything_is_sent() {
    let server = Scripted::start().await;
    let id = ["--request-id", "019a0000-0000-7000-8000-000000000001"];
    let conversation = ["--expected-conversation", "none"];
    let revision = ["--expected-selection-revision", "0"];
    for words in [vec![id], vec![id, conversation], vec![id, revision]] {
        let words = [
            vec!["queue", "add", "ada", "--message", "x"],
            words.concat(),
        ]
        .concat();
        let ran = server.run(&words).await;
        assert_eq!(ran.code, 2, "{words:?}");
    }
    assert!(!server.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_streamed_after_the_request_with_their_names_and_types() {
    let server = Scripted::start().await;
    std::fs::write(server.home.join("größe.png"), b"\x89PNG\0").expect("a file");
    std::fs::write(server.home.join("b.txt"), b"").expect("a file");
    server.on(&add_path(), Reply::Json(202, item("pending")));
    let ran = server
        .run(&[
            "queue",
            "add",
            "ada",
            "--files",
            r#"["./größe.png"]"#,
            "--file",
            "b.txt",
        ])
        .await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let asked = server.asked(&add_path());
    let kind = asked[0].headers["content-type"].to_str().expect("text");
    assert!(kind.starts_with("multipart/form-data"));
    let text = asked[0].text();
    let order: Vec<_> = [
        "name=\"request\"",
        "filename=\"größe.png\"",
        "filename=\"b.txt\"",
    ]
    .map(|part| {
        text.find(part)
            .unwrap_or_else(|| panic!("{part} in {text}"))
    })
    .into();
    assert!(order.is_sorted());
    assert!(text.contains("Content-Type: image/png"));
    assert!(text.contains("Content-Type: text/plain"));
    let request = form_request(&text);
    assert_eq!(
        (&request["message"], request.get("attachments")),
        (&json!(""), None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn q197_too_many_or_too_large_files_are_a_local_error() {
    let server = Scripted::start().await;
    std::fs::write(server.home.join("a"), b"a").expect("a file");
    let many = json!(vec!["a"; 17]).to_string();
    let ran = server.run(&["queue", "add", "ada", "--files", &many]).await;
    assert_eq!((ran.code, &ran.json()["code"]), (6, &json!("limit")));
    let large = std::fs::File::create(server.home.join("large")).expect("a file");
    large.set_len(25 * 1024 * 1024).expect("a sparse file");
    let ran = server
        .run(&["queue", "add", "ada", "--file", "large", "--file", "a"])
        .await;
    assert_eq!((ran.code, &ran.json()["code"]), (6, &json!("limit")));
    assert!(!server.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_can_not_be_sent_is_a_local_error() {
    let server = Scripted::start().await;
    for path in ["absent.txt", ".", "/dev/null"] {
        let ran = server.run(&["queue", "add", "ada", "--file", path]).await;
        assert_eq!(ran.code, 2, "{path}: {}", ran.stderr);
    }
    assert!(!server.asked_anything());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_text_keeps_the_files_and_an_empty_list_removes_them() {
    let server = Scripted::start().await;
    let path = format!("/api/agents/{AGENT}/queue/item-1");
    let edit = format!("PATCH {path}");
    server.on(&edit, Reply::Json(200, item("pending")));
    let words = ["queue", "edit", "ada", "item-1", "--expected-revision", "3"];
    let text = server
        .run(&[&words[..], &["--message", "new"]].concat())
        .await;
    assert_eq!(text.code, 0, "{}", text.stderr);
    let bare = server.run(&[&words[..], &["--files", "[]"]].concat()).await;
    assert_eq!(bare.code, 0, "{}", bare.stderr);
    let asked = server.asked(&edit);
    let (first, second) = (asked[0].json(), asked[1].json());
    assert_eq!(first["expectedRevision"], 3);
    assert_eq!(
        (&first["message"], first.get("keepAttachments")),
        (&json!("new"), None)
    );
    assert_eq!(
        (second.get("message"), &second["keepAttachments"]),
        (None, &json!([]))
    );
    assert!(
        bare.retry_line()
            .contains("--expected-revision 3 --files '[]'")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn controls_carry_the_revision_that_was_seen() {
    let server = Scripted::start().await;
    for verb in ["pause", "resume", "stop"] {
        let path = format!("POST /api/agents/ada/queue/{verb}");
        server.on(
            &path,
            Reply::Json(200, json!({"paused": true, "revision": 8})),
        );
        let ran = server
            .run(&["queue", verb, "ada", "--expected-revision", "7"])
            .await;
        assert_eq!((ran.code, &ran.json()["revision"]), (0, &json!(8)));
        assert_eq!(
            server.asked(&path)[0].json(),
            json!({"expectedRevision": 7})
        );
    }
    server.on(
        "DELETE /api/agents/ada/queue/i",
        Reply::Json(200, item("cancelled")),
    );
    let ran = server
        .run(&["queue", "remove", "ada", "i", "--expected-revision", "2"])
        .await;
    assert_eq!(ran.code, 0);
    assert_eq!(
        server.asked("DELETE /api/agents/ada/queue/i")[0].query,
        "expectedRevision=2"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_of_hostile_text_can_not_steer_the_terminal() {
    let server = Scripted::start().await;
    let text = "\u{1b}]0;x\u{7} \u{9b}2J \u{202e}";
    server.on(
        "GET /api/agents/ada/queue/i",
        Reply::Json(200, json!({"text": text})),
    );
    let ran = server.run(&["queue", "show", "ada", "i"]).await;
    assert_eq!(ran.json()["text"], text);
    assert!(ran.stdout.is_ascii(), "{}", ran.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_found_again_from_another_directory() {
    let server = Scripted::start().await;
    std::fs::write(server.home.join("a.txt"), b"a").expect("a file");
    server.on(&add_path(), Reply::Json(202, item("pending")));
    let ran = server
        .run(&["queue", "add", "ada", "--file", "./a.txt"])
        .await;
    let line = ran.retry_line();
    let words: Vec<&str> = line.split(' ').collect();
    let at = words
        .iter()
        .position(|word| *word == "--file")
        .expect("--file");
    assert!(Path::new(words[at + 1]).is_absolute(), "{line}");
}

/// The `request` part of a form.
fn form_request(text: &str) -> Value {
    let start = text.find('{').expect("a JSON part");
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter();
    values.next().expect("a document").expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_leaves_the_outcome_open() {
    let server = Scripted::start().await;
    std::fs::write(server.home.join("a.txt"), b"a").expect("a file");
    server.on(&add_path(), Reply::Silence);
    for more in [&[][..], &["--file", "a.txt"]] {
        let words = ["queue", "add", "ada", "--message", "x", "--timeout", "1"];
        let ran = server.run(&[&words[..], more].concat()).await;
        assert_eq!((ran.code, &ran.json()["code"]), (1, &json!("no_answer")));
        assert_eq!(ran.stderr.matches(&ran.retry_line()).count(), 2);
    }
}
