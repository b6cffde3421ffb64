//! What a series of bytes over time says: from when on data flows, its steady rate, what the first second brought, how long it
//! paused. Pure. Rates are bits of IP packets a second, as they came out of the link.

use crate::link::Link;
use crate::record::Series;

/// A steady state is counted from this many round trips after the first data on.
const ROUND_TRIPS: f64 = 20.0;

/// And not before so many seconds: on a near link twenty round trips are nothing, and programs start within them.
const STEADY_FROM_SECONDS: f64 = 0.5;

/// The steady state ends where this share of all bytes is out: what follows is the last data on its way, and the commit.
const STEADY_UNTIL_SHARE: f64 = 0.95;

/// No steady state is told from less than this.
const STEADY_LEAST_SECONDS: f64 = 0.5;

/// Data flows from the interval on in which so many bytes have come out: handshakes and questions are less.
const DATA_BYTES: u64 = 64 << 10;

/// The same as a share of all bytes, for transfers so small that 64 KiB would be much of them.
const DATA_SHARE: f64 = 0.01;

/// A series with its link.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    series: &'a Series,
    rtt_seconds: f64,
}

impl<'a> Flow<'a> {
    /// The flow over `link`.
    #[must_use]
    pub fn new(series: &'a Series, link: &Link) -> Self {
        Self { series, rtt_seconds: (link.forward.delay + link.back.delay).as_secs_f64() }
    }

    /// Length of an interval, seconds.
    #[must_use]
    pub fn interval(&self) -> f64 {
        f64::from(self.series.every_ms.max(1)) / 1e3
    }

    /// When data began to flow, seconds since the phase began.
    #[must_use]
    pub fn begins(&self) -> Option<f64> {
        let total: u64 = self.series.forward.iter().sum();
        let enough = DATA_BYTES.min((total as f64 * DATA_SHARE) as u64).max(1);
        self.index_of(enough).map(|index| index as f64 * self.interval())
    }

    /// The interval in which the sum reaches `bytes`.
    fn index_of(&self, bytes: u64) -> Option<usize> {
        let mut sum = 0;
        self.series.forward.iter().position(|of_interval| {
            sum += of_interval;
            sum >= bytes
        })
    }

    /// The steady rate, bits a second; nothing where the transfer was over too soon to tell.
    #[must_use]
    pub fn steady(&self) -> Option<f64> {
        let from = self.begins()? + (ROUND_TRIPS * self.rtt_seconds).max(STEADY_FROM_SECONDS);
        let total: u64 = self.series.forward.iter().sum();
        let last = self.index_of((total as f64 * STEADY_UNTIL_SHARE) as u64)?;
        let first = (from / self.interval()).ceil() as usize;
        let intervals = self.series.forward.get(first..last)?;
        let seconds = intervals.len() as f64 * self.interval();
        let bytes: u64 = intervals.iter().sum();
        (seconds >= STEADY_LEAST_SECONDS).then(|| bytes as f64 * 8.0 / seconds)
    }

    /// The rate of `seconds` from the moment on in which data begins to flow, bits a second.
    #[must_use]
    pub fn first(&self, seconds: f64) -> Option<f64> {
        // The interval in which it begins is not whole.
        let first = (self.begins()? / self.interval()) as usize + 1;
        let count = (seconds / self.interval()).round() as usize;
        let intervals = self.series.forward.get(first..first + count)?;
        Some(intervals.iter().sum::<u64>() as f64 * 8.0 / (count as f64 * self.interval()))
    }

    /// From `at` on, seconds: until an interval carries at least `share` of `rate_bits`. Zero where the one at `at` does.
    #[must_use]
    pub fn until_flowing(&self, at: f64, rate_bits: f64, share: f64) -> Option<f64> {
        let from = (at / self.interval()) as usize;
        let enough = rate_bits / 8.0 * self.interval() * share;
        let found = self.series.forward.iter().skip(from).position(|bytes| *bytes as f64 >= enough)?;
        Some(if found == 0 { 0.0 } else { (from + found) as f64 * self.interval() - at })
    }

    /// From `at` on, seconds: until an interval carries less than `share` of `rate_bits`.
    #[must_use]
    pub fn until_idle(&self, at: f64, rate_bits: f64, share: f64) -> Option<f64> {
        let from = (at / self.interval()).ceil() as usize;
        let enough = rate_bits / 8.0 * self.interval() * share;
        let found = self.series.forward.iter().skip(from).position(|bytes| (*bytes as f64) < enough)?;
        Some((from + found) as f64 * self.interval() - at)
    }

