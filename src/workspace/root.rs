//! A Team's root on this executor: made when it is managed, looked at, and whom commands run as in it.
//!
//! - A managed root that does not exist yet is an empty directory of the owner of managed workspaces.
//! - In a linked root commands run as its owner, and never as root.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use super::RootIdentity;
use crate::executor::User;

/// Why a root cannot be used. Texts for a person; no path of the executor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("The Team's root directory is missing or cannot be read. Mend it, then try again.")]
    Missing,
    #[error(
        "The linked directory belongs to root, and commands never run as root. Give it to an ordinary user: chown -R \
         {}:{} DIRECTORY, then try again.",
        .0.uid, .0.gid
    )]
    OwnedByRoot(User),
}

impl Unusable {
    /// A stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Unusable::Missing => "root_unusable",
            Unusable::OwnedByRoot(_) => "root_owned",
        }
    }
}

/// Resolves a root and the user that commands run as; makes a managed root. It blocks.
pub fn prepare(
    directory: &Path,
    is_managed: bool,
    owner: User,
) -> Result<(RootIdentity, User), Unusable> {
    let missing = |_| Unusable::Missing;
    if is_managed {
        make_managed(directory, owner).map_err(missing)?;
    }
    let root = RootIdentity::capture(directory).map_err(missing)?;
    if is_managed {
        return Ok((root, owner));
    }
    let meta = std::fs::metadata(&root.path).map_err(missing)?;
    if meta.uid() == 0 {
        return Err(Unusable::OwnedByRoot(owner));
    }
    let user = User {
        uid: meta.uid(),
        gid: meta.gid(),
    };
    Ok((root, user))
}

fn make_managed(directory: &Path, owner: User) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let home: PathBuf = directory.parent().map(Path::to_owned).unwrap_or_default();
    std::fs::create_dir_all(&home)?;
    std::fs::DirBuilder::new().mode(0o700).create(directory)?;
    if rustix::process::geteuid().is_root() {
        chown(directory, Some(owner.uid), Some(owner.gid))?;
    }
    Ok(())
}
