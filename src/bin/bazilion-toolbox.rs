//! `bazilion-toolbox`: the small static program that alone touches repository files, and pid 1 of command containers.
//!
//! It has no database, no network and no credentials.

use std::path::PathBuf;
use std::process::ExitCode;

use bazilion::repo::paths::Root;
use bazilion::toolbox::server::{Workbench, serve};

const USAGE: &str = "usage: bazilion-toolbox serve --root DIR [--read-only] | launch";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_ref().and_then(|name| name.to_str()) {
        Some("serve") => serve_streams(arguments),
        Some("launch") => bazilion::launcher::main(),
        _ => usage(),
    }
}

fn serve_streams(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let mut root: Option<PathBuf> = None;
    let mut is_read_only = false;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--root") => root = arguments.next().map(PathBuf::from),
            Some("--read-only") => is_read_only = true,
            _ => return usage(),
        }
    }
    let Some(root) = root else { return usage() };
    let root = match Root::open(&root) {
        Ok(root) => root,
        Err(error) => {
            eprintln!("the root can not be opened: {error}");
            return ExitCode::from(3);
        }
    };
    // The process ends here, whatever still hangs in a thread.
    match serve(
        &Workbench::new(root, is_read_only),
        std::io::stdin(),
        std::io::stdout(),
    ) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the streams failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
