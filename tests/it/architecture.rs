//! The tiers of `src/lib.rs`, read from the `use` lines, and the rules that the compiler does not know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Tier of each top-level module, bottom first. A module imports only from below, or from a listed neighbour.
const TIERS: &[&[&str]] = &[
    &[
        "limits", "error", "ids", "identity", "clock", "config", "secret",
    ],
    &[
        "app",
        "readiness",
        "db",
        "http",
        "console",
        "executor",
        "launcher",
        "runtime",
        "toolbox",
        "repo",
        "telemetry",
        "botapi",
    ],
    &["tenant", "auth", "provider", "events"],
    &[
        "team",
        "queue",
        "approval",
        "workspace",
        "turn",
        "coding",
        "message",
        "telegram",
        "backup",
    ],
    &[
        "routes",
        "serve",
        "attention",
        "server",
        "web",
        "worker",
        "cli",
        "up",
        "embedded",
        "rehearsal",
        "doctor",
        "bench",
        "openapi",
        "instance",
    ],
];

/// Imports between features that the design allows, and why (`docs/ARCHITECTURE.md`).
const FEATURE_EDGES: &[(&str, &[&str])] = &[
    ("turn", &["workspace", "approval", "team"]),
    ("coding", &["turn", "workspace", "message", "team"]),
    ("queue", &["approval", "team"]),
    ("message", &["team"]),
    ("telegram", &["queue", "team"]),
    ("backup", &["queue", "workspace", "team"]),
];

/// Files that may vouch for a caller.
const VOUCHERS: &[&str] = &[
    "auth/extract.rs",
    "turn/extract.rs",
    "telegram/intake.rs",
    "db/tx.rs",
    "identity.rs",
];

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    files.sort();
    files
}

fn module_of(path: &Path) -> String {
    let first = path
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy()
        .into_owned();
    first.trim_end_matches(".rs").to_owned()
}

fn tiers() -> BTreeMap<&'static str, usize> {
    TIERS
        .iter()
        .enumerate()
        .flat_map(|(tier, names)| names.iter().map(move |name| (*name, tier)))
        .collect()
}

/// Product code only: what follows `#[cfg(test)]` at the end of a file is not part of it.
fn product(text: &str) -> &str {
    text.split("\n#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn modules_import_only_from_below_or_from_a_listed_neighbour() {
    let tiers = tiers();
    let pattern = regex::Regex::new(r"\bcrate::(?:\{([^}]*)\}|([a-z_]+))").unwrap();
    let mut breaches = Vec::new();
    for (path, text) in sources() {
        let from = module_of(&path);
        if matches!(from.as_str(), "lib" | "main" | "bin") {
            continue;
        }
        let Some(&tier) = tiers.get(from.as_str()) else {
            breaches.push(format!("{from} has no tier"));
            continue;
        };
        for found in pattern.captures_iter(product(&text)) {
            let names = found.get(1).or(found.get(2)).map_or("", |m| m.as_str());
            for name in names
                .split(',')
                .map(|n| n.trim().split("::").next().unwrap_or(""))
            {
                let Some(&target) = tiers.get(name) else {
                    continue;
                };
                let neighbour = FEATURE_EDGES
                    .iter()
                    .any(|(f, to)| *f == from && to.contains(&name));
                let sideways = target == tier && tier == 3 && name != from && !neighbour;
                if target > tier || sideways {
                    breaches.push(format!("{} imports {name}", path.display()));
                }
            }
        }
    }
    breaches.dedup();
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn sql_lives_in_stores_and_callers_are_vouched_for_in_few_files() {
    let mut breaches = Vec::new();
    for (path, text) in sources() {
        let text = product(&text);
        let name = path.to_string_lossy();
        let store =
            name.ends_with("store.rs") || name.contains("/store/") || name.starts_with("embedded/");
        if !store && (text.contains("sqlx::query") || text.contains("query!(")) {
            breaches.push(format!("SQL in {name}"));
        }
        if text.contains("AssertSqlSafe") && name != "db/tx.rs" && !name.starts_with("embedded/") {
            breaches.push(format!("AssertSqlSafe in {name}"));
        }
        if text.contains("Caller::vouch") && !VOUCHERS.contains(&name.as_ref()) {
            breaches.push(format!("Caller::vouch in {name}"));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}
