//! The judge of session files, without an engine.

use bazilion::runtime::OpenCall;
use bazilion::runtime::pi::session::{Survey, Verdict, header, inspect, repair};
use proptest::prelude::*;
use serde_json::{Value, json};
use time::macros::datetime;

const ID: &str = "01a22f87-aabe-760d-a8b9-1b2b68161112";

fn entry(id: &str, parent: Option<&str>, mut fields: Value) -> String {
    fields["id"] = json!(id);
    fields["parentId"] = json!(parent);
    fields["timestamp"] = json!("2026-01-01T00:00:00.000Z");
    fields.to_string()
}

fn user(id: &str, parent: Option<&str>) -> String {
    entry(
        id,
        parent,
        json!({"type": "message", "message": {"role": "user", "content": "hello"}}),
    )
}

fn calling(id: &str, parent: &str, calls: &[&str], stop: &str) -> String {
    let calls: Vec<Value> = calls
        .iter()
        .map(|call| json!({"type": "toolCall", "id": call, "name": "read", "arguments": {}}))
        .collect();
    let message = json!({"role": "assistant", "content": calls, "api": "a", "provider": "p", "model": "m",
        "usage": {}, "stopReason": stop});
    entry(
        id,
        Some(parent),
        json!({"type": "message", "message": message}),
    )
}

fn result(id: &str, parent: &str, call: &str) -> String {
    let message = json!({"role": "toolResult", "toolCallId": call, "toolName": "read", "content": [], "isError": false});
    entry(
        id,
        Some(parent),
        json!({"type": "message", "message": message}),
    )
}

fn file(entries: &[String]) -> Vec<u8> {
    let mut text = header(ID, datetime!(2026-01-01 00:00 UTC)) + "\n";
    for entry in entries {
        text.push_str(entry);
        text.push('\n');
    }
    text.into_bytes()
}

fn judge(entries: &[String]) -> Verdict {
    inspect(&file(entries), ID)
}

fn flaw(entries: &[String]) -> String {
    match judge(entries) {
        Verdict::Blocked { flaw, .. } => flaw,
        other => panic!("not blocked: {other:?}"),
    }
}

fn open(survey: &Survey) -> Vec<&str> {
    survey
        .open
        .iter()
        .map(|call| call.call_id.as_str())
        .collect()
}

#[test]
fn a_header_alone_and_a_finished_turn_are_clean() {
    assert!(matches!(judge(&[]), Verdict::Clean(survey) if survey.leaf.is_none()));
    let entries = [
        user("a", None),
        calling("b", "a", &["1", "2"], "toolUse"),
        result("c", "b", "2"),
        result("d", "c", "1"),
        entry("e", Some("d"), json!({"type": "something_new", "x": 1})),
    ];
    assert!(
        matches!(judge(&entries), Verdict::Clean(survey) if survey.leaf.as_deref() == Some("e"))
    );
}

#[test]
fn open_calls_are_repaired_by_results_that_say_so() {
    let mut entries = vec![
        user("a", None),
        calling("b", "a", &["1", "2"], "toolUse"),
        result("c", "b", "1"),
    ];
    let Verdict::Repairable(survey) = judge(&entries) else {
        panic!("not repairable")
    };
    let expected = OpenCall {
        call_id: "2".into(),
        name: "read".into(),
    };
    assert_eq!(survey.open, [expected]);
    entries.extend(repair(&survey, datetime!(2026-01-01 00:00 UTC), || {
        "new".into()
    }));
    assert!(entries[3].contains("outcome is unknown"));
    assert!(
        matches!(judge(&entries), Verdict::Clean(survey) if survey.leaf.as_deref() == Some("new"))
    );
}

#[test]
fn calls_of_failed_and_aborted_answers_were_never_made() {
    for stop in ["error", "aborted"] {
        let entries = [
            user("a", None),
            calling("b", "a", &["1"], stop),
            user("c", Some("b")),
        ];
        assert!(matches!(judge(&entries), Verdict::Clean(_)));
    }
}

#[test]
fn a_call_on_a_branch_that_was_left_is_not_open() {
    let entries = [
        user("a", None),
        calling("b", "a", &["1"], "toolUse"),
        user("c", Some("a")),
    ];
    assert!(matches!(judge(&entries), Verdict::Clean(_)));
}

