//! What a claim, a finish and a look-up cost does not grow with Agents and history.
//!
//! Seeded with 3,000 Agents and 30,000 ended items; `BAZILION_TEST_FULL=1` takes 100,000 and 1,000,000.

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};

use crate::support::queue::Home;

async fn explain(conn: &mut PgConnection, sql: &str) -> String {
    let rows = sqlx::query(AssertSqlSafe(format!(
        "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {sql}"
    )))
    .fetch_all(conn)
    .await
    .unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Buffers that the top node touched.
fn buffers(plan: &str) -> u64 {
    let line = plan
        .lines()
        .find(|line| line.contains("Buffers:"))
        .expect("buffers");
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter(|(kind, _)| matches!(*kind, "hit" | "read"))
        .filter_map(|(_, n)| n.parse::<u64>().ok())
        .sum()
}

/// A claim under the role that claims, undone afterwards. The second run counts: the first one warms the caches.
async fn claim_buffers(root: &mut PgConnection, process: uuid::Uuid) -> u64 {
    let mut cost = 0;
    for _ in 0..3 {
        let mut tx = root.begin().await.unwrap();
        tx.execute("SET LOCAL ROLE bazilion_system").await.unwrap();
        let sql =
            format!("SELECT * FROM claim_heads('{process}', 1, now() + interval '1 s', NULL)");
        let plan = explain(&mut tx, &sql).await;
        cost = buffers(&plan);
        tx.rollback().await.unwrap();
    }
    cost
}

async fn seed(root: &mut PgConnection, agents: i64, history: i64) {
    for sql in [
        format!(
            "INSERT INTO agents (home_id, id, name, team_id, profile_id, created_at)
             SELECT home_id, gen_random_uuid(), 'seeded ' || n, team_id, profile_id, now()
             FROM (SELECT * FROM agents WHERE name = 'Ada') a, generate_series(1, {agents}) n"
        ),
        "INSERT INTO conversations (home_id, id, agent_id, number, created_at)
         SELECT home_id, gen_random_uuid(), id, 1, now() FROM agents WHERE conversation_id IS NULL"
            .into(),
        // History and events by trigger would count one row each; this is only weight.
        "ALTER TABLE queue_items DISABLE TRIGGER USER".into(),
        format!(
            "INSERT INTO queue_items (home_id, id, agent_id, team_id, conversation_id, source, request_id, digest,
                 position, status, text, created_at, updated_at, finished_at)
             SELECT a.home_id, gen_random_uuid(), a.id, a.team_id, c.id, 'http', gen_random_uuid(), sha256('x'), 1000 + n,
                 'completed', 'x', now(), now(), now()
             FROM agents a JOIN conversations c ON c.agent_id = a.id, generate_series(1, {}) n",
            history / agents
        ),
        "WITH made AS (
             INSERT INTO queue_items (home_id, id, agent_id, team_id, conversation_id, source, request_id, digest,
                 position, status, text, created_at, updated_at)
             SELECT a.home_id, gen_random_uuid(), a.id, a.team_id, c.id, 'http', gen_random_uuid(), sha256('x'), 1,
                 'pending', 'x', now(), now()
             FROM agents a JOIN conversations c ON c.agent_id = a.id WHERE a.name LIKE 'seeded%'
             RETURNING agent_id, id
         )
         UPDATE agent_queues q SET open = ARRAY[made.id], ready_at = now() FROM made WHERE q.agent_id = made.agent_id"
            .into(),
        "ALTER TABLE queue_items ENABLE TRIGGER USER".into(),
        "VACUUM ANALYZE".into(),
    ] {
        sqlx::query(AssertSqlSafe(sql)).execute(&mut *root).await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_costs_the_same_with_few_and_with_many_agents_and_items() {
    let full = std::env::var_os("BAZILION_TEST_FULL").is_some();
    let (agents, history) = if full {
        (100_000, 1_000_000)
    } else {
        (3_000, 30_000)
    };
    let home = Home::new().await;
    let ada = home.agent("Ada").await;
    home.say(ada, "x").await.unwrap();
    let process = home.process().await.uuid();
    let mut root = home.root().await;
    let few = claim_buffers(&mut root, process).await;
    seed(&mut root, agents, history).await;
    let many = claim_buffers(&mut root, process).await;
    assert!(
        many as f64 <= few as f64 * 2.1,
        "{few} buffers with one Agent, {many} with {agents}"
    );

    for sql in [
        "SELECT agent_id FROM agent_queues WHERE ready_at <= now() AND home_id > '00000000-0000-0000-0000-000000000000'
         ORDER BY home_id, ready_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
        "SELECT id FROM queue_items WHERE home_id = (SELECT home_id FROM agents LIMIT 1) AND request_id = '00000000-0000-7000-8000-000000000000'",
        "SELECT id FROM queue_items WHERE home_id = (SELECT home_id FROM agents LIMIT 1)
           AND agent_id = (SELECT id FROM agents LIMIT 1) AND finished_at IS NOT NULL
         ORDER BY finished_at DESC, id DESC LIMIT 51",
        "SELECT home_id, agent_id FROM agent_queues WHERE owner = '00000000-0000-7000-8000-000000000000'",
        "SELECT id FROM queue_items WHERE payload_retained AND finished_at <= now() - interval '7 days'
         ORDER BY finished_at LIMIT 100",
    ] {
        let plan = explain(&mut root, sql).await;
        assert!(!plan.contains("Seq Scan on queue_items") && !plan.contains("Seq Scan on agent_queues"), "{plan}");
    }
}
