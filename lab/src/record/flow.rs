//! What a series of bytes over time says: the steady rate, and how long nothing flowed after something broke; and what a user
//! got in a phase's time. Pure.
//!
//! Rates are of payload: what came out of the link times the payload's share of it. A contender that prints the figure
//! `payload` (MB) has that divided by all bytes that came out, so that headers, TLS and what came twice count against it. Of
//! the others it is what a full packet has, 1448 of 1500 bytes.

use super::{Figure, PhaseRecord, Series};
use crate::link::{Change, Link};

/// Headers of IP and TCP with time stamps in a packet.
const HEADER_BYTES: f64 = 52.0;

/// A steady state is counted from this many round trips after the first data on, and not before so many seconds.
const ROUND_TRIPS: f64 = 20.0;
const STEADY_FROM_SECONDS: f64 = 0.5;

/// It ends where this share of all bytes is out: what follows is the last data on its way, and the commit.
const STEADY_UNTIL_SHARE: f64 = 0.95;

/// No steady state is told from less than this.
const STEADY_LEAST_SECONDS: f64 = 0.5;

/// Data flows from the interval on in which so many bytes have come out: handshakes and questions are less.
const DATA_BYTES: u64 = 64 << 10;

/// The same as a share of all bytes, for transfers so small that 64 KiB would be much of them.
const DATA_SHARE: f64 = 0.01;

/// Data flows again where an interval carries this share of the line.
const FLOWING: f64 = 0.2;

/// After something is killed, what is on its way still comes out; it takes no longer than this, seconds.
const DRAINED_SECONDS: f64 = 2.0;

/// `payload-mbit`, where the contender says what its payload was; and the figures that follow from the phase's series: `steady-mbit`, `first-second-mbit`, `paused-seconds`. Those that the
/// phase was too short for, and all without a series, are absent.
#[must_use]
pub fn figures(phase: &PhaseRecord, link: &Link) -> Vec<(&'static str, Figure)> {
    let payload = phase.figures.get("payload").filter(|_| phase.seconds > 0.0);
    let rate =
        |payload: &Figure| Figure { value: payload.value * 8.0 / phase.seconds, unit: "Mb/s".to_owned() };
    let whole = payload.map(|payload| ("payload-mbit", rate(payload)));
    let Some(series) = &phase.series else { return whole.into_iter().collect() };
    let rtt_seconds = (link.forward.delay + link.back.delay).as_secs_f64();
    let share = match phase.figures.get("payload") {
        Some(payload) => payload.value * 1e6 / phase.forward.bytes_out.max(1) as f64,
        None => 1.0 - HEADER_BYTES / f64::from(link.forward.mtu.max(1)),
    };
    let mbit = |bits: f64| Figure { value: bits * share / 1e6, unit: "Mb/s".to_owned() };
    let seconds = |value: f64| Figure { value, unit: "s".to_owned() };
    [
        ("steady-mbit", steady(series, rtt_seconds).map(mbit)),
        ("first-second-mbit", first_second(series).map(mbit)),
        ("paused-seconds", paused(phase, series, link).map(seconds)),
    ]
    .into_iter()
    .filter_map(|(name, figure)| Some((name, figure?)))
    .chain(whole)
    .collect()
}

impl Series {
    /// Length of an interval, seconds.
    fn interval(&self) -> f64 {
        f64::from(self.every_ms.max(1)) / 1e3
    }

    /// Seconds at the end of each second, and megabits a second in it.
    #[must_use]
    pub fn rates(&self) -> Vec<(f64, f64)> {
        let per_second = ((1.0 / self.interval()).round() as usize).max(1);
        let span = per_second as f64 * self.interval();
        let point = |(index, intervals): (usize, &[u64])| {
            ((index + 1) as f64 * span, intervals.iter().sum::<u64>() as f64 * 8.0 / 1e6 / span)
        };
        self.forward.chunks_exact(per_second).enumerate().map(point).collect()
    }

    /// The interval in which the sum reaches `bytes`.
    fn index_of(&self, bytes: u64) -> Option<usize> {
        let mut sum = 0;
        self.forward.iter().position(|of_interval| {
            sum += of_interval;
            sum >= bytes
        })
    }

    /// The interval in which data begins to flow.
    fn begins(&self) -> Option<usize> {
        let total: u64 = self.forward.iter().sum();
        self.index_of(DATA_BYTES.min((total as f64 * DATA_SHARE) as u64).max(1))
    }

    fn bits(&self, from: usize, until: usize) -> Option<f64> {
        let intervals = self.forward.get(from..until).filter(|intervals| !intervals.is_empty())?;
        Some(intervals.iter().sum::<u64>() as f64 * 8.0 / (intervals.len() as f64 * self.interval()))
    }
}

/// Bits a second in the steady state.
fn steady(series: &Series, rtt_seconds: f64) -> Option<f64> {
    let begins = series.begins()? as f64 * series.interval();
    let from = ((begins + (ROUND_TRIPS * rtt_seconds).max(STEADY_FROM_SECONDS)) / series.interval()).ceil();
    let total: u64 = series.forward.iter().sum();
    let until = series.index_of((total as f64 * STEADY_UNTIL_SHARE) as u64)?;
    let seconds = (until as f64 - from) * series.interval();
    (seconds >= STEADY_LEAST_SECONDS).then(|| series.bits(from as usize, until)).flatten()
}

