//! New input for an Agent: its identity is fixed and shown before anything is sent.
//!
//! - A retry repeats the printed request id, conversation and selection revision, whatever the Agent selects by then.
//! - After a lost answer the person gets the exact command to repeat, and is told why a new request would be wrong.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::session::{Selection, Session};
use crate::console::Failure;
use crate::console::client::Body;
use crate::console::shell::command_line;
use crate::console::upload::{self, Upload};
use crate::ids::RequestId;

/// What makes a request the same one again.
#[derive(Debug, Args)]
#[command(next_help_heading = "Exact retry")]
pub struct Repeat {
    /// Identity of the request to repeat; needs both expectations
    #[arg(long, value_name = "UUID")]
    #[arg(requires_all = ["expected_conversation", "expected_selection_revision"])]
    request_id: Option<Uuid>,
    /// Conversation that must be selected, or `none`
    #[arg(long, value_name = "ID|none", value_parser = conversation)]
    #[arg(requires = "expected_selection_revision")]
    expected_conversation: Option<Expected>,
    /// Revision of that selection
    #[arg(long, value_name = "N", requires = "expected_conversation")]
    expected_selection_revision: Option<u64>,
}

/// The files of a request.
#[derive(Debug, Args)]
pub struct Files {
    /// Files as a JSON list of paths; for `edit`, these replace the item's files and '[]' removes them
    #[arg(long, value_name = "JSON", value_parser = file_list)]
    files: Option<FileList>,
    /// A file; may be repeated. For `edit`, it is added to the item's files
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
struct Expected(Option<String>);

#[derive(Debug, Clone)]
struct FileList(Vec<PathBuf>);

fn conversation(text: &str) -> Result<Expected, String> {
    match text {
        "none" => Ok(Expected(None)),
        id => match Uuid::parse_str(id) {
            Ok(id) => Ok(Expected(Some(id.to_string()))),
            Err(_) => Err("not a conversation's id, and not `none`".into()),
        },
    }
}

fn file_list(text: &str) -> Result<FileList, String> {
    serde_json::from_str(text)
        .map(FileList)
        .map_err(|_| r#"not a JSON list of paths such as '["./a.txt"]'"#.into())
}

impl Files {
    /// Neither flag was given.
    pub fn are_untouched(&self) -> bool {
        self.files.is_none() && self.file.is_empty()
    }

    /// Looks at the files and counts them against the limits. Nothing is read or sent yet.
    pub fn inspect(&self) -> Result<Chosen, Failure> {
        let listed = self.files.as_ref().map(|list| list.0.as_slice());
        let paths = [listed.unwrap_or_default(), &self.file].concat();
        if paths.iter().any(|path| path.to_str().is_none()) {
            return Err(Failure::usage(
                "A file's path is not UTF-8 text. Nothing was sent.",
            ));
        }
        Ok(Chosen {
            uploads: upload::inspect(&paths)?,
            listed: listed.map(<[PathBuf]>::len),
        })
    }
}

/// Files within the limits.
pub struct Chosen {
    pub uploads: Vec<Upload>,
    /// How many of them came by `--files`, if it was given.
    listed: Option<usize>,
}

impl Chosen {
    /// `--files` was given: the listed ones stand in place of what was there.
    pub fn replace(&self) -> bool {
        self.listed.is_some()
    }

    /// The flags that choose the same files from any directory.
    fn words(&self) -> Vec<String> {
        let path = |upload: &Upload| upload.path.to_string_lossy().into_owned();
        let (listed, added) = self.uploads.split_at(self.listed.unwrap_or(0));
        let mut words = Vec::new();
        if self.replace() {
            let listed: Vec<String> = listed.iter().map(path).collect();
            words.extend(["--files".into(), json!(listed).to_string()]);
        }
        for upload in added {
            words.extend(["--file".into(), path(upload)]);
        }
        words
    }
}

/// A request whose identity is fixed.
pub struct Submission {
    /// The Agent by id, or as it was typed when nothing was asked of the server.
    pub agent: String,
    request_id: Uuid,
    selection: Selection,
}

impl Submission {
    /// Fixes the identity: the given one, or a new id with today's selection.
    pub async fn prepare(
        session: &Session<'_>,
        agent: &str,
        repeat: Repeat,
    ) -> Result<Self, Failure> {
        let request_id = repeat.request_id.unwrap_or_else(|| RequestId::new().uuid());
        let expected = repeat
            .expected_conversation
            .zip(repeat.expected_selection_revision);
        if let Some((Expected(conversation_id), revision)) = expected {
            return Ok(Submission {
                agent: agent.to_owned(),
                request_id,
                selection: Selection {
                    conversation_id,
                    revision,
                },
            });
        }
        let agent = session.agent(agent).await?;
        Ok(Submission {
            agent: agent.id,
            request_id,
            selection: agent.selection,
        })
    }

    /// The fields that every new input carries.
    pub fn request(&self) -> Value {
        json!({
            "requestId": self.request_id,
            "expectedSelection": {
                "conversationId": self.selection.conversation_id,
                "revision": self.selection.revision,
            },
        })
    }

    /// The exact command line that repeats this request.
    pub fn retry_line(
        &self,
        session: &Session<'_>,
        verb: &[&str],
        message: Option<&str>,
        files: &Chosen,
    ) -> String {
        let mut words: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
        if let Some(message) = message {
            // One word, so that a message that begins with a dash stays a message.
            words.push(format!("--message={message}"));
        }
        words.extend(files.words());
        self.whole_line(session, words)
    }

    /// The program, the given words, and what makes the request the same one again.
    pub fn whole_line(&self, session: &Session<'_>, verb: Vec<String>) -> String {
        let program = std::env::args().next().unwrap_or_else(|| "bazilion".into());
        let mut words = vec![program];
        words.extend(verb);
        words.extend(self.parameters());
        if let Some(server) = &session.server_flag {
            words.extend(["--server".into(), server.clone()]);
        }
        command_line(words.iter().map(String::as_str))
    }

    fn parameters(&self) -> [String; 6] {
        [
            "--request-id".into(),
            self.request_id.to_string(),
            "--expected-conversation".into(),
            self.conversation().into(),
            "--expected-selection-revision".into(),
            self.selection.revision.to_string(),
        ]
    }

    fn conversation(&self) -> &str {
        self.selection.conversation_id.as_deref().unwrap_or("none")
    }

    /// Says on standard error what a retry must repeat. Comes before anything is sent.
    pub fn announce(&self, session: &Session<'_>, retry: &str) {
        let out = session.out;
        out.note(&format!("request id: {}", self.request_id));
        out.note(&format!("expected conversation: {}", self.conversation()));
        let revision = self.selection.revision;
        out.note(&format!("expected selection revision: {revision}"));
        out.note(&format!("exact retry: {retry}"));
    }

    /// Announces the identity, sends, and says what to do when the outcome is open.
    pub async fn send(
        &self,
        session: &Session<'_>,
        to: (Method, &[&str]),
        mut request: Value,
        files: &Chosen,
        retry: &str,
    ) -> Result<Value, Failure> {
        self.announce(session, retry);
        let body = if files.uploads.is_empty() {
            request["attachments"] = json!([]);
            Body::Json(request)
        } else {
            upload::body(&request, &files.uploads).await?
        };
        let (method, path) = to;
        let sent = session.client.submit(method, path, body).await;
        sent.inspect_err(|failure| explain(session, failure, retry))
    }
}

/// What to do about a request that failed, if repeating it is right.
pub fn explain(session: &Session<'_>, failure: &Failure, retry: &str) {
    if failure.leaves_outcome_open() {
        session.out.note(
            "The outcome is unknown: the server may have stored this request already.\n\
             A new request would be wrong, it could be a second one. Repeat exactly this:",
        );
    } else if failure.is_worth_repeating() {
        session
            .out
            .note("Nothing was stored. The same request may be sent later:");
    } else {
        return;
    }
    session.out.note(&format!("  {retry}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> Submission {
        Submission {
            agent: "0198".into(),
            request_id: Uuid::nil(),
            selection: Selection {
                conversation_id: None,
                revision: 3,
            },
        }
    }

    #[test]
    fn the_printed_parameters_are_those_of_the_request() {
        let submission = submission();
        assert_eq!(
            submission.parameters().join(" "),
            "--request-id 00000000-0000-0000-0000-000000000000 \
             --expected-conversation none --expected-selection-revision 3"
        );
        let request = submission.request();
        assert_eq!(request["requestId"], Uuid::nil().to_string());
        assert_eq!(
            request["expectedSelection"],
            json!({"conversationId": null, "revision": 3})
        );
    }

    #[test]
    fn an_empty_list_of_files_is_repeated_as_such() {
        let files = Files {
            files: Some(FileList(vec![])),
            file: vec![],
        };
        let chosen = files.inspect().expect("nothing to look at");
        assert!(chosen.replace());
        assert_eq!(chosen.words(), ["--files", "[]"]);
    }

    #[test]
    fn a_conversation_is_an_id_or_none() {
        assert!(conversation("none").is_ok_and(|expected| expected.0.is_none()));
        assert!(conversation("019a0000-0000-7000-8000-000000000001").is_ok());
        assert!(conversation("latest").is_err());
    }
}
