//! Pages rendered from fixtures into `target/pages`, to be looked at, and what must hold for every template.

use std::fs;
use std::path::{Path, PathBuf};

use askama::Template;
use bazilion::web::templates::{
    AgentPage, EditPage, HomePage, Plain, Shell, SignInPage, UnencryptedPage,
};
use bazilion::web::views::{
    AgentHead, AgentRow, CommandCard, Composer, DiagnosticView, FileView, ItemRow, MessageView,
    Moment, QueuePanel, State, TeamRow, ToolView, TurnView, Wait,
};
use sha2::{Digest as _, Sha256};

const HOSTILE: &str =
    "<script>alert(1)</script><img src=x onerror=alert(2)> \"'><b style=\"x\"> \u{202e}";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a page beside the style sheet it names.
fn keep(name: &str, page: &impl Template) -> String {
    let html = page.render().unwrap();
    let folder = root().join("target/pages");
    fs::create_dir_all(&folder).unwrap();
    for asset in ["app.css", "icon.svg"] {
        fs::copy(root().join("static").join(asset), folder.join(asset)).unwrap();
    }
    fs::write(folder.join(name), &html).unwrap();
    html
}

fn shell() -> Shell {
    Shell {
        assets: ".".into(),
        owner: "0190a1b2".into(),
        person: "Ada Lovelace".into(),
        role: "owner",
        home_slug: "lab".into(),
        home_name: "Analytical Lab".into(),
    }
}

fn moment(shown: &str) -> Moment {
    Moment {
        iso: "2026-12-01T03:20:00Z".into(),
        shown: format!("2026-12-01 {shown} UTC"),
    }
}

fn head() -> AgentHead {
    AgentHead {
        name: "scout".into(),
        href: "/h/lab/agents/1".into(),
        team: "alpha".into(),
        team_href: "/h/lab/teams/alpha".into(),
        model: "rehearsal:scripted".into(),
        scripted: true,
        state: State::new("working", "busy"),
    }
}

fn command(state: State, exit: Option<&str>, purpose: &str, command: &str) -> CommandCard {
    CommandCard {
        receipt: format!("0190f3aa-{}", purpose.len()),
        short: "0190f3aa".into(),
        purpose: purpose.into(),
        command: command.into(),
        state,
        exit: exit.map(Into::into),
        took: Some("3.2 s".into()),
        posture: "container, no network".into(),
        href: Some("/h/lab/teams/alpha/receipts/1".into()),
        note: None,
        output: String::new(),
        lines: 0,
        cut: false,
        end: String::new(),
    }
}

fn tool(card: CommandCard) -> ToolView {
    ToolView {
        name: "run_command".into(),
        call_id: "call-1".into(),
        receipt: Some(card.receipt.clone()),
        private: true,
        href: None,
        card: Some(card),
    }
}

fn item(id: &str, position: i64, state: State, text: &str) -> ItemRow {
    ItemRow {
        id: format!("0190f3bb-{id}"),
        short: "0190f3bb".into(),
        href: format!("/h/lab/agents/1/queue/{id}"),
        state,
        waiting_for: None,
        position,
        source: "web or API",
        text: Some(text.into()),
        files: Vec::new(),
        revision: 3,
        diagnostic: None,
        approval: None,
        created: moment("03:21"),
        may_edit: false,
        may_reconcile: false,
    }
}

fn queue() -> QueuePanel {
    let mut pending = item(
        "2",
        8,
        State::new("pending", "idle"),
        "Then update the change log and open the pull request.",
    );
    pending.waiting_for = Some("waits for the work before it");
    pending.may_edit = true;
    pending.files = vec![FileView::new(
        "f".into(),
        Some("screenshot with a long name 2026-12-01.png"),
        "image/png",
        183_000,
    )];
    let mut uncertain = item(
        "3",
        6,
        State::new("uncertain", "warn"),
        "Deploy the preview.",
    );
    uncertain.may_reconcile = true;
    uncertain.diagnostic = Some(DiagnosticView {
        code: "interrupted".into(),
        message: "The process ended while a command ran.".into(),
    });
    let mut held = item("5", 9, State::new("held", "warn"), "Rotate the key.");
    held.waiting_for = Some("waits for an approval");
    held.approval = Some("/h/lab/approvals/1".into());
    QueuePanel {
        base: "/h/lab/agents/1/queue".into(),
        paused: true,
        reason: Some("Stopped by a person. Nothing more starts before Resume."),
        revision: 12,
        open: vec![
            uncertain,
            item(
                "1",
                7,
                State::new("running", "busy"),
                "Make the tests green.",
            ),
            pending,
            held,
        ],
        history: vec![item(
            "4",
            5,
            State::new("completed", "good"),
            "Read the contributing guide.",
        )],
        may_control: true,
        notice: None,
    }
}

