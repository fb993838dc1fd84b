//! Who acts, and in which home.
//!
//! - A [`Caller`] can be made in one way only, [`Caller::vouch`], and few files may call it (the architecture test
//!   lists them): the home comes from a credential, never from a path or a body.
//! - Nothing here does I/O. What an actor may do is decided in `tenant::permission`.

use crate::ids::{AgentId, HomeId, OperatorId, TokenId, TurnId};

/// A person's place in a home. Ordered: an owner may do what an operator may.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Viewer,
    Operator,
    Owner,
}

impl Role {
    /// The word in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Owner => "owner",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "viewer" => Ok(Role::Viewer),
            "operator" => Ok(Role::Operator),
            "owner" => Ok(Role::Owner),
            _ => Err(()),
        }
    }
}

/// What an API token may be used for, at most; the role limits it further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes {
    pub read: bool,
    pub write: bool,
    pub approvals: bool,
    pub admin: bool,
}

impl Scopes {
    /// A browser session carries no scope of its own: the role alone decides.
    pub const ALL: Scopes = Scopes {
        read: true,
        write: true,
        approvals: true,
        admin: true,
    };
}

/// How a person proved who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    Session,
    Token(TokenId),
}

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// A signed-in person who belongs to the home.
    Operator {
        id: OperatorId,
        role: Role,
        scopes: Scopes,
        credential: Credential,
        /// Runs the server; has no reading right in a home by that alone.
        instance_admin: bool,
    },
    /// An Agent, in one turn.
    Agent { agent: AgentId, turn: TurnId },
    /// The server itself: dispatch, recovery, pruning.
    System,
}

/// A vouched-for actor in one home. Every tenant transaction demands one.
#[derive(Debug, Clone)]
pub struct Caller {
    home: HomeId,
    actor: Actor,
}

impl Caller {
    /// States that `actor` was authenticated for `home`. To be called only where a credential was checked.
    pub fn vouch(home: HomeId, actor: Actor) -> Self {
        Self { home, actor }
    }

    /// The home the credential belongs to.
    pub fn home(&self) -> HomeId {
        self.home
    }

    /// Who acts.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The operator's id, if a person acts.
    pub fn operator(&self) -> Option<OperatorId> {
        match self.actor {
            Actor::Operator { id, .. } => Some(id),
            Actor::Agent { .. } | Actor::System => None,
        }
    }
}
