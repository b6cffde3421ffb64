//! What a counted phase cost: counters of the link, processor seconds of the sites. Packets that are on their way when the
//! phase's scripts have ended belong to it, so both ends of a phase wait until the link is quiet.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::emulator::LinkCounters;
use crate::link::{Link, Shape};
use crate::record::DirectionCounters;
use crate::testbed::{Laid, TestBedError};

/// How often the link is looked at for being quiet: often against round trips, seldom against packets.
const LOOK: Duration = Duration::from_millis(10);

/// Added to two round trips: what a delayed acknowledgement (40 ms) and a busy machine need.
const QUIET_EXTRA: Duration = Duration::from_millis(60);

/// Waited beyond the time that full queues take to drain, for connections that are being closed.
const QUIET_GRACE: Duration = Duration::from_secs(2);

/// Services that chat without end (keep-alives) are not waited for longer than this.
const QUIET_MOST: Duration = Duration::from_secs(30);

/// Waits until no packet has gone in or come out for two round trips, or until queues must be empty and then some.
pub(super) fn wait_quiet(laid: &Laid, link: &Link) -> Result<(), TestBedError> {
    let (span, limit) = quiet_times(link);
    let begun = Instant::now();
    let (mut seen, mut since) = (packets(laid)?, begun);
    while since.elapsed() < span && begun.elapsed() < limit {
        thread::sleep(LOOK);
        let now = packets(laid)?;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// For how long nothing must move, and how long to wait for that at most.
fn quiet_times(link: &Link) -> (Duration, Duration) {
    let on_the_line = |shape: &Shape, bytes: u64| {
        Duration::try_from_secs_f64(bytes as f64 * 8.0 / shape.rate_bits.max(1) as f64).unwrap_or(QUIET_MOST)
    };
    let (forward, back) = (&link.forward, &link.back);
    let rtt = forward.delay + forward.jitter + back.delay + back.jitter;
    let packet = on_the_line(forward, forward.mtu.into()) + on_the_line(back, back.mtu.into());
    let span = rtt * 2 + packet + QUIET_EXTRA;
    let drained = on_the_line(forward, forward.queue_bytes) + on_the_line(back, back.queue_bytes);
    (span, (span + drained + QUIET_GRACE).min(QUIET_MOST.max(span)))
}

/// All packets that moved since the mark.
fn packets(laid: &Laid) -> Result<u64, TestBedError> {
    let counters = laid.counters()?;
    let direction = |direction: &DirectionCounters| direction.packets_in + direction.packets_out;
    Ok(counters.iter().map(|link| direction(&link.forward) + direction(&link.back)).sum())
}

/// Where a counted phase began.
pub(super) struct Before {
    cpu_seconds: BTreeMap<String, f64>,
}

impl Before {
    /// Counters begin anew now.
    pub(super) fn now(laid: &Laid) -> Result<Self, TestBedError> {
        laid.mark()?;
        Ok(Self { cpu_seconds: cpu_seconds(laid)? })
    }

    /// What both directions carried since, and each site's processor seconds.
    pub(super) fn until_now(
        &self,
        laid: &Laid,
    ) -> Result<(DirectionCounters, DirectionCounters, BTreeMap<String, f64>), TestBedError> {
        let counters = laid.counters()?;
        let spent = cpu_seconds(laid)?
            .into_iter()
            .filter_map(|(site, after)| {
                self.cpu_seconds.get(&site).map(|before| (site, (after - before).max(0.0)))
            })
            .collect();
        Ok((together(&counters, |link| &link.forward), together(&counters, |link| &link.back), spent))
    }
}

/// Of each site; empty on a machine without control groups, whose table then has no such column.
fn cpu_seconds(laid: &Laid) -> Result<BTreeMap<String, f64>, TestBedError> {
    let mut all = BTreeMap::new();
    for (name, site) in laid.sites() {
        match site.cpu_seconds() {
            Ok(seconds) => drop(all.insert(name.clone(), seconds)),
            Err(TestBedError::NoProcessorTime(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The same direction of all paths as one: sums, and of lateness the worst.
fn together(
    links: &[LinkCounters],
    direction: impl Fn(&LinkCounters) -> &DirectionCounters,
) -> DirectionCounters {
    let mut all = DirectionCounters::default();
    for path in links.iter().map(&direction) {
        all.packets_in += path.packets_in;
        all.bytes_in += path.bytes_in;
        all.packets_out += path.packets_out;
        all.bytes_out += path.bytes_out;
        all.lost += path.lost;
        all.dropped_queue += path.dropped_queue;
        all.dropped_down += path.dropped_down;
        all.dropped_size += path.dropped_size;
        all.reordered += path.reordered;
        all.device_drops += path.device_drops;
        all.lateness.p50_us = all.lateness.p50_us.max(path.lateness.p50_us);
        all.lateness.p99_us = all.lateness.p99_us.max(path.lateness.p99_us);
        all.lateness.max_us = all.lateness.max_us.max(path.lateness.max_us);
    }
    all.lateness.real_time = links.iter().map(&direction).all(|path| path.lateness.real_time);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkTerms;
    use crate::record::Lateness;

    fn counters(packets_out: u64, p99_us: f64, device_drops: u64) -> DirectionCounters {
        let lateness = Lateness { p99_us, ..Lateness::default() };
        DirectionCounters {
            packets_in: packets_out + 1,
            packets_out,
            lost: 1,
            device_drops,
            lateness,
            ..DirectionCounters::default()
        }
    }

    #[test]
    fn paths_add_up_and_the_worst_lateness_counts() {
        let path = |forward| LinkCounters { forward, back: DirectionCounters::default() };
        let all = together(&[path(counters(30, 500.0, 1)), path(counters(10, 200.0, 2))], |l| &l.forward);
        assert_eq!((all.packets_in, all.packets_out, all.lost, all.device_drops), (42, 40, 2, 3));
        assert_eq!(all.lateness.p99_us, 500.0);
        assert_eq!(
            together(&[path(DirectionCounters::default())], |l| &l.forward),
            DirectionCounters::default()
        );
        let of = |real_time| {
            let mut counters = counters(10, 1.0, 0);
            counters.lateness.real_time = real_time;
            path(counters)
        };
        assert!(together(&[of(true), of(true)], |l| &l.forward).lateness.real_time);
        assert!(!together(&[of(true), of(false)], |l| &l.forward).lateness.real_time);
    }

    #[test]
    fn a_full_queue_may_drain_before_the_link_counts_as_never_quiet() {
        let link = |rate_bits, rtt_ms| {
            let rtt = Some(Duration::from_millis(rtt_ms));
            LinkTerms { rate: Some(rate_bits), rtt, ..LinkTerms::default() }.build("l").expect("a link")
        };
        // 150 KB take 4.7 s each direction at 256 kb/s; a packet 47 ms.
        let (span, limit) = quiet_times(&link(256_000, 50));
        assert!(span > Duration::from_millis(250) && span < Duration::from_millis(260), "{span:?}");
        assert!(limit > Duration::from_secs(11) && limit < Duration::from_secs(12), "{limit:?}");
        // Never longer than the most, unless quiet itself takes longer.
        assert_eq!(quiet_times(&link(9_600, 50)).1, QUIET_MOST);
        let (span, limit) = quiet_times(&link(1_000_000, 18_000));
        assert_eq!(span.max(QUIET_MOST), limit);
    }
}
