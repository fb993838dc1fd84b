//! The demo: a home of its own, a sample repository with a failing test, and a scripted model on loopback.

use std::path::Path;

use crate::app::App;
use crate::config::Obstacle;
use crate::embedded::account::{self, Account};
use crate::error::Error;
use crate::instance::first::{self, Demo};
use crate::rehearsal::{self, Rehearsal, sample};

/// The demo while it serves; dropping it ends the scripted model.
pub struct Running {
    pub demo: Demo,
    _rehearsal: Rehearsal,
}

/// Starts the scripted model, and makes home and repository where they are missing.
pub async fn start(app: &App) -> Result<Running, Obstacle> {
    let rehearsal = Rehearsal::start().await.map_err(|e| {
        Obstacle::new(
            format!("The scripted model found no free loopback port: {e}."),
            "Free one, then start again.",
        )
    })?;
    let base_url = rehearsal.base_url();
    let named = (rehearsal::PROVIDER, rehearsal::MODEL, base_url.as_str());
    let demo = first::ensure_demo(&app.db, &app.master, named, &app.config.workspace_base)
        .await
        .map_err(|e| super::failed("Making the demo home", &e))?;
    let owner = account::of_workspaces()?;
    make_repository(&demo.repository, &owner)
        .map_err(|e| Obstacle::file("Making the sample repository", &demo.repository, &e))?;
    Ok(Running {
        demo,
        _rehearsal: rehearsal,
    })
}

/// Whether an earlier start made the demo: then its scripted model is needed again.
pub async fn is_there(app: &App) -> Result<bool, Error> {
    first::has_demo(&app.db).await
}

/// Whole or not at all: made beside, given to its owner, then moved into place.
fn make_repository(place: &Path, owner: &Account) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if place.exists() {
        return Ok(());
    }
    if let Some(parent) = place.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let fresh = place.with_extension("new");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh)?;
    }
    sample::create(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o700))?;
    give(&fresh, owner)?;
    std::fs::rename(&fresh, place)
}

/// Gives a tree that we just made to its owner.
fn give(path: &Path, owner: &Account) -> std::io::Result<()> {
    std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))?;
    if std::fs::symlink_metadata(path)?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    Ok(())
}
