//! Which way a mirror goes: `/mirrors/POOL/VOL/break`, `/resync`, `/swap`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use farside_api::{
    BreakMirror, ErrorBody, ErrorCode, Mirror, MirrorState, Operation, OperationKind, Plan, ResyncMirror,
    StartTransfer,
};
use farside_engine::{EngineError, VolumeName};
use farside_mirror::{
    Comparing, MirrorError, MirrorStatus, NOT_RESYNCED, Relationship, ResyncRequest, Schedule, Stopped,
};
use farside_peer::{PeerId, PeerStatus};
use farside_store::Version;
use farside_transfer::Phase;
use farside_transfer::bases::rotates;
use farside_transfer::report::TransferResult;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Body, BodyOrDefault, Query};
use super::handler::{Routes, Shared};
use super::mirrors::{awake, patience};
use super::plan::{Answered, Outcome, PLAN_PATIENCE, Planned, set_aside_at};
use super::volumes::{count, name_of, parse};
use crate::convert;
use crate::failure::Failure;
use crate::operations::{Subject, Waiting};
use crate::plans::{self, BreakAt, BreakFacts, Heard, ResyncFacts};
use crate::site::Site;
use crate::{peers, schedules};

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(break_off)).routes(routes!(resync)).routes(routes!(swap))
}

type OneMirror = Path<(String, String)>;

