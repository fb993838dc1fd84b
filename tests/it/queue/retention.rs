//! What expires, and what stays.

use bazilion::queue::claim::Outcome;
use bazilion::queue::{self, File, Status, retention};
use time::Duration;

use crate::support::queue::{Home, code};

#[tokio::test]
async fn q161_after_seven_days_text_and_bytes_of_ended_items_go_and_the_receipt_stays() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let shared = || vec![File::new(Some("same".into()), "a/b", "the same bytes")];
    let input = home.input(agent, "ended", shared()).await;
    let ended = home.submit(&input).await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    home.settle(&claim, Outcome::Completed).await;
    let waiting = home
        .submit(&home.input(agent, "waiting", shared()).await)
        .await
        .unwrap();

    let early = home.later(Duration::days(7) - Duration::minutes(1)).await;
    assert_eq!(retention::expire_payloads(&early).await.unwrap(), 0);
    let late = home.later(Duration::days(7)).await;
    assert_eq!(retention::expire_payloads(&late).await.unwrap(), 1);
    assert_eq!(retention::expire_payloads(&late).await.unwrap(), 0);

    let gone = home.item(&ended).await;
    assert_eq!(
        (gone.status, gone.text.clone(), gone.payload_retained),
        (Status::Completed, None, false)
    );
    assert_eq!(gone.attachments[0].sha256, ended.attachments[0].sha256);
    let args = (agent.to_string(), ended.id, ended.attachments[0].id);
    assert_eq!(
        code(queue::download(&home.db, &home.caller, &args).await),
        "payload_expired"
    );
    let kept = (agent.to_string(), waiting.id, waiting.attachments[0].id);
    let file = queue::download(&home.db, &home.caller, &kept)
        .await
        .unwrap();
    assert_eq!(
        file.bytes, b"the same bytes",
        "the content that a pending item shares stays"
    );
    assert_eq!(
        home.submit(&input).await.unwrap().id,
        ended.id,
        "a late retry is still recognised"
    );
    assert_eq!(
        home.count("SELECT retained_bytes FROM home_usage").await,
        14
    );
    home.assert_sound().await;
}

#[tokio::test]
async fn held_pending_and_uncertain_input_never_expires() {
    let home = Home::new().await;
    let (a, b, c) = (
        home.agent("A").await,
        home.agent("B").await,
        home.agent("C").await,
    );
    home.say(a, "uncertain").await.unwrap();
    let process = home.process().await;
    home.run_one(process).await;
    home.reap(process).await;
    home.say(b, "pending").await.unwrap();
    home.user_edge(c, Some("approval_required")).await;
    home.say(c, "held").await.unwrap();
    let late = home.later(Duration::days(400)).await;
    assert_eq!(retention::expire_payloads(&late).await.unwrap(), 0);
    home.assert_sound().await;
}

#[tokio::test]
async fn a_submission_of_a_content_that_is_being_pruned_keeps_it() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let late = home.later(Duration::days(8)).await;
    for _ in 0..10 {
        let file = || vec![File::new(None, "a/b", "again and again")];
        let old = home
            .submit(&home.input(agent, "old", file()).await)
            .await
            .unwrap();
        home.remove(&old).await.unwrap();
        let input = home.input(agent, "new", file()).await;
        let (pruned, stored) = tokio::join!(retention::expire_payloads(&late), home.submit(&input));
        assert_eq!(pruned.unwrap(), 1);
        let stored = stored.unwrap();
        let args = (agent.to_string(), stored.id, stored.attachments[0].id);
        assert_eq!(
            queue::download(&home.db, &home.caller, &args)
                .await
                .unwrap()
                .bytes,
            b"again and again"
        );
        home.assert_sound().await;
        home.remove(&stored).await.unwrap();
        retention::expire_payloads(&late).await.unwrap();
        home.assert_sound().await;
    }
}
