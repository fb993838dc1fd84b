//! Secret files of a data directory: made once, mode 0600, never replaced.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::Obstacle;
use crate::secret::MasterKey;

/// Reads the instance key, or makes one when the file does not exist.
pub fn master_key(path: &Path) -> Result<MasterKey, Obstacle> {
    let text = match read(path)? {
        Some(text) => text,
        None => {
            let (_, text) = MasterKey::generate().map_err(|e| failed(path, &e))?;
            write_new(path, text.expose_secret())?;
            text
        }
    };
    MasterKey::parse(text.expose_secret()).map_err(|e| failed(path, &e))
}

/// Reads an instance key that must exist.
pub fn existing_master_key(path: &Path) -> Result<MasterKey, Obstacle> {
    let text = read(path)?.ok_or_else(|| {
        Obstacle::new(
            format!("There is no master key at {}.", path.display()),
            "Name the data directory of a running or stopped `bazilion up` with --data-dir, or set BAZILION_MASTER_KEY_FILE.",
        )
    })?;
    MasterKey::parse(text.expose_secret()).map_err(|e| failed(path, &e))
}

fn failed(path: &Path, error: &crate::secret::SecretError) -> Obstacle {
    Obstacle::new(
        format!("The master key {} cannot be used: {error}.", path.display()),
        "Put back the file that this database was made with; without it stored provider keys cannot be opened.",
    )
}

/// The text of a secret file, or `None` when there is none. A file that others may read is refused.
pub(super) fn read(path: &Path) -> Result<Option<SecretString>, Obstacle> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Obstacle::file("Reading", path, &e)),
    };
    if meta.mode() & 0o077 != 0 {
        return Err(Obstacle::new(
            format!("Others may read the secret file {}.", path.display()),
            format!("Close it: chmod 600 {}", path.display()),
        ));
    }
    let text = fs::read_to_string(path).map_err(|e| Obstacle::file("Reading", path, &e))?;
    Ok(Some(SecretString::from(text)))
}

/// Writes a secret file whole or not at all, and never over another.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), Obstacle> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::hard_link(&fresh, path)?;
        fs::remove_file(&fresh)
    };
    write().map_err(|e| Obstacle::file("Writing", path, &e))
}
