//! Takes complete new lines off a session file while Pi appends to it, and keeps the sum of what was taken.

use std::path::Path;

use bytes::{Buf as _, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use crate::limits::PI_LINE_MAX;

/// A reader at the end of what is known of a file.
pub(super) struct Tail {
    file: File,
    partial: BytesMut,
    hash: Sha256,
    lines: u64,
    bytes: u64,
}

impl Tail {
    /// Continues after `known`, which must be the file's beginning and end with a line feed.
    pub(super) async fn after(path: &Path, known: &[u8]) -> std::io::Result<Self> {
        let mut file = File::open(path).await?;
        file.seek(std::io::SeekFrom::Start(known.len() as u64))
            .await?;
        let mut hash = Sha256::new();
        hash.update(known);
        Ok(Self {
            file,
            partial: BytesMut::new(),
            hash,
            lines: known.iter().filter(|b| **b == b'\n').count() as u64,
            bytes: known.len() as u64,
        })
    }

    /// Every line that was completed since the last look.
    pub(super) async fn take(&mut self) -> std::io::Result<Vec<String>> {
        while self.file.read_buf(&mut self.partial).await? > 0 {
            if self.partial.len() > PI_LINE_MAX * 2 {
                break;
            }
        }
        let mut taken = Vec::new();
        while let Some(end) = self.partial.iter().position(|b| *b == b'\n') {
            let line = self.partial.split_to(end);
            self.partial.advance(1);
            self.hash.update(&line);
            self.hash.update(b"\n");
            self.lines += 1;
            self.bytes += end as u64 + 1;
            let line = String::from_utf8(line.to_vec());
            taken.push(line.map_err(|_| std::io::Error::other("the session file is not UTF-8"))?);
        }
        Ok(taken)
    }

    /// Lines, bytes and hash of all complete lines, and the bytes of a torn one.
    pub(super) fn finish(self) -> (u64, u64, [u8; 32], Vec<u8>) {
        (
            self.lines,
            self.bytes,
            self.hash.finalize().into(),
            self.partial.to_vec(),
        )
    }
}
