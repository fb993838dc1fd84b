//! `bazilion profile`: the templates that Agents are made from.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::session::Session;
use crate::console::output::{card, table};
use crate::console::{Exit, Failure};

/// Verbs of profiles.
#[derive(Debug, Subcommand)]
pub enum Profile {
    /// The profiles of the home
    List,
    /// Make a profile
    Add(Add),
}

/// `bazilion profile add`.
#[derive(Debug, clap::Args)]
pub struct Add {
    slug: String,
    /// Its name [default: the slug]
    #[arg(long)]
    name: Option<String>,
    /// Default model
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: String,
    /// File with SOUL.md
    #[arg(long, value_name = "FILE")]
    soul: Option<PathBuf>,
    /// File with IDENTITY.md
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// File with the Agent's own AGENTS.md
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
    /// File with TOOLS.md
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
}

impl Profile {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        match self {
            Profile::List => {
                let list = session.client.list(&["profiles"], &[]).await?;
                session.shown(&list, |list| {
                    table(
                        list,
                        &[
                            ("SLUG", "/slug"),
                            ("NAME", "/name"),
                            ("MODEL", "/defaultModel"),
                            ("REASONING", "/reasoning"),
                        ],
                    )
                })
            }
            Profile::Add(add) => {
                let made = session.client.post(&["profiles"], &add.body()?).await?;
                session.shown(&made, |made| {
                    card(
                        made,
                        &[
                            ("slug", "/slug"),
                            ("name", "/name"),
                            ("model", "/defaultModel"),
                        ],
                    )
                })
            }
        }
    }
}

impl Add {
    fn body(&self) -> Result<Value, Failure> {
        let mut persona = Map::new();
        for (part, file) in [
            ("soul", &self.soul),
            ("identity", &self.identity),
            ("agents", &self.agents),
            ("tools", &self.tools),
        ] {
            if let Some(file) = file {
                persona.insert(part.into(), json!(text_of(file)?));
            }
        }
        let name = self.name.as_deref().unwrap_or(&self.slug);
        let mut body = json!({"slug": self.slug, "name": name, "defaultModel": self.model});
        if !persona.is_empty() {
            body["persona"] = Value::Object(persona);
        }
        Ok(body)
    }
}

fn text_of(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}
