//! `/volumes/POOL/VOL/snapshots/SNAP/clone`, and `/mirrors/POOL/VOL/drill`.
//!
//! Both need the pool and nothing else: neither the peer, nor the relationship's driver, nor a transfer that is under way is asked or
//! waited for.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{
    CloneSnapshot, Drill, DrillResult, DrillVolume, ErrorBody, ErrorCode, StartDrill, Timestamp, Volume,
};
use farside_engine::{VolumeName, is_label};
use farside_mirror::{LogEntry, LogEvent};
use farside_store::{CloneOf, NewClone, Pool, StoreError, VolumeStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::error::Body;
use super::handler::{Answer, Routes, Shared};
use super::volumes::{look, name_of, parse, remove_unused, rights_follow};
use crate::convert;
use crate::failure::Failure;
use crate::site::Site;

/// How often somebody looks whether drills are renewed.
const DRILLS_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// So many drills of one volume can begin in the same second without a name.
const DRILLS_A_SECOND: u32 = 100;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(clone_snapshot))
        .routes(routes!(drill))
        .routes(routes!(drilled))
        .routes(routes!(renew))
        .routes(routes!(end))
}

/// Makes a writable volume that begins as a snapshot.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/snapshots/{snapshot}/clone",
    request_body = CloneSnapshot,
    responses((status = 200, body = Volume))
)]
async fn clone_snapshot(
    State(site): Shared,
    Path((pool, volume, snapshot)): Path<(String, String, String)>,
    Body(request): Body<CloneSnapshot>,
) -> Answer<Volume> {
    let name = name_of(pool, volume)?;
    let new = in_pool_of(&name, &request.name)?;
    look(&site, &name)?;
    let pool = site.pools.get(&name.pool)?;
    let wanted = NewClone { name: new.volume.clone(), even_if_damaged: request.even_if_damaged };
    let (cloned, of, at) = (Arc::clone(&pool), name.volume.clone(), snapshot.clone());
    let made = site.blocking.run(move || cloned.clone_volume(&of, CloneOf::Snapshot(&at), &wanted)).await;
    made.map_err(|error| told(error, &name, Some(&snapshot), &new))?;
    tracing::info!(volume = %new, origin = %format_args!("{name}@{snapshot}"), "snapshot cloned on request");
    rights_follow(&site, &name.pool, &pool).await;
    Ok(Json(look(&site, &new)?))
}

/// Begins a recovery drill: a writable clone of a replica.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/drill",
    request_body = StartDrill,
    responses((status = 200, body = Drill))
)]
async fn drill(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(request): Body<StartDrill>,
) -> Answer<Drill> {
    let (began, now) = (Instant::now(), convert::time(site.clock.now()));
    let name = name_of(pool, volume)?;
    look(&site, &name)?;
    let pool = site.pools.get(&name.pool)?;
    let status = pool.volume(&name.volume)?;
    let is_broken_off = status.replica.as_ref().is_some_and(|replica| replica.broken_off);
    // Of a direction that sleeps: what can be tried is at the site that follows.
    if is_broken_off && request.at.is_none() {
        site.mirrors.awake(&name)?;
    }
    check_replica(&status, &name, request.at.as_deref())?;
    let names = match &request.name {
        Some(new) => vec![in_pool_of(&name, new)?.volume],
        None => default_names(&name, now)?,
    };
    let (cloned, of, at) = (Arc::clone(&pool), name.volume.clone(), request.at.clone());
    let made = site.blocking.run(move || {
        let of_what = at.as_deref().map_or(CloneOf::Shown, CloneOf::Snapshot);
        clone_as_first_free(&cloned, &of, of_what, names, request.even_if_damaged)
    });
    let made = made.await.map_err(|error| {
        let new = request.name.as_ref().and_then(|new| new.parse().ok());
        told(error, &name, request.at.as_deref(), new.as_ref().unwrap_or(&name))
    })?;
    let new = VolumeName { pool: name.pool.clone(), volume: made.name };
    let missing = || ErrorBody::new(ErrorCode::Failed, format!("{new} does not say what it began as"));
    let origin = made.origin.ok_or_else(missing)?;
    let point = convert::time(origin.created_at);
    let document = Drill {
        name: new.to_string(),
        uuid: made.uuid,
        replica: name.to_string(),
        snapshot: origin.snapshot,
        point,
        age_seconds: now.duration_since(point).as_secs_f64().max(0.0),
        size_bytes: made.size_bytes,
        uri: nbd_uri(&new.to_string(), &site.document.nbd_socket),
        duration_seconds: began.elapsed().as_secs_f64(),
        run: None,
    };
    tracing::info!(
        replica = %name, volume = %new, snapshot = document.snapshot, point = %point,
        seconds = document.duration_seconds, "recovery drill: a writable clone of the replica was made"
    );
    rights_follow(&site, &name.pool, &pool).await;
    if let Some(seconds) = request.lease_seconds {
        let lease = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        site.drills.begin(&new.pool, made.uuid, lease).await.map_err(Failure::into_error_body)?;
    }
    Ok(Json(document))
}

