//! What a turn may run in, and a Team's optional runtime defaults.
//!
//! - The report runs nothing. The text says what is, for this turn.
//! - Defaults are one image of the home's allow-list, a working directory, and three harmless variables. Anything else
//!   is refused, and no value is echoed. Saving runs nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;

use super::store;
use crate::db::TenantTx;
use crate::error::{Code, Error, FieldError, Result};
use crate::executor::{Image, Restriction};
use crate::ids::TeamId;
use crate::team;
use crate::tenant::audit::{self, Act};
use crate::tenant::permission::{Action, require};
use crate::turn::Posture;
use crate::{tenant, workspace};

/// What a Team saved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The saved defaults with their revision.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Defaults {
    pub team_id: TeamId,
    pub revision: i64,
    pub config: Config,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: OffsetDateTime,
}

/// `GET /api/teams/:team/coding-environment`.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamEnvironment {
    pub environment: Option<Defaults>,
    pub posture: Posture,
    /// The image that commands of a turn admitted now would run in.
    pub image: Option<String>,
    /// `free`, `busy` or `recovery`.
    pub workspace: String,
}

/// `PUT /api/teams/:team/coding-environment`. The body is read loosely, so that a refusal can name the place without
/// the value.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutEnvironment {
    #[serde(deserialize_with = "crate::http::extract::revision")]
    pub expected_revision: i64,
    #[schema(value_type = Config)]
    pub config: Value,
}

/// Reads a configuration, naming each breach by its place and never by its value.
pub fn check(config: &Value) -> Result<Config> {
    let mut breaches = Vec::new();
    let mut breach = |path: &str, code: &str, message: &str| {
        breaches.push(FieldError {
            path: path.into(),
            code: code.into(),
            message: message.into(),
        });
    };
    let Some(map) = config.as_object() else {
        return Err(Error::invalid(
            "config",
            "type",
            "Give an object with image, cwd or env.",
        ));
    };
    let mut checked = Config::default();
    for (key, value) in map {
        match (key.as_str(), value) {
            ("image", Value::String(text)) if is_reference(text) => {
                checked.image = Some(text.clone())
            }
            ("image", _) => breach(
                "config.image",
                "image",
                "Name an image that the instance allows for this home.",
            ),
            ("cwd", Value::String(text)) => match super::command::check_cwd(text) {
                Ok(cwd) => checked.cwd = Some(cwd),
                Err(_) => breach(
                    "config.cwd",
                    "cwd",
                    "Use . or a relative path of at most 16 parts.",
                ),
            },
            ("cwd", _) => breach(
                "config.cwd",
                "cwd",
                "Use . or a relative path of at most 16 parts.",
            ),
            ("env", Value::Object(env)) => {
                for (name, value) in env {
                    match value.as_str().filter(|value| is_harmless(name, value)) {
                        Some(value) => {
                            checked.env.insert(name.clone(), value.to_owned());
                        }
                        None => breach(
                            "config.env",
                            "env",
                            "Only CI (true, false), NO_COLOR (0, 1) and TZ (a time zone).",
                        ),
                    }
                }
            }
            ("env", _) => breach("config.env", "env", "Give an object."),
            _ => breach(
                "config",
                "unknown_key",
                "Only image, cwd and env can be set.",
            ),
        }
    }
    if breaches.is_empty() {
        Ok(checked)
    } else {
        Err(Error::invalid_fields(breaches))
    }
}

fn is_reference(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    !text.is_empty()
        && text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(plain)
}

fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        "CI" => matches!(value, "true" | "false"),
        "NO_COLOR" => matches!(value, "0" | "1"),
        "TZ" => is_time_zone(value),
        _ => false,
    }
}

/// The form of an IANA zone; no path that leaves the zone directory can be written in it.
fn is_time_zone(value: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-_".contains(c))
    };
    value == "UTC"
        || (value.len() <= 64
            && value.split('/').count() <= 3
            && value.contains('/')
            && value.split('/').all(part))
}

/// A Team's saved defaults, inside an admission.
pub async fn defaults_in(tx: &mut TenantTx, team: TeamId) -> Result<Option<Defaults>> {
    store::defaults(tx, team).await
}

