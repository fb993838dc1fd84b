//! The toolbox's protocol, its server and its client.
//!
//! A toolbox is the program `bazilion-toolbox` beside one workspace: in a container of its own, or as a child process.
//!
//! - Frames: a big-endian `u32` length, then that many bytes of JSON; at most 16 MiB.
//! - Each request has an id; answers come in any order and carry it.
//! - The server answers whatever it is sent; bytes that are no request get an error with the id 0.

mod client;
pub mod server;

use serde::{Deserialize, Serialize};

use crate::repo::diff::Patch;
use crate::repo::files::{Edit, FileContent, Listing, Written};
use crate::repo::identities::Identities;
use crate::repo::report::Report;
use crate::repo::search::{Found, GrepQuery, Hits};

pub use client::{Toolbox, ToolboxError};

/// What a toolbox can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// Identity of the root, and of the directories above it.
    Root,
    /// The repository context report.
    Context {
        team_id: String,
        target: String,
        expected_root: Option<String>,
    },
    /// Identities of a command's inputs.
    Environment {
        cwd: String,
    },
    /// Whether a directory can be a command's working directory.
    CheckCwd {
        cwd: String,
    },
    Read {
        path: String,
        offset: Option<u64>,
        limit: Option<u64>,
    },
    Write {
        path: String,
        content: String,
    },
    Edit {
        path: String,
        edits: Vec<Edit>,
    },
    Ls {
        path: Option<String>,
    },
    Find {
        pattern: String,
        path: Option<String>,
    },
    Grep(GrepQuery),
    /// A patch of the working tree against HEAD.
    Diff,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", content = "value", rename_all = "camelCase")]
pub enum Response {
    Root(RootIdentity),
    Context(Box<Report>),
    Environment(Identities),
    Cwd(String),
    Content(FileContent),
    Written(Written),
    Listing(Listing),
    Found(Found),
    Hits(Hits),
    Patch(Patch),
}

/// The pinned root, as leases record it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RootIdentity {
    pub root_identity: String,
    /// Device and inode of the root, then of each directory above it that the toolbox can see.
    pub ancestry: Vec<(u64, u64)>,
}

/// Why the toolbox did not do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    pub code: RefusedCode,
    /// For the Agent; names no path of the executor.
    pub message: String,
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedCode {
    /// The bytes were no request.
    BadRequest,
    /// The workspace is open for reading only.
    ReadOnly,
    /// The file or path does not allow it.
    Refused,
    /// The answer would be larger than a frame.
    TooLarge,
    /// A fault of the toolbox.
    Internal,
}

/// A request on the stream.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    pub id: u64,
    pub request: Request,
}

/// An answer on the stream.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    pub id: u64,
    pub result: Result<Response, Refused>,
}
