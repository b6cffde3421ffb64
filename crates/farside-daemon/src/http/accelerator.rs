//! `/accelerator`.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body as RequestBody, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use farside_api::{
    AcceleratedConnection, AcceleratorCache, AcceleratorForward, AcceleratorPlan, AcceleratorPolicy,
    AcceleratorStatus, ClearCache, ErrorBody, ErrorCode, Preposition, PrepositionFile, PrepositionVolume,
    Prepositioned, ResetConnection, SetAcceleratorPolicy, StartAccelerator,
};

use super::error::{Body, BodyOrDefault, Query};
use super::handler::{Answer, Shared};
use super::volumes::parse;
use crate::accelerator::{AskedFor, NewestSnapshot};
use crate::site::Site;

/// For how long the rest of a file that was refused is read and thrown away.
const REFUSED_BODY_FOR: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/accelerator", get(status))
        .route("/accelerator/up", post(up))
        .route("/accelerator/down", post(down))
        .route("/accelerator/plan", post(plan))
        .route("/accelerator/connections", get(connections))
        .route("/accelerator/connections/reset", post(reset))
        .route("/accelerator/cache", get(cache))
        .route("/accelerator/cache/clear", post(clear_cache))
        .route("/accelerator/prepositions", get(prepositions).post(preposition))
        .route("/accelerator/prepositions/volume", post(preposition_volume))
        .route("/accelerator/prepositions/{job}", delete(cancel_preposition))
        .route("/accelerator/policies", get(policies).post(set_policy))
        .route("/accelerator/reload", post(reload_policies))
        .route("/accelerator/policies/{application}", delete(remove_policy))
        .route("/accelerator/forwards", get(forwards).post(forward))
        .route("/accelerator/forwards/{listen}", delete(unforward))
}

async fn status(State(site): Shared) -> Answer<AcceleratorStatus> {
    Ok(Json(site.accelerator.fresh_status().await))
}

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

async fn down(State(site): Shared) -> Answer<AcceleratorStatus> {
    Ok(Json(site.accelerator.down().await?))
}

async fn plan(
    State(site): Shared,
    BodyOrDefault(words): BodyOrDefault<StartAccelerator>,
) -> Answer<AcceleratorPlan> {
    Ok(Json(site.accelerator.plan(words).await?))
}

async fn connections(State(site): Shared) -> Answer<Vec<AcceleratedConnection>> {
    Ok(Json(site.accelerator.connections(site.clock.now()).await?))
}

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

async fn cache(State(site): Shared) -> Answer<AcceleratorCache> {
    Ok(Json(site.accelerator.cache().await?))
}

async fn clear_cache(
    State(site): Shared,
    BodyOrDefault(ClearCache { peer }): BodyOrDefault<ClearCache>,
) -> Answer<AcceleratorCache> {
    tracing::info!(peer, "the accelerator's chunk store is cleared");
    Ok(Json(site.accelerator.clear_cache(peer).await?))
}

async fn prepositions(State(site): Shared) -> Answer<Vec<Preposition>> {
    Ok(Json(site.accelerator.prepositions()))
}

/// The file's bytes are the body, as long as it is: none of it is kept here.
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

async fn cancel_preposition(State(site): Shared, Path(job): Path<String>) -> Answer<Vec<Preposition>> {
    Ok(Json(site.accelerator.cancel_preposition(&job)?))
}

async fn policies(State(site): Shared) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.policies()))
}

async fn set_policy(
    State(site): Shared,
    Body(request): Body<SetAcceleratorPolicy>,
) -> Answer<AcceleratorPolicy> {
    Ok(Json(site.accelerator.set_policy(request).await?))
}

async fn remove_policy(
    State(site): Shared,
    Path(application): Path<String>,
) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.remove_policy(&application).await?))
}

async fn reload_policies(State(site): Shared) -> Answer<Vec<AcceleratorPolicy>> {
    Ok(Json(site.accelerator.reload_policies().await?))
}

async fn forwards(State(site): Shared) -> Answer<Vec<AcceleratorForward>> {
    Ok(Json(site.accelerator.forwards().await?))
}

async fn forward(State(site): Shared, Body(request): Body<AcceleratorForward>) -> Answer<AcceleratorForward> {
    Ok(Json(site.accelerator.forward(request).await?))
}

async fn unforward(State(site): Shared, Path(listen): Path<String>) -> Answer<AcceleratorForward> {
    Ok(Json(site.accelerator.unforward(&listen).await?))
}
