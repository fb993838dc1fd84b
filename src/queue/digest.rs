//! The identity of a request's content.
//!
//! SHA-256 over a versioned binary encoding in which every field has its place, its length and its tag: neither the order
//! of keys in a JSON body nor the kind of body can change it, and no two different requests share an encoding.
//!
//! Team and conversation are the server's part of it. A retry is compared under those that were stored, so it is still
//! recognised after the Agent moved or talks elsewhere.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::edit::{Edit, Keep};
use super::model::{Origin, Source};
use super::submission::{File, Submission};
use crate::ids::{AgentId, ConversationId, TeamId};
use crate::team::Selection;

/// Changes when the encoding changes; stored digests are of version 1.
const VERSION: &[u8] = b"bazilion queue request 1\0";

/// Where a request goes, as the server knows it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub agent: AgentId,
    pub team: TeamId,
    pub conversation: ConversationId,
}

/// What is hashed before the content: with it and the place the database can finish a digest.
pub(super) const fn version() -> &'static [u8] {
    VERSION
}

/// The digest of a new input.
pub fn of_submission(submission: &Submission, place: Place) -> [u8; 32] {
    finish(place, &content_of_submission(submission))
}

/// What the digest of a new input covers behind its place.
pub(super) fn content_of_submission(submission: &Submission) -> Vec<u8> {
    let mut encoder = Encoder::new(submission.expected);
    encoder.provenance(submission.source, submission.origin.as_ref());
    encoder.bytes(submission.text.as_bytes());
    encoder.files(&submission.files);
    encoder.tag(0);
    encoder.0
}

/// The digest of an edit: what was asked, not what it came to.
pub fn of_edit(edit: &Edit, place: Place) -> [u8; 32] {
    let mut encoder = Encoder::new(edit.expected);
    encoder.provenance(Source::Http, None);
    match &edit.message {
        Some(text) => {
            encoder.tag(1);
            encoder.bytes(text.as_bytes());
        }
        None => encoder.tag(0),
    }
    encoder.files(&edit.files);
    encoder.tag(1);
    encoder.id(edit.item.uuid());
    encoder.number(edit.expected_revision);
    match &edit.keep {
        Keep::All => encoder.tag(0),
        Keep::These(ids) => {
            encoder.tag(1);
            encoder.length(ids.len());
            ids.iter().for_each(|id| encoder.id(id.uuid()));
        }
    }
    finish(place, &encoder.0)
}

/// `submit_inputs` in the database does the same.
fn finish(place: Place, content: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(VERSION);
    hash.update(place.agent.uuid());
    hash.update(place.team.uuid());
    hash.update(place.conversation.uuid());
    hash.update(content);
    hash.finalize().into()
}

struct Encoder(Vec<u8>);

impl Encoder {
    fn new(expected: Selection) -> Self {
        let mut encoder = Self(Vec::new());
        match expected.conversation_id {
            Some(id) => {
                encoder.tag(1);
                encoder.id(id.uuid());
            }
            None => encoder.tag(0),
        }
        encoder.number(expected.revision);
        encoder
    }

    fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    fn id(&mut self, id: Uuid) {
        self.0.extend_from_slice(id.as_bytes());
    }

    fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn length(&mut self, length: usize) {
        self.0.extend_from_slice(&(length as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn provenance(&mut self, source: Source, origin: Option<&Origin>) {
        self.bytes(source.as_str().as_bytes());
        let Some(origin) = origin else {
            return self.tag(0);
        };
        self.tag(1);
        self.number(origin.chat_id);
        match origin.thread_id {
            Some(thread) => {
                self.tag(1);
                self.number(thread);
            }
            None => self.tag(0),
        }
        self.length(origin.message_ids.len());
        origin.message_ids.iter().for_each(|id| self.number(*id));
    }

    fn files(&mut self, files: &[File]) {
        self.length(files.len());
        for file in files {
            match &file.name {
                Some(name) => {
                    self.tag(1);
                    self.bytes(name.as_bytes());
                }
                None => self.tag(0),
            }
            // Lower case here only: what was sent is what is stored and shown.
            self.bytes(file.mime_type.to_ascii_lowercase().as_bytes());
            self.length(file.byte_length);
            self.0.extend_from_slice(&file.sha256);
        }
    }
}
