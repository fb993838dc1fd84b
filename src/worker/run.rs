//! A started turn: events, tool calls, lines and the clock, until it is over; then its end in order.
//!
//! - Over is only what the engine calls settled. Gone before that: uncertain.
//! - Lines are stored as they come; tool calls run to their end, whatever becomes of the engine.
//! - Silence of the model, the turn's time, a person's Stop and the end of the process all cancel; what may have acted
//!   and is not known makes the item uncertain.
//! - Nothing reports success in the place of an unproven cleanup.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Worker;
use super::admission::Admission;
use super::facts::Facts;
use crate::coding::Session;
use crate::coding::environment;
use crate::coding::tools::{Effect, Tools};
use crate::db::wake::Wake;
use crate::db::{Op, TenantTx};
use crate::error::Result;
use crate::executor::Identity;
use crate::ids::{ResourceId, TurnId};
use crate::queue::claim::{self, Claim, Input, Outcome, Settle};
use crate::queue::model::Diagnostic;
use crate::repo::report::Report;
use crate::runtime::{self, AgentEvent, AgentSession, Prompt, ToolCall};
use crate::turn::prompt::{self, Facts as PromptFacts};
use crate::turn::transcript::Transcript;
use crate::turn::{self, End, EndState};
use crate::workspace::container::Ending;
use crate::{limits, workspace};

const SETTLE: Op = Op::locking("worker.settle");
/// How often the clock of a turn is looked at.
const WATCH: Duration = Duration::from_secs(1);

/// A turn whose start is recorded.
pub struct Running<'a> {
    worker: &'a Arc<Worker>,
    claim: &'a Claim,
    turn: TurnId,
    /// Fires when a Stop of the queue is for this claim.
    stop: CancellationToken,
    facts: &'a Facts,
    tools: Arc<Tools>,
    toolbox_container: (ResourceId, Identity),
    report: Report,
    engine: Box<dyn AgentSession>,
    received: mpsc::Receiver<ToolCall>,
    transcript: Transcript,
}

/// Why a turn was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Person,
    Silence,
    Time,
    Process,
    /// The transcript could not be stored: going on would lose what happens.
    Storage,
}

/// What the loop saw.
struct Seen {
    settled: Option<runtime::Outcome>,
    asked: Option<Ask>,
    unclear: bool,
}