/// Makes a replica writable, without asking its source.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/break",
    params(Planned),
    request_body = Option<BreakMirror>,
    responses((status = 200, body = Outcome<Mirror>))
)]
async fn break_off(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
    BodyOrDefault(request): BodyOrDefault<BreakMirror>,
) -> Answered<Mirror> {
    let name = name_of(pool, volume)?;
    let set_aside_at = set_aside_at(&site, request.set_aside_at)?;
    let mirror = awake(&site, &name).await?;
    let status_before = mirror.status();
    let before = site.mirrors.document(&status_before, site.clock.now());
    if planned.plan && before.state == MirrorState::BrokenOff {
        // That is what a break ends then.
        let waits = site.operations.waiting().iter().any(|(volume, _)| *volume == name);
        if waits && request.at.is_none() {
            return Ok(Outcome::Plan(plans::give_up_resync(&name)));
        }
        let refused = match site.mirrors.overtaken_why(&name).await {
            Some(why) => format!("{name} is {why}"),
            None => format!("{name} is broken off already: hosts may write to it"),
        };
        let plan = plans::plan(format!("break mirror {name}"));
        return Ok(Outcome::Plan(Plan { refused: Some(refused), ..plan }));
    }
    let at = match &request.at {
        None => None,
        Some(snapshot) => {
            let (engine, of) = (site.pools.engine(), name.clone());
            let all = site.blocking.run(move || engine.all_snapshots(&of)).await?;
            let found = all.into_iter().find(|found| found.name == *snapshot).ok_or_else(|| {
                ErrorBody::new(ErrorCode::NotFound, format!("snapshot {name}@{snapshot} does not exist"))
                    .hint(format!("farside snapshot list {name} shows what is there"))
            })?;
            Some(found)
        }
    };
    if planned.plan {
        let at_uuid = at.as_ref().map(|at| at.uuid);
        let at = match &at {
            None => None,
            Some(at) => {
                let older = Version::Snapshot(at.uuid);
                Some(BreakAt {
                    snapshot: &at.name,
                    age_seconds: site.clock.now().seconds_since(at.created_at),
                    newer_bytes: match site.pools.is_clustered(&name.pool) {
                        true => None,
                        false => count(&site, &name, move |c| c.changed(older, Version::Head)).await?,
                    },
                })
            }
        };
        let status = mirror.status();
        let peer = site.node.peer(status.relationship.peer);
        let is_heard =
            |peer: &PeerStatus| peer.state.connected && peer.trouble.is_none() && peer.silent_for.is_none();
        let answering = peer.as_ref().filter(|peer| is_heard(peer));
        // Where neither is an original no role can change.
        let answering = answering.filter(|_| !matches!(status.stopped, Some(Stopped::NoOriginal(_))));
        let two_histories = site.mirrors.of_two_histories(&name);
        let answering = answering.filter(|_| two_histories.is_none());
        // Beside one that is broken off a swap of the group is refused.
        let answering = answering.filter(|_| !others_broken_off(&site, &status.relationship));
        let answering = answering.map(|peer| peer.record.name.clone());
        let peer = peer.filter(|peer| !is_heard(peer));
        let heard = peer.as_ref().zip(before.lag_seconds).and_then(|(peer, lag_seconds)| {
            let heard_at = peer.state.heard_at?;
            let silent_seconds = site.clock.now().seconds_since(heard_at);
            let after_seconds = (lag_seconds - silent_seconds).max(0.0);
            Some(Heard { peer: &peer.record.name, at: convert::time(heard_at), after_seconds })
        });
        // What cannot be asked now names none: nobody who takes over waits for that.
        let lets_go = match (&at_uuid, site.mirrors.destination(&name.pool)) {
            (Some(at), Ok(destination)) => {
                destination.plan_break_lets_go(&name, *at).await.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        // What waits for its turn or a session has brought nothing.
        let running = status.progress.as_ref().filter(|progress| progress.phase != Phase::Waiting);
        let refusing = site.takes_no_changes(&name.pool).await?;
        // What only refuses data has a reserve for this.
        let refused = refusing.filter(|refusing| refusing.is_read_only).map(|refusing| refusing.why);
        let hosts_refused = match refused {
            Some(_) => None,
            None => site.refuses_hosts(&name.pool).await?,
        };
        let current_rotates = match at_uuid {
            Some(_) => newest_rotates(&site, &name).await,
            None => false,
        };
        let facts = BreakFacts {
            volume: &name,
            source: &before.source,
            current: before.current_snapshot.as_deref().zip(before.lag_seconds),
            current_rotates,
            shows_own_state: before.shows_own_state,
            at,
            fence: site.mirrors.fence_after(&name),
            arrived_bytes: running.map(|progress| progress.done_bytes),
            answering: answering.as_deref(),
            is_swapping: status.is_swapping || site.operations.running_swap(&name).is_some(),
            heard,
            readers: site.exports.connections_to(&name).readers,
            group: before.group.as_deref(),
            others_follow: others_follow(&site, &status.relationship),
            two_histories: two_histories.as_ref(),
            hosts_refused: hosts_refused.as_deref(),
            lets_go: &lets_go,
        };
        return Ok(Outcome::Plan(Plan { refused, ..plans::break_off(&facts) }));
    }
    // Whoever breaks it off does not want it to follow once the other site is back.
    let is_given_up = site.operations.give_up(&name);
    if is_given_up && before.state == MirrorState::BrokenOff && at.is_none() {
        tracing::warn!(replica = %name, "the resync that waited is given up; the volume is as it was");
        return Ok(Outcome::Done(Mirror { given_up: Some(String::from("resync")), ..before }));
    }
    let broken = mirror.break_and_name(at.as_ref().map(|at| at.uuid), set_aside_at).await;
    let kept_as = match broken {
        Ok(kept_as) => kept_as,
        Err(error) => {
            let error = match (error.into_error_body(), &before.group) {
                (error, Some(group)) if before.state == MirrorState::BrokenOff => error.hint(format!(
                    "of group {group} that may be a part: farside mirror break --group {group} takes over the rest"
                )),
                (error, _) => error,
            };
            let error = if is_given_up { also_given_up(&name, error) } else { error };
            return Err(match site.takes_no_changes(&name.pool).await? {
                Some(refusing) => error.hint(format!(
                    "{name} is a replica as before, and nothing of it is lost. {}",
                    refusing.why
                )),
                None => site.mirrors.overtaken_first(&name, error).await,
            }
            .into());
        }
    };
    site.exports.drop_replica_connections(&name);
    tracing::warn!(replica = %name, source = before.source, at = request.at, "mirror broken off");
    let (status, now) = (mirror.status(), site.clock.now());
    // How old what hosts find here was at the break; from then on there is no lag.
    let lag_seconds = site.mirrors.age_seconds(&status, now);
    let kept_as = kept_as.map(|snapshot| format!("{name}@{snapshot}"));
    // A resync that was faster has brought another version.
    let shown = |status: &MirrorStatus| status.current.as_ref().map(|current| current.uuid);
    let shows_own_state = before.shows_own_state && at.is_none() && shown(&status) == shown(&status_before);
    // It is broken off whatever is known of this.
    let hosts_refused = site.refuses_hosts(&name.pool).await.unwrap_or_default();
    Ok(Outcome::Done(Mirror {
        lag_seconds,
        kept_as,
        shows_own_state,
        hosts_refused,
        ..site.mirrors.document(&status, now)
    }))
}

/// A break that is refused has given up a resync all the same: nobody is to look for what waits no more.
fn also_given_up(volume: &VolumeName, error: ErrorBody) -> ErrorBody {
    let message = format!(
        "{}. The resync of {volume} that waited is given up all the same",
        error.message.trim_end_matches('.')
    );
    ErrorBody { message, ..error }
}

/// Whether another volume of its group is a replica still.
fn others_follow(site: &Site, of: &Relationship) -> bool {
    others(site, of, |status| status.state != farside_mirror::State::BrokenOff)
}

/// Whether a person has broken another volume of its group off.
fn others_broken_off(site: &Site, of: &Relationship) -> bool {
    let is_followed =
        |status: &MirrorStatus| status.source_heard == Some(farside_mirror::SourceHeard::Follows);
    others(site, of, |status| status.state == farside_mirror::State::BrokenOff && !is_followed(status))
}

fn others(site: &Site, of: &Relationship, is_so: impl Fn(&MirrorStatus) -> bool) -> bool {
    site.mirrors.statuses().iter().any(|status| {
        let other = &status.relationship;
        of.group.is_some()
            && (&other.group, other.peer, &other.destination.pool)
                == (&of.group, of.peer, &of.destination.pool)
            && other.id != of.id
            && is_so(status)
    })
}

/// The group that a volume is in, here or at the site that has taken it over, and what else of it hosts may write to here.
fn in_use_beside(site: &Site, volume: &VolumeName, from: &From) -> (Option<String>, Vec<String>) {
    if let Some(group) = site.mirrors.group_there(volume, from.peer, &from.source) {
        let mut others = site.mirrors.of_group_there(&group, from.peer);
        others.retain(|other| other != volume);
        return (Some(group), others.iter().map(ToString::to_string).collect());
    }
    let statuses = site.mirrors.statuses();
    let Some(of) = statuses.iter().find(|status| status.relationship.destination == *volume) else {
        return (None, Vec::new());
    };
    let of = &of.relationship;
    let is_used = |status: &&MirrorStatus| {
        let other = &status.relationship;
        (&other.group, other.peer, &other.destination.pool) == (&of.group, of.peer, &of.destination.pool)
            && other.id != of.id
            && status.state == farside_mirror::State::BrokenOff
            && status.source_heard != Some(farside_mirror::SourceHeard::Released)
    };
    let used = statuses.iter().filter(|_| of.group.is_some()).filter(is_used);
    (of.group.clone(), used.map(|status| status.relationship.destination.to_string()).collect())
}

/// Whether retention lets go one day what a replica shows, so that a break makes a side branch of it. What cannot be asked is not waited for by who takes over.
async fn newest_rotates(site: &Site, volume: &VolumeName) -> bool {
    let (engine, of) = (site.pools.engine(), volume.clone());
    let rotating = site.blocking.run(move || {
        let (id, record) = (engine.volume(&of)?.uuid, engine.replica_record(&of)?);
        let newest = engine.snapshots(&of)?.pop();
        let mirror = record.map(|record| record.relationship);
        let has_branches = engine.branches(&of.pool).is_some();
        Ok::<_, EngineError>(
            has_branches && newest.is_some_and(|s| !s.held && rotates(id, mirror, s.pinned_by)),
        )
    });
    rotating.await.unwrap_or_default()
}

/// What a volume is to follow.
struct From {
    peer: PeerId,
    source: VolumeName,
    /// As the request names it.
    name: String,
    /// The request names it itself.
    is_named: bool,
}

/// The one that the request names, or the one that the volume was broken off from.
fn from(site: &Site, volume: &VolumeName, named: Option<String>) -> Result<From, ErrorBody> {
    if let Some(name) = named {
        let (peer, source) = name
            .split_once(':')
            .ok_or_else(|| ErrorBody::new(ErrorCode::WrongUsage, format!("{name:?} is not PEER:POOL/VOL")))?;
        let (peer, source) = (peers::named(&site.node, peer)?.record.id, parse(source)?);
        return Ok(From { peer, source, name, is_named: true });
    }
    let mirror = site.mirrors.mirror(volume).map_err(|error| {
        let gone_on = site.mirrors.broken_off_from(volume);
        let named = match &gone_on[..] {
            [one] => format!("farside mirror resync {volume} --from {one}"),
            _ => format!("farside mirror resync {volume} --from PEER:POOL/VOL"),
        };
        // Of a source that lives nobody asks this; of one that was overtaken it is the way back.
        let is_source = error.code == ErrorCode::Refused;
        error.hint(if !gone_on.is_empty() {
            format!(
                "{volume} is overtaken: hosts went on at {}. To have it follow: {named}",
                gone_on.join(" and ")
            )
        } else if is_source {
            format!("if the other site has taken over, and this volume shall follow it: {named}")
        } else {
            format!("name the volume to follow: {named}")
        })
    })?;
    let known = mirror.status().relationship;
    let name = format!("{}:{}", peers::name_of(&site.node, known.peer), known.source);
    Ok(From { peer: known.peer, source: known.source, name, is_named: false })
}

/// Makes a volume the replica of a peer's volume again.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/resync",
    params(Planned),
    request_body = ResyncMirror,
    responses((status = 200, body = Outcome<Operation>))
)]
async fn resync(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
    Body(request): Body<ResyncMirror>,
) -> Answered<Operation> {
    let volume = name_of(pool, volume)?;
    let schedule =
        schedules::asked(request.every_seconds, request.schedule.as_deref(), request.time_zone.as_deref())?;
    let patience = patience(request.timeout_seconds)?;
    let misplaced = |error| site.mirrors.with_replica(&volume, error);
    let destination = site.mirrors.destination(&volume.pool).map_err(misplaced)?;
    let (engine, of) = (site.pools.engine(), volume.clone());
    site.blocking.run(move || engine.volume(&of)).await.map_err(|error| match error.code {
        ErrorCode::NotFound => {
            misplaced(ErrorBody::new(ErrorCode::NotFound, format!("volume {volume} does not exist")).hint(
                "farside volume list shows what is there; a first copy is made by farside mirror create",
            ))
        }
        _ => error,
    })?;
    let from = from(&site, &volume, request.from)?;
    let comparing = if request.whole { Comparing::Everything } else { Comparing::CommonPoint };
    let refused = plans::busy(&volume, &site.exports.writers(&volume));
    // Whatever it is called, it is kept: a clock that is off must not stop a resync.
    let set_aside_at = set_aside_at(&site, request.set_aside_at).unwrap_or_default();
    // Before the role changes: what comes could not be kept, and hosts could not write any more.
    let refusing = site.takes_no_changes(&volume.pool).await?;
    if planned.plan {
        let refused = refusing.map(|refusing| refusing.why).or(refused);
        let with_group = set_aside_at.is_some();
        return Ok(Outcome::Plan(
            plan_resync(&site, &volume, &from, comparing, with_group, refused, patience).await?,
        ));
    }
    if let Some(refusing) = refusing {
        return Err(refusing.refusal(&format!("{volume} is as before: no role has changed")).into());
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    site.exports.drop_fenced_readers(&volume).await;
    let waiting = Arc::new(Waiting::default());
    let subject = Subject::new(volume.clone(), from.peer, OperationKind::Resync);
    let subject = Subject { waiting: Some(Arc::clone(&waiting)), ..subject };
    let (of, to) = (Arc::clone(&site), volume.clone());
    let named = if from.is_named { format!(" --from {}", from.name) } else { String::new() };
    let whole = if request.whole { " --whole" } else { "" };
    // Of a group that was asked for as one, the line for one volume would part it from the rest.
    let group = site.mirrors.group_of(&volume, from.peer, &from.source).filter(|_| set_aside_at.is_some());
    let again = match group {
        Some(group) => format!("farside mirror resync --group {group}{whole}"),
        None => format!("farside mirror resync {volume}{named}{whole}"),
    };
    let (given_up, consent) = (waiting.given_up(), Arc::clone(&waiting));
    let asked = ResyncRequest {
        comparing,
        link_wait: patience,
        set_aside_at,
        may_begin: Arc::new(move || consent.begin()),
        given_up: given_up.clone(),
    };
    let work = async move {
        of.node.dial_now(from.peer);
        let group = of.mirrors.group_there(&to, from.peer, &from.source);
        let begun = match site_mirror(&of, &to, &from) {
            Some(mirror) => mirror.resync_as_asked(&asked).await.map(|asked| (mirror, asked)),
            None => {
                let wanted = schedule.clone().unwrap_or_default();
                let (peer, source) = (from.peer, from.source);
                destination.resync_as_asked(peer, source, to.clone(), wanted, &asked).await
            }
        };
        if let (true, Err(error)) = (given_up.is_cancelled(), &begun) {
            return Err(ErrorBody::new(ErrorCode::Failed, error.to_string()));
        }
        let (mirror, asked) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let error = refusal(&of, &to, not_begun(&to, &again, error));
                note_not_begun(&of, &to, &again, &error).await;
                return Err(error);
            }
        };
        // Of a mirror that is over by it.
        of.mirrors.end_recorded_rights().await;
        if let Some(group) = group {
            of.mirrors.join_group(&mirror, group).await;
        }
        tracing::warn!(volume = %to, from = from.name, "resync: the volume is a replica now, and read-only");
        if let Some(schedule) = schedule.filter(|schedule| mirror.status().relationship.schedule != *schedule)
        {
            mirror.set_schedule(schedule).await.map_err(Failure::into_error_body)?;
        }
        let ended = asked.ended().await;
        let (is_abort, set_aside) = match &ended {
            Ok(report) => (report.result == TransferResult::Aborted, &report.set_aside[..]),
            Err(error) => (error.to_string().starts_with("aborted; "), &[][..]),
        };
        if is_abort && is_broken_off_then(&mirror).await {
            let set_aside: String = set_aside
                .iter()
                .map(|name: &String| format!(". What it showed before the resync stays as {to}@{name}"))
                .collect();
            let message = format!("{to} was broken off meanwhile, and hosts may write to it{set_aside}");
            return Err(ErrorBody::new(ErrorCode::Failed, message)
                .hint(format!("farside mirror status {to} says what it holds")));
        }
        // Of a group that follows as a whole again: whoever asked for all of it has it updated himself.
        if ended.is_ok() && set_aside_at.is_none() {
            for _ in 0..TO_ONE_MOMENT_LOOKS {
                if of.mirrors.to_one_moment_within(&to, TO_ONE_MOMENT_PATIENCE).await {
                    break;
                }
                tokio::time::sleep(TO_ONE_MOMENT_EVERY).await;
            }
        }
        ended.map_err(|error| {
            // One that has crossed another is broken off by now, or in a moment.
            let is_replica = !plans::has_crossed(&error.to_string())
                && of
                    .mirrors
                    .mirror(&to)
                    .is_ok_and(|mirror| mirror.status().state != farside_mirror::State::BrokenOff);
            plans::after_role_change(error.into_error_body(), &to, is_replica)
        })
    };
    let id = site.operations.start(subject, async { Ok(work) }).await?;
    Ok(Outcome::Done(site.operations.status(&site.node, &site.mirrors, id)?))
}

