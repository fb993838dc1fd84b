//! What receipts compare.

use bazilion::repo::identities::{InputKind, capture};
use bazilion::repo::report::{IssueCode, State};
use bazilion::repo::{CwdError, check_cwd};

use super::bed::{Bed, codes};

#[test]
fn absence_is_an_identity_and_a_new_lockfile_changes_the_fingerprint() {
    let bed = Bed::new();
    bed.file("package.json", "{}").file("app/src.rs", "x");
    let before = capture(&bed.pinned(), "app");
    assert_eq!(before.instructions, State::Complete);
    let absent = before
        .inputs
        .iter()
        .find(|i| i.path == "app/Cargo.lock")
        .unwrap();
    assert_eq!((absent.kind, &absent.sha256), (InputKind::Lockfile, &None));
    assert!(
        before
            .inputs
            .iter()
            .any(|i| i.path == "package.json" && i.sha256.is_some())
    );
    assert_eq!(
        capture(&bed.pinned(), "app").input_fingerprint,
        before.input_fingerprint
    );
    bed.file("app/src.rs", "code is not covered");
    assert_eq!(
        capture(&bed.pinned(), "app").input_fingerprint,
        before.input_fingerprint
    );
    for (path, text) in [
        ("app/Cargo.lock", "1"),
        ("AGENTS.md", "x"),
        ("README.md", "x"),
        ("package.json", "{ }"),
    ] {
        let before = capture(&bed.pinned(), "app");
        bed.file(path, text);
        let after = capture(&bed.pinned(), "app");
        assert_ne!(before.input_fingerprint, after.input_fingerprint, "{path}");
        let changed: Vec<_> = before
            .inputs
            .iter()
            .zip(&after.inputs)
            .filter(|(a, b)| a != b)
            .map(|(_, b)| b.path.as_str())
            .collect();
        assert_eq!(changed, [path]);
    }
}

#[test]
fn c027_an_unreadable_lockfile_or_four_mib_of_them_leave_no_fingerprint() {
    let bed = Bed::new();
    bed.link("Cargo.lock", "x");
    let seen = capture(&bed.pinned(), ".");
    assert_eq!(
        (seen.input_fingerprint, seen.instructions),
        (None, State::Complete)
    );
    assert_eq!(codes(&seen.issues), [IssueCode::UnsafeFile]);
    std::fs::remove_file(bed.path("Cargo.lock")).unwrap();
    bed.file("Cargo.lock", vec![b'x'; 3 << 20])
        .file("yarn.lock", vec![b'x'; 1 << 20]);
    assert!(capture(&bed.pinned(), ".").input_fingerprint.is_some());
    bed.file("go.sum", "x");
    let seen = capture(&bed.pinned(), ".");
    assert_eq!(codes(&seen.issues), [IssueCode::ByteLimit]);
    assert_eq!(seen.input_fingerprint, None);
}

#[test]
fn c029_incomplete_instructions_are_told_with_the_identities() {
    let bed = Bed::new();
    bed.fifo("AGENTS.md");
    let seen = capture(&bed.pinned(), ".");
    assert_eq!(
        (seen.instructions, seen.input_fingerprint),
        (State::Incomplete, None)
    );
}

#[test]
fn e005_a_cwd_must_be_a_real_directory() {
    let bed = Bed::new();
    bed.file("a/b/f", "").link("link", "a");
    let root = bed.pinned();
    assert_eq!(check_cwd(&root, "/workspace/a/b").unwrap().as_str(), "a/b");
    assert_eq!(check_cwd(&root, ".").unwrap().as_str(), ".");
    assert_eq!(check_cwd(&root, "link/b"), Err(CwdError::Link));
    assert_eq!(check_cwd(&root, "a/b/f"), Err(CwdError::NotDirectory));
    assert_eq!(check_cwd(&root, "a/x"), Err(CwdError::Missing));
    assert!(matches!(
        check_cwd(&root, "../outside"),
        Err(CwdError::Path(_))
    ));
}
