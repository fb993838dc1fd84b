//! Model providers of a home: kind, base URL, models, and a key that can be written and never read back.
//!
//! - The key is sealed with the home's data key; it leaves this module only into a turn's gateway.
//! - A base URL on a loopback or private address is allowed only where the instance allows it.
//! - The *rehearsal* provider is scripted; it says so wherever it shows.

pub mod api;
mod store;

use std::net::IpAddr;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::db::TenantTx;
use crate::error::{Code, Error, Result};
use crate::limits;
use crate::secret::MasterKey;
use crate::tenant;

pub use store::{delete, find, list};

/// The wire form a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub enum Kind {
    #[serde(rename = "openai-completions")]
    OpenaiCompletions,
    #[serde(rename = "anthropic-messages")]
    AnthropicMessages,
}

impl Kind {
    /// The word in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::OpenaiCompletions => "openai-completions",
            Kind::AnthropicMessages => "anthropic-messages",
        }
    }

    fn parse(word: &str) -> Result<Self> {
        match word {
            "openai-completions" => Ok(Kind::OpenaiCompletions),
            "anthropic-messages" => Ok(Kind::AnthropicMessages),
            other => Err(Error::Corrupt {
                table: "providers",
                what: format!("kind {other}"),
            }),
        }
    }
}

/// One model that a provider offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    pub id: String,
    /// Tokens; Pi's default of 128,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Tokens of one answer; Pi's default of 16,384 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Whether images go into the prompt.
    #[serde(default)]
    pub images: bool,
    /// Whether the model takes a reasoning level.
    #[serde(default)]
    pub reasoning: bool,
}

/// A provider as people see it: whether there is a key, never which.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    pub name: String,
    pub kind: Kind,
    pub base_url: String,
    pub models: Vec<Model>,
    pub has_key: bool,
    /// A rehearsal: its model is a script.
    pub scripted: bool,
    pub revision: i64,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: OffsetDateTime,
}

/// `PUT /api/providers/:name`. Without `apiKey` a stored key stays.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutProvider {
    pub kind: Kind,
    pub base_url: String,
    #[schema(value_type = Option<String>)]
    pub api_key: Option<SecretString>,
    pub models: Vec<Model>,
}

/// What a put needs beside its body.
pub struct Put<'a> {
    pub name: &'a str,
    pub body: &'a PutProvider,
    pub scripted: bool,
    pub master: &'a MasterKey,
    /// Loopback and private addresses are fine here.
    pub allow_private: bool,
}

/// A model, resolved for one turn.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub provider: String,
    pub kind: Kind,
    pub base_url: String,
    pub key: Option<SecretString>,
    pub model: Model,
    pub scripted: bool,
}

/// Creates or replaces a provider.
pub async fn put(tx: &mut TenantTx, put: &Put<'_>) -> Result<Provider> {
    check(put)?;
    let sealed = match &put.body.api_key {
        Some(key) => {
            let home_key = tenant::home_key(tx, put.master).await?;
            let sealed = home_key
                .seal(&purpose(put.name), key)
                .map_err(|e| Error::internal("sealing a provider's key", e))?;
            Some(sealed)
        }
        None => None,
    };
    store::upsert(tx, put.name, put.body, sealed, put.scripted).await?;
    tenant::audit::record(tx, &tenant::audit::Act::ok("provider.put", put.name)).await?;
    find(tx, put.name).await
}

/// Resolves `provider:model`, with the key opened for the one turn.
pub async fn resolve(tx: &mut TenantTx, reference: &str, master: &MasterKey) -> Result<Resolved> {
    let missing = |what: &str| {
        Error::refused(
            Code::NotReady,
            format!("{what} Check the Agent's model and the home's providers."),
        )
    };
    let (name, model) = split_reference(reference)
        .ok_or_else(|| missing("The Agent's model is not written as provider:model."))?;
    let (provider, sealed) = store::find_sealed(tx, name)
        .await?
        .ok_or_else(|| missing(&format!("The provider {name} is not set up in this home.")))?;
    let model = provider
        .models
        .into_iter()
        .find(|m| m.id == model)
        .ok_or_else(|| {
            missing(&format!(
                "The provider {name} does not list the model {model}."
            ))
        })?;
    let key = match sealed {
        Some(sealed) => {
            let home_key = tenant::home_key(tx, master).await?;
            let opened = home_key.open(&purpose(name), &sealed);
            Some(opened.map_err(|e| Error::internal("opening a provider's key", e))?)
        }
        None => None,
    };
    Ok(Resolved {
        provider: provider.name,
        kind: provider.kind,
        base_url: provider.base_url,
        key,
        model,
        scripted: provider.scripted,
    })
}