/// A break ends the transfer before all else, and has an end of its own a moment later.
async fn is_broken_off_then(mirror: &farside_mirror::Mirror) -> bool {
    let mut changes = mirror.changes();
    let broken_off = changes.wait_for(|status| status.state == farside_mirror::State::BrokenOff);
    matches!(tokio::time::timeout(BREAK_ENDS_WITHIN, broken_off).await, Ok(Ok(_)))
}

/// How long the update of its group after a resync may take before whoever asked hears that it follows.
const TO_ONE_MOMENT_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether any of the group is under way, and for how long.
const TO_ONE_MOMENT_LOOKS: usize = 20;
const TO_ONE_MOMENT_EVERY: Duration = Duration::from_millis(100);

/// How long a break may take after it has ended a transfer, for what is said of that.
const BREAK_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Why a resync did not begin. For want of a session it does not go on by itself, whatever schedule there is.
fn not_begun(volume: &VolumeName, again: &str, error: MirrorError) -> ErrorBody {
    match error {
        MirrorError::NoSession(why) => ErrorBody::new(
            ErrorCode::PeerUnreachable,
            format!("no session with the peer: {why}. {volume} is as it was"),
        )
        .hint(format!("farside peer list shows when there is one; then {again}. Nothing begins by itself")),
        other => other.into_error_body(),
    }
}

