//! Holds the lanes of each path to what it is known to carry, those of all streams together: looks at their sockets while there are
//! streams of data, and tells the kernel. What is decided is in [`super::rate`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep};

use super::rate::{BUSY_SEGMENTS, LOOK_IDLE, LaneSeen, PathRate};
use crate::transport::{LinkStats, SocketStats};

/// One connection.
struct Paced {
    id: u64,
    path: usize,
    stats: Weak<dyn SocketStats>,
}

/// A connection that is alive, and its number.
type Alive = (u64, Arc<dyn SocketStats>);

/// The connections to one site that can be held to a rate.
#[derive(Default)]
pub struct PacedLanes {
    next: AtomicU64,
    all: Mutex<Vec<Paced>>,
    wanted: Notify,
}

impl PacedLanes {
    /// A connection that was made.
    pub fn add(&self, path: usize, stats: &Arc<dyn SocketStats>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.retain(|paced| paced.stats.strong_count() > 0);
        all.push(Paced { id, path, stats: Arc::downgrade(stats) });
    }

    /// There is a stream of data.
    pub fn look(&self) {
        self.wanted.notify_one();
    }

    /// Those that are alive, by their path.
    fn alive(&self) -> HashMap<usize, Vec<Alive>> {
        let mut alive: HashMap<usize, Vec<_>> = HashMap::new();
        for paced in self.all.lock().iter() {
            if let Some(stats) = paced.stats.upgrade() {
                alive.entry(paced.path).or_default().push((paced.id, stats));
            }
        }
        alive
    }
}

fn seen(id: u64, stats: &LinkStats) -> LaneSeen {
    LaneSeen {
        id,
        rtt: stats.rtt,
        min_rtt: stats.min_rtt,
        delivered_bytes: stats.delivered_bytes,
        is_busy: stats.in_flight_bytes >= BUSY_SEGMENTS * u64::from(stats.mss.max(1)),
        app_limited: stats.app_limited,
        buffer_limited: stats.buffer_limited,
        mss: stats.mss,
    }
}

/// Others do not pace by themselves, and a loss slows them before they flood anything.
fn is_bbr(stats: &LinkStats) -> bool {
    stats.congestion.as_ref().is_some_and(|name| name.starts_with("bbr"))
}

impl PacedLanes {
    /// For as long as it is polled. `has_data` says whether there are streams of data; `name` is the other side's, for log lines.
    pub async fn run(&self, has_data: impl Fn() -> bool, name: &str) {
        let started = Instant::now();
        let mut rates: HashMap<usize, PathRate> = HashMap::new();
        loop {
            if !has_data() {
                self.wanted.notified().await;
                continue;
            }
            let now = started.elapsed();
            let mut again = None;
            for (path, lanes) in self.alive() {
                let rate = rates.entry(path).or_insert_with(PathRate::new);
                let known = lanes
                    .iter()
                    .filter_map(|(id, lane)| Some((lane, seen(*id, &lane.stats().filter(is_bbr)?))));
                let (lanes, seen): (Vec<_>, Vec<_>) = known.unzip();
                let before = rate.carries();
                for (lane, cap) in lanes.iter().zip(rate.see(now, &seen)) {
                    lane.pace(cap);
                }
                if let (None, Some(carries)) = (before, rate.carries()) {
                    tracing::debug!(
                        peer = name,
                        path,
                        carries,
                        "the path is known to carry so many bytes per second"
                    );
                }
                let soon = rate.look_again(now, &seen);
                again = Some(again.map_or(soon, |again: Duration| again.min(soon)));
            }
            // No lane yet, or none that can be asked.
            sleep(again.unwrap_or(LOOK_IDLE)).await;
        }
    }
}
