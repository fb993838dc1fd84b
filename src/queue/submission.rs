//! A new input, checked before any transaction begins.
//!
//! - A request that breaks a rule is refused whole; a file is never dropped.
//! - Ids are minted here, so a transaction that is run again uses the same ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::model::{Origin, Source, check_revision};
use crate::error::{Error, FieldError, Result};
use crate::ids::{ApprovalId, AttachmentId, ConversationId, ItemId, RequestId};
use crate::limits;
use crate::team::Selection;

/// A file with its bytes, in the pieces that the database stores.
#[derive(Debug, Clone)]
pub struct File {
    pub name: Option<String>,
    pub mime_type: String,
    pub byte_length: usize,
    pub sha256: [u8; 32],
    pub(super) pieces: Vec<Bytes>,
    pub(super) id: AttachmentId,
}

impl File {
    /// A file whose bytes are at hand.
    pub fn new(
        name: Option<String>,
        mime_type: impl Into<String>,
        bytes: impl Into<Bytes>,
    ) -> Self {
        let bytes: Bytes = bytes.into();
        let mut content = Content::default();
        content.push(&bytes);
        content.into_file(name, mime_type.into())
    }
}

/// Bytes on their way in: counted, hashed and cut into the stored pieces as they come.
#[derive(Default)]
pub struct Content {
    hash: Sha256,
    length: usize,
    pieces: Vec<Bytes>,
    tail: Vec<u8>,
}

impl Content {
    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.hash.update(bytes);
        self.length += bytes.len();
        while !bytes.is_empty() {
            let room = limits::BLOB_CHUNK - self.tail.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.tail.extend_from_slice(now);
            bytes = later;
            if self.tail.len() == limits::BLOB_CHUNK {
                self.pieces
                    .push(Bytes::from(std::mem::take(&mut self.tail)));
            }
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing came yet.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All bytes are here.
    pub fn into_file(mut self, name: Option<String>, mime_type: String) -> File {
        if !self.tail.is_empty() {
            self.pieces.push(Bytes::from(self.tail));
        }
        File {
            name,
            mime_type,
            byte_length: self.length,
            sha256: self.hash.finalize().into(),
            pieces: self.pieces,
            id: AttachmentId::new(),
        }
    }
}

/// A new input for an Agent.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Id, name or id prefix.
    pub agent: String,
    pub request_id: RequestId,
    pub expected: Selection,
    pub source: Source,
    pub origin: Option<Origin>,
    pub text: String,
    pub files: Vec<File>,
    /// Trace context, for the turn to link to.
    pub span: Option<String>,
    pub(super) fresh: Fresh,
}

/// Ids that an acceptance may need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fresh {
    pub item: ItemId,
    pub approval: ApprovalId,
    pub conversation: ConversationId,
}

impl Fresh {
    pub fn new() -> Self {
        Self {
            item: ItemId::new(),
            approval: ApprovalId::new(),
            conversation: ConversationId::new(),
        }
    }
}

impl Submission {
    /// Checks a person's input and mints its ids.
    pub fn new(
        agent: impl Into<String>,
        request_id: RequestId,
        expected: Selection,
        text: impl Into<String>,
        files: Vec<File>,
    ) -> Result<Self> {
        let text = text.into();
        let mut broken = Vec::new();
        check_text(&text, &mut broken);
        check_files(&files, &mut broken);
        if text.trim().is_empty() && files.is_empty() {
            broken.push(field(
                "message",
                "blank",
                "Write a message, or attach a file.",
            ));
        }
        refuse(broken)?;
        check_revision("expectedSelection.revision", expected.revision)?;
        Ok(Self {
            agent: agent.into(),
            request_id,
            expected,
            source: Source::Http,
            origin: None,
            text,
            files,
            span: None,
            fresh: Fresh::new(),
        })
    }

    /// The same, taken from Telegram messages.
    #[must_use]
    pub fn from_telegram(mut self, origin: Origin) -> Self {
        self.source = Source::Telegram;
        self.origin = Some(origin);
        self
    }

    /// The same, with the trace context it came with.
    #[must_use]
    pub fn traced(mut self, span: Option<String>) -> Self {
        self.span = span;
        self
    }
}

/// A file in a JSON body.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EncodedFile {
    #[serde(default)]
    pub name: Option<String>,
    pub mime_type: String,
    /// Base64, canonical.
    pub data: String,
}

impl EncodedFile {
    /// Decodes the bytes; only the canonical form is taken.
    pub fn decode(self, index: usize) -> Result<File> {
        let bytes = STANDARD.decode(&self.data).map_err(|_| {
            Error::invalid(
                format!("attachments[{index}].data"),
                "base64",
                "Use base64 of the standard alphabet, with padding.",
            )
        })?;
        Ok(File::new(self.name, self.mime_type, bytes))
    }
}

/// Decodes all files of a body.
pub fn decode_files(files: Vec<EncodedFile>) -> Result<Vec<File>> {
    files
        .into_iter()
        .enumerate()
        .map(|(index, file)| file.decode(index))
        .collect()
}

pub(super) fn check_text(text: &str, broken: &mut Vec<FieldError>) {
    if text.len() > limits::ITEM_TEXT_MAX {
        broken.push(field(
            "message",
            "size",
            "A message has at most 65,536 bytes in UTF-8.",
        ));
    }
    if text.contains('\0') {
        broken.push(field("message", "nul", "A message has no NUL character."));
    }
}

pub(super) fn check_files(files: &[File], broken: &mut Vec<FieldError>) {
    if files.len() > limits::ITEM_FILES_MAX {
        broken.push(field(
            "attachments",
            "count",
            "An input has at most 16 files.",
        ));
    }
    if files.iter().map(|file| file.byte_length).sum::<usize>() > limits::ITEM_FILE_BYTES_MAX {
        broken.push(field(
            "attachments",
            "size",
            "Files of one input have at most 25 MiB together.",
        ));
    }
    for (index, file) in files.iter().enumerate() {
        if !is_mime_type(&file.mime_type) {
            let path = format!("attachments[{index}].mimeType");
            broken.push(field(
                path,
                "mime_type",
                "Use type/subtype, at most 200 characters.",
            ));
        }
        if file.name.as_deref().is_some_and(|name| !is_file_name(name)) {
            let path = format!("attachments[{index}].name");
            broken.push(field(
                path,
                "name",
                "Use 1 to 255 characters without slashes or control characters.",
            ));
        }
    }
}

pub(super) fn refuse(broken: Vec<FieldError>) -> Result<()> {
    if broken.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid_fields(broken))
    }
}

pub(super) fn field(path: impl Into<String>, code: &str, message: &str) -> FieldError {
    FieldError {
        path: path.into(),
        code: code.into(),
        message: message.into(),
    }
}

fn is_file_name(name: &str) -> bool {
    (1..=limits::FILE_NAME_MAX_CHARS).contains(&name.chars().count())
        && !name
            .chars()
            .any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// `type/subtype` of token characters (RFC 9110), without parameters.
fn is_mime_type(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    text.len() <= limits::MIME_TYPE_MAX_CHARS
        && text
            .split_once('/')
            .is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}
