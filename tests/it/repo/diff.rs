//! Patches of the working tree.

use std::os::unix::fs::PermissionsExt;

use bazilion::limits::DIFF_MAX;
use bazilion::repo::diff::diff;
use bazilion::repo::report::GitState;

use super::bed::Bed;

#[test]
fn a_patch_applies_and_gives_the_working_tree() {
    let bed = Bed::new();
    bed.file(
        "a",
        (0..40).map(|n| format!("line {n}\n")).collect::<String>(),
    );
    bed.file("gone", "bye\n")
        .file("mode", "x\n")
        .file("no-end", "one")
        .file("dir/é \"q\"", "x\n")
        .repository();
    bed.file(
        "a",
        (0..40)
            .map(|n| {
                if n % 15 == 3 {
                    format!("other {n}\n")
                } else {
                    format!("line {n}\n")
                }
            })
            .collect::<String>(),
    );
    std::fs::remove_file(bed.path("gone")).unwrap();
    std::fs::set_permissions(bed.path("mode"), PermissionsExt::from_mode(0o755)).unwrap();
    bed.file("no-end", "one\ntwo")
        .file("dir/é \"q\"", "y\n")
        .file("new/file", "fresh\n")
        .link("link", "a");
    bed.file("staged", "s\n").git("add staged");
    let patch = diff(&bed.pinned());
    assert_eq!(
        (patch.state, patch.truncated, patch.files),
        (GitState::Available, false, 8)
    );

    bed.git("clone -q . ../copy");
    std::fs::write(bed.outside().join("patch"), &patch.patch).unwrap();
    let copy = bed.outside().join("copy");
    bed.git_in(&copy, "apply --whitespace=nowarn ../patch");
    for path in [
        "a",
        "mode",
        "no-end",
        "dir/é \"q\"",
        "new/file",
        "staged",
        "link",
    ] {
        assert_eq!(
            std::fs::read(copy.join(path)).unwrap(),
            std::fs::read(bed.path(path)).unwrap(),
            "{path}"
        );
    }
    assert!(!copy.join("gone").exists());
    assert_eq!(
        copy.join("mode").metadata().unwrap().permissions().mode() & 0o111,
        0o111
    );
}

#[test]
fn a_patch_is_cut_at_one_mib_and_says_so() {
    let bed = Bed::new();
    bed.repository();
    for n in 0..3 {
        bed.file(&format!("f{n}"), "0123456789abcde\n".repeat(40_000));
    }
    let patch = diff(&bed.pinned());
    assert!(patch.truncated && patch.patch.len() <= DIFF_MAX);
    assert!(patch.patch.ends_with('\n'));
    assert_eq!(patch.files, 3);
}

#[test]
fn binary_files_are_named_only() {
    let bed = Bed::new();
    bed.repository().file("b", b"\0\x01");
    let patch = diff(&bed.pinned()).patch;
    assert!(
        patch.contains("Binary files /dev/null and b/b differ"),
        "{patch}"
    );
}

#[test]
fn a_link_is_shown_as_its_text_and_never_followed() {
    let bed = Bed::new();
    bed.file("d/f", "tracked\n").repository();
    std::fs::remove_dir_all(bed.path("d")).unwrap();
    std::fs::write(bed.outside().join("f"), "outside\n").unwrap();
    bed.link("d", "..").link("p", "/etc/passwd");
    let patch = diff(&bed.pinned()).patch;
    assert!(
        patch.contains("+/etc/passwd") && !patch.contains("outside") && !patch.contains("root:"),
        "{patch}"
    );
}

#[test]
fn a_folder_without_git_has_no_patch() {
    assert_eq!(diff(&Bed::new().pinned()).state, GitState::NotRepository);
}
