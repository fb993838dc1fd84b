//! A client that knows no more than paths and JSON.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use bazilion::auth::{self, TokenRequest};
use bazilion::identity::{Role, Scopes};
use bazilion::ids::HomeId;
use bazilion::routes;
use bazilion::tenant::{self, NewHome};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::web::site::Site;

/// A server with the home `lab`, and a token of its owner.
pub struct Door {
    pub site: Site,
    pub home: HomeId,
    pub token: String,
    router: axum::Router,
}

/// An answer with its body read.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub json: Value,
}

impl Answer {
    /// The answer is this refusal, as a problem document.
    #[track_caller]
    pub fn refuses(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status, &self.json["code"]),
            (status, &json!(code)),
            "{}",
            self.json
        );
        assert_eq!(self.headers["content-type"], "application/problem+json");
    }

    /// The answer is 422 and names this field.
    #[track_caller]
    pub fn refuses_field(&self, path: &str) {
        self.refuses(422, "invalid_input");
        assert_eq!(self.json["fields"][0]["path"], path, "{}", self.json);
    }

    /// The document of a success.
    #[track_caller]
    pub fn good(self) -> Value {
        assert!(
            (200..300).contains(&self.status),
            "{} {}",
            self.status,
            self.json
        );
        self.json
    }
}

impl Door {
    pub async fn new() -> Self {
        let site = Site::new().await;
        let home: uuid::Uuid = sqlx::query_scalar("SELECT id FROM homes WHERE slug = 'lab'")
            .fetch_one(&mut site.database.superuser().await)
            .await
            .unwrap();
        let router = routes::router(site.app.clone());
        let mut door = Door {
            home: home.into(),
            token: String::new(),
            router,
            site,
        };
        door.token = door.mint(door.home, Role::Owner, Scopes::ALL).await;
        door
    }

    /// A token of the owner, held to a role and to scopes.
    pub async fn mint(&self, home: HomeId, role: Role, scopes: Scopes) -> String {
        let request = TokenRequest {
            home,
            operator: self.site.owner,
            label: "test".into(),
            scopes,
            role_limit: Some(role),
            instance_admin: false,
            days: 1,
        };
        let (_, text) = auth::mint_token(&self.site.app.db, &request).await.unwrap();
        text.expose_secret().to_owned()
    }

    /// A token in another home of the same instance.
    pub async fn stranger(&self) -> String {
        let home =
            NewHome::prepare("next", "Next", self.site.owner, &self.site.app.master).unwrap();
        tenant::create_home(&self.site.app.db, &home).await.unwrap();
        self.mint(home.id, Role::Owner, Scopes::ALL).await
    }

    /// A request with everything said.
    pub async fn ask(
        &self,
        token: Option<&str>,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let request = request.body(body.into()).unwrap();
        let (parts, body) = self
            .router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask(Some(&self.token), Method::GET, path, None, Body::empty())
            .await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.ask(Some(&self.token), Method::DELETE, path, None, Body::empty())
            .await
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let kind = Some("application/json");
        self.ask(Some(&self.token), method, path, kind, body.to_string())
            .await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    /// A Team.
    pub async fn team(&self, slug: &str) -> Value {
        let body = json!({"slug": slug, "name": slug, "root": {"kind": "managed"}});
        self.post("/api/teams", &body).await.good()
    }

    /// An Agent in a Team that exists; its profile is made when it is the first.
    pub async fn agent(&self, name: &str, team: &str) -> Value {
        let profile = json!({"slug": "p", "name": "P", "defaultModel": "fake:one"});
        let made = self.post("/api/profiles", &profile).await.status;
        assert!(made == 201 || made == 409, "{made}");
        let body = json!({"name": name, "team": team, "profile": "p"});
        self.post("/api/agents", &body).await.good()
    }

    /// The body of a submission for an Agent's selection of now.
    pub async fn input(&self, agent: &Value, message: &str) -> Value {
        let id = agent["id"].as_str().unwrap();
        let now = self.get(&format!("/api/agents/{id}")).await.good();
        json!({
            "requestId": bazilion::ids::RequestId::new().uuid(),
            "expectedSelection": now["selection"],
            "message": message,
        })
    }

    /// Any statement, as superuser.
    pub async fn execute(&self, sql: &'static str) {
        sqlx::query(sql)
            .execute(&mut self.site.database.superuser().await)
            .await
            .unwrap();
    }

    /// One number by raw SQL, as superuser.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(&mut self.site.database.superuser().await)
            .await
            .unwrap()
    }
}

/// The address of an Agent's queue.
pub fn queue_of(agent: &Value) -> String {
    format!("/api/agents/{}/queue", agent["id"].as_str().unwrap())
}