/// What a Team has saved, and what a turn admitted now would be given.
pub async fn show(tx: &mut TenantTx, args: &(String, String)) -> Result<TeamEnvironment> {
    let (named, default_image) = args;
    require(tx.caller(), Action::Read)?;
    let team = team::store::teams::find(tx, named).await?;
    let settings = tenant::home_in(tx).await?.settings;
    let posture = Posture::parse(&settings.posture)?;
    let environment = store::defaults(tx, team.id).await?;
    let saved = environment
        .as_ref()
        .and_then(|defaults| defaults.config.image.clone());
    Ok(TeamEnvironment {
        image: posture
            .in_container()
            .then(|| saved.unwrap_or_else(|| default_image.clone())),
        posture,
        workspace: workspace::state_in(tx, team.id).await?.to_owned(),
        environment,
    })
}

/// Saves defaults. The caller has checked that the working directory exists and is no link.
pub async fn put(tx: &mut TenantTx, args: &(String, i64, Config)) -> Result<Defaults> {
    let (named, expected, config) = args;
    require(tx.caller(), Action::Operate)?;
    let team = team::store::teams::find(tx, named).await?;
    let settings = tenant::home_in(tx).await?.settings;
    if config
        .image
        .as_ref()
        .is_some_and(|image| !settings.allowed_images.contains(image))
    {
        return Err(Error::invalid(
            "config.image",
            "image",
            "Name an image that the instance allows for this home.",
        ));
    }
    if workspace::state_in(tx, team.id).await? != "free" {
        return Err(Error::refused(
            Code::WorkspaceBusy,
            "A turn owns the workspace. Save when it has ended, so that no running turn changes under its Agent.",
        ));
    }
    if !store::put_defaults(tx, team.id, *expected, config).await? {
        let current = serde_json::to_value(store::defaults(tx, team.id).await?).unwrap_or_default();
        let detail = "Somebody saved other defaults meanwhile. Look at them and decide again.";
        return Err(Error::refused(Code::RevisionConflict, detail).with("current", current));
    }
    audit::record(tx, &Act::ok("team.environment", team.id)).await?;
    store::defaults(tx, team.id)
        .await?
        .ok_or_else(Error::not_found)
}

/// What `coding_environment` answers.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub posture: Posture,
    pub image: Option<ImageView>,
    pub cwd: String,
    pub root_identity: String,
    pub input_fingerprint: Option<String>,
    #[serde(serialize_with = "crate::clock::wire::serialize")]
    pub captured_at: OffsetDateTime,
    pub restrictions: Vec<Restriction>,
    pub network: &'static str,
    pub workspace: &'static str,
}

/// An image by what people call it and what it is.
#[derive(Debug, Clone, Serialize)]
pub struct ImageView {
    pub reference: String,
    pub id: String,
}

impl From<&Image> for ImageView {
    fn from(image: &Image) -> Self {
        Self {
            reference: image.reference.clone(),
            id: image.id.clone(),
        }
    }
}

/// What every turn of this posture is restricted by, beside what the engine itself said.
pub fn restrictions(posture: Posture, engine: &[Restriction]) -> Vec<Restriction> {
    let plain = |code, text: &str| Restriction {
        code,
        text: text.into(),
    };
    let mut all = match posture {
        Posture::Host => vec![plain(
            "not_isolated",
            "Commands run on the host itself, not isolated, under the host's own policy.",
        )],
        Posture::Docker | Posture::Protected => vec![
            plain(
                "network_disabled",
                "No network. Install from files in the workspace or an offline store.",
            ),
            plain(
                "fresh_container",
                "Each command has a fresh container: the workspace persists, temporary files do not.",
            ),
            plain(
                "read_only",
                "The root file system and Team memory are read-only.",
            ),
            plain(
                "no_credentials",
                "No credentials and no package caches are given.",
            ),
        ],
    };
    all.extend_from_slice(engine);
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e003_what_is_not_allowed_is_refused_and_never_echoed() {
        let cases = [
            json!({"hooks": "hunter2"}),
            json!({"env": {"BASH_ENV": "hunter2"}}),
            json!({"env": {"CI": "hunter2"}}),
            json!({"cwd": "../hunter2"}),
            json!({"image": "--hunter2"}),
            json!({"env": {"TZ": "../../hunter2"}}),
        ];
        for case in cases {
            let error = check(&case).unwrap_err();
            assert_eq!(error.code(), Code::InvalidInput);
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        let fine = json!({"image": "sandbox:1", "cwd": "a/b", "env": {"CI": "true", "NO_COLOR": "1", "TZ": "Europe/Vienna"}});
        assert_eq!(check(&fine).unwrap().env.len(), 3);
    }
}
