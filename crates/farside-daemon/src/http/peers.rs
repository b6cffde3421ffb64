//! `/peers`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{
    CreateInvitation, ErrorBody, ErrorCode, Invitation, JoinPeer, Peer, PeerRights, PeerStatus, RekeyPeer,
    SetPeer,
};

use farside_link::Direction;

use super::error::{Body, Query};
use super::handler::{Answer, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::parse;
use crate::peers;
use crate::plans::{self, RemoveFacts, ReplaceFacts};
use crate::site::Site;
use crate::state::{Recorded, RightRow};
use crate::throttles::{self, Limited};

/// Volumes of one request.
const VOLUMES_MAX: usize = 1024;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/peers", get(list).post(join))
        .route("/invitations", post(invite))
        .route("/peers/{peer}", get(status).delete(remove))
        .route("/peers/{peer}/rekey", post(rekey))
        .route("/peers/{peer}/set", post(set))
        .route("/peers/{peer}/allow", post(allow))
        .route("/peers/{peer}/deny", post(deny))
}

async fn list(State(site): Shared) -> Answer<Vec<Peer>> {
    Ok(Json(peers::list(&site.node)))
}

async fn status(State(site): Shared, Path(name): Path<String>) -> Answer<PeerStatus> {
    Ok(Json(status_of(&site, &peers::named(&site.node, &name)?)))
}

fn status_of(site: &Site, peer: &farside_peer::PeerStatus) -> PeerStatus {
    let throttle = |direction| site.throttles.document(&site.node, Limited::Peer(peer.record.id), direction);
    PeerStatus {
        throttle_in: Some(throttle(Direction::In)),
        throttle_out: Some(throttle(Direction::Out)),
        ..peers::status(&site.node, peer, &site.rights)
    }
}

async fn invite(State(site): Shared, Body(request): Body<CreateInvitation>) -> Answer<Invitation> {
    let valid = Duration::try_from_secs_f64(request.valid_seconds)
        .map_err(|_| ErrorBody::new(ErrorCode::WrongUsage, "valid_seconds must be a number of seconds"))?;
    Ok(Json(peers::invite(&site.node, valid)?))
}

async fn join(State(site): Shared, Body(request): Body<JoinPeer>) -> Answer<Peer> {
    Ok(Json(peers::join(&site.node, &request).await?))
}

async fn remove(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Peer> {
    let peer = peers::named(&site.node, &name)?;
    if planned.plan {
        let id = peer.record.id;
        let of_peer = site.state.relationships(None).await?.into_iter().filter(|r| r.peer == id);
        let replicas: Vec<_> = of_peer.map(|r| r.destination.to_string()).collect();
        let held = site.mirrors.held_by(id);
        let fenced = held.iter().map(|(volume, _)| volume).filter(|v| site.exports.fenced(v).is_some());
        let facts = RemoveFacts {
            peer: &name,
            key: &format!("{id:?}"),
            replicas: &replicas,
            fenced: &fenced.map(ToString::to_string).collect::<Vec<_>>(),
            held: &held.iter().map(|(v, d)| (v.to_string(), d.to_string())).collect::<Vec<_>>(),
        };
        return Ok(Outcome::Plan(plans::remove_peer(&facts)));
    }
    for said in site.mirrors.fences_that_stay(peer.record.id, None).await? {
        tracing::warn!("{said}");
    }
    site.node.remove_peer(peer.record.id).await?;
    site.rights.forget(peer.record.id);
    site.throttles.forget(peer.record.id);
    site.mirrors.refresh_fences();
    tracing::warn!(peer = name, id = %peer.record.id, "peer removed");
    Ok(Outcome::Done(peers::document(&peer)))
}

async fn rekey(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
    Body(request): Body<RekeyPeer>,
) -> Answered<PeerStatus> {
    let new = peers::named(&site.node, &request.with)?;
    let old = site.mirrors.peer_or_key(&name).await?;
    if old == new.record.id {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{} is {name} already: it has the key {old:?}", request.with),
        )
        .hint("pair with the site anew first (farside peer invite there, farside peer join here), under another name")
        .into());
    }
    let taken = site.mirrors.taken_along(old).await?;
    if planned.plan {
        let rights: Vec<_> = site.rights.of(old).into_iter().map(|right| right.volume).collect();
        let facts = ReplaceFacts {
            old: &name,
            new: &request.with,
            old_key: &format!("{old:?}"),
            new_key: &format!("{:?}", new.record.id),
            old_is_connected: site.node.link(old).is_some(),
            replicas: &taken.replicas.iter().map(ToString::to_string).collect::<Vec<_>>(),
            sources: &taken.sources.iter().map(|(v, d)| (v.to_string(), d.to_string())).collect::<Vec<_>>(),
            rights: &rights,
        };
        return Ok(Outcome::Plan(plans::replace_peer(&facts)));
    }
    // No pool is opened or closed meanwhile.
    let _guard = site.pool_lock.lock().await;
    let new_id = new.record.id;
    let replaced = site.mirrors.replace_peer(old, new_id).await;
    // Memory follows what the database has, whatever failed after that.
    for peer in [old, new_id] {
        site.rights.reload(&site.state, peer).await?;
        site.throttles.forget(peer);
        site.throttles.reload(&site.state, &site.node, site.clock.now(), peer).await?;
    }
    // The old key's session is cut, and the new one's peer is called as the old one was.
    site.node.registry_changed().await?;
    site.mirrors.refresh_fences();
    replaced?;
    let now = site.node.peers().into_iter().find(|peer| peer.record.id == new_id).unwrap_or(new);
    tracing::warn!(
        peer = now.record.name, old = %old, new = %new_id, replicas = taken.replicas.len(),
        mirrored = taken.sources.len(), "a peer's key was replaced by another"
    );
    Ok(Outcome::Done(status_of(&site, &now)))
}