impl<'a> Running<'a> {
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one turn, joined here and nowhere else"
    )]
    pub fn new(
        worker: &'a Arc<Worker>,
        claim: &'a Claim,
        turn: TurnId,
        stop: CancellationToken,
        facts: &'a Facts,
        admission: Admission,
        engine: Box<dyn AgentSession>,
        received: mpsc::Receiver<ToolCall>,
        transcript: Transcript,
    ) -> Self {
        let session = Session {
            db: worker.app.db.clone(),
            wakes: worker.app.wakes.clone(),
            executor: worker.app.executor.clone(),
            life: worker.incarnation.life.clone(),
            caller: claim.caller(),
            incarnation: worker.incarnation.id,
            agent: claim.agent,
            team: facts.team.id,
            turn,
            lease: admission.lease,
            admitted: admission.admitted,
            redaction: Arc::new(facts.redaction(worker)),
            live: worker.live.clone(),
            prepared: tokio::sync::Mutex::default(),
        };
        let tools = Tools {
            session: Arc::new(session),
            toolbox: admission.toolbox,
            cancelled: CancellationToken::new(),
        };
        Self {
            worker,
            claim,
            turn,
            stop,
            facts,
            tools: Arc::new(tools),
            toolbox_container: admission.toolbox_container,
            report: admission.report,
            engine,
            received,
            transcript,
        }
    }

    /// Runs the turn, cleans up, and settles the item.
    pub async fn carry_out(mut self, input: Input) {
        let ahead = self.tools.session.clone();
        let ahead = tokio::spawn(async move { ahead.prepare().await });
        let (cancel, watch) = turn::watch_cancel(
            self.worker.app.db.clone(),
            &self.worker.app.wakes,
            self.claim.caller(),
            self.turn,
        );
        let prompt = self.prompt(&input);
        let mut calls = JoinSet::new();
        let seen = match self.engine.prompt(prompt).await {
            Ok(()) => self.follow(&cancel, &mut calls).await,
            Err(error) => {
                tracing::warn!(%error, "the engine did not take the input");
                Seen {
                    settled: None,
                    asked: None,
                    unclear: true,
                }
            }
        };
        watch.abort();
        let _ = ahead.await;
        self.finish(seen, calls).await;
    }

    fn prompt(&self, input: &Input) -> Prompt {
        let admitted = &self.tools.session.admitted;
        let texts: Vec<String> =
            environment::restrictions(admitted.posture, &admitted.restrictions)
                .into_iter()
                .map(|restriction| restriction.text)
                .collect();
        let instructions: Vec<(String, String)> = self
            .report
            .instructions
            .files
            .iter()
            .map(|file| (file.path.clone(), file.content.clone()))
            .collect();
        let takes_images = self
            .facts
            .resolved
            .as_ref()
            .is_some_and(|resolved| resolved.model.images);
        let is_image = |mime: &str| {
            matches!(
                mime,
                "image/png" | "image/jpeg" | "image/gif" | "image/webp"
            )
        };
        let mut images = Vec::new();
        let mut notes = Vec::new();
        for (n, file) in input.files.iter().enumerate() {
            let name = file.name.as_deref().unwrap_or("file");
            if takes_images && is_image(&file.mime_type) {
                images.push(runtime::Image {
                    data: base64::engine::general_purpose::STANDARD.encode(&file.bytes),
                    mime_type: file.mime_type.clone(),
                });
            } else {
                notes.push(format!(
                    "{}-{name} ({}); this model is not shown it as an image",
                    n + 1,
                    file.mime_type
                ));
            }
        }
        let context = prompt::context(&PromptFacts {
            posture: admitted.posture,
            network: if admitted.posture.in_container() {
                "none"
            } else {
                "host"
            },
            image: admitted
                .posture
                .in_container()
                .then_some(admitted.image.reference.as_str()),
            restrictions: &texts,
            instructions: &instructions,
            fingerprint: &self.report.fingerprint,
            unknown: self.engine.unknown_outcomes(),
            inputs: &notes,
        });
        Prompt {
            text: input.text.clone(),
            images,
            context: Some(context),
        }
    }

    async fn follow(&mut self, cancel: &CancellationToken, calls: &mut JoinSet<Effect>) -> Seen {
        let began = Instant::now();
        let settings = &self.facts.settings;
        let mut seen = Seen {
            settled: None,
            asked: None,
            unclear: false,
        };
        let mut watch = tokio::time::interval(WATCH);
        let mut taking = true;
        loop {
            let ask = tokio::select! {
                event = self.engine.next() => match event {
                    None => return seen,
                    Some(AgentEvent::Settled { outcome, .. }) => {
                        seen.settled = Some(outcome);
                        return seen;
                    }
                    Some(event) => self.take(event).await,
                },
                call = self.received.recv(), if taking => {
                    match call {
                        Some(call) => {
                            let tools = self.tools.clone();
                            calls.spawn(async move { tools.answer(call).await });
                        }
                        None => taking = false,
                    }
                    None
                }
                Some(done) = calls.join_next() => {
                    seen.unclear |= !matches!(done, Ok(Effect::Known));
                    None
                }
                () = cancel.cancelled(), if seen.asked.is_none() => Some(Ask::Person),
                () = self.stop.cancelled(), if seen.asked.is_none() => Some(Ask::Person),
                () = self.worker.ending.cancelled(), if seen.asked.is_none() => Some(Ask::Process),
                _ = watch.tick(), if seen.asked.is_none() => {
                    if self.engine.model_silence().is_some_and(|silence| silence >= settings.model_silence) {
                        Some(Ask::Silence)
                    } else if began.elapsed() >= settings.turn_time {
                        Some(Ask::Time)
                    } else {
                        None
                    }
                }
            };
            if let (Some(ask), None) = (ask, seen.asked) {
                seen.asked = Some(ask);
                self.tools.cancelled.cancel();
                if let Err(error) = self.engine.abort().await {
                    tracing::warn!(%error, "asking the engine to stop");
                }
            }
        }
    }

    async fn take(&mut self, event: AgentEvent) -> Option<Ask> {
        let (db, caller) = (&self.worker.app.db, &self.tools.session.caller);
        let stored = match event {
            AgentEvent::Line { raw } => {
                let stored = self.transcript.append(db, caller, &raw).await;
                self.worker
                    .app
                    .wakes
                    .send(Wake::Agent(self.claim.agent.uuid()));
                stored
            }
            AgentEvent::Usage(usage) => {
                if let Err(error) = turn::count_tokens(db, caller, self.turn, usage).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "counting tokens");
                }
                Ok(())
            }
            _ => Ok(()),
        };
        match stored {
            Ok(()) => None,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a line of the transcript was not stored"
                );
                Some(Ask::Storage)
            }
        }
    }

    /// Tool calls to their end, the engine to its end, the rest of its lines, cleanup, release, settle.
    async fn finish(mut self, mut seen: Seen, mut calls: JoinSet<Effect>) {
        if seen.settled.is_none() {
            self.tools.cancelled.cancel();
        }
        while let Some(done) = calls.join_next().await {
            seen.unclear |= !matches!(done, Ok(Effect::Known));
        }
        while let Ok(Some(event)) =
            tokio::time::timeout(limits::PI_EXIT_WAIT, self.engine.next()).await
        {
            if self.take(event).await.is_some() {
                break;
            }
        }
        let ended = self.engine.end().await;
        let agrees = self.transcript.agrees_with(&ended);
        if !agrees {
            tracing::error!(turn = %self.turn, lines = ended.lines, "stored lines and the engine's file differ");
        }
        let freed = clean_up(self.tools, &self.toolbox_container, self.worker).await;
        let outcome = judge(&seen, agrees, freed);
        settle(self.worker, self.claim, Some(self.turn), outcome).await;
    }
}

