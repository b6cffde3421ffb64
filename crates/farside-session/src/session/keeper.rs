//! The keeper of a bundle, at the side that dials: what lanes there should be, and how what is missing is dialled.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Session;
use super::lanes::{Carried, Given};
use crate::bundle::{BundleFigures, IdleLane};
use crate::error::SessionError;
use crate::limits::{LANE_STALL_MIN, LANELESS_REDIAL_MAX, LANES_LOOKED_AT_EVERY, SESSION_PROVEN_AFTER};
use crate::pauses::Pauses;
use crate::terms::PathTerms;

/// Lanes that a bundle should have on one path.
struct Wanted {
    path: PathTerms,
    lanes: usize,
    /// They carry data only while no others do.
    standby: bool,
}

/// What is known of the dials of one bundle on one path.
struct Dials {
    under_way: usize,
    pauses: Pauses,
    /// Not before this.
    retry_at: Option<Instant>,
    /// When the last one succeeded.
    succeeded: Option<Instant>,
}

impl Default for Dials {
    fn default() -> Self {
        Dials { under_way: 0, pauses: Pauses::new(), retry_at: None, succeeded: None }
    }
}

impl Session {
    /// Dials what a bundle lacks until it or the session ends.
    pub(super) async fn keep_lanes(self: Arc<Self>, carried: Arc<Carried>) {
        let mut dials: HashMap<PathTerms, Dials> = HashMap::new();
        let mut under_way: JoinSet<(PathTerms, Result<IdleLane, SessionError>)> = JoinSet::new();
        let mut given = carried.given.subscribe();
        loop {
            // Not one dial for a bundle that is over: it would take a warm lane from the next one.
            if matches!(*given.borrow_and_update(), Given::Refused(_)) {
                return;
            }
            let now = Instant::now();
            let figures = carried.bundle.figures();
            if carried.is_control() {
                self.note_paths(&figures);
            }
            let mut wake = None;
            for wanted in self.wanted(&carried, &figures) {
                let dials = dials.entry(wanted.path.clone()).or_default();
                for _ in 0..self.missing(&wanted, &figures, dials.under_way) {
                    if let Some(mut lane) = self.warm_lane(&wanted.path, &carried).await {
                        lane.terms.standby = wanted.standby;
                        self.give(&carried, lane);
                        continue;
                    }
                    if figures.lanes.is_empty() {
                        // Nothing moves, and the session itself has not long to live: a pause that was drawn while there was a
                        // lane does not hold.
                        dials.retry_at = dials.retry_at.map(|at| at.min(now + LANELESS_REDIAL_MAX));
                    }
                    if let Some(at) = dials.retry_at.filter(|at| *at > now) {
                        wake = Some(wake.map_or(at, |wake: Instant| wake.min(at)));
                        break;
                    }
                    dials.under_way += 1;
                    let (session, carried) = (Arc::clone(&self), Arc::clone(&carried));
                    let (path, standby) = (wanted.path.clone(), wanted.standby);
                    under_way.spawn(async move {
                        let dialled = session.new_lane(&path, &carried).await.map(|mut lane| {
                            lane.terms.standby = standby;
                            lane
                        });
                        (path, dialled)
                    });
                }
            }
            let next_change = self.lanes.paths.lock().next_change(self.lanes.now());
            let next_change = next_change.map(|at| self.lanes.started + at);
            let look_again = now + LANES_LOOKED_AT_EVERY;
            let wake =
                [wake, next_change, Some(look_again)].into_iter().flatten().min().unwrap_or(look_again);
            tokio::select! {
                () = self.lost.cancelled() => return,
                ended = given.wait_for(|given| matches!(given, Given::Refused(_))) => { drop(ended); return }
                () = carried.look.notified() => {}
                () = sleep_until(wake.max(now)) => {}
                lanes = carried.bundle.lanes_wanted() => {
                    for lost in lanes.lost {
                        tracing::info!(
                            peer = %self.terms.peer_name, path = lost.path, ended = lost.ended,
                            "a lane was lost: {}", lost.reason
                        );
                    }
                }
                Some(Ok((path, dialled))) = under_way.join_next() => {
                    let dials = dials.entry(path.clone()).or_default();
                    dials.under_way -= 1;
                    self.take_dialled(&carried, dials, &path, dialled);
                }
            }
        }
    }

