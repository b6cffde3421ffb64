//! `/accelerator`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body as RequestBody, Bytes, HttpBody};
use axum::extract::{Path, State};
use farside_api::{
    AcceleratedConnection, AcceleratorCache, AcceleratorForward, AcceleratorPlan, AcceleratorPolicy,
    AcceleratorStatus, ClearCache, ErrorBody, ErrorCode, Preposition, PrepositionFile, PrepositionVolume,
    Prepositioned, ResetConnection, SetAcceleratorPolicy, StartAccelerator,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Body, BodyOrDefault, Query};
use super::handler::{Answer, Routes, Shared};
use super::volumes::parse;
use crate::accelerator::{AskedFor, NewestSnapshot};
use crate::peers;

/// For how long the rest of a file that was refused is read and thrown away.
const REFUSED_BODY_FOR: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(status))
        .routes(routes!(up))
        .routes(routes!(down))
        .routes(routes!(plan))
        .routes(routes!(connections))
        .routes(routes!(reset))
        .routes(routes!(cache))
        .routes(routes!(clear_cache))
        .routes(routes!(prepositions, preposition))
        .routes(routes!(preposition_volume))
        .routes(routes!(cancel_preposition))
        .routes(routes!(policies, set_policy))
        .routes(routes!(reload_policies))
        .routes(routes!(remove_policy))
        .routes(routes!(forwards, forward))
        .routes(routes!(unforward))
}

/// How the accelerator is.
#[utoipa::path(get, path = "/accelerator", responses((status = 200, body = AcceleratorStatus)))]
async fn status(State(site): Shared) -> Answer<AcceleratorStatus> {
    Ok(Json(site.accelerator.fresh_status().await))
}

/// Starts the accelerator.
#[utoipa::path(
    post,
    path = "/accelerator/up",
    request_body = Option<StartAccelerator>,
    responses((status = 200, body = AcceleratorStatus))
)]
async fn up(
    State(site): Shared,
    BodyOrDefault(words): BodyOrDefault<StartAccelerator>,
) -> Answer<AcceleratorStatus> {
    if site.configuration.isolated {
        return Err(ErrorBody::new(
            ErrorCode::Refused,
            "this site runs isolated (farsided --isolated): it meets no peer, so no connection can be accelerated",
        )
        .into());
    }
    Ok(Json(site.accelerator.up(words).await?))
}

/// Stops the accelerator.
#[utoipa::path(post, path = "/accelerator/down", responses((status = 200, body = AcceleratorStatus)))]
async fn down(State(site): Shared) -> Answer<AcceleratorStatus> {
    Ok(Json(site.accelerator.down().await?))
}

/// What starting the accelerator would change; changes nothing.
#[utoipa::path(
    post,
    path = "/accelerator/plan",
    request_body = Option<StartAccelerator>,
    responses((status = 200, body = AcceleratorPlan))
)]
async fn plan(
    State(site): Shared,
    BodyOrDefault(words): BodyOrDefault<StartAccelerator>,
) -> Answer<AcceleratorPlan> {
    Ok(Json(site.accelerator.plan(words).await?))
}

/// The connections it carries, and which it passes by.
#[utoipa::path(
    get,
    path = "/accelerator/connections",
    responses((status = 200, body = Vec<AcceleratedConnection>))
)]
async fn connections(State(site): Shared) -> Answer<Vec<AcceleratedConnection>> {
    Ok(Json(site.accelerator.connections(site.clock.now()).await?))
}

/// Resets one connection at both ends.
#[utoipa::path(
    post,
    path = "/accelerator/connections/reset",
    request_body = ResetConnection,
    responses((status = 200, body = ResetConnection))
)]
async fn reset(State(site): Shared, Body(request): Body<ResetConnection>) -> Answer<ResetConnection> {
    let (client, server) = (end(&request.client)?, end(&request.server)?);
    site.accelerator.reset(client, server).await?;
    tracing::info!(%client, %server, "a connection was reset");
    Ok(Json(request))
}

fn end(text: &str) -> Result<SocketAddr, ErrorBody> {
    text.parse().map_err(|_| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("{text:?} is not ADDR:PORT"))
            .hint("farside accel connections shows both ends of each connection")
    })
}

/// What its chunk store holds.
#[utoipa::path(get, path = "/accelerator/cache", responses((status = 200, body = AcceleratorCache)))]
async fn cache(State(site): Shared) -> Answer<AcceleratorCache> {
    Ok(Json(site.accelerator.cache().await?))
}

/// Empties its chunk store.
#[utoipa::path(
    post,
    path = "/accelerator/cache/clear",
    request_body = Option<ClearCache>,
    responses((status = 200, body = AcceleratorCache))
)]
async fn clear_cache(
    State(site): Shared,
    BodyOrDefault(ClearCache { peer }): BodyOrDefault<ClearCache>,
) -> Answer<AcceleratorCache> {
    if let Some(name) = &peer {
        peers::named(&site.node, name)?;
    }
    tracing::info!(peer, "the accelerator's chunk store is cleared");
    Ok(Json(site.accelerator.clear_cache(peer).await?))
}

