//! Durable live events.

use bazilion::db::{Op, TenantTx};
use bazilion::events::{self, Event, Kind, Since};
use bazilion::ids::AgentId;
use bazilion::queue::control::Verb;

use crate::support::queue::Home;

async fn since(home: &Home, agent: AgentId, last: Option<i64>) -> Since {
    home.db
        .transact(
            &home.caller,
            Op::locking("test"),
            &(agent, last),
            async |tx: &mut TenantTx, args: &(AgentId, Option<i64>)| {
                events::since(tx, args.0, args.1).await
            },
        )
        .await
        .unwrap()
}

fn list(since: Since) -> Vec<Event> {
    match since {
        Since::Events(events) => events,
        Since::Reload { seq } => panic!("reload from {seq}"),
    }
}

#[tokio::test]
async fn d33_a_reader_gets_what_follows_its_number_once_and_is_told_to_reload_otherwise() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    assert_eq!(since(&home, agent, None).await, Since::Reload { seq: 0 });
    home.say(agent, "one").await.unwrap();
    home.control(agent, Verb::Pause, 0).await.unwrap();
    let events = list(since(&home, agent, Some(0)).await);
    let kinds: Vec<_> = events.iter().map(|e| (e.seq, e.kind)).collect();
    assert_eq!(kinds, [(1, Kind::Item), (2, Kind::Control)]);
    assert_eq!(events[0].payload["status"], "pending");
    assert!(
        !events[0].payload.to_string().contains("one"),
        "an event holds no text"
    );
    assert_eq!(list(since(&home, agent, Some(1)).await), events[1..]);
    assert!(list(since(&home, agent, Some(2)).await).is_empty());
    assert_eq!(
        since(&home, agent, Some(99)).await,
        Since::Reload { seq: 2 },
        "a number that never was"
    );
    assert_eq!(
        since(&home, agent, Some(-1)).await,
        Since::Reload { seq: 2 }
    );
    // After an hour they go.
    let later = home.later(time::Duration::minutes(61)).await;
    assert_eq!(events::prune(&later).await.unwrap(), 2);
    assert_eq!(since(&home, agent, Some(1)).await, Since::Reload { seq: 2 });
    assert!(
        list(since(&home, agent, Some(2)).await).is_empty(),
        "who saw everything missed nothing"
    );
    home.say(agent, "two").await.unwrap();
    assert_eq!(list(since(&home, agent, Some(2)).await).len(), 1);
}

#[tokio::test]
async fn every_state_an_item_goes_through_has_its_event_in_order() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.say(agent, "one").await.unwrap();
    let process = home.process().await;
    let claim = home.run_one(process).await;
    home.settle(&claim, bazilion::queue::claim::Outcome::Completed)
        .await;
    let events = list(since(&home, agent, Some(0)).await);
    let states: Vec<_> = events
        .iter()
        .map(|e| e.payload["status"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["pending", "claimed", "running", "completed"]);
    let versions: Vec<_> = events
        .iter()
        .map(|e| e.payload["version"].as_i64().unwrap())
        .collect();
    assert_eq!(versions, [1, 2, 3, 4]);
}