/// Splits `provider:model`; a model id may hold further colons.
pub fn split_reference(reference: &str) -> Option<(&str, &str)> {
    reference
        .split_once(':')
        .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
}

fn purpose(name: &str) -> String {
    format!("provider:{name}")
}

fn check(put: &Put<'_>) -> Result<()> {
    let name_ok = !put.name.is_empty()
        && put.name.len() <= 64
        && put
            .name
            .starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && put
            .name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c));
    if !name_ok {
        return Err(Error::invalid(
            "name",
            "name",
            "Use 1 to 64 lower-case letters, digits, dots, underscores and hyphens.",
        ));
    }
    check_base_url(&put.body.base_url, put.allow_private)?;
    let models = &put.body.models;
    if models.is_empty() || models.len() > limits::PROVIDER_MODELS_MAX {
        return Err(Error::invalid("models", "count", "List 1 to 100 models."));
    }
    for (i, model) in models.iter().enumerate() {
        let twice = models[..i].iter().any(|other| other.id == model.id);
        let odd =
            model.id.is_empty() || model.id.len() > 200 || model.id.chars().any(char::is_control);
        if twice || odd {
            let rule = "A model id has 1 to 200 printable characters and stands once in the list.";
            return Err(Error::invalid(format!("models[{i}].id"), "model", rule));
        }
    }
    Ok(())
}

/// Refuses what is no plain HTTP(S) base URL, and private addresses where they are not allowed.
fn check_base_url(text: &str, allow_private: bool) -> Result<()> {
    let refuse = |message: &str| Err(Error::invalid("baseUrl", "url", message));
    let Ok(url) = reqwest::Url::parse(text) else {
        return refuse("Give an absolute http or https URL.");
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return refuse("Give an absolute http or https URL.");
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return refuse(
            "The URL holds no user, password, query or fragment; the key goes into apiKey.",
        );
    }
    let private = url.host_str().is_some_and(is_private);
    if !allow_private && (private || url.scheme() == "http") {
        return refuse("Private addresses and plain http need the instance's permission.");
    }
    Ok(())
}

/// Whether a host is written as an address that does not leave this network. Names are checked when they are used.
fn is_private(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => is_private_address(address),
        Err(_) => bare == "localhost" || bare.ends_with(".localhost"),
    }
}

/// Loopback, link-local, private, unspecified: not for a provider unless the instance allows it.
pub fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.octets()[0] == 100
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => is_private_address(IpAddr::V4(v4)),
            None => {
                v6.is_loopback()
                    || v6.is_unspecified()
                    || v6.is_unique_local()
                    || v6.is_unicast_link_local()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_plain_and_public_unless_allowed() {
        assert!(check_base_url("https://api.example.com/v1", false).is_ok());
        assert!(check_base_url("http://127.0.0.1:9/v1", true).is_ok());
        for bad in [
            "http://127.0.0.1:9/v1",
            "https://10.0.0.1/v1",
            "https://[::1]/v1",
            "https://[::ffff:10.0.0.1]/",
            "https://localhost/v1",
            "http://api.example.com/v1",
        ] {
            assert!(check_base_url(bad, false).is_err(), "{bad}");
        }
        for bad in ["ftp://x/", "x", "https://u:p@x/", "https://x/?key=1", ""] {
            assert!(check_base_url(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_model_id_may_hold_colons() {
        assert_eq!(
            split_reference("local:qwen3:8b"),
            Some(("local", "qwen3:8b"))
        );
        assert_eq!(split_reference("local:"), None);
        assert_eq!(split_reference("local"), None);
    }
}
