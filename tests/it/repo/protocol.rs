//! The program's streams: whatever comes, it answers and goes on.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use bazilion::toolbox::{Answer, RefusedCode, ToolboxError};
use proptest::prelude::*;

use super::bed::Bed;

fn program(bed: &Bed) -> Child {
    Command::new(env!("CARGO_BIN_EXE_bazilion-toolbox"))
        .args(["serve", "--root"])
        .arg(bed.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
        found.push(serde_json::from_slice(&bytes[4..4 + length]).unwrap());
        bytes = &bytes[4 + length..];
    }
    found
}

/// Sends bytes, ends the input, and returns what came back.
fn exchange(bed: &Bed, bytes: &[u8]) -> Vec<Answer> {
    let mut child = program(bed);
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    answers(&out)
}

#[test]
fn bytes_that_are_no_request_get_an_error_and_the_next_one_is_served() {
    let bed = Bed::new();
    bed.file("a", "x");
    let bytes = [
        frame(b""),
        frame(b"\xff\xfe"),
        frame(br#"{"id":7,"request":{"op":"launchMissiles"}}"#),
        frame("[".repeat(100_000).as_bytes()),
        frame(&vec![b' '; (16 << 20) + 1]),
        frame(br#"{"id":8,"request":{"op":"read","path":"a","offset":null,"limit":null}}"#),
    ]
    .concat();
    let answers = exchange(&bed, &bytes);
    let ids: Vec<_> = answers
        .iter()
        .map(|answer| (answer.id, answer.result.is_ok()))
        .collect();
    assert_eq!(
        ids,
        [
            (0, false),
            (0, false),
            (7, false),
            (0, false),
            (0, false),
            (8, true)
        ]
    );
    assert!(
        answers[..5]
            .iter()
            .all(|a| a.result.as_ref().unwrap_err().code == RefusedCode::BadRequest)
    );
}

#[test]
fn a_cut_frame_ends_the_program_quietly() {
    let bed = Bed::new();
    for bytes in [&b"\0\0"[..], b"\0\0\0\x10abc", b"\xff\xff\xff\xffabc"] {
        assert!(exchange(&bed, bytes).is_empty());
    }
}

#[tokio::test]
async fn calls_run_together_and_find_their_answers() {
    let bed = Bed::new();
    for n in 0..50 {
        bed.file(&format!("f{n}"), n.to_string());
    }
    let toolbox = bed.toolbox();
    let reads = (0..50).map(|n| {
        let toolbox = toolbox.clone();
        async move { (n, toolbox.read(&format!("f{n}"), None, None).await.unwrap()) }
    });
    for (n, content) in futures_util::future::join_all(reads).await {
        assert!(
            serde_json::to_string(&content)
                .unwrap()
                .contains(&format!("\"text\":\"{n}\""))
        );
    }
}

#[tokio::test]
async fn a_call_to_a_toolbox_that_ended_fails() {
    let (ours, theirs) = tokio::io::duplex(64);
    let (reader, writer) = tokio::io::split(ours);
    let toolbox = bazilion::toolbox::Toolbox::connect(reader, writer);
    let waiting = tokio::spawn({
        let toolbox = toolbox.clone();
        async move { toolbox.ls(None).await }
    });
    drop(theirs);
    assert_eq!(waiting.await.unwrap(), Err(ToolboxError::Closed));
    assert_eq!(toolbox.ls(None).await, Err(ToolboxError::Closed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_frames_are_answered_or_the_end(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8)) {
        let bed = Bed::new();
        let bytes: Vec<u8> = frames.iter().flat_map(|bytes| frame(bytes)).collect();
        prop_assert_eq!(exchange(&bed, &bytes).len(), frames.len());
    }
}
