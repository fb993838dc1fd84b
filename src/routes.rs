//! Mounts every feature's routes; the one place that knows them all.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use http::StatusCode;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::auth::extract::ApiCaller;
use crate::http::layers;
use crate::{attention, auth, coding, instance, provider, queue, team, turn, web, workspace};

/// Everything that is served, with the document that describes `/api`.
pub fn router(app: App) -> Router {
    let (api, document) = api().split_for_parts();
    let api = api
        .route(
            "/api/openapi.json",
            get(move || async move { Json(document) }),
        )
        .route("/api/ready", get(ready))
        .method_not_allowed_fallback(layers::method_not_allowed);
    let pages = web::router(&app);
    Router::new()
        .merge(api)
        .merge(pages)
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .fallback(layers::fallback)
        .layer(middleware::from_fn(layers::secure))
        .layer(middleware::from_fn(layers::identify))
        .with_state(app)
}

/// The routes below `/api`, each from its feature.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(described())
        .nest("/api", auth::api::router())
        .nest("/api", provider::api::router())
        .nest("/api", team::api::router())
        .nest("/api", queue::api::router())
        .nest("/api", turn::api::router())
        .nest("/api", coding::api::router())
        .nest("/api", workspace::api::router())
        .nest("/api", instance::api::router())
        .nest("/api", attention::router())
}

/// The OpenAPI document of every route.
pub fn openapi() -> OpenApi {
    api().into_openapi()
}

fn described() -> OpenApi {
    let mut document = OpenApiBuilder::new().build();
    document.info.title = "Bazilion".into();
    document.info.version = env!("CARGO_PKG_VERSION").into();
    document.info.description = Some(
        "Teams of coding Agents for many tenants. A token belongs to one operator and one home. Errors are \
         application/problem+json with a stable `code`."
            .into(),
    );
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = document.components.get_or_insert_default();
    components
        .security_schemes
        .insert("token".into(), scheme.into());
    document.security = Some(vec![utoipa::openapi::security::SecurityRequirement::new::<
        _,
        [&str; 0],
        &str,
    >("token", [])]);
    document
}

/// Ready or not, by word only: without a credential nothing more is said.
async fn readyz(State(app): State<App>) -> Response {
    if app.readiness.now().is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

/// Each prerequisite with its state and the next step.
async fn ready(State(app): State<App>, _: ApiCaller) -> Response {
    let readiness = app.readiness.now();
    let status = if readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness)).into_response()
}
