//! `/mirrors`, `/history`, `/operations`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{
    CreateMirror, ErrorBody, ErrorCode, Mirror, MirrorDestination, MirrorState, Operation, OperationKind,
    Plan, Resized, Role, SetMirror, SetMirrorLink, StartTransfer, TakenOver, TransferRecord, Uuid,
};
use farside_engine::{TO_MAKE_ROOM_BELOW, VolumeName};
use farside_link::{Priority, Window};
use farside_mirror::{MirrorError, MirrorOptions, NOT_RESYNCED, NewMirror, Retention};
use farside_peer::{Node, PeerId};
use farside_transfer::Phase;
use farside_transfer::protocol::convert::Place;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::likeness::{self, WantedMirror};
use super::page::{Page, Wanted};
use super::plan::{Answered, Outcome, PLAN_PATIENCE, Planned};
use super::volumes::{name_of, parse};
use crate::failure::Failure;
use crate::mirrors::destinations::Holder;
use crate::operations::{PATIENCE_DEFAULT, Subject};
use crate::plans::{self, DeleteFacts};
use crate::pools::cluster_room::TO_MAKE_ROOM;
use crate::schedules;
use crate::site::Site;
use crate::throttles;
use crate::{convert, peers};

/// How long `mirror create` waits for a session: long enough to dial once more.
const CREATE_PATIENCE: Duration = Duration::from_secs(15);
/// How long one that is there already waits for a session, to ask whether its source allows the way back.
const WAY_BACK_PATIENCE: Duration = Duration::from_secs(3);
/// Longest patience that can be asked for.
const PATIENCE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Transfers of one answer.
const HISTORY_MAX: u32 = 1000;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(delete))
        .routes(routes!(set))
        .routes(routes!(initialize))
        .routes(routes!(update))
        .routes(routes!(quiesce))
        .routes(routes!(resume))
        .routes(routes!(abort))
        .routes(routes!(release))
        .routes(routes!(destinations))
        .routes(routes!(history))
        .routes(routes!(operations))
        .routes(routes!(operation))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct OfVolume {
    volume: Option<String>,
}

/// Which mirrors are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct WantedMirrors {
    /// That of this volume here alone, `POOL/VOL`.
    volume: Option<String>,
    /// In this state alone.
    state: Option<MirrorState>,
    /// Those of this side alone.
    role: Option<Role>,
    /// With this peer alone.
    peer: Option<String>,
    /// Of this group alone.
    group: Option<String>,
    /// Those with this in the name of their volume, source or destination; upper or lower case is the same.
    search: Option<String>,
    /// So many, 1 to 10,000. With this or `after` the list is sorted, and the header `x-farside-next` says how it goes on.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Those behind this one: what `x-farside-next` of the page before has said.
    after: Option<String>,
}

impl WantedMirrors {
    fn has(&self, mirror: &Mirror) -> bool {
        // The peer is named with its volume, at whichever side that is.
        let of_peer = |peer: &String| {
            let far = if mirror.role == Role::Destination { &mirror.source } else { &mirror.destination };
            far.split_once(':').is_some_and(|(name, _)| name == peer)
        };
        let found = |text: &String| {
            let text = text.to_lowercase();
            [&mirror.name, &mirror.source, &mirror.destination]
                .iter()
                .any(|name| name.to_lowercase().contains(&text))
        };
        // A direction that sleeps is kept as one that was broken off, and nobody looks for it.
        self.state.is_none_or(|state| mirror.state == state && !mirror.sleeping)
            && self.role.is_none_or(|role| mirror.role == role)
            && self.peer.as_ref().is_none_or(of_peer)
            && self.group.as_ref().is_none_or(|group| mirror.group.as_ref() == Some(group))
            && self.search.as_ref().is_none_or(found)
    }
}

