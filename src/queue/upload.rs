//! The body of a submission or an edit: one JSON document, or the same as streamed parts.
//!
//! - `application/json`: files are base64 in `attachments`.
//! - `multipart/form-data`: first a part `request` (`application/json`, without `attachments`), then parts `file` in
//!   order, each with its type and, if it has one, its name. Files are counted, hashed and cut into stored pieces as
//!   they arrive; over a limit the reading stops.
//! - Both become the same files, so the same content has the same digest.

use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request};
use bytes::Bytes;
use http::header;

use super::submission::{Content, EncodedFile, File, decode_files};
use crate::app::App;
use crate::error::{Code, Error, Result};
use crate::limits;

/// A body as it arrived.
pub enum Upload {
    /// A JSON document with everything in it.
    Document(Bytes),
    /// A JSON document and the files that followed it.
    Parts(Bytes, Vec<File>),
}

impl Upload {
    /// The JSON document.
    pub fn document(&self) -> &[u8] {
        match self {
            Upload::Document(document) | Upload::Parts(document, _) => document,
        }
    }

    /// The files, given what the document's `attachments` held.
    pub fn files(self, attachments: Vec<EncodedFile>) -> Result<Vec<File>> {
        match self {
            Upload::Document(_) => decode_files(attachments),
            Upload::Parts(_, files) if attachments.is_empty() => Ok(files),
            Upload::Parts(..) => Err(Error::invalid(
                "attachments",
                "multipart",
                "In a multipart body files are parts named file.",
            )),
        }
    }
}

impl FromRequest<App> for Upload {
    type Rejection = Error;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .map(|kind| kind.trim().to_ascii_lowercase());
        match kind.as_deref() {
            Some("application/json") => {
                let body = Bytes::from_request(request, app).await;
                body.map(Upload::Document)
                    .map_err(|rejection| broken(rejection.status()))
            }
            Some("multipart/form-data") => {
                let parts = Multipart::from_request(request, app).await;
                read(parts.map_err(|rejection| broken(rejection.status()))?).await
            }
            _ => Err(Error::refused(
                Code::UnsupportedMediaType,
                "Send the body as application/json or multipart/form-data.",
            )),
        }
    }
}

async fn read(mut parts: Multipart) -> Result<Upload> {
    let first = parts.next_field().await.map_err(unread)?;
    let first = first.filter(|part| {
        part.name() == Some("request") && part.content_type() == Some("application/json")
    });
    let Some(first) = first else {
        return Err(Error::invalid(
            "request",
            "order",
            "The first part is request, of type application/json.",
        ));
    };
    let document = first.bytes().await.map_err(unread)?;
    let mut files = Vec::new();
    let mut bytes_left = limits::ITEM_FILE_BYTES_MAX;
    while let Some(part) = parts.next_field().await.map_err(unread)? {
        if part.name() != Some("file") {
            return Err(Error::invalid(
                "request",
                "order",
                "Every part behind the first is named file.",
            ));
        }
        if files.len() == limits::ITEM_FILES_MAX {
            return Err(Error::invalid(
                "attachments",
                "count",
                "An input has at most 16 files.",
            ));
        }
        files.push(read_file(part, &mut bytes_left).await?);
    }
    Ok(Upload::Parts(document, files))
}

async fn read_file(mut part: Field<'_>, bytes_left: &mut usize) -> Result<File> {
    let name = part
        .file_name()
        .map(str::to_owned)
        .filter(|name| !name.is_empty());
    let mime_type = part
        .content_type()
        .unwrap_or("application/octet-stream")
        .to_owned();
    let mut content = Content::default();
    while let Some(bytes) = part.chunk().await.map_err(unread)? {
        *bytes_left = bytes_left.checked_sub(bytes.len()).ok_or_else(|| {
            Error::invalid(
                "attachments",
                "size",
                "Files of one input have at most 25 MiB together.",
            )
        })?;
        content.push(&bytes);
    }
    Ok(content.into_file(name, mime_type))
}

fn unread(error: MultipartError) -> Error {
    broken(error.status())
}

fn broken(status: http::StatusCode) -> Error {
    if status == http::StatusCode::PAYLOAD_TOO_LARGE {
        Error::refused(Code::BodyTooLarge, "The body is larger than 36 MiB.")
    } else {
        Error::refused(Code::MalformedRequest, "The body did not arrive whole.")
    }
}