/// Whoever asked may not wait for it: a resync that did not begin is told by the mirror, too. `again`: what to type.
async fn note_not_begun(site: &Site, volume: &VolumeName, again: &str, error: &ErrorBody) {
    let Ok(mirror) = site.mirrors.mirror(volume) else { return };
    // What it says may be of yesterday: no later event of a volume that hosts use takes it back.
    let at = convert::time(site.clock.now());
    let because = error.message.trim_end_matches('.');
    let as_it_was =
        if because.ends_with("is as it was") { String::new() } else { format!(". {volume} is as it was") };
    let why =
        format!("{NOT_RESYNCED} (at {at:.0}): {because}{as_it_was}. Only if that is still wanted: {again}");
    if let Err(error) = mirror.note_not_resynced(why).await {
        tracing::warn!(%volume, "that a resync did not begin is told only to whoever waits for it: {error}");
    }
}

/// The mirror that the volume has already, if the request does not name what to follow.
fn site_mirror(site: &Site, volume: &VolumeName, from: &From) -> Option<farside_mirror::Mirror> {
    if from.is_named { None } else { site.mirrors.mirror(volume).ok() }
}

/// A refusal because somebody has the volume open says who, and what to do: a host was faster than the request.
fn refusal(site: &Site, volume: &VolumeName, error: ErrorBody) -> ErrorBody {
    match plans::busy(volume, &site.exports.writers(volume)) {
        Some(reason) if error.code == ErrorCode::Refused => ErrorBody::new(ErrorCode::Refused, reason),
        _ => error,
    }
}

