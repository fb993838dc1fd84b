//! Linked roots: an existing directory that an instance admin registers.
//!
//! - It lies below a base that the instance's configuration allows, after every link on its way is resolved.
//! - Whether a directory exists is said only to who may link one.

use std::path::Path;

use super::{NewTeam, Root};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::identity::Caller;
use crate::tenant::permission::{Action, require};

/// Checks a linked root against the disk and the configuration; a managed one passes as it is.
pub fn check(config: &Config, caller: &Caller, new: NewTeam) -> Result<NewTeam> {
    let Root::Linked { path } = &new.root else {
        return Ok(new);
    };
    require(caller, Action::RunInstance)?;
    let refuse = |message: &str| Err(Error::invalid("root.path", "path", message));
    let Ok(real) = Path::new(path).canonicalize() else {
        return refuse("There is no such directory on the executor.");
    };
    if !Path::new(path).is_absolute() || !real.is_dir() {
        return refuse("Give an absolute path of an existing directory.");
    }
    if !config
        .allowed_roots
        .iter()
        .any(|base| real.starts_with(base))
    {
        return refuse(
            "This directory lies outside the allowed roots. Start the server with --allow-root DIR.",
        );
    }
    Ok(new)
}
