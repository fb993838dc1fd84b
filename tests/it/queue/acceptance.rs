//! Acceptance and identity.

use bazilion::ids::RequestId;
use bazilion::queue::claim::Outcome;
use bazilion::queue::look::View;
use bazilion::queue::submission::{EncodedFile, decode_files};
use bazilion::queue::{self, File, Origin, Source, Status, Submission};
use bazilion::team::Selection;

use crate::support::queue::{Home, assert_sound, code, extra, selection, spawn};

#[tokio::test]
async fn q001_the_first_input_is_pending_at_position_one_as_it_was_sent() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "Fix the bug.").await.unwrap();
    assert_eq!(item.status, Status::Pending);
    assert_eq!((item.position, item.revision, item.version), (1, 1, 1));
    assert_eq!(item.text.as_deref(), Some("Fix the bug."));
    let selected = home.selection(agent).await;
    assert_eq!(
        selected.conversation_id,
        Some(item.conversation_id),
        "it made conversation 1 and selected it"
    );
    assert_eq!(selected.revision, 1);
    assert_eq!(home.item(&item).await, item);
    home.assert_sound().await;
}

#[tokio::test]
async fn q003_the_same_request_id_with_other_text_is_a_conflict_and_changes_nothing() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home.input(agent, "one", vec![]).await;
    let item = home.submit(&input).await.unwrap();
    let other = Submission::new(
        agent.to_string(),
        input.request_id,
        input.expected,
        "two",
        vec![],
    )
    .unwrap();
    assert_eq!(code(home.submit(&other).await), "request_conflict");
    assert_eq!(home.item(&item).await, item);
    home.assert_sound().await;
}

#[tokio::test]
async fn q005_an_item_of_one_agent_is_not_found_under_another() {
    let home = Home::new().await;
    let (a, b) = (home.agent("A").await, home.agent("B").await);
    let item = home.say(a, "hello").await.unwrap();
    let seen = queue::show(&home.db, &home.caller, &b.to_string(), item.id).await;
    assert_eq!(code(seen), "not_found");
}

#[tokio::test]
async fn q007_a_failure_while_bytes_are_stored_leaves_nothing_and_the_next_gets_position_one() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.execute("ALTER TABLE blob_chunks ADD CONSTRAINT broken CHECK (number < 0)")
        .await;
    let input = home
        .input(
            agent,
            "with a file",
            vec![File::new(None, "text/plain", "abc")],
        )
        .await;
    assert_eq!(code(home.submit(&input).await), "internal");
    assert_eq!(home.count("SELECT count(*) FROM queue_items").await, 0);
    assert_eq!(home.count("SELECT count(*) FROM blobs").await, 0);
    assert_eq!(home.count("SELECT count(*) FROM conversations").await, 0);
    home.execute("ALTER TABLE blob_chunks DROP CONSTRAINT broken")
        .await;
    assert_eq!(home.submit(&input).await.unwrap().position, 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn q013_an_exact_retry_after_the_conversation_changed_gets_the_original_and_selects_nothing()
{
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home.input(agent, "hello", vec![]).await;
    let item = home.submit(&input).await.unwrap();
    home.execute(
        "INSERT INTO conversations (home_id, id, agent_id, number, created_at)
         SELECT home_id, gen_random_uuid(), id, 2, now() FROM agents",
    )
    .await;
    home.execute(
        "UPDATE agents SET selection_revision = 2,
            conversation_id = (SELECT id FROM conversations WHERE agent_id = agents.id AND number = 2)",
    )
    .await;
    let today = home.selection(agent).await;
    assert_eq!(home.submit(&input).await.unwrap().id, item.id);
    assert_eq!(home.selection(agent).await, today);
    // A new request under yesterday's selection is refused with today's.
    let stale = Submission::new(
        agent.to_string(),
        RequestId::new(),
        input.expected,
        "new",
        vec![],
    )
    .unwrap();
    let refused = home.submit(&stale).await;
    assert_eq!(extra(&refused, "current")["revision"], 2);
    assert_eq!(code(refused), "conversation_conflict");
    home.assert_sound().await;
}

#[tokio::test]
async fn q015_an_exact_retry_with_another_selection_is_a_conflict() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home.input(agent, "hello", vec![]).await;
    home.submit(&input).await.unwrap();
    let other = Selection {
        revision: 7,
        ..input.expected
    };
    let again =
        Submission::new(agent.to_string(), input.request_id, other, "hello", vec![]).unwrap();
    assert_eq!(code(home.submit(&again).await), "request_conflict");
}

