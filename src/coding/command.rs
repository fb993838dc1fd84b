//! One command, from its admission to its receipt.
//!
//! - Refused before anything starts: a known secret in the text, a second command while one runs, the 65th of a turn, a
//!   repeated call, an incomplete scope, a turn that is no longer active.
//! - Order: receipt `running` → container, recorded before it is made → bound to the receipt → command sent → streamed →
//!   ended → removed → removal confirmed → receipt ended.
//! - The time limit is never early; the kill follows within a second. Cancelling is no proof: the state is recorded with
//!   the cleanup's own outcome beside it.
//! - A process that dies between two steps leaves a running receipt and recorded resources; whoever judges it dead
//!   ends both.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::applicability::Inputs;
use super::hints;
use super::output::{Kept, Output};
use super::receipt::{Cleanup, EndedBy, Receipt, State, Verdict, judge, with_cleanup};
use super::session::{Prepared, Session};
use super::store::{self, NewReceipt, Settled};
use crate::db::wake::Wake;
use crate::db::{Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::executor::{Exit, Frame, Running};
use crate::ids::{ReceiptId, ResourceId};
use crate::limits;
use crate::tenant;
use crate::turn::store as turns;
use crate::workspace;
use crate::workspace::container::{Ending, Made, NotMade};

const ADMIT: Op = Op::locking("coding.command.admit");
const BIND: Op = Op::locking("coding.command.bind");
const SHOW: Op = Op::locking("coding.command.show");
// Retention counts rows that nobody can lock beforehand.
const SETTLE: Op = Op::serializable("coding.command.settle");

/// Why a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    Runtime,
    Dependency,
    Prepare,
    Build,
    Test,
}

/// What the tool takes; no other key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    pub command: String,
    pub cwd: String,
    pub purpose: Purpose,
    pub timeout_seconds: u64,
}

impl Input {
    /// Reads and checks the tool's arguments; `cwd` comes out relative to the root.
    pub fn read(arguments: &serde_json::Map<String, serde_json::Value>) -> Result<Self> {
        let value = serde_json::Value::Object(arguments.clone());
        let mut input: Self = serde_json::from_value(value).map_err(|_| {
            let keys = "Give exactly command, cwd, purpose (runtime, dependency, prepare, build, test) and timeoutSeconds.";
            Error::invalid("", "shape", keys)
        })?;
        let allowed = |c: char| !c.is_control() || c == '\t' || c == '\n';
        if input.command.trim().is_empty()
            || input.command.len() > limits::COMMAND_MAX
            || !input.command.chars().all(allowed)
        {
            let rule =
                "Give 1 to 4096 bytes without control characters other than tab and newline.";
            return Err(Error::invalid("command", "command", rule));
        }
        if !limits::COMMAND_SECONDS.contains(&input.timeout_seconds) {
            return Err(Error::invalid(
                "timeoutSeconds",
                "range",
                "Give 1 to 300 seconds.",
            ));
        }
        input.cwd = check_cwd(&input.cwd)?;
        Ok(input)
    }
}

/// A working directory: `.`, or relative without anything that leaves the root. Models write `/workspace/…`, which is
/// read as relative to it.
pub fn check_cwd(cwd: &str) -> Result<String> {
    let cwd = match cwd.strip_prefix("/workspace") {
        Some("" | "/") => ".",
        Some(rest) if rest.starts_with('/') => rest.trim_start_matches('/').trim_end_matches('/'),
        _ => cwd,
    };
    if cwd.starts_with('/') {
        return Err(Error::invalid(
            "cwd",
            "absolute",
            "Write . or a path relative to /workspace, such as src/app.",
        ));
    }
    let parts: Vec<&str> = cwd.split('/').collect();
    let bad = |part: &&str| {
        matches!(*part, "" | "." | ".." | ".git")
            || part.contains('\\')
            || part.chars().any(char::is_control)
    };
    if cwd != "." && (parts.len() > limits::COMMAND_CWD_PARTS || parts.iter().any(bad)) {
        let rule =
            "Write . or a relative path of at most 16 parts, none of them empty, ., .. or .git.";
        return Err(Error::invalid("cwd", "cwd", rule));
    }
    Ok(cwd.to_owned())
}

/// What the scope of the working directory looked like just before.
pub enum Scope {
    /// Its inputs, where they could be taken.
    Complete(Option<Inputs>),
    /// Its instructions are incomplete.
    Incomplete,
}

/// How a call was answered.
#[derive(Debug)]
pub enum Answer {
    /// This call ran, or was seen not to start.
    Ran(Receipt),
    /// This call ran before; here is its receipt.
    Repeated(Receipt),
}

