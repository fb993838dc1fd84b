//! `bazilion bench` as a person runs it, with few samples: that it measures, not what.

use std::process::Command;

use serde_json::Value;

use crate::support::docker::{Sandbox, docker, socket};

fn value<'a>(report: &'a Value, measure: &str) -> &'a Value {
    report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["measure"] == measure)
        .unwrap_or_else(|| panic!("{measure} in {report:#}"))
}

#[tokio::test]
async fn the_first_set_measures_and_leaves_nothing_behind() {
    let sandbox = Sandbox::new().await;
    let temporary = sandbox.directory.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_bazilion"))
        .args(["bench", "--json", "--samples", "1"])
        .env("BAZILION_TOOLBOX", sandbox.toolbox_program())
        .env("DOCKER_HOST", format!("unix://{}", socket().display()))
        .env("TMPDIR", &temporary)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
    for measure in [
        "command, prepared ahead: result",
        "command, prepared ahead: removal proven",
        "command, nothing prepared: removal proven",
        "docker run --rm",
        "nothing prepared / docker run --rm",
        "submit over HTTP, 1 client",
        "submit over HTTP, 32 clients",
        "the same SQL by pgbench, 8 clients",
        "submit over HTTP / pgbench, 8 clients",
    ] {
        let row = value(&report, measure);
        assert!(row["value"].as_f64().is_some_and(|v| v > 0.0), "{row:#}");
        assert!(row["n"].as_u64().is_some_and(|n| n > 0), "{row:#}");
    }
    for row in report["rows"].as_array().unwrap() {
        let said = row["value"].is_number() || row["note"].is_string();
        assert!(said, "neither a number nor a reason: {row:#}");
    }
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    assert_eq!(
        docker(&["ps", "--all", "--quiet", "--filter", "label=bazilion.bench"]),
        ""
    );
}
