//! Requests that are wrong before any feature sees them, and what every answer carries.

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};
use bazilion::http::extract::{Json, Path, Query};
use bazilion::http::layers;
use bazilion::ids::AgentId;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt as _;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Input {
    #[serde(rename = "expectedRevision")]
    _expected_revision: i64,
    #[serde(default, rename = "files")]
    _files: Vec<FileInput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInput {
    #[serde(rename = "name")]
    _name: String,
}

#[derive(Deserialize)]
struct Window {
    #[serde(rename = "limit")]
    _limit: u8,
}

fn router() -> Router {
    Router::new()
        .route("/api/items", post(async |Json(_): Json<Input>| "stored"))
        .route(
            "/api/agents/{agent}",
            get(async |Path(_): Path<AgentId>| "an Agent"),
        )
        .route("/api/list", get(async |Query(_): Query<Window>| "a list"))
        .route("/page", get(async || "a page"))
        .layer(DefaultBodyLimit::max(64))
        .method_not_allowed_fallback(layers::method_not_allowed)
        .fallback(layers::fallback)
        .layer(middleware::from_fn(layers::secure))
        .layer(middleware::from_fn(layers::identify))
}

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    document: Value,
}

async fn ask(request: Request<Body>) -> Answer {
    let (parts, body) = router().oneshot(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        document: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    }
}

async fn get_from(path: &str) -> Answer {
    ask(Request::get(path).body(Body::empty()).unwrap()).await
}

async fn send(media_type: &str, body: &str) -> Answer {
    let request = Request::post("/api/items")
        .header("content-type", media_type)
        .body(Body::from(body.to_owned()));
    ask(request.unwrap()).await
}

fn refused_with(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.document);
    assert_eq!(answer.document["code"], code, "{}", answer.document);
    assert_eq!(answer.document["status"], status);
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!(
        answer.document["requestId"],
        answer.headers["x-request-id"].to_str().unwrap()
    );
}

#[tokio::test]
async fn a_body_is_refused_by_the_kind_of_its_fault() {
    let json = "application/json";
    refused_with(&send(json, "{").await, 400, "malformed_request");
    refused_with(&send(json, "").await, 400, "malformed_request");
    refused_with(
        &send("text/plain", "{}").await,
        415,
        "unsupported_media_type",
    );
    let long = format!("{{\"expectedRevision\": 1{}}}", " ".repeat(64));
    refused_with(&send(json, &long).await, 413, "body_too_large");
    let good = send(
        "application/json; charset=utf-8",
        r#"{"expectedRevision": 1}"#,
    )
    .await;
    assert_eq!(good.status, StatusCode::OK);
}

#[tokio::test]
async fn a_broken_rule_names_its_field_and_never_echoes_the_value() {
    let cases = [
        (r#"{"expectedRevision": "sk-secret"}"#, "expectedRevision"),
        (
            r#"{"expectedRevision": 1, "files": [{"name": 5}]}"#,
            "files[0].name",
        ),
        (r#"{"expectedRevision": 1, "sk-secret": 1}"#, "sk-secret"),
        (r#"{"files": []}"#, ""),
    ];
    for (body, path) in cases {
        let answer = send("application/json", body).await;
        refused_with(&answer, 422, "invalid_input");
        let field = &answer.document["fields"][0];
        assert_eq!(field["path"], path, "{body}");
        assert!(
            !field["message"].as_str().unwrap().contains("sk-secret"),
            "{field}"
        );
    }
}

#[tokio::test]
async fn an_id_that_is_none_names_nothing_and_a_query_is_held_to_its_rules() {
    refused_with(&get_from("/api/agents/not-an-id").await, 404, "not_found");
    refused_with(&get_from("/api/nowhere").await, 404, "not_found");
    refused_with(&get_from("/api/items").await, 405, "method_not_allowed");
    let answer = get_from("/api/list?limit=many").await;
    refused_with(&answer, 422, "invalid_input");
    assert_eq!(answer.document["fields"][0]["path"], "limit");
}

#[tokio::test]
async fn every_answer_carries_its_id_and_a_policy_without_inline_script() {
    for path in ["/page", "/api/list?limit=1", "/api/nowhere", "/nowhere"] {
        let answer = get_from(path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(answer.headers.contains_key("referrer-policy"));
        assert!(answer.headers.contains_key("x-request-id"));
        if path.starts_with("/api") {
            assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        }
    }
}
