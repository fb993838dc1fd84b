//! The file tools through the real program.

use std::os::unix::fs::PermissionsExt;

use bazilion::limits::{READ_MAX, SEARCH_RESULTS_MAX};
use bazilion::repo::files::{Edit, FileContent};
use bazilion::repo::search::GrepQuery;
use bazilion::toolbox::{RefusedCode, ToolboxError};

use super::bed::Bed;

fn text(content: FileContent) -> (String, u64, Option<u64>, bool) {
    match content {
        FileContent::Text {
            text,
            lines,
            next_offset,
            cut,
            ..
        } => (text, lines, next_offset, cut),
        FileContent::Image { .. } => panic!("an image"),
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ToolboxError>) -> String {
    match result {
        Err(ToolboxError::Refused(refused)) => refused.message,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn lines_are_read_with_offset_and_limit() {
    let bed = Bed::new();
    bed.file("a", "one\ntwo\nthree\nfour");
    let toolbox = bed.toolbox();
    let read = |offset, limit| toolbox.read("a", offset, limit);
    assert_eq!(
        text(read(None, None).await.unwrap()),
        ("one\ntwo\nthree\nfour".into(), 4, None, false)
    );
    assert_eq!(
        text(read(Some(2), Some(2)).await.unwrap()),
        ("two\nthree\n".into(), 2, Some(4), false)
    );
    assert_eq!(
        text(read(Some(4), None).await.unwrap()),
        ("four".into(), 1, None, false)
    );
    assert!(refusal(read(Some(9), None).await).contains("4 lines"));
    assert_eq!(
        text(toolbox.read("/workspace/a", Some(4), None).await.unwrap()).0,
        "four"
    );
}

#[tokio::test]
async fn a_call_reads_64_kib_and_says_where_to_go_on() {
    let bed = Bed::new();
    bed.file("a", "0123456789abcde\n".repeat(5000))
        .file("long", "é".repeat(READ_MAX));
    let toolbox = bed.toolbox();
    let (content, lines, next, _) = text(toolbox.read("a", None, None).await.unwrap());
    assert_eq!((content.len(), lines, next), (READ_MAX, 4096, Some(4097)));
    let (content, _, next, cut) = text(toolbox.read("long", None, None).await.unwrap());
    assert_eq!((content.len(), cut, next), (READ_MAX, true, Some(2)));
}

#[tokio::test]
async fn images_come_back_as_images_and_other_binaries_not_at_all() {
    let bed = Bed::new();
    bed.file("a.png", b"\x89PNG\r\n\x1a\nrest")
        .file("b.bin", b"\0\0")
        .file("dir/x", "");
    let toolbox = bed.toolbox();
    let FileContent::Image { mime, base64, .. } = toolbox.read("a.png", None, None).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(
        (mime.as_str(), base64.as_str()),
        ("image/png", "iVBORw0KGgpyZXN0")
    );
    assert!(refusal(toolbox.read("b.bin", None, None).await).contains("not text"));
    assert!(refusal(toolbox.read("dir", None, None).await).contains("directory"));
}

#[tokio::test]
async fn no_tool_leaves_the_root_or_follows_a_link() {
    let bed = Bed::new();
    std::fs::write(bed.outside().join("secret"), "s").unwrap();
    bed.link("out", "../secret")
        .link("dir", "..")
        .link("self", ".")
        .fifo("fifo")
        .file("f", "x");
    let toolbox = bed.toolbox();
    for path in [
        "out",
        "dir/secret",
        "../secret",
        "/etc/passwd",
        "self/f",
        "fifo",
        "a\0b",
    ] {
        refusal(toolbox.read(path, None, None).await);
        refusal(toolbox.write(path, "x").await);
        let edits = vec![Edit {
            old_text: "s".into(),
            new_text: "t".into(),
        }];
        refusal(toolbox.edit(path, edits).await);
        if path != "fifo" {
            refusal(toolbox.ls(Some(path)).await);
            refusal(
                toolbox
                    .grep(GrepQuery {
                        pattern: "s".into(),
                        path: Some(path.into()),
                        ..Default::default()
                    })
                    .await,
            );
        }
    }
    refusal(toolbox.write("dir/new/file", "x").await);
    assert!(!bed.outside().join("new").exists());
    assert_eq!(
        std::fs::read_to_string(bed.outside().join("secret")).unwrap(),
        "s"
    );
}

#[tokio::test]
async fn nothing_is_written_into_git() {
    let bed = Bed::new();
    bed.repository();
    let toolbox = bed.toolbox();
    for path in [".git/config", ".GIT/hooks/x", "sub/.git/config", ".git"] {
        assert!(
            refusal(toolbox.write(path, "x").await).contains(".git"),
            "{path}"
        );
        let edits = vec![Edit {
            old_text: "core".into(),
            new_text: "x".into(),
        }];
        assert!(
            refusal(toolbox.edit(path, edits).await).contains(".git"),
            "{path}"
        );
    }
    assert!(toolbox.write(".gitignore", "x\n").await.is_ok());
    assert!(toolbox.read(".git/HEAD", None, None).await.is_ok());
}

#[tokio::test]
async fn a_write_keeps_mode_and_line_ends_and_leaves_no_temporary_file() {
    let bed = Bed::new();
    bed.file("run.sh", "a\r\nb\r\n");
    std::fs::set_permissions(bed.path("run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    let toolbox = bed.toolbox();
    let written = toolbox.write("run.sh", "c\nd\n").await.unwrap();
    assert!(!written.created);
    assert_eq!(bed.text("run.sh"), "c\r\nd\r\n");
    let edits = vec![Edit {
        old_text: "c\nd".into(),
        new_text: "e\nf\ng".into(),
    }];
    toolbox.edit("run.sh", edits).await.unwrap();
    assert_eq!(bed.text("run.sh"), "e\r\nf\r\ng\r\n");
    assert_eq!(
        bed.path("run.sh").metadata().unwrap().permissions().mode() & 0o777,
        0o750
    );
    assert!(toolbox.write("new/deep/file", "x").await.unwrap().created);
    let names: Vec<_> = toolbox
        .ls(None)
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(names, ["new", "run.sh"]);
}

#[tokio::test]
async fn a_refused_edit_changes_nothing() {
    let bed = Bed::new();
    bed.file("a", "x x");
    let toolbox = bed.toolbox();
    let edit = |old: &str| {
        vec![Edit {
            old_text: old.into(),
            new_text: "y".into(),
        }]
    };
    assert!(refusal(toolbox.edit("a", edit("x")).await).contains("occurs 2 times"));
    assert!(refusal(toolbox.edit("a", edit("z")).await).contains("does not occur"));
    refusal(toolbox.edit("missing", edit("z")).await);
    assert_eq!(bed.text("a"), "x x");
}

#[tokio::test]
async fn concurrent_edits_of_one_file_all_happen() {
    let bed = Bed::new();
    bed.file("a", (0..20).map(|n| format!("<{n}>\n")).collect::<String>());
    let toolbox = bed.toolbox();
    let edits = (0..20).map(|n| {
        let edit = Edit {
            old_text: format!("<{n}>"),
            new_text: format!("done {n}"),
        };
        let toolbox = toolbox.clone();
        async move { toolbox.edit("a", vec![edit]).await }
    });
    for result in futures_util::future::join_all(edits).await {
        result.unwrap();
    }
    assert!(!bed.text("a").contains('<'));
}

#[tokio::test]
async fn a_read_only_toolbox_writes_nothing() {
    let bed = Bed::new();
    bed.file("a", "x");
    let toolbox = bed.read_only_toolbox();
    let edits = vec![Edit {
        old_text: "x".into(),
        new_text: "y".into(),
    }];
    for result in [
        toolbox.write("a", "y").await,
        toolbox.edit("a", edits).await,
    ] {
        let Err(ToolboxError::Refused(refused)) = result else {
            panic!()
        };
        assert_eq!(refused.code, RefusedCode::ReadOnly);
    }
    assert_eq!(bed.text("a"), "x");
}

#[tokio::test]
async fn find_honours_gitignore_and_has_its_bound() {
    let bed = Bed::new();
    bed.file(".gitignore", "*.log\n/target/\n!keep.log\n")
        .file("src/.gitignore", "gen/\n");
    bed.file("a.log", "")
        .file("keep.log", "")
        .file("target/x.rs", "")
        .file("src/gen/y.rs", "");
    bed.file("src/main.rs", "")
        .file("src/target/z.rs", "")
        .file(".git/info/exclude", "mine\n")
        .file("mine/q.rs", "");
    let toolbox = bed.toolbox();
    assert_eq!(
        toolbox.find("*.rs", None).await.unwrap().paths,
        ["src/main.rs", "src/target/z.rs"]
    );
    assert_eq!(
        toolbox.find("*.log", None).await.unwrap().paths,
        ["keep.log"]
    );
    assert_eq!(
        toolbox.find("target/**", Some("src")).await.unwrap().paths,
        ["src/target/z.rs"]
    );
    assert_eq!(
        toolbox.find("src/*.rs", None).await.unwrap().paths,
        ["src/main.rs"]
    );
    assert_eq!(toolbox.find("src", None).await.unwrap().paths, ["src/"]);
    assert!(refusal(toolbox.find("[", None).await).contains("pattern"));
    for n in 0..250 {
        bed.file(&format!("many/f{n}"), "");
    }
    let found = toolbox.find("f*", None).await.unwrap();
    assert_eq!(
        (found.paths.len(), found.truncated),
        (SEARCH_RESULTS_MAX, true)
    );
}

#[tokio::test]
async fn grep_shows_lines_with_their_context_once() {
    let bed = Bed::new();
    bed.file("a.rs", "zero\nhit one\ntwo\nHIT three\nfour\nfive\nsix\n")
        .file("b.txt", "hit\r\n")
        .file("bin", b"hit\0");
    let toolbox = bed.toolbox();
    let query = |glob: Option<&str>, ignore_case, context| GrepQuery {
        pattern: "^hit".into(),
        glob: glob.map(str::to_owned),
        ignore_case: Some(ignore_case),
        context: Some(context),
        path: None,
    };
    let lines = |hits: bazilion::repo::search::Hits| -> Vec<(String, u64, bool)> {
        hits.lines
            .into_iter()
            .map(|l| (l.path, l.line, l.is_match))
            .collect()
    };
    let plain = lines(toolbox.grep(query(None, false, 0)).await.unwrap());
    assert_eq!(plain, [("a.rs".into(), 2, true), ("b.txt".into(), 1, true)]);
    let with_context = lines(toolbox.grep(query(Some("*.rs"), true, 1)).await.unwrap());
    let expected: Vec<_> = [(1, false), (2, true), (3, false), (4, true), (5, false)]
        .map(|(n, m)| ("a.rs".into(), n, m))
        .into();
    assert_eq!(with_context, expected);
    let one = GrepQuery {
        pattern: "hit$".into(),
        path: Some("b.txt".into()),
        ..Default::default()
    };
    assert_eq!(toolbox.grep(one).await.unwrap().lines.len(), 1);
    let bad = GrepQuery {
        pattern: "(".into(),
        ..Default::default()
    };
    assert!(refusal(toolbox.grep(bad).await).contains("pattern"));
}

#[tokio::test]
async fn grep_has_bounds_and_survives_hostile_ignore_files() {
    let bed = Bed::new();
    bed.file("a", "hit\n".repeat(500))
        .fifo(".gitignore")
        .file("d/x", "hit")
        .link("d/.gitignore", "/dev/zero");
    let hits = bed
        .toolbox()
        .grep(GrepQuery {
            pattern: "hit".into(),
            ..Default::default()
        })
        .await
        .unwrap();
    assert_eq!(
        (hits.lines.len(), hits.truncated),
        (SEARCH_RESULTS_MAX, true)
    );
}