/// Mirrors of this site.
#[utoipa::path(get, path = "/mirrors", params(WantedMirrors), responses((status = 200, body = Vec<Mirror>)))]
async fn list(State(site): Shared, Query(wanted): Query<WantedMirrors>) -> Result<Page<Mirror>, ApiError> {
    let mut all = site.mirrors.list().await?;
    for (volume, peer) in site.operations.waiting() {
        let (name, peer) = (volume.to_string(), peers::name_of(&site.node, peer));
        for mirror in all.iter_mut().filter(|mirror| mirror.name == name) {
            let waits = plans::resync_waits(&volume, &peer);
            // That an earlier one did not begin is over.
            let before = mirror.why.take().filter(|why| !why.starts_with(NOT_RESYNCED));
            mirror.why = Some(before.into_iter().fold(waits, |waits, why| format!("{waits}. {why}")));
        }
    }
    if let Some(volume) = &wanted.volume {
        let name = parse(volume)?.to_string();
        all.retain(|mirror| mirror.name == name);
        if all.is_empty() {
            return Err(unknown(&name).into());
        }
    }
    all.retain(|mirror| wanted.has(mirror));
    let page = Wanted { limit: wanted.limit, after: wanted.after };
    // A volume can be a replica and a source, and a source of several.
    Ok(page.of(all, |mirror| format!("{} {} {}", mirror.name, mirror.id, mirror.role == Role::Source))?)
}

pub(super) fn unknown(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("{name} is not part of a mirror"))
        .hint("farside mirror status shows what is there")
}

/// Makes a mirror.
#[utoipa::path(
    post,
    path = "/mirrors",
    request_body = CreateMirror,
    responses((status = 200, body = Mirror))
)]
async fn create(State(site): Shared, Body(request): Body<CreateMirror>) -> Answer<Mirror> {
    let destination = parse(&request.destination)?;
    let (peer, source) = request.source.split_once(':').ok_or_else(|| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("{:?} is not PEER:POOL/VOL", request.source))
    })?;
    let peer = match peers::named(&site.node, peer) {
        Ok(peer) => peer.record.id,
        Err(_) if peer == site.document.name => {
            return Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                format!("{peer} is this site, and a mirror is made at the site that gets the copy. Nothing was made"),
            )
            .hint(format!("at the other site: farside mirror create {peer}:{source} POOL/VOL"))
            .into());
        }
        Err(error) => return Err(error.into()),
    };
    let schedule = schedules::asked_or_objective(
        request.rpo_seconds,
        request.every_seconds,
        request.schedule.as_deref(),
        request.time_zone.as_deref(),
    )?;
    let retention = retention(request.retention.as_deref())?;
    let group = group(request.group)?;
    // One whose settings went with the state database is there, and not as asked for: it is set as one that is made.
    let found = site.mirrors.destination(&destination.pool);
    let source = parse(source)?;
    let is_taken_over = found.is_ok_and(|mirrors| mirrors.takes_over(peer, &source, &destination));
    if request.if_absent
        && !is_taken_over
        && let Ok(there) = site.mirrors.mirror(&destination)
    {
        let there = there.status();
        let options = request.link.clone();
        let options =
            options.map(|link| options_after(there.relationship.options.clone(), Some(link))).transpose()?;
        let wanted = WantedMirror {
            peer,
            source: source.to_string(),
            schedule: schedule.as_ref(),
            retention: retention.as_ref(),
            group: group.as_ref().map(|group| group.as_deref().unwrap_or_default()),
            options: options.as_ref(),
            lacks_reverse: !request.no_reverse && site.rights.right(peer, &destination).is_none(),
            unwanted_reverse: request.no_reverse.then(|| site.rights.right(peer, &destination).is_some()),
        };
        let likeness =
            likeness::mirror(&there.relationship, &wanted, |peer| peers::name_of(&site.node, peer));
        let document = site.mirrors.document(&there, site.clock.now());
        if document.state == MirrorState::BrokenOff {
            let is_original = site.mirrors.is_followed_by(&destination, &document.source);
            return Err(likeness::broken_off(&document, is_original, likeness.err()).into());
        }
        likeness?;
        // It may have gone with the state database, and the schedule been set again without it.
        if !request.no_reverse && site.rights.right(peer, &destination).is_none() {
            let mirrors = site.mirrors.destination(&destination.pool)?;
            if let Err(error) = mirrors.renew_way_back(&destination, WAY_BACK_PATIENCE).await {
                tracing::warn!(replica = %destination, "whether the source allows the way back could not be asked: {error}");
            }
        }
        return Ok(Json(document));
    }
    let (schedule, retention) = (schedule.unwrap_or_default(), retention.unwrap_or_default());
    let group = group.flatten();
    site.mirrors.check_group(group.as_deref(), peer, &destination)?;
    let clients = site.exports.clients_of(&destination);
    let (connections, count) = clients.count();
    if connections > 0 && !is_taken_over {
        // Data under a mounted file system never changes by itself.
        let busy = format!("{count} to {destination}{}, which would become a replica", clients.named());
        return Err(ErrorBody::new(ErrorCode::Refused, busy)
            .hint("disconnect the hosts first, or choose another volume")
            .into());
    }
    let options = options_after(MirrorOptions::default(), request.link)?;
    let mirrors = site.mirrors.destination(&destination.pool)?;
    let wanted = NewMirror {
        peer,
        source,
        destination: destination.clone(),
        schedule,
        options,
        retention,
        group,
        allow_reverse: !request.no_reverse,
        allow_copy_of_own: request.copy_of_own,
    };
    // One that is there has this size until its first copy.
    let (engine, of) = (site.pools.engine(), destination.clone());
    let before = site.blocking.run(move || Ok::<_, ErrorBody>(engine.volume(&of).ok())).await?;
    let made = mirrors.make(wanted, CREATE_PATIENCE).await;
    let made = made.map_err(|error| match error {
        // There is no replica yet of which anything could be said.
        MirrorError::NoSession(why) => {
            let name = peers::name_of(&site.node, peer);
            let message = format!(
                "no session with {name} came about within {} s: {why}. Nothing was made",
                CREATE_PATIENCE.as_secs()
            );
            ErrorBody::new(ErrorCode::PeerUnreachable, message)
                .hint(format!("farside peer status {name} shows when there is one; then this again"))
        }
        other => other.into_error_body(),
    })?;
    let follows = made.source_follows;
    let (made, first_copy_bytes, size_bytes) = (made.mirror, made.first_copy_bytes, made.size_bytes);
    let resized = before.map(|before| before.size_bytes).zip(size_bytes).filter(|(from, to)| from != to);
    let resized = resized.map(|(from_bytes, to_bytes)| Resized { from_bytes, to_bytes });
    tracing::info!(replica = %destination, source = request.source, "mirror created");
    let room_bytes = site.mirrors.staging_room(&destination).await.map(|room| room.room_bytes);
    let document = site.mirrors.document(&made.status(), site.clock.now());
    let reverse = site.rights.right(peer, &destination).is_some();
    let taken_over = is_taken_over.then_some(TakenOver { reverse });
    let source_follows = source_follows(&site, document.group.is_some(), follows.as_ref());
    let way_back = Some(reverse);
    Ok(Json(Mirror {
        first_copy_bytes,
        room_bytes,
        resized,
        source_follows,
        taken_over,
        way_back,
        ..document
    }))
}

