//! The tools of a turn as one table: name, description, schema; and who answers each.
//!
//! - Offered are exactly these; a name that is not here is refused.
//! - No tool takes a Team, an image, a host or an executor, and none runs outside the admitted posture.
//! - Everything that touches repository files is asked of the toolbox.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::applicability::{Identities, Inputs, Then, Today, assess};
use super::command::{self, Answer, Input, Scope};
use super::environment::{self, ImageView};
use super::receipt::{Receipt, State};
use super::{Session, store};
use crate::db::{Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::ids::ReceiptId;
use crate::repo::files::{Edit, FileContent};
use crate::repo::identities::{self, InputKind};
use crate::repo::report;
use crate::repo::search::GrepQuery;
use crate::runtime::{Block, ExecutionMode, ToolAnswer, ToolCall, ToolSpec};
use crate::toolbox::{Toolbox, ToolboxError};

const READ: Op = Op::locking("coding.receipt.read");

/// Name, description, JSON schema of the properties, required keys, whether calls run one at a time.
type Row = (
    &'static str,
    &'static str,
    fn() -> Value,
    &'static [&'static str],
    bool,
);

const TABLE: &[Row] = &[
    (
        "repository_context",
        "A fresh report about a path: instructions that govern it, commands that files mention, Git state. Its fingerprint \
         is not a full code snapshot, not an environment-readiness result and not a test receipt.",
        || json!({"target": {"type": "string", "description": "Relative path; . is the root."}}),
        &["target"],
        false,
    ),
    (
        "coding_environment",
        "What this turn may run in: posture, image, restrictions. Runs nothing.",
        || json!({"target": {"type": "string", "description": "Relative path; . is the root."}}),
        &["target"],
        false,
    ),
    (
        "coding_command",
        "Runs one finite shell command in this turn's environment and returns its receipt. A failing test is a result.",
        || {
            json!({
                "command": {"type": "string", "description": "Text for /bin/sh -c; at most 4096 bytes."},
                "cwd": {"type": "string", "description": ". or a path relative to /workspace."},
                "purpose": {"type": "string", "enum": ["runtime", "dependency", "prepare", "build", "test"]},
                "timeoutSeconds": {"type": "integer", "minimum": 1, "maximum": 300}
            })
        },
        &["command", "cwd", "purpose", "timeoutSeconds"],
        true,
    ),
    (
        "coding_receipt",
        "A receipt, and whether its inputs still apply. Runs nothing. Code and dependencies are not covered.",
        || json!({"id": {"type": "string"}, "messageId": {"type": "string"}}),
        &["id"],
        false,
    ),
    (
        "read",
        "Lines of a text file, 64 KiB a call, or an image.",
        || json!({"path": {"type": "string"}, "offset": {"type": "integer"}, "limit": {"type": "integer"}}),
        &["path"],
        false,
    ),
    (
        "write",
        "Writes a whole file.",
        || json!({"path": {"type": "string"}, "content": {"type": "string"}}),
        &["path", "content"],
        false,
    ),
    (
        "edit",
        "Replaces texts in a file; each oldText must occur exactly once.",
        || {
            json!({"path": {"type": "string"}, "edits": {"type": "array", "items": {"type": "object",
                "properties": {"oldText": {"type": "string"}, "newText": {"type": "string"}},
                "required": ["oldText", "newText"], "additionalProperties": false}}})
        },
        &["path", "edits"],
        false,
    ),
    (
        "ls",
        "A directory's entries.",
        || json!({"path": {"type": "string"}}),
        &[],
        false,
    ),
    (
        "find",
        "Paths that match a glob.",
        || json!({"pattern": {"type": "string"}, "path": {"type": "string"}}),
        &["pattern"],
        false,
    ),
    (
        "grep",
        "Lines that match a regular expression; at most 200, honours .gitignore.",
        || {
            json!({"pattern": {"type": "string"}, "path": {"type": "string"}, "glob": {"type": "string"},
                "ignoreCase": {"type": "boolean"}, "context": {"type": "integer"}})
        },
        &["pattern"],
        false,
    ),
];

/// What is offered to the model.
pub fn specs() -> Vec<ToolSpec> {
    let spec = |row: &Row| ToolSpec {
        name: row.0.to_owned(),
        description: row.1.to_owned(),
        parameters: json!({"type": "object", "properties": row.2(), "required": row.3, "additionalProperties": false}),
        execution_mode: if row.4 {
            ExecutionMode::Sequential
        } else {
            ExecutionMode::Parallel
        },
    };
    TABLE.iter().map(spec).collect()
}

/// The tools of one turn.
pub struct Tools {
    pub session: Arc<Session>,
    pub toolbox: Toolbox,
    /// Fires when the turn shall end; commands end with it.
    pub cancelled: CancellationToken,
}

/// What a call came to, for the turn's own judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Known,
    /// It may have acted, and nobody knows.
    Unclear,
}

