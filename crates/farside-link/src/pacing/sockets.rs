//! Holds the lanes of each path to what it is known to carry, those of all streams together: looks at their sockets while there are
//! streams of data, and tells the kernel. What is decided is in [`super::rate`].
//!
//! **Near paths** are left to a congestion control that heeds losses. BBR keeps twice what the path holds in flight, and three
//! bursts of a millisecond (64 KB at most) besides; a path that holds nothing has no queue for that which lasts long enough to be
//! seen as one, and BBR heeds no loss. On 1 Gb/s with a queue of 100 packets 11 of 100 packets were sent twice, on 100 Mb/s with
//! one of 20 packets 60; cubic sent 0.2 to 3 of them (iperf3). What it is worse at, a loss now and then, it makes good within a
//! millisecond or two there.

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

/// A round trip that is shorter is of a near path.
const NEAR: Duration = Duration::from_millis(1);

/// Whether this is known of a path with such a round trip.
pub(crate) fn is_near(min_rtt: Duration) -> bool {
    !min_rtt.is_zero() && min_rtt < NEAR
}

/// Of a lane that can be held to a rate. One whose path is near heeds losses from now on, and is not held; unless the host does not
/// have what that takes.
fn stats_of_paced(lane: &Arc<dyn SocketStats>) -> Option<LinkStats> {
    let stats = lane.stats().filter(is_bbr)?;
    if !is_near(stats.min_rtt) {
        return Some(stats);
    }
    lane.heed_losses();
    let stats = lane.stats()?;
    if !is_bbr(&stats) {
        lane.pace(None);
    }
    Some(stats).filter(is_bbr)
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
                let known =
                    lanes.iter().filter_map(|(id, lane)| Some((lane, seen(*id, &stats_of_paced(lane)?))));
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::transport::SocketOptions;

    /// A connection on a host that has cubic, or not.
    struct Lane {
        min_rtt: Duration,
        has_cubic: bool,
        heeds_losses: AtomicBool,
        cap: Mutex<Option<u64>>,
    }

    impl SocketStats for Lane {
        fn stats(&self) -> Option<LinkStats> {
            let is_cubic = self.has_cubic && self.heeds_losses.load(Ordering::Relaxed);
            let congestion = Some(if is_cubic { "cubic" } else { "bbr" }.into());
            Some(LinkStats { min_rtt: self.min_rtt, rtt: self.min_rtt, congestion, ..LinkStats::default() })
        }

        fn apply(&self, _: &SocketOptions) {}

        fn pace(&self, rate: Option<u64>) {
            *self.cap.lock() = rate;
        }

        fn heed_losses(&self) {
            self.heeds_losses.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_near_heeds_losses_and_is_not_paced() {
        let look = |micros, has_cubic| {
            let cap = Mutex::new(Some(1));
            let heeds_losses = AtomicBool::default();
            let lane =
                Arc::new(Lane { min_rtt: Duration::from_micros(micros), has_cubic, heeds_losses, cap });
            let is_paced = stats_of_paced(&(Arc::clone(&lane) as Arc<dyn SocketStats>)).is_some();
            (lane.heeds_losses.load(Ordering::Relaxed), is_paced, *lane.cap.lock())
        };
        assert_eq!(look(200, true), (true, false, None));
        assert_eq!(look(200, false), (true, true, Some(1)), "BBR is what there is");
        assert_eq!(look(2_000, true), (false, true, Some(1)));
        // Not known yet.
        assert_eq!(look(0, true), (false, true, Some(1)));
    }
}
