//! Turns: one run of an Agent each, from its start record to its end record.
//!
//! - A start record exists before the engine is prompted; without one, nothing was started.
//! - At most one turn of an Agent runs; the database refuses a second.
//! - Every end is written once, by the process that ran it, or by the one that judged that process dead.
//! - Cancelling is a request in the database, which the running process learns by notification and by polling. It is
//!   no proof of anything.

pub mod api;
pub mod prompt;
pub(crate) mod store;
pub mod transcript;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::db::wake::{Wake, Wakes};
use crate::db::{Db, Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::identity::Caller;
use crate::ids::{AgentId, ConversationId, IncarnationId, ItemId, LeaseId, TeamId, TurnId};
use crate::limits;
use crate::runtime::Usage;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};

const LOOK: Op = Op::locking("turn.look");
const CANCEL: Op = Op::locking("turn.cancel");
const COUNT: Op = Op::locking("turn.count_tokens");

/// What a turn was admitted into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Posture {
    Host,
    Docker,
    Protected,
}

impl Posture {
    /// The word in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Posture::Host => "host",
            Posture::Docker => "docker",
            Posture::Protected => "protected",
        }
    }

    /// Reads the word of the database.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "host" => Ok(Posture::Host),
            "docker" => Ok(Posture::Docker),
            "protected" => Ok(Posture::Protected),
            other => Err(Error::Corrupt {
                table: "turns",
                what: format!("posture {other}"),
            }),
        }
    }

    /// Whether commands run in containers.
    pub fn in_container(self) -> bool {
        self != Posture::Host
    }
}

/// What woke the Agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Item(ItemId),
    Inbox {
        /// The highest hop among the messages.
        hop: i32,
    },
}

impl Cause {
    /// The queue item, when a person's input is the cause.
    pub fn item(self) -> Option<ItemId> {
        match self {
            Cause::Item(id) => Some(id),
            Cause::Inbox { .. } => None,
        }
    }
}

/// The start record. Ids are minted before the transaction.
#[derive(Debug, Clone)]
pub struct NewTurn {
    pub id: TurnId,
    pub agent: AgentId,
    pub team: TeamId,
    pub conversation: ConversationId,
    pub cause: Cause,
    pub posture: Posture,
    pub lease: LeaseId,
    /// The claim's fencing number; every later write of the claim names it.
    pub fence: i64,
    pub incarnation: IncarnationId,
    pub generation: i64,
    /// `provider:model`.
    pub model: String,
    /// Trace context, stored so that one trace goes from acceptance to settle.
    pub span: Option<String>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EndState {
    Completed,
    Failed,
    Cancelled,
    Uncertain,
}

impl EndState {
    /// The word in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EndState::Completed => "completed",
            EndState::Failed => "failed",
            EndState::Cancelled => "cancelled",
            EndState::Uncertain => "uncertain",
        }
    }
}

/// The end record.
#[derive(Debug, Clone)]
pub struct End {
    pub state: EndState,
    pub code: Option<String>,
    /// For people; at most 500 characters, never a secret.
    pub message: Option<String>,
}

impl End {
    /// A normal end. It does not say that the task is right.
    pub fn completed() -> Self {
        Self {
            state: EndState::Completed,
            code: None,
            message: None,
        }
    }

    /// Any other end, with its code and the sentence a person reads.
    pub fn because(state: EndState, code: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self {
            state,
            code: Some(code.into()),
            message: Some(message.chars().take(limits::DIAGNOSTIC_MAX_CHARS).collect()),
        }
    }
}

/// A running turn, as an Agent's page shows it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Active {
    pub id: TurnId,
    pub item_id: Option<ItemId>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: OffsetDateTime,
    pub posture: Posture,
    pub model: String,
    pub input_tokens: i64,
    pub output_tokens: i64,
    pub cancelling: bool,
}

/// Writes the start record, in the transaction that makes the item `running`.
pub async fn start_in(tx: &mut TenantTx, turn: &NewTurn) -> Result<()> {
    store::insert(tx, turn).await
}

