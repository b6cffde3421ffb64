//! What a bundle's stats say about the number of its lanes: from stats to what [`LaneCount`] is told. Pure.

use std::collections::HashMap;
use std::time::Duration;

use super::count::{FAR, LaneCount, Seen};
use crate::bundle::{BundleStats, LaneId, LaneStats};
use crate::limits::{LANES_PER_PATH_MAX, MORE_LANES_AFTER};
use crate::pacing::{is_near, is_queue};
use crate::transport::LinkStats;

/// Share of the time in which the sockets must have been what limited, for a look to say something of them.
const BACKLOGGED: f64 = 0.9;
/// A socket that says that its buffer is what limits is believed if so much is on its way, bytes: a sender that comes late with the
/// next segment makes the kernel say the same, and a small buffer is not what bounds a short link.
const BUFFER_MIN: u64 = 1 << 20;

/// Watches the lanes of one bundle, for what this side sends.
#[derive(Debug)]
pub struct LaneWatch {
    count: LaneCount,
    /// Age of the bundle and time limited by its sockets, at the last look.
    before: (Duration, Duration),
    sockets: HashMap<LaneId, LinkStats>,
    /// What each path held, at the last looks: a rate is that of a round trip, and goes up and down.
    held: [u64; 3],
}

impl LaneWatch {
    /// For a stream over a link on which `start` lanes on each path were right the last time, if that is known, and which has
    /// `at_once` from the first byte.
    pub fn new(start: Option<usize>, at_once: usize) -> LaneWatch {
        LaneWatch {
            count: LaneCount::new(start, LANES_PER_PATH_MAX).at_once(at_once),
            before: (Duration::ZERO, Duration::ZERO),
            sockets: HashMap::new(),
            held: [0; 3],
        }
    }

    /// Lanes on each path that this side's sending needed, as last seen. `None` if it sent too little to tell.
    pub fn needed(&self) -> Option<usize> {
        self.count.has_started.then(|| self.count.kept())
    }

    /// Looks at the stats of the bundle, of which the paths with these numbers shall carry data; as often as once in a round
    /// trip or so. How many lanes each of them should have.
    pub fn look(&mut self, stats: &BundleStats, paths: &[usize]) -> usize {
        let used = || stats.lanes.iter().filter(|lane| !lane.standby && !lane.stalled);
        let lanes = paths.iter().map(|path| used().filter(|lane| lane.path == *path).count()).min();
        let over = stats.age.saturating_sub(self.before.0);
        if over.is_zero() {
            return self.count.wanted();
        }
        let limited = stats.socket_limited.saturating_sub(self.before.1);
        self.before = (stats.age, stats.socket_limited);
        // Where the path is near, one that heeds losses makes good for each within a millisecond or two.
        let slowed = |socket: &LinkStats| {
            let name = socket.congestion.as_ref();
            name.is_some_and(|name| !name.starts_with("bbr")) && !is_near(socket.min_rtt)
        };
        let min_rtt = min_rtt(stats);
        // A stream that sends little is over before a further handshake is.
        let enough = if min_rtt >= FAR { MORE_LANES_AFTER / 2 } else { MORE_LANES_AFTER };
        let seen = Seen {
            min_rtt,
            now: stats.age,
            lanes: lanes.unwrap_or_default(),
            delivered_bytes: stats
                .sent_bytes
                .saturating_sub(stats.retransmitted_bytes)
                .saturating_sub(stats.in_flight_bytes),
            rtt: used().map(round_trip).max().unwrap_or_default(),
            is_paced: !used().filter_map(|lane| lane.socket.as_ref()).any(slowed),
            was_backlogged: stats.sent_bytes >= enough
                && limited.as_secs_f64() >= BACKLOGGED * over.as_secs_f64(),
            is_full: is_full(used()),
            held_bytes: self.held_bytes(stats, paths.len()),
            buffer_limited: self.buffer_limited(stats),
        };
        let before = self.count.wanted();
        let wanted = self.count.see(&seen);
        if wanted != before {
            tracing::debug!(
                before,
                wanted,
                here = seen.lanes,
                rtt_ms = seen.rtt.as_millis(),
                buffer_limited = seen.buffer_limited,
                backlogged = seen.was_backlogged,
                "another number of lanes"
            );
        }
        wanted
    }

    /// What each of so many paths holds: the least of the last looks.
    fn held_bytes(&mut self, stats: &BundleStats, paths: usize) -> u64 {
        let rtt = min_rtt(stats);
        let rate = stats.delivery_rate.unwrap_or_default() / paths.max(1) as u64;
        self.held.rotate_left(1);
        self.held[2] = (rate as f64 * rtt.as_secs_f64()) as u64;
        self.held.into_iter().min().unwrap_or_default()
    }

    /// Share of the lanes' time since the last look for which this side's buffer was what limited.
    fn buffer_limited(&mut self, stats: &BundleStats) -> f64 {
        let (mut limited, mut over) = (Duration::ZERO, Duration::ZERO);
        self.sockets.retain(|id, _| stats.lanes.iter().any(|lane| lane.id == *id));
        for lane in stats.lanes.iter().filter(|lane| !lane.standby) {
            let Some(now) = &lane.socket else { continue };
            if let Some(before) = self.sockets.insert(lane.id, now.clone()) {
                let since = now.since(&before);
                over += since.busy;
                if now.in_flight_bytes >= BUFFER_MIN {
                    limited += since.buffer_limited.min(since.busy);
                }
            }
        }
        if over.is_zero() { 0.0 } else { limited.as_secs_f64() / over.as_secs_f64() }
    }
}

