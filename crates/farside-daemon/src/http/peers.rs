//! `/peers`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{
    AccessRole, CreateInvitation, ErrorBody, ErrorCode, Invitation, JoinPeer, OpenInvitation, Peer,
    PeerRights, PeerStatus, RekeyPeer, SetPeer,
};

use farside_engine::VolumeName;
use farside_link::Direction;
use farside_mirror::Relationship;
use farside_peer::{PeerId, PeerRegistry};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::parse;
use crate::failure::Failure;
use crate::peers;
use crate::plans::{self, RemoveFacts, ReplaceFacts};
use crate::site::Site;
use crate::state::{Recorded, RightRow};
use crate::throttles::{self, Limited};
use crate::volume_ids::{Called, VolumeIds};

/// Volumes of one request.
const VOLUMES_MAX: usize = 1024;
/// Pools that a note names; of more the list tells.
const POOLS_NAMED_MAX: usize = 5;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list, join))
        .routes(routes!(invitations, invite))
        .routes(routes!(cancel_invitation))
        .routes(routes!(status, remove))
        .routes(routes!(rekey))
        .routes(routes!(set))
        .routes(routes!(allow))
        .routes(routes!(deny))
}

/// Sites that this one is paired with.
#[utoipa::path(get, path = "/peers", responses((status = 200, body = Vec<Peer>)))]
async fn list(State(site): Shared) -> Answer<Vec<Peer>> {
    Ok(Json(peers::list(&site.node)))
}

/// A peer, its link and its rights.
#[utoipa::path(get, path = "/peers/{peer}", responses((status = 200, body = PeerStatus)))]
async fn status(State(site): Shared, Path(name): Path<String>) -> Answer<PeerStatus> {
    Ok(Json(status_of(&site, &peers::named(&site.node, &name)?)))
}

fn status_of(site: &Site, peer: &farside_peer::PeerStatus) -> PeerStatus {
    let throttle = |direction| site.throttles.document(&site.node, Limited::Peer(peer.record.id), direction);
    PeerStatus {
        role: site.access.peer_role(peer.record.id),
        throttle_in: Some(throttle(Direction::In)),
        throttle_out: Some(throttle(Direction::Out)),
        ..peers::status(&site.node, peer, &site.rights)
    }
}

/// Makes an invitation, good for one pairing.
#[utoipa::path(
    post,
    path = "/invitations",
    request_body = CreateInvitation,
    responses((status = 200, body = Invitation))
)]
async fn invite(State(site): Shared, Body(request): Body<CreateInvitation>) -> Answer<Invitation> {
    // Whoever came with it could not be kept.
    site.state.check_not_moved().await?;
    let valid = Duration::try_from_secs_f64(request.valid_seconds)
        .map_err(|_| ErrorBody::new(ErrorCode::WrongUsage, "valid_seconds must be a number of seconds"))?;
    Ok(Json(peers::invite(&site.node, valid)?))
}

/// Invitations that can still be used.
///
/// Without their codes: only whoever made one was told its code.
#[utoipa::path(get, path = "/invitations", responses((status = 200, body = Vec<OpenInvitation>)))]
async fn invitations(State(site): Shared) -> Answer<Vec<OpenInvitation>> {
    Ok(Json(peers::invitations(&site.node, site.clock.now())))
}

/// Takes an invitation back.
#[utoipa::path(delete, path = "/invitations/{id}", responses((status = 200, body = OpenInvitation)))]
async fn cancel_invitation(State(site): Shared, Path(id): Path<String>) -> Answer<OpenInvitation> {
    Ok(Json(peers::cancel_invitation(&site.node, &id, site.clock.now())?))
}

/// Pairs with the site that gave an invitation.
#[utoipa::path(post, path = "/peers", request_body = JoinPeer, responses((status = 200, body = Peer)))]
async fn join(State(site): Shared, Body(request): Body<JoinPeer>) -> Answer<Peer> {
    // Before the other side keeps this one.
    site.state.check_not_moved().await?;
    Ok(Json(peers::join(&site.node, &request).await?))
}

