//! The queue's routes: what they refuse before anything is stored, and what is the same request.

use axum::http::Method;
use serde_json::{Value, json};

use super::door::{Answer, Door, queue_of};

const JSON: Option<&str> = Some("application/json");
const PARTS: Option<&str> = Some("multipart/form-data; boundary=edge");

async fn with_agent() -> (Door, Value) {
    let door = Door::new().await;
    door.team("parser").await;
    let ada = door.agent("Ada", "parser").await;
    (door, ada)
}

async fn nothing_stored(door: &Door) {
    for table in [
        "SELECT count(*) FROM queue_items",
        "SELECT count(*) FROM conversations",
        "SELECT count(*) FROM blobs",
    ] {
        assert_eq!(door.count(table).await, 0, "{table}");
    }
}

/// The same request as parts: the document, then its files.
async fn post_parts(
    door: &Door,
    path: &str,
    document: &Value,
    files: &[(&str, &str, &str)],
) -> Answer {
    let mut body = format!(
        "--edge\r\ncontent-disposition: form-data; name=\"request\"\r\ncontent-type: application/json\r\n\r\n{document}\r\n"
    );
    for (name, kind, bytes) in files {
        body.push_str(&format!(
            "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\ncontent-type: {kind}\r\n\r\n{bytes}\r\n"
        ));
    }
    body.push_str("--edge--\r\n");
    door.ask(Some(&door.token), Method::POST, path, PARTS, body)
        .await
}

#[tokio::test]
async fn q009_without_a_credential_nothing_is_listed_or_stored() {
    let (door, ada) = with_agent().await;
    let path = queue_of(&ada);
    let input = door.input(&ada, "one").await.to_string();
    door.ask(None, Method::GET, &path, None, "")
        .await
        .refuses(401, "unauthenticated");
    door.ask(None, Method::POST, &path, JSON, input)
        .await
        .refuses(401, "unauthenticated");
    nothing_stored(&door).await;
}

#[tokio::test]
async fn q011_a_malformed_request_id_creates_nothing() {
    let (door, ada) = with_agent().await;
    for id in [json!("not-an-id"), json!(7), json!(null), json!("")] {
        let mut input = door.input(&ada, "one").await;
        input["requestId"] = id;
        door.post(&queue_of(&ada), &input)
            .await
            .refuses_field("requestId");
        post_parts(&door, &queue_of(&ada), &input, &[])
            .await
            .refuses_field("requestId");
    }
    nothing_stored(&door).await;
}

#[tokio::test]
async fn a_body_of_another_kind_too_large_or_broken_is_refused_by_its_fault() {
    let (door, ada) = with_agent().await;
    let path = queue_of(&ada);
    let input = door.input(&ada, "one").await;
    let text = input.to_string();
    let post = async |kind, body: String| {
        door.ask(Some(&door.token), Method::POST, &path, kind, body)
            .await
    };
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
    ] {
        post(kind, text.clone())
            .await
            .refuses(415, "unsupported_media_type");
    }
    post(JSON, "{".into())
        .await
        .refuses(400, "malformed_request");
    let huge = format!("{text}{}", " ".repeat(bazilion::limits::QUEUE_BODY_MAX));
    post(JSON, huge).await.refuses(413, "body_too_large");
    let mut unknown = input.clone();
    unknown["priority"] = json!(1);
    door.post(&path, &unknown).await.refuses_field("priority");
    let mut empty = input.clone();
    empty["message"] = json!("");
    door.post(&path, &empty).await.refuses(422, "invalid_input");
    nothing_stored(&door).await;
}

#[tokio::test]
async fn q025_only_canonical_base64_is_taken() {
    let (door, ada) = with_agent().await;
    for data in ["!!!!", "YQ", "YQ=", "YR==", "_-8=", "YQ==\n", " YQ=="] {
        let mut input = door.input(&ada, "one").await;
        input["attachments"] = json!([{"mimeType": "text/plain", "data": data}]);
        door.post(&queue_of(&ada), &input)
            .await
            .refuses_field("attachments[0].data");
    }
    nothing_stored(&door).await;
}

#[tokio::test]
async fn q029_the_case_of_a_media_type_makes_no_other_request() {
    let (door, ada) = with_agent().await;
    let mut input = door.input(&ada, "one").await;
    input["attachments"] = json!([{"name": "a", "mimeType": "Text/PLAIN", "data": "YQ=="}]);
    let first = door.post(&queue_of(&ada), &input).await.good();
    input["attachments"][0]["mimeType"] = json!("text/plain");
    let second = door.post(&queue_of(&ada), &input).await.good();
    assert_eq!(first, second);
    // Shown as it was sent first.
    assert_eq!(first["attachments"][0]["mimeType"], "Text/PLAIN");
    input["attachments"][0]["data"] = json!("Yg==");
    door.post(&queue_of(&ada), &input)
        .await
        .refuses(409, "request_conflict");
}