/// Runs one command and returns its ended receipt. Must not be dropped half way: run it in a task of its own.
pub async fn run(
    session: &Arc<Session>,
    call: &str,
    input: &Input,
    scope: Scope,
    cancelled: &CancellationToken,
) -> Result<Answer> {
    if session.redaction.finds(&input.command) {
        let text = "The command's text contains a secret of this home. Commands get no credentials; leave it out.";
        return Err(Error::invalid("command", "secret", text));
    }
    let Scope::Complete(inputs) = scope else {
        let text = "The instructions of this scope are incomplete. Look at repository_context for what is wrong.";
        return Err(Error::refused(Code::InstructionsIncomplete, text));
    };
    session.life.check()?;
    let prepared = session.take().await;
    let id = prepared
        .as_ref()
        .map_or_else(ReceiptId::new, |prepared| prepared.receipt);
    let admission = match admit(session, id, call, input, inputs.as_ref()).await {
        Ok(admission) => admission,
        Err(error) => {
            session.put_back(prepared).await?;
            return Err(error);
        }
    };
    match admission {
        Admission::Repeated(receipt) => {
            session.put_back(prepared).await?;
            Ok(Answer::Repeated(*receipt))
        }
        Admission::Blocked(reason) => {
            session.put_back(prepared).await?;
            let verdict = Verdict::of(State::Blocked, reason);
            settle(session, id, verdict, Cleanup::Confirmed, Kept::default())
                .await
                .map(Answer::Ran)
        }
        Admission::Started => execute(session, id, input, prepared, cancelled)
            .await
            .map(Answer::Ran),
    }
}

