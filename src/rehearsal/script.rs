//! What the scripted model does next, from nothing but the conversation it is sent.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::sample;
use super::wire::{Call, Chat, Done};

/// The next move.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Say(String),
    /// Calls of one message.
    Call(Vec<Call>),
    Stall,
    Fail(StatusCode),
}

/// What every answer begins with.
const LABEL: &str = "This is a scripted rehearsal, not a model.";

/// Chooses by the person's message, and goes on where the results so far end.
pub(super) fn next(chat: &Chat) -> Step {
    let directives: Vec<Directive> = chat.input.lines().map_while(Directive::parse).collect();
    if !directives.is_empty() {
        return follow(&directives, &chat.done);
    }
    let wish = chat.input.to_lowercase();
    if ["fix", "test", "bug"]
        .iter()
        .any(|word| wish.contains(word))
    {
        return mend(&chat.done).unwrap_or_else(|surprise| {
            Step::Say(format!(
                "{LABEL} Something is not as the script expects, so I stop: {surprise}"
            ))
        });
    }
    Step::Say(format!(
        "{LABEL} I can fix the sample repository (\"{}\"), and I follow directives such as \"run: COMMAND\". \
         For anything else, add a provider and choose one of its models.",
        super::FIRST_MESSAGE
    ))
}

/// A line by which a person directs the script.
#[derive(Debug, PartialEq)]
enum Directive {
    Say(String),
    Call(Vec<Call>),
    Stall,
    Fail(StatusCode),
}

impl Directive {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line == "stall" {
            return Some(Self::Stall);
        }
        let (word, rest) = line.split_once([' ', ':'])?;
        let rest = rest.trim_start_matches(':').trim();
        match word {
            "say" => Some(Self::Say(rest.to_owned())),
            "run" => Some(Self::Call(vec![command(rest, "test")])),
            "tool" => Some(Self::Call(vec![call(rest)?])),
            "together" => rest
                .split(" | ")
                .map(call)
                .collect::<Option<Vec<_>>>()
                .map(Self::Call),
            "error" => rest
                .parse()
                .ok()
                .and_then(|code| StatusCode::from_u16(code).ok())
                .map(Self::Fail),
            _ => None,
        }
    }
}

/// `NAME {JSON}`.
fn call(text: &str) -> Option<Call> {
    let (tool, arguments) = text.split_once(' ')?;
    Some(Call::new(tool, serde_json::from_str(arguments).ok()?))
}

/// Takes the first directive whose calls are not all done.
fn follow(directives: &[Directive], done: &[Done]) -> Step {
    let mut left = done.len();
    for directive in directives {
        match directive {
            Directive::Say(text) => return Step::Say(text.clone()),
            Directive::Stall => return Step::Stall,
            Directive::Fail(status) => return Step::Fail(*status),
            Directive::Call(calls) if left < calls.len() => return Step::Call(calls.clone()),
            Directive::Call(calls) => left -= calls.len(),
        }
    }
    let told: Vec<String> = done.iter().map(tell).collect();
    Step::Say(format!("{LABEL} {}", told.join(" ")))
}

/// One sentence about a call.
fn tell(done: &Done) -> String {
    match Receipt::read(&done.result) {
        Ok(receipt) => format!("`{}` {}.", receipt.command(&done.arguments), receipt.told()),
        Err(_) => {
            let start: String = done.result.chars().take(400).collect();
            format!("{} answered: {start}", done.tool)
        }
    }
}

fn command(command: &str, purpose: &str) -> Call {
    let arguments =
        json!({ "command": command, "cwd": ".", "purpose": purpose, "timeoutSeconds": 120 });
    Call::new("coding_command", arguments)
}

type Surprise = String;

/// Works through the sample repository: look, run, mend, run, read the receipt, report.
fn mend(done: &[Done]) -> Result<Step, Surprise> {
    Ok(match done {
        [] => one("repository_context", json!({ "target": "." })),
        [context] => {
            Context::read(&context.result)?;
            one("coding_environment", json!({ "target": "." }))
        }
        [_, environment] => {
            json_of(environment)?;
            let read = |path: &str| Call::new("read", json!({ "path": path }));
            Step::Call(vec![read(sample::TEST), read(sample::SOURCE)])
        }
        [context, _, _, _] => run_test(context)?,
        [_, _, _, source, first] => after_first_run(source, first)?,
        [context, _, _, _, _, edit] if edit.tool == "edit" => run_test(context)?,
        [.., run] if run.tool == "coding_command" => read_receipt(run)?,
        [context, environment, _, _, runs @ .., evidence] if evidence.tool == "coding_receipt" => {
            Step::Say(report(context, environment, runs, evidence)?)
        }
        _ => return Err("the steps so far are not mine.".into()),
    })
}