    /// A dial has ended.
    fn take_dialled(
        &self,
        carried: &Carried,
        dials: &mut Dials,
        path: &PathTerms,
        dialled: Result<IdleLane, SessionError>,
    ) {
        let now = Instant::now();
        match dialled {
            Ok(lane) => {
                // A lane that dies as soon as it is there is a failure, too.
                let is_proven = dials.succeeded.is_none_or(|at| now >= at + SESSION_PROVEN_AFTER);
                if is_proven {
                    dials.pauses = Pauses::new();
                }
                dials.succeeded = Some(now);
                dials.retry_at = (!is_proven).then(|| now + dials.pauses.draw(&*self.around.random));
                *carried.trouble.lock() = None;
                self.give(carried, lane);
            }
            // The peer has no such session, or does not know this side any more: nothing that is dialled for it will do.
            Err(
                e
                @ (SessionError::Lost(_) | SessionError::NotAuthenticated(_) | SessionError::Version { .. }),
            ) => {
                self.close(&e.to_string());
            }
            Err(e) => {
                dials.retry_at = Some(now + dials.pauses.draw(&*self.around.random));
                let trouble = e.to_string();
                if carried.trouble.lock().replace(trouble.clone()).as_ref() != Some(&trouble) {
                    tracing::warn!(peer = %self.terms.peer_name, %path, "no lane on this path, will keep trying: {trouble}");
                }
            }
        }
    }

    /// How many lanes are to be dialled.
    fn missing(&self, wanted: &Wanted, figures: &BundleFigures, under_way: usize) -> usize {
        let number = self.lanes.number(&wanted.path);
        let here = || figures.lanes.iter().filter(|lane| lane.path == number);
        // Those on standby will do, too: they are put to use first.
        let live = here().filter(|lane| !lane.stalled).count();
        // What is stalled may move again: for each such lane there is one in its place, and no more.
        let room = (2 * wanted.lanes).saturating_sub(here().count());
        wanted.lanes.saturating_sub(live).min(room).saturating_sub(under_way)
    }

    /// What lanes a bundle should have now.
    fn wanted(&self, carried: &Carried, figures: &BundleFigures) -> Vec<Wanted> {
        let all: Vec<PathTerms> = self.lanes.paths.lock().all().cloned().collect();
        let known: Vec<usize> =
            all.iter().chain(&carried.paths).map(|path| self.lanes.number(path)).collect();
        carried.bundle.retire_lanes(|path| !known.contains(&path));
        if carried.is_control() {
            // One on each path. Calls go over the first while it works: spread, each would wait for the slowest path.
            let first = known.first().copied();
            carried.bundle.use_lanes(|path| usize::from(Some(path) == first));
            let on = |(at, path)| Wanted { path, lanes: 1, standby: at > 0 };
            return all.into_iter().enumerate().map(on).collect();
        }
        let paths = if carried.paths.is_empty() {
            self.lanes.paths.lock().for_data(self.lanes.now())
        } else {
            carried.paths.clone()
        };
        let numbers: Vec<usize> = paths.iter().map(|path| self.lanes.number(path)).collect();
        let lanes = carried.use_lanes(figures, &numbers).max(carried.asked());
        paths.into_iter().map(|path| Wanted { path, lanes, standby: false }).collect()
    }

    /// A path works as long as its lane of the control stream does, or one that carries data makes progress: behind seconds of
    /// data in a queue a ping comes too late to say so.
    fn note_paths(&self, figures: &BundleFigures) {
        let mut changed = false;
        let data: Vec<BundleFigures> = {
            let bundles = self.lanes.bundles();
            let data = bundles.iter().filter(|carried| !carried.is_control());
            data.map(|carried| carried.bundle.figures()).collect()
        };
        let moves = |number: usize| {
            let here = data.iter().flat_map(|figures| &figures.lanes).filter(|lane| lane.path == number);
            here.filter(|lane| !lane.stalled && lane.delivered_bytes > 0)
                .any(|lane| lane.quiet < LANE_STALL_MIN)
        };
        {
            let mut paths = self.lanes.paths.lock();
            let now = self.lanes.now();
            let all: Vec<PathTerms> = paths.all().cloned().collect();
            for path in all {
                let number = self.lanes.number(&path);
                let is_up =
                    figures.lanes.iter().any(|lane| lane.path == number && !lane.stalled) || moves(number);
                if is_up != paths.is_up(&path) {
                    changed = true;
                    paths.set_up(&path, is_up, now);
                    let peer = &self.terms.peer_name;
                    if is_up {
                        tracing::info!(%peer, %path, "the path works");
                    } else {
                        tracing::warn!(%peer, %path, "the path does not work; others carry on if there are any");
                    }
                }
            }
        }
        if changed {
            self.lanes.look_everywhere();
        }
    }
}
