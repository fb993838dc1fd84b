//! Editing and removing.

use bazilion::ids::AttachmentId;
use bazilion::queue::claim::Outcome;
use bazilion::queue::edit::Keep;
use bazilion::queue::look::View;
use bazilion::queue::{self, File, Item, Status};

use crate::support::queue::{Home, code, extra, item_id};

fn texts(items: &[Item]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item.text.as_deref().unwrap())
        .collect()
}

#[tokio::test]
async fn d20_an_edit_replaces_at_the_same_place_and_keeps_files_byte_for_byte() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let mut items = vec![];
    for n in 1..=4 {
        let file = File::new(
            Some(format!("{n}.bin")),
            "application/octet-stream",
            vec![n; 300_000],
        );
        let input = home.input(agent, &format!("item {n}"), vec![file]).await;
        items.push(home.submit(&input).await.unwrap());
    }
    let second = home
        .edit(
            &home
                .edit_of(&items[1], Some("changed"), Keep::All, vec![])
                .await,
        )
        .await
        .unwrap();
    let third = home
        .edit(
            &home
                .edit_of(&items[2], None, Keep::These(vec![]), vec![])
                .await,
        )
        .await
        .unwrap();
    assert_eq!(second.supersedes_id, Some(items[1].id));
    assert_eq!(second.attachments[0].sha256, items[1].attachments[0].sha256);
    assert_ne!(second.attachments[0].id, items[1].attachments[0].id);
    assert!(third.attachments.is_empty());
    let open = home.open(agent).await;
    assert_eq!(texts(&open), ["item 1", "changed", "item 3", "item 4"]);
    assert_eq!(
        open.iter().map(|i| i.position).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    let old = home.item(&items[1]).await;
    assert_eq!(
        (old.status, old.superseded_by_id),
        (Status::Superseded, Some(second.id))
    );
    let args = (agent.to_string(), second.id, second.attachments[0].id);
    let file = queue::download(&home.db, &home.caller, &args)
        .await
        .unwrap();
    assert_eq!(file.bytes, vec![2; 300_000]);
    assert_eq!(
        home.count("SELECT retained_bytes FROM home_usage").await,
        4 * 300_000,
        "kept bytes count once, dropped ones until they expire"
    );
    home.assert_sound().await;
}

#[tokio::test]
async fn kept_files_come_first_then_new_ones_and_an_unknown_one_is_refused() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let files = vec![
        File::new(Some("a".into()), "a/b", "1"),
        File::new(Some("b".into()), "a/b", "2"),
    ];
    let item = home
        .submit(&home.input(agent, "x", files).await)
        .await
        .unwrap();
    let keep = Keep::These(vec![item.attachments[1].id]);
    let new = vec![File::new(Some("c".into()), "a/b", "3")];
    let edited = home
        .edit(&home.edit_of(&item, None, keep, new).await)
        .await
        .unwrap();
    let names: Vec<_> = edited
        .attachments
        .iter()
        .map(|a| a.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["b", "c"]);
    let unknown = home
        .edit_of(
            &edited,
            None,
            Keep::These(vec![AttachmentId::new()]),
            vec![],
        )
        .await;
    assert_eq!(code(home.edit(&unknown).await), "invalid_input");
    let blank = home
        .edit_of(&edited, Some(" "), Keep::These(vec![]), vec![])
        .await;
    assert_eq!(code(home.edit(&blank).await), "invalid_input");
    assert_eq!(home.item(&edited).await.status, Status::Pending);
    home.assert_sound().await;
}

#[tokio::test]
async fn q067_a_stale_edit_gets_the_item_as_it_is_and_changes_nothing() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let mut stale = item.clone();
    stale.revision += 1;
    let refused = home
        .edit(&home.edit_of(&stale, Some("two"), Keep::All, vec![]).await)
        .await;
    assert_eq!(item_id(&extra(&refused, "current")["id"]), item.id);
    assert_eq!(code(refused), "item_changed");
    assert_eq!(home.item(&item).await, item);
    assert_eq!(code(home.remove(&stale).await), "item_changed");
}

#[tokio::test]
async fn an_exact_retry_of_an_edit_gets_the_replacement_and_another_edit_under_its_id_a_conflict() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let edit = home.edit_of(&item, Some("two"), Keep::All, vec![]).await;
    let new = home.edit(&edit).await.unwrap();
    assert_eq!(home.edit(&edit).await.unwrap().id, new.id);
    let mut other = edit.clone();
    other.message = Some("three".into());
    assert_eq!(code(home.edit(&other).await), "request_conflict");
    home.assert_sound().await;
}

#[tokio::test]
async fn q063_a_claimed_item_can_be_neither_edited_nor_removed() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.claim_one(process).await;
    assert_eq!(
        code(
            home.edit(&home.edit_of(&item, Some("two"), Keep::All, vec![]).await)
                .await
        ),
        "item_not_editable"
    );
    assert_eq!(code(home.remove(&item).await), "item_not_editable");
    assert!(
        home.settle(
            &claim,
            Outcome::Cancelled(crate::support::queue::because("stopped"))
        )
        .await
    );
    assert_eq!(code(home.remove(&item).await), "item_not_editable");
    home.assert_sound().await;
}

#[tokio::test]
async fn q069_an_edit_under_another_selection_is_refused_and_the_original_stays() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "one").await.unwrap();
    let mut edit = home.edit_of(&item, Some("two"), Keep::All, vec![]).await;
    edit.expected.revision += 1;
    assert_eq!(code(home.edit(&edit).await), "conversation_conflict");
    assert_eq!(home.item(&item).await, item);
}

#[tokio::test]
async fn q071_when_the_question_cannot_be_stored_the_original_is_untouched() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home
        .submit(
            &home
                .input(agent, "one", vec![File::new(None, "a/b", "x")])
                .await,
        )
        .await
        .unwrap();
    home.user_edge(agent, Some("approval_required")).await;
    home.execute("ALTER TABLE approvals ADD CONSTRAINT broken CHECK (state = '')")
        .await;
    let edit = home.edit_of(&item, Some("two"), Keep::All, vec![]).await;
    assert_eq!(code(home.edit(&edit).await), "internal");
    let now = home.item(&item).await;
    assert_eq!((now.status, now.revision), (Status::Pending, 1));
    assert_eq!(home.count("SELECT count(*) FROM approvals").await, 0);
    home.assert_sound().await;
}

#[tokio::test]
async fn d24_a_removed_items_text_stays_in_the_history_and_it_never_starts() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let item = home.say(agent, "keep this text").await.unwrap();
    let removed = home.remove(&item).await.unwrap();
    assert_eq!(removed.status, Status::Cancelled);
    assert_eq!(removed.diagnostic.unwrap().code, "removed");
    let history = home.list(agent, View::History).await;
    assert_eq!(texts(&history.items), ["keep this text"]);
    // Q073
    let process = home.process().await;
    assert!(home.claim(process, 5).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn q065_after_the_head_completes_the_next_in_position_order_is_claimed_even_if_edited_last() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "one").await.unwrap();
    let two = home.say(agent, "two").await.unwrap();
    home.say(agent, "three").await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    let edited = home
        .edit(
            &home
                .edit_of(&two, Some("two, better"), Keep::All, vec![])
                .await,
        )
        .await
        .unwrap();
    assert!(home.settle(&claim, Outcome::Completed).await);
    assert_eq!(home.claim_one(process).await.item, edited.id);
    home.assert_sound().await;
}