type OneMirror = Path<(String, String)>;

/// Changes a mirror while it runs.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/set",
    params(Planned),
    request_body = SetMirror,
    responses((status = 200, body = Outcome<Mirror>))
)]
async fn set(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
    Body(request): Body<SetMirror>,
) -> Answered<Mirror> {
    let name = name_of(pool, volume)?;
    // Out of its group also goes the way back of a volume that is the original now.
    let mirror = match only_leaves_group(&request) {
        true => site.mirrors.mirror(&name)?,
        false => site.mirrors.awake(&name)?,
    };
    let schedule = schedules::asked_or_objective(
        request.rpo_seconds,
        request.every_seconds,
        request.schedule.as_deref(),
        request.time_zone.as_deref(),
    )?;
    let retention = retention(request.retention.as_deref())?;
    let group = group(request.group)?;
    let is_grouped = matches!(group, Some(Some(_)));
    let known = mirror.status().relationship;
    site.mirrors.check_group(group.as_ref().and_then(Option::as_deref), known.peer, &known.destination)?;
    let options = options_after(known.options.clone(), request.link)?;
    if planned.plan {
        return plan_set(&name, &mirror, retention).await.map(Outcome::Plan);
    }
    // What is as it was asked for stays untouched: a script may ask every few seconds.
    if options != known.options {
        mirror.set_options(options).await?;
    }
    if let Some(schedule) = schedule {
        mirror.set_schedule(schedule).await?;
    }
    if let Some(retention) = retention.filter(|retention| *retention != known.retention) {
        mirror.set_retention(retention).await?;
    }
    if let Some(group) = group.filter(|group| *group != known.group) {
        mirror.set_group(group).await?;
    }
    let status = mirror.status();
    let follows = status.relationship.upstream.follows.first();
    let source_follows = source_follows(&site, is_grouped, follows);
    Ok(Outcome::Done(Mirror { source_follows, ..site.mirrors.document(&status, site.clock.now()) }))
}