async fn set(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<SetPeer>,
) -> Answer<PeerStatus> {
    let peer = peers::named(&site.node, &name)?;
    let id = peer.record.id;
    let inward = request.throttle_in.as_deref().map(throttles::asked).transpose()?;
    let outward = request.throttle_out.as_deref().map(throttles::asked).transpose()?;
    let kept = peers::set(&site.node, &site.state, peer.record, request).await?;
    for (direction, rules) in [(Direction::In, inward), (Direction::Out, outward)] {
        let Some(rules) = rules else { continue };
        tracing::info!(peer = kept.name, ?direction, throttle = %rules, "the peer's throttle is set");
        let now = site.clock.now();
        site.throttles.set(&site.state, &site.node, now, Limited::Peer(id), direction, rules).await?;
    }
    Ok(Json(status_of(&site, &peers::named(&site.node, &kept.name)?)))
}

async fn allow(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<PeerRights>,
) -> Answer<PeerStatus> {
    let peer = peers::named(&site.node, &name)?;
    let volumes = volumes(&request)?;
    // What a person gives stays until a person takes it, whatever was recorded for the way back before.
    let right = |volume| RightRow {
        peer: peer.record.id,
        volume,
        volume_id: None,
        reverse: request.reverse,
        fence: request.fence,
        recorded: Recorded::Nothing,
    };
    site.rights.allow(&site.state, volumes.iter().cloned().map(right).collect()).await?;
    let notes = site.mirrors.set_fences(peer.record.id, &volumes, request.fence).await?;
    Ok(Json(PeerStatus { notes, ..status_of(&site, &peer) }))
}

async fn deny(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<PeerRights>,
) -> Answer<PeerStatus> {
    let peer = peers::named(&site.node, &name)?;
    let volumes = volumes(&request)?;
    // Noted first: the policy goes with the right, what it has led to does not.
    let notes = site.mirrors.fences_that_stay(peer.record.id, Some(&volumes)).await?;
    site.rights.deny(&site.state, peer.record.id, &volumes).await?;
    site.mirrors.refresh_fences();
    Ok(Json(PeerStatus { notes, ..status_of(&site, &peer) }))
}

fn volumes(request: &PeerRights) -> Result<Vec<String>, ErrorBody> {
    if request.volumes.is_empty() || request.volumes.len() > VOLUMES_MAX {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("name 1 to {VOLUMES_MAX} volumes")));
    }
    request.volumes.iter().map(|name| parse(name).map(|name| name.to_string())).collect()
}
