//! Git states, made with the real `git` and compared with what it says.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use bazilion::repo::report::{Git, GitState, HeadState, IssueCode, State};

use super::bed::{Bed, codes};

fn counts(git: &Git) -> [u64; 4] {
    [git.staged, git.unstaged, git.untracked, git.conflicted].map(|count| count.unwrap())
}

fn git(bed: &Bed) -> Git {
    let git = bed.context(".").git;
    assert_eq!(git.state, GitState::Available, "{git:?}");
    git
}

fn refused(bed: &Bed) -> IssueCode {
    let report = bed.context(".");
    assert_eq!(report.git.state, GitState::Unavailable, "{:?}", report.git);
    assert_eq!(report.instructions.state, State::Complete);
    report.git.issues[0].code
}

#[test]
fn the_states_of_a_working_tree_are_counted() {
    let bed = Bed::new();
    for name in ["a", "b", "c", "d", "e"] {
        bed.file(name, "one\n");
    }
    bed.repository();
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 0]);
    bed.file("a", "two\n")
        .file("b", "two\n")
        .file("new", "")
        .file("dir/one", "")
        .file("dir/two", "");
    bed.git("add a new");
    bed.file("a", "three\n");
    std::fs::remove_file(bed.path("c")).unwrap();
    bed.git("rm -q --cached d");
    let git = git(&bed);
    // a is staged and modified again, new is staged, d is removed from the index and untracked.
    assert_eq!(counts(&git), [3, 3, 3, 0]);
    assert_eq!(git.branch.as_deref(), Some("main"));
    assert_eq!(git.head.as_deref(), Some(bed.git("rev-parse HEAD").trim()));
    assert_eq!(
        (git.head_state, git.root.as_deref()),
        (Some(HeadState::Branch), Some("."))
    );
}

#[test]
fn a_conflict_is_counted_once_and_not_as_staged() {
    let bed = Bed::new();
    bed.file("a", "base\n").repository();
    bed.git("checkout -q -b other");
    bed.file("a", "other\n").git("commit -qam other");
    bed.git("checkout -q main");
    bed.file("a", "main\n").git("commit -qam main");
    assert!(!bed.try_git(&bed.root(), "merge other").status.success());
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 1]);
}

#[test]
fn an_unborn_branch_has_no_head() {
    let bed = Bed::new();
    bed.file("a", "");
    bed.git("init -q -b trunk");
    let git = git(&bed);
    assert_eq!(
        (git.branch.as_deref(), git.head, git.head_state),
        (Some("trunk"), None, Some(HeadState::Unborn))
    );
    assert_eq!([git.staged, git.untracked], [Some(0), Some(1)]);
}

#[test]
fn r025_the_index_is_byte_identical_afterwards() {
    let bed = Bed::new();
    bed.file("a", "one").repository();
    // Touched, so that git itself would refresh the index.
    bed.file("a", "one");
    let before = (
        std::fs::read(bed.path(".git/index")).unwrap(),
        bed.path(".git/index").metadata().unwrap().mtime_nsec(),
    );
    git(&bed);
    let after = (
        std::fs::read(bed.path(".git/index")).unwrap(),
        bed.path(".git/index").metadata().unwrap().mtime_nsec(),
    );
    assert_eq!(before, after);
    assert!(!bed.path(".git/index.lock").exists());
}

#[test]
fn r027_a_detached_head_has_no_branch() {
    let bed = Bed::new();
    bed.repository().git("checkout -q --detach");
    let git = git(&bed);
    assert_eq!(
        (git.branch, git.head_state),
        (None, Some(HeadState::Detached))
    );
    assert_eq!(git.head.unwrap(), bed.git("rev-parse HEAD").trim());
}

#[test]
fn packed_refs_and_packed_objects_are_read() {
    let bed = Bed::new();
    bed.file("a", "x")
        .repository()
        .git("branch feature/deep/name");
    bed.git("gc -q");
    bed.git("pack-refs --all");
    bed.git("checkout -q feature/deep/name");
    assert_eq!(git(&bed).branch.as_deref(), Some("feature/deep/name"));
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 0]);
}