/// Which points would go.
async fn plan_set(
    name: &VolumeName,
    mirror: &farside_mirror::Mirror,
    retention: Option<Retention>,
) -> Result<Plan, ApiError> {
    let Some(retention) = retention else { return Ok(plans::rotate_otherwise(name, None, &[], 0)) };
    // A script says it again: what goes then goes by what is in force, and no question keeps it.
    if retention == mirror.status().relationship.retention {
        return Ok(plans::rotates_so_already(name, &retention.to_string()));
    }
    let (gone, of) = mirror.would_let_go(&retention).await?;
    let gone: Vec<_> =
        gone.iter().map(|s| (format!("{name}@{}", s.name), convert::time(s.created_at))).collect();
    if mirror.status().state == farside_mirror::State::BrokenOff && !retention.is_none() {
        return Ok(plans::rotate_otherwise_then(name, &retention.to_string(), &gone, of));
    }
    Ok(plans::rotate_otherwise(name, Some(&retention.to_string()), &gone, of))
}

/// Whether a mirror is to be taken out of its group, and nothing else.
fn only_leaves_group(request: &SetMirror) -> bool {
    *request == SetMirror { group: Some(String::new()), ..SetMirror::default() }
}

/// What the source of a mirror that was put into a group follows: its moment is not its own.
fn source_follows(site: &Site, is_grouped: bool, follows: Option<&Place>) -> Option<String> {
    let place = follows.filter(|_| is_grouped)?;
    Some(format!("{}:{}", peers::name_of(&site.node, PeerId(place.site)), place.volume))
}

/// What a request says of retention.
fn retention(text: Option<&str>) -> Result<Option<Retention>, ErrorBody> {
    text.map(str::parse).transpose().map_err(Failure::into_error_body)
}

/// What a request says of the group: nothing, none, or a name.
#[expect(clippy::option_option, reason = "nothing is said, or that it is in none")]
fn group(name: Option<String>) -> Result<Option<Option<String>>, ErrorBody> {
    match name {
        Some(name) if !name.is_empty() && !farside_engine::is_label(&name) => {
            Err(ErrorBody::new(ErrorCode::WrongUsage, format!("{name:?} cannot be the name of a group")))
        }
        name => Ok(name.map(|name| Some(name).filter(|name| !name.is_empty()))),
    }
}

/// What a request makes of a mirror's options.
fn options_after(before: MirrorOptions, request: Option<SetMirrorLink>) -> Result<MirrorOptions, ErrorBody> {
    let Some(SetMirrorLink { throttle, window_bytes, low_priority, paths }) = request else {
        return Ok(before);
    };
    let mut options = before;
    if let Some(text) = throttle {
        options.throttle = throttles::asked(&text)?;
    }
    if let Some(bytes) = window_bytes {
        options.window = if bytes == 0 { Window::Auto } else { Window::Bytes(bytes) };
    }
    if let Some(low) = low_priority {
        options.priority = if low { Priority::Low } else { Priority::Normal };
    }
    if let Some(paths) = paths {
        let read = |text: &String| text.parse().map_err(|e: String| ErrorBody::new(ErrorCode::WrongUsage, e));
        options.paths = paths.iter().map(read).collect::<Result<_, _>>()?;
    }
    options.check().map_err(Failure::into_error_body)?;
    Ok(options)
}

/// Starts the first copy.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/initialize",
    params(Planned),
    request_body = StartTransfer,
    responses((status = 200, body = Outcome<Operation>))
)]
async fn initialize(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
    Body(request): Body<StartTransfer>,
) -> Answered<Operation> {
    let volume = name_of(pool, volume)?;
    if planned.plan {
        return plan_first_copy(&site, &volume).await.map(Outcome::Plan);
    }
    let Json(started) = transfer(&site, volume, OperationKind::Initialize, request).await?;
    Ok(Outcome::Done(started))
}

