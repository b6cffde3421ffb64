//! A mirror as this site, its destination, lists it.

use farside_api::{self as api, MirrorState, Role};
use farside_mirror::{MirrorStatus, Relationship, Schedule};
use farside_peer::PeerStatus;
use farside_platform::Timestamp;
use farside_transfer::bases::rescue_moment;

use super::why::{away, interrupted, no_session, stopped, untold_for_good, why_now};
use super::{Mirrors, own_paths, unfinished_swap};
use crate::convert;
use crate::peers;

impl Mirrors {
    /// A mirror as its destination lists it.
    pub(crate) fn document(&self, status: &MirrorStatus, now: Timestamp) -> api::Mirror {
        let current = status.current.as_ref();
        // What a resync has not brought yet is not to be seen.
        let shown = current.filter(|_| !status.shows_own_state);
        let monotonic = self.parts.clock.monotonic();
        let peer = self.peer_of(status);
        let stands = status.progress.as_ref().and_then(|progress| progress.stands_for(monotonic));
        let stands = stands.map(|stands| {
            let hindrance = peer.as_ref().and_then(|peer| peer.hindrance.as_deref());
            format!(
                "nothing of the transfer has arrived for {} s; {}",
                stands.as_secs(),
                hindrance.unwrap_or("farside peer status shows the link")
            )
        });
        let clocks = peer.as_ref().filter(|_| status.state != farside_mirror::State::BrokenOff);
        let clocks = clocks.and_then(peers::clocks_apart);
        let away = away(status, peer.as_ref());
        let swap = unfinished_swap::why(status, peer.as_ref(), no_session);
        let interrupted =
            interrupted(status, peer.as_ref()).or_else(|| untold_for_good(status, peer.as_ref()));
        let of_paths = peer.as_ref().filter(|_| status.state != farside_mirror::State::BrokenOff);
        let of_paths = of_paths.and_then(|peer| own_paths::why(&self.parts.node, peer, &status.relationship));
        let is_away = away.is_some();
        // What is broken off waits for nobody.
        let quiet =
            || peers::silent(peer.as_ref().filter(|_| status.state != farside_mirror::State::BrokenOff)?);
        let hangs = interrupted.is_some() || stands.is_some() || !peer.as_ref().is_some_and(is_heard);
        let why = swap
            .or(interrupted)
            .or(stands)
            .or(away)
            .or_else(quiet)
            .or_else(|| why_now(status, peer.as_ref()))
            .or(clocks);
        api::Mirror {
            // One word from the first moment without its peer to the last, whatever its attempts have come to.
            state: match is_away {
                true if status.relationship.schedule != Schedule::OnRequest => MirrorState::Queued,
                // What shows its own state mirrors nothing yet.
                _ if status.shows_own_state && status.state == farside_mirror::State::Mirrored => {
                    MirrorState::Queued
                }
                _ => convert::state(status.state),
            },
            // A reason of before that the transfer goes on in spite of says less than that it stands.
            why: why.into_iter().chain(of_paths).reduce(|why, paths| format!("{why}; {paths}")),
            stopped: stopped(status, peer.as_ref()),
            lag_seconds: status.lag_seconds(now, peers::source_ahead(peer.as_ref())),
            objective_seconds: status.objective().map(|objective| objective.as_secs_f64()),
            // Without a session nobody knows when the next update ends.
            forecast_seconds: (status.forecast.filter(|_| !is_away))
                .and_then(|f| f.lag)
                .map(|lag| lag.as_secs_f64()),
            queue_position: status.queue_position.map(|position| position as u64),
            current_snapshot: shown.map(|c| c.name.clone()),
            content_root: shown.map(|c| c.content_root.to_string()),
            base_snapshot: current.map(|c| c.name.clone()),
            transfer: status.progress.as_ref().map(|progress| {
                let transfer = convert::transfer(progress, monotonic);
                match hangs {
                    // What came last is no rate of what comes.
                    true => api::Transfer { rate_bytes_per_second: None, eta_seconds: None, ..transfer },
                    false => transfer,
                }
            }),
            shows_own_state: status.shows_own_state,
            changes_roles: unfinished_swap::is_under_way(status),
            source_heard: status.source_heard.map(convert::source_heard),
            source_heard_at: status.source_heard_at.map(convert::time),
            source_overtaken: status
                .relationship
                .upstream
                .overtaken
                .as_ref()
                .filter(|_| status.state != farside_mirror::State::BrokenOff)
                .map(|o| api::SourceOvertaken { by: o.by.clone(), since: convert::time(o.at) }),
            broken_off_at: broken_off_at(status),
            was_in_use: was_in_use(status),
            went_on_by: went_on_by(status),
            turned_at: status.relationship.past.turned_at.filter(|_| follows(status)).map(convert::time),
            set_aside: status.newest_rescue.as_deref().and_then(set_aside),
            owner: self.parts.daemon.clone(),
            ..self.undriven(&status.relationship)
        }
    }

