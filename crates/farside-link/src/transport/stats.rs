//! What a connection knows of its link, whichever transport made it.

use std::sync::Arc;
use std::time::Duration;

use super::options::SocketOptions;

/// A live connection that can be asked how it goes, and told to go otherwise. It does not keep the connection open.
pub trait SocketStats: Send + Sync {
    /// How it goes; `None` once the connection is closed, and where nothing is known. Costs a system call of about a
    /// microsecond: for once in a round trip, not for each segment.
    fn stats(&self) -> Option<LinkStats>;

    /// Asks for other options; `local` is as it was. What the kernel does not grant stays as it is.
    fn apply(&self, options: &SocketOptions);

    /// Holds it to so many bytes per second, beside the committed rate of its options; `None`: to no more than those.
    fn pace(&self, rate: Option<u64>);

    /// The path has turned out to be near: for as long as the connection lives, a loss slows it, where that was left to farside.
    fn heed_losses(&self) {}
}

/// A connection of which nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStats;

impl SocketStats for NoStats {
    fn stats(&self) -> Option<LinkStats> {
        None
    }

    fn apply(&self, _: &SocketOptions) {}

    fn pace(&self, _: Option<u64>) {}
}

/// How a connection goes, in its sending direction. Sums are over its life; see [`LinkStats::since`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LinkStats {
    /// Round trip, smoothed, queues included. Zero: not measured.
    pub rtt: Duration,
    /// Shortest round trip of late (Linux: five minutes): the path without queues. Zero: not measured.
    pub min_rtt: Duration,
    /// Bytes per second that arrived, as measured over about a round trip: the latest measure, or a higher one from a time with too
    /// little to send. What the link carries at least; a window per round trip is no such bound, as BBR's is two to three times what
    /// the path holds.
    pub delivery_rate: Option<u64>,
    /// That rate was of a time in which the connection had too little to send: the link carries at least that, not at most.
    pub app_limited: bool,
    /// Bytes written and not yet sent.
    pub unsent_bytes: u64,
    /// Bytes sent and not yet acknowledged.
    pub in_flight_bytes: u64,
    /// The most that congestion control has in flight now: congestion window x segment, bytes.
    pub window_bytes: u64,
    /// The rate at which the kernel spreads what it sends, bytes per second.
    pub pacing_rate: Option<u64>,
    /// Name of the congestion control that was granted.
    pub congestion: Option<Arc<str>>,
    /// How often in a row the kernel has sent the same again and nothing of it has arrived.
    pub timeouts: u32,
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// Largest packet that the path takes, bytes, as far as the kernel knows.
    pub path_mtu: Option<u32>,
    /// Bytes that have arrived, out of order too; counted in full segments, so a little more than there were.
    pub delivered_bytes: u64,
    /// Bytes that have arrived in order, exactly.
    pub acknowledged_bytes: u64,
    /// Bytes sent, repeated ones included.
    pub sent_bytes: u64,
    /// Of these, bytes sent again.
    pub retransmitted_bytes: u64,
    /// Time in which there was something to send.
    pub busy: Duration,
    /// Of this, the time for which the other side's buffer set the pace.
    pub receiver_limited: Duration,
    /// Of this, the time for which this side's buffer set the pace.
    pub buffer_limited: Duration,
}

impl LinkStats {
    /// With a delivery rate for people. Of a connection with too little to send the kernel keeps the highest rate it ever saw, which
    /// may be that of a burst of some packets; it is no more than the mean over the time in which something was on its way.
    #[must_use]
    pub fn for_people(mut self) -> LinkStats {
        if self.app_limited && !self.busy.is_zero() {
            let mean = (self.delivered_bytes as f64 / self.busy.as_secs_f64()) as u64;
            self.delivery_rate = self.delivery_rate.map(|rate| rate.min(mean));
        }
        self
    }

    /// Share of the busy time in which this side's send buffer was what limits; 0 to 1.
    pub fn buffer_limited_share(&self) -> f64 {
        share(self.buffer_limited, self.busy)
    }

    /// Share of the busy time in which the other side's receive buffer was what limits; 0 to 1.
    pub fn receiver_limited_share(&self) -> f64 {
        share(self.receiver_limited, self.busy)
    }

    /// Share of the bytes sent that had to be sent again; 0 to 1.
    pub fn retransmitted_share(&self) -> f64 {
        if self.sent_bytes == 0 { 0.0 } else { self.retransmitted_bytes as f64 / self.sent_bytes as f64 }
    }