#[test]
fn a_torn_line_is_cut_off_and_known() {
    let whole = file(&[user("a", None)]);
    let mut bytes = whole.clone();
    bytes.extend_from_slice(b"{\"type\":\"mess");
    let Verdict::Repairable(survey) = inspect(&bytes, ID) else {
        panic!("not repairable")
    };
    assert!(survey.torn);
    assert_eq!(survey.complete, whole.len());
}

#[test]
fn broken_histories_are_blocked_with_the_reason() {
    assert!(flaw(&[user("a", Some("gone"))]).contains("parent"));
    assert!(flaw(&[user("a", None), user("a", None)]).contains("used before"));
    assert!(flaw(&[user("a", Some("a"))]).contains("parent"));
    assert!(flaw(&["not json".into()]).contains("JSON"));
    assert!(flaw(&["null".into()]).contains("object"));
    assert!(flaw(&[String::new()]).contains("JSON"));
    assert!(flaw(&[header(ID, datetime!(2026-01-01 00:00 UTC))]).contains("second header"));
    assert!(flaw(&[user("a", None), result("b", "a", "1")]).contains("not open"));
    let lost = json!({"type": "compaction", "summary": "s", "firstKeptEntryId": "gone"});
    assert!(flaw(&[user("a", None), entry("b", Some("a"), lost)]).contains("not there"));
    let shell = json!({"type": "message", "message": {"role": "bashExecution", "command": "id"}});
    assert!(flaw(&[entry("a", None, shell)]).contains("host"));
    for field in ["api", "provider", "model", "usage", "stopReason"] {
        let mut message: Value = serde_json::from_str(&calling("b", "a", &[], "stop")).unwrap();
        message["message"].as_object_mut().unwrap().remove(field);
        assert!(flaw(&[user("a", None), message.to_string()]).contains(field));
    }
}

#[test]
fn another_header_is_blocked() {
    assert!(matches!(inspect(b"", ID), Verdict::Blocked { .. }));
    assert!(matches!(inspect(b"\n", ID), Verdict::Blocked { .. }));
    assert!(matches!(
        inspect(&file(&[]), "another"),
        Verdict::Blocked { .. }
    ));
    let text = String::from_utf8(file(&[])).unwrap();
    for (from, to) in [
        ("\"/usr\"", "\"/home\""),
        ("\"version\":3", "\"version\":4"),
        ("session", "sessions"),
    ] {
        assert!(matches!(
            inspect(text.replace(from, to).as_bytes(), ID),
            Verdict::Blocked { .. }
        ));
    }
}

#[test]
fn half_characters_in_text_do_not_block() {
    let line = entry(
        "a",
        None,
        json!({"type": "message", "message": {"role": "user", "content": "HALF"}}),
    );
    assert!(matches!(
        judge(&[line.replace("HALF", r"\ud83d \u0000")]),
        Verdict::Clean(_)
    ));
}

#[test]
fn a_compaction_may_keep_from_itself_and_from_before() {
    let keeps = |kept: &str| json!({"type": "compaction", "summary": "s", "firstKeptEntryId": kept, "tokensBefore": 1});
    let entries = [
        user("a", None),
        entry("b", Some("a"), keeps("a")),
        entry("c", Some("b"), keeps("c")),
    ];
    assert!(matches!(judge(&entries), Verdict::Clean(survey) if open(&survey).is_empty()));
}

proptest! {
    #[test]
    fn no_bytes_make_the_judge_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        inspect(&bytes, ID);
        inspect(&[file(&[]), bytes].concat(), ID);
    }

    #[test]
    fn no_mangled_file_makes_the_judge_panic(at in 0usize..2000, byte in any::<u8>(), cut in 0usize..2000) {
        let entries = [user("a", None), calling("b", "a", &["1"], "toolUse"), result("c", "b", "1")];
        let mut bytes = file(&entries);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut.max(1));
        if let Verdict::Repairable(survey) = inspect(&bytes, ID) {
            let mut number = 0;
            let lines = repair(&survey, datetime!(2026-01-01 00:00 UTC), || { number += 1; format!("new{number}") });
            bytes.truncate(survey.complete);
            for line in lines {
                bytes.extend_from_slice(line.as_bytes());
                bytes.push(b'\n');
            }
            prop_assert!(matches!(inspect(&bytes, ID), Verdict::Clean(_)));
        }
    }
}
