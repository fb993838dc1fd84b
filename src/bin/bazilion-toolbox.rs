//! The small static program that runs inside containers: it has no database, no network and no credentials.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("launch") => bazilion::launcher::main(),
        _ => {
            eprintln!("usage: bazilion-toolbox launch");
            ExitCode::from(2)
        }
    }
}