#[tokio::test]
async fn q017_an_archived_agent_takes_nothing_new_but_answers_an_older_request() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home.input(agent, "hello", vec![]).await;
    let item = home.submit(&input).await.unwrap();
    home.execute("UPDATE agents SET status = 'archived'").await;
    assert_eq!(code(home.say(agent, "more").await), "agent_archived");
    assert_eq!(home.submit(&input).await.unwrap().id, item.id);
    home.assert_sound().await;
}

#[tokio::test]
async fn q019_a_denial_stores_one_event_and_nothing_else() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.user_edge(agent, None).await;
    let before = home.count("SELECT count(*) FROM audit").await;
    let input = home
        .input(agent, "hello", vec![File::new(None, "text/plain", "abc")])
        .await;
    assert_eq!(code(home.submit(&input).await), "communication_denied");
    assert_eq!(home.count("SELECT count(*) FROM queue_items").await, 0);
    assert_eq!(home.count("SELECT count(*) FROM blobs").await, 0);
    assert_eq!(home.count("SELECT count(*) FROM conversations").await, 0);
    assert_eq!(home.count("SELECT count(*) FROM audit").await, before + 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn d26_an_exact_retry_gets_the_receipt_now_after_completion_and_after_a_team_move() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home
        .input(agent, "once", vec![File::new(None, "text/plain", "abc")])
        .await;
    let item = home.submit(&input).await.unwrap();
    assert_eq!(home.submit(&input).await.unwrap().id, item.id);
    let process = home.process().await;
    let claim = home.run_one(process).await;
    assert_eq!(home.submit(&input).await.unwrap().status, Status::Running);
    assert!(home.settle(&claim, Outcome::Completed).await);
    home.execute(
        "INSERT INTO teams (home_id, id, slug, name, root_kind, created_at)
         SELECT home_id, gen_random_uuid(), 'other', 'Other', 'managed', now() FROM teams WHERE slug = 't'",
    )
    .await;
    home.execute("UPDATE agents SET team_id = (SELECT id FROM teams WHERE slug = 'other')")
        .await;
    let again = home.submit(&input).await.unwrap();
    assert_eq!((again.id, again.status), (item.id, Status::Completed));
    assert_eq!(home.list(agent, View::All).await.items.len(), 1);
    home.assert_sound().await;
}

#[tokio::test]
async fn the_same_identity_for_another_agent_is_a_conflict_and_in_another_home_its_own() {
    let home = Home::new().await;
    let (a, b) = (home.agent("A").await, home.agent("B").await);
    let input = home.input(a, "hello", vec![]).await;
    let item = home.submit(&input).await.unwrap();
    let other = Submission::new(
        b.to_string(),
        input.request_id,
        input.expected,
        "hello",
        vec![],
    )
    .unwrap();
    assert_eq!(code(home.submit(&other).await), "request_conflict");

    let (_, stranger, _) = home.neighbour("next").await;
    let theirs = spawn(&home.db, &stranger, "A").await;
    let expected = selection(&home.db, &stranger, theirs).await;
    let same_id = Submission::new(
        theirs.to_string(),
        input.request_id,
        expected,
        "hello",
        vec![],
    )
    .unwrap();
    let stored = queue::submit(&home.db, &home.wakes, &stranger, &same_id)
        .await
        .unwrap();
    assert_ne!(stored.id, item.id);
    // What belongs to the neighbour is not there at all.
    let prying = queue::show(&home.db, &home.caller, &theirs.to_string(), stored.id).await;
    assert_eq!(code(prying), "not_found");
    assert_eq!(code(home.submit(&same_id).await), "not_found");
    home.assert_sound().await;
    assert_sound(&home.db, &stranger).await;
}

