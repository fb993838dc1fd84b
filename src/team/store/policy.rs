//! SQL of the Team's policy edges.

use uuid::Uuid;

use crate::db::TenantTx;
use crate::error::{Error, Result};
use crate::ids::{AgentId, TeamId};
use crate::team::edges::{PolicyEdge, Side};
use crate::team::policy::{self, Edge, Effect, End, Party, TeamPolicy};

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

/// The policies of some Teams, with the edges that the question can use.
pub async fn load(tx: &mut TenantTx, source: Party, target: Party) -> Result<Vec<TeamPolicy>> {
    let teams: Vec<Uuid> = policy::teams_of(source, target)
        .into_iter()
        .map(TeamId::uuid)
        .collect();
    let id_of = |party| match party {
        Party::User => None,
        Party::Agent { id, .. } => Some(AgentId::uuid(id)),
    };
    let rows = sqlx::query!(
        r#"SELECT t.id AS team_id, t.policy_revision, e.source AS "source?", e.source_agent_id,
                  e.target AS "target?", e.target_agent_id, e.effect AS "effect?"
           FROM teams t
           LEFT JOIN policy_edges e ON e.home_id = t.home_id AND e.team_id = t.id
               AND (e.source_agent_id IS NULL OR e.source_agent_id = $3)
               AND (e.target_agent_id IS NULL OR e.target_agent_id = $4)
           WHERE t.home_id = $1 AND t.id = ANY ($2)
           ORDER BY t.id"#,
        tx.home().uuid(),
        &teams,
        id_of(source),
        id_of(target),
    )
    .fetch_all(tx.conn())
    .await?;
    let mut policies: Vec<TeamPolicy> = Vec::new();
    for row in rows {
        let team = TeamId::from(row.team_id);
        if policies.last().is_none_or(|last| last.team != team) {
            policies.push(TeamPolicy {
                team,
                revision: row.policy_revision,
                edges: Vec::new(),
            });
        }
        if let (Some(from), Some(to), Some(effect)) = (row.source, row.target, row.effect)
            && let Some(policy) = policies.last_mut()
        {
            policy.edges.push(Edge {
                team_id: team,
                source: end(&from, row.source_agent_id)?,
                target: end(&to, row.target_agent_id)?,
                effect: Effect::parse(&effect)?,
            });
        }
    }
    Ok(policies)
}

/// Every edge of a Team, in a stable order.
pub async fn all(tx: &mut TenantTx, team: TeamId) -> Result<Vec<PolicyEdge>> {
    let rows = sqlx::query!(
        "SELECT source, source_agent_id, target, target_agent_id, effect
         FROM policy_edges
         WHERE home_id = $1 AND team_id = $2
         ORDER BY source DESC, source_agent_id, target DESC, target_agent_id",
        tx.home().uuid(),
        team.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(PolicyEdge {
                source: Side::parse(&row.source)?,
                source_agent_id: row.source_agent_id.map(Into::into),
                target: Side::parse(&row.target)?,
                target_agent_id: row.target_agent_id.map(Into::into),
                effect: Effect::parse(&row.effect)?,
            })
        })
        .collect()
}

/// The Agents that edges of a Team may name.
pub async fn members(tx: &mut TenantTx, team: TeamId) -> Result<Vec<AgentId>> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM agents WHERE home_id = $1 AND team_id = $2",
        tx.home().uuid(),
        team.uuid(),
    )
    .fetch_all(tx.conn())
    .await?;
    Ok(ids.into_iter().map(Into::into).collect())
}

/// Puts these edges in the place of all the Team had, as a new revision.
pub async fn replace(tx: &mut TenantTx, team: TeamId, edges: &[PolicyEdge]) -> Result<()> {
    let home = tx.home();
    sqlx::query!(
        "DELETE FROM policy_edges WHERE home_id = $1 AND team_id = $2",
        home.uuid(),
        team.uuid(),
    )
    .execute(tx.conn())
    .await?;
    let word = |side: Side| side.as_str().to_owned();
    let sources: Vec<String> = edges.iter().map(|edge| word(edge.source)).collect();
    let targets: Vec<String> = edges.iter().map(|edge| word(edge.target)).collect();
    let from: Vec<Option<Uuid>> = edges
        .iter()
        .map(|edge| edge.source_agent_id.map(AgentId::uuid))
        .collect();
    let to: Vec<Option<Uuid>> = edges
        .iter()
        .map(|edge| edge.target_agent_id.map(AgentId::uuid))
        .collect();
    let effects: Vec<String> = edges
        .iter()
        .map(|edge| edge.effect.as_str().to_owned())
        .collect();
    sqlx::query!(
        "INSERT INTO policy_edges (home_id, team_id, source, source_agent_id, target, target_agent_id, effect)
         SELECT $1, $2, edge.source, edge.source_agent, edge.target, edge.target_agent, edge.effect
         FROM unnest($3::text[], $4::uuid[], $5::text[], $6::uuid[], $7::text[])
             AS edge (source, source_agent, target, target_agent, effect)",
        home.uuid(),
        team.uuid(),
        &sources,
        &from as &[Option<Uuid>],
        &targets,
        &to as &[Option<Uuid>],
        &effects,
    )
    .execute(tx.conn())
    .await?;
    raise_revision(tx, team).await
}

fn end(word: &str, agent: Option<Uuid>) -> Result<End> {
    match (word, agent) {
        ("user", None) => Ok(End::User),
        ("outside_team", None) => Ok(End::OutsideTeam),
        ("agent", Some(id)) => Ok(End::Agent(id.into())),
        _ => Err(Error::Corrupt {
            table: "policy_edges",
            what: format!("end {word}"),
        }),
    }
}
