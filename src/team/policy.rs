//! Who may speak to whom. Pure.
//!
//! - A Team's policy is a set of directed edges with an effect; a missing edge denies.
//! - Inside a Team one edge decides. Across Teams of a home both must agree: the sender's Team lets it out, the
//!   recipient's Team lets it in, and the stricter of the two holds.
//! - The verdict names the revisions it read and the edges it used, so that an approval can show what it answers.

use serde::Serialize;

use crate::db::codec::text_enum;
use crate::ids::{AgentId, TeamId};

/// One end of a communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// Whoever belongs to the home, by whichever door.
    User,
    /// An Agent, in the Team it belongs to now.
    Agent { id: AgentId, team: TeamId },
}

/// One end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "agentId", rename_all = "snake_case")]
pub enum End {
    User,
    OutsideTeam,
    Agent(AgentId),
}

text_enum! {
    /// What an edge grants.
    pub enum Effect in "policy_edges" {
        Allow => "allow",
        ApprovalRequired => "approval_required",
    }
}

/// A directed edge of a Team's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    pub team_id: TeamId,
    pub source: End,
    pub target: End,
    pub effect: Effect,
}

/// One Team's policy, or the part of it that matters to a question.
#[derive(Debug, Clone)]
pub struct TeamPolicy {
    pub team: TeamId,
    pub revision: i64,
    pub edges: Vec<Edge>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    ApprovalRequired,
    Deny,
}

/// The answer with what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub decision: Decision,
    pub reason: &'static str,
    pub revisions: Vec<PolicyRevision>,
    pub edges: Vec<Edge>,
}

/// A policy as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRevision {
    pub team_id: TeamId,
    pub revision: i64,
}

/// The Teams whose policies a question needs, each once.
pub fn teams_of(source: Party, target: Party) -> Vec<TeamId> {
    let mut teams: Vec<TeamId> = [source, target]
        .into_iter()
        .filter_map(|party| match party {
            Party::User => None,
            Party::Agent { team, .. } => Some(team),
        })
        .collect();
    teams.dedup();
    teams
}

/// Whether `source` may speak to `target` under `policies`, which hold at least the Teams of [`teams_of`].
pub fn authorize(source: Party, target: Party, policies: &[TeamPolicy]) -> Verdict {
    let needed = needed_edges(source, target);
    let mut edges = Vec::with_capacity(needed.len());
    let mut missing = needed.is_empty();
    for (team, from, to) in needed {
        let found = policies
            .iter()
            .filter(|policy| policy.team == team)
            .flat_map(|policy| &policy.edges)
            .find(|edge| edge.source == from && edge.target == to);
        match found {
            Some(edge) => edges.push(*edge),
            None => missing = true,
        }
    }
    let (decision, reason) = if missing {
        (Decision::Deny, "no_edge")
    } else if edges
        .iter()
        .any(|edge| edge.effect == Effect::ApprovalRequired)
    {
        (Decision::ApprovalRequired, "edge_requires_approval")
    } else {
        (Decision::Allow, "edge_allows")
    };
    let revisions = policies
        .iter()
        .map(|policy| PolicyRevision {
            team_id: policy.team,
            revision: policy.revision,
        })
        .collect();
    Verdict {
        decision,
        reason,
        revisions,
        edges,
    }
}

fn needed_edges(source: Party, target: Party) -> Vec<(TeamId, End, End)> {
    match (source, target) {
        (Party::User, Party::User) => Vec::new(),
        (Party::User, Party::Agent { id, team }) => vec![(team, End::User, End::Agent(id))],
        (Party::Agent { id, team }, Party::User) => vec![(team, End::Agent(id), End::User)],
        (
            Party::Agent { id: from, team },
            Party::Agent {
                id: to,
                team: other,
            },
        ) if team == other => {
            vec![(team, End::Agent(from), End::Agent(to))]
        }
        (
            Party::Agent {
                id: from,
                team: out,
            },
            Party::Agent { id: to, team: into },
        ) => vec![
            (out, End::Agent(from), End::OutsideTeam),
            (into, End::OutsideTeam, End::Agent(to)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(team: TeamId, edges: &[(End, End, Effect)]) -> TeamPolicy {
        let edges = edges
            .iter()
            .map(|(source, target, effect)| Edge {
                team_id: team,
                source: *source,
                target: *target,
                effect: *effect,
            })
            .collect();
        TeamPolicy {
            team,
            revision: 3,
            edges,
        }
    }

    #[test]
    fn a_missing_edge_denies_and_the_verdict_names_what_it_read() {
        let (team, id) = (TeamId::new(), AgentId::new());
        let to = Party::Agent { id, team };
        let denied = authorize(Party::User, to, &[policy(team, &[])]);
        assert_eq!(denied.decision, Decision::Deny);
        assert_eq!(denied.revisions[0].revision, 3);
        // The way back is another edge.
        let back = [policy(team, &[(End::Agent(id), End::User, Effect::Allow)])];
        assert_eq!(authorize(Party::User, to, &back).decision, Decision::Deny);
        assert_eq!(authorize(to, Party::User, &back).decision, Decision::Allow);
    }

    #[test]
    fn across_teams_both_must_agree_and_the_stricter_holds() {
        let (out, into) = (TeamId::new(), TeamId::new());
        let (a, b) = (AgentId::new(), AgentId::new());
        let (from, to) = (
            Party::Agent { id: a, team: out },
            Party::Agent { id: b, team: into },
        );
        let lets_out = policy(out, &[(End::Agent(a), End::OutsideTeam, Effect::Allow)]);
        let lets_in = policy(
            into,
            &[(End::OutsideTeam, End::Agent(b), Effect::ApprovalRequired)],
        );
        assert_eq!(
            authorize(from, to, std::slice::from_ref(&lets_out)).decision,
            Decision::Deny
        );
        assert_eq!(
            authorize(from, to, std::slice::from_ref(&lets_in)).decision,
            Decision::Deny
        );
        let both = authorize(from, to, &[lets_out, lets_in]);
        assert_eq!(both.decision, Decision::ApprovalRequired);
        assert_eq!(both.edges.len(), 2);
    }
}
