//! A Team's repository context and environment over the real router; the looks at a repository in real containers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use bazilion::app::App;
use bazilion::db::{Op, SystemTx};
use bazilion::executor::images;
use bazilion::executor::inspecting::{Inspecting, Means};
use bazilion::identity::Role;
use bazilion::ids::TeamId;
use bazilion::instance::ways_in::{self, Mint};
use bazilion::routes;
use bazilion::team::{self, NewTeam, Root};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::docker::{Sandbox, docker, static_toolbox};
use crate::web::site::Site;

/// A Team with a managed root, and a token of its home.
struct Desk {
    app: App,
    router: Router,
    token: String,
    root: PathBuf,
}

impl Desk {
    /// Without an engine.
    async fn new() -> Self {
        let site = Site::new().await;
        Self::around(site.app).await
    }

    /// With the engine of this machine.
    async fn with_engine(sandbox: &Sandbox) -> Self {
        let site = Site::new().await;
        let toolbox = images::toolbox(&sandbox.executor, &static_toolbox())
            .await
            .unwrap();
        let means = Means {
            toolbox_image: toolbox.reference,
            user: sandbox.user,
            instance: sandbox.instance,
            generation: 1,
        };
        let mut config = (*site.app.config).clone();
        config.workspace_base = sandbox.directory.join("workspaces");
        Self::around(App {
            executor: sandbox.executor.clone(),
            inspecting: Inspecting::with(means),
            config: Arc::new(config),
            ..site.app
        })
        .await
    }

