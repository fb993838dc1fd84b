//! Everything a turn is made from that the database knows, read at once.

use secrecy::SecretString;

use super::Worker;
use crate::coding::environment::{self, Config, Defaults};
use crate::coding::output::Redaction;
use crate::db::{Op, TenantTx};
use crate::error::{Error, Result};
use crate::identity::Caller;
use crate::ids::AgentId;
use crate::provider::{self, Resolved};
use crate::runtime::{GatewayTarget, Model, ModelApi, Reasoning};
use crate::team::{self, Agent, Profile, Team};
use crate::tenant::{self, Settings};
use crate::turn::Posture;

const READ: Op = Op::locking("worker.facts");

/// The Agent with all it brings into a turn.
pub struct Facts {
    pub agent: Agent,
    pub profile: Profile,
    pub team: Team,
    pub settings: Settings,
    pub defaults: Option<Defaults>,
    /// The model as `provider:model`, and what it resolves to; none while that is missing.
    pub model: String,
    pub resolved: Option<Resolved>,
    secrets: Vec<SecretString>,
}

/// Reads the facts of an Agent.
pub async fn read(worker: &Worker, caller: &Caller, agent: AgentId) -> Result<Facts> {
    worker
        .app
        .db
        .transact(caller, READ, &(worker, agent), read_in)
        .await
}

async fn read_in(tx: &mut TenantTx, args: &(&Worker, AgentId)) -> Result<Facts> {
    let (worker, agent) = *args;
    let master = &worker.app.master;
    let agent = team::store::agents::find(tx, agent).await?;
    let profile = team::store::profiles::find(tx, &agent.profile_id.to_string()).await?;
    let team = team::store::teams::find(tx, &agent.team_id.to_string()).await?;
    let model = agent
        .model
        .clone()
        .unwrap_or_else(|| profile.default_model.clone());
    let resolved = match provider::resolve(tx, &model, master).await {
        Ok(resolved) => Some(resolved),
        // A person has to set it up; the item waits for that.
        Err(Error::Refused(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(Facts {
        defaults: environment::defaults_in(tx, team.id).await?,
        settings: tenant::home_in(tx).await?.settings,
        secrets: tenant::secrets(tx, master).await?,
        agent,
        profile,
        team,
        model,
        resolved,
    })
}

impl Facts {
    /// The Team's saved values; the protected posture has none.
    pub fn defaults_for(&self, posture: Posture) -> Config {
        match (posture, &self.defaults) {
            (Posture::Docker, Some(defaults)) => defaults.config.clone(),
            _ => Config::default(),
        }
    }

    /// Every secret of the home, and the instance's own.
    pub fn redaction(&self, worker: &Worker) -> Redaction {
        let mut secrets = self.secrets.clone();
        secrets.push(worker.app.master.text());
        secrets.extend(worker.settings.secrets.iter().cloned());
        Redaction::new(&secrets)
    }

    /// How much the model thinks.
    pub fn reasoning(&self) -> Reasoning {
        let level = self.agent.reasoning.unwrap_or(self.profile.reasoning);
        match level {
            team::Reasoning::Off => Reasoning::Off,
            team::Reasoning::Minimal => Reasoning::Minimal,
            team::Reasoning::Low => Reasoning::Low,
            team::Reasoning::Medium => Reasoning::Medium,
            team::Reasoning::High => Reasoning::High,
            team::Reasoning::Xhigh => Reasoning::Xhigh,
        }
    }
}

/// Where model requests of the turn go.
pub fn gateway(resolved: &Resolved, allow_private: bool) -> GatewayTarget {
    let mut model = Model::named(resolved.model.id.clone());
    if let Some(tokens) = resolved.model.context_window {
        model.context_window = tokens;
    }
    if let Some(tokens) = resolved.model.max_tokens {
        model.max_tokens = tokens;
    }
    model.images = resolved.model.images;
    model.reasoning = resolved.model.reasoning;
    GatewayTarget {
        api: match resolved.kind {
            provider::Kind::OpenaiCompletions => ModelApi::OpenaiCompletions,
            provider::Kind::AnthropicMessages => ModelApi::AnthropicMessages,
        },
        base_url: resolved.base_url.clone(),
        key: resolved.key.clone(),
        model,
        allow_private,
    }
}
