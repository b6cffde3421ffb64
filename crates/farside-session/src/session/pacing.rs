//! Holds the lanes of each path to what it is known to carry, those of all streams together: looks at their sockets while there are
//! streams of data, and tells the kernel. What is decided is in [`crate::pacing`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::Session;
use crate::pacing::{BUSY_SEGMENTS, LOOK_IDLE, LaneSeen, PathRate};
use crate::transport::{LinkFigures, SocketFigures};

/// One connection.
struct Paced {
    id: u64,
    path: usize,
    figures: Weak<dyn SocketFigures>,
}

/// A connection that is alive, and its number.
type Alive = (u64, Arc<dyn SocketFigures>);

/// The connections of a session that can be held to a rate.
#[derive(Default)]
pub(super) struct PacedLanes {
    next: AtomicU64,
    all: Mutex<Vec<Paced>>,
    wanted: Notify,
}

impl PacedLanes {
    pub(super) fn add(&self, path: usize, figures: &Arc<dyn SocketFigures>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.retain(|paced| paced.figures.strong_count() > 0);
        all.push(Paced { id, path, figures: Arc::downgrade(figures) });
    }

    /// There is a stream of data.
    pub(super) fn look(&self) {
        self.wanted.notify_one();
    }

    /// Those that are alive, by their path.
    fn alive(&self) -> HashMap<usize, Vec<Alive>> {
        let mut alive: HashMap<usize, Vec<_>> = HashMap::new();
        for paced in self.all.lock().iter() {
            if let Some(figures) = paced.figures.upgrade() {
                alive.entry(paced.path).or_default().push((paced.id, figures));
            }
        }
        alive
    }
}

fn seen(id: u64, figures: &LinkFigures) -> LaneSeen {
    LaneSeen {
        id,
        rtt: figures.rtt,
        min_rtt: figures.min_rtt,
        delivered_bytes: figures.delivered_bytes,
        is_busy: figures.in_flight_bytes >= BUSY_SEGMENTS * u64::from(figures.mss.max(1)),
        app_limited: figures.app_limited,
        buffer_limited: figures.buffer_limited,
        mss: figures.mss,
    }
}

/// Others do not pace by themselves, and a loss slows them before they flood anything.
fn is_bbr(figures: &LinkFigures) -> bool {
    figures.congestion.as_ref().is_some_and(|name| name.starts_with("bbr"))
}

impl Session {
    /// Until the session ends.
    pub(super) async fn pace_lanes(self: Arc<Self>) {
        let mut rates: HashMap<usize, PathRate> = HashMap::new();
        loop {
            if !self.lanes.has_data() {
                tokio::select! {
                    () = self.lost.cancelled() => return,
                    () = self.lanes.paced.wanted.notified() => continue,
                }
            }
            let now = self.lanes.now();
            let mut again = None;
            for (path, lanes) in self.lanes.paced.alive() {
                let rate = rates.entry(path).or_insert_with(PathRate::new);
                let known = lanes
                    .iter()
                    .filter_map(|(id, lane)| Some((lane, seen(*id, &lane.figures().filter(is_bbr)?))));
                let (lanes, seen): (Vec<_>, Vec<_>) = known.unzip();
                let before = rate.carries();
                for (lane, cap) in lanes.iter().zip(rate.see(now, &seen)) {
                    lane.pace(cap);
                }
                if let (None, Some(carries)) = (before, rate.carries()) {
                    tracing::debug!(peer = %self.terms.peer_name, path, carries, "the path is known to carry so many bytes per second");
                }
                let soon = rate.look_again(now, &seen);
                again = Some(again.map_or(soon, |again: Duration| again.min(soon)));
            }
            let Some(again) = again else {
                // No lane yet, or none that can be asked.
                tokio::select! {
                    () = self.lost.cancelled() => return,
                    () = sleep(LOOK_IDLE) => continue,
                }
            };
            tokio::select! {
                () = self.lost.cancelled() => return,
                () = sleep(again) => {}
            }
        }
    }
}