#[tokio::test]
async fn the_same_request_as_parts_and_as_json_is_one_item() {
    let (door, ada) = with_agent().await;
    let path = queue_of(&ada);
    let bare = door.input(&ada, "one").await;
    let mut whole = bare.clone();
    whole["attachments"] = json!([
        {"name": "a.txt", "mimeType": "text/plain", "data": "YQ=="},
        {"name": "b.txt", "mimeType": "text/plain", "data": "YmI="},
    ]);
    let files = [("a.txt", "text/plain", "a"), ("b.txt", "Text/Plain", "bb")];
    let first = post_parts(&door, &path, &bare, &files).await;
    assert_eq!(first.status, 202, "{}", first.json);
    let second = door.post(&path, &whole).await;
    assert_eq!(second.status, 202, "{}", second.json);
    assert_eq!(first.json, second.json);
    assert_eq!(door.count("SELECT count(*) FROM queue_items").await, 1);
    let swapped = [files[1], files[0]];
    post_parts(&door, &path, &bare, &swapped)
        .await
        .refuses(409, "request_conflict");
    // Files travel one way only.
    post_parts(&door, &path, &whole, &files)
        .await
        .refuses_field("attachments");
}

#[tokio::test]
async fn q037_a_page_outside_its_bounds_or_of_another_list_is_refused() {
    let (door, ada) = with_agent().await;
    let bob = door.agent("Bob", "parser").await;
    let mut item = Value::Null;
    for text in ["one", "two"] {
        let input = door.input(&ada, text).await;
        item = door.post(&queue_of(&ada), &input).await.good();
    }
    let conversation = item["conversationId"].as_str().unwrap();
    let messages = format!(
        "/api/agents/{}/conversations/{conversation}/messages",
        ada["id"].as_str().unwrap()
    );
    let lists = [
        queue_of(&ada),
        messages,
        "/api/approvals".into(),
        "/api/audit".into(),
    ];
    for list in &lists {
        for limit in ["0", "101", "-1", "1.5", "many", ""] {
            door.get(&format!("{list}?limit={limit}"))
                .await
                .refuses_field("limit");
        }
        for limit in [1, 100] {
            door.get(&format!("{list}?limit={limit}")).await.good();
        }
        let answer = door.get(&format!("{list}?pageSize=1")).await;
        answer.refuses(422, "invalid_input");
    }
    let page = door
        .get(&format!("{}?limit=1", queue_of(&ada)))
        .await
        .good();
    let cursor = page["nextCursor"].as_str().unwrap();
    let foreign = [
        format!("{}?cursor={cursor}", queue_of(&bob)),
        format!("{}?view=history&cursor={cursor}", queue_of(&ada)),
        format!("{}?cursor=nonsense", queue_of(&ada)),
        format!("/api/approvals?cursor={cursor}"),
        format!(
            "/api/approvals?cursor={}",
            bazilion::ids::RequestId::new().uuid()
        ),
        format!("/api/audit?cursor={cursor}"),
        "/api/audit?cursor=0".into(),
    ];
    for path in foreign {
        door.get(&path).await.refuses_field("cursor");
    }
    door.get(&format!("{}?limit=1&cursor={cursor}", queue_of(&ada)))
        .await
        .good();
}

#[tokio::test]
async fn q091_a_revision_is_a_whole_number_of_0_or_more() {
    let (door, ada) = with_agent().await;
    let path = queue_of(&ada);
    let input = door.input(&ada, "one").await;
    let item = door.post(&path, &input).await.good();
    let place = format!("{path}/{}", item["id"].as_str().unwrap());
    for revision in [json!(-1), json!(0.5), json!(1.0), json!("1"), json!(null)] {
        for verb in ["pause", "resume", "stop"] {
            let body = json!({"expectedRevision": revision});
            door.post(&format!("{path}/{verb}"), &body)
                .await
                .refuses_field("expectedRevision");
        }
        let body = json!({"expectedRevision": revision, "acknowledge": true});
        door.post(&format!("{place}/reconcile"), &body)
            .await
            .refuses_field("expectedRevision");
        let mut edit = door.input(&ada, "two").await;
        edit["expectedRevision"] = revision.clone();
        door.send(Method::PATCH, &place, &edit)
            .await
            .refuses_field("expectedRevision");
        let mut input = door.input(&ada, "three").await;
        input["expectedSelection"]["revision"] = revision;
        door.post(&path, &input)
            .await
            .refuses_field("expectedSelection.revision");
    }
    for revision in ["-1", "0.5", "x", ""] {
        door.delete(&format!("{place}?expectedRevision={revision}"))
            .await
            .refuses_field("expectedRevision");
    }
    door.delete(&place).await.refuses(422, "invalid_input");
    assert_eq!(door.get(&place).await.good(), item);
}