/// What the first copy would bring, and the room for it.
async fn plan_first_copy(site: &Site, volume: &VolumeName) -> Result<Plan, ApiError> {
    let mirror = awake(site, volume).await?;
    let document = site.mirrors.document(&mirror.status(), site.clock.now());
    let overtaken = match document.state {
        MirrorState::BrokenOff => site.mirrors.overtaken_why(volume).await,
        _ => None,
    };
    let set_back = site.mirrors.set_back_why(volume);
    let refused = match document.state {
        MirrorState::BrokenOff if overtaken.is_some() => overtaken.map(|why| format!("{volume} is {why}")),
        MirrorState::BrokenOff if document.current_snapshot.is_none() => Some(format!(
            "{volume} was broken off before a copy of {0} had arrived whole. To begin again: farside mirror delete {volume}, then \
             farside mirror create {0} {volume}",
            document.source
        )),
        MirrorState::BrokenOff => {
            Some(format!("{volume} is broken off; farside mirror resync {volume} makes it a replica again"))
        }
        // As the command would say.
        _ if set_back.is_some() => set_back,
        _ if document.base_snapshot.is_some() => {
            Some(format!("{volume} has its first copy; farside mirror update {volume} brings what is new"))
        }
        _ => None,
    };
    let destination = site.mirrors.destination(&volume.pool)?;
    let (brings, refused) = match refused {
        Some(_) => (None, refused),
        None => match destination.first_copy_bytes(volume, PLAN_PATIENCE).await {
            Ok(bytes) => (bytes, None),
            Err(error) => (None, Some(error.into_error_body().message)),
        },
    };
    let room = site.mirrors.staging_room(volume).await;
    let refusing = site.takes_no_changes(&volume.pool).await?.map(|refusing| refusing.why);
    let refused = refusing.or(refused);
    let is_clustered = site.pools.is_clustered(&volume.pool);
    let lacks = brings.zip(room.as_ref()).and_then(|(brings, room)| brings.checked_sub(room.room_bytes));
    let is_short_below = room.as_ref().is_some_and(|room| room.below.is_some());
    let for_more = match (is_clustered, is_short_below) {
        (true, _) => String::from(TO_MAKE_ROOM),
        (false, true) => String::from(TO_MAKE_ROOM_BELOW),
        (false, false) => site.pools.grow_command(&volume.pool, lacks),
    };
    Ok(Plan { refused, ..plans::initialize(volume, &document.source, brings, room.as_ref(), &for_more) })
}

/// Starts an update.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/update",
    request_body = StartTransfer,
    responses((status = 200, body = Operation))
)]
async fn update(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Body(request): Body<StartTransfer>,
) -> Answer<Operation> {
    transfer(&site, name_of(pool, volume)?, OperationKind::Update, request).await
}

/// How long a request waits for a lost session.
pub(super) fn patience(timeout_seconds: Option<f64>) -> Result<Duration, ErrorBody> {
    let Some(seconds) = timeout_seconds else { return Ok(PATIENCE_DEFAULT) };
    let patience = Duration::try_from_secs_f64(seconds);
    patience
        .map(|patience| patience.min(PATIENCE_MAX))
        .map_err(|_| ErrorBody::new(ErrorCode::WrongUsage, "timeout_seconds must be a number of seconds"))
}

