//! Identifiers. The only place that mints them.
//!
//! - Every id is a UUIDv7 behind a type of its own, so an Agent's id cannot stand where a Team's is asked.
//! - Ids are minted before a transaction begins: a retried transaction uses the same ones.
//! - A v7 id shows when it was made. Secrets are never ids (see `secret`).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, sqlx::Type, utoipa::ToSchema)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        #[schema(value_type = String, format = Uuid)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, later than every id this process made before.
            #[expect(clippy::new_without_default, reason = "a fresh identity is never a default")]
            pub fn new() -> Self {
                Self(mint())
            }

            /// The id as PostgreSQL and the wire know it.
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(s).map(Self)
            }
        }
    )+};
}

ids! {
    /// A tenant.
    HomeId,
    /// A person with an account.
    OperatorId,
    /// An API token of one operator in one home.
    TokenId,
    /// A collaboration context: one workspace root, one policy, one roster.
    TeamId,
    /// An Agent template.
    ProfileId,
    /// A member of exactly one Team.
    AgentId,
    /// An Agent's thread.
    ConversationId,
    /// One accepted input of a person.
    ItemId,
    /// One file of an item.
    AttachmentId,
    /// A recorded question to an operator.
    ApprovalId,
    /// One run of an Agent.
    TurnId,
    /// Ownership of a workspace by one turn.
    LeaseId,
    /// A container or host process, recorded before it is started.
    ResourceId,
    /// Retained evidence of one command.
    ReceiptId,
    /// A message between Agents.
    MessageId,
    /// One life of one server process.
    IncarnationId,
    /// The client's own name for a request; the identity of a retry.
    RequestId,
}

#[expect(clippy::disallowed_methods, reason = "the one place that mints ids")]
fn mint() -> Uuid {
    Uuid::now_v7()
}
