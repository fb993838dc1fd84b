//! SQL of the Team's policy edges.

use crate::db::TenantTx;
use crate::error::Result;
use crate::ids::{AgentId, TeamId};

/// The edges every new member gets: the user to it and back, and both ways with each Agent of the Team.
pub async fn insert_default_edges(tx: &mut TenantTx, team: TeamId, agent: AgentId) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "INSERT INTO policy_edges (home_id, team_id, source, source_agent_id, target, target_agent_id, effect)
         SELECT $1, $2, edge.source, edge.source_agent, edge.target, edge.target_agent, 'allow'
         FROM (
             VALUES ('user', NULL::uuid, 'agent', $3::uuid), ('agent', $3, 'user', NULL)
             UNION ALL
             SELECT 'agent', $3, 'agent', id FROM agents WHERE home_id = $1 AND team_id = $2 AND id <> $3
             UNION ALL
             SELECT 'agent', id, 'agent', $3 FROM agents WHERE home_id = $1 AND team_id = $2 AND id <> $3
         ) AS edge (source, source_agent, target, target_agent)
         ON CONFLICT ON CONSTRAINT policy_edges_key DO NOTHING",
        home.uuid(),
        team.uuid(),
        agent.uuid(),
    )
    .execute(tx.conn())
    .await?;
    raise_revision(tx, team).await
}

/// Takes away whatever names the Agent: it leaves the Team.
pub async fn delete_edges_of(tx: &mut TenantTx, agent: AgentId) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "WITH gone AS (
             DELETE FROM policy_edges
             WHERE home_id = $1 AND (source_agent_id = $2 OR target_agent_id = $2)
             RETURNING team_id
         )
         UPDATE teams SET policy_revision = policy_revision + 1
         WHERE home_id = $1 AND id IN (SELECT team_id FROM gone)",
        home.uuid(),
        agent.uuid(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}

async fn raise_revision(tx: &mut TenantTx, team: TeamId) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "UPDATE teams SET policy_revision = policy_revision + 1 WHERE home_id = $1 AND id = $2",
        home.uuid(),
        team.uuid(),
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