enum Admission {
    Started,
    /// Recorded, and denied before anything was made.
    Blocked(&'static str),
    Repeated(Box<Receipt>),
}

async fn admit(
    session: &Session,
    id: ReceiptId,
    call: &str,
    input: &Input,
    inputs: Option<&Inputs>,
) -> Result<Admission> {
    let wrong = |e| Error::internal("writing a receipt", e);
    let new = NewReceipt {
        id,
        team: session.team,
        agent: session.agent,
        turn: session.turn,
        call: call.to_owned(),
        input: serde_json::to_value(input).map_err(wrong)?,
        environment: session.describe(),
        evidence: inputs
            .map(serde_json::to_value)
            .transpose()
            .map_err(wrong)?,
        incarnation: session.incarnation,
    };
    session
        .db
        .transact(&session.caller, ADMIT, &(session, &new), admit_in)
        .await
}

async fn admit_in(tx: &mut TenantTx, args: &(&Session, &NewReceipt)) -> Result<Admission> {
    let (session, new) = *args;
    let turn = turns::lock_commanding(tx, session.turn).await?;
    if turn.calls.contains(&new.call) {
        return repeated(tx, new).await;
    }
    if turn.cancelled {
        return Err(crate::turn::not_active());
    }
    if turn.calls.len() >= limits::COMMANDS_PER_TURN {
        let text = "This turn has run its 64 commands. End it; the next input begins a new turn.";
        return Err(
            Error::refused(Code::RateLimited, text).with("limit", limits::COMMANDS_PER_TURN)
        );
    }
    workspace::require_active_in(tx, &session.lease).await?;
    store::insert_running(tx, new).await?;
    turns::add_command_call(tx, session.turn, &new.call).await?;
    let settings = tenant::home_in(tx).await?.settings;
    let command = new.input["command"].as_str().unwrap_or_default();
    if settings.shell_approval == "dangerous" && is_dangerous(command) {
        return Ok(Admission::Blocked("approval_unavailable"));
    }
    Ok(Admission::Started)
}

async fn repeated(tx: &mut TenantTx, new: &NewReceipt) -> Result<Admission> {
    let Some(first) = store::find_by_call(tx, new.turn, &new.call).await? else {
        let text =
            "This tool call ran before, and its receipt was evicted since. It is not run again.";
        return Err(Error::refused(Code::PayloadExpired, text));
    };
    if first.input != new.input {
        let text = "This tool call id was used for another command. It is not run again.";
        return Err(Error::refused(Code::RequestConflict, text));
    }
    Ok(Admission::Repeated(Box::new(first)))
}

/// Commands that a home with `shellApproval: dangerous` wants a person to see first.
fn is_dangerous(command: &str) -> bool {
    const WORDS: [&str; 12] = [
        "rm", "rmdir", "dd", "mkfs", "shred", "truncate", "chmod", "chown", "kill", "killall",
        "pkill", "shutdown",
    ];
    let history = ["push", "reset", "clean", "rebase", "filter-branch"];
    let words: Vec<&str> = command
        .split(|c: char| c.is_whitespace() || ";|&()`$".contains(c))
        .collect();
    words
        .iter()
        .any(|word| WORDS.contains(&word.rsplit('/').next().unwrap_or(word)))
        || (words.contains(&"git") && words.iter().any(|word| history.contains(word)))
}

async fn execute(
    session: &Arc<Session>,
    id: ReceiptId,
    input: &Input,
    prepared: Option<Prepared>,
    cancelled: &CancellationToken,
) -> Result<Receipt> {
    if cancelled.is_cancelled() {
        session.put_back(prepared).await?;
        let verdict = Verdict::of(State::Cancelled, "cancelled");
        return settle(session, id, verdict, Cleanup::Confirmed, Kept::default()).await;
    }
    let made = match prepared {
        Some(prepared) => prepared.made,
        None => match session.make(id).await {
            Ok(made) => made,
            Err(why) => return not_made(session, id, why).await,
        },
    };
    let Made {
        resource,
        identity,
        attached,
        ..
    } = made;
    if let Err(error) = bind(session, id, resource).await {
        drop(attached);
        let ending = session.making().end(resource, &identity).await?;
        let verdict = Verdict::of(State::Blocked, error.to_string());
        return settle(session, id, verdict, cleanup_of(&ending), Kept::default()).await;
    }
    let limit = Duration::from_secs(input.timeout_seconds);
    let frame = Frame {
        command: input.command.clone(),
        cwd: input.cwd.clone(),
        env: session.variables(),
        deadline_ms: millis(limit + limits::LAUNCH_DEADLINE_MARGIN),
    };
    let sent = match session.life.check() {
        Ok(()) => session
            .executor
            .run(attached, &frame)
            .await
            .map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (verdict, kept) = match sent {
        Ok(running) => follow(session, id, running, limit, cancelled, &identity).await,
        // The frame may have arrived: what it did is unknown.
        Err(reason) => (Verdict::of(State::Interrupted, reason), Kept::default()),
    };
    let ending = session.making().end(resource, &identity).await?;
    let receipt = settle(session, id, verdict, cleanup_of(&ending), kept).await?;
    let next = session.clone();
    tokio::spawn(async move { next.prepare().await });
    Ok(receipt)
}

async fn bind(session: &Session, id: ReceiptId, resource: ResourceId) -> Result<()> {
    session
        .db
        .transact(&session.caller, BIND, &(session, id, resource), bind_in)
        .await
}

async fn bind_in(tx: &mut TenantTx, args: &(&Session, ReceiptId, ResourceId)) -> Result<()> {
    let (session, id, resource) = *args;
    workspace::mark_started_in(tx, &session.lease, resource).await?;
    store::set_resource(tx, id, resource).await
}

async fn not_made(session: &Session, id: ReceiptId, why: NotMade) -> Result<Receipt> {
    let (verdict, cleanup) = match why {
        NotMade::Blocked(reason) => (Verdict::of(State::Blocked, reason), Cleanup::Confirmed),
        NotMade::Uncertain(reason) => (Verdict::of(State::Blocked, reason), Cleanup::Uncertain),
        NotMade::Failed(error) => (
            Verdict::of(State::Blocked, error.to_string()),
            Cleanup::Confirmed,
        ),
    };
    settle(session, id, verdict, cleanup, Kept::default()).await
}

/// Follows a running command to its end, or ends it.
async fn follow(
    session: &Session,
    id: ReceiptId,
    running: Running,
    limit: Duration,
    cancelled: &CancellationToken,
    identity: &crate::executor::Identity,
) -> (Verdict, Kept) {
    let Running { output, exit } = running;
    let mut output = Some(output);
    let mut exit = exit;
    let mut kept = Output::new(&session.redaction);
    let deadline = Instant::now() + limit;
    let (mut ended_by, mut shown, mut dirty) = (EndedBy::Itself, Instant::now(), false);
    let exit = loop {
        let next = async {
            match output.as_mut() {
                Some(receiver) => receiver.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            chunk = next => match chunk {
                Some(chunk) => {
                    kept.push(&chunk);
                    dirty = true;
                }
                None => output = None,
            },
            exit = &mut exit => break exit,
            () = tokio::time::sleep_until(deadline), if ended_by == EndedBy::Itself => {
                ended_by = EndedBy::TimeLimit;
                kill(session, identity).await;
            }
            () = cancelled.cancelled(), if ended_by == EndedBy::Itself => {
                ended_by = EndedBy::Cancel;
                kill(session, identity).await;
            }
            () = tokio::time::sleep_until(shown + limits::TAIL_INTERVAL), if dirty => {
                show(session, id, &kept.so_far()).await;
                (shown, dirty) = (Instant::now(), false);
            }
        }
    };
    // What was written before the end is still in the channel.
    if let Some(mut rest) = output {
        while let Ok(Some(chunk)) = tokio::time::timeout(limits::TAIL_INTERVAL, rest.recv()).await {
            kept.push(&chunk);
        }
    }
    let ended_by = if matches!(exit, Exit::NotStarted { .. }) {
        EndedBy::Itself
    } else {
        ended_by
    };
    (judge(&exit, ended_by), kept.finish())
}

async fn kill(session: &Session, identity: &crate::executor::Identity) {
    let Some(container) = &identity.id else {
        return;
    };
    // The removal that follows ends it too, and alone proves anything.
    if let Err(error) = session.executor.kill(container).await {
        tracing::debug!(%error, "killing a command's container");
    }
}

/// Shows the tail so far to whoever may see it, here and elsewhere. A failure costs a refresh, nothing more.
async fn show(session: &Session, id: ReceiptId, kept: &Kept) {
    let shown = session
        .db
        .transact(&session.caller, SHOW, &(id, kept), show_in)
        .await;
    match shown {
        Ok(Some(receipt)) => announce(session, receipt),
        Ok(None) => {}
        Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "showing a tail"),
    }
}

async fn show_in(tx: &mut TenantTx, (id, kept): &(ReceiptId, &Kept)) -> Result<Option<Receipt>> {
    store::set_tail(tx, *id, kept).await?;
    store::find(tx, *id).await
}

fn announce(session: &Session, receipt: Receipt) {
    let _ = session.live.send(Arc::new(receipt));
    session.wakes.send(Wake::Agent(session.agent.uuid()));
}

fn cleanup_of(ending: &Ending) -> Cleanup {
    match ending {
        Ending::Confirmed => Cleanup::Confirmed,
        Ending::Uncertain(_) => Cleanup::Uncertain,
    }
}

/// Ends the receipt, and keeps the Team's newest.
async fn settle(
    session: &Session,
    id: ReceiptId,
    verdict: Verdict,
    cleanup: Cleanup,
    kept: Kept,
) -> Result<Receipt> {
    let verdict = with_cleanup(verdict, cleanup);
    let hints = if verdict.state == State::Failed {
        hints::read(&kept.tail)
    } else {
        Vec::new()
    };
    let settled = Settled {
        id,
        team: session.team,
        verdict: &verdict,
        cleanup,
        kept: &kept,
        hints: &hints,
    };
    let receipt = session
        .db
        .transact(&session.caller, SETTLE, &settled, settle_in)
        .await?;
    announce(session, receipt.clone());
    Ok(receipt)
}

async fn settle_in(tx: &mut TenantTx, settled: &Settled<'_>) -> Result<Receipt> {
    // Lost against whoever declared this process dead: the first end stands, and is what the Agent is told.
    store::settle(tx, settled).await?;
    store::keep_newest(tx, settled.team).await?;
    store::find(tx, settled.id)
        .await?
        .ok_or_else(Error::not_found)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<Input> {
        Input::read(value.as_object().unwrap())
    }

    #[test]
    fn c001_what_breaks_a_rule_is_refused() {
        let fine = json!({"command": "make test", "cwd": "/workspace/a/b", "purpose": "test", "timeoutSeconds": 300});
        assert_eq!(read(fine.clone()).unwrap().cwd, "a/b");
        let changes = [
            ("cwd", json!("../escape")),
            ("cwd", json!("/etc")),
            ("cwd", json!("a//b")),
            ("cwd", json!("a/.git/b")),
            ("cwd", json!("/workspace/../x")),
            ("timeoutSeconds", json!(0)),
            ("timeoutSeconds", json!(301)),
            ("purpose", json!("deploy")),
            ("image", json!("x")),
            ("command", json!("x".repeat(4097))),
            ("command", json!(" \n")),
            ("command", json!("a\u{7}b")),
        ];
        for (key, value) in changes {
            let mut case = fine.clone();
            case[key] = value;
            assert_eq!(read(case).unwrap_err().code(), Code::InvalidInput, "{key}");
        }
        let mut longest = fine;
        longest["command"] = json!("x".repeat(4096));
        assert!(read(longest).is_ok());
    }

    #[test]
    fn dangerous_commands_are_recognised_by_their_words() {
        for command in [
            "rm -rf x",
            "cd a && /bin/rm b",
            "git push origin",
            "true; kill 1",
        ] {
            assert!(is_dangerous(command), "{command}");
        }
        for command in [
            "make test",
            "cargo test --lib",
            "git status",
            "npm run format",
        ] {
            assert!(!is_dangerous(command), "{command}");
        }
    }
}
