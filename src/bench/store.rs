//! SQL that arranges a bench database, as the role that made it. Never used on another.

use anyhow::Context as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use uuid::Uuid;

use crate::ids::{HomeId, IncarnationId};

/// A connection of the role that made the bench's own cluster.
pub struct Admin {
    conn: PgConnection,
}

impl Admin {
    pub async fn connect(options: PgConnectOptions) -> anyhow::Result<Self> {
        let conn = options.connect().await.context("the bench's database")?;
        Ok(Self { conn })
    }

    /// Lets every home hold what a bench stores.
    pub async fn lift_limits(&mut self) -> anyhow::Result<()> {
        self.conn
            .execute("UPDATE home_usage SET max_open_items = 100000000, max_receipts = 100000000")
            .await?;
        Ok(())
    }

    /// Ends every open item and empties every lane, so that the next batch starts like the first.
    pub async fn empty_lanes(&mut self) -> anyhow::Result<()> {
        self.conn
            .execute(
                "BEGIN;
                 UPDATE agent_queues SET open = '{}', phase = NULL, owner = NULL, ready_at = NULL, paused = false, reason = NULL
                 WHERE cardinality(open) > 0;
                 UPDATE queue_items SET status = 'cancelled', finished_at = now(), updated_at = now()
                 WHERE finished_at IS NULL AND status <> 'running';
                 UPDATE queue_items SET status = 'completed', finished_at = now(), updated_at = now()
                 WHERE finished_at IS NULL;
                 UPDATE home_usage SET open_items = 0;
                 COMMIT",
            )
            .await?;
        Ok(())
    }

    /// Fresh statistics and no dead rows, as a server that has run for a while.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        for table in [
            "VACUUM ANALYZE agent_queues",
            "VACUUM ANALYZE queue_items",
            "VACUUM ANALYZE home_usage",
            "VACUUM ANALYZE agents",
        ] {
            self.conn.execute(table).await?;
        }
        Ok(())
    }

    /// A process that may claim.
    pub async fn insert_incarnation(&mut self, id: IncarnationId) -> anyhow::Result<()> {
        sqlx::query(
            "INSERT INTO incarnations (id, node_id, machine_id, boot_id, pid, worker, generation, started_at, lease_until)
             VALUES ($1, $1, 'bench', 'bench', 1, true, 1, now(), now() + interval '1 day')",
        )
        .bind(id.uuid())
        .execute(&mut self.conn)
        .await?;
        Ok(())
    }

    /// Agents `first` to `first + count - 1` of a home, each with a selected conversation and a lane, and the user may
    /// write to each. Their ids end in their number, so that a script of pgbench can name them.
    pub async fn insert_agents(
        &mut self,
        home: HomeId,
        first: i64,
        count: i64,
    ) -> anyhow::Result<()> {
        for sql in [
            INSERT_AGENTS,
            INSERT_CONVERSATIONS,
            SELECT_CONVERSATIONS,
            INSERT_EDGES,
        ] {
            sqlx::query(sql)
                .bind(home.uuid())
                .bind(first)
                .bind(count)
                .execute(&mut self.conn)
                .await?;
        }
        Ok(())
    }

    /// So many waiting items for each of those Agents.
    pub async fn fill_lanes(
        &mut self,
        home: HomeId,
        first: i64,
        count: i64,
        each: i64,
    ) -> anyhow::Result<()> {
        for sql in [FILL_ITEMS, FILL_LANES] {
            sqlx::query(sql)
                .bind(home.uuid())
                .bind(first)
                .bind(count)
                .bind(each)
                .execute(&mut self.conn)
                .await?;
        }
        Ok(())
    }

    /// The operator that the bench's token belongs to.
    pub async fn operator(&mut self) -> anyhow::Result<Uuid> {
        let found = sqlx::query_scalar("SELECT id FROM operators WHERE email = 'local'")
            .fetch_one(&mut self.conn)
            .await?;
        Ok(found)
    }
}

const INSERT_AGENTS: &str = "
    INSERT INTO agents (home_id, id, team_id, profile_id, name, created_at)
    SELECT $1, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, t.id, p.id, 'bench-' || n, now()
    FROM generate_series($2::bigint, $2 + $3 - 1) AS n, teams t, profiles p
    WHERE t.home_id = $1 AND t.slug = 'default' AND p.home_id = $1 AND p.slug = 'default'";

const INSERT_CONVERSATIONS: &str = "
    INSERT INTO conversations (home_id, id, agent_id, number, created_at)
    SELECT $1, ('00000000-0000-7000-9000-' || lpad(to_hex(n), 12, '0'))::uuid,
           ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, now()
    FROM generate_series($2::bigint, $2 + $3 - 1) AS n";

const SELECT_CONVERSATIONS: &str = "
    UPDATE agents a SET conversation_id = c.id, selection_revision = 1
    FROM conversations c, generate_series($2::bigint, $2 + $3 - 1) AS n
    WHERE a.home_id = $1 AND c.home_id = $1 AND c.agent_id = a.id
      AND a.id = ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";

const INSERT_EDGES: &str = "
    INSERT INTO policy_edges (home_id, team_id, source, target, target_agent_id, effect)
    SELECT a.home_id, a.team_id, 'user', 'agent', a.id, 'allow'
    FROM agents a, generate_series($2::bigint, $2 + $3 - 1) AS n
    WHERE a.home_id = $1 AND a.id = ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid";

const FILL_ITEMS: &str = "
    INSERT INTO queue_items (home_id, id, agent_id, team_id, conversation_id, source, request_id, digest, position, status,
                             text, created_at, updated_at)
    SELECT a.home_id, gen_random_uuid(), a.id, a.team_id, a.conversation_id, 'http', gen_random_uuid(),
           decode(repeat('ab', 32), 'hex'), q.next_position + place - 1, 'pending', 'Waits.', now(), now()
    FROM generate_series($2::bigint, $2 + $3 - 1) AS n
    JOIN agents a ON a.home_id = $1 AND a.id = ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
    JOIN agent_queues q ON q.home_id = a.home_id AND q.agent_id = a.id
    CROSS JOIN generate_series(1, $4::bigint) AS place";

const FILL_LANES: &str = "
    WITH filled AS (
        UPDATE agent_queues q SET
            open = ARRAY(SELECT i.id FROM queue_items i
                         WHERE i.home_id = q.home_id AND i.agent_id = q.agent_id AND i.status = 'pending'
                         ORDER BY i.position),
            next_position = next_position + $4::bigint, ready_at = now()
        FROM generate_series($2::bigint, $2 + $3 - 1) AS n
        WHERE q.home_id = $1 AND q.agent_id = ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid
        RETURNING cardinality(q.open) AS items
    )
    UPDATE home_usage SET
        open_items = open_items + (SELECT sum(items) FROM filled)::integer,
        receipts = receipts + (SELECT sum(items) FROM filled)::integer
    WHERE home_id = $1";
