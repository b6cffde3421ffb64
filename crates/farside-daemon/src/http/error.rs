//! Failures of requests, and what a request that cannot be read is told.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use farside_api::object::ObjectOf;
use farside_api::{ErrorBody, ErrorCode, ErrorDocument};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    /// The request has no route.
    pub(crate) fn unknown_request(body: ErrorBody) -> Self {
        ApiError { status: StatusCode::NOT_FOUND, body }
    }

    /// There is such a route, with other methods.
    pub(crate) fn unknown_method(body: ErrorBody) -> Self {
        ApiError { status: StatusCode::METHOD_NOT_ALLOWED, body }
    }
}

impl<E: Failure> From<E> for ApiError {
    fn from(error: E) -> Self {
        let body = error.into_error_body();
        // Every status of the API is a valid one; its tests go through them.
        let status =
            StatusCode::from_u16(body.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        ApiError { status, body }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(code = ?self.body.code, message = %self.body.message, "a request failed");
        }
        let mut response = (self.status, Json(ErrorDocument { error: self.body.clone() })).into_response();
        // For the audit log, which sees the answer and not its bytes.
        response.extensions_mut().insert(self.body);
        response
    }
}

/// A JSON body; one that cannot be read is wrong usage, in the API's own words.
#[derive(Debug)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Json(ObjectOf(body)) = Json::from_request(request, state).await?;
        Ok(Body(body))
    }
}

/// A JSON body that may be left away.
#[derive(Debug)]
pub(crate) struct BodyOrDefault<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for BodyOrDefault<T> {
    type Rejection = ApiError;
    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !request.headers().contains_key(CONTENT_TYPE) {
            return Ok(BodyOrDefault(T::default()));
        }
        Body::from_request(request, state).await.map(|Body(body)| BodyOrDefault(body))
    }
}

/// A query likewise.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let axum::extract::Query(query) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Query(query))
    }
}

impl Failure for JsonRejection {
    fn into_error_body(self) -> ErrorBody {
        ErrorBody::new(ErrorCode::WrongUsage, self.body_text())
    }
}

impl Failure for QueryRejection {
    fn into_error_body(self) -> ErrorBody {
        ErrorBody::new(ErrorCode::WrongUsage, self.body_text())
    }
}