async fn transfer(
    site: &Site,
    volume: VolumeName,
    kind: OperationKind,
    request: StartTransfer,
) -> Answer<Operation> {
    let patience = patience(request.timeout_seconds)?;
    let mirror = awake(site, &volume).await?;
    let status = mirror.status();
    if status.state != farside_mirror::State::BrokenOff {
        site.mirrors.need_peer(&status.relationship)?;
    }
    let stays_away = stays_away(site.node.clone(), status.relationship.peer, patience);
    let told = format!(
        "{}: no session with its peer within {} s. What was asked for before this waits on, and begins when the peer is there; \
         farside mirror abort takes it back",
        volume,
        patience.as_secs()
    );
    let subject = Subject::new(volume.clone(), status.relationship.peer, kind);
    let accepted = async {
        let asked = match kind {
            OperationKind::Initialize => mirror.initialize(patience).await,
            _ => mirror.update(patience).await,
        };
        // The driver itself begins anew when only the session was to blame.
        asked
            .map(|asked| async move {
                tokio::select! {
                    ended = asked.ended() => ended.map_err(Failure::into_error_body),
                    () = stays_away => Err(ErrorBody::new(ErrorCode::PeerUnreachable, told)),
                }
            })
            .map_err(Failure::into_error_body)
    };
    let id = match site.operations.start(subject, accepted).await {
        Ok(id) => id,
        Err(error) => return Err(site.mirrors.overtaken_first(&volume, error).await.into()),
    };
    if kind == OperationKind::Update {
        site.mirrors.seen_with(&status.relationship).await;
    }
    Ok(Json(site.operations.status(&site.node, &site.mirrors, id)?))
}

/// The mirror of a replica that is asked something. Of a volume that was overtaken that is said first.
pub(super) async fn awake(site: &Site, volume: &VolumeName) -> Result<farside_mirror::Mirror, ErrorBody> {
    match site.mirrors.awake(volume) {
        Ok(mirror) => Ok(mirror),
        Err(error) => Err(site.mirrors.overtaken_first(volume, error).await),
    }
}

/// A request of its own ends by its patience; one that was asked for before may wait for longer than this one's.
const OWN_PATIENCE_FIRST: Duration = Duration::from_secs(1);

/// Ends if there is no session with a peer for so long.
async fn stays_away(node: Node, peer: PeerId, patience: Duration) {
    let connected = async {
        match node.watch(peer) {
            Some(mut state) => drop(state.wait_for(|state| state.connected).await),
            None => std::future::pending().await,
        }
    };
    if tokio::time::timeout(patience + OWN_PATIENCE_FIRST, connected).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Holds the updates of a mirror.
#[utoipa::path(post, path = "/mirrors/{pool}/{volume}/quiesce", responses((status = 200, body = Mirror)))]
async fn quiesce(State(site): Shared, Path((pool, volume)): OneMirror) -> Answer<Mirror> {
    let name = name_of(pool, volume)?;
    let mirror = awake(&site, &name).await?;
    if let Err(error) = mirror.quiesce().await {
        return Err(site.mirrors.overtaken_first(&name, error.into_error_body()).await.into());
    }
    Ok(Json(site.mirrors.document(&mirror.status(), site.clock.now())))
}

/// Lets the updates of a mirror go on.
#[utoipa::path(post, path = "/mirrors/{pool}/{volume}/resume", responses((status = 200, body = Mirror)))]
async fn resume(State(site): Shared, Path((pool, volume)): OneMirror) -> Answer<Mirror> {
    let name = name_of(pool, volume)?;
    let mirror = awake(&site, &name).await?;
    if let Err(error) = mirror.resume().await {
        return Err(site.mirrors.overtaken_first(&name, error.into_error_body()).await.into());
    }
    Ok(Json(site.mirrors.document(&mirror.status(), site.clock.now())))
}

/// How long a transfer that is cut may take to end until the answer does not wait for it any longer.
const ABORTED_WITHIN: Duration = Duration::from_secs(10);

/// What of a mirror is to end.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Aborted {
    /// Only a resync that has changed nothing yet; a transfer that runs goes on.
    #[serde(default)]
    unbegun: bool,
}

/// Cuts the transfer that is under way, and gives up a resync that has not begun.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/abort",
    params(Aborted),
    responses((status = 200, body = Mirror))
)]
async fn abort(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(what): Query<Aborted>,
) -> Answer<Mirror> {
    let name = name_of(pool, volume)?;
    if site.operations.give_up(&name) {
        tracing::warn!(volume = %name, "a resync that waited for a session was given up; nothing was changed");
        // An update may run beside it; where none does, that is no failure.
        if !what.unbegun
            && let Ok(mirror) = site.mirrors.awake(&name)
        {
            let _ = mirror.abort().await;
        }
        return Ok(Json(given_up(&site, &name).await?));
    }
    if what.unbegun {
        let nothing = format!("no resync of {name} waits to begin");
        return Err(ErrorBody::new(ErrorCode::Refused, nothing).into());
    }
    let mirror = awake(&site, &name).await.map_err(not_begun)?;
    let mut changes = mirror.changes();
    if let Err(error) = mirror.abort().await {
        return Err(not_begun(site.mirrors.overtaken_first(&name, error.into_error_body()).await).into());
    }
    // It has ended once it is not under way any more: what it published just before is what is shown then.
    let ended = changes.wait_for(|status| status.state != farside_mirror::State::Transferring);
    let _ = tokio::time::timeout(ABORTED_WITHIN, ended).await;
    Ok(Json(site.mirrors.document(&mirror.status(), site.clock.now())))
}

