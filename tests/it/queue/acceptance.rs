//! Acceptance and identity.

use bazilion::db::wake::Wakes;
use bazilion::ids::{ItemId, RequestId};
use bazilion::queue::claim::Outcome;
use bazilion::queue::look::View;
use bazilion::queue::submission::{EncodedFile, decode_files};
use bazilion::queue::{self, File, Status, Submission};
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
async fn d26_an_exact_retry_gets_the_receipt_now_and_after_completion() {
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
    let again = home.submit(&input).await.unwrap();
    assert_eq!((again.id, again.status), (item.id, Status::Completed));
    assert_eq!(home.list(agent, View::All).await.items.len(), 1);
    home.assert_sound().await;
}
