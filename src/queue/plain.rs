//! The short way in: an input of text only, stored in one round trip.
//!
//! - It stores what nothing speaks against, and decides nothing else: a retry, a refusal, a hold, a first conversation go
//!   the general way, which asks everything again. So each rule's refusal is said in one place.
//! - After a lost connection the general way finds the receipt, if there is one.

use super::digest;
use super::model::{Item, Source, Status};
use super::store;
use super::submission::Submission;
use crate::db::{Db, Op};
use crate::error::Result;
use crate::identity::{Actor, Caller};
use crate::ids::{AgentId, ConversationId, ItemId, OperatorId, RequestId};
use crate::tenant::permission::{Action, require};

const SUBMIT: Op = Op::locking("queue.submit_plain");

/// An input that may go the short way.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    pub agent: AgentId,
    pub item: ItemId,
    pub request: RequestId,
    pub conversation: ConversationId,
    pub selection: i64,
    pub text: String,
    /// What the digest covers behind the place.
    pub content: Vec<u8>,
    pub operator: Option<OperatorId>,
    pub span: Option<String>,
}

impl Plain {
    /// Nothing, when the input is not plain.
    pub(super) fn of(caller: &Caller, submission: &Submission) -> Option<Self> {
        let plain = submission.source == Source::Http
            && submission.origin.is_none()
            && submission.files.is_empty()
            && !matches!(caller.actor(), Actor::Agent { .. });
        let agent = submission.agent.parse::<AgentId>().ok()?;
        let conversation = submission.expected.conversation_id?;
        plain.then(|| Self {
            agent,
            item: submission.fresh.item,
            request: submission.request_id,
            conversation,
            selection: submission.expected.revision,
            text: submission.text.clone(),
            content: digest::content_of_submission(submission),
            operator: caller.operator(),
            span: submission.span.clone(),
        })
    }

    fn into_item(self, stored: &store::plain::Stored) -> Item {
        Item {
            id: self.item,
            agent_id: self.agent,
            team_id: stored.team,
            conversation_id: self.conversation,
            source: Source::Http,
            request_id: self.request,
            revision: 1,
            version: 1,
            position: stored.position,
            status: Status::Pending,
            waiting_for: stored.waiting_for,
            text: Some(self.text),
            attachments: Vec::new(),
            payload_retained: true,
            supersedes_id: None,
            superseded_by_id: None,
            approval_id: None,
            turn_id: None,
            submitted_by: self.operator,
            origin: None,
            diagnostic: None,
            created_at: stored.at,
            updated_at: stored.at,
            started_at: None,
            finished_at: None,
        }
    }
}

/// The stored item; nothing when the input must go the general way. An error is the database's.
pub(super) async fn submit(
    db: &Db,
    caller: &Caller,
    submission: &Submission,
) -> Result<Option<Item>> {
    require(caller, Action::Operate)?;
    let Some(plain) = Plain::of(caller, submission) else {
        return Ok(None);
    };
    let inputs = [plain];
    let stored = db
        .call(caller, SUBMIT, &inputs[..], store::plain::submit)
        .await?;
    let [plain] = inputs;
    Ok(stored
        .iter()
        .find(|stored| stored.index == 0)
        .map(|stored| plain.into_item(stored)))
}