/// Nothing runs here: what somebody would like to end may be a command whose plan is made, or shown, and which has asked for nothing yet.
fn not_begun(error: ErrorBody) -> ErrorBody {
    if !matches!(error.code, ErrorCode::Refused | ErrorCode::NotFound) {
        return error;
    }
    let plan = "a command that is still at its plan, or waits for a yes to it, has begun nothing here: Ctrl-C ends it where it was typed";
    let hint = error.hint.clone().map_or_else(|| plan.to_owned(), |hint| format!("{hint}; {plan}"));
    error.hint(hint)
}

/// A volume whose resync was given up before it had begun: in what mirror it is, if it is in one.
async fn given_up(site: &Site, volume: &VolumeName) -> Result<Mirror, ErrorBody> {
    let name = volume.to_string();
    let mut of_volume: Vec<Mirror> =
        site.mirrors.list().await?.into_iter().filter(|mirror| mirror.name == name).collect();
    if of_volume.is_empty() {
        return Err(ErrorBody::new(
            ErrorCode::NotFound,
            format!(
                "the resync of {volume} was given up before it had begun; {volume} is as it was, and in no mirror"
            ),
        ));
    }
    Ok(Mirror { given_up: Some(String::from("resync")), ..of_volume.swap_remove(0) })
}

/// Destinations of volumes of this site, and what is kept for them.
#[utoipa::path(
    get,
    path = "/destinations",
    params(OfVolume),
    responses((status = 200, body = Vec<MirrorDestination>))
)]
async fn destinations(State(site): Shared, Query(of): Query<OfVolume>) -> Answer<Vec<MirrorDestination>> {
    let volume = of.volume.as_deref().map(parse).transpose()?;
    let held = site.mirrors.held_by_others(volume.as_ref(), true).await?;
    if let Some(volume) = volume.filter(|_| held.is_empty()) {
        // A name that is none has no empty list.
        let engine = site.pools.engine();
        site.blocking.run(move || engine.volume(&volume)).await.map_err(|error| match error.code {
            ErrorCode::NotFound => error.hint("farside volume list shows what is there"),
            _ => error,
        })?;
    }
    Ok(Json(held))
}

/// Lets go of what is kept for a destination.
///
/// At the source.
#[utoipa::path(
    post,
    path = "/mirrors/{pool}/{volume}/release/{peer}",
    params(Planned),
    responses((status = 200, body = Outcome<Vec<MirrorDestination>>))
)]
async fn release(
    State(site): Shared,
    Path((pool, volume, peer)): Path<(String, String, String)>,
    Query(planned): Query<Planned>,
) -> Answered<Vec<MirrorDestination>> {
    let name = name_of(pool, volume)?;
    let holder = site.mirrors.holder(&name, &peer)?;
    let mut held = site.mirrors.held_by_others(Some(&name), true).await?;
    held.retain(|destination| match holder {
        Holder::Known(id) | Holder::Unknown(id) => destination.id == id,
    });
    if held.is_empty() {
        return Err(ErrorBody::new(ErrorCode::NotFound, format!("{peer} holds no base of {name}"))
            .hint("farside mirror destinations shows who does")
            .into());
    }
    if planned.plan {
        let known = held.iter().filter(|held| held.known);
        let name_of = |held: &MirrorDestination| format!("{}:{}", held.peer, held.destination);
        let replicas: Vec<_> = known.map(name_of).collect();
        let overtaken: Vec<_> = held.iter().filter(|held| held.overtaken.is_some()).map(name_of).collect();
        return Ok(Outcome::Plan(plans::release(&name, &peer, &replicas, &overtaken)));
    }
    site.mirrors.release(&name, holder).await?;
    tracing::warn!(volume = %name, peer, "bases released");
    site.mirrors.end_recorded_rights().await;
    Ok(Outcome::Done(held))
}

