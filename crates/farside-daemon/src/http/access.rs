//! `/tokens`, `/accounts` and `/session`: who may use the API over HTTPS.

use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestExt};
use farside_api::{
    Account, Confirmed, CreateAccount, CreateToken, CreatedToken, ErrorBody, ErrorCode, Login, SetAccount,
    Token, WhoAmI,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit;
use super::error::{ApiError, Body, Query};
use super::gate::{SESSION_COOKIE, asked_by, session_of};
use super::handler::{Answer, Routes, Shared};
use super::plan::{Answered, Outcome, Planned};
use crate::access::{Principal, SESSION_LIFE, Who};
use crate::listen::Origin;
use crate::plans;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(tokens, create_token))
        .routes(routes!(revoke_token))
        .routes(routes!(accounts, create_account))
        .routes(routes!(set_account))
        .routes(routes!(remove_account))
        .routes(routes!(whoami, log_in, log_out))
}

/// Tokens
#[utoipa::path(get, path = "/tokens", responses((status = 200, body = Vec<Token>)))]
async fn tokens(State(site): Shared) -> Answer<Vec<Token>> {
    Ok(Json(site.access.tokens()))
}

/// Makes a token
///
/// The answer has the secret; nothing else ever does.
#[utoipa::path(post, path = "/tokens", request_body = CreateToken, responses((status = 200, body = CreatedToken)))]
async fn create_token(
    State(site): Shared,
    principal: Option<Extension<Principal>>,
    Body(request): Body<CreateToken>,
) -> Answer<CreatedToken> {
    let by = asked_by(principal.as_deref());
    let made = site.access.create_token(&request, &by).await?;
    tracing::info!(token = request.name, role = request.role.name(), %by, "token made");
    Ok(Json(made))
}

/// Revokes a token
#[utoipa::path(delete, path = "/tokens/{token}", params(Planned), responses((status = 200, body = Outcome<Token>)))]
async fn revoke_token(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Token> {
    if planned.plan {
        let token = site.access.tokens().into_iter().find(|token| token.name == name);
        return Ok(Outcome::Plan(plans::revoke_token(&name, token.as_ref())));
    }
    let revoked = site.access.revoke_token(&name).await?;
    tracing::info!(token = name, "token revoked");
    Ok(Outcome::Done(revoked))
}

/// Accounts
#[utoipa::path(get, path = "/accounts", responses((status = 200, body = Vec<Account>)))]
async fn accounts(State(site): Shared) -> Answer<Vec<Account>> {
    Ok(Json(site.access.accounts()))
}

/// Makes an account for a person
#[utoipa::path(post, path = "/accounts", request_body = CreateAccount, responses((status = 200, body = Account)))]
async fn create_account(
    State(site): Shared,
    principal: Option<Extension<Principal>>,
    Body(request): Body<CreateAccount>,
) -> Answer<Account> {
    let by = asked_by(principal.as_deref());
    let made = site.access.create_account(&request.name, request.role, &request.password, &by).await?;
    tracing::info!(account = request.name, role = request.role.name(), %by, "account made");
    Ok(Json(made))
}

/// Changes an account's role or password, and ends its sessions
#[utoipa::path(post, path = "/accounts/{account}/set", request_body = SetAccount, responses((status = 200, body = Account)))]
async fn set_account(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<SetAccount>,
) -> Answer<Account> {
    Ok(Json(site.access.set_account(&name, request.role, request.password.as_deref()).await?))
}

/// Removes an account, and ends its sessions
#[utoipa::path(delete, path = "/accounts/{account}", params(Planned), responses((status = 200, body = Outcome<Account>)))]
async fn remove_account(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Account> {
    if planned.plan {
        let account = site.access.accounts().into_iter().find(|account| account.name == name);
        return Ok(Outcome::Plan(plans::remove_account(&name, account.as_ref())));
    }
    Ok(Outcome::Done(site.access.remove_account(&name).await?))
}

/// Who asks, and what they may do
#[utoipa::path(get, path = "/session", responses((status = 200, body = WhoAmI)))]
async fn whoami(Extension(principal): Extension<Principal>) -> Answer<WhoAmI> {
    Ok(Json(principal.document()))
}

/// Logs in with an account's password
///
/// The answer sets the cookie of the session.
#[utoipa::path(post, path = "/session", request_body = Login, responses((status = 200, body = WhoAmI)))]
async fn log_in(State(site): Shared, request: Request) -> Result<Response, ApiError> {
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    let Origin::Network(from) = origin else {
        return Err(
            ErrorBody::new(ErrorCode::Refused, "whoever comes by the control socket needs no login").into()
        );
    };
    let Body(Login { name, password }) = request.extract().await?;
    let is_known = site.access.knows_account(&name);
    match site.access.log_in(&name, &password, from.ip()).await {
        Ok((principal, secret)) => {
            audit::login(&site, principal.who.to_string(), origin, Ok(principal.role)).await;
            let cookie = format!(
                "{SESSION_COOKIE}={}; Path=/; Max-Age={}; Secure; HttpOnly; SameSite=Strict",
                *secret,
                SESSION_LIFE.as_secs()
            );
            answer_with(&cookie, Json(principal.document()))
        }
        Err(error) => {
            // Tries at names that nobody has, and those that were not even compared, must not fill the log.
            if is_known && error.code != ErrorCode::TooManyRequests {
                audit::login(&site, Who::Account(name).to_string(), origin, Err(&error)).await;
            }
            crate::metrics::api_refused(if error.code == ErrorCode::TooManyRequests {
                "throttled"
            } else {
                "password"
            });
            Err(error.into())
        }
    }
}

/// Logs out
#[utoipa::path(delete, path = "/session", responses((status = 200, body = Confirmed)))]
async fn log_out(State(site): Shared, headers: HeaderMap) -> Result<Response, ApiError> {
    if let Some(session) = session_of(&headers) {
        site.access.log_out(session);
    }
    let gone = format!("{SESSION_COOKIE}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict");
    answer_with(&gone, Json(Confirmed { done: true }))
}

fn answer_with(cookie: &str, answer: impl IntoResponse) -> Result<Response, ApiError> {
    let mut response = answer.into_response();
    let cookie = HeaderValue::from_str(cookie)
        .map_err(|_| ErrorBody::new(ErrorCode::Failed, "the session's cookie cannot be written"))?;
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}
