//! Instructions, suggestions, targets and bounds of the report.

use bazilion::limits::CONTEXT_REPORT_MAX;
use bazilion::repo::Capture;
use bazilion::repo::report::{CandidateKind, GitState, IssueCode, PackageManager, State};
use sha2::{Digest, Sha256};

use super::bed::{Bed, codes, start};

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[tokio::test]
async fn r001_a_plain_folder_is_a_complete_report_without_host_paths() {
    let bed = Bed::new();
    let report = bed.toolbox().context("team", ".", None).await.unwrap();
    assert_eq!(report.version, 1);
    assert_eq!(report.instructions.state, State::Complete);
    assert!(report.instructions.files.is_empty() && report.commands.sources.is_empty());
    assert_eq!(report.git.state, GitState::NotRepository);
    assert_eq!(report.root_identity.len(), 64);
    assert!(
        report
            .root_identity
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
    );
    let json = serde_json::to_string(&report).unwrap();
    assert!(
        !json.contains(bed.outside().to_str().unwrap()) && !json.contains("\"/"),
        "{json}"
    );
    assert!(json.contains("not a full code snapshot"));
}

#[test]
fn r003_only_files_on_the_way_to_the_target_are_instructions() {
    let bed = Bed::new();
    std::fs::write(bed.outside().join("AGENTS.md"), "above").unwrap();
    bed.file("AGENTS.md", "root")
        .file("a/AGENTS.md", "a")
        .file("a/b/AGENTS.md", "b");
    bed.file("sibling/AGENTS.md", "no")
        .file("a/b/c/AGENTS.md", "no")
        .file("a/agents.md", "no");
    let report = bed.context("a/b/file.rs");
    let seen: Vec<_> = report
        .instructions
        .files
        .iter()
        .map(|f| {
            (
                f.path.as_str(),
                f.scope.as_str(),
                f.precedence,
                f.content.as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("AGENTS.md", ".", 0, "root"),
            ("a/AGENTS.md", "a", 1, "a"),
            ("a/b/AGENTS.md", "a/b", 2, "b")
        ]
    );
}

#[test]
fn r005_unsafe_targets_give_an_incomplete_report() {
    let bed = Bed::new();
    bed.file("dir/file", "")
        .link("link", "dir")
        .link("out", "/etc")
        .fifo("fifo");
    for target in [
        "../x",
        "/tmp",
        "a/../../x",
        "a\\b",
        ".git/HEAD",
        "a\0b",
        "missing/x",
        "dir/file/x",
        "link",
        "link/file",
        "out/passwd",
        "fifo",
    ] {
        let report = bed.context(target);
        assert_eq!(report.instructions.state, State::Incomplete, "{target:?}");
        assert_eq!(
            codes(&report.instructions.issues),
            [IssueCode::UnsafeTarget],
            "{target:?}"
        );
        assert_eq!(
            codes(&report.commands.issues),
            [IssueCode::UnsafeTarget],
            "{target:?}"
        );
        assert_eq!(report.git.state, GitState::Unavailable);
    }
    for target in ["dir", "dir/file", "dir/new", "./dir//file"] {
        assert_eq!(
            bed.context(target).instructions.state,
            State::Complete,
            "{target}"
        );
    }
}

#[test]
fn r007_fifo_named_agents_md_does_not_hang() {
    let bed = Bed::new();
    bed.fifo("AGENTS.md");
    assert_eq!(
        codes(&bed.context(".").instructions.issues),
        [IssueCode::UnsafeFile]
    );
    std::fs::remove_file(bed.path("AGENTS.md")).unwrap();
    std::fs::create_dir(bed.path("AGENTS.md")).unwrap();
    assert_eq!(
        codes(&bed.context(".").instructions.issues),
        [IssueCode::UnsafeFile]
    );
}

#[tokio::test]
async fn r009_a_replaced_root_is_told() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x");
    let toolbox = bed.toolbox();
    let bound = toolbox.root().await.unwrap().root_identity;
    assert_eq!(
        toolbox
            .context("t", ".", Some(&bound))
            .await
            .unwrap()
            .instructions
            .state,
        State::Complete
    );
    std::fs::rename(bed.root(), bed.outside().join("old")).unwrap();
    std::fs::create_dir(bed.root()).unwrap();
    let report = toolbox.context("t", ".", Some(&bound)).await.unwrap();
    assert_eq!(codes(&report.instructions.issues), [IssueCode::RootChanged]);
    let report = bed.toolbox().context("t", ".", Some(&bound)).await.unwrap();
    assert_eq!(codes(&report.instructions.issues), [IssueCode::RootChanged]);
    assert!(report.instructions.files.is_empty());
}

