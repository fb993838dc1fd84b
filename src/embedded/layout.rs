//! Where things lie below a data directory, and who may enter.
//!
//! ```text
//! DATA/lock               who holds the directory, and its address
//! DATA/master.key         wraps the data keys of homes (0600)
//! DATA/postgres.json      passwords of the database's roles (0600)
//! DATA/postgres/data      the cluster          DATA/postgres/log      its log
//! DATA/postgres/run       its socket           (elsewhere when the path would be too long)
//! DATA/workspaces         managed workspaces and what turns lay out
//! DATA/state              node id and the like
//! ```

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::account::Account;
use crate::config::Obstacle;
use crate::limits::{DATA_SPACE_MIN, SOCKET_PATH_MAX};

/// The file that PostgreSQL listens on, in its socket directory.
const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// The paths of one data directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directory if it is missing and checks that it can be used. `/proc`-style magic paths are resolved once.
    pub fn open(root: &Path) -> Result<Self, Obstacle> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(root);
        made.map_err(|e| Obstacle::file("Making the data directory", root, &e))?;
        let root = root
            .canonicalize()
            .map_err(|e| Obstacle::file("Opening the data directory", root, &e))?;
        let layout = Self { root };
        layout.check_writable()?;
        for dir in [layout.state(), layout.workspaces()] {
            make_dir(&dir, 0o711)?;
        }
        Ok(layout)
    }

    /// The paths, without touching anything: for looking.
    pub fn look(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    pub fn master_key(&self) -> PathBuf {
        self.root.join("master.key")
    }
    pub fn passwords(&self) -> PathBuf {
        self.root.join("postgres.json")
    }
    pub fn postgres(&self) -> PathBuf {
        self.root.join("postgres")
    }
    pub fn cluster(&self) -> PathBuf {
        self.postgres().join("data")
    }
    pub fn postgres_log(&self) -> PathBuf {
        self.postgres().join("log")
    }
    pub fn workspaces(&self) -> PathBuf {
        self.root.join("workspaces")
    }
    pub fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The turns' private directories; of this server alone.
    pub fn turns(&self) -> PathBuf {
        self.state().join("turns")
    }

    /// The major version that made the cluster, if there is one.
    pub fn cluster_major(&self) -> Option<u32> {
        fs::read_to_string(self.cluster().join("PG_VERSION"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Writes and removes a file: a directory may be listed writable and still refuse (read-only, full, quota).
    fn check_writable(&self) -> Result<(), Obstacle> {
        let probe = self.root.join(".probe");
        let written = fs::write(&probe, b"bazilion").and_then(|()| fs::remove_file(&probe));
        written.map_err(|e| Obstacle::file("Writing to the data directory", &self.root, &e))?;
        let Ok(space) = rustix::fs::statvfs(&self.root) else {
            return Ok(());
        };
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < DATA_SPACE_MIN && self.cluster_major().is_none() {
            return Err(Obstacle::new(
                format!(
                    "The disk of {} has {} MiB free; a new database needs {} MiB.",
                    self.root.display(),
                    free >> 20,
                    DATA_SPACE_MIN >> 20
                ),
                "Free some space, or choose another disk with --data-dir.",
            ));
        }
        Ok(())
    }

    /// Makes the directories of PostgreSQL for the user who runs it.
    pub fn prepare_postgres(&self, account: Option<&Account>) -> Result<(), Obstacle> {
        if account.is_some() {
            // The other user only passes through; what is inside says for itself who may read it.
            fs::set_permissions(&self.root, fs::Permissions::from_mode(0o711))
                .map_err(|e| Obstacle::file("Opening the way through", &self.root, &e))?;
        }
        make_dir(&self.postgres(), 0o700)?;
        own(&self.postgres(), account)
    }

    /// A directory for the socket, made for the user who runs PostgreSQL: below the data directory, or a short one
    /// when that path would be too long for a socket.
    pub fn socket_dir(&self, account: Option<&Account>) -> Result<PathBuf, Obstacle> {
        let dir = self.socket_place();
        make_dir(&dir, 0o700)?;
        own(&dir, account)?;
        let meta =
            fs::symlink_metadata(&dir).map_err(|e| Obstacle::file("Looking at", &dir, &e))?;
        let owner = account.map_or_else(|| rustix::process::geteuid().as_raw(), |a| a.uid);
        if !meta.is_dir() || meta.uid() != owner || meta.mode() & 0o077 != 0 {
            return Err(Obstacle::new(
                format!(
                    "The socket directory {} belongs to somebody else, or is open to others.",
                    dir.display()
                ),
                "Remove it, or choose a data directory with a shorter path.",
            ));
        }
        Ok(dir)
    }

    /// Where the socket's directory is: below the data directory, or a short one.
    pub(super) fn socket_place(&self) -> PathBuf {
        let near = self.postgres().join("run");
        let fits = near.join(SOCKET_NAME).as_os_str().len() <= SOCKET_PATH_MAX;
        if fits { near } else { self.short_socket_dir() }
    }

    fn short_socket_dir(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        let name = &hex::encode(Sha256::digest(self.root.as_os_str().as_bytes()))[..16];
        let run = if rustix::process::geteuid().is_root() {
            Some(PathBuf::from("/run"))
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        };
        let base = run
            .filter(|dir| dir.is_dir())
            .unwrap_or_else(|| PathBuf::from("/tmp"));
        base.join(format!("bazilion-{name}"))
    }
}

/// Makes one directory with that mode; an existing one keeps its own.
pub(super) fn make_dir(dir: &Path, mode: u32) -> Result<(), Obstacle> {
    match fs::DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(Obstacle::file("Making the directory", dir, &e)),
    }
}

/// Gives a path to the user who is to work in it.
pub(super) fn own(path: &Path, account: Option<&Account>) -> Result<(), Obstacle> {
    let Some(account) = account else {
        return Ok(());
    };
    // Not through a link: what a link names is not ours to give away.
    std::os::unix::fs::lchown(path, Some(account.uid), Some(account.gid))
        .map_err(|e| Obstacle::file("Handing over", path, &e))
}
