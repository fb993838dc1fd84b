//! `bazilion agent`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::chat::Chat;
use super::session::Session;
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
    Show { agent: String },
    /// Send input, and with --wait follow its turn
    Chat(Chat),
    /// Take an Agent out of use; its history stays
    Archive { agent: String },
    /// Bring an archived Agent back
    Unarchive { agent: String },
    /// Cancel the active turn; the queue goes on with the next item
    Cancel {
        agent: String,
        /// The turn as you saw it [default: the one that is active now]
        #[arg(long, value_name = "ID")]
        turn: Option<String>,
    },
    /// Move an Agent to another Team
    Move { agent: String, team: String },
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
                let query: &[_] = if all {
                    &[]
                } else {
                    &[("status", "active".to_owned())]
                };
                let list = client.list(&["agents"], query).await?;
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
