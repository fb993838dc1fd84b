//! `bazilion provider`: where models are. A key is read from the environment or standard input, never from a flag.

use clap::Subcommand;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::session::Session;
use crate::console::login::read_secret;
use crate::console::output::{Column, card, table};
use crate::console::{Exit, Failure};

/// Verbs of model providers.
#[derive(Debug, Subcommand)]
pub enum Provider {
    /// The providers of the home
    List,
    /// Add or change a provider
    #[command(after_help = "\
Without a key flag a key that is stored already stays.

Example:
  bazilion provider set local --base-url http://127.0.0.1:11434/v1 --model qwen3 --context-window 32768")]
    Set(Set),
    /// Ask the provider for an answer
    Test { name: String },
    /// Forget a provider and its key
    Remove { name: String },
}

/// `bazilion provider set`.
#[derive(Debug, clap::Args)]
pub struct Set {
    name: String,
    /// The language it speaks
    #[arg(long, default_value = "openai-completions")]
    #[arg(value_parser = ["openai-completions", "anthropic-messages"])]
    kind: String,
    /// Its address; for openai-completions with /v1
    #[arg(long, value_name = "URL")]
    base_url: String,
    /// A model's id; may be repeated
    #[arg(long = "model", value_name = "ID", required = true)]
    models: Vec<String>,
    /// Tokens that the models can look at
    #[arg(long, value_name = "TOKENS")]
    context_window: Option<u64>,
    /// Tokens of the longest answer
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<u64>,
    /// The models accept images
    #[arg(long)]
    images: bool,
    /// The models reason before they answer
    #[arg(long)]
    reasoning: bool,
    /// Read the key from this environment variable
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Read the key from standard input
    #[arg(long, conflicts_with = "key_env")]
    key_stdin: bool,
}

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("KIND", "/kind"),
    ("BASE URL", "/baseUrl"),
    ("KEY", "/hasKey"),
];

impl Provider {
    /// Runs the verb.
    pub async fn run(self, session: &Session<'_>) -> Result<Exit, Failure> {
        let client = &session.client;
        match self {
            Provider::List => {
                let list = client.list(&["providers"], &[]).await?;
                session.shown(&list, |list| table(list, COLUMNS))
            }
            Provider::Set(set) => {
                let body = set.body()?;
                let saved = client.put(&["providers", &set.name], &body).await?;
                session.done(&saved, "Saved.")
            }
            Provider::Test { name } => {
                let answer = client
                    .post(&["providers", &name, "test"], &json!({}))
                    .await?;
                session.shown(&answer, |answer| {
                    let rows = [("ok", "/ok"), ("model", "/model"), ("detail", "/detail")];
                    card(answer, &rows)
                })
            }
            Provider::Remove { name } => {
                let answer = client.delete(&["providers", &name], &[]).await?;
                session.done(&answer, "Removed.")
            }
        }
    }
}

impl Set {
    fn body(&self) -> Result<Value, Failure> {
        let model = |id: &String| {
            let mut model = json!({"id": id});
            if let Some(tokens) = self.context_window {
                model["contextWindow"] = json!(tokens);
            }
            if let Some(tokens) = self.max_tokens {
                model["maxTokens"] = json!(tokens);
            }
            if self.images {
                model["images"] = json!(true);
            }
            if self.reasoning {
                model["reasoning"] = json!(true);
            }
            model
        };
        let models: Vec<Value> = self.models.iter().map(model).collect();
        let mut body = json!({"kind": self.kind, "baseUrl": self.base_url, "models": models});
        if let Some(key) = self.key()? {
            body["apiKey"] = json!(key.expose_secret());
        }
        Ok(body)
    }

    fn key(&self) -> Result<Option<SecretString>, Failure> {
        if self.key_stdin {
            return read_secret("Provider's key: ").map(Some);
        }
        let Some(variable) = &self.key_env else {
            return Ok(None);
        };
        let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
        let key = key.ok_or_else(|| Failure::usage(format!("{variable} is not set.")))?;
        Ok(Some(key.into()))
    }
}