#[test]
fn d73_r011_an_instruction_file_may_have_64_kib_and_no_byte_more() {
    let bed = Bed::new();
    let content = "x".repeat(65_536);
    bed.file("AGENTS.md", &content);
    let report = bed.context(".");
    assert_eq!(report.instructions.state, State::Complete);
    assert_eq!(
        report.instructions.files[0].sha256,
        sha256(content.as_bytes())
    );
    bed.file("AGENTS.md", format!("{content}x"));
    let report = bed.context(".");
    assert_eq!(codes(&report.instructions.issues), [IssueCode::ByteLimit]);
    assert!(report.instructions.files.is_empty());
    assert!(!serde_json::to_string(&report).unwrap().contains("xxx"));
}

#[test]
fn instructions_may_have_128_kib_together() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "r".repeat(65_536))
        .file("a/AGENTS.md", "a".repeat(65_536));
    bed.file("a/b/AGENTS.md", "b").file("a/b/c", "");
    let report = bed.context("a/b/c");
    assert_eq!(
        codes(&report.instructions.issues),
        [IssueCode::InstructionTotalLimit]
    );
    assert_eq!(
        report.instructions.issues[0].path.as_deref(),
        Some("a/b/AGENTS.md")
    );
    assert_eq!(report.instructions.files.len(), 2);
    assert_eq!(bed.context("a").instructions.state, State::Complete);
}

#[test]
fn r013_sixteen_directories_and_a_file_are_the_depth() {
    let bed = Bed::new();
    let deep = vec!["d"; 17].join("/");
    std::fs::create_dir_all(bed.path(&deep)).unwrap();
    let file = format!("{}/f", vec!["d"; 16].join("/"));
    bed.file(&file, "");
    assert_eq!(bed.context(&file).instructions.state, State::Complete);
    for target in [deep.clone(), format!("{deep}/x")] {
        assert_eq!(
            codes(&bed.context(&target).instructions.issues),
            [IssueCode::DepthLimit]
        );
    }
}

#[test]
fn r015_candidates_come_in_manifest_order_then_from_the_readme() {
    let bed = Bed::new();
    bed.file(
        "package.json",
        r#"{"packageManager":"pnpm@9.0.0","scripts":{"test":"vitest run","build":"tsc","a":"b"}}"#,
    );
    bed.file("pnpm-workspace.yaml", "packages: ['*']\n");
    bed.file(
        "README.md",
        "# x\n```sh\npnpm test\nnpm run build -- x\nnpm run other\n```\n",
    );
    let commands = bed.context(".").commands;
    let seen: Vec<_> = commands
        .candidates
        .iter()
        .map(|c| {
            (
                c.location.as_str(),
                c.command.as_str(),
                c.kind,
                c.package_manager,
            )
        })
        .collect();
    let (script, excerpt) = (CandidateKind::Script, CandidateKind::Excerpt);
    let (pnpm, npm) = (Some(PackageManager::Pnpm), Some(PackageManager::Npm));
    assert_eq!(
        seen,
        [
            ("scripts.test", "vitest run", script, pnpm),
            ("scripts.build", "tsc", script, pnpm),
            ("scripts.a", "b", script, pnpm),
            ("line 3", "pnpm test", excerpt, pnpm),
            ("line 4", "npm run build -- x", excerpt, npm),
            ("line 5", "npm run other", excerpt, npm),
        ]
    );
    assert_eq!(commands.sources.len(), 3);
    assert_eq!(commands.candidates[4].conflicts_with, [5]);
    assert_eq!(commands.candidates[5].conflicts_with, [4]);
    assert!(commands.candidates[0].conflicts_with.is_empty());
}

#[test]
fn scripts_of_one_name_and_another_text_name_each_other() {
    let bed = Bed::new();
    bed.file("package.json", r#"{"scripts":{"test":"a","build":"same"}}"#);
    bed.file(
        "p/package.json",
        r#"{"scripts":{"test":"b","build":"same"}}"#,
    );
    let candidates = bed.context("p").commands.candidates;
    assert_eq!(candidates[0].conflicts_with, [2]);
    assert_eq!(candidates[2].conflicts_with, [0]);
    assert_eq!(candidates[2].cwd, "p");
    assert!(candidates[1].conflicts_with.is_empty());
}

#[test]
fn r017_a_broken_manifest_leaves_the_rest() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x")
        .file("package.json", "{")
        .file("README.md", "```sh\nmake\n```");
    let report = bed.context(".");
    assert_eq!(report.instructions.state, State::Complete);
    assert_eq!(report.commands.state, State::Incomplete);
    assert_eq!(codes(&report.commands.issues), [IssueCode::InvalidManifest]);
    assert_eq!(report.commands.candidates.len(), 1);
    assert_eq!(report.commands.sources.len(), 2);
}