    /// The same with the sums of what happened since `earlier`, of the same connection.
    #[must_use]
    pub fn since(&self, earlier: &LinkStats) -> LinkStats {
        LinkStats {
            delivered_bytes: self.delivered_bytes.saturating_sub(earlier.delivered_bytes),
            acknowledged_bytes: self.acknowledged_bytes.saturating_sub(earlier.acknowledged_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            retransmitted_bytes: self.retransmitted_bytes.saturating_sub(earlier.retransmitted_bytes),
            busy: self.busy.saturating_sub(earlier.busy),
            receiver_limited: self.receiver_limited.saturating_sub(earlier.receiver_limited),
            buffer_limited: self.buffer_limited.saturating_sub(earlier.buffer_limited),
            ..self.clone()
        }
    }

    /// Several connections as one: rates, windows and sums added, the round trip of the one that is fastest. `None` of none.
    pub fn together(all: impl IntoIterator<Item = LinkStats>) -> Option<LinkStats> {
        all.into_iter().reduce(|a, b| {
            let mut sum = if a.delivery_rate >= b.delivery_rate { a.clone() } else { b.clone() };
            let add = |x: Option<u64>, y: Option<u64>| match (x, y) {
                (Some(x), Some(y)) => Some(x.saturating_add(y)),
                (x, y) => x.or(y),
            };
            sum.min_rtt = match (a.min_rtt, b.min_rtt) {
                (Duration::ZERO, rtt) | (rtt, Duration::ZERO) => rtt,
                (a, b) => a.min(b),
            };
            sum.delivery_rate = add(a.delivery_rate, b.delivery_rate);
            sum.pacing_rate = add(a.pacing_rate, b.pacing_rate);
            // If one of them could have carried more, all of them together could.
            sum.app_limited = a.app_limited || b.app_limited;
            sum.unsent_bytes = a.unsent_bytes + b.unsent_bytes;
            sum.in_flight_bytes = a.in_flight_bytes + b.in_flight_bytes;
            sum.window_bytes = a.window_bytes + b.window_bytes;
            sum.path_mtu = a.path_mtu.min(b.path_mtu).or(a.path_mtu).or(b.path_mtu);
            sum.delivered_bytes = a.delivered_bytes + b.delivered_bytes;
            sum.acknowledged_bytes = a.acknowledged_bytes + b.acknowledged_bytes;
            sum.sent_bytes = a.sent_bytes + b.sent_bytes;
            sum.retransmitted_bytes = a.retransmitted_bytes + b.retransmitted_bytes;
            sum.busy = a.busy + b.busy;
            sum.receiver_limited = a.receiver_limited + b.receiver_limited;
            sum.buffer_limited = a.buffer_limited + b.buffer_limited;
            sum
        })
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { (part.as_secs_f64() / whole.as_secs_f64()).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(rate: u64, rtt_ms: u64) -> LinkStats {
        LinkStats {
            rtt: Duration::from_millis(rtt_ms),
            min_rtt: Duration::from_millis(rtt_ms),
            delivery_rate: Some(rate),
            window_bytes: 50_000,
            in_flight_bytes: 20_000,
            busy: Duration::from_secs(10),
            buffer_limited: Duration::from_secs(4),
            path_mtu: Some(1500),
            sent_bytes: 1000,
            retransmitted_bytes: 10,
            ..LinkStats::default()
        }
    }

    #[test]
    fn lanes_add_up() {
        let sum = LinkStats::together([lane(1000, 80), lane(3000, 20), LinkStats::default()]).unwrap();
        assert_eq!(sum.delivery_rate, Some(4000));
        assert_eq!((sum.rtt, sum.min_rtt), (Duration::from_millis(20), Duration::from_millis(20)));
        assert_eq!((sum.window_bytes, sum.path_mtu), (100_000, Some(1500)));
        assert_eq!(sum.buffer_limited_share(), 0.4);
        assert_eq!(sum.retransmitted_share(), 0.01);
        assert_eq!(LinkStats::together([]), None);
    }

    #[test]
    fn a_burst_is_no_rate_for_people() {
        let limited = LinkStats { app_limited: true, delivered_bytes: 5_000_000, ..lane(140_000_000, 20) };
        assert_eq!(limited.clone().for_people().delivery_rate, Some(500_000));
        let full = LinkStats { app_limited: false, ..limited.clone() };
        assert_eq!(full.for_people().delivery_rate, Some(140_000_000), "what the line carries is measured");
        let idle = LinkStats { busy: Duration::ZERO, ..limited };
        assert_eq!(idle.for_people().delivery_rate, Some(140_000_000));
    }

    #[test]
    fn what_happened_since_is_a_difference() {
        let early = lane(1000, 80);
        let mut late = early.clone();
        late.busy += Duration::from_secs(1);
        late.receiver_limited += Duration::from_millis(250);
        late.sent_bytes += 500;
        let since = late.since(&early);
        assert_eq!(since.receiver_limited_share(), 0.25);
        assert_eq!(since.buffer_limited_share(), 0.0);
        assert_eq!((since.sent_bytes, since.retransmitted_share()), (500, 0.0));
    }
}
