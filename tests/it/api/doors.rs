//! Nobody comes in without a credential, and nobody reaches what is another home's.

use axum::http::Method;
use bazilion::routes;
use serde_json::{Value, json};

use super::door::{Door, queue_of};

/// Every operation of the document, as method and path.
fn operations() -> Vec<(Method, String)> {
    let document = serde_json::to_value(routes::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            if let Ok(method) = method.to_uppercase().parse::<Method>() {
                found.push((method, path.clone()));
            }
        }
    }
    found
}

/// A path with an id in each place.
fn filled(path: &str, id: impl Fn(&str) -> String) -> String {
    path.split('/')
        .map(
            |part| match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
                Some(name) => id(name),
                None => part.to_owned(),
            },
        )
        .collect::<Vec<_>>()
        .join("/")
}

#[tokio::test]
async fn d118_every_path_asks_for_a_credential_and_says_nothing_without() {
    let door = Door::new().await;
    let operations = operations();
    assert!(operations.len() > 30, "{}", operations.len());
    let ready = (Method::GET, "/api/ready".to_owned());
    let broken = format!("{}x", door.token);
    for (method, path) in operations.iter().chain([&ready]) {
        let path = filled(path, |_| bazilion::ids::RequestId::new().uuid().to_string());
        for token in [None, Some(broken.as_str()), Some("nonsense")] {
            let body = json!({}).to_string();
            let kind = Some("application/json");
            let answer = door.ask(token, method.clone(), &path, kind, body).await;
            assert_eq!(answer.status, 401, "{method} {path}");
            answer.refuses(401, "unauthenticated");
        }
    }
}

#[tokio::test]
async fn the_ids_of_one_home_name_nothing_in_another() {
    let door = Door::new().await;
    let team = door.team("parser").await;
    let agent = door.agent("Ada", "parser").await;
    let asks = "UPDATE policy_edges SET effect = 'approval_required' WHERE source = 'user'";
    door.execute(asks).await;
    let mut input = door.input(&agent, "one").await;
    input["attachments"] = json!([{"name": "a.txt", "mimeType": "text/plain", "data": "YQ=="}]);
    let item = door.post(&queue_of(&agent), &input).await.good();
    let tokens = door.get("/api/tokens").await.good();
    let ids = [
        ("team", &team["id"]),
        ("agent", &agent["id"]),
        ("item", &item["id"]),
        ("approval", &item["approvalId"]),
        ("conversation", &item["conversationId"]),
        ("attachment", &item["attachments"][0]["id"]),
        ("token", &tokens["items"][0]["id"]),
    ];
    let id = |name: &str| {
        let known = ids.iter().find(|(known, _)| *known == name);
        known.and_then(|(_, id)| id.as_str()).map(str::to_owned)
    };
    let stranger = door.stranger().await;
    let (mut asked, mut wrong) = (0, Vec::new());
    for (method, path) in operations() {
        let named = path.split('/').filter(|part| part.starts_with('{')).count();
        let owned = ids
            .iter()
            .any(|(name, _)| path.contains(&format!("{{{name}}}")));
        if named == 0 || !owned {
            continue;
        }
        let place = filled(&path, |name| {
            id(name).unwrap_or_else(|| bazilion::ids::RequestId::new().uuid().to_string())
        });
        let (kind, body, query) = request_for(&method, &path, &agent, &team);
        let place = format!("{place}{query}");
        let answer = door
            .ask(Some(&stranger), method.clone(), &place, kind, body)
            .await;
        if answer.status != 404 {
            wrong.push(format!("{method} {place} {}", answer.json));
        }
        asked += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(asked > 20, "{asked}");
    // All is as it was.
    let path = format!("{}/{}", queue_of(&agent), item["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await.good(), item);
}

/// A body and a query with which the request would be right at home.
fn request_for(
    method: &Method,
    path: &str,
    agent: &Value,
    team: &Value,
) -> (Option<&'static str>, String, &'static str) {
    let selection = &agent["selection"];
    let request = bazilion::ids::RequestId::new().uuid();
    let body = match path.rsplit('/').next().unwrap_or_default() {
        "queue" => json!({"requestId": request, "expectedSelection": selection, "message": "x"}),
        "{item}" => {
            json!({"requestId": request, "expectedRevision": 1, "expectedSelection": selection, "message": "x"})
        }
        "pause" | "resume" | "stop" => json!({"expectedRevision": 0}),
        "reconcile" => json!({"expectedRevision": 1, "acknowledge": true}),
        "move" => json!({"team": team["id"]}),
        "conversations" => {
            json!({"requestId": request, "expectedSelection": selection, "title": "x"})
        }
        "{conversation}" => json!({"expectedRevision": 0, "title": "x"}),
        "user-md" => json!({"userMd": "x"}),
        "policy" => json!({"expectedRevision": 1, "edges": []}),
        "cancel" if path.contains("/turn/") => json!({"turnId": request}),
        "coding-environment" => json!({"expectedRevision": 0, "config": {}}),
        _ => Value::Null,
    };
    let query = if *method == Method::DELETE && path.ends_with("{item}") {
        "?expectedRevision=1"
    } else {
        ""
    };
    if body.is_null() || *method == Method::GET || *method == Method::DELETE {
        return (None, String::new(), query);
    }
    (Some("application/json"), body.to_string(), query)
}