/// What is being sent ahead to peers.
#[utoipa::path(get, path = "/accelerator/prepositions", responses((status = 200, body = Vec<Preposition>)))]
async fn prepositions(State(site): Shared) -> Answer<Vec<Preposition>> {
    Ok(Json(site.accelerator.prepositions()))
}

/// Sends a file ahead to peers, so that it is known there.
///
/// The file's bytes are the body, as long as it is: none of it is kept here.
#[utoipa::path(
    post,
    path = "/accelerator/prepositions",
    params(PrepositionFile),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = Prepositioned))
)]
async fn preposition(
    State(site): Shared,
    Query(file): Query<PrepositionFile>,
    body: RequestBody,
) -> Answer<Prepositioned> {
    let PrepositionFile { job, what, peer, size_bytes } = file;
    let asked = AskedFor { job, what, peer, size_bytes, now: site.clock.now() };
    let body = tokio::sync::Mutex::new(body);
    let next = async || next_bytes(&mut *body.lock().await).await;
    let done = site.accelerator.preposition_bytes(asked, next).await;
    if done.is_err() {
        // Whoever is still sending when the connection closes sees a broken pipe instead of the answer. It ends its sending when
        // it has read that.
        tokio::spawn(tokio::time::timeout(REFUSED_BODY_FOR, async move {
            let mut body = body.into_inner();
            while let Ok(Some(_)) = next_bytes(&mut body).await {}
        }));
    }
    Ok(Json(done?))
}

/// The next bytes of a body; none at its end.
async fn next_bytes(body: &mut RequestBody) -> Result<Option<Bytes>, String> {
    loop {
        match std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Some(Err(error)) => return Err(format!("the file was not sent to its end: {error}")),
        }
    }
}

/// Sends a volume's newest snapshot ahead to peers.
#[utoipa::path(
    post,
    path = "/accelerator/prepositions/volume",
    request_body = PrepositionVolume,
    responses((status = 200, body = Prepositioned))
)]
async fn preposition_volume(
    State(site): Shared,
    Body(request): Body<PrepositionVolume>,
) -> Answer<Prepositioned> {
    let PrepositionVolume { job, volume, peer } = request;
    let volume = parse(&volume)?;
    let engine = site.pools.engine();
    let looking = Arc::clone(&engine);
    let snapshot = site.blocking.run(move || NewestSnapshot::of(&*looking, &volume)).await?;
    let what = snapshot.name.clone();
    let asked = AskedFor { job, what, peer, size_bytes: Some(snapshot.data_bytes), now: site.clock.now() };
    Ok(Json(site.accelerator.preposition_snapshot(asked, engine, snapshot).await?))
}

/// Ends a sending ahead.
#[utoipa::path(
    delete,
    path = "/accelerator/prepositions/{job}",
    responses((status = 200, body = Vec<Preposition>))
)]
async fn cancel_preposition(State(site): Shared, Path(job): Path<String>) -> Answer<Vec<Preposition>> {
    Ok(Json(site.accelerator.cancel_preposition(&job)?))
}

/// What is done with connections of which application.
#[utoipa::path(get, path = "/accelerator/policies", responses((status = 200, body = Vec<AcceleratorPolicy>)))]
async fn policies(State(site): Shared) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.policies()))
}

/// Sets a policy.
#[utoipa::path(
    post,
    path = "/accelerator/policies",
    request_body = SetAcceleratorPolicy,
    responses((status = 200, body = AcceleratorPolicy))
)]
async fn set_policy(
    State(site): Shared,
    Body(request): Body<SetAcceleratorPolicy>,
) -> Answer<AcceleratorPolicy> {
    Ok(Json(site.accelerator.set_policy(request).await?))
}

/// Removes a policy that was set.
#[utoipa::path(
    delete,
    path = "/accelerator/policies/{application}",
    responses((status = 200, body = Vec<AcceleratorPolicy>))
)]
async fn remove_policy(
    State(site): Shared,
    Path(application): Path<String>,
) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.remove_policy(&application).await?))
}

/// Reads the policies of the configuration file again.
#[utoipa::path(post, path = "/accelerator/reload", responses((status = 200, body = Vec<AcceleratorPolicy>)))]
async fn reload_policies(State(site): Shared) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.reload_policies().await?))
}

/// The explicit forwards.
#[utoipa::path(
    get,
    path = "/accelerator/forwards",
    responses((status = 200, body = Vec<AcceleratorForward>))
)]
async fn forwards(State(site): Shared) -> Answer<Vec<AcceleratorForward>> {
    Ok(Json(site.accelerator.forwards().await?))
}

/// Adds an explicit forward.
#[utoipa::path(
    post,
    path = "/accelerator/forwards",
    request_body = AcceleratorForward,
    responses((status = 200, body = AcceleratorForward))
)]
async fn forward(State(site): Shared, Body(request): Body<AcceleratorForward>) -> Answer<AcceleratorForward> {
    Ok(Json(site.accelerator.forward(request).await?))
}

/// Removes an explicit forward.
#[utoipa::path(
    delete,
    path = "/accelerator/forwards/{listen}",
    responses((status = 200, body = AcceleratorForward))
)]
async fn unforward(State(site): Shared, Path(listen): Path<String>) -> Answer<AcceleratorForward> {
    Ok(Json(site.accelerator.unforward(&listen).await?))
}
