//! A throw-away directory tree, real `git` in it, and the real toolbox beside it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bazilion::repo::paths::Root;
use bazilion::repo::report::{IssueCode, Report};
use bazilion::toolbox::Toolbox;

/// A directory that is removed with the value; the Team's root is `root` in it.
pub struct Bed {
    dir: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Bed {
    pub fn new() -> Bed {
        let dir = std::env::temp_dir()
            .join(bazilion::repo::paths::private_name("bazilion-bed-").unwrap());
        std::fs::create_dir_all(dir.join("root")).unwrap();
        Bed { dir }
    }

    /// The directory around the root.
    pub fn outside(&self) -> &Path {
        &self.dir
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub fn pinned(&self) -> Root {
        Root::open(&self.root()).unwrap()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file below the root, with its directories.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    pub fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    pub fn fifo(&self, path: &str) -> &Self {
        let made = std::process::Command::new("mkfifo")
            .arg(self.path(path))
            .status()
            .unwrap();
        assert!(made.success());
        self
    }

    /// Real git in the root, without this machine's configuration.
    pub fn git(&self, arguments: &str) -> String {
        self.git_in(&self.root(), arguments)
    }

    pub fn git_in(&self, dir: &Path, arguments: &str) -> String {
        let output = self.try_git(dir, arguments);
        assert!(output.status.success(), "git {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn try_git(&self, dir: &Path, arguments: &str) -> std::process::Output {
        std::process::Command::new("git")
            .args(arguments.split_whitespace())
            .current_dir(dir)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(["AUTHOR", "COMMITTER"].into_iter().flat_map(|who| {
                [
                    (format!("GIT_{who}_NAME"), "t"),
                    (format!("GIT_{who}_EMAIL"), "t@example.org"),
                ]
            }))
            .output()
            .unwrap()
    }

    /// A repository with one commit of the files that are there.
    pub fn repository(&self) -> &Self {
        self.git("init -q -b main");
        self.git("add -A");
        self.git("commit -q --allow-empty -m first");
        self
    }

    /// The report for a target, captured in this process.
    pub fn context(&self, target: &str) -> Report {
        bazilion::repo::context(&self.pinned(), "team", target, None)
    }

    /// The real toolbox program over the root.
    pub fn toolbox(&self) -> Toolbox {
        start(&self.root(), &[])
    }

    pub fn read_only_toolbox(&self) -> Toolbox {
        start(&self.root(), &["--read-only"])
    }
}

/// Starts the program; it ends when the connection is dropped.
pub fn start(root: &Path, more: &[&str]) -> Toolbox {
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_bazilion-toolbox"))
        .args(["serve", "--root"])
        .arg(root)
        .args(more)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    tokio::spawn(async move { child.wait().await });
    Toolbox::connect(output, input)
}

/// Codes of a section's issues, in order.
pub fn codes(issues: &[bazilion::repo::report::Issue]) -> Vec<IssueCode> {
    issues.iter().map(|issue| issue.code).collect()
}
