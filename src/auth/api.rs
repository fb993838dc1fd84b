//! `/api/whoami` and `/api/tokens`; the routes of the other doors of an account are merged here.

use axum::Json as Answer;
use axum::extract::State;
use http::StatusCode;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::ApiCaller;
use super::{TokenRequest, store, token};
use crate::app::App;
use crate::db::{Op, TenantTx};
use crate::error::{Code, Error, Result};
use crate::http::extract::{Json, Path};
use crate::http::paging::Page;
use crate::identity::{Actor, Caller, Credential, Role, Scopes};
use crate::ids::{OperatorId, TokenId};
use crate::limits;
use crate::tenant;
use crate::tenant::audit::{self, Act};

const LIST: Op = Op::locking("auth.tokens");
const REVOKE: Op = Op::locking("auth.revoke_token");

/// The routes of this module.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(whoami))
        .routes(routes!(tokens, create_token))
        .routes(routes!(revoke_token))
        .merge(super::sessions::router())
        .merge(super::home::router())
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct WhoAmI {
    home: HomeView,
    operator_id: OperatorId,
    role: Role,
    scopes: Vec<String>,
    instance_admin: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
struct HomeView {
    id: crate::ids::HomeId,
    slug: String,
    name: String,
}

/// Who the token stands for, and in which home.
#[utoipa::path(get, path = "/whoami", tag = "account", responses((status = 200, body = WhoAmI)))]
async fn whoami(State(app): State<App>, ApiCaller(caller): ApiCaller) -> Result<Answer<WhoAmI>> {
    let home = tenant::home(&app.db, &caller).await?;
    let Actor::Operator {
        id,
        role,
        scopes,
        instance_admin,
        ..
    } = *caller.actor()
    else {
        return Err(Error::not_found());
    };
    Ok(Answer(WhoAmI {
        home: HomeView {
            id: home.id,
            slug: home.slug,
            name: home.name,
        },
        operator_id: id,
        role,
        scopes: token::scope_words(scopes),
        instance_admin,
    }))
}

/// The caller's own tokens in this home; never their text.
#[utoipa::path(get, path = "/tokens", tag = "account", responses((status = 200, body = Page<store::TokenView>)))]
async fn tokens(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
) -> Result<Answer<Page<store::TokenView>>> {
    let items = app
        .db
        .transact(&caller, LIST, &(), async |tx: &mut TenantTx, (): &()| {
            let operator = operator(tx)?;
            store::list_tokens(tx, operator).await
        })
        .await?;
    Ok(Answer(Page::whole(items)))
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewToken {
    label: String,
    scopes: Vec<String>,
    /// 1 to 365; 90 when absent.
    #[serde(default)]
    days: Option<i64>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct CreatedToken {
    id: TokenId,
    /// Shown here and never again.
    token: String,
}

/// Creates a token for the caller, with no more than the caller's own scopes.
#[utoipa::path(post, path = "/tokens", tag = "account", request_body = NewToken,
    responses((status = 201, body = CreatedToken)))]
async fn create_token(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Json(new): Json<NewToken>,
) -> Result<(StatusCode, Answer<CreatedToken>)> {
    let Actor::Operator {
        id,
        role,
        scopes: own,
        instance_admin,
        ..
    } = *caller.actor()
    else {
        return Err(Error::not_found());
    };
    require_change_scope(own)?;
    let scopes = token::parse_scopes(&new.scopes)?;
    let beyond = (scopes.read && !own.read)
        || (scopes.write && !own.write)
        || (scopes.approvals && !own.approvals)
        || (scopes.admin && !own.admin);
    if beyond {
        let detail = "A token cannot have a scope that the token creating it does not have.";
        return Err(Error::refused(Code::InsufficientScope, detail));
    }
    let request = TokenRequest {
        home: caller.home(),
        operator: id,
        label: new.label,
        scopes,
        role_limit: Some(role),
        instance_admin: instance_admin && scopes.admin,
        days: new.days.unwrap_or(limits::TOKEN_DAYS),
    };
    let (id, text) = super::mint_token(&app.db, &request).await?;
    let created = CreatedToken {
        id,
        token: text.expose_secret().to_owned(),
    };
    Ok((StatusCode::CREATED, Answer(created)))
}

/// A token that only reads makes and ends no others: it could outlive its own expiry, or lock its owner out.
fn require_change_scope(scopes: Scopes) -> Result<()> {
    if scopes.write || scopes.admin {
        return Ok(());
    }
    let detail = "A token that only reads cannot create or revoke other tokens, nor end sessions.";
    Err(Error::refused(Code::InsufficientScope, detail))
}

/// Revokes one of the caller's tokens, at once. A token may always revoke itself.
#[utoipa::path(delete, path = "/tokens/{token}", tag = "account", params(("token" = TokenId, Path,)),
    responses((status = 204)))]
async fn revoke_token(
    State(app): State<App>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<TokenId>,
) -> Result<StatusCode> {
    app.db
        .transact(
            &caller,
            REVOKE,
            &id,
            async |tx: &mut TenantTx, id: &TokenId| {
                let operator = operator(tx)?;
                if let Actor::Operator {
                    scopes, credential, ..
                } = *tx.caller().actor()
                    && credential != Credential::Token(*id)
                {
                    require_change_scope(scopes)?;
                }
                store::revoke_token(tx, operator, *id).await?;
                audit::record(tx, &Act::ok("token.revoke", id)).await
            },
        )
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn operator(tx: &TenantTx) -> Result<OperatorId> {
    operator_of(tx.caller())
}

/// The person that a credential stands for.
pub(super) fn operator_of(caller: &Caller) -> Result<OperatorId> {
    caller.operator().ok_or_else(Error::not_found)
}

/// Whether the caller's credential may make and end credentials.
pub(super) fn require_change(caller: &Caller) -> Result<()> {
    match *caller.actor() {
        Actor::Operator { scopes, .. } => require_change_scope(scopes),
        _ => Err(Error::not_found()),
    }
}