fn one(tool: &str, arguments: Value) -> Step {
    Step::Call(vec![Call::new(tool, arguments)])
}

/// Runs what the repository itself suggests as its test.
fn run_test(context: &Done) -> Result<Step, Surprise> {
    let context = Context::read(&context.result)?;
    let suggested = context
        .commands
        .iter()
        .find(|command| command.contains("test"));
    let suggested = suggested.ok_or("the repository suggests no command that runs a test.")?;
    Ok(Step::Call(vec![command(suggested, "test")]))
}

fn after_first_run(source: &Done, first: &Done) -> Result<Step, Surprise> {
    let receipt = Receipt::read(&first.result)?;
    if receipt.state == "succeeded" {
        return read_receipt(first);
    }
    if receipt.state != "failed" {
        return Err(format!("the test {}.", receipt.told()));
    }
    if !source.result.contains(sample::WRONG) {
        return Err(format!(
            "the test {}, but {} is not as in the sample.",
            receipt.told(),
            sample::SOURCE
        ));
    }
    let edits = json!([{ "oldText": sample::WRONG, "newText": sample::RIGHT }]);
    Ok(one(
        "edit",
        json!({ "path": sample::SOURCE, "edits": edits }),
    ))
}

fn read_receipt(run: &Done) -> Result<Step, Surprise> {
    let receipt = Receipt::read(&run.result)?;
    Ok(one("coding_receipt", json!({ "id": receipt.id })))
}

fn report(
    context: &Done,
    environment: &Done,
    runs: &[Done],
    evidence: &Done,
) -> Result<String, Surprise> {
    let context = Context::read(&context.result)?;
    let environment = json_of(environment)?;
    let posture = environment["posture"].as_str().unwrap_or("unnamed");
    let mut lines = vec![format!(
        "{LABEL} What follows was really done: I read {} (fingerprint {}), and ran commands in the {posture} posture.",
        context.instructions,
        context
            .fingerprint
            .get(..12)
            .unwrap_or(&context.fingerprint),
    )];
    for run in runs {
        match run.tool.as_str() {
            "coding_command" => lines.push(format!("- {}", tell(run))),
            "edit" => lines.push(format!(
                "- Edit of `{}`, `{}` to `{}`: {}",
                sample::SOURCE,
                sample::WRONG,
                sample::RIGHT,
                brief(&run.result)
            )),
            _ => {}
        }
    }
    if !runs.iter().any(|run| run.tool == "edit") {
        lines.push("- The test passed at once, so I changed nothing.".into());
    }
    let receipt = Receipt::read(&evidence.result)?;
    let value = json_of(evidence)?;
    let applies = value
        .pointer("/applicability/state")
        .and_then(Value::as_str)
        .unwrap_or("not told");
    lines.push(format!(
        "- Receipt `{}` of the last run: {}; its inputs are {applies}. It says nothing about later edits.",
        receipt.id, receipt.state
    ));
    Ok(lines.join("\n"))
}

/// What the script uses of a repository report.
struct Context {
    fingerprint: String,
    instructions: String,
    commands: Vec<String>,
}

impl Context {
    fn read(text: &str) -> Result<Self, Surprise> {
        let report: Value = parse(text, "repository_context")?;
        let list = |pointer: &str| {
            report
                .pointer(pointer)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let words = |values: Vec<Value>, key: &str| -> Vec<String> {
            values
                .iter()
                .filter_map(|value| value[key].as_str().map(str::to_owned))
                .collect()
        };
        let files = words(list("/instructions/files"), "path");
        let fingerprint = report["fingerprint"].as_str();
        Ok(Self {
            fingerprint: fingerprint
                .ok_or("the repository report has no fingerprint.")?
                .to_owned(),
            instructions: if files.is_empty() {
                "no instructions".into()
            } else {
                files.join(", ")
            },
            commands: words(list("/commands/candidates"), "command"),
        })
    }
}

/// What the script uses of a receipt.
struct Receipt {
    id: String,
    state: String,
    exit_code: Option<i64>,
    tail: String,
    input: Value,
}

impl Receipt {
    fn read(text: &str) -> Result<Self, Surprise> {
        let value = parse(text, "coding_command")?;
        let receipt = value
            .get("receipt")
            .filter(|inner| inner.is_object())
            .unwrap_or(&value);
        let word = |key: &str| receipt[key].as_str().map(str::to_owned);
        Ok(Self {
            id: word("id")
                .ok_or_else(|| format!("there is no receipt in the answer: {}", brief(text)))?,
            state: word("state").ok_or("the receipt has no state.")?,
            exit_code: receipt["exitCode"].as_i64(),
            tail: receipt
                .pointer("/output/tail")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            input: receipt["input"].clone(),
        })
    }