#[tokio::test]
async fn a_viewer_may_look_and_not_submit() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "hello").await.unwrap();
    let viewer = crate::support::queue::person(
        home.id,
        home.caller.operator().unwrap(),
        bazilion::identity::Role::Viewer,
    );
    let input = home.input(agent, "no", vec![]).await;
    assert_eq!(
        code(queue::submit(&home.db, &home.wakes, &viewer, &input).await),
        "forbidden"
    );
    let query = queue::look::Query {
        agent: "ada".into(),
        view: View::Open,
        cursor: None,
        offset: None,
        limit: None,
    };
    assert_eq!(
        queue::list(&home.db, &viewer, &query)
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

fn checked(text: &str, files: Vec<File>) -> bazilion::error::Result<Submission> {
    let nothing = Selection {
        conversation_id: None,
        revision: 0,
    };
    Submission::new("a", RequestId::new(), nothing, text, files)
}

#[test]
fn q023_text_is_measured_in_bytes_and_65_536_of_them_are_the_most() {
    assert!(checked(&"é".repeat(32_768), vec![]).is_ok());
    assert_eq!(
        code(checked(&format!("{}a", "é".repeat(32_768)), vec![])),
        "invalid_input"
    );
    assert_eq!(code(checked("a\0b", vec![])), "invalid_input", "q027");
    assert_eq!(code(checked(" \n", vec![])), "invalid_input");
    assert!(
        checked("", vec![File::new(None, "text/plain", "")]).is_ok(),
        "blank with a file, even an empty one"
    );
}

#[test]
fn q025_only_canonical_base64_is_taken() {
    let encoded = |data: &str| {
        decode_files(vec![EncodedFile {
            name: None,
            mime_type: "text/plain".into(),
            data: data.into(),
        }])
    };
    assert!(encoded("YWI=").is_ok());
    for data in ["!!!!", "YWI", "YWJ=", "-_-_", "YWI=\n", "YWI=YWI="] {
        assert_eq!(code(encoded(data)), "invalid_input", "{data}");
    }
}

#[test]
fn files_have_at_most_sixteen_names_of_255_characters_and_25_mib_together() {
    let file = |name: &str, mime: &str| File::new(Some(name.into()), mime, "x");
    assert!(checked("t", vec![file("ä".repeat(255).as_str(), "a/b")]).is_ok());
    for (name, mime) in [
        ("ä".repeat(256).as_str(), "a/b"),
        ("", "a/b"),
        ("a/b", "a/b"),
        ("a\\b", "a/b"),
        ("a\nb", "a/b"),
        ("ok", "text"),
        ("ok", "text/"),
        ("ok", "text/plain; charset=utf-8"),
        ("ok", format!("a/{}", "b".repeat(199)).as_str()),
    ] {
        assert_eq!(
            code(checked("t", vec![file(name, mime)])),
            "invalid_input",
            "{name} {mime}"
        );
    }
    assert!(
        checked(
            "t",
            vec![file("ok", format!("a/{}", "b".repeat(198)).as_str())]
        )
        .is_ok()
    );
    assert!(checked("t", (0..16).map(|_| file("n", "a/b")).collect()).is_ok());
    assert_eq!(
        code(checked("t", (0..17).map(|_| file("n", "a/b")).collect())),
        "invalid_input"
    );
    let most = 25 * 1024 * 1024;
    assert!(checked("t", vec![File::new(None, "a/b", vec![0; most])]).is_ok());
    assert_eq!(
        code(checked(
            "t",
            vec![File::new(None, "a/b", vec![0; most + 1])]
        )),
        "invalid_input"
    );
}

#[tokio::test]
async fn q029_two_requests_that_differ_in_the_case_of_a_type_only_are_one() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let input = home
        .input(agent, "pic", vec![File::new(None, "Image/PNG", "x")])
        .await;
    let item = home.submit(&input).await.unwrap();
    assert_eq!(item.attachments[0].mime_type, "Image/PNG", "stored as sent");
    let lower = vec![File::new(None, "image/png", "x")];
    let again = Submission::new(
        agent.to_string(),
        input.request_id,
        input.expected,
        "pic",
        lower,
    )
    .unwrap();
    assert_eq!(home.submit(&again).await.unwrap().id, item.id);
}

#[tokio::test]
async fn q061_an_edited_telegram_item_becomes_an_http_one() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let origin = Origin {
        chat_id: -100,
        thread_id: Some(7),
        message_ids: vec![1, 2],
    };
    let input = home
        .input(agent, "from the phone", vec![])
        .await
        .from_telegram(origin.clone());
    let item = home.submit(&input).await.unwrap();
    assert_eq!(
        (item.source, item.origin.clone()),
        (Source::Telegram, Some(origin))
    );
    let edit = home
        .edit_of(&item, Some("from the desk"), queue::edit::Keep::All, vec![])
        .await;
    let new = home.edit(&edit).await.unwrap();
    assert_eq!((new.source, new.origin), (Source::Http, None));
    home.assert_sound().await;
}
