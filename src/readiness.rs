//! What an instance needs before it can serve, each part with its state: cheap to read, renewed in the background.
//!
//! `/readyz` says only whether all is well; `/api/ready`, behind a credential, shows the parts. A part that is missing
//! names the next step, and what waits for it stays waiting: nothing falls back.

use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;

/// The state of one prerequisite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Part {
    /// Not looked at yet.
    Unknown,
    Ok,
    /// Not there. `what` is missing, `next` is the step that brings it.
    #[serde(rename_all = "camelCase")]
    Missing {
        what: String,
        next: String,
    },
}

impl Part {
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> Self {
        Part::Missing {
            what: what.into(),
            next: next.into(),
        }
    }

    pub fn is_ok(&self) -> bool {
        matches!(self, Part::Ok)
    }
}

/// Every prerequisite of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    pub database: Part,
    pub migrations: Part,
    pub pi: Part,
    pub images: Part,
    pub executor: Part,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            database: Part::Unknown,
            migrations: Part::Unknown,
            pi: Part::Unknown,
            images: Part::Unknown,
            executor: Part::Unknown,
        }
    }
}

impl Readiness {
    /// The parts with their names on the wire.
    pub fn parts(&self) -> [(&'static str, &Part); 5] {
        [
            ("database", &self.database),
            ("migrations", &self.migrations),
            ("pi", &self.pi),
            ("images", &self.images),
            ("executor", &self.executor),
        ]
    }

    /// Web and API can answer: what needs an engine waits in the queue, and says so.
    pub fn can_serve(&self) -> bool {
        self.database.is_ok() && self.migrations.is_ok()
    }

    /// Every part is there.
    pub fn is_ready(&self) -> bool {
        self.parts().iter().all(|(_, part)| part.is_ok())
    }

    /// The first part that is missing, to name in a refusal.
    pub fn first_missing(&self) -> Option<(&'static str, &Part)> {
        self.parts().into_iter().find(|(_, part)| !part.is_ok())
    }
}

/// The readiness that all parts of a process share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<RwLock<Readiness>>);

impl Shared {
    /// What was last seen.
    pub fn now(&self) -> Readiness {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Changes what was seen; a background check calls it.
    pub fn set(&self, change: impl FnOnce(&mut Readiness)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_part_is_named_and_the_database_is_enough_to_serve() {
        let shared = Shared::default();
        assert!(!shared.now().can_serve());
        shared.set(|r| {
            r.database = Part::Ok;
            r.migrations = Part::Ok;
            r.pi = Part::missing("Pi", "Run `bazilion up`.");
        });
        let now = shared.now();
        assert!(now.can_serve() && !now.is_ready());
        assert_eq!(now.first_missing().unwrap().0, "pi");
        let json = serde_json::to_value(&now).unwrap();
        assert_eq!(json["pi"]["next"], "Run `bazilion up`.");
        assert_eq!(json["database"]["state"], "ok");
    }
}
