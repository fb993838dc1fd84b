//! Labels of a container: written at its creation, read back before anything touches it.

use std::collections::HashMap;

use super::{Kind, Labels};

/// Every container of the product has this label.
pub(super) const PRODUCT: &str = "bazilion.product";
pub(super) const PRODUCT_VALUE: &str = "bazilion";
pub(super) const INSTANCE: &str = "bazilion.instance";
const GENERATION: &str = "bazilion.generation";
const HOME: &str = "bazilion.home";
const TEAM: &str = "bazilion.team";
const AGENT: &str = "bazilion.agent";
const LEASE: &str = "bazilion.lease";
const RECEIPT: &str = "bazilion.receipt";
const OWNER: &str = "bazilion.owner";
const KIND: &str = "bazilion.kind";

pub(super) fn write(labels: &Labels, kind: Kind) -> HashMap<String, String> {
    let kind = match kind {
        Kind::Command => "command",
        Kind::Toolbox => "toolbox",
    };
    let mut map = HashMap::from([
        (PRODUCT.to_owned(), PRODUCT_VALUE.to_owned()),
        (INSTANCE.to_owned(), labels.instance.to_string()),
        (GENERATION.to_owned(), labels.generation.to_string()),
        (HOME.to_owned(), labels.home.to_string()),
        (TEAM.to_owned(), labels.team.to_string()),
        (OWNER.to_owned(), labels.owner.to_string()),
        (KIND.to_owned(), kind.to_owned()),
    ]);
    let optional = [
        (AGENT, labels.agent.map(|id| id.to_string())),
        (LEASE, labels.lease.map(|id| id.to_string())),
        (RECEIPT, labels.receipt.map(|id| id.to_string())),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    }
    map
}

/// `None` when the product label or any other is missing or unreadable.
pub(super) fn read(map: &HashMap<String, String>) -> Option<Labels> {
    if map.get(PRODUCT).map(String::as_str) != Some(PRODUCT_VALUE) {
        return None;
    }
    Some(Labels {
        instance: map.get(INSTANCE)?.parse().ok()?,
        generation: map.get(GENERATION)?.parse().ok()?,
        home: map.get(HOME)?.parse().ok()?,
        team: map.get(TEAM)?.parse().ok()?,
        agent: optional(map, AGENT)?,
        lease: optional(map, LEASE)?,
        receipt: optional(map, RECEIPT)?,
        owner: map.get(OWNER)?.parse().ok()?,
    })
}

/// The outer `None` is an unreadable value, the inner one an absent label.
fn optional<T: std::str::FromStr>(map: &HashMap<String, String>, name: &str) -> Option<Option<T>> {
    match map.get(name) {
        None => Some(None),
        Some(text) => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{AgentId, HomeId, IncarnationId, LeaseId, TeamId};

    fn labels() -> Labels {
        Labels {
            instance: Uuid::nil(),
            generation: 3,
            home: HomeId::new(),
            team: TeamId::new(),
            agent: Some(AgentId::new()),
            lease: Some(LeaseId::new()),
            receipt: None,
            owner: IncarnationId::new(),
        }
    }

    #[test]
    fn labels_are_read_as_they_were_written() {
        let labels = labels();
        assert_eq!(read(&write(&labels, Kind::Command)), Some(labels));
    }

    #[test]
    fn a_damaged_label_makes_a_container_foreign() {
        for name in [
            PRODUCT, INSTANCE, GENERATION, HOME, TEAM, AGENT, LEASE, OWNER,
        ] {
            let mut map = write(&labels(), Kind::Toolbox);
            map.insert(name.to_owned(), "x".to_owned());
            assert_eq!(read(&map), None, "{name}");
        }
    }
}