/// Writes the end record, in the transaction that settles the item. `false` when somebody declared the turn ended
/// first: then nothing else may be written either.
pub async fn end_in(tx: &mut TenantTx, id: TurnId, fence: i64, end: &End) -> Result<bool> {
    store::end(tx, id, fence, end).await
}

/// Ends what a dead process left running, in this home: what it did last is unknown.
pub async fn lose_in(tx: &mut TenantTx, incarnation: IncarnationId) -> Result<u64> {
    store::lose(tx, incarnation).await
}

/// The Agent's running turn.
pub async fn active_in(tx: &mut TenantTx, agent: AgentId) -> Result<Option<Active>> {
    store::active(tx, agent).await
}

/// Asks for the end of a turn, wherever in the fleet it runs, and wakes that process. `false` when it has ended.
pub async fn cancel(
    db: &Db,
    wakes: &Wakes,
    caller: &Caller,
    agent: AgentId,
    id: TurnId,
) -> Result<bool> {
    require(caller, Action::Operate)?;
    let asked = db
        .transact(
            caller,
            CANCEL,
            &(agent, id),
            async |tx: &mut TenantTx, (agent, id): &(AgentId, TurnId)| {
                let asked = request_cancel_in(tx, *agent, *id).await?;
                let mut act = Act::ok("turn.cancel", *id);
                act.outcome = if asked { "ok" } else { "ended" };
                audit::record(tx, &act).await?;
                Ok(asked)
            },
        )
        .await?;
    wakes.send(Wake::Cancel(id.uuid()));
    Ok(asked)
}

/// Records the request for a turn's end; the caller sends [`Wake::Cancel`] after the commit.
pub async fn request_cancel_in(tx: &mut TenantTx, agent: AgentId, id: TurnId) -> Result<bool> {
    store::request_cancel(tx, agent, id).await
}

/// Records a request for the end of whatever the Agent runs, and says which turn that is.
pub async fn request_stop_in(tx: &mut TenantTx, agent: AgentId) -> Result<Option<TurnId>> {
    let Some(active) = store::active(tx, agent).await? else {
        return Ok(None);
    };
    store::request_cancel(tx, agent, active.id).await?;
    Ok(Some(active.id))
}

/// A token that fires when somebody asks for the turn's end, or when the turn was declared ended by somebody else.
/// Aborting the handle ends the watch.
pub fn watch_cancel(
    db: Db,
    wakes: &Wakes,
    caller: Caller,
    id: TurnId,
) -> (CancellationToken, JoinHandle<()>) {
    let token = CancellationToken::new();
    let (fired, mut received) = (token.clone(), wakes.subscribe());
    let watch = tokio::spawn(async move {
        loop {
            match cancel_requested(&db, &caller, id).await {
                Ok(true) => return fired.cancel(),
                Ok(false) => {}
                Err(error) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "asking for a turn's cancel"
                ),
            }
            let woken = async {
                // A receiver that lags looks at the database, like one that was woken.
                while received
                    .recv()
                    .await
                    .is_ok_and(|wake| wake != Wake::Cancel(id.uuid()))
                {}
            };
            let _ = tokio::time::timeout(limits::CANCEL_POLL, woken).await;
        }
    });
    (token, watch)
}

async fn cancel_requested(db: &Db, caller: &Caller, id: TurnId) -> Result<bool> {
    db.transact(caller, LOOK, &id, async |tx: &mut TenantTx, id: &TurnId| {
        store::cancel_requested(tx, *id).await
    })
    .await
}

/// Adds the tokens of one model request.
pub async fn count_tokens(db: &Db, caller: &Caller, id: TurnId, usage: Usage) -> Result<()> {
    db.transact(
        caller,
        COUNT,
        &(id, usage),
        async |tx: &mut TenantTx, (id, usage): &(TurnId, Usage)| {
            store::add_tokens(tx, *id, usage).await
        },
    )
    .await
}

/// The home's bounds of one turn.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Silence of the model that ends a turn.
    pub silence: Duration,
    /// Longest turn.
    pub total: Duration,
}

/// The turn is over, or was never this process's.
pub(crate) fn not_active() -> Error {
    Error::refused(
        Code::NotFound,
        "This turn is no longer active; nothing more is started in it.",
    )
}