/// Ends a mirror; the volume stays.
#[utoipa::path(
    delete,
    path = "/mirrors/{pool}/{volume}",
    params(Planned),
    responses((status = 200, body = Outcome<Mirror>))
)]
async fn delete(
    State(site): Shared,
    Path((pool, volume)): OneMirror,
    Query(planned): Query<Planned>,
) -> Answered<Mirror> {
    let name = name_of(pool, volume)?;
    let mirror = site.mirrors.mirror(&name)?;
    let status = mirror.status();
    let before = site.mirrors.document(&status, site.clock.now());
    if planned.plan {
        let broken_off = before.state == MirrorState::BrokenOff;
        // What waits for its turn or a session has brought nothing.
        let running = status.progress.as_ref().filter(|progress| progress.phase != Phase::Waiting);
        let is_followed = broken_off && site.mirrors.is_followed_by(&name, &before.source);
        let fence = site.mirrors.fence_after(&name);
        let is_overtaken_back = broken_off && site.mirrors.broken_off_from(&name).contains(&before.source);
        return Ok(Outcome::Plan(plans::delete_mirror(&DeleteFacts {
            volume: &name,
            source: &before.source,
            has_copy: before.base_snapshot.is_some(),
            arrived_bytes: running.map(|progress| progress.done_bytes),
            is_swapping: status.is_swapping || site.operations.running_swap(&name).is_some(),
            is_broken_off: broken_off,
            is_followed,
            is_paired: site.node.peer(mirror.status().relationship.peer).is_some(),
            has_ended_there: before.source_heard == Some(farside_api::SourceHeard::Released),
            is_overtaken_back,
            fence: &fence,
        })));
    }
    let deleted = site.mirrors.destination(&name.pool)?.delete(&name).await;
    // A deletion that failed later on may have made the volume writable already.
    if deleted.is_ok() || !site.mirrors.is_replica(&name).await.unwrap_or(false) {
        site.exports.drop_replica_connections(&name);
    }
    deleted?;
    tracing::warn!(replica = %name, source = before.source, "mirror deleted");
    site.mirrors.end_recorded_rights().await;
    Ok(Outcome::Done(before))
}

/// Transfers that have ended.
#[utoipa::path(
    get,
    path = "/history",
    params(OfVolume),
    responses((status = 200, body = Vec<TransferRecord>))
)]
async fn history(State(site): Shared, Query(of): Query<OfVolume>) -> Answer<Vec<TransferRecord>> {
    let name = of.volume.as_deref().map(|volume| parse(volume).map(|name| name.to_string())).transpose()?;
    let records = site.state.transfers(name.as_deref(), HISTORY_MAX).await?;
    if let Some(name) = name.filter(|_| records.is_empty())
        && !site.mirrors.list().await?.iter().any(|mirror| mirror.name == name)
    {
        return Err(unknown(&name).into());
    }
    Ok(Json(records))
}

/// What was asked for and takes long.
///
/// Oldest first: those under way, and some hundred that have ended since the daemon was started.
#[utoipa::path(get, path = "/operations", params(OfVolume), responses((status = 200, body = Vec<Operation>)))]
async fn operations(State(site): Shared, Query(of): Query<OfVolume>) -> Answer<Vec<Operation>> {
    let volume = of.volume.as_deref().map(parse).transpose()?.map(|volume| volume.to_string());
    let mut all = site.operations.list(&site.node, &site.mirrors);
    all.retain(|operation| volume.as_ref().is_none_or(|volume| operation.volume == *volume));
    Ok(Json(all))
}

/// How far one piece of long work is.
#[utoipa::path(get, path = "/operations/{id}", responses((status = 200, body = Operation)))]
async fn operation(State(site): Shared, Path(id): Path<String>) -> Answer<Operation> {
    let id: Uuid = id.parse().map_err(|_| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("{id:?} is not the id of an operation"))
    })?;
    Ok(Json(site.operations.status(&site.node, &site.mirrors, id)?))
}