#[test]
fn r029_d83_no_helper_of_the_repository_runs() {
    let bed = Bed::new();
    let marker = bed.outside().join("marker");
    let script = bed.outside().join("evil");
    std::fs::write(&script, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    bed.file(".gitattributes", "* filter=pwn diff=pwn\n")
        .file("a", "one")
        .repository();
    let script = script.display();
    for key in [
        "core.fsmonitor",
        "diff.external",
        "core.hooksPath",
        "core.sshCommand",
        "credential.helper",
        "core.pager",
        "diff.pwn.textconv",
        "core.alternateRefsCommand",
        "merge.pwn.driver",
    ] {
        bed.git(&format!("config {key} {script}"));
    }
    std::fs::copy(
        bed.outside().join("evil"),
        bed.path(".git/hooks/post-index-change"),
    )
    .unwrap();
    bed.file("a", "two");
    assert_eq!(counts(&git(&bed)), [0, 1, 0, 0]);
    assert!(
        bazilion::repo::diff::diff(&bed.pinned())
            .patch
            .contains("+two")
    );
    assert!(!marker.exists());
}

#[test]
fn filters_includes_and_foreign_settings_are_not_guessed_at() {
    let bed = Bed::new();
    bed.file("a", "").repository();
    let config = std::fs::read_to_string(bed.path(".git/config")).unwrap();
    for more in [
        "[filter \"x\"]\n\tclean = /bin/false\n",
        "[include]\n\tpath = ../../x\n",
        "[core]\n\tworktree = /etc\n",
        "[core]\n\texcludesFile = /etc/passwd\n",
        "[extensions]\n\tpartialClone = origin\n",
        "[extensions]\n\tobjectFormat = sha256\n",
    ] {
        bed.file(".git/config", format!("{config}{more}"));
        assert_eq!(
            refused(&bed),
            IssueCode::UnsupportedGitConfiguration,
            "{more}"
        );
    }
}

#[test]
fn r031_a_subfolder_of_a_repository_is_no_repository() {
    let bed = Bed::new();
    bed.git_in(bed.outside(), "init -q");
    assert_eq!(bed.context(".").git.state, GitState::NotRepository);
    bed.file(".git", "gitdir: ../.git\n");
    assert_eq!(refused(&bed), IssueCode::UnsupportedGitMetadata);
}

#[test]
fn d86_worktrees_and_submodules_are_external_metadata() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x")
        .file("package.json", r#"{"scripts":{"t":"x"}}"#)
        .repository();
    bed.git("worktree add -q ../tree");
    let tree = bazilion::repo::paths::Root::open(&bed.outside().join("tree")).unwrap();
    let report = bazilion::repo::context(&tree, "t", ".", None);
    assert_eq!(
        codes(&report.git.issues),
        [IssueCode::UnsupportedGitMetadata]
    );
    assert_eq!(
        (
            report.instructions.files.len(),
            report.commands.candidates.len()
        ),
        (1, 1)
    );
    // The repository that has a worktree is read as ever; so is one that has a submodule.
    git(&bed);
    bed.git("-c protocol.file.allow=always submodule --quiet add ./ sub");
    bed.git("commit -qm sub");
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 0]);
    let report = bed.context("sub");
    assert_eq!(
        codes(&report.git.issues),
        [IssueCode::UnsupportedGitMetadata]
    );
    assert_eq!(report.git.root.as_deref(), Some("sub"));
}

#[test]
fn alternates_and_links_inside_the_metadata_are_refused() {
    let bed = Bed::new();
    bed.file("a", "x").repository();
    bed.git("clone -q --shared . ../shared");
    let shared = bazilion::repo::paths::Root::open(&bed.outside().join("shared")).unwrap();
    let report = bazilion::repo::context(&shared, "t", ".", None);
    assert_eq!(
        codes(&report.git.issues),
        [IssueCode::UnsupportedGitMetadata]
    );
    for (path, target) in [
        ("HEAD", "../a"),
        ("index", "/etc/passwd"),
        ("refs/heads/x", "/etc/passwd"),
        ("objects/pack/x.pack", "/dev/zero"),
        ("info/exclude", "/etc/passwd"),
    ] {
        let path = format!(".git/{path}");
        let saved = std::fs::read(bed.path(&path)).ok();
        let _ = std::fs::remove_file(bed.path(&path));
        bed.link(&path, target);
        assert_eq!(refused(&bed), IssueCode::UnsupportedGitMetadata, "{path}");
        std::fs::remove_file(bed.path(&path)).unwrap();
        if let Some(saved) = saved {
            bed.file(&path, saved);
        }
    }
    git(&bed);
    for path in [
        ".git/packed-refs",
        ".git/refs/heads/fifo",
        ".git/objects/00/fifo",
    ] {
        let _ = std::fs::create_dir(bed.path(".git/objects/00"));
        bed.fifo(path);
        assert_eq!(refused(&bed), IssueCode::UnsupportedGitMetadata, "{path}");
        std::fs::remove_file(bed.path(path)).unwrap();
    }
    std::fs::rename(bed.path(".git"), bed.outside().join("git")).unwrap();
    bed.link(".git", "../git");
    assert_eq!(refused(&bed), IssueCode::UnsupportedGitMetadata);
}

