//! Extractors that refuse in our words.
//!
//! - A body or a query that is well-formed and breaks a rule is 422 with the field's path; a value is never echoed.
//! - Unknown fields are refused by the types themselves (`deny_unknown_fields`).
//! - A path that does not parse names nothing: 404, like whatever belongs to another home.

use axum::RequestPartsExt as _;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};

use crate::error::{Code, Error, Result};

/// A JSON body.
pub struct Json<T>(pub T);

/// Path parameters.
pub struct Path<T>(pub T);

/// The query string.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        if !is_json(request.headers()) {
            return Err(Error::refused(
                Code::UnsupportedMediaType,
                "Send the body as application/json.",
            ));
        }
        let body = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| {
                if rejection.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
                    Error::refused(
                        Code::BodyTooLarge,
                        "The body is larger than this request may be.",
                    )
                } else {
                    Error::refused(Code::MalformedRequest, "The body did not arrive whole.")
                }
            })?;
        parse_json(&body).map(Json)
    }
}

/// Parses a JSON document: broken is 400, breaking a rule of the type is 422 with the path.
pub fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let mut input = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            Error::invalid(
                if path == "." { String::new() } else { path },
                "type",
                rule(&inner.to_string()),
            )
        } else {
            broken_json()
        }
    })?;
    input.end().map_err(|_| broken_json())?;
    Ok(value)
}

/// A revision or another count in a body or a query: a whole number, 0 or more (`deserialize_with`).
pub fn revision<'de, D: Deserializer<'de>>(input: D) -> std::result::Result<i64, D::Error> {
    let number = i64::deserialize(input)?;
    if number < 0 {
        return Err(D::Error::custom(
            "negative, expected a whole number, 0 or more",
        ));
    }
    Ok(number)
}

fn broken_json() -> Error {
    Error::refused(
        Code::MalformedRequest,
        "The body is not one JSON document in UTF-8.",
    )
}

/// What serde says, without the value it says it about.
fn rule(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or(message);
    if let Some(rest) = message.strip_prefix("unknown field `") {
        let expected = rest.split_once("`, ").map_or("", |(_, expected)| expected);
        return format!("This field is not known here ({expected}).");
    }
    if let Some(rest) = message.strip_prefix("missing field `") {
        return format!("The field {} is required.", rest.trim_end_matches('`'));
    }
    match message.split_once(", expected ") {
        Some((_, expected)) => format!("Expected {expected}."),
        None => "The value is not valid here.".into(),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .is_some_and(|mime| mime.trim().eq_ignore_ascii_case("application/json"))
}

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let axum::extract::Path(value) = parts
            .extract::<axum::extract::Path<T>>()
            .await
            .map_err(|_| Error::not_found())?;
        Ok(Path(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let query = parts.uri.query().unwrap_or("");
        let input = serde_urlencoded::Deserializer::new(form_urlencoded(query));
        let value = serde_path_to_error::deserialize(input).map_err(|error| {
            let path = error.path().to_string();
            Error::invalid(path, "type", rule(&error.into_inner().to_string()))
        })?;
        Ok(Query(value))
    }
}

fn form_urlencoded(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Body {
        #[expect(dead_code, reason = "only parsed")]
        timeout_seconds: u32,
    }

    fn refusal(text: &str) -> (Code, String) {
        let error = parse_json::<Body>(text.as_bytes()).unwrap_err();
        match &error {
            Error::Refused(refusal) => (
                refusal.code,
                serde_json::to_string(&refusal.extras).unwrap(),
            ),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rule_is_named_with_its_path_and_the_value_is_not_echoed() {
        let (code, fields) = refusal(r#"{"timeoutSeconds": "hunter2"}"#);
        assert_eq!(code, Code::InvalidInput);
        assert!(
            fields.contains("timeoutSeconds") && !fields.contains("hunter2"),
            "{fields}"
        );
        let (code, fields) = refusal(r#"{"timeoutSeconds": 1, "sk-secret": 2}"#);
        assert_eq!(code, Code::InvalidInput);
        assert!(fields.contains("not known"), "{fields}");
        assert_eq!(refusal("{").0, Code::MalformedRequest);
        assert_eq!(
            refusal(r#"{"timeoutSeconds": 1} x"#).0,
            Code::MalformedRequest
        );
        assert_eq!(refusal("\u{feff}{}").0, Code::MalformedRequest);
    }
}
