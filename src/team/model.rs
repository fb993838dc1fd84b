//! Teams, profiles, Agents and conversations as values. No I/O.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::error::{Error, Result};
use crate::ids::{AgentId, ConversationId, HomeId, ProfileId, TeamId};
use crate::limits;

/// Where a Team's files lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Root {
    /// A directory that the executor makes below its workspace base.
    Managed,
    /// An existing absolute directory, registered by an instance admin.
    Linked { path: String },
}

impl Root {
    /// The directory on the executor. A managed root is derived, so it cannot be set to another Team's.
    pub fn directory(&self, base: &Path, home: HomeId, team: TeamId) -> PathBuf {
        match self {
            Root::Managed => base.join(home.to_string()).join(team.to_string()),
            Root::Linked { path } => PathBuf::from(path),
        }
    }
}

/// A collaboration context: one root, one roster, one policy.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    pub id: TeamId,
    pub slug: String,
    pub name: String,
    pub executor: String,
    pub root: Root,
    pub policy_revision: i64,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
    #[serde(skip)]
    pub user_md: String,
}

/// Reasoning level, as Pi names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reasoning {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

impl Reasoning {
    /// The word in the database, on the wire and for Pi.
    pub fn as_str(self) -> &'static str {
        match self {
            Reasoning::Off => "off",
            Reasoning::Minimal => "minimal",
            Reasoning::Low => "low",
            Reasoning::Medium => "medium",
            Reasoning::High => "high",
            Reasoning::Xhigh => "xhigh",
        }
    }

    /// Decodes the database's word.
    pub fn parse(word: &str) -> Result<Self> {
        [
            Self::Off,
            Self::Minimal,
            Self::Low,
            Self::Medium,
            Self::High,
            Self::Xhigh,
        ]
        .into_iter()
        .find(|level| level.as_str() == word)
        .ok_or_else(|| Error::Corrupt {
            table: "profiles",
            what: format!("reasoning {word}"),
        })
    }
}

/// Persona documents. In a prompt they are labelled *Agent instructions*.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Persona {
    /// SOUL.md
    pub soul: String,
    /// IDENTITY.md
    pub identity: String,
    /// AGENTS.md
    pub agents: Option<String>,
    /// TOOLS.md
    pub tools: Option<String>,
}

/// An Agent template.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    pub id: ProfileId,
    pub slug: String,
    pub name: String,
    pub default_model: String,
    pub reasoning: Reasoning,
    pub skills_mode: String,
    pub persona: Persona,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// Which conversation an Agent's next input belongs to. `revision` rises with each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selection {
    pub conversation_id: Option<ConversationId>,
    #[serde(deserialize_with = "crate::http::extract::revision")]
    pub revision: i64,
}

/// Whether an Agent takes input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentStatus {
    Active,
    Archived,
}

impl AgentStatus {
    /// Decodes the database's word.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "active" => Ok(AgentStatus::Active),
            "archived" => Ok(AgentStatus::Archived),
            other => Err(Error::Corrupt {
                table: "agents",
                what: format!("status {other}"),
            }),
        }
    }
}

/// A member of exactly one Team.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    pub team_id: TeamId,
    pub profile_id: ProfileId,
    /// Overrides the profile's model.
    pub model: Option<String>,
    /// Overrides the profile's level.
    pub reasoning: Option<Reasoning>,
    pub status: AgentStatus,
    pub selection: Selection,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// An Agent's thread.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    pub id: ConversationId,
    pub agent_id: AgentId,
    pub number: i32,
    pub title: Option<String>,
    pub revision: i64,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: OffsetDateTime,
}

/// An Agent's name: 1 to 100 characters, printable, no path separator; never the shape of an id.
pub fn check_agent_name(name: &str) -> Result<()> {
    let chars = name.chars().count();
    let ok = (1..=limits::AGENT_NAME_MAX_CHARS).contains(&chars)
        && name == name.trim()
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, '/' | '\\'))
        && uuid::Uuid::parse_str(name).is_err();
    if ok {
        Ok(())
    } else {
        Err(Error::invalid(
            "name",
            "name",
            "Use 1 to 100 characters without control characters or slashes, not shaped like an id.",
        ))
    }
}

/// A model reference: `provider:model`.
pub fn check_model(path: &str, reference: &str) -> Result<()> {
    if reference.len() <= 300 && crate::provider::split_reference(reference).is_some() {
        Ok(())
    } else {
        Err(Error::invalid(
            path,
            "model",
            "Write the model as provider:model.",
        ))
    }
}

/// Persona documents stay within their size.
pub fn check_persona(persona: &Persona) -> Result<()> {
    let documents = [
        ("persona.soul", Some(&persona.soul)),
        ("persona.identity", Some(&persona.identity)),
        ("persona.agents", persona.agents.as_ref()),
        ("persona.tools", persona.tools.as_ref()),
    ];
    for (path, text) in documents {
        let text = text.map_or("", String::as_str);
        if text.len() > limits::PERSONA_MAX || text.contains('\0') {
            return Err(Error::invalid(
                path,
                "size",
                "A document has at most 64 KiB, without NUL.",
            ));
        }
    }
    Ok(())
}