/// Ends a pairing.
#[utoipa::path(
    delete,
    path = "/peers/{peer}",
    params(Planned),
    responses((status = 200, body = Outcome<Peer>))
)]
async fn remove(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Peer> {
    let peer = peers::named(&site.node, &name)?;
    if planned.plan {
        let id = peer.record.id;
        // What was broken off gets nothing anyway, and may be an original by now.
        let is_broken_off = |r: &Relationship| match site.mirrors.mirror(&r.destination) {
            Ok(mirror) => mirror.status().state == farside_mirror::State::BrokenOff,
            Err(_) => r.broken_off_at.is_some(),
        };
        let of_peer = site.state.relationships(None).await?.into_iter();
        let of_peer = of_peer.filter(|r| r.peer == id && !is_broken_off(r));
        let replicas: Vec<_> = of_peer.map(|r| r.destination.to_string()).collect();
        let held = site.mirrors.held_by(id);
        let follow = held.iter().filter(|(v, d)| site.mirrors.is_followed_by(v, &format!("{name}:{d}")));
        let fenced = held.iter().map(|(volume, _)| volume).filter(|v| site.exports.fenced(v).is_some());
        let facts = RemoveFacts {
            peer: &name,
            key: &format!("{id:?}"),
            replicas: &replicas,
            followers: &follow.map(|(v, d)| (v.to_string(), d.to_string())).collect::<Vec<_>>(),
            fenced: &fenced.map(ToString::to_string).collect::<Vec<_>>(),
            held: &held.iter().map(|(v, d)| (v.to_string(), d.to_string())).collect::<Vec<_>>(),
        };
        return Ok(Outcome::Plan(plans::remove_peer(&facts)));
    }
    // What the peers' side says of the database is no more than that it failed.
    site.state.check_not_moved().await?;
    for said in site.mirrors.fences_that_stay(peer.record.id, None).await? {
        tracing::warn!("{said}");
    }
    site.node.remove_peer(peer.record.id).await?;
    site.rights.forget(peer.record.id);
    site.throttles.forget(peer.record.id);
    site.mirrors.refresh_fences();
    tracing::warn!(peer = name, id = %peer.record.id, "peer removed");
    site.access.peers_changed().await?;
    Ok(Outcome::Done(peers::document(&peer)))
}

/// Goes on with a peer that has another key.
#[utoipa::path(
    post,
    path = "/peers/{peer}/rekey",
    params(Planned),
    request_body = RekeyPeer,
    responses((status = 200, body = Outcome<PeerStatus>))
)]
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
            old_is_connected: site
                .node
                .peers()
                .iter()
                .any(|peer| peer.record.id == old && peers::answers(peer)),
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
    let is_gone = replaced.is_ok() || matches!(site.state.lookup(old).await, Ok(None));
    let followed = follow_replaced(&site, old, is_gone, new_id).await;
    replaced?;
    followed.map_err(|error| plans::not_followed(&name, &request.with, error))?;
    let now = site.node.peers().into_iter().find(|peer| peer.record.id == new_id).unwrap_or(new);
    tracing::warn!(
        peer = now.record.name, old = %old, new = %new_id, replicas = taken.replicas.len(),
        mirrored = taken.sources.len(), "a peer's key was replaced by another"
    );
    Ok(Outcome::Done(status_of(&site, &now)))
}

/// Has memory follow what the database has after a peer's key was replaced. All of it is tried, whatever fails; the old key, which
/// may be a thief's, first, and without the database.
async fn follow_replaced(site: &Site, old: PeerId, old_is_gone: bool, new: PeerId) -> Result<(), ErrorBody> {
    if old_is_gone {
        site.node.forget_peer(old).await;
        site.rights.forget(old);
    }
    let mut followed = site.access.peers_changed().await.map_err(Failure::into_error_body);
    for peer in [old, new] {
        let rights = site.rights.reload(&site.state, peer).await.map_err(Failure::into_error_body);
        site.throttles.forget(peer);
        let throttles = site.throttles.reload(&site.state, &site.node, site.clock.now(), peer).await;
        followed = followed.and(rights).and(throttles.map_err(Failure::into_error_body));
    }
    // The new key's peer is called as the old one was.
    followed = followed.and(site.node.registry_changed().await.map_err(Failure::into_error_body));
    site.mirrors.refresh_fences();
    followed
}

