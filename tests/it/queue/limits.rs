//! Limits at their number and one beyond, also when everybody comes at once.

use std::sync::Arc;

use bazilion::ids::{AgentId, RequestId};
use bazilion::queue::claim::Outcome;
use bazilion::queue::{File, Submission};
use tokio::task::JoinSet;

use crate::support::queue::{Home, code, extra};

async fn all_at_once(home: &Arc<Home>, inputs: Vec<Submission>) -> (usize, Vec<String>) {
    let mut set = JoinSet::new();
    for input in inputs {
        let home = home.clone();
        set.spawn(async move {
            let result = home.submit(&input).await;
            match &result {
                Ok(_) => None,
                Err(_) => {
                    let limit = extra(&result, "limit").as_str().unwrap_or("?").to_owned();
                    assert_eq!(code(result), "queue_capacity");
                    Some(limit)
                }
            }
        });
    }
    let results = set.join_all().await;
    let stored = results.iter().filter(|r| r.is_none()).count();
    (stored, results.into_iter().flatten().collect())
}

async fn inputs(home: &Home, agent: AgentId, count: usize, file: Option<&[u8]>) -> Vec<Submission> {
    let selection = home.selection(agent).await;
    (0..count)
        .map(|n| {
            let files = file
                .map(|bytes| File::new(None, "a/b", bytes.to_vec()))
                .into_iter()
                .collect();
            Submission::new(
                agent.to_string(),
                RequestId::new(),
                selection,
                format!("{n}"),
                files,
            )
            .unwrap()
        })
        .collect()
}

#[tokio::test]
async fn forty_clients_get_exactly_twenty_places_of_an_agent() {
    let home = Arc::new(Home::new().await);
    let agent = home.agent("Ada").await;
    home.remove(&home.say(agent, "select a conversation").await.unwrap())
        .await
        .unwrap();
    let (stored, refused) = all_at_once(&home, inputs(&home, agent, 40, None).await).await;
    assert_eq!(stored, 20);
    assert!(
        refused.iter().all(|limit| limit == "agent_open_items"),
        "{refused:?}"
    );
    let positions: Vec<_> = home.open(agent).await.iter().map(|i| i.position).collect();
    assert_eq!(positions, (2..=21).collect::<Vec<_>>(), "no gap, no double");
    home.assert_sound().await;
}

#[tokio::test]
async fn d06_the_twenty_first_is_refused_with_the_limit_and_accepted_once_when_a_place_is_free() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    for n in 0..20 {
        home.say(agent, &format!("{n}")).await.unwrap();
    }
    let input = home.input(agent, "the 21st", vec![]).await;
    let refused = home.submit(&input).await;
    assert_eq!(
        (extra(&refused, "max"), extra(&refused, "used")),
        (20.into(), 20.into())
    );
    assert_eq!(code(refused), "queue_capacity");
    assert_eq!(home.open(agent).await.len(), 20);
    let process = home.process().await;
    let claim = home.run_one(process).await;
    home.settle(&claim, Outcome::Completed).await;
    // Q035
    let item = home.submit(&input).await.unwrap();
    assert_eq!(home.submit(&input).await.unwrap().id, item.id);
    assert_eq!(home.open(agent).await.len(), 20);
    home.assert_sound().await;
}

#[tokio::test]
async fn q031_the_hundred_and_first_open_item_of_a_home_is_refused_over_many_agents() {
    let home = Arc::new(Home::new().await);
    let mut all = vec![];
    for n in 0..11 {
        let agent = home.agent(&format!("A{n}")).await;
        home.remove(&home.say(agent, "select").await.unwrap())
            .await
            .unwrap();
        all.extend(inputs(&home, agent, 10, None).await);
    }
    let (stored, refused) = all_at_once(&home, all).await;
    assert_eq!((stored, refused.len()), (100, 10));
    assert!(
        refused.iter().all(|limit| limit == "home_open_items"),
        "{refused:?}"
    );
    home.assert_sound().await;
}

#[tokio::test]
async fn q033_the_byte_budget_is_exact_in_parallel_and_counts_ended_items() {
    let home = Arc::new(Home::new().await);
    // A smaller budget of this home, as an instance admin may set it: ten files of 100,000 bytes.
    home.execute("UPDATE home_usage SET max_retained_bytes = 1000000")
        .await;
    let mut all = vec![];
    for n in 0..4 {
        let agent = home.agent(&format!("A{n}")).await;
        home.remove(&home.say(agent, "select").await.unwrap())
            .await
            .unwrap();
        all.extend(inputs(&home, agent, 5, Some(&[7; 100_000])).await);
    }
    let (stored, refused) = all_at_once(&home, all).await;
    assert_eq!(stored, 10, "counted per item, though all share one content");
    assert!(
        refused.iter().all(|limit| limit == "home_retained_bytes"),
        "{refused:?}"
    );
    assert_eq!(home.count("SELECT count(*) FROM blobs").await, 1);
    let process = home.process().await;
    for claim in home.claim(process, 4).await {
        home.settle(&claim, Outcome::Failed(crate::support::queue::because("x")))
            .await;
    }
    let agent = home.agent("late").await;
    let input = home
        .input(agent, "x", vec![File::new(None, "a/b", "1")])
        .await;
    assert_eq!(code(home.submit(&input).await), "queue_capacity");
    home.assert_sound().await;
}

#[tokio::test]
async fn the_homes_whole_byte_budget_holds_to_the_byte() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let most = 25 * 1024 * 1024;
    for n in 0..10u8 {
        let input = home
            .input(agent, "big", vec![File::new(None, "a/b", vec![n; most])])
            .await;
        home.submit(&input).await.unwrap();
    }
    let left = 256 * 1024 * 1024 - 10 * most;
    let over = home
        .input(
            agent,
            "over",
            vec![File::new(None, "a/b", vec![1; left + 1])],
        )
        .await;
    assert_eq!(code(home.submit(&over).await), "queue_capacity");
    let exact = home
        .input(agent, "exact", vec![File::new(None, "a/b", vec![1; left])])
        .await;
    home.submit(&exact).await.unwrap();
    let one_more = home
        .input(agent, "one more", vec![File::new(None, "a/b", "x")])
        .await;
    assert_eq!(code(home.submit(&one_more).await), "queue_capacity");
    home.say(agent, "text needs no file space").await.unwrap();
}

#[tokio::test]
async fn receipts_are_limited_and_an_old_request_is_still_answered_at_the_limit() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    home.execute("UPDATE home_usage SET max_receipts = 2").await;
    let input = home.input(agent, "one", vec![]).await;
    let item = home.submit(&input).await.unwrap();
    home.say(agent, "two").await.unwrap();
    let refused = home.say(agent, "three").await;
    assert_eq!(extra(&refused, "limit"), "home_receipts");
    assert_eq!(home.submit(&input).await.unwrap().id, item.id);
    home.assert_sound().await;
}