    /// The longest time between `at` and `until` (seconds) in which no interval carries `share` of `rate_bits`. The series ends
    /// with the last packet; what comes after it is idle.
    #[must_use]
    pub fn longest_idle(&self, at: f64, until: f64, rate_bits: f64, share: f64) -> f64 {
        let enough = rate_bits / 8.0 * self.interval() * share;
        let intervals = (at / self.interval()).ceil() as usize..(until / self.interval()) as usize;
        let (mut idle, mut longest) = (0_usize, 0);
        for index in intervals {
            let bytes = self.series.forward.get(index).copied().unwrap_or_default();
            idle = if (bytes as f64) < enough { idle + 1 } else { 0 };
            longest = longest.max(idle);
        }
        longest as f64 * self.interval()
    }

    /// The series as points: seconds at the end of each `seconds`, and megabits a second in them.
    #[must_use]
    pub fn points(&self, seconds: f64) -> Vec<(f64, f64)> {
        let per_point = ((seconds / self.interval()).round() as usize).max(1);
        let span = per_point as f64 * self.interval();
        let point = |(index, intervals): (usize, &[u64])| {
            let bytes: u64 = intervals.iter().sum();
            ((index + 1) as f64 * span, bytes as f64 * 8.0 / 1e6 / span)
        };
        self.series.forward.chunks_exact(per_point).enumerate().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    /// 100 ms intervals: two with a handshake, two in which it grows, then steadily 100 000 bytes, the last ones idle.
    fn series() -> Series {
        let mut forward = vec![200, 300, 20_000, 60_000];
        forward.extend([100_000; 40]);
        forward.extend([0, 0, 500]);
        Series { every_ms: 100, forward }
    }

    #[test]
    fn the_steady_rate_is_that_between_twenty_round_trips_and_the_end() {
        let series = series();
        let near = fixture::link("near", 10.0, 0, 0.0);
        let flow = Flow::new(&series, &near);
        assert!(flow.begins().is_some_and(|at| (at - 0.3).abs() < 1e-9), "1 % of the bytes are out");
        let near_8_mbit = |rate: Option<f64>| rate.is_some_and(|rate| (rate / 8e6 - 1.0).abs() < 1e-9);
        assert!(near_8_mbit(flow.steady()), "{:?}", flow.steady());
        // Twenty round trips of 150 ms: 3 s, and then there is 0.8 s left; of 190 ms, too little.
        assert!(near_8_mbit(Flow::new(&series, &fixture::link("far", 10.0, 150, 0.0)).steady()));
        assert_eq!(Flow::new(&series, &fixture::link("farther", 10.0, 190, 0.0)).steady(), None);
        assert_eq!(Flow::new(&Series::default(), &near).steady(), None);
    }

    #[test]
    fn the_first_second_and_a_pause_are_found() {
        let mut series = series();
        let near = fixture::link("near", 8.0, 0, 0.0);
        assert_eq!(Flow::new(&series, &near).first(1.0), Some(8e6));
        series.forward[20..25].fill(10);
        let flow = Flow::new(&series, &near);
        assert!(flow.until_flowing(2.0, 8e6, 0.2).is_some_and(|seconds| (seconds - 0.5).abs() < 1e-9));
        assert_eq!(flow.until_flowing(1.5, 8e6, 0.2), Some(0.0));
        assert_eq!(flow.until_flowing(4.5, 8e6, 0.2), None);
        assert!(flow.until_idle(1.75, 8e6, 0.2).is_some_and(|seconds| (seconds - 0.25).abs() < 1e-9));
        assert_eq!(flow.until_idle(4.75, 8e6, 0.2), None);
        let longest = |at, until| (flow.longest_idle(at, until, 8e6, 0.2) * 10.0).round() as u32;
        assert_eq!((longest(0.0, 4.0), longest(2.2, 4.0), longest(2.6, 4.0)), (5, 3, 0));
        assert_eq!(longest(2.6, 14.4), 100, "nothing comes after the last packet until the copy is there");
        let points = flow.points(1.0);
        assert_eq!((points.len(), points[2].0), (4, 3.0));
        assert!((points[3].1 - 8.0).abs() < 1e-9 && points[2].1 < 5.0, "{points:?}");
    }
}
