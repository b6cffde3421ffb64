//! `/volumes`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{CreateVolume, ErrorBody, ErrorCode, Plan, Rename, ResizeVolume, Volume};
use farside_engine::VolumeName;
use farside_platform::BLOCK_BYTES;
use farside_store::VolumeStatus;
use serde::Deserialize;

use super::error::{Body, Query};
use super::plan::{Answered, Outcome, Planned};
use super::{Answer, Shared};
use crate::failure::Failure;
use crate::site::Site;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/volumes", get(list).post(create))
        .route("/volumes/{pool}/{volume}", get(status).delete(delete))
        .route("/volumes/{pool}/{volume}/resize", post(resize))
        .route("/volumes/{pool}/{volume}/rename", post(rename))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPool {
    pool: Option<String>,
}

async fn list(State(site): Shared, Query(of): Query<OfPool>) -> Answer<Vec<Volume>> {
    let pools = match of.pool {
        Some(name) => {
            let pool = site.pools.get(&name)?;
            vec![(name, pool)]
        }
        None => site.pools.open_pools(),
    };
    let all = pools.iter().flat_map(|(name, pool)| pool.volumes().into_iter().map(|v| document(name, v)));
    Ok(Json(all.collect()))
}

async fn status(State(site): Shared, Path((pool, volume)): Path<(String, String)>) -> Answer<Volume> {
    Ok(Json(look(&site, &name_of(pool, volume)?)?))
}

async fn create(State(site): Shared, Body(request): Body<CreateVolume>) -> Answer<Volume> {
    let name: VolumeName = parse(&request.name)?;
    check_size(request.size_bytes)?;
    let pool = site.pools.get(&name.pool)?;
    let made = site
        .blocking
        .run(move || pool.create_volume(&name.volume, request.size_bytes).map(|v| (name.pool, v)));
    let (pool, made) = made.await?;
    Ok(Json(document(&pool, made)))
}

async fn resize(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(planned): Query<Planned>,
    Body(request): Body<ResizeVolume>,
) -> Answered<Volume> {
    let name = name_of(pool, volume)?;
    check_size(request.size_bytes)?;
    let before = look(&site, &name)?;
    let shrinks = request.size_bytes < before.size_bytes;
    if planned.plan {
        let connections = site.exports.connections_to(&name);
        return Ok(Outcome::Plan(Plan {
            action: format!("resize volume {name}"),
            would: vec![format!("{name} has {} bytes instead of {}", request.size_bytes, before.size_bytes)],
            lost: if shrinks {
                vec![format!("what lies beyond byte {} (snapshots keep theirs)", request.size_bytes)]
            } else {
                Vec::new()
            },
            refused: (shrinks && connections > 0)
                .then(|| format!("{connections} NBD connections are open to it; disconnect the hosts first")),
        }));
    }
    if before.replica {
        return Err(ErrorBody::new(
            ErrorCode::Refused,
            format!("{name} is a replica: its size is that of its source"),
        )
        .hint("resize the source; the next update brings the new size")
        .into());
    }
    let pool = site.pools.get(&name.pool)?;
    let volume = name.volume.clone();
    site.blocking.run(move || pool.resize_volume(&volume, request.size_bytes)).await?;
    Ok(Outcome::Done(look(&site, &name)?))
}

async fn rename(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(request): Body<Rename>,
) -> Answer<Volume> {
    let name = name_of(pool, volume)?;
    let new = name_of(name.pool.clone(), request.name)?;
    look(&site, &name)?;
    if let Some(reason) = site.mirrors.stands_on(&name).await? {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let pool = site.pools.get(&name.pool)?;
    let (from, to) = (name.volume.clone(), new.volume.clone());
    site.blocking.run(move || pool.rename_volume(&from, &to)).await?;
    Ok(Json(look(&site, &new)?))
}

async fn delete(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(planned): Query<Planned>,
) -> Answered<Volume> {
    let name = name_of(pool, volume)?;
    let document = look(&site, &name)?;
    let connections = site.exports.connections_to(&name);
    let refused = match site.mirrors.stands_on(&name).await? {
        Some(reason) => Some(reason),
        None if connections > 0 => {
            Some(format!("{connections} NBD connections are open to {name}; disconnect the hosts first"))
        }
        None => None,
    };
    if planned.plan {
        return Ok(Outcome::Plan(Plan {
            action: format!("delete volume {name}"),
            would: vec![format!("{name} is no more, nor are its {} snapshots", document.snapshots)],
            lost: vec![format!(
                "everything in {name} ({} bytes in size) and in its snapshots",
                document.size_bytes
            )],
            refused,
        }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let pool = site.pools.get(&name.pool)?;
    let volume = name.volume.clone();
    site.blocking.run(move || pool.delete_volume(&volume)).await?;
    tracing::warn!(volume = %name, "volume deleted");
    Ok(Outcome::Done(document))
}

/// A volume as it is listed.
fn look(site: &Site, name: &VolumeName) -> Result<Volume, ErrorBody> {
    let pool = site.pools.get(&name.pool)?;
    pool.volume(&name.volume).map(|status| document(&name.pool, status)).map_err(|error| {
        let told = error.tell();
        match told.code {
            ErrorCode::NotFound => {
                ErrorBody::new(ErrorCode::NotFound, format!("volume {name} does not exist"))
                    .hint("farside volume list shows what is there")
            }
            _ => told,
        }
    })
}

fn document(pool: &str, status: VolumeStatus) -> Volume {
    Volume {
        name: format!("{pool}/{}", status.name),
        uuid: status.uuid,
        size_bytes: status.size_bytes,
        referenced_bytes: None,
        snapshots: status.snapshots as u64,
        replica: status.replica.is_some_and(|replica| !replica.broken_off),
    }
}

/// `POOL/VOL` of a request.
pub(super) fn parse(text: &str) -> Result<VolumeName, ErrorBody> {
    text.parse().map_err(Failure::tell)
}

/// `POOL/VOL` of two segments of a path.
pub(super) fn name_of(pool: String, volume: String) -> Result<VolumeName, ErrorBody> {
    parse(&format!("{pool}/{volume}"))
}

fn check_size(bytes: u64) -> Result<(), ErrorBody> {
    if bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(());
    }
    Err(ErrorBody::new(ErrorCode::WrongUsage, format!("a volume cannot have {bytes} bytes"))
        .hint(format!("sizes are multiples of {BLOCK_BYTES} bytes, and more than 0")))
}
