//! `bazilion agent`.

use std::collections::HashMap;

use clap::Subcommand;
use serde_json::{Value, json};

use super::chat::Chat;
use super::session::{Session, keep};
use crate::console::output::{Column, card, table};
use crate::console::{Exit, Failure};

/// Verbs of Agents.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// The Agents of the home
    List {
        /// Archived ones too
        #[arg(long)]
        all: bool,
    },
    /// Make an Agent from a profile
    Spawn {
        /// Its name, unique in the home
        name: String,
        /// The Team it joins
        #[arg(long, default_value = "default")]
        team: String,
        /// The profile it is made from
        #[arg(long, default_value = "default")]
        profile: String,
        /// `provider:model` in place of the profile's
        #[arg(long, value_name = "PROVIDER:MODEL")]
        model: Option<String>,
        /// Reasoning level in place of the profile's
        #[arg(long, value_name = "LEVEL")]
        #[arg(value_parser = ["off", "minimal", "low", "medium", "high", "xhigh"])]
        reasoning: Option<String>,
    },
    /// One Agent: selection, turn, queue
    Show {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
    },
    /// Send input, and with --wait follow its turn
    Chat(Chat),
    /// Take an Agent out of use; its history stays
    Archive {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
    },
    /// Bring an archived Agent back
    Unarchive {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
    },
    /// Cancel the active turn; the queue goes on with the next item
    Cancel {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The turn as you saw it [default: the one that is active now]
        #[arg(long, value_name = "ID")]
        turn: Option<String>,
    },
    /// Move an Agent to another Team
    Move {
        /// The Agent: id, name, or the first 8 characters of its id
        agent: String,
        /// The Team: id or short name
        team: String,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("TEAM", "/team"),
    ("MODEL", "/model"),
    ("STATUS", "/status"),
];

const ROWS: &[Column] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("team", "/team"),
    ("team id", "/teamId"),
    ("profile", "/profile"),
    ("model", "/model"),
    ("reasoning", "/reasoning"),
    ("status", "/status"),
    ("conversation", "/selection/conversationId"),
    ("selection revision", "/selection/revision"),
    ("turn", "/turn/id"),
    ("turn's item", "/turn/itemId"),
    ("turn since", "/turn/startedAt"),
    ("open items", "/queue/open"),
    ("queue paused", "/queue/paused"),
    ("control revision", "/queue/controlRevision"),
];

impl Agent {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let client = &session.client;
        match self {
            Agent::List { all } => {
                let mut list = client.list(&["agents"], &[]).await?;
                if !all {
                    keep(&mut list, "status", "active");
                }
                name_teams(session, &mut list).await?;
                session.shown(&list, |list| table(list, COLUMNS))
            }
            Agent::Spawn {
                name,
                team,
                profile,
                model,
                reasoning,
            } => {
                let mut body = json!({"name": name, "team": team, "profile": profile});
                if let Some(model) = model {
                    body["model"] = json!(model);
                }
                if let Some(reasoning) = reasoning {
                    body["reasoning"] = json!(reasoning);
                }
                let made = client.post(&["agents"], &body).await?;
                session.shown(&made, |made| card(made, ROWS))
            }
            Agent::Show { agent } => {
                let shown: Value = client.get(&["agents", &agent], &[]).await?;
                session.shown(&shown, |agent| card(agent, ROWS))
            }
            Agent::Chat(chat) => Box::pin(chat.run(session)).await,
            Agent::Archive { agent } => act(session, &agent, "archive", "Archived.").await,
            Agent::Unarchive { agent } => act(session, &agent, "unarchive", "In use again.").await,
            Agent::Cancel { agent, turn } => cancel(session, &agent, turn).await,
            Agent::Move { agent, team } => {
                let moved = client
                    .post(&["agents", &agent, "move"], &json!({"team": team}))
                    .await?;
                session.done(&moved, "Moved.")
            }
        }
    }
}

/// A person reads a Team's short name, not its id; JSON stays as the API answers it.
async fn name_teams(session: &Session<'_>, agents: &mut Value) -> Result<(), Failure> {
    if session.out.is_json() {
        return Ok(());
    }
    let teams = session.client.list(&["teams"], &[]).await?;
    let teams = teams["items"].as_array().into_iter().flatten();
    let slugs: HashMap<&str, &Value> = teams
        .filter_map(|team| Some((team.get("id")?.as_str()?, team.get("slug")?)))
        .collect();
    for agent in agents["items"].as_array_mut().into_iter().flatten() {
        let id = agent.get("teamId").and_then(Value::as_str);
        let slug = id.and_then(|id| slugs.get(id)).map(|slug| (*slug).clone());
        if let (Some(slug), Some(agent)) = (slug, agent.as_object_mut()) {
            agent.insert("team".into(), slug);
        }
    }
    Ok(())
}

async fn act(session: &Session<'_>, agent: &str, verb: &str, words: &str) -> Result<Exit, Failure> {
    let answer = session
        .client
        .post(&["agents", agent, verb], &json!({}))
        .await?;
    session.done(&answer, words)
}

async fn cancel(session: &Session<'_>, agent: &str, turn: Option<String>) -> Result<Exit, Failure> {
    let turn = match turn {
        Some(turn) => turn,
        None => match session.agent(agent).await?.turn {
            Some(turn) => turn.id,
            None => {
                let nothing = "This Agent has no active turn.";
                return Err(Failure::local(Exit::NotFound, "no_active_turn", nothing));
            }
        },
    };
    let path = ["agents", agent, "turn", "cancel"];
    let answer = session.client.post(&path, &json!({"turnId": turn})).await?;
    session.done(&answer, "Cancelling.")
}