/// The shortest round trip without queues; zero if none is known.
pub fn min_rtt(stats: &BundleStats) -> Duration {
    let rtts = stats.lanes.iter().filter_map(|lane| lane.socket.as_ref()).map(|socket| socket.min_rtt);
    rtts.filter(|rtt| !rtt.is_zero()).min().unwrap_or_default()
}

/// Whether there are sockets, and all of them see a queue.
fn is_full<'a>(lanes: impl Iterator<Item = &'a LaneStats>) -> bool {
    let mut sockets = lanes.filter_map(|lane| lane.socket.as_ref()).peekable();
    sockets.peek().is_some()
        && sockets.all(|socket| !socket.min_rtt.is_zero() && is_queue(socket.rtt, socket.min_rtt))
}

/// A lane's round trip: its socket's, or what a segment takes.
fn round_trip(lane: &LaneStats) -> Duration {
    let of_socket = lane.socket.as_ref().map(|socket| socket.rtt).filter(|rtt| !rtt.is_zero());
    of_socket.or(lane.latency).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Lanes that bring so many bytes a second each, of a socket whose buffer is full for a share of the time.
    struct Link {
        stats: BundleStats,
        each: f64,
        full: f64,
    }

    const LOOK: Duration = Duration::from_millis(100);

    impl Link {
        fn new(congestion: &str, each: f64, full: f64) -> Link {
            let stats = BundleStats {
                lanes: Vec::new(),
                written_bytes: 0,
                sent_bytes: 0,
                retransmitted_bytes: 0,
                in_flight_bytes: 0,
                received_bytes: 0,
                duplicate_bytes: 0,
                window: 0,
                credit: 0,
                blocked: Default::default(),
                age: Duration::ZERO,
                socket_limited: Duration::ZERO,
                delivery_rate: None,
            };
            let mut link = Link { stats, each, full };
            link.set_lanes(1, congestion);
            link
        }

        fn set_lanes(&mut self, lanes: usize, congestion: &str) {
            let lane = |n: usize| LaneStats {
                id: LaneId(n as u32),
                path: 0,
                standby: false,
                stalled: false,
                quiet: Duration::ZERO,
                has_data: false,
                answered: None,
                heard: Duration::ZERO,
                received_bytes: 0,
                delivered_bytes: 0,
                latency: None,
                socket: Some(LinkStats {
                    rtt: LOOK,
                    congestion: Some(Arc::from(congestion)),
                    in_flight_bytes: 2 * BUFFER_MIN,
                    ..LinkStats::default()
                }),
            };
            let here = self.stats.lanes.len();
            self.stats.lanes.truncate(lanes);
            self.stats.lanes.extend((here..lanes).map(lane));
        }

        /// So many looks; the lanes wanted after each.
        fn run(
            &mut self,
            watch: &mut LaneWatch,
            congestion: &str,
            looks: usize,
            backlogged: f64,
        ) -> Vec<usize> {
            let wanted = (0..looks).map(|_| {
                self.stats.age += LOOK;
                self.stats.socket_limited += LOOK.mul_f64(backlogged);
                let brought = self.each * LOOK.as_secs_f64() * self.stats.lanes.len() as f64;
                self.stats.sent_bytes += brought as u64;
                for lane in &mut self.stats.lanes {
                    if let Some(socket) = &mut lane.socket {
                        socket.busy += LOOK;
                        socket.buffer_limited += LOOK.mul_f64(self.full);
                    }
                }
                let wanted = watch.look(&self.stats, &[0]);
                self.set_lanes(wanted, congestion);
                wanted
            });
            wanted.collect()
        }
    }

    #[test]
    fn one_lane_of_bbr_four_of_cubic_and_only_once_something_was_sent() {
        for (congestion, lanes) in [("bbr", 1), ("cubic", 4)] {
            let (mut watch, mut link) = (LaneWatch::new(None, 1), Link::new(congestion, 1e6, 0.0));
            assert_eq!(link.run(&mut watch, congestion, 2, 1.0), [1, 1]);
            assert_eq!(link.run(&mut watch, congestion, 4, 1.0).last(), Some(&lanes), "{congestion}");
        }
    }

    #[test]
    fn what_waits_for_a_throttle_or_the_application_gets_no_more() {
        let (mut watch, mut link) = (LaneWatch::new(None, 1), Link::new("cubic", 4e6, 0.9));
        assert_eq!(link.run(&mut watch, "cubic", 500, 0.8).last(), Some(&1));
    }

    #[test]
    fn a_full_buffer_gets_more_at_once_unless_little_is_on_its_way() {
        let (mut watch, mut link) = (LaneWatch::new(None, 1), Link::new("bbr", 20e6, 0.9));
        let wanted = link.run(&mut watch, "bbr", 16, 1.0);
        assert_eq!((wanted.first(), wanted.last()), (Some(&1), Some(&16)), "{wanted:?}");
        let (mut watch, mut link) = (LaneWatch::new(None, 1), Link::new("bbr", 20e6, 0.9));
        for _ in 0..16 {
            link.stats
                .lanes
                .iter_mut()
                .for_each(|lane| lane.socket.as_mut().unwrap().in_flight_bytes = 100_000);
            link.run(&mut watch, "bbr", 1, 1.0);
        }
        assert_eq!(watch.needed(), Some(1));
    }
}
