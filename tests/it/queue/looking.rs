//! Pages and files.

use bazilion::queue::claim::Outcome;
use bazilion::queue::look::{Page, Query, View};
use bazilion::queue::{self, File};
use sha2::Digest as _;

use crate::support::queue::{Home, code};

async fn page(
    home: &Home,
    agent: &str,
    view: View,
    cursor: Option<String>,
    limit: i64,
) -> bazilion::error::Result<Page> {
    let query = Query {
        agent: agent.into(),
        view,
        cursor,
        offset: None,
        limit: Some(limit),
    };
    queue::list(&home.db, &home.caller, &query).await
}

#[tokio::test]
async fn pages_of_every_view_show_each_item_once_in_order() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let process = home.process().await;
    for n in 0..5 {
        home.say(agent, &format!("ended {n}")).await.unwrap();
        let claim = home.run_one(process).await;
        home.settle(&claim, Outcome::Completed).await;
    }
    for n in 0..4 {
        home.say(agent, &format!("open {n}")).await.unwrap();
    }
    let history: Vec<String> = (0..5).rev().map(|n| format!("ended {n}")).collect();
    let open: Vec<String> = (0..4).map(|n| format!("open {n}")).collect();
    for (view, expected) in [
        (View::Open, open.clone()),
        (View::History, history.clone()),
        (View::All, [open, history].concat()),
    ] {
        for limit in 1..=10 {
            let mut seen = vec![];
            let mut cursor = None;
            loop {
                let page = page(&home, "Ada", view, cursor, limit).await.unwrap();
                assert_eq!((page.totals.open, page.totals.history), (4, 5));
                assert!(page.items.len() as i64 <= limit);
                seen.extend(page.items.into_iter().map(|i| i.text.unwrap()));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{view:?} by {limit}");
        }
    }
    // Offsets, for the CLI.
    let query = Query {
        agent: "ada".into(),
        view: View::All,
        cursor: None,
        offset: Some(3),
        limit: Some(3),
    };
    let texts: Vec<_> = queue::list(&home.db, &home.caller, &query)
        .await
        .unwrap()
        .items;
    let texts: Vec<_> = texts.into_iter().map(|i| i.text.unwrap()).collect();
    assert_eq!(texts, ["open 3", "ended 4", "ended 3"]);
}

#[tokio::test]
async fn q037_a_limit_outside_1_to_100_or_a_foreign_cursor_is_refused() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let other = home.agent("Bob").await;
    for n in 0..3 {
        home.say(agent, &format!("{n}")).await.unwrap();
        home.say(other, &format!("{n}")).await.unwrap();
    }
    for limit in [0, 101, -1] {
        assert_eq!(
            code(page(&home, "Ada", View::Open, None, limit).await),
            "invalid_input"
        );
    }
    let foreign = page(&home, "Bob", View::Open, None, 1)
        .await
        .unwrap()
        .next_cursor;
    assert!(foreign.is_some());
    assert_eq!(
        code(page(&home, "Ada", View::Open, foreign, 1).await),
        "invalid_input"
    );
    let own = page(&home, "Ada", View::Open, None, 1)
        .await
        .unwrap()
        .next_cursor;
    assert_eq!(
        code(page(&home, "Ada", View::History, own, 1).await),
        "invalid_input"
    );
    assert_eq!(
        code(page(&home, "Ada", View::Open, Some("x".into()), 1).await),
        "invalid_input"
    );
    assert_eq!(
        code(page(&home, "Nobody", View::Open, None, 1).await),
        "not_found"
    );
}

#[tokio::test]
async fn q039_a_file_comes_back_byte_for_byte_and_a_damaged_one_not_at_all() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let bytes: Vec<u8> = (0..700_000u32).map(|n| n as u8).collect();
    let files = vec![
        File::new(Some("a.bin".into()), "a/b", bytes.clone()),
        File::new(None, "a/b", ""),
    ];
    let item = home
        .submit(&home.input(agent, "x", files).await)
        .await
        .unwrap();
    let listed = &home.open(agent).await[0].attachments;
    assert_eq!(listed[0].sha256, hex::encode(sha2::Sha256::digest(&bytes)));
    assert_eq!((listed[0].byte_length, listed[1].byte_length), (700_000, 0));
    let args = (agent.to_string(), item.id, listed[0].id);
    assert_eq!(
        queue::download(&home.db, &home.caller, &args)
            .await
            .unwrap()
            .bytes,
        bytes
    );
    let empty = (agent.to_string(), item.id, listed[1].id);
    assert!(
        queue::download(&home.db, &home.caller, &empty)
            .await
            .unwrap()
            .bytes
            .is_empty()
    );
    home.assert_sound().await;
    home.execute("UPDATE blob_chunks SET bytes = 'damaged' WHERE number = 1")
        .await;
    assert_eq!(
        code(queue::download(&home.db, &home.caller, &args).await),
        "internal"
    );
}
