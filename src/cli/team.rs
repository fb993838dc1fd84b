//! `bazilion team`: Teams, what their repository says, and the evidence of their commands.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use super::card;
use super::session::Session;
use crate::console::output::{Column, cell, table, visible};
use crate::console::{Exit, Failure, output};

/// Verbs of Teams.
#[derive(Debug, Subcommand)]
pub enum Team {
    /// The Teams of the home
    List,
    /// Make a Team with a workspace of its own, or with a linked directory
    #[command(after_help = "Example:\n  bazilion team add Parser --link ~/src/parser")]
    Add {
        /// Its name
        name: String,
        /// Short name in addresses [default: made from the name]
        #[arg(long)]
        slug: Option<String>,
        /// An existing directory on the executor; never deleted by Bazilion
        #[arg(long, value_name = "PATH")]
        link: Option<PathBuf>,
        /// Where its commands run [default: the instance's]
        #[arg(long)]
        executor: Option<String>,
    },
    /// One Team
    Show {
        /// The Team: id or short name
        team: String,
    },
    /// Remove a Team; a linked directory stays as it is
    Remove {
        /// The Team: id or short name
        team: String,
    },
    /// What an Agent would be told about the repository: instructions, command suggestions, Git state
    Context {
        /// The Team: id or short name
        team: String,
        /// A file or directory inside the Team's root
        #[arg(long, value_name = "PATH")]
        target: Option<String>,
    },
    /// Where commands run, and optional defaults
    #[command(subcommand)]
    Environment(Environment),
    /// Evidence of commands: a list, or one receipt with its output
    Receipts {
        /// The Team: id or short name
        team: String,
        /// One receipt, with its output
        receipt: Option<String>,
        /// Of one turn only
        #[arg(long, value_name = "ID", conflicts_with = "receipt")]
        turn: Option<String>,
    },
    /// Who may speak to whom
    #[command(subcommand)]
    Policy(Policy),
}

/// Verbs of a Team's environment.
#[derive(Debug, Subcommand)]
pub enum Environment {
    /// Today's defaults, posture and workspace
    Show {
        /// The Team: id or short name
        team: String,
    },
    /// Save defaults; the file is the request: {"expectedRevision": N, "config": {…}}
    Configure {
        /// The Team: id or short name
        team: String,
        /// JSON file; `-` or nothing is standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// Verbs of a Team's policy.
#[derive(Debug, Subcommand)]
pub enum Policy {
    /// The edges and their revision
    Show {
        /// The Team: id or short name
        team: String,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("SLUG", "/slug"),
    ("NAME", "/name"),
    ("ROOT", "/root/kind"),
    ("EXECUTOR", "/executor"),
];

const ROWS: &[Column] = &[
    ("id", "/id"),
    ("slug", "/slug"),
    ("name", "/name"),
    ("root", "/root/kind"),
    ("path", "/root/path"),
    ("executor", "/executor"),
    ("policy revision", "/policyRevision"),
    ("created", "/createdAt"),
];

impl Team {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let client = &session.client;
        match self {
            Team::List => {
                let list = client.list(&["teams"], &[]).await?;
                session.shown(&list, |list| table(list, COLUMNS))
            }
            Team::Add {
                name,
                slug,
                link,
                executor,
            } => add(session, &name, slug, link, executor).await,
            Team::Show { team } => {
                let shown: Value = client.get(&["teams", &team], &[]).await?;
                session.shown(&shown, |team| output::card(team, ROWS))
            }
            Team::Remove { team } => {
                let answer = client.delete(&["teams", &team], &[]).await?;
                session.done(&answer, "Removed.")
            }
            Team::Context { team, target } => {
                let query: Vec<_> = target
                    .map(|target| ("target", target))
                    .into_iter()
                    .collect();
                let path = ["teams", team.as_str(), "repository-context"];
                let report: Value = client.get(&path, &query).await?;
                session.shown(&report, context)
            }
            Team::Environment(verb) => verb.run(session).await,
            Team::Receipts {
                team,
                receipt: Some(receipt),
                ..
            } => {
                let path = ["teams", team.as_str(), "receipts", &receipt];
                let receipt: Value = client.get(&path, &[]).await?;
                session.shown(&receipt, card::receipt)
            }
            Team::Receipts { team, turn, .. } => {
                let query: Vec<_> = turn.map(|turn| ("turnId", turn)).into_iter().collect();
                let list = client.list(&["teams", &team, "receipts"], &query).await?;
                session.shown(&list, |list| table(list, card::COLUMNS))
            }
            Team::Policy(Policy::Show { team }) => {
                let policy: Value = client.get(&["teams", &team, "policy"], &[]).await?;
                session.shown(&policy, edges)
            }
        }
    }
}

async fn add(
    session: &Session<'_>,
    name: &str,
    slug: Option<String>,
    link: Option<PathBuf>,
    executor: Option<String>,
) -> Result<Exit, Failure> {
    let root = match link {
        None => json!({"kind": "managed"}),
        Some(path) => {
            let path = std::path::absolute(&path)
                .map_err(|error| Failure::usage(format!("--link: {error}")))?;
            let path = path.to_str().map(str::to_owned);
            let path = path.ok_or_else(|| Failure::usage("--link: the path is not UTF-8 text"))?;
            json!({"kind": "linked", "path": path})
        }
    };
    let slug = slug.unwrap_or_else(|| slug_of(name));
    let mut body = json!({"slug": slug, "name": name, "root": root});
    if let Some(executor) = executor {
        body["executor"] = json!(executor);
    }
    let made = session.client.post(&["teams"], &body).await?;
    session.shown(&made, |team| output::card(team, ROWS))
}

/// Lower case, with one dash for each run of anything else.
fn slug_of(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

impl Environment {
    async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let client = &session.client;
        match self {
            Environment::Show { team } => {
                let path = ["teams", team.as_str(), "coding-environment"];
                let shown: Value = client.get(&path, &[]).await?;
                session.shown(&shown, environment)
            }
            Environment::Configure { team, file } => {
                let path = ["teams", team.as_str(), "coding-environment"];
                let body = read_json(file.as_deref())?;
                if body
                    .get("expectedRevision")
                    .and_then(Value::as_u64)
                    .is_none()
                {
                    let today: Value = client.get(&path, &[]).await?;
                    session.out.show(&today, environment);
                    return Err(Failure::usage(
                        "The file lacks `expectedRevision`, so nothing was saved. Today's defaults are on standard \
                         output; a first write expects 0.",
                    ));
                }
                let saved = client.put(&path, &body).await?;
                session.shown(&saved, environment)
            }
        }
    }
}

/// A JSON document from a file or standard input.
pub(super) fn read_json(file: Option<&Path>) -> Result<Value, Failure> {
    let mut text = String::new();
    let (read, name) = match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let read =
                std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text));
            (read, file.display().to_string())
        }
        None => (
            std::io::stdin().read_to_string(&mut text),
            "standard input".into(),
        ),
    };
    read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