/// Ends the prepared container and the toolbox, and releases the lease. Says whether all of it is proven.
async fn clean_up(tools: Arc<Tools>, toolbox: &(ResourceId, Identity), worker: &Worker) -> bool {
    let session = tools.session.clone();
    drop(tools);
    let cleaned: Result<bool> = async {
        // A preparation under way holds the slot; it is over when the slot is free.
        session.discard().await?;
        let ended = session.making().end(toolbox.0, &toolbox.1).await?;
        let released =
            workspace::release(&worker.app.db, &session.caller, session.lease.id()).await?;
        Ok(released && ended == Ending::Confirmed)
    }
    .await;
    cleaned.unwrap_or_else(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "cleaning up after a turn"
        );
        false
    })
}

/// What became of the item, from what was seen and what is proven.
fn judge(seen: &Seen, transcript_agrees: bool, cleanup_proven: bool) -> Outcome {
    let because = |code: &str, text: &str| Diagnostic::new(code, text);
    if !cleanup_proven {
        let text = "The turn is over, and what it started is not proven to be gone. The workspace needs recovery.";
        return Outcome::Uncertain(because("cleanup_unconfirmed", text));
    }
    if !transcript_agrees || seen.asked == Some(Ask::Storage) {
        return Outcome::Uncertain(because(
            "transcript_incomplete",
            "Not everything of the turn could be stored.",
        ));
    }
    let Some(settled) = &seen.settled else {
        return Outcome::Uncertain(because(
            "engine_lost",
            "The engine ended before the turn was over. It may have acted.",
        ));
    };
    if let Some(ask) = seen.asked {
        let why = match ask {
            Ask::Person => because("stopped", "Stopped by a person."),
            Ask::Silence => because("model_silence", "The model sent nothing for too long."),
            Ask::Time => because("turn_time", "The turn took longer than a turn may."),
            Ask::Process | Ask::Storage => {
                because("server_stopping", "The server process stopped.")
            }
        };
        return if seen.unclear {
            Outcome::Uncertain(why)
        } else {
            Outcome::Cancelled(why)
        };
    }
    match settled {
        _ if seen.unclear => Outcome::Uncertain(because(
            "outcome_unknown",
            "A command or a write of the turn has an unknown outcome.",
        )),
        runtime::Outcome::Stop | runtime::Outcome::Length => Outcome::Completed,
        runtime::Outcome::Error { message } => {
            Outcome::Failed(Diagnostic::new("model_failed", message))
        }
        runtime::Outcome::Aborted => {
            Outcome::Cancelled(because("aborted", "The engine ended the turn."))
        }
    }
}

/// Writes the end of turn and item in one transaction. A lost claim writes nothing: somebody judged first.
pub async fn settle(worker: &Worker, claim: &Claim, turn: Option<TurnId>, outcome: Outcome) {
    let end = end_of(&outcome);
    let args = (
        Settle {
            claim: *claim,
            outcome,
        },
        turn,
        end,
    );
    if let Err(error) = worker
        .app
        .db
        .transact(&claim.caller(), SETTLE, &args, settle_in)
        .await
    {
        tracing::error!(error = &error as &dyn std::error::Error, item = %claim.item, "settling an item");
    }
}

async fn settle_in(tx: &mut TenantTx, args: &(Settle, Option<TurnId>, End)) -> Result<bool> {
    let (settle, turn, end) = args;
    let settled = claim::settle(tx, settle).await?;
    if settled && let Some(turn) = turn {
        turn::end_in(tx, *turn, settle.claim.fence, end).await?;
    }
    Ok(settled)
}

fn end_of(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Completed => End::completed(),
        Outcome::Failed(why) | Outcome::Unprepared(why) => {
            End::because(EndState::Failed, &why.code, why.message.clone())
        }
        Outcome::Cancelled(why) => {
            End::because(EndState::Cancelled, &why.code, why.message.clone())
        }
        Outcome::Uncertain(why) => {
            End::because(EndState::Uncertain, &why.code, why.message.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(settled: Option<runtime::Outcome>, asked: Option<Ask>, unclear: bool) -> Seen {
        Seen {
            settled,
            asked,
            unclear,
        }
    }

    #[test]
    fn nothing_is_completed_that_was_not_seen_and_proven() {
        let stop = || Some(runtime::Outcome::Stop);
        assert_eq!(
            judge(&seen(stop(), None, false), true, true),
            Outcome::Completed
        );
        for uncertain in [
            judge(&seen(stop(), None, false), true, false),
            judge(&seen(stop(), None, false), false, true),
            judge(&seen(stop(), None, true), true, true),
            judge(&seen(None, None, false), true, true),
            judge(&seen(stop(), Some(Ask::Person), true), true, true),
        ] {
            assert!(matches!(uncertain, Outcome::Uncertain(_)), "{uncertain:?}");
        }
        let stopped = judge(
            &seen(Some(runtime::Outcome::Aborted), Some(Ask::Person), false),
            true,
            true,
        );
        assert!(matches!(stopped, Outcome::Cancelled(_)));
    }
}
