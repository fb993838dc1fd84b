//! Whether a receipt still applies: its inputs then, compared with the same inputs now. Reading never runs anything.
//!
//! - Compared: instruction and command-source identities, saved defaults, manifests and lockfiles from the root to the
//!   working directory, posture, image id, workspace identity. Dependencies and code are not hashed, and the answer says so.
//! - Age is counted from the start, by the database's clock: 15 minutes, and never before it.
//! - What cannot be compared is *unknown*, never *fresh*.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::receipt::State;
use crate::limits;
use crate::turn::Posture;

/// Files by path, with their SHA-256; none for a file that is absent.
pub type Identities = BTreeMap<String, Option<String>>;

/// The inputs of a command, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    pub instructions: Identities,
    pub sources: Identities,
    pub manifests: Identities,
    pub posture: Posture,
    pub image_id: Option<String>,
    pub root_identity: String,
    /// 0 when the Team saved none.
    pub defaults_revision: i64,
}

/// The same inputs today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Today {
    Known(Inputs),
    /// The scope's instructions are incomplete.
    InstructionsIncomplete,
    /// A lockfile could not be read, or there is too much of them.
    Unreadable,
}

/// Fresh, stale, or nobody can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    Fresh,
    Stale,
    Unknown,
}

/// The answer with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Applicability {
    pub state: Standing,
    pub reasons: Vec<&'static str>,
}

/// What the receipt says of itself.
pub struct Then<'a> {
    pub state: State,
    pub started_at: OffsetDateTime,
    pub inputs: Option<&'a Inputs>,
    /// The process that took the inputs still lives.
    pub owner_lives: bool,
}

/// Compares. Any difference makes it stale, with every reason; what could not be compared makes it unknown.
pub fn assess(then: &Then<'_>, today: &Today, now: OffsetDateTime) -> Applicability {
    let (mut stale, mut unknown) = (Vec::new(), Vec::new());
    match then.state {
        State::Interrupted => stale.push("interrupted"),
        State::Running => unknown.push("running"),
        _ => {}
    }
    if now < then.started_at {
        stale.push("clock");
    } else if now - then.started_at > limits::RECEIPT_FRESH {
        stale.push("expired");
    }
    match (then.owner_lives, then.inputs, today) {
        (_, _, Today::InstructionsIncomplete) => unknown.push("instructions_incomplete"),
        (false, _, _) => unknown.push("evidence_lost"),
        (true, None, _) | (_, _, Today::Unreadable) => unknown.push("inputs_unreadable"),
        (true, Some(then), Today::Known(today)) => stale.extend(differences(then, today)),
    }
    if !stale.is_empty() {
        return Applicability {
            state: Standing::Stale,
            reasons: stale,
        };
    }
    let state = if unknown.is_empty() {
        Standing::Fresh
    } else {
        Standing::Unknown
    };
    Applicability {
        state,
        reasons: unknown,
    }
}

fn differences(then: &Inputs, today: &Inputs) -> Vec<&'static str> {
    let compared = [
        (
            then.instructions != today.instructions,
            "instructions_changed",
        ),
        (then.sources != today.sources, "command_sources_changed"),
        (then.manifests != today.manifests, "manifests_changed"),
        (then.posture != today.posture, "posture_changed"),
        (then.image_id != today.image_id, "image_changed"),
        (
            then.root_identity != today.root_identity,
            "workspace_changed",
        ),
        (
            then.defaults_revision != today.defaults_revision,
            "defaults_changed",
        ),
    ];
    compared
        .into_iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, reason)| reason)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> Inputs {
        Inputs {
            instructions: Identities::new(),
            sources: Identities::new(),
            manifests: Identities::from([("Cargo.lock".into(), None)]),
            posture: Posture::Docker,
            image_id: Some("sha256:1".into()),
            root_identity: "r".into(),
            defaults_revision: 0,
        }
    }

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(seconds)
    }

    fn ask(
        then: Option<&Inputs>,
        owner_lives: bool,
        today: &Today,
        now: i64,
    ) -> (Standing, Vec<&'static str>) {
        let then = Then {
            state: State::Succeeded,
            started_at: at(1000),
            inputs: then,
            owner_lives,
        };
        let answer = assess(&then, today, at(now));
        (answer.state, answer.reasons)
    }

    #[test]
    fn c021_c023_d105_each_change_makes_it_stale_with_its_reason() {
        let then = inputs();
        let known = Today::Known(inputs());
        assert_eq!(
            ask(Some(&then), true, &known, 1900),
            (Standing::Fresh, vec![])
        );
        assert_eq!(
            ask(Some(&then), true, &known, 1901),
            (Standing::Stale, vec!["expired"])
        );
        assert_eq!(
            ask(Some(&then), true, &known, 999),
            (Standing::Stale, vec!["clock"])
        );
        type Change = fn(&mut Inputs);
        let changes: [(Change, &str); 7] = [
            (
                |i| drop(i.manifests.insert("Cargo.lock".into(), Some("h".into()))),
                "manifests_changed",
            ),
            (
                |i| drop(i.instructions.insert("AGENTS.md".into(), Some("h".into()))),
                "instructions_changed",
            ),
            (
                |i| drop(i.sources.insert("package.json".into(), Some("h".into()))),
                "command_sources_changed",
            ),
            (|i| i.posture = Posture::Protected, "posture_changed"),
            (|i| i.image_id = None, "image_changed"),
            (|i| i.root_identity.push('x'), "workspace_changed"),
            (|i| i.defaults_revision = 1, "defaults_changed"),
        ];
        for (change, reason) in changes {
            let mut today = inputs();
            change(&mut today);
            assert_eq!(
                ask(Some(&then), true, &Today::Known(today), 1001),
                (Standing::Stale, vec![reason])
            );
        }
    }

    #[test]
    fn c025_c027_c029_what_cannot_be_compared_is_unknown() {
        let then = inputs();
        let known = Today::Known(inputs());
        assert_eq!(
            ask(Some(&then), false, &known, 1001),
            (Standing::Unknown, vec!["evidence_lost"])
        );
        assert_eq!(
            ask(None, true, &known, 1001),
            (Standing::Unknown, vec!["inputs_unreadable"])
        );
        assert_eq!(
            ask(Some(&then), true, &Today::Unreadable, 1001),
            (Standing::Unknown, vec!["inputs_unreadable"])
        );
        let incomplete = ask(Some(&then), true, &Today::InstructionsIncomplete, 1001);
        assert_eq!(
            incomplete,
            (Standing::Unknown, vec!["instructions_incomplete"])
        );
    }
}