fn messages() -> Vec<MessageView> {
    let words = "I ran the suite. **Two tests fail**, both in `parser.rs`:\n\n| test | reason |\n| --- | --- |\n| \
                 `reads_crlf` | line ends |\n| `reads_bom` | first byte |\n\n```rust\nfn trim(text: &str) -> &str {\n    \
                 text.trim_end_matches('\\n')\n}\n```\nI will handle `\\r\\n` first.";
    let mut answer = MessageView::assistant(2, "scout", words, moment("03:18"));
    let output: String = (1..60)
        .map(|n| format!("test case_{n:02} ... ok\n"))
        .collect::<String>()
        + "\u{1b}[31mtest reads_crlf ... FAILED\u{1b}[0m\n\nassertion `left == right` failed\n  left: \"a\\r\"\n right: \"a\"\n\ntest result: FAILED. 58 passed; 2 failed\n";
    let failed = command(
        State::new("failed", "bad"),
        Some("101"),
        "See which tests fail",
        "cargo test --workspace",
    );
    answer.tools = vec![tool(failed.with_output(&output, true, true))];
    let mut second = MessageView::assistant(
        4,
        "scout",
        "Fixed the line ends; checking again.",
        moment("03:20"),
    );
    let passed = command(
        State::new("succeeded", "good"),
        Some("0"),
        "Check the parser alone",
        "cargo test -p parser",
    );
    let running = command(
        State::new("running", "busy"),
        None,
        "Run everything once more",
        "cargo test --workspace",
    );
    second.tools = vec![
        tool(passed.with_output(&output, false, false)),
        tool(running.with_output(
            "   Compiling parser v0.3.1\n   Compiling cli v0.3.1\n",
            false,
            true,
        )),
    ];
    vec![
        MessageView::user(
            1,
            "Make the tests green. Start with the parser,\nit broke yesterday.",
            moment("03:17"),
        ),
        answer,
        MessageView::note(3, "Earlier messages were summarised.", moment("03:19")),
        second,
    ]
}

fn composer() -> Composer {
    Composer {
        request_id: "0190".into(),
        expected_conversation: "none".into(),
        expected_revision: 4,
        may_send: true,
        why_not: "",
        max_files: 16,
        max_bytes: 26_214_400,
    }
}

fn chat(messages: Vec<MessageView>, queue: QueuePanel) -> AgentPage {
    AgentPage {
        shell: shell(),
        csrf: "token".into(),
        agent: head(),
        turn: Some(TurnView {
            since: moment("03:17"),
            elapsed: "2 min 41 s".into(),
            tokens: Some(18_204),
        }),
        working: true,
        control_revision: 12,
        messages,
        older: Some("/h/lab/agents/1?before=1".into()),
        last_seq: 4,
        cursor: 40,
        composer: composer(),
        queue,
    }
}

#[test]
fn the_chat_page_shows_cards_queue_and_composer() {
    let html = keep("chat.html", &chat(messages(), queue()));
    for words in [
        "Queue follow-up",
        "Stop",
        "scripted rehearsal",
        "18204 tokens",
        "exit <b>101</b>",
        "FAILED. 58 passed; 2 failed",
        "Acknowledge and close",
        "Resume queue",
        "Remove",
        "Edit",
        "/h/lab/approvals/1",
        "container, no network",
    ] {
        assert!(html.contains(words), "{words}");
    }
    let end = html.find("class=\"end\"").unwrap();
    assert!(
        end < html.find("<details>").unwrap(),
        "the error's end is in sight before the fold"
    );
    assert!(!html.contains('\u{1b}'));
    let mut quiet = chat(
        Vec::new(),
        QueuePanel {
            paused: false,
            reason: None,
            open: Vec::new(),
            history: Vec::new(),
            ..queue()
        },
    );
    quiet.working = false;
    quiet.turn = None;
    quiet.agent.state = State::new("idle", "idle");
    quiet.older = None;
    assert!(keep("chat-empty.html", &quiet).contains("Nothing said yet"));
}

