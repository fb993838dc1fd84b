//! Forms of pages: their token is checked before their fields are looked at.

use axum::RequestExt as _;
use axum::extract::{FromRequest, Multipart, Request};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::session;
use crate::app::App;
use crate::auth::extract::WebCaller;
use crate::error::{Code, Error, Result};
use crate::limits;

/// A form without files, and who sent it.
pub struct Form<T> {
    pub caller: WebCaller,
    pub htmx: bool,
    pub fields: T,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    csrf: String,
}

impl<T: DeserializeOwned> FromRequest<App> for Form<T> {
    type Rejection = Error;

    async fn from_request(mut request: Request, app: &App) -> Result<Self> {
        let caller: WebCaller = request.extract_parts_with_state(app).await?;
        let htmx = crate::http::page::is_htmx(request.headers());
        let body = Bytes::from_request(request, app)
            .await
            .map_err(|_| too_large())?;
        let token: Token = parse(&body)?;
        session::check_form_token(&caller.session, &SecretString::from(token.csrf)).await?;
        Ok(Self {
            caller,
            htmx,
            fields: parse(&body)?,
        })
    }
}

/// Parses the fields of a form; a refusal names the field, never its value.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let input = serde_urlencoded::Deserializer::new(form_urlencoded::parse(body));
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        Error::invalid(
            path,
            "type",
            "A field of this form is missing or not valid.",
        )
    })
}

fn too_large() -> Error {
    Error::refused(Code::BodyTooLarge, "This form is larger than it may be.")
}

/// A file of a form, as the browser sent it.
pub struct UploadedFile {
    pub name: Option<String>,
    pub media_type: String,
    pub bytes: Bytes,
}

/// A form with files: the composer and the edit form.
pub struct Upload {
    pub caller: WebCaller,
    pub headers: HeaderMap,
    pub fields: Vec<(String, String)>,
    pub files: Vec<UploadedFile>,
}

impl FromRequest<App> for Upload {
    type Rejection = Error;

    async fn from_request(mut request: Request, app: &App) -> Result<Self> {
        let caller: WebCaller = request.extract_parts_with_state(app).await?;
        let headers = request.headers().clone();
        let multipart = Multipart::from_request(request, app).await.map_err(|_| {
            Error::refused(
                Code::UnsupportedMediaType,
                "Send this form as multipart/form-data.",
            )
        })?;
        let (fields, files) = read(multipart, &caller).await?;
        let upload = Self {
            caller,
            headers,
            fields,
            files,
        };
        // Without any part the loop below has not looked at the token.
        session::check_form_token(&upload.caller.session, &upload.field("csrf").into()).await?;
        Ok(upload)
    }
}

type Parts = (Vec<(String, String)>, Vec<UploadedFile>);

async fn read(mut multipart: Multipart, caller: &WebCaller) -> Result<Parts> {
    let (mut fields, mut files) = (Vec::new(), Vec::new());
    let mut checked = false;
    while let Some(mut field) = multipart.next_field().await.map_err(broken)? {
        let name = field.name().unwrap_or("").to_owned();
        let file_name = field.file_name().map(str::to_owned);
        let media_type = field
            .content_type()
            .unwrap_or("application/octet-stream")
            .to_owned();
        let is_file = file_name.is_some();
        if is_file && !checked {
            // The token comes before the files, so that nobody else's megabytes are read.
            return Err(Error::refused(
                Code::CsrfFailed,
                "The form's token must come first.",
            ));
        }
        let mut bytes = BytesMut::new();
        while let Some(chunk) = field.chunk().await.map_err(broken)? {
            if bytes.len() + chunk.len() > limits::FORM_WITH_FILES_MAX {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        if is_file {
            let name = file_name.filter(|name| !name.is_empty());
            // A browser sends an empty part for a file field that nobody used.
            if name.is_some() || !bytes.is_empty() {
                files.push(UploadedFile {
                    name,
                    media_type,
                    bytes: bytes.freeze(),
                });
            }
            continue;
        }
        let text = String::from_utf8(bytes.to_vec())
            .map_err(|_| Error::invalid(name.clone(), "utf8", "Text must be UTF-8."))?;
        if name == "csrf" {
            session::check_form_token(&caller.session, &text.clone().into()).await?;
            checked = true;
        }
        fields.push((name, text));
    }
    Ok((fields, files))
}

fn broken(error: axum::extract::multipart::MultipartError) -> Error {
    if error.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    Error::refused(Code::MalformedRequest, "The form did not arrive whole.")
}

impl Upload {
    /// The first value of a field, or nothing.
    pub fn field(&self, name: &str) -> String {
        let found = self.fields.iter().find(|(n, _)| n == name);
        found.map_or_else(String::new, |(_, value)| value.clone())
    }

    /// A field that must parse.
    pub fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        self.field(name).parse().map_err(|_| {
            Error::invalid(
                name,
                "type",
                "A field of this form is missing or not valid.",
            )
        })
    }

    /// The text as it was typed: a browser's form sends line ends as CRLF.
    pub fn text(&self) -> String {
        self.field("text").replace("\r\n", "\n")
    }
}