async fn plan_resync(
    site: &Site,
    volume: &VolumeName,
    from: &From,
    comparing: Comparing,
    with_group: bool,
    busy: Option<String>,
    patience: Duration,
) -> Result<Plan, ErrorBody> {
    let destination = site.mirrors.destination(&volume.pool)?;
    let known = site.mirrors.mirror(volume).ok().map(|mirror| mirror.status().relationship);
    let busy = busy.or_else(|| {
        known
            .filter(|known| known.quiesced)
            .map(|_| format!("the mirror of {volume} is quiesced. Run farside mirror resume {volume} first"))
    });
    let asked = from.is_named.then(|| (from.peer, from.source.clone()));
    let mut waits_for = None;
    let (found, refused) = match destination
        .plan_resync_comparing(volume, asked, comparing, with_group, PLAN_PATIENCE.min(patience))
        .await
    {
        Ok(found) => {
            let refused = busy.or_else(|| found.no_room.clone());
            (Some(found), refused)
        }
        // What can be said without the peer is said.
        Err(error) => {
            let told = error.into_error_body();
            match told.code {
                // No refusal: the command waits for a session, and does it then.
                ErrorCode::PeerUnreachable if site.node.peer(from.peer).is_some() => {
                    waits_for = Some(peers::name_of(&site.node, from.peer));
                    (None, busy)
                }
                ErrorCode::Refused | ErrorCode::PeerUnreachable | ErrorCode::PeerRefused => {
                    (None, busy.or(Some(told.message)))
                }
                _ => return Err(told),
            }
        }
    };
    let aside = found.as_ref().map(|found| found.set_aside.data_bytes + found.set_aside.hole_bytes);
    let incoming = found.as_ref().and_then(|found| found.incoming);
    let base = found.as_ref().and_then(|found| found.base.as_ref());
    let compares = found.as_ref().is_some_and(|found| found.incoming.is_none());
    let known = site.mirrors.mirror(volume).ok().map(|mirror| mirror.status().relationship);
    let replaced = known.filter(|known| (known.peer, &known.source) != (from.peer, &from.source));
    let replaced =
        replaced.map(|known| format!("{}:{}", peers::name_of(&site.node, known.peer), known.source));
    let ends = site.mirrors.mirrored_by(volume).into_iter().find(|by| *by == from.name);
    let follows = found.as_ref().and_then(|found| found.follows.as_ref());
    // What is let go here needs no source to be told: who waits for one is not to find it gone.
    let (points_alone, branches_alone) = match waits_for.is_some() && replaced.is_none() {
        true => {
            destination.plan_resync_alone(volume, with_group).await.map_err(MirrorError::into_error_body)?
        }
        false => Default::default(),
    };
    let lets_go = found.as_ref().map_or(&branches_alone, |found| &found.lets_go);
    let points = found.as_ref().map_or(&points_alone, |found| &found.retention_lets_go).iter();
    let points: Vec<_> =
        points.map(|p| (format!("{volume}@{}", p.name), convert::time(p.created_at))).collect();
    let taken_over_by = site.mirrors.taken_over_by_others(volume, (from.peer, &from.source));
    // What follows one of them itself is in one line with it.
    let is_in_line = |by: &String| follows.is_some_and(|follows| by.ends_with(&format!(":{follows}")));
    let taken_over_by: Vec<String> =
        if taken_over_by.iter().any(is_in_line) { Vec::new() } else { taken_over_by };
    let (group, in_use) = in_use_beside(site, volume, from);
    let asked_as_one = site.mirrors.group_of(volume, from.peer, &from.source).filter(|_| with_group);
    let plan = plans::resync(&ResyncFacts {
        taken_over_by: &taken_over_by,
        follows: follows.map(ToString::to_string).as_deref(),
        lets_go,
        with_group: asked_as_one.as_deref(),
        retention_lets_go: &points,
        volume,
        from: &from.name,
        base: base.map(|base| base.name.as_str()),
        compares,
        is_left: found.as_ref().is_some_and(|found| found.is_left),
        in_use: group
            .as_deref()
            .filter(|_| !in_use.is_empty() && !with_group)
            .map(|group| (group, &in_use[..])),
        incoming_bytes: incoming.map(|incoming| incoming.data_bytes + incoming.hole_bytes),
        emptied_bytes: incoming.map_or(0, |incoming| incoming.hole_bytes),
        held_by: found.as_ref().and_then(|found| found.held_by.as_deref()),
        diverged_bytes: aside,
        diverged_seconds: found.as_ref().map(|found| found.set_aside_seconds),
        ends: ends.as_deref(),
        replaces: replaced.as_deref(),
    });
    let mut plan = Plan { refused, ..plan };
    plan.would.splice(0..0, waits_for.map(|peer| plans::waits_for_session(&peer, patience)));
    Ok(plan)
}

