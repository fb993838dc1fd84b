//! Read-only files beside the workspace.

use std::os::unix::fs::PermissionsExt;

use bazilion::repo::layout::{LaidFile, lay_out, remove};
use bazilion::repo::paths::RelPath;

use super::bed::Bed;

fn file(path: &str, bytes: &[u8]) -> LaidFile {
    LaidFile {
        path: RelPath::tool(path).unwrap(),
        bytes: bytes.to_vec(),
        is_executable: path.ends_with(".sh"),
    }
}

#[test]
fn files_are_laid_out_read_only_and_removed_whole() {
    let bed = Bed::new();
    let base = bed.root();
    lay_out(
        &base,
        "turn-1",
        &[
            file("skills/x/SKILL.md", b"s"),
            file("skills/x/run.sh", b"r"),
            file("inputs/1-a", b""),
        ],
    )
    .unwrap();
    let mode = |path: &str| bed.path(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(
        [
            mode("turn-1"),
            mode("turn-1/skills/x"),
            mode("turn-1/skills/x/SKILL.md"),
            mode("turn-1/skills/x/run.sh")
        ],
        [0o555, 0o555, 0o444, 0o555]
    );
    remove(&base, "turn-1").unwrap();
    remove(&base, "turn-1").unwrap();
    assert!(!bed.path("turn-1").exists());
}

#[test]
fn a_layout_never_lands_on_something_that_exists_or_outside() {
    let bed = Bed::new();
    bed.file("keep/x", "x").link("link", "keep");
    assert!(lay_out(&bed.root(), "keep", &[]).is_err());
    assert!(lay_out(&bed.root(), "link", &[]).is_err());
    for name in ["../x", "a/b", "", ".", "/x"] {
        assert!(lay_out(&bed.root(), name, &[]).is_err(), "{name}");
        assert!(remove(&bed.root(), name).is_err(), "{name}");
    }
    assert!(remove(&bed.root(), "link").is_err());
    assert_eq!(bed.text("keep/x"), "x");
}

#[test]
fn a_layout_that_fails_leaves_nothing() {
    let bed = Bed::new();
    assert!(lay_out(&bed.root(), "t", &[file("a", b"1"), file("a/b", b"2")]).is_err());
    assert!(!bed.path("t").exists());
}