    fn command(&self, arguments: &Value) -> String {
        let command = self.input["command"]
            .as_str()
            .or(arguments["command"].as_str());
        command.unwrap_or("the command").to_owned()
    }

    /// State, exit code, and the last line of the output.
    fn told(&self) -> String {
        let exit = self
            .exit_code
            .map(|code| format!(" with exit code {code}"))
            .unwrap_or_default();
        let last = self.tail.lines().rev().find(|line| !line.trim().is_empty());
        let last = last
            .map(|line| format!(", its last line: {}", brief(line)))
            .unwrap_or_default();
        format!("{}{exit}{last}", self.state)
    }
}

fn json_of(done: &Done) -> Result<Value, Surprise> {
    parse(&done.result, &done.tool)
}

fn parse(text: &str, tool: &str) -> Result<Value, Surprise> {
    serde_json::from_str(text)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| format!("{tool} answered: {}", brief(text)))
}

fn brief(text: &str) -> String {
    text.trim().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(tool: &str, result: Value) -> Done {
        let result = result
            .as_str()
            .map_or_else(|| result.to_string(), str::to_owned);
        Done {
            tool: tool.into(),
            arguments: json!({"command": "python3 -m unittest"}),
            result,
        }
    }

    fn context() -> Done {
        done(
            "repository_context",
            json!({"fingerprint": "abcdef0123456789", "instructions": {"files": [{"path": "AGENTS.md"}]},
                   "commands": {"candidates": [{"command": "python3 -m unittest"}]}}),
        )
    }

    fn receipt(state: &str, exit: i64) -> Value {
        json!({"id": "r1", "state": state, "exitCode": exit, "output": {"tail": "FAILED (failures=1)\n"},
               "applicability": {"state": "fresh"}})
    }

    fn tools(step: &Step) -> Vec<&str> {
        match step {
            Step::Call(calls) => calls.iter().map(|call| call.tool.as_str()).collect(),
            other => panic!("no calls: {other:?}"),
        }
    }

    #[test]
    fn the_sample_is_mended_step_by_step() {
        let mut so_far = Vec::new();
        let results = [
            vec![context()],
            vec![done("coding_environment", json!({"posture": "docker"}))],
            vec![
                done("read", json!("test")),
                done("read", json!(format!("1\t{}", sample::WRONG))),
            ],
            vec![done("coding_command", receipt("failed", 1))],
            vec![done("edit", json!("edited"))],
            vec![done("coding_command", receipt("succeeded", 0))],
            vec![done("coding_receipt", receipt("succeeded", 0))],
        ];
        for result in results {
            let step = mend(&so_far).unwrap();
            let expected: Vec<&str> = result.iter().map(|done| done.tool.as_str()).collect();
            assert_eq!(tools(&step), expected);
            so_far.extend(result);
        }
        let Step::Say(text) = mend(&so_far).unwrap() else {
            panic!("no answer")
        };
        for part in [
            "scripted rehearsal",
            "exit code 1",
            "exit code 0",
            "fresh",
            "AGENTS.md",
            "docker",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    fn a_surprise_is_told_and_ends_the_script() {
        let blocked = [
            context(),
            done("coding_environment", json!({"posture": "docker"})),
            done("read", json!("")),
            done("read", json!("")),
            done("coding_command", receipt("blocked", 0)),
        ];
        assert!(mend(&blocked).unwrap_err().contains("blocked"));
        assert!(
            mend(&[done("repository_context", json!("no such tool"))])
                .unwrap_err()
                .contains("no such tool")
        );
    }

    #[test]
    fn directives_are_followed_in_order() {
        let lines = "run: make\ntogether: read {\"path\":\"a\"} | ls {}\nsay: done";
        let script: Vec<Directive> = lines.lines().map_while(Directive::parse).collect();
        assert_eq!(tools(&follow(&script, &[])), ["coding_command"]);
        let one = [done("coding_command", receipt("succeeded", 0))];
        assert_eq!(tools(&follow(&script, &one)), ["read", "ls"]);
        let three = [
            one[0].clone(),
            done("read", json!("")),
            done("ls", json!("")),
        ];
        assert_eq!(follow(&script, &three), Step::Say("done".into()));
        assert_eq!(
            Directive::parse("say hello"),
            Some(Directive::Say("hello".into()))
        );
        assert_eq!(
            Directive::parse("error 429"),
            Some(Directive::Fail(StatusCode::TOO_MANY_REQUESTS))
        );
        assert_eq!(Directive::parse("Fix this bug"), None);
    }
}