#[test]
fn d99_hostile_text_is_inert_wherever_it_is_shown() {
    let mut card = command(State::new("failed", "bad"), Some("1"), HOSTILE, HOSTILE);
    card.note = Some(HOSTILE.into());
    let mut said = MessageView::assistant(1, HOSTILE, HOSTILE, moment("03:00"));
    said.tools = vec![tool(card.with_output(HOSTILE, false, true))];
    let mut row = item("1", 1, State::new("pending", "idle"), HOSTILE);
    row.files = vec![FileView::new("f".into(), Some(HOSTILE), HOSTILE, 1)];
    row.diagnostic = Some(DiagnosticView {
        code: HOSTILE.into(),
        message: HOSTILE.into(),
    });
    let mut page = chat(
        vec![
            said,
            MessageView::user(2, HOSTILE, moment("03:00")),
            MessageView::note(3, HOSTILE, moment("03:00")),
        ],
        QueuePanel {
            open: vec![row],
            notice: Some(HOSTILE.into()),
            ..queue()
        },
    );
    page.agent.name = HOSTILE.into();
    page.agent.model = HOSTILE.into();
    page.agent.scripted = false;
    let html = page.render().unwrap();
    for bad in ["<script>alert", "<img src=x", "<b style", "\"'><b"] {
        assert!(!html.contains(bad), "{bad}");
    }
    assert!(
        html.contains("&#60;script&#62;alert(1)"),
        "it is shown as the text it is"
    );
}

#[test]
fn the_other_pages_render() {
    let row = |name: &str, state, open| AgentRow {
        name: name.into(),
        href: "/h/lab/agents/1".into(),
        team: "alpha".into(),
        model: "anthropic:claude".into(),
        state,
        open,
    };
    keep(
        "home.html",
        &HomePage {
            shell: shell(),
            agents: vec![
                row("scout", State::new("working", "busy"), 3),
                row("reviewer", State::new("idle", "idle"), 0),
                row("release-notes-writer", State::new("uncertain", "warn"), 1),
            ],
            teams: vec![TeamRow {
                name: "alpha".into(),
                href: "/h/lab/teams/alpha".into(),
                root: "managed directory".into(),
                agents: 3,
            }],
            waiting: vec![Wait {
                what: "release-notes-writer".into(),
                detail: "1 with unknown outcome".into(),
                action: "Acknowledge and close",
                href: "/h/lab/agents/1#queue".into(),
            }],
        },
    );
    let plain = || Plain { assets: ".".into() };
    keep(
        "sign-in.html",
        &SignInPage {
            plain: plain(),
            next: "/".into(),
            email: "ada@example.org".into(),
            refused: Some("The address or the password is not right.".into()),
        },
    );
    keep(
        "unencrypted.html",
        &UnencryptedPage {
            plain: plain(),
            host: "192.168.1.7:8080".into(),
        },
    );
    let mut pending = item(
        "2",
        8,
        State::new("pending", "idle"),
        "Then update the change log.",
    );
    pending.may_edit = true;
    let edit = keep(
        "edit.html",
        &EditPage {
            shell: shell(),
            csrf: "token".into(),
            agent_name: "scout".into(),
            agent_href: "/h/lab/agents/1".into(),
            item: pending,
            request_id: "0190".into(),
            notice: Some("The item was changed meanwhile.".into()),
            attempted: Some("Then update the change log and the guide.".into()),
            composer: composer(),
            text: "Then update the change log and the guide.".into(),
        },
    );
    assert!(edit.contains("What you wrote") && edit.contains("What stands there now"));
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join(folder)).unwrap();
    let paths = listed.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

#[test]
fn no_template_has_inline_script_handlers_or_styles() {
    let handler = regex::Regex::new(
        r#"(?i)\son[a-z]+\s*=|\sstyle\s*=|<style|javascript:|<script(?:[^>]*)>[^<\s]"#,
    )
    .unwrap();
    let unescaped = regex::Regex::new(r"\|\s*safe").unwrap();
    let templates = files("templates", "html");
    assert!(templates.len() > 10);
    for path in templates {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!handler.is_match(&text), "{}", path.display());
        let safe = unescaped.find_iter(&text).count();
        let allowed = usize::from(path.ends_with("messages.html"));
        assert_eq!(
            safe,
            allowed,
            "{}: only sanitised Markdown goes in unescaped",
            path.display()
        );
    }
    for path in files("static", "js") {
        let text = fs::read_to_string(&path).unwrap();
        for forbidden in [
            "eval(",
            "new Function",
            ".style.",
            "localStorage",
            "document.write",
        ] {
            assert!(
                !text.contains(forbidden),
                "{forbidden} in {}",
                path.display()
            );
        }
    }
}

#[test]
fn vendored_files_are_those_that_were_recorded() {
    let record = fs::read_to_string(root().join("static/VENDOR.md")).unwrap();
    for path in files("static/vendor", "js") {
        let digest = hex::encode(Sha256::digest(fs::read(&path).unwrap()));
        assert!(
            record.contains(&digest),
            "{} is not the recorded one",
            path.display()
        );
    }
}