/// Changes the roles of both sides as planned; nothing is lost.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/swap",
    params(Planned),
    request_body = StartTransfer,
    responses((status = 200, body = Outcome<Operation>))
)]
async fn swap(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
    Body(request): Body<StartTransfer>,
) -> Answered<Operation> {
    let volume = name_of(pool, volume)?;
    let patience = patience(request.timeout_seconds)?;
    let mirror = awake(&site, &volume).await?;
    let destination = site.mirrors.destination(&volume.pool)?;
    let document = site.mirrors.document(&mirror.status(), site.clock.now());
    let refused = match document.state {
        MirrorState::BrokenOff if document.current_snapshot.is_none() => Some(format!(
            "{volume} was broken off before a copy of {0} had arrived whole. To begin again: farside mirror delete {volume}, then \
             farside mirror create {0} {volume}",
            document.source
        )),
        MirrorState::BrokenOff => Some(match site.mirrors.overtaken_why(&volume).await {
            Some(why) => format!("{volume} is {why}"),
            None => format!(
                "{volume} is broken off: it is the original already; farside mirror resync on the other side makes that \
                 one follow"
            ),
        }),
        MirrorState::Uninitialized | MirrorState::Initializing => Some(format!(
            "{volume} holds no whole version yet; farside mirror initialize {volume} makes the first copy"
        )),
        _ => site.mirrors.need_peer(&mirror.status().relationship).err().map(|error| error.message),
    };
    let refused = refused.or_else(|| {
        site.mirrors.of_two_histories(&volume).map(|split| {
            let said = split.said();
            format!(
                "{said}. No role changed. To change the role of {volume} all the same: farside mirror set {volume} --group none, then this \
                 again"
            )
        })
    });
    let refused = refused.or_else(|| {
        let (group, left) = site.mirrors.left_behind_with(&mirror.status().relationship)?;
        Some(plans::swap_of_a_part(&volume, &document.source, &group, &left))
    });
    // Before all else: what it has done so far is no reason to refuse it.
    let running = site.operations.running_swap(&volume).map(|error| error.message);
    let refused = running.or(refused);
    if planned.plan {
        // What the command would ask, here and at the source; a session that is not there is no answer.
        let mut waits_for = None;
        let refused = match refused {
            Some(refused) => Some(refused),
            None => {
                let asked = destination.plan_swap(&volume, PLAN_PATIENCE.min(patience)).await;
                let asked = asked.err().map(MirrorError::into_error_body);
                // Here it is known by now that the peer is paired: the command waits for it.
                let (away, refused) = match asked {
                    Some(error) if error.code == ErrorCode::PeerUnreachable => (true, None),
                    asked => (false, asked.map(|error| error.message)),
                };
                let peer = mirror.status().relationship.peer;
                waits_for = away.then(|| peers::name_of(&site.node, peer));
                refused
            }
        };
        let mut plan = plans::swap(&volume, &document.source, document.lag_seconds);
        plan.would.extend(waits_for.as_ref().map(|peer| plans::unasked_swap(peer, &document.source)));
        plan.would.splice(0..0, waits_for.map(|peer| plans::waits_for_session(&peer, patience)));
        let (retention, group) = (document.retention.as_deref(), document.group.as_deref());
        plan.would.extend(group.map(plans::beside_swap));
        plan.would.extend(plans::left_by_swap(&document.source, retention));
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let relationship = mirror.status().relationship;
    let is_scheduled = !relationship.quiesced && relationship.schedule != Schedule::OnRequest;
    let peer = relationship.peer;
    let subject = Subject::new(volume.clone(), peer, OperationKind::Swap);
    let (of, to) = (Arc::clone(&site), volume.clone());
    let work = async move {
        let swapped =
            destination.swap(&to, patience).await.map_err(|error| given_up(&to, is_scheduled, error))?;
        of.exports.drop_replica_connections(&to);
        tracing::warn!(volume = %to, source = document.source, not_notified = swapped.not_notified, "the roles have changed");
        Ok(swapped.last)
    };
    let id = site.operations.start(subject, async { Ok(work) }).await?;
    Ok(Outcome::Done(site.operations.status(&site.node, &site.mirrors, id)?))
}

/// Why a swap was given up, and what goes on: a swap never does by itself.
fn given_up(volume: &VolumeName, is_scheduled: bool, error: MirrorError) -> ErrorBody {
    let has_no_session = matches!(error, MirrorError::NoSession(_));
    let error = error.into_error_body();
    if !has_no_session {
        return error;
    }
    let updates = match is_scheduled {
        true => "updates go on by their schedule then",
        false => "this mirror is not updated by itself either: it has no schedule, or is quiesced",
    };
    error.hint(format!(
        "farside peer list shows the session. The swap does not go on by itself: once the session is back, farside mirror swap \
         {volume} again; {updates}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_that_was_given_up_promises_no_more_than_what_goes_on() {
        let volume: VolumeName = "q/db".parse().unwrap();
        let lost = || MirrorError::NoSession("it went away".into());
        let hint = given_up(&volume, false, lost()).hint.unwrap();
        assert!(
            hint.contains("farside mirror swap q/db again") && hint.contains("not updated by itself"),
            "{hint}"
        );
        let hint = given_up(&volume, true, lost()).hint.unwrap();
        assert!(hint.contains("go on by their schedule"), "{hint}");
        assert!(given_up(&volume, true, MirrorError::State("no".into())).hint.is_none());
    }
}
