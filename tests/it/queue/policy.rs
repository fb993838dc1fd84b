//! A Team's policy, changed and then asked.

use bazilion::approval::State;
use bazilion::db::Op;
use bazilion::error::Result;
use bazilion::ids::AgentId;
use bazilion::queue::Status;
use bazilion::queue::claim::Start;
use bazilion::queue::hold::Verdict;
use bazilion::team::edges::{self, Policy, PolicyEdge, Replacement, Side};
use bazilion::team::policy::Effect;

use crate::support::queue::{Home, code, extra};

const OP: Op = Op::serializable("test");

async fn policy(home: &Home) -> Policy {
    home.db
        .transact(&home.caller, OP, "t", edges::show)
        .await
        .unwrap()
}

async fn put(home: &Home, expected_revision: i64, edges: Vec<PolicyEdge>) -> Result<Policy> {
    let args = (
        "t".to_owned(),
        Replacement {
            expected_revision,
            edges,
        },
    );
    home.db
        .transact(&home.caller, OP, &args, edges::replace)
        .await
}

/// Lets the user reach the Agent in this way only, or not at all, through the product's own operation.
async fn let_user(home: &Home, agent: AgentId, effect: Option<Effect>) {
    let now = policy(home).await;
    let others = now
        .edges
        .into_iter()
        .filter(|edge| (edge.source, edge.target_agent_id) != (Side::User, Some(agent)));
    let mine = effect.map(|effect| PolicyEdge {
        source: Side::User,
        source_agent_id: None,
        target: Side::Agent,
        target_agent_id: Some(agent),
        effect,
    });
    let edges = others.chain(mine).collect();
    let then = put(home, now.revision, edges).await.unwrap();
    assert_eq!(then.revision, now.revision + 1);
}

#[tokio::test]
async fn an_edge_that_asks_holds_the_input_until_it_is_approved() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let_user(&home, agent, Some(Effect::ApprovalRequired)).await;
    let item = home.say(agent, "one").await.unwrap();
    assert_eq!(item.status, Status::Held);
    let process = home.process().await;
    assert!(home.claim(process, 1).await.is_empty());
    let approval = home
        .decide(item.approval_id.unwrap(), Verdict::Approve)
        .await
        .unwrap();
    assert_eq!(approval.state, State::Approved);
    let claim = home.claim_one(process).await;
    assert!(matches!(home.start(&claim).await, Start::Running(_)));
    home.assert_sound().await;
}

#[tokio::test]
async fn q019_without_an_edge_nothing_is_stored_but_one_event() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let_user(&home, agent, None).await;
    assert_eq!(code(home.say(agent, "one").await), "communication_denied");
    let denials = "SELECT count(*) FROM audit WHERE outcome = 'communication_denied'";
    assert_eq!(home.count(denials).await, 1);
    for table in [
        "SELECT count(*) FROM queue_items",
        "SELECT count(*) FROM approvals",
        "SELECT count(*) FROM blobs",
    ] {
        assert_eq!(home.count(table).await, 0, "{table}");
    }
    home.assert_sound().await;
}

#[tokio::test]
async fn m013_an_approval_asked_under_an_earlier_revision_is_denied() {
    let home = Home::new().await;
    let agent = home.agent("Ada").await;
    let_user(&home, agent, Some(Effect::ApprovalRequired)).await;
    let item = home.say(agent, "one").await.unwrap();
    // The same edges again: nothing else changed than the revision.
    let_user(&home, agent, Some(Effect::ApprovalRequired)).await;
    let refused = home
        .decide(item.approval_id.unwrap(), Verdict::Approve)
        .await;
    assert_eq!(extra(&refused, "current")["state"], "denied");
    assert_eq!(code(refused), "approval_conflict");
    assert_eq!(home.item(&item).await.status, Status::Cancelled);
    let process = home.process().await;
    assert!(home.claim(process, 1).await.is_empty());
    home.assert_sound().await;
}

#[tokio::test]
async fn of_two_people_who_change_a_policy_at_once_one_gets_what_is_there_now() {
    let home = Home::new().await;
    home.agent("Ada").await;
    let now = policy(&home).await;
    let (one, two) = tokio::join!(
        put(&home, now.revision, now.edges.clone()),
        put(&home, now.revision, vec![]),
    );
    let (won, lost) = if one.is_ok() { (one, two) } else { (two, one) };
    let won = won.unwrap();
    assert_eq!(won.revision, now.revision + 1);
    let current = extra(&lost, "current");
    assert_eq!(current["revision"], won.revision);
    assert_eq!(current["edges"].as_array().unwrap().len(), won.edges.len());
    assert_eq!(code(lost), "revision_conflict");
}
