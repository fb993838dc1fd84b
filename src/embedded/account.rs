//! Which operating-system users do the work when `up` runs as root: PostgreSQL refuses root, and so do we.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use crate::config::Obstacle;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// The user of managed workspaces when root runs `up`.
pub const WORKSPACE_USER: &str = "bazilion";

/// The user of that name in the local account file.
pub fn find(name: &str) -> Option<Account> {
    lookup(|account| account.name == name)
}

fn lookup(wanted: impl Fn(&Account) -> bool) -> Option<Account> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines().filter_map(parse).find(wanted)
}

fn parse(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let (_password, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Account {
        name,
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
    })
}

/// Who runs PostgreSQL: `None` when we are not root and it runs as ourselves. An existing cluster keeps its owner.
pub fn of_database(cluster: &Path) -> Result<Option<Account>, Obstacle> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    if let Ok(meta) = std::fs::metadata(cluster) {
        let owner = meta.uid();
        if owner != 0 {
            return Ok(Some(lookup(|a| a.uid == owner).unwrap_or(Account {
                name: owner.to_string(),
                uid: owner,
                gid: meta.gid(),
            })));
        }
    }
    find("postgres").or_else(|| find(WORKSPACE_USER)).map(Some).ok_or_else(|| {
        Obstacle::new(
            "PostgreSQL does not run as root, and there is no user `postgres` or `bazilion` to run it as.",
            create_command(),
        )
    })
}

/// Who owns managed workspaces and runs their commands: the person who runs `up`, or a system user when that is root.
/// The user is made when it is missing.
pub fn of_workspaces() -> Result<Account, Obstacle> {
    let uid = rustix::process::geteuid();
    if !uid.is_root() {
        return Ok(lookup(|a| a.uid == uid.as_raw()).unwrap_or(Account {
            name: uid.as_raw().to_string(),
            uid: uid.as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }));
    }
    if let Some(account) = find(WORKSPACE_USER) {
        return Ok(account);
    }
    let made = Command::new("useradd")
        .args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
        ])
        .args(["--shell", "/usr/sbin/nologin", WORKSPACE_USER])
        .output();
    let why = match made {
        Ok(output) if output.status.success() => String::new(),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    find(WORKSPACE_USER).ok_or_else(|| {
        Obstacle::new(
            format!("The user `{WORKSPACE_USER}`, who owns managed workspaces, could not be made: {why}."),
            create_command(),
        )
    })
}

fn create_command() -> String {
    format!(
        "Make it, then start again: useradd --system --user-group --shell /usr/sbin/nologin {WORKSPACE_USER}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_account_file_is_read() {
        let account = parse("postgres:x:101:104:PostgreSQL:/var/lib/postgresql:/bin/bash").unwrap();
        assert_eq!(
            (account.name.as_str(), account.uid, account.gid),
            ("postgres", 101, 104)
        );
        assert_eq!(parse("broken"), None);
    }
}