fn environment(shown: &Value) -> String {
    output::card(
        shown,
        &[
            ("posture", "/posture"),
            ("image", "/image/reference"),
            ("image", "/image"),
            ("workspace", "/workspace"),
            ("revision", "/environment/revision"),
            ("defaults", "/environment/config"),
            ("updated", "/environment/updatedAt"),
        ],
    )
}

fn context(report: &Value) -> String {
    let mut text = String::new();
    // Writing to a String can not fail.
    let _ = writeln!(text, "target       {}", cell(report, "/target"));
    let _ = writeln!(text, "fingerprint  {}", cell(report, "/fingerprint"));
    let _ = writeln!(text, "             {}", cell(report, "/note"));
    let _ = writeln!(
        text,
        "\ninstructions: {}",
        cell(report, "/instructions/state")
    );
    for file in list(report, "/instructions/files") {
        let (path, scope) = (cell(file, "/path"), cell(file, "/scope"));
        let _ = writeln!(
            text,
            "  {} {path} (governs {scope})",
            cell(file, "/precedence")
        );
        let content = file
            .get("content")
            .and_then(Value::as_str)
            .unwrap_or_default();
        for line in visible(content).lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    issues(&mut text, report, "/instructions/issues");
    suggestions(&mut text, report);
    let _ = writeln!(text, "\ngit: {}", cell(report, "/git/state"));
    for (title, pointer) in GIT {
        let shown = cell(report, pointer);
        if !shown.is_empty() {
            let _ = writeln!(text, "  {title} {shown}");
        }
    }
    issues(&mut text, report, "/git/issues");
    text
}

fn suggestions(text: &mut String, report: &Value) {
    let _ = writeln!(
        text,
        "\ncommand suggestions: {}",
        cell(report, "/commands/state")
    );
    for candidate in list(report, "/commands/candidates") {
        let (command, source) = (cell(candidate, "/command"), cell(candidate, "/source"));
        let _ = writeln!(
            text,
            "  {command}  ({source}, {})",
            cell(candidate, "/location")
        );
    }
    issues(text, report, "/commands/issues");
}

const GIT: &[Column] = &[
    ("branch", "/git/branch"),
    ("head", "/git/head"),
    ("staged", "/git/staged"),
    ("unstaged", "/git/unstaged"),
    ("untracked", "/git/untracked"),
    ("conflicted", "/git/conflicted"),
];

fn issues(text: &mut String, report: &Value, pointer: &str) {
    for issue in list(report, pointer) {
        let (code, path) = (cell(issue, "/code"), cell(issue, "/path"));
        let _ = writeln!(
            text,
            "  ! {code} {path} {} {}",
            cell(issue, "/message"),
            cell(issue, "/fix")
        );
    }
}

fn list<'v>(value: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn edges(policy: &Value) -> String {
    let edges = json!({"items": policy.get("edges")});
    let columns = [
        ("FROM", "/source"),
        ("AGENT", "/sourceAgentId"),
        ("TO", "/target"),
        ("AGENT", "/targetAgentId"),
        ("EFFECT", "/effect"),
    ];
    let revision = cell(policy, "/revision");
    format!("revision {revision}\n{}", table(&edges, &columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_made_from_a_name() {
        assert_eq!(slug_of("Parser & Lexer"), "parser-lexer");
        assert_eq!(slug_of("  API v2 "), "api-v2");
    }
}