/// Changes how a peer is met.
#[utoipa::path(
    post,
    path = "/peers/{peer}/set",
    request_body = SetPeer,
    responses((status = 200, body = PeerStatus))
)]
async fn set(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<SetPeer>,
) -> Answer<PeerStatus> {
    let peer = peers::named(&site.node, &name)?;
    let id = peer.record.id;
    let inward = request.throttle_in.as_deref().map(throttles::asked).transpose()?;
    let outward = request.throttle_out.as_deref().map(throttles::asked).transpose()?;
    let role = request.role.as_deref().map(role_of).transpose()?;
    let kept = peers::set(&site.node, &site.state, peer.record, request).await?;
    for (direction, rules) in [(Direction::In, inward), (Direction::Out, outward)] {
        let Some(rules) = rules else { continue };
        tracing::info!(peer = kept.name, ?direction, throttle = %rules, "the peer's throttle is set");
        let now = site.clock.now();
        site.throttles.set(&site.state, &site.node, now, Limited::Peer(id), direction, rules).await?;
    }
    if let Some(role) = role {
        site.access.set_peer_role(id, role).await?;
        let given = role.map_or("none", AccessRole::name);
        tracing::info!(
            peer = kept.name,
            role = given,
            "what the peer's administrators may do at this site is set"
        );
    }
    Ok(Json(status_of(&site, &peers::named(&site.node, &kept.name)?)))
}

/// `none`, or a role.
fn role_of(text: &str) -> Result<Option<AccessRole>, ErrorBody> {
    match (text, AccessRole::named(text)) {
        ("none", _) => Ok(None),
        (_, Some(role)) => Ok(Some(role)),
        (_, None) => Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{text:?} is no role of a peer; use none, viewer or operator"),
        )),
    }
}

/// Lets a peer mirror volumes.
#[utoipa::path(
    post,
    path = "/peers/{peer}/allow",
    request_body = PeerRights,
    responses((status = 200, body = PeerStatus))
)]
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
    let unseen = site.rights.allow(&site.state, volumes.iter().cloned().map(right).collect()).await?;
    let mut notes = site.mirrors.set_fences(peer.record.id, &volumes, request.fence).await?;
    // Of a pool that is not known here the name is what is said.
    let is_known = |of: &&peers::Unseen| of.is_bound || site.pools.knows(&of.volume.pool);
    notes.extend(unseen.iter().filter(is_known).map(plans::right_unseen));
    // One that stays on what it was given on waits for nothing.
    let is_bound = |name: &VolumeName| unseen.iter().any(|of| of.is_bound && of.volume == *name);
    for name in volumes.iter().filter_map(|volume| parse(volume).ok()).filter(|name| !is_bound(name)) {
        notes.extend(waiting(&site, &peer.record.name, &name));
    }
    Ok(Json(PeerStatus { notes, ..status_of(&site, &peer) }))
}

/// What is said of a right on a volume that is not there (yet): it may be given before on purpose, and the name may be mistyped. That
/// the volume can never be is known of none: its pool may be imported later.
fn waiting(site: &Site, peer: &str, volume: &VolumeName) -> Option<String> {
    let there = site.mirrors.at_other_site(volume);
    let there = there.map(|there| format!(". {there}, and a right is given at the site that has the volume"));
    let there = there.unwrap_or_default();
    match site.pools.called(volume) {
        Called::Volume(_) => None,
        Called::Nothing => Some(format!(
            "there is no volume {volume} yet: the right waits for the first one of that name{there}"
        )),
        Called::Unknown if site.pools.knows(&volume.pool) => None,
        Called::Unknown => Some(format!(
            "there is no pool {} here ({}): the right waits for the first volume {volume} all the same{there}. If the name is mistyped: \
             farside peer deny {peer} {volume}",
            volume.pool,
            pools_here(&site.pools.names())
        )),
    }
}

/// What somebody looks at who has mistyped a pool's name; in a site of many the list says it.
fn pools_here(names: &[String]) -> String {
    match names.len() {
        0 => "this site has none yet".to_owned(),
        1..=POOLS_NAMED_MAX => format!("this site has {}", names.join(", ")),
        _ => "farside pool list shows those of this site".to_owned(),
    }
}

