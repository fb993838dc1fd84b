//! `/api/sessions`, `/api/members`, `/api/audit`.

use axum::http::{Method, StatusCode};
use bazilion::identity::{Role, Scopes};
use serde_json::{Value, json};

use super::door::Door;
use crate::web::site::{Browser, EMAIL};

async fn sessions(door: &Door) -> Vec<Value> {
    let list = door.get("/api/sessions").await.good();
    list["items"].as_array().unwrap().clone()
}

async fn is_in(door: &Door, browser: &Browser) -> bool {
    door.site.get(browser, "/h/lab").await.status == StatusCode::OK
}

#[tokio::test]
async fn a003_ending_one_session_ends_only_that_one() {
    let door = Door::new().await;
    let first = door.site.signed_in().await;
    let known = sessions(&door).await;
    assert_eq!(known.len(), 1, "{known:?}");
    let second = door.site.signed_in().await;
    assert_eq!(sessions(&door).await.len(), 2);

    let path = format!("/api/sessions/{}", known[0]["id"].as_str().unwrap());
    let stranger = Scopes {
        read: true,
        ..Scopes::default()
    };
    let reader = door.mint(door.home, Role::Owner, stranger).await;
    door.ask(Some(&reader), Method::DELETE, &path, None, "")
        .await
        .refuses(403, "insufficient_scope");
    assert_eq!(door.delete(&path).await.status, 204);
    door.delete(&path).await.refuses(404, "not_found");
    assert!(!is_in(&door, &first).await);
    assert!(is_in(&door, &second).await);
    let ended = "SELECT count(*) FROM audit WHERE action = 'session.end' AND outcome = 'ok'";
    assert_eq!(door.count(ended).await, 1);
}

#[tokio::test]
async fn a009_signing_out_ends_only_the_session_it_came_from() {
    let door = Door::new().await;
    let (first, second) = (door.site.signed_in().await, door.site.signed_in().await);
    let page = door.site.get(&first, "/sign-out").await;
    let token = page.hidden("csrf");
    let out = door
        .site
        .post(&first, "/sign-out", &[("csrf", &token)])
        .await;
    assert!(
        out.status.is_redirection() || out.status.is_success(),
        "{}",
        out.body
    );
    assert!(!is_in(&door, &first).await);
    assert!(is_in(&door, &second).await);
    assert_eq!(sessions(&door).await.len(), 1);
}

#[tokio::test]
async fn a011_no_list_shows_a_hash_or_a_secret() {
    let door = Door::new().await;
    let browser = door.site.signed_in().await;
    let hash: Vec<u8> =
        sqlx::query_scalar("SELECT id_hash FROM sessions WHERE operator_id IS NOT NULL")
            .fetch_one(&mut door.site.database.superuser().await)
            .await
            .unwrap();
    let hash = hex(&hash);
    let cookie = browser.cookie.unwrap();
    let cookie = cookie.split_once('=').unwrap().1;
    for path in ["/api/sessions", "/api/tokens", "/api/members", "/api/audit"] {
        let text = door.get(path).await.good().to_string().replace('-', "");
        for secret in [&hash[..16], cookie, "bzl_", "argon2", "idHash", "tokenHash"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_owner_sees_the_members_and_pages_through_the_audit_log_of_the_home() {
    let door = Door::new().await;
    let members = door.get("/api/members").await.good();
    let ada = &members["items"][0];
    assert_eq!(
        (&ada["email"], &ada["role"]),
        (&json!(EMAIL), &json!("owner"))
    );

    for slug in ["a", "b", "c"] {
        door.team(slug).await;
    }
    let all = door.get("/api/audit").await.good();
    let all = all["items"].as_array().unwrap();
    assert_eq!(all[0]["action"], "team.create");
    let mut seen = Vec::new();
    let mut path = "/api/audit?limit=2".to_owned();
    loop {
        let page = door.get(&path).await.good();
        seen.extend(page["items"].as_array().unwrap().clone());
        let Some(cursor) = page["nextCursor"].as_str() else {
            break;
        };
        path = format!("/api/audit?limit=2&cursor={cursor}");
    }
    assert_eq!(&seen, all);

    let operator = door.mint(door.home, Role::Operator, Scopes::ALL).await;
    for path in ["/api/members", "/api/audit"] {
        let answer = door.ask(Some(&operator), Method::GET, path, None, "").await;
        answer.refuses(403, "forbidden");
    }
    let stranger = door.stranger().await;
    let theirs = door
        .ask(Some(&stranger), Method::GET, "/api/audit", None, "")
        .await;
    let theirs = theirs.good();
    assert!(!theirs.to_string().contains("team.create"), "{theirs}");
    let cursor = all[0]["id"].as_i64().unwrap();
    let foreign = format!("/api/audit?cursor={cursor}");
    let answer = door
        .ask(Some(&stranger), Method::GET, &foreign, None, "")
        .await;
    answer.refuses_field("cursor");
}
