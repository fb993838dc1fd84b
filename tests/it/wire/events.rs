//! An Agent's event stream: nothing twice, nothing missing, never silence.

use std::pin::pin;

use bazilion::events;
use bazilion::http::sse::Frame;
use futures_util::{Stream, StreamExt as _};

use crate::support::queue::Home;

async fn take(stream: impl Stream<Item = Frame>, count: usize) -> Vec<(i64, &'static str)> {
    pin!(stream.take(count))
        .map(|frame| (frame.id.unwrap(), frame.event))
        .collect()
        .await
}

#[tokio::test]
async fn d033_a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let follow = |last| {
        events::follow(
            home.db.clone(),
            &home.wakes,
            home.caller.clone(),
            agent,
            last,
        )
    };
    let start = take(follow(None), 1).await;
    assert_eq!(start[0].1, "reload");
    let from = start[0].0;
    for text in ["one", "two", "three"] {
        home.say(agent, text).await.unwrap();
    }
    let all: Vec<_> = take(follow(Some(from)), 3).await;
    assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "{all:?}");
    assert_eq!(take(follow(Some(all[0].0)), 2).await, all[1..]);
}

#[tokio::test]
async fn d033_an_id_that_was_never_given_out_is_answered_with_reload() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "one").await.unwrap();
    for odd in [-1, i64::MAX] {
        let stream = events::follow(
            home.db.clone(),
            &home.wakes,
            home.caller.clone(),
            agent,
            Some(odd),
        );
        assert_eq!(take(stream, 1).await[0].1, "reload");
    }
}

#[tokio::test]
async fn another_homes_agent_has_no_events_here() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "one").await.unwrap();
    let (_, stranger, _) = home.neighbour("next").await;
    let stream = events::follow(home.db.clone(), &home.wakes, stranger, agent, Some(0));
    assert!(take(stream, 1).await.is_empty());
}
