//! Event streams: what an open page and the CLI follow.
//!
//! - A frame with an id can be resumed after it; one without is only live.
//! - A comment every 15 s keeps the connection open, and no proxy may hold frames back.
//! - The stream ends when the process begins to stop: the reader comes back, to another process, with its last id.

use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::limits;

/// The header with which a reader says what it saw last.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A number that is never given out.
const NEVER: i64 = -1;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Set on durable events.
    pub id: Option<i64>,
    pub event: &'static str,
    pub data: Value,
}

/// The number of the last event that the reader saw. An id that we can not have given out is answered like one that is
/// no longer kept, so it becomes a number that never was.
pub fn resume_after(headers: &HeaderMap) -> Option<i64> {
    let id = headers.get(LAST_EVENT_ID)?;
    let number = id.to_str().ok().and_then(|id| id.parse().ok());
    Some(number.filter(|n| *n >= 0).unwrap_or(NEVER))
}

/// Answers with `frames` until they end, the reader goes, or `stopping` is cancelled.
pub fn respond<S>(frames: S, stopping: CancellationToken) -> Response
where
    S: Stream<Item = Frame> + Send + 'static,
{
    let events = frames
        .take_until(async move { stopping.cancelled().await })
        .map(|frame| Ok::<_, Infallible>(event(frame)));
    let alive = KeepAlive::new().interval(limits::EVENTS_KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

fn event(frame: Frame) -> Event {
    // JSON text has no raw line ends, so it is always one `data:` line.
    let event = Event::default()
        .event(frame.event)
        .data(frame.data.to_string());
    match frame.id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    fn last(id: &'static str) -> Option<i64> {
        let mut headers = HeaderMap::new();
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static(id));
        resume_after(&headers)
    }

    #[test]
    fn an_id_that_was_never_given_out_becomes_a_number_that_never_was() {
        assert_eq!(last("17"), Some(17));
        assert_eq!(last("0"), Some(0));
        for odd in ["", "-4", "seventeen", "99999999999999999999"] {
            assert_eq!(last(odd), Some(NEVER), "{odd}");
        }
        assert_eq!(resume_after(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn a_stream_is_not_buffered_and_a_line_end_in_its_data_stays_inside() {
        let frames = [
            Frame {
                id: Some(7),
                event: "item",
                data: json!({"text": "a\nid: 9\n\nevent: x"}),
            },
            Frame {
                id: None,
                event: "delta",
                data: json!({}),
            },
        ];
        let response = respond(stream::iter(frames), CancellationToken::new());
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&body),
            "event: item\ndata: {\"text\":\"a\\nid: 9\\n\\nevent: x\"}\nid: 7\n\nevent: delta\ndata: {}\n\n"
        );
    }

    #[tokio::test]
    async fn a_stream_ends_when_the_process_begins_to_stop() {
        let stopping = CancellationToken::new();
        let response = respond(stream::pending(), stopping.clone());
        stopping.cancel();
        assert!(
            response
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .is_empty()
        );
    }
}