#[test]
fn a_gitignore_that_is_a_fifo_ends_in_time() {
    let bed = Bed::new();
    bed.file("a", "x").repository();
    bed.fifo(".gitignore");
    let started = std::time::Instant::now();
    let report = bed.context(".");
    assert!(started.elapsed() < Duration::from_secs(8));
    assert_eq!(report.instructions.state, State::Complete);
}

#[test]
fn r033_filemode_and_exclude_are_respected() {
    let bed = Bed::new();
    bed.file("a", "x")
        .repository()
        .git("config core.filemode false");
    std::fs::set_permissions(bed.path("a"), PermissionsExt::from_mode(0o755)).unwrap();
    bed.file("local.txt", "")
        .file(".git/info/exclude", "local.txt\n");
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 0]);
    bed.git("config core.filemode true");
    assert_eq!(counts(&git(&bed)), [0, 1, 0, 0]);
}

#[test]
fn d85_a_repository_of_another_user_is_read() {
    let bed = Bed::new();
    bed.file("a", "x").repository();
    // Only root can give files away; another user is tested with a repository that is not theirs elsewhere.
    let given = std::process::Command::new("chown")
        .args(["-R", "12345:12345"])
        .arg(bed.root())
        .status()
        .unwrap();
    assert!(given.success(), "this test needs root");
    bed.file("b", "");
    assert_eq!(counts(&git(&bed)), [0, 0, 1, 0]);
}

#[test]
fn d89_a_clean_checkout_with_crlf_has_no_changes() {
    let bed = Bed::new();
    bed.file(".gitattributes", "* text=auto\n")
        .file("a.txt", "one\ntwo\n")
        .repository();
    bed.git("config core.autocrlf true");
    std::fs::remove_file(bed.path("a.txt")).unwrap();
    bed.git("checkout -q -- a.txt");
    assert_eq!(bed.text("a.txt"), "one\r\ntwo\r\n");
    // Another time than the index has seen, so that content is compared.
    bed.file("a.txt", "one\r\ntwo\r\n");
    assert_eq!(counts(&git(&bed)), [0, 0, 0, 0]);
    assert_eq!(bazilion::repo::diff::diff(&bed.pinned()).patch, "");
}

#[test]
fn the_deepest_repository_on_the_way_is_the_one() {
    let bed = Bed::new();
    bed.repository().file("inner/x/file", "");
    bed.git_in(&bed.path("inner"), "init -q -b inner");
    assert_eq!(bed.context("inner/x").git.root.as_deref(), Some("inner"));
    assert_eq!(bed.context("inner/x").git.branch.as_deref(), Some("inner"));
    assert_eq!(bed.context(".").git.branch.as_deref(), Some("main"));
}

#[test]
fn broken_metadata_is_unavailable_and_nothing_else() {
    let bed = Bed::new();
    bed.file("a", "x").repository();
    for (path, bytes) in [
        (".git/index", &b"DIRC\0\0\0\x02\xff\xff\xff\xffgarbage"[..]),
        (".git/HEAD", b"\xff\xfe"),
        (".git/HEAD", b"ref: ../../etc/passwd\n"),
    ] {
        let saved = std::fs::read(bed.path(path)).unwrap();
        bed.file(path, bytes);
        assert_eq!(refused(&bed), IssueCode::GitUnreadable, "{path}");
        bed.file(path, saved);
    }
    std::fs::remove_dir_all(bed.path(".git")).unwrap();
    std::fs::create_dir(bed.path(".git")).unwrap();
    assert_eq!(bed.context(".").git.state, GitState::Unavailable);
}

#[test]
fn a_metadata_copy_has_its_bounds() {
    let bed = Bed::new();
    bed.file("a", "x").repository();
    for n in 0..16_400 {
        std::fs::write(bed.path(&format!(".git/refs/heads/b{n}")), "").unwrap();
    }
    assert!(matches!(
        refused(&bed),
        IssueCode::GitMetadataLimit | IssueCode::GitTimeout
    ));
}
