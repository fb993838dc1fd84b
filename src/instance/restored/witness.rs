//! The witness outside the database: the highest fencing number that ever started an Agent on this executor, kept in
//! its workspace base.
//!
//! - Written and synced before an Agent starts; never lowered.
//! - A database whose highest number is below it was taken back in time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// The file of one instance below a workspace base. Named by the instance, so several may share a base.
pub fn path(base: &Path, instance: Uuid) -> PathBuf {
    base.join(format!(".fence-{instance}"))
}

/// The recorded number, zero if none was. A file that does not read as a number is an error, not zero.
pub fn read(base: &Path, instance: Uuid) -> io::Result<i64> {
    match fs::read_to_string(path(base, instance)) {
        Ok(text) => text
            .trim()
            .parse()
            .map_err(|_| io::Error::other("the fence witness is damaged")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Records `fence` durably, unless a higher number is there. Blocking; two callers of one process must not race.
pub fn raise(base: &Path, instance: Uuid, fence: i64) -> io::Result<()> {
    if read(base, instance)? >= fence {
        return Ok(());
    }
    let target = path(base, instance);
    let fresh = base.join(format!(".fence-{instance}.new-{}", std::process::id()));
    let mut file = File::create(&fresh)?;
    writeln!(file, "{fence}")?;
    file.sync_all()?;
    fs::rename(&fresh, &target)?;
    File::open(base)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_only_rises_and_damage_is_not_zero() {
        let base = std::env::temp_dir().join(format!("fence-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let instance = Uuid::nil();
        assert_eq!(read(&base, instance).unwrap(), 0);
        raise(&base, instance, 7).unwrap();
        raise(&base, instance, 3).unwrap();
        assert_eq!(read(&base, instance).unwrap(), 7);
        fs::write(path(&base, instance), "x").unwrap();
        assert!(read(&base, instance).is_err());
        fs::remove_dir_all(&base).unwrap();
    }
}