/// Keeps the volume of a drill a while longer.
#[utoipa::path(
    post,
    path = "/drills/{pool}/{volume}/renew",
    request_body = DrillVolume,
    responses((status = 200, body = Volume))
)]
async fn renew(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(of): Body<DrillVolume>,
) -> Answer<Volume> {
    let name = held(&site, &name_of(pool, volume)?, of.uuid)?;
    let document = look(&site, &name)?;
    match site.drills.renew(of.uuid) {
        true => Ok(Json(document)),
        false => Err(gone(&name).into()),
    }
}

/// Ends a drill and deletes its volume.
///
/// Deletes the volume of a drill, and no other that has its name by now.
#[utoipa::path(
    post,
    path = "/drills/{pool}/{volume}/end",
    request_body = DrillVolume,
    responses((status = 200, body = Volume))
)]
async fn end(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(of): Body<DrillVolume>,
) -> Answer<Volume> {
    let asked = name_of(pool, volume)?;
    let name = held(&site, &asked, of.uuid)?;
    let document = look(&site, &name)?;
    remove_unused(&site, &name, of.uuid).await?;
    tracing::info!(volume = %name, "the volume of a drill was deleted at its end");
    Ok(Json(document))
}

/// What the volume is called now that a drill began as `asked`: its identity says which it is.
fn held(site: &Site, asked: &VolumeName, identity: Uuid) -> Result<VolumeName, ErrorBody> {
    let pool = site.pools.get(&asked.pool)?;
    let found = called(&pool, identity).filter(|_| site.drills.holds(identity));
    let volume = found.ok_or_else(|| gone(asked))?;
    Ok(VolumeName { pool: asked.pool.clone(), volume })
}

/// The name of the volume with this identity.
fn called(pool: &Pool, identity: Uuid) -> Option<String> {
    pool.volumes().into_iter().find(|found| found.uuid == identity).map(|found| found.name)
}

fn gone(name: &VolumeName) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("the volume that was made for a drill as {name} is gone"))
}

/// Deletes the volumes of drills that nobody renews, for as long as the site lives.
pub(crate) async fn end_drills(site: Arc<Site>) {
    loop {
        tokio::time::sleep(DRILLS_LOOKED_AT_EVERY).await;
        for (identity, pool_name) in site.drills.expired() {
            // What cannot be looked at now is looked at again.
            let Ok(pool) = site.pools.get(&pool_name) else { continue };
            let Some(volume) = called(&pool, identity) else {
                site.drills.end(identity).await;
                continue;
            };
            let name = VolumeName { pool: pool_name, volume };
            match remove_unused(&site, &name, identity).await {
                Ok(()) => tracing::warn!(
                    volume = %name,
                    "deleted the volume of a drill: the client that ran its command has ended without doing so"
                ),
                Err(error) => {
                    tracing::debug!(volume = %name, "the volume of a drill stays for now: {}", error.message)
                }
            }
        }
    }
}

/// Records what came of a drill.
///
/// What came of a drill, for the log of the mirror.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/drilled",
    request_body = Drill,
    responses((status = 200, body = Drill))
)]
async fn drilled(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(drill): Body<Drill>,
) -> Answer<Drill> {
    let name = name_of(pool, volume)?;
    let mirror = site.mirrors.mirror(&name)?;
    let Some(run) = &drill.run else {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, "nothing was run").into());
    };
    let result = match run.result {
        DrillResult::Ok => "the command succeeded",
        DrillResult::Failed => "the command failed",
        DrillResult::TimedOut => "the command took too long",
        DrillResult::Interrupted => "the command was interrupted",
    };
    let outcome = format!(
        "{result}; recovery point {} ({:.0} s old), recovery time {:.1} s",
        drill.point, drill.age_seconds, run.recovery_seconds
    );
    let entry = LogEntry {
        at: site.clock.now(),
        volume: name,
        relationship: mirror.status().relationship.id,
        event: LogEvent::Drill { outcome },
        kind: None,
        transfer: None,
    };
    site.state.append_log(&entry).await.map_err(Failure::into_error_body)?;
    Ok(Json(drill))
}

/// The new volume of a request. A clone shares blocks with its origin, so it lies in the same pool.
fn in_pool_of(origin: &VolumeName, new: &str) -> Result<VolumeName, ErrorBody> {
    let new: VolumeName = parse(new)?;
    if new.pool == origin.pool {
        return Ok(new);
    }
    let said = format!("a clone stays in the pool of what it is made of: {new} cannot be one of {origin}");
    Err(ErrorBody::new(ErrorCode::WrongUsage, said)
        .hint("nbdcopy copies a snapshot to a volume of another pool"))
}