/// Bits a second in the second after data began to flow.
fn first_second(series: &Series) -> Option<f64> {
    // The interval in which it begins is not whole.
    let from = series.begins()? + 1;
    series.bits(from, from + (1.0 / series.interval()).round() as usize)
}

/// Seconds in which no data flowed: after a link that was cut is whole again, after a daemon was killed (figure `killed`: when), or,
/// where a path stays cut, the longest time from then until the copy is there. Absent where nothing broke.
fn paused(phase: &PhaseRecord, series: &Series, link: &Link) -> Option<f64> {
    let enough = link.forward.rate_bits as f64 / 8.0 * series.interval() * FLOWING;
    let flows = |index: usize| series.forward.get(index).is_some_and(|bytes| *bytes as f64 >= enough);
    let index = |seconds: f64| (seconds / series.interval()).ceil() as usize;
    let next = |from: usize, wanted: bool| (from..series.forward.len()).find(|at| flows(*at) == wanted);
    let change = |wanted: &Change| link.script.iter().rev().find(|event| event.change == *wanted);
    if let Some(up) = change(&Change::Up).filter(|up| up.path.is_none()) {
        let from = (up.at.as_secs_f64() / series.interval()) as usize;
        let again = next(from, true)?;
        return Some(if again == from {
            0.0
        } else {
            again as f64 * series.interval() - up.at.as_secs_f64()
        });
    }
    if let Some(killed) = phase.figures.get("killed").map(|killed| killed.value).filter(|at| *at > 0.0) {
        let Some(stops) = next(index(killed), false) else { return Some(0.0) };
        if stops as f64 * series.interval() > killed + DRAINED_SECONDS {
            return Some(0.0);
        }
        return Some(next(stops, true)? as f64 * series.interval() - killed);
    }
    let cut = change(&Change::Down)?.at.as_secs_f64();
    let (mut idle, mut longest) = (0_u32, 0);
    for at in index(cut)..(phase.seconds / series.interval()) as usize {
        idle = if flows(at) { 0 } else { idle + 1 };
        longest = longest.max(idle);
    }
    Some(f64::from(longest) * series.interval())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::link::{Event, LinkTerms};

    /// 10 Mb/s, of which 100 ms carry 125,000 bytes; nothing comes in the first 0.2 s.
    fn phase(forward: Vec<u64>) -> PhaseRecord {
        PhaseRecord {
            phase: "initial".to_owned(),
            seconds: forward.len() as f64 / 10.0,
            series: Some(Series { every_ms: 100, forward }),
            ..PhaseRecord::default()
        }
    }

    fn link(script: &[(u64, Change)]) -> Link {
        let terms = LinkTerms {
            rate: Some(10_000_000),
            rtt: Some(Duration::from_millis(20)),
            ..LinkTerms::default()
        };
        let mut link = terms.build("l").expect("a link");
        let event = |(at, change): &(u64, Change)| Event {
            at: Duration::from_secs(*at),
            direction: None,
            path: None,
            change: change.clone(),
        };
        link.script = script.iter().map(event).collect();
        link
    }

    fn figure(phase: &PhaseRecord, link: &Link, name: &str) -> Option<f64> {
        figures(phase, link).into_iter().find(|(own, _)| *own == name).map(|(_, figure)| figure.value)
    }

    #[test]
    fn the_steady_rate_is_of_payload_and_without_the_beginning() {
        let mut phase = phase([vec![0; 2], vec![60_000; 5], vec![125_000; 40]].concat());
        let steady = figure(&phase, &link(&[]), "steady-mbit").expect("a rate");
        assert!((steady - 10.0 * 1448.0 / 1500.0).abs() < 0.01, "{steady}");
        phase.forward.bytes_out = 5_300_000;
        phase.figures.insert("payload".to_owned(), Figure { value: 5.0, unit: "MB".to_owned() });
        let steady = figure(&phase, &link(&[]), "steady-mbit").expect("a rate");
        assert!((steady - 10.0 * 5.0 / 5.3).abs() < 0.01, "{steady}");
        assert_eq!(figure(&phase, &link(&[]), "paused-seconds"), None);
        assert!(figures(&PhaseRecord::default(), &link(&[])).is_empty());
    }

    #[test]
    fn a_pause_counts_from_the_moment_at_which_data_could_flow() {
        let cut = phase([vec![125_000; 10], vec![0; 25], vec![125_000; 10]].concat());
        let both = [(1, Change::Down), (3, Change::Up)];
        let paused = figure(&cut, &link(&both), "paused-seconds").expect("a pause");
        assert!((paused - 0.5).abs() < 1e-9, "{paused}");
        let paused = figure(&cut, &link(&both[..1]), "paused-seconds").expect("a pause");
        assert!((paused - 2.5).abs() < 1e-9, "{paused}");
        let mut killed = cut;
        killed.figures.insert("killed".to_owned(), Figure { value: 0.8, unit: "s".to_owned() });
        let paused = figure(&killed, &link(&[]), "paused-seconds").expect("a pause");
        assert!((paused - 2.7).abs() < 1e-9, "{paused}");
    }
}