/// Takes the right to mirror volumes from a peer.
#[utoipa::path(
    post,
    path = "/peers/{peer}/deny",
    request_body = PeerRights,
    responses((status = 200, body = PeerStatus))
)]
async fn deny(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<PeerRights>,
) -> Answer<PeerStatus> {
    let peer = peers::named(&site.node, &name)?;
    let volumes = volumes(&request)?;
    let id = peer.record.id;
    let had: Vec<String> = status_of(&site, &peer).rights.into_iter().map(|right| right.volume).collect();
    // Noted before it goes: the policy goes with the right, what it has led to does not.
    let noted = site.mirrors.fences_that_stay(id, Some(&volumes));
    let denied = site.rights.deny(&site.state, id, &volumes, noted).await;
    // Whatever came of it: it may have been noted what is fenced.
    site.mirrors.refresh_fences();
    let mut notes = denied.map_err(|error| plans::not_denied(&name, &volumes, error))?;
    notes.extend(never_given(&peer.record.name, &volumes, &had));
    Ok(Json(PeerStatus { notes, ..status_of(&site, &peer) }))
}

/// What is said of rights that were to be taken and were not there: a name may be mistyped.
fn never_given<'a>(
    peer: &'a str,
    volumes: &'a [String],
    had: &'a [String],
) -> impl Iterator<Item = String> + 'a {
    let absent = volumes.iter().filter(move |volume| !had.contains(volume));
    absent.map(move |volume| format!("{peer} had no right to mirror {volume}: nothing was taken"))
}

fn volumes(request: &PeerRights) -> Result<Vec<String>, ErrorBody> {
    if request.volumes.is_empty() || request.volumes.len() > VOLUMES_MAX {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("name 1 to {VOLUMES_MAX} volumes")));
    }
    request.volumes.iter().map(|name| parse(name).map(|name| name.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use farside_link::LinkOptions;
    use farside_peer::PeerRecord;

    use super::*;

    #[test]
    fn a_right_that_was_never_given_is_said_not_to_have_been() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (volumes, had) = (names(&["p/db", "p/typo"]), names(&["p/db", "p/log"]));
        let said: Vec<String> = never_given("south", &volumes, &had).collect();
        assert_eq!(said, ["south had no right to mirror p/typo: nothing was taken"]);
    }
    use crate::data_dir::DataDir;
    use crate::logging;
    use crate::options::{Config, Listen, Options};

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn site(directory: &Path, name: &str) -> (Arc<Site>, DataDir) {
        let options = Options {
            data_dir: directory.join(name),
            peer_listen: Some(Listen::At("127.0.0.1:0".to_owned())),
            http: Some(Listen::Off),
            name: Some(name.to_owned()),
            ..Options::default()
        };
        let config = Config::resolve(options).unwrap();
        let log = logging::start(&config).unwrap();
        let data_dir = DataDir::acquire(&config.data_dir).unwrap();
        let listeners = crate::run::Listeners::default();
        let opens = crate::run::Opens {
            database: config.database_address(&data_dir.join("farside.db")).unwrap(),
            keeper: None,
            stop: Default::default(),
        };
        let site = crate::run::start(config, log, &data_dir, listeners, opens).await.unwrap().0;
        site.looked.cancel();
        (site, data_dir)
    }

    async fn pin(at: &Site, peer: &Site) {
        let record = PeerRecord {
            id: peer.node.id(),
            name: peer.document.name.clone(),
            address: peer.node.listen_address().map(str::to_owned),
            link: LinkOptions::default(),
            added_at: at.clock.now(),
        };
        at.state.pin(record).await.unwrap();
        at.node.registry_changed().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_session_of_a_key_that_was_replaced_is_cut_though_the_database_fails_just_then() {
        let directory = tempfile::tempdir().unwrap();
        let (a, _dir_of_a) = site(directory.path(), "a").await;
        let (b, _dir_of_b) = site(directory.path(), "b").await;
        pin(&a, &b).await;
        pin(&b, &a).await;
        let old = b.node.id();
        let link = a.node.wait_link(old, PATIENCE).await.unwrap();
        let row = RightRow {
            peer: old,
            volume: "p/v".to_owned(),
            volume_id: None,
            reverse: false,
            fence: false,
            recorded: Recorded::Nothing,
        };
        a.rights.allow(&a.state, vec![row]).await.unwrap();
        a.state.close().await;
        assert!(follow_replaced(&a, old, true, PeerId([9; 32])).await.is_err());
        assert!(tokio::time::timeout(Duration::ZERO, link.closed()).await.is_ok(), "it is cut");
        assert!(a.node.link(old).is_none() && a.rights.of(old).is_empty());
        a.node.shutdown().await;
        b.node.shutdown().await;
    }
}