/// A drill tries what a disaster would find: it is of a replica, and of a point that the mirror brought.
fn check_replica(status: &VolumeStatus, name: &VolumeName, at: Option<&str>) -> Result<(), ErrorBody> {
    match &status.replica {
        None => Err(ErrorBody::new(ErrorCode::NotFound, format!("{name} is no replica of a mirror"))
            .hint(format!("farside clone {name}@SNAP POOL/NEW clones a snapshot of any volume"))),
        Some(replica) if replica.broken_off && at.is_none() => Err(ErrorBody::new(
            ErrorCode::Refused,
            format!("{name} is broken off: hosts may write to it, so no snapshot is what it shows"),
        )
        .hint(format!("name one of its snapshots with --at; farside snapshot create {name}@NOW makes one"))),
        Some(_) if status.snapshots == 0 && at.is_none() => {
            Err(ErrorBody::new(ErrorCode::Refused, format!("{name} is a replica that holds nothing yet"))
                .hint(format!("farside mirror initialize {name} makes the first copy")))
        }
        Some(_) => Ok(()),
    }
}

/// Names for a drill at `now`, the first free one of which is taken.
fn default_names(name: &VolumeName, now: Timestamp) -> Result<Vec<String>, ErrorBody> {
    let first = format!("{}-drill-{}", name.volume, now.strftime("%Y%m%dT%H%M%SZ"));
    let numbered = (2..=DRILLS_A_SECOND).map(|number| format!("{first}-{number}"));
    let names: Vec<String> = std::iter::once(first.clone()).chain(numbered).filter(|n| is_label(n)).collect();
    if names.is_empty() {
        let said = format!("{first} would be too long for a name");
        return Err(ErrorBody::new(ErrorCode::WrongUsage, said).hint("give the new volume a name"));
    }
    Ok(names)
}

fn clone_as_first_free(
    pool: &Pool,
    volume: &str,
    of: CloneOf<'_>,
    names: Vec<String>,
    even_if_damaged: bool,
) -> Result<VolumeStatus, StoreError> {
    let mut refused = StoreError::Invalid(String::from("a clone needs a name"));
    for name in names {
        match pool.clone_volume(volume, of, &NewClone { name, even_if_damaged }) {
            Err(taken @ StoreError::Exists(_)) => refused = taken,
            made => return made,
        }
    }
    Err(refused)
}

/// A failure of the store, with the names that were asked for.
fn told(error: ErrorBody, name: &VolumeName, snapshot: Option<&str>, new: &VolumeName) -> ErrorBody {
    match (error.code, snapshot) {
        (ErrorCode::NotFound, Some(snapshot)) => {
            ErrorBody::new(ErrorCode::NotFound, format!("snapshot {name}@{snapshot} does not exist"))
                .hint(format!("farside snapshot list {name} shows what is there"))
        }
        (ErrorCode::Exists, _) => ErrorBody::new(ErrorCode::Exists, format!("volume {new} exists already"))
            .hint("choose another name for the clone"),
        _ => error,
    }
}

/// Where programs of this machine open an export: what URIs give a meaning to is encoded.
fn nbd_uri(export: &str, socket: &str) -> String {
    let socket = std::path::absolute(FilePath::new(socket))
        .map_or_else(|_| socket.to_owned(), |absolute| absolute.display().to_string());
    let mut uri = format!("nbd+unix:///{export}?socket=");
    for byte in socket.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            _ => uri += &format!("%{byte:02X}"),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str) -> VolumeName {
        name.parse().expect("a name")
    }

    #[test]
    fn an_uri_names_one_export_at_one_socket() {
        assert_eq!(
            nbd_uri("q/db-drill-1", "/var/lib/farside/nbd.sock"),
            "nbd+unix:///q/db-drill-1?socket=/var/lib/farside/nbd.sock"
        );
        assert_eq!(nbd_uri("q/v", "/a b&c=%/s"), "nbd+unix:///q/v?socket=/a%20b%26c%3D%25/s");
        assert!(nbd_uri("q/v", "relative/s").contains("?socket=/"));
    }

    #[test]
    fn a_drill_without_a_name_is_named_by_its_moment() {
        let now: Timestamp = "2026-11-26T08:09:10.9Z".parse().expect("a time");
        let names = default_names(&volume("q/db"), now).expect("names");
        assert_eq!(names[..2], ["db-drill-20261126T080910Z", "db-drill-20261126T080910Z-2"]);
        let long = volume(&format!("q/{}", "x".repeat(110)));
        assert!(default_names(&long, now).is_err(), "128 letters at most");
    }

    #[test]
    fn a_clone_stays_in_its_pool() {
        assert_eq!(in_pool_of(&volume("q/db"), "q/new").expect("it may"), volume("q/new"));
        assert_eq!(in_pool_of(&volume("q/db"), "p/new").expect_err("it may not").code, ErrorCode::WrongUsage);
        assert_eq!(in_pool_of(&volume("q/db"), "new").expect_err("no name").code, ErrorCode::WrongUsage);
    }
}
