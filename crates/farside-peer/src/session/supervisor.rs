//! The connection supervisor of a bundle, at the side that dials: compares what lanes there are with what there should be, and
//! dials what is missing, with pauses that grow while a path does not answer. The control stream is a bundle too, with one lane
//! on each path: it shows which paths work.

use std::collections::HashMap;
use std::sync::Arc;

use farside_link::limits::LANE_STALL_MIN;
use farside_link::{Backoff, BundleStats, IdleLane, PathSpec};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::entry::{BundleEntry, Given};
use super::holds::Told;
use super::lanes::{give, idle_lane, new_lane};
use super::packets::{close_too_large, is_too_large};
use super::state::Session;
use crate::error::SessionError;
use crate::limits::{LANELESS_REDIAL_MAX, LANES_LOOKED_AT_EVERY, SESSION_PROVEN_AFTER};

/// Lanes that a bundle should have on one path.
struct Wanted {
    path: PathSpec,
    lanes: usize,
    /// They carry data only while no others do.
    standby: bool,
}

/// What is known of the dials of one bundle on one path.
struct Dials {
    under_way: usize,
    backoff: Backoff,
    /// Not before this.
    retry_at: Option<Instant>,
    /// When the last one succeeded.
    succeeded: Option<Instant>,
}

impl Default for Dials {
    fn default() -> Self {
        Dials { under_way: 0, backoff: Backoff::new(), retry_at: None, succeeded: None }
    }
}

/// Dials what a bundle without until it or the session ends.
pub(super) async fn supervise_lanes(session: Arc<Session>, entry: Arc<BundleEntry>) {
    let mut dials: HashMap<PathSpec, Dials> = HashMap::new();
    let mut under_way: JoinSet<(PathSpec, Result<IdleLane, SessionError>)> = JoinSet::new();
    let mut given = entry.given.subscribe();
    let mut told = Told::default();
    loop {
        // Not one dial for a bundle that is over: it would take an idle lane from the next one.
        if matches!(*given.borrow_and_update(), Given::Refused(_)) {
            return;
        }
        let now = Instant::now();
        let stats = entry.bundle.stats();
        if entry.is_control() {
            note_paths(&session, &stats);
        } else {
            told.follow(&session, &entry);
        }
        let mut wake = None;
        for wanted in wanted(&session, &entry, &stats) {
            let dials = dials.entry(wanted.path.clone()).or_default();
            close_too_large(&session, &entry, &wanted.path, &stats);
            for _ in 0..missing(&session, &wanted, &stats, dials.under_way) {
                if let Some(mut lane) = idle_lane(&session, &wanted.path, &entry).await {
                    lane.options.standby = wanted.standby;
                    give(&entry, lane);
                    continue;
                }
                if stats.lanes.is_empty() {
                    // Nothing moves, and the session itself has not long to live: a pause that was drawn while there was a
                    // lane does not hold.
                    dials.retry_at = dials.retry_at.map(|at| at.min(now + LANELESS_REDIAL_MAX));
                }
                if let Some(at) = dials.retry_at.filter(|at| *at > now) {
                    wake = Some(wake.map_or(at, |wake: Instant| wake.min(at)));
                    break;
                }
                dials.under_way += 1;
                let (session, entry) = (Arc::clone(&session), Arc::clone(&entry));
                let (path, standby) = (wanted.path.clone(), wanted.standby);
                under_way.spawn(async move {
                    let dialled = new_lane(&session, &path, &entry).await.map(|mut lane| {
                        lane.options.standby = standby;
                        lane
                    });
                    (path, dialled)
                });
            }
        }
        let next_change = session.lanes.paths.lock().next_change(session.lanes.now());
        let next_change = next_change.map(|at| session.lanes.started + at);
        let look_again = now + LANES_LOOKED_AT_EVERY;
        let wake = [wake, next_change, Some(look_again)].into_iter().flatten().min().unwrap_or(look_again);
        tokio::select! {
            () = session.lost.cancelled() => return,
            ended = given.wait_for(|given| matches!(given, Given::Refused(_))) => { drop(ended); return }
            () = entry.look.notified() => {}
            () = sleep_until(wake.max(now)) => {}
            lanes = entry.bundle.lanes_wanted() => {
                for lost in lanes.lost {
                    tracing::info!(
                        peer = %session.info.peer_name, path = lost.path, ended = lost.ended,
                        "a lane was lost: {}", lost.reason
                    );
                }
            }
            Some(Ok((path, dialled))) = under_way.join_next() => {
                let dials = dials.entry(path.clone()).or_default();
                dials.under_way -= 1;
                take_dialled(&session, &entry, dials, &path, dialled);
            }
        }
    }
}