impl Tools {
    /// Answers one call. Runs to its end whatever happens to the engine.
    pub async fn answer(&self, call: ToolCall) -> Effect {
        let ToolCall {
            name,
            call_id,
            arguments,
            cancelled,
            reply,
        } = call;
        let answered = match name.as_str() {
            "coding_command" => self.command(&call_id, &arguments, &cancelled).await,
            _ => self
                .quick(&name, arguments)
                .await
                .map(|answer| (answer, Effect::Known)),
        };
        let (answer, effect) = answered.unwrap_or_else(|failure| failure.answer());
        // The engine may be gone; what was done is recorded all the same.
        let _ = reply.send(answer);
        effect
    }

    async fn quick(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolAnswer, Failure> {
        match name {
            "repository_context" => self.context(read(arguments)?).await,
            "coding_environment" => self.environment(read(arguments)?).await,
            "coding_receipt" => self.receipt(read(arguments)?).await,
            "read" => self.read_file(read(arguments)?).await,
            "write" => {
                let args: WriteArgs = read(arguments)?;
                json_answer(&self.toolbox.write(&args.path, &args.content).await?)
            }
            "edit" => {
                let args: EditArgs = read(arguments)?;
                json_answer(&self.toolbox.edit(&args.path, args.edits).await?)
            }
            "ls" => {
                let args: LsArgs = read(arguments)?;
                json_answer(&self.toolbox.ls(args.path.as_deref()).await?)
            }
            "find" => {
                let args: FindArgs = read(arguments)?;
                json_answer(
                    &self
                        .toolbox
                        .find(&args.pattern, args.path.as_deref())
                        .await?,
                )
            }
            "grep" => json_answer(&self.toolbox.grep(read::<GrepQuery>(arguments)?).await?),
            _ => Err(Error::invalid("", "tool", "There is no such tool.").into()),
        }
    }

    async fn context(&self, args: Target) -> Result<ToolAnswer, Failure> {
        let team = self.session.team.to_string();
        let root = &self.session.admitted.root_identity;
        json_answer(
            &self
                .toolbox
                .context(&team, &args.target, Some(root))
                .await?,
        )
    }

    async fn environment(&self, args: Target) -> Result<ToolAnswer, Failure> {
        let admitted = &self.session.admitted;
        let identities = self.toolbox.environment(&args.target).await?;
        let now = self
            .session
            .db
            .transact(&self.session.caller, READ, &(), now_in)
            .await?;
        json_answer(&environment::Report {
            posture: admitted.posture,
            image: admitted
                .posture
                .in_container()
                .then(|| ImageView::from(&admitted.image)),
            cwd: identities.cwd,
            root_identity: identities.root_identity,
            input_fingerprint: identities.input_fingerprint,
            captured_at: now,
            restrictions: environment::restrictions(admitted.posture, &admitted.restrictions),
            network: if admitted.posture.in_container() {
                "none"
            } else {
                "host"
            },
            workspace: "/workspace",
        })
    }

    async fn command(
        &self,
        call: &str,
        arguments: &Map<String, Value>,
        cancelled: &CancellationToken,
    ) -> Result<(ToolAnswer, Effect), Failure> {
        let input = Input::read(arguments)?;
        let scope = match self.toolbox.environment(&input.cwd).await? {
            found if found.instructions == report::State::Incomplete => Scope::Incomplete,
            found => Scope::Complete(self.inputs(&found)),
        };
        // Ends with the call, and with the turn.
        let ends = self.cancelled.child_token();
        let forward = tokio::spawn({
            let (call, ends) = (cancelled.clone(), ends.clone());
            async move {
                call.cancelled().await;
                ends.cancel();
            }
        });
        let ran = command::run(&self.session, call, &input, scope, &ends).await;
        forward.abort();
        let ran = ran?;
        let (Answer::Ran(receipt) | Answer::Repeated(receipt)) = ran;
        let unclear = receipt.state == State::Interrupted;
        Ok((
            receipt_answer(&receipt)?,
            if unclear {
                Effect::Unclear
            } else {
                Effect::Known
            },
        ))
    }

    /// The evidence for a receipt; none when an input could not be read.
    fn inputs(&self, found: &identities::Identities) -> Option<Inputs> {
        found.input_fingerprint.as_ref()?;
        let of = |wanted: &[InputKind]| -> Identities {
            let chosen = found
                .inputs
                .iter()
                .filter(|input| wanted.contains(&input.kind));
            chosen
                .map(|input| (input.path.clone(), input.sha256.clone()))
                .collect()
        };
        let admitted = &self.session.admitted;
        Some(Inputs {
            instructions: of(&[InputKind::Instruction]),
            sources: of(&[InputKind::CommandSource]),
            manifests: of(&[InputKind::Manifest, InputKind::Lockfile]),
            posture: admitted.posture,
            image_id: admitted
                .posture
                .in_container()
                .then(|| admitted.image.id.clone()),
            root_identity: found.root_identity.clone(),
            defaults_revision: admitted.defaults_revision,
        })
    }

    /// The receipt of the Agent itself; another's needs the message that handed it on.
    async fn receipt(&self, args: ReceiptArgs) -> Result<ToolAnswer, Failure> {
        let denied = || {
            Error::refused(
                Code::NotFound,
                "There is no receipt that you may read by this.",
            )
        };
        let id: ReceiptId = args.id.parse().map_err(|_| denied())?;
        let found = self
            .session
            .db
            .transact(&self.session.caller, READ, &id, receipt_in)
            .await?;
        let (receipt, evidence, now) = found.ok_or_else(denied)?;
        if receipt.team_id != self.session.team || receipt.agent_id != self.session.agent {
            return Err(denied().into());
        }
        let cwd = receipt.input["cwd"].as_str().unwrap_or(".").to_owned();
        let today = match self.toolbox.environment(&cwd).await {
            Ok(found) if found.instructions == report::State::Incomplete => {
                Today::InstructionsIncomplete
            }
            Ok(found) => self.inputs(&found).map_or(Today::Unreadable, Today::Known),
            Err(_) => Today::Unreadable,
        };
        let taken: Option<Inputs> = evidence
            .taken
            .and_then(|value| serde_json::from_value(value).ok());
        let then = Then {
            state: receipt.state,
            started_at: receipt.started_at,
            inputs: taken.as_ref(),
            owner_lives: evidence.owner_lives,
        };
        let answer = json!({"receipt": receipt, "applicability": assess(&then, &today, now)});
        Ok(ToolAnswer::text(answer.to_string()).with_details(json!({"receiptId": id})))
    }

    async fn read_file(&self, args: ReadArgs) -> Result<ToolAnswer, Failure> {
        match self
            .toolbox
            .read(&args.path, args.offset, args.limit)
            .await?
        {
            FileContent::Image {
                mime, base64: data, ..
            } => Ok(ToolAnswer {
                content: vec![Block::Image {
                    data,
                    mime_type: mime,
                }],
                ..ToolAnswer::default()
            }),
            text => json_answer(&text),
        }
    }
}

async fn now_in(tx: &mut TenantTx, (): &()) -> Result<time::OffsetDateTime> {
    Ok(tx.now())
}

type Found = (Receipt, store::Evidence, time::OffsetDateTime);

async fn receipt_in(tx: &mut TenantTx, id: &ReceiptId) -> Result<Option<Found>> {
    let Some(receipt) = store::find(tx, *id).await? else {
        return Ok(None);
    };
    let evidence = store::evidence(tx, *id).await?;
    Ok(Some((receipt, evidence, tx.now())))
}

fn receipt_answer(receipt: &Receipt) -> Result<ToolAnswer, Failure> {
    let details = json!({
        "receiptId": receipt.id,
        "state": receipt.state,
        "exitCode": receipt.exit_code,
    });
    Ok(json_answer(receipt)?.with_details(details))
}

fn json_answer(value: &impl serde::Serialize) -> Result<ToolAnswer, Failure> {
    let text =
        serde_json::to_string(value).map_err(|e| Error::internal("writing a tool's answer", e))?;
    Ok(ToolAnswer::text(text))
}

/// Why a tool has no result; becomes an error result that the model reads.
enum Failure {
    Refused(Error),
    Toolbox(ToolboxError),
}

impl Failure {
    fn answer(self) -> (ToolAnswer, Effect) {
        match self {
            Failure::Refused(Error::Refused(refusal)) => (
                ToolAnswer::error(format!("{}: {}", refusal.code, refusal.detail)),
                Effect::Known,
            ),
            Failure::Refused(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a tool failed");
                (
                    ToolAnswer::error(
                        "The runtime failed while it answered; what happened is not known.",
                    ),
                    Effect::Unclear,
                )
            }
            Failure::Toolbox(ToolboxError::Closed) => (
                ToolAnswer::error(ToolboxError::Closed.to_string()),
                Effect::Unclear,
            ),
            Failure::Toolbox(error) => (ToolAnswer::error(error.to_string()), Effect::Known),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<ToolboxError> for Failure {
    fn from(error: ToolboxError) -> Self {
        Failure::Toolbox(error)
    }
}

fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|e| {
        Error::invalid(
            "",
            "shape",
            format!("The arguments do not fit the tool's schema: {e}"),
        )
        .into()
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    target: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReceiptArgs {
    id: String,
    #[serde(default)]
    #[expect(
        dead_code,
        reason = "handing a receipt on is checked with the message that carries it"
    )]
    message_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditArgs {
    path: String,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LsArgs {
    path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindArgs {
    pattern: String,
    path: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tool_takes_a_team_an_image_a_host_or_an_executor_and_every_schema_is_closed() {
        for spec in specs() {
            assert_eq!(
                spec.parameters["additionalProperties"], false,
                "{}",
                spec.name
            );
            for key in ["team", "image", "host", "executor", "posture"] {
                assert!(
                    spec.parameters["properties"].get(key).is_none(),
                    "{} takes {key}",
                    spec.name
                );
            }
        }
    }
}