    /// How old the data is that the mirror's volume shows, seconds, also once it is broken off.
    pub(crate) fn age_seconds(&self, status: &MirrorStatus, now: Timestamp) -> Option<f64> {
        status.age_seconds(now, peers::source_ahead(self.peer_of(status).as_ref()))
    }

    /// The peer that a mirror follows, or followed.
    pub(super) fn peer_of(&self, status: &MirrorStatus) -> Option<PeerStatus> {
        self.parts.node.peer(status.relationship.peer)
    }

    /// A mirror whose pool is not open: all that is known is its configuration.
    pub(super) fn undriven(&self, relationship: &Relationship) -> api::Mirror {
        let peer = peers::name_of(&self.parts.node, relationship.peer);
        api::Mirror {
            id: relationship.id,
            name: relationship.destination.to_string(),
            role: Role::Destination,
            source: format!("{peer}:{}", relationship.source),
            destination: relationship.destination.to_string(),
            state: match relationship {
                Relationship { broken_off_at: Some(_), .. } => MirrorState::BrokenOff,
                Relationship { quiesced: true, .. } => MirrorState::Quiesced,
                _ => MirrorState::Queued,
            },
            why: Some(format!(
                "it waits for pool {}, which is not open; farside pool list says why",
                relationship.destination.pool
            )),
            stopped: None,
            lag_seconds: None,
            objective_seconds: None,
            forecast_seconds: None,
            queue_position: None,
            group: relationship.group.clone(),
            owner: None,
            retention: (!relationship.retention.is_none()).then(|| relationship.retention.to_string()),
            current_snapshot: None,
            content_root: None,
            base_snapshot: None,
            last_proven_at: None,
            schedule: (relationship.schedule != Schedule::OnRequest)
                .then(|| relationship.schedule.to_string()),
            schedule_lost: relationship.schedule_lost,
            throttle: relationship.options.throttle.rate_at(self.parts.clock.now()).bytes_per_second(),
            link: Some(convert::link(&relationship.options)),
            transfer: None,
            shows_own_state: false,
            changes_roles: false,
            sleeping: false,
            group_split: None,
            overtaken: None,
            source_heard: None,
            source_heard_at: None,
            broken_off_at: None,
            was_in_use: None,
            went_on_by: None,
            turned_at: None,
            set_aside: None,
            source_overtaken: None,
            kept_as: None,
            hosts_refused: None,
            no_common_moment: false,
            way_back: None,
            first_copy_bytes: None,
            room_bytes: None,
            resized: None,
            source_follows: None,
            taken_over: None,
            given_up: None,
        }
    }
}

/// When hosts could write to it; none if they cannot.
fn broken_off_at(status: &MirrorStatus) -> Option<api::Timestamp> {
    if status.state != farside_mirror::State::BrokenOff {
        return None;
    }
    // The point may have rotated away since, and the moment have been lost with the database.
    let went_on = status.went_on_from.map(|from| from.at);
    status.relationship.broken_off_at.into_iter().chain(went_on).max().map(convert::time)
}

fn follows(status: &MirrorStatus) -> bool {
    status.state != farside_mirror::State::BrokenOff
}

/// When hosts could write to it, if it follows by a resync since.
fn was_in_use(status: &MirrorStatus) -> Option<api::WasInUse> {
    let resync = status.relationship.past.resync.filter(|_| follows(status))?;
    Some(api::WasInUse {
        from: convert::time(resync.was_broken_off_at.or(resync.taken_over_at)?),
        by: resync.went_on_by.map(by),
        until: convert::time(resync.at),
        left_as: status.left_as.clone(),
        taken_over_at: resync.taken_over_at.map(convert::time),
    })
}

/// By what hosts came to write to it; none if they cannot.
fn went_on_by(status: &MirrorStatus) -> Option<api::WentOnBy> {
    status.relationship.past.went_on_by.filter(|_| !follows(status)).map(by)
}

fn by(by: farside_mirror::WentOnBy) -> api::WentOnBy {
    match by {
        farside_mirror::WentOnBy::Break => api::WentOnBy::Break,
        farside_mirror::WentOnBy::RoleChange => api::WentOnBy::Swap,
    }
}

/// The side branch of this name, which has in it when it was set aside.
fn set_aside(name: &str) -> Option<api::SetAside> {
    let (at, _) = rescue_moment(name)?;
    Some(api::SetAside { name: name.to_owned(), at: at.parse().ok()? })
}

/// Whether something comes of the peer now.
fn is_heard(peer: &PeerStatus) -> bool {
    peers::answers(peer) && peer.silent_for.is_none()
}