#[test]
fn r019_d94_forty_odd_scripts_give_thirty_two_candidates() {
    let bed = Bed::new();
    let mut scripts: Vec<String> = (0..39)
        .map(|n| format!(r#""s {n} é":"a\n\u001b[31m{n}""#))
        .collect();
    scripts.insert(3, format!(r#""long":"{}""#, "x".repeat(10_000)));
    bed.file(
        "package.json",
        format!(r#"{{"scripts":{{"====":"one",{}}}}}"#, scripts.join(",")),
    );
    let commands = bed.context(".").commands;
    assert_eq!(commands.candidates.len(), 32);
    assert_eq!(
        codes(&commands.issues),
        [IssueCode::CommandLimit, IssueCode::CandidateLimit]
    );
    assert_eq!(commands.candidates[0].location, "scripts.====");
    assert_eq!(commands.candidates[1].command, "a\n\u{1b}[31m0");
}

#[test]
fn r021_thirty_two_sources_are_read() {
    let bed = Bed::new();
    let mut dir = String::new();
    for _ in 0..9 {
        for name in [
            "package.json",
            "pnpm-workspace.yaml",
            "README.md",
            "CONTRIBUTING.md",
        ] {
            bed.file(&format!("{dir}{name}"), "{}");
        }
        dir.push_str("d/");
    }
    let report = bed.context(&"d/".repeat(8));
    assert_eq!(report.commands.sources.len(), 32);
    assert_eq!(
        codes(&report.commands.issues),
        [IssueCode::SourceCountLimit]
    );
    assert_eq!(report.instructions.state, State::Complete);
}

#[test]
fn sources_have_64_kib_each_and_256_kib_together() {
    let bed = Bed::new();
    bed.file("README.md", "x".repeat(65_537));
    assert_eq!(
        codes(&bed.context(".").commands.issues),
        [IssueCode::ByteLimit]
    );
    bed.file("README.md", "x".repeat(65_536))
        .file("CONTRIBUTING.md", "x".repeat(65_536));
    bed.file("a/README.md", "x".repeat(65_536))
        .file("a/CONTRIBUTING.md", "x".repeat(65_536));
    bed.file("a/b/README.md", "x");
    let commands = bed.context("a/b").commands;
    assert_eq!(commands.sources.len(), 4);
    assert_eq!(codes(&commands.issues), [IssueCode::SourceTotalLimit]);
}

#[test]
fn r023_a_report_that_escapes_to_more_than_256_kib_is_emptied() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "\u{1}".repeat(60_000))
        .file("package.json", r#"{"scripts":{"a":"b"}}"#);
    let report = bed.context(".");
    assert_eq!(codes(&report.instructions.issues), [IssueCode::ReportLimit]);
    assert_eq!(codes(&report.commands.issues), [IssueCode::ReportLimit]);
    assert!(report.instructions.files.is_empty() && report.commands.candidates.is_empty());
    assert!(serde_json::to_vec(&report).unwrap().len() <= CONTEXT_REPORT_MAX);
}

#[test]
fn r035_a_manifest_edited_during_the_capture_empties_the_commands_only() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x")
        .file("package.json", r#"{"scripts":{"a":"b"}}"#);
    let root = bed.pinned();
    let capture = Capture::begin(&root, ".").unwrap();
    bed.file("package.json", r#"{"scripts":{"a":"changed"}}"#);
    let sections = capture.finish();
    assert_eq!(sections.instructions.state, State::Complete);
    assert_eq!(codes(&sections.commands.issues), [IssueCode::SourceChanged]);
    assert!(sections.commands.candidates.is_empty() && sections.commands.sources.is_empty());
}

#[test]
fn an_instruction_that_appears_during_the_capture_empties_the_instructions_only() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x").file("a/README.md", "");
    let root = bed.pinned();
    let capture = Capture::begin(&root, "a").unwrap();
    bed.file("a/AGENTS.md", "new");
    let sections = capture.finish();
    assert_eq!(
        codes(&sections.instructions.issues),
        [IssueCode::SourceChanged]
    );
    assert!(sections.instructions.files.is_empty());
    assert_eq!(sections.commands.state, State::Complete);
}

#[test]
fn a_directory_swapped_during_the_capture_is_told() {
    let bed = Bed::new();
    bed.file("a/AGENTS.md", "x");
    let root = bed.pinned();
    let capture = Capture::begin(&root, "a").unwrap();
    std::fs::rename(bed.path("a"), bed.path("b")).unwrap();
    bed.link("a", "b");
    assert_eq!(
        codes(&capture.finish().instructions.issues),
        [IssueCode::SourceChanged]
    );
    let capture = Capture::begin(&root, "b").unwrap();
    std::fs::rename(bed.root(), bed.outside().join("moved")).unwrap();
    assert_eq!(
        codes(&capture.finish().instructions.issues),
        [IssueCode::RootChanged]
    );
}

#[test]
fn r039_dependency_generated_and_memory_folders_are_no_sources_but_govern() {
    let bed = Bed::new();
    for dir in [
        "node_modules",
        "dist",
        "build",
        "coverage",
        ".next",
        ".bazilion",
    ] {
        bed.file(&format!("{dir}/p/package.json"), r#"{"scripts":{"a":"b"}}"#);
        bed.file(&format!("{dir}/p/AGENTS.md"), "x");
        let report = bed.context(&format!("{dir}/p"));
        assert!(report.commands.sources.is_empty(), "{dir}");
        assert_eq!(report.instructions.files.len(), 1, "{dir}");
    }
}

#[test]
fn d75_invalid_bytes_are_unreadable_and_never_replaced() {
    let bed = Bed::new();
    let utf16: Vec<u8> = "hello"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .chain([0xff])
        .collect();
    for bytes in [b"a\xffb".to_vec(), utf16] {
        bed.file("AGENTS.md", bytes);
        let report = bed.context(".");
        assert_eq!(codes(&report.instructions.issues), [IssueCode::Unreadable]);
        assert!(report.instructions.issues[0].message.contains("not UTF-8"));
        assert!(report.instructions.files.is_empty());
    }
}

#[test]
fn d76_a_byte_order_mark_and_crlf_are_content() {
    let bed = Bed::new();
    let bytes = "\u{feff}one\r\ntwo\r\n".as_bytes();
    bed.file("AGENTS.md", bytes);
    let report = bed.context(".");
    assert_eq!(report.instructions.files[0].sha256, sha256(bytes));
    assert_eq!(
        report.instructions.files[0].content,
        "\u{feff}one\r\ntwo\r\n"
    );
}

#[test]
fn d78_a_linked_agents_md_is_refused_with_the_way_out() {
    let bed = Bed::new();
    bed.file("CLAUDE.md", "secret guidance")
        .link("AGENTS.md", "CLAUDE.md");
    let report = bed.context(".");
    let issue = &report.instructions.issues[0];
    assert_eq!(issue.code, IssueCode::UnsafeFile);
    assert_eq!(issue.path.as_deref(), Some("AGENTS.md"));
    assert!(issue.message.contains("link") && issue.message.contains("inside"));
    assert!(issue.fix.as_deref().unwrap().contains("regular file"));
    assert!(!serde_json::to_string(&report).unwrap().contains("secret"));
    for (target, word) in [
        ("/etc/passwd", "outside"),
        ("../x", "outside"),
        ("gone", "does not exist"),
    ] {
        std::fs::remove_file(bed.path("AGENTS.md")).unwrap();
        bed.link("AGENTS.md", target);
        let report = bed.context(".");
        assert!(
            report.instructions.issues[0].message.contains(word),
            "{target}: {report:?}"
        );
    }
}

#[test]
fn d82_a_fingerprint_follows_the_content_and_not_the_time() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "one");
    let one = bed.context(".");
    let again = bed.context(".");
    assert_eq!(one.fingerprint, again.fingerprint);
    bed.file("AGENTS.md", "two");
    let two = bed.context(".");
    assert_ne!(one.fingerprint, two.fingerprint);
    assert_ne!(
        one.instructions.files[0].sha256,
        two.instructions.files[0].sha256
    );
    bed.file("AGENTS.md", "x".repeat(70_000));
    assert_ne!(bed.context(".").fingerprint, two.fingerprint);
}

#[test]
fn d92_a_manifest_with_a_byte_order_mark_is_read() {
    let bed = Bed::new();
    bed.file("package.json", "\u{feff}{\"scripts\":{\"t\":\"x\"}}");
    let commands = bed.context(".").commands;
    assert_eq!(commands.state, State::Complete);
    assert_eq!(commands.candidates[0].command, "x");
}

#[tokio::test]
async fn the_root_itself_may_be_a_link() {
    let bed = Bed::new();
    bed.file("AGENTS.md", "x");
    let link = bed.outside().join("link");
    std::os::unix::fs::symlink(bed.root(), &link).unwrap();
    let report = start(&link, &[]).context("t", ".", None).await.unwrap();
    assert_eq!(report.instructions.files.len(), 1);
    assert_eq!(report.root_identity, bed.pinned().identity());
}
