//! Finds the PostgreSQL server programs of this machine.
//!
//! Order: `BAZILION_PG_BIN`, the directories of `PATH`, what `pg_config` says, then versioned folders, newest first.
//! A cluster that exists decides the major version: its data is not opened with any other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::config::Obstacle;
use crate::limits::POSTGRES_MAJOR_MIN;

/// Server programs of one version, in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub dir: PathBuf,
    pub major: u32,
    /// As the program says it, for people.
    pub version: String,
}

impl Binaries {
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// Where to look.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// `BAZILION_PG_BIN`: this directory or none.
    pub only: Option<PathBuf>,
    pub path: Option<OsString>,
    /// Folders that hold one folder a version, with `bin` inside.
    pub versioned: Vec<PathBuf>,
}

impl Search {
    /// This machine's places.
    pub fn of_machine() -> Self {
        Self {
            only: std::env::var_os("BAZILION_PG_BIN")
                .filter(|v| !v.is_empty())
                .map(Into::into),
            path: std::env::var_os("PATH"),
            versioned: [
                "/usr/lib/postgresql",
                "/usr/local/lib/postgresql",
                "/opt/postgresql",
            ]
            .map(PathBuf::from)
            .into(),
        }
    }

    /// Every usable set of programs, in the order of preference.
    pub fn all(&self) -> Vec<Binaries> {
        let mut found: Vec<Binaries> = Vec::new();
        for dir in self.candidates() {
            if let Some(binaries) = look(&dir)
                && !found.iter().any(|f| f.dir == binaries.dir)
            {
                found.push(binaries);
            }
        }
        found
    }

    fn candidates(&self) -> Vec<PathBuf> {
        if let Some(only) = &self.only {
            return vec![only.clone()];
        }
        let mut dirs = Vec::new();
        if let Some(path) = &self.path {
            dirs.extend(std::env::split_paths(path));
            dirs.extend(pg_config(path));
        }
        for folder in &self.versioned {
            dirs.extend(newest_first(folder));
        }
        dirs
    }

    /// The programs to use: of the major version that the data has, or the most preferred that is new enough.
    pub fn choose(&self, data_major: Option<u32>) -> Result<Binaries, Obstacle> {
        let all = self.all();
        match data_major {
            Some(major) => choose_for_data(all, major),
            None => choose_new(all, self.only.as_deref()),
        }
    }
}

fn choose_new(all: Vec<Binaries>, only: Option<&Path>) -> Result<Binaries, Obstacle> {
    let best = all.first().cloned();
    if let Some(usable) = all.into_iter().find(|b| b.major >= POSTGRES_MAJOR_MIN) {
        return Ok(usable);
    }
    let next = format!(
        "Install it: {}\n  Without root: unpack any PostgreSQL {POSTGRES_MAJOR_MIN} or newer and set BAZILION_PG_BIN to its bin directory.",
        install_command("postgresql")
    );
    Err(match (best, only) {
        (Some(old), _) => Obstacle::new(
            format!(
                "PostgreSQL {} in {} is too old; {POSTGRES_MAJOR_MIN} or newer is needed.",
                old.version,
                old.dir.display()
            ),
            next,
        ),
        (None, Some(dir)) => Obstacle::new(
            format!(
                "BAZILION_PG_BIN is {}, which holds no `initdb` and `postgres` that run.",
                dir.display()
            ),
            "Point it at the bin directory of a PostgreSQL server, or unset it.",
        ),
        (None, None) => Obstacle::new(
            "No PostgreSQL server programs were found on this machine.",
            next,
        ),
    })
}

fn choose_for_data(all: Vec<Binaries>, major: u32) -> Result<Binaries, Obstacle> {
    let others: Vec<String> = all.iter().map(|b| b.version.clone()).collect();
    all.into_iter().find(|b| b.major == major).ok_or_else(|| {
        let here = if others.is_empty() {
            "no PostgreSQL server programs are on this machine".to_owned()
        } else {
            format!("this machine has {}", others.join(", "))
        };
        Obstacle::new(
            format!("The data directory was made by PostgreSQL {major}, and {here}. Another major version would not read it."),
            format!(
                "Install that version: {}\n  Or name its programs with BAZILION_PG_BIN. Moving to a newer one is described in docs/OPERATIONS.md.",
                install_command(&format!("postgresql-{major}"))
            ),
        )
    })
}

/// How Debian and Ubuntu install a package, for whoever runs us.
pub fn install_command(package: &str) -> String {
    let sudo = if rustix::process::geteuid().is_root() {
        ""
    } else {
        "sudo "
    };
    format!("{sudo}apt-get install -y {package}")
}

/// A directory's programs, if both are there and run. Links are followed first: a link in `PATH` has no siblings.
fn look(dir: &Path) -> Option<Binaries> {
    let initdb = dir.join("initdb").canonicalize().ok()?;
    let dir = initdb.parent()?.to_owned();
    let output = Command::new(dir.join("postgres"))
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (version, major) = parse_version(&text)?;
    Some(Binaries {
        dir,
        major,
        version,
    })
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` → `15.18` and 15; also `18beta2`.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let version = text.split_whitespace().nth(2)?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

fn pg_config(path: &std::ffi::OsStr) -> Option<PathBuf> {
    let program = std::env::split_paths(path)
        .map(|d| d.join("pg_config"))
        .find(|p| p.is_file())?;
    let output = Command::new(program).arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim()))
}

fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, dir)| dir).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_say_them() {
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)";
        assert_eq!(parse_version(debian), Some(("15.18".into(), 15)));
        assert_eq!(
            parse_version("postgres (PostgreSQL) 18beta2"),
            Some(("18beta2".into(), 18))
        );
        assert_eq!(parse_version("what?"), None);
    }

    #[test]
    fn no_programs_gives_the_exact_command() {
        let refusal = Search::default().choose(None).unwrap_err();
        assert!(refusal.next.contains("apt-get install -y postgresql"));
        let refusal = Search::default().choose(Some(14)).unwrap_err();
        assert!(refusal.next.contains("apt-get install -y postgresql-14"));
    }
}