/// A dial has ended.
fn take_dialled(
    session: &Session,
    entry: &BundleEntry,
    dials: &mut Dials,
    path: &PathSpec,
    dialled: Result<IdleLane, SessionError>,
) {
    let now = Instant::now();
    match dialled {
        Ok(lane) => {
            // A lane that dies as soon as it is there is a failure, too.
            let is_proven = dials.succeeded.is_none_or(|at| now >= at + SESSION_PROVEN_AFTER);
            if is_proven {
                dials.backoff = Backoff::new();
            }
            dials.succeeded = Some(now);
            dials.retry_at = (!is_proven).then(|| now + dials.backoff.next_delay(&*session.context.random));
            *entry.trouble.lock() = None;
            session.lanes.note_dial(path, None);
            give(entry, lane);
        }
        // The peer has no such session, or does not know this side any more: nothing that is dialled for it will do.
        // Whoever reads the reason reads that the session was lost, too.
        Err(SessionError::Lost(reason)) => {
            session.close(&reason);
        }
        Err(e @ (SessionError::NotAuthenticated(_) | SessionError::Version { .. })) => {
            session.close(&e.to_string());
        }
        Err(e) => {
            dials.retry_at = Some(now + dials.backoff.next_delay(&*session.context.random));
            let trouble = e.to_string();
            session.lanes.note_dial(path, Some(trouble.clone()));
            if entry.trouble.lock().replace(trouble.clone()).as_ref() != Some(&trouble) {
                tracing::warn!(peer = %session.info.peer_name, %path, "no lane on this path, will keep trying: {trouble}");
            }
        }
    }
}

/// How many lanes are to be dialled.
fn missing(session: &Session, wanted: &Wanted, stats: &BundleStats, under_way: usize) -> usize {
    let number = session.lanes.number(&wanted.path);
    let here = || stats.lanes.iter().filter(|lane| lane.path == number);
    // Those on standby will do, too: they are put to use first.
    let fit = || here().filter(|lane| !is_too_large(session, &wanted.path, lane));
    let live = fit().filter(|lane| !lane.stalled).count();
    // What is stalled may move again: for each such lane there is one in its place, and no more. Those that are too large for their
    // path are about to be closed.
    let room = (2 * wanted.lanes).saturating_sub(fit().count());
    wanted.lanes.saturating_sub(live).min(room).saturating_sub(under_way)
}

/// What lanes a bundle should have now.
fn wanted(session: &Session, entry: &BundleEntry, stats: &BundleStats) -> Vec<Wanted> {
    let all: Vec<PathSpec> = session.lanes.paths.lock().all().cloned().collect();
    let known: Vec<usize> = all.iter().chain(&entry.paths).map(|path| session.lanes.number(path)).collect();
    entry.bundle.retire_lanes(|path| !known.contains(&path));
    if entry.is_control() {
        // One on each path. Calls go over the first while it works: spread, each would wait for the slowest path.
        let first = known.first().copied();
        entry.bundle.use_lanes(|path| usize::from(Some(path) == first));
        let on = |(at, path)| Wanted { path, lanes: 1, standby: at > 0 };
        return all.into_iter().enumerate().map(on).collect();
    }
    let paths = if entry.paths.is_empty() {
        session.lanes.paths.lock().for_data(session.lanes.now())
    } else {
        entry.paths.clone()
    };
    let numbers: Vec<usize> = paths.iter().map(|path| session.lanes.number(path)).collect();
    let lanes = entry.use_lanes(stats, &numbers).max(entry.asked());
    paths.into_iter().map(|path| Wanted { path, lanes, standby: false }).collect()
}

/// A path works as long as its lane of the control stream does, or one that carries data makes progress: behind seconds of
/// data in a queue a ping comes too late to say so.
fn note_paths(session: &Session, stats: &BundleStats) {
    let mut changed = false;
    let data: Vec<BundleStats> = {
        let bundles = session.lanes.bundles();
        let data = bundles.iter().filter(|entry| !entry.is_control());
        data.map(|entry| entry.bundle.stats()).collect()
    };
    let moves = |number: usize| {
        let here = data.iter().flat_map(|stats| &stats.lanes).filter(|lane| lane.path == number);
        here.filter(|lane| !lane.stalled && lane.delivered_bytes > 0).any(|lane| lane.quiet < LANE_STALL_MIN)
    };
    {
        let mut paths = session.lanes.paths.lock();
        let now = session.lanes.now();
        let all: Vec<PathSpec> = paths.all().cloned().collect();
        for path in all {
            let number = session.lanes.number(&path);
            let is_up = stats.lanes.iter().any(|lane| lane.path == number && !lane.stalled) || moves(number);
            if is_up != paths.is_up(&path) {
                changed = true;
                paths.set_up(&path, is_up, now);
                let peer = &session.info.peer_name;
                if is_up {
                    tracing::info!(%peer, %path, "the path works");
                } else {
                    tracing::warn!(%peer, %path, "the path is down; the session goes on over its other paths, if \
                         there are any");
                }
            }
        }
    }
    if changed {
        session.lanes.look_everywhere();
    }
}