    async fn around(app: App) -> Self {
        let mint = Mint::Home {
            slug: "lab".into(),
            role: Role::Owner,
        };
        let token = ways_in::token(&app.db, &mint).await.unwrap();
        let home = ways_in::find_home(&app.db, "lab").await.unwrap();
        let new = NewTeam {
            slug: "crew".into(),
            name: "Crew".into(),
            root: Root::Managed,
            executor: None,
        };
        let op = Op::locking("test.team");
        let team = TeamId::new();
        app.db
            .transact(&SystemTx::enter(home), op, &(team, new), team::create)
            .await
            .unwrap();
        Self {
            root: Root::Managed.directory(&app.config.workspace_base, home, team),
            router: routes::router(app.clone()),
            token: token.expose_secret().to_owned(),
            app,
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/teams/{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let body = body.map_or(Body::empty(), |body| body.to_string().into());
        let answer = self
            .router
            .clone()
            .oneshot(request.body(body).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.headers()[header::CACHE_CONTROL], "no-store");
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
        (status, String::from_utf8(bytes.unwrap().to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let (status, body) = self.ask(Method::GET, path, None).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    async fn save(&self, revision: i64, config: Value) -> (StatusCode, String) {
        let body = json!({"expectedRevision": revision, "config": config});
        self.ask(Method::PUT, "crew/coding-environment", Some(body))
            .await
    }
}

fn left(sandbox: &Sandbox) -> String {
    let label = format!("label=bazilion.instance={}", sandbox.instance);
    docker(&["ps", "--all", "--quiet", "--filter", &label])
}

#[tokio::test]
async fn r001_r005_a_team_without_files_is_a_complete_report_and_a_bad_target_an_incomplete_one() {
    let sandbox = Sandbox::new().await;
    let desk = Desk::with_engine(&sandbox).await;
    assert!(!desk.root.exists());

    let (status, report) = desk.get("crew/repository-context").await;
    assert_eq!(status, StatusCode::OK, "{report}");
    assert_eq!(report["instructions"]["state"], "complete");
    assert_eq!(report["git"]["state"], "not_repository");
    assert_eq!(report["rootIdentity"].as_str().unwrap().len(), 64);
    let directory = sandbox.directory.to_str().unwrap();
    assert!(!report.to_string().contains(directory));

    std::fs::write(desk.root.join("AGENTS.md"), "Be brief.\n").unwrap();
    let path = "crew/repository-context?target=new.rs";
    let (status, report) = desk.get(path).await;
    assert_eq!(status, StatusCode::OK, "{report}");
    assert_eq!(report["instructions"]["files"][0]["content"], "Be brief.\n");

    let (status, report) = desk.get("crew/repository-context?target=../x").await;
    assert_eq!(status, StatusCode::OK, "{report}");
    assert_eq!(report["instructions"]["state"], "incomplete");
    let issues = report["instructions"]["issues"].to_string();
    assert!(issues.contains("unsafe_target"), "{issues}");

    // Read-only, without a lease, and gone before the answer.
    assert_eq!(left(&sandbox), "");
}

#[tokio::test]
async fn an_inspection_that_nobody_waits_for_leaves_no_container() {
    let sandbox = Sandbox::new().await;
    let desk = Desk::with_engine(&sandbox).await;
    let asked = desk.get("crew/repository-context");
    // It is under way in the engine, or has not begun, or is over: all the same.
    let _ = tokio::time::timeout(Duration::from_millis(150), asked).await;
    desk.app.inspecting.finish().await;
    assert_eq!(left(&sandbox), "");
}

#[tokio::test]
async fn r041_without_a_credential_401_for_an_unknown_team_404_and_without_an_engine_503() {
    let mut desk = Desk::new().await;
    let (status, problem) = desk.get("crew/repository-context").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (&problem["code"], &problem["missing"]),
        (&json!("not_ready"), &json!("images"))
    );
    let (status, _) = desk.get("nobody/repository-context").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    desk.token = "none".into();
    let (status, _) = desk.get("crew/repository-context").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn e001_the_first_save_expects_no_record_and_a_second_one_like_it_conflicts() {
    let desk = Desk::new().await;
    let (_, shown) = desk.get("crew/coding-environment").await;
    assert_eq!(shown["environment"], Value::Null);
    let (status, saved) = desk
        .save(0, json!({"cwd": ".", "env": {"CI": "true"}}))
        .await;
    assert_eq!(status, StatusCode::OK, "{saved}");
    let saved: Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["revision"], 1);
    let (status, conflict) = desk.save(0, json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{conflict}");
    assert!(conflict.contains("revision_conflict"), "{conflict}");
}

#[tokio::test]
async fn e003_what_is_not_allowed_is_refused_and_no_value_is_echoed() {
    let desk = Desk::new().await;
    for config in [
        json!({"zebra": "zebra"}),
        json!({"env": {"BASH_ENV": "zebra"}}),
        json!({"env": {"CI": "zebra"}}),
        json!({"env": "zebra"}),
        json!({"cwd": "../zebra"}),
        json!({"cwd": ["zebra"]}),
        json!({"image": "--zebra"}),
        json!({"image": "zebra:1"}),
        json!("zebra"),
    ] {
        let (status, problem) = desk.save(0, config.clone()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{config}");
        assert!(!problem.contains("zebra"), "{problem}");
    }
    let body = json!({"expectedRevision": "zebra", "config": {}});
    let path = "crew/coding-environment";
    let (status, problem) = desk.ask(Method::PUT, path, Some(body)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(!problem.contains("zebra"), "{problem}");
}

#[tokio::test]
async fn e005_a_working_directory_that_is_missing_a_file_or_behind_a_link_is_refused() {
    let desk = Desk::new().await;
    std::fs::create_dir_all(desk.root.join("real/inner")).unwrap();
    std::fs::write(desk.root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("real", desk.root.join("link")).unwrap();
    for cwd in ["missing", "file", "link", "link/inner", "real/missing"] {
        let (status, problem) = desk.save(0, json!({"cwd": cwd})).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{cwd}: {problem}");
    }
    let (status, saved) = desk.save(0, json!({"cwd": "real/inner"})).await;
    assert_eq!(status, StatusCode::OK, "{saved}");
}
