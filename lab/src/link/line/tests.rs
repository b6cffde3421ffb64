use proptest::prelude::*;

use super::*;
use crate::link::Loss;

fn shape(rate_bits: u64) -> Shape {
    Shape {
        rate_bits,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        loss: Loss::Random { rate: 0.0 },
        reorder: 0.0,
        queue_bytes: 1 << 30,
        mtu: 65_535,
    }
}

fn passage(verdict: Verdict) -> Passage {
    match verdict {
        Verdict::Passes(passage) => passage,
        other => panic!("{other:?}"),
    }
}

/// Rates from fractional T1 to 10 Gb/s, odd ones among them.
fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(256_000_u64),
        Just(1_544_000),
        Just(44_736_000),
        Just(622_080_000),
        1_000..10_000_000_000_u64
    ]
}

/// Gaps between arrivals in nanoseconds, and packets' sizes.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![4 => Just(0_u64), 4 => 0..50_000_u64, 1 => 0..2_000_000_000_u64];
    let size = prop_oneof![Just(40_u32), Just(1500), 20..9000_u32];
    proptest::collection::vec((gap, size), 1..300)
}

proptest! {
    /// Of a backlog, packet after packet comes out exactly when the line has sent all up to it, whatever their sizes.
    #[test]
    fn the_rate_of_a_backlog_is_exact(rate in rates(), sizes in proptest::collection::vec(20..9000_u32, 1..500)) {
        let mut line = Line::new(&shape(rate), 1);
        let mut bits = 0_u128;
        for bytes in sizes {
            bits += u128::from(bytes) * 8;
            let due = passage(line.arrive(LineTime(0), bytes)).due;
            prop_assert_eq!(u128::from(due.0), bits * 1_000_000_000 / u128::from(rate));
        }
    }

    /// For any arrivals the line does what a calculation in whole numbers says: times, and what finds the queue full.
    #[test]
    fn times_and_full_queues_are_those_of_a_plain_calculation(
        rate in rates(),
        delay_ms in 0..200_u64,
        queue in 9_000..60_000_u64,
        arrivals in arrivals(),
    ) {
        let delay = Duration::from_millis(delay_ms);
        let mut line = Line::new(&Shape { delay, queue_bytes: queue, ..shape(rate) }, 1);
        // The end of the line's work in units of 1/rate nanoseconds.
        let (mut end, mut now, rate) = (0_u128, 0_u64, u128::from(rate));
        for (gap, bytes) in arrivals {
            now += gap;
            let here = u128::from(now) * rate;
            let waiting_bits = end.saturating_sub(here).div_ceil(1_000_000_000);
            let verdict = line.arrive(LineTime(now), bytes);
            if waiting_bits + u128::from(bytes) * 8 > u128::from(queue) * 8 {
                prop_assert_eq!(verdict, Verdict::QueueFull);
            } else {
                end = end.max(here) + u128::from(bytes) * 8 * 1_000_000_000;
                let due = LineTime((end / rate) as u64) + delay;
                prop_assert_eq!(passage(verdict).due, due);
            }
        }
    }

    /// Jitter delays by no more than is set, and no packet overtakes.
    #[test]
    fn jitter_stays_within_its_bound_and_keeps_the_order(
        rate in rates(),
        jitter_us in 1..100_000_u64,
        seed: u64,
        arrivals in arrivals(),
    ) {
        let jitter = Duration::from_micros(jitter_us);
        let delay = Duration::from_millis(20);
        let mut plain = Line::new(&shape(rate), seed);
        let mut line = Line::new(&Shape { delay, jitter, ..shape(rate) }, seed);
        let (mut now, mut before) = (LineTime(0), LineTime(0));
        for (gap, bytes) in arrivals {
            now.0 += gap;
            let sent = passage(plain.arrive(now, bytes)).due;
            let due = passage(line.arrive(now, bytes)).due;
            prop_assert!(due >= sent + delay && due <= sent + delay + jitter);
            prop_assert!(due >= before);
            before = due;
        }
    }

    /// A new rate holds for what waits: the bits left at the change go at the new rate, in order.
    #[test]
    fn a_new_rate_holds_for_the_backlog(
        before in rates(),
        after in rates(),
        sizes in proptest::collection::vec(20..9000_u32, 1..200),
        part in 0.0..1.0_f64,
    ) {
        let mut line = Line::new(&shape(before), 1);
        let mut passages: Vec<_> = sizes.iter().map(|&bytes| passage(line.arrive(LineTime(0), bytes))).collect();
        let old: Vec<_> = passages.iter().map(|p| p.due.0).collect();
        let change_at = (old[old.len() - 1] as f64 * part) as u64;
        line.change(LineTime(change_at), &Change::Rate { rate_bits: after }, &mut passages.iter_mut());
        for (passage, old) in passages.iter().zip(&old) {
            let expected = if *old <= change_at {
                *old
            } else {
                change_at + (u128::from(old - change_at) * u128::from(before) / u128::from(after)) as u64
            };
            prop_assert_eq!(passage.due.0, expected);
        }
        // The next packet follows the last without a gap.
        let last = passages[passages.len() - 1].due.0;
        let next = passage(line.arrive(LineTime(change_at), 1500)).due.0;
        let alone = (1500_u128 * 8 * 1_000_000_000 / u128::from(after)) as u64;
        prop_assert!(next.abs_diff(last + alone) <= 1, "{} after {}", next, last);
    }

    /// The same seed and arrivals give the same verdicts; all kinds of chance at once.
    #[test]
    fn the_seed_decides(seed: u64, arrivals in arrivals()) {
        let shape = Shape {
            jitter: Duration::from_millis(3),
            loss: Loss::Burst { rate: 0.2, mean_burst: 3.0 },
            reorder: 0.2,
            queue_bytes: 20_000,
            ..shape(10_000_000)
        };
        let run = || {
            let (mut line, mut now) = (Line::new(&shape, seed), LineTime(0));
            arrivals.iter().map(|(gap, bytes)| { now.0 += gap; line.arrive(now, *bytes) }).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn another_seed_loses_other_packets_and_other_timing_does_not() {
    let shape = Shape { loss: Loss::Random { rate: 0.5 }, ..shape(10_000_000) };
    let lost = |seed, gap: u64| {
        let mut line = Line::new(&shape, seed);
        (0..64).map(|n| line.arrive(LineTime(n * gap), 1500) == Verdict::Lost).collect::<Vec<_>>()
    };
    assert_ne!(lost(1, 0), lost(2, 0));
    assert_eq!(lost(1, 0), lost(1, 5_000_000));
}

#[test]
fn jitter_uses_its_whole_range_and_is_shared_by_packets_close_together() {
    let jitter = Duration::from_millis(10);
    let mut line = Line::new(&Shape { jitter, ..shape(1_000_000_000) }, 7);
    let mut delays = Vec::new();
    // A packet a millisecond for 20 s.
    for n in 0..20_000_u64 {
        let now = LineTime(n * 1_000_000);
        delays.push(passage(line.arrive(now, 100)).due.since(now).as_nanos() as f64 / 1e6);
    }
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((4.5..5.5).contains(&mean), "{mean}");
    assert!(delays.iter().any(|&delay| delay < 0.5) && delays.iter().any(|&delay| delay > 9.5));
    for pair in delays.windows(2) {
        assert!((pair[0] - pair[1]).abs() <= 0.501, "{pair:?}");
    }
}

#[test]
fn packets_held_back_are_as_many_as_said_and_the_next_four_overtake_them() {
    let rate = 44_736_000;
    let shape = Shape { reorder: 0.01, mtu: 1500, ..shape(rate) };
    let mut line = Line::new(&shape, 5);
    let passages: Vec<_> = (0..40_000).map(|_| passage(line.arrive(LineTime(0), 1500))).collect();
    let held: Vec<_> = passages.iter().filter(|p| p.held_back).collect();
    // 400 expected, 20 the standard deviation; the seed is fixed.
    assert!((300..500).contains(&held.len()), "{}", held.len());
    let mut before = LineTime(0);
    for passage in passages.iter().filter(|p| !p.held_back) {
        assert!(passage.due >= before);
        before = passage.due;
    }
    // The last few have too few behind them.
    for held in held.iter().filter(|held| held.sequence < 39_990) {
        let next = held.sequence as usize + 1;
        for passage in passages[next..next + 4].iter().filter(|p| !p.held_back) {
            assert!(passage.due < held.due, "{passage:?} before {held:?}");
        }
        assert!(passages[next + 6].due > held.due, "{held:?}");
    }
}

#[test]
fn a_packet_larger_than_the_mtu_does_not_pass() {
    let mut line = Line::new(&Shape { mtu: 1500, ..shape(1_000_000) }, 1);
    assert_eq!(line.arrive(LineTime(0), 1501), Verdict::TooLarge);
    assert_eq!(passage(line.arrive(LineTime(0), 1500)).due, LineTime(12_000_000));
}

#[test]
fn an_outage_lets_nothing_pass_and_leaves_an_idle_line() {
    let mut line = Line::new(&shape(1_000_000), 1);
    for _ in 0..100 {
        passage(line.arrive(LineTime(0), 1500));
    }
    let cut = LineTime(20_000_000);
    line.change(cut, &Change::Down, &mut std::iter::empty());
    assert_eq!(line.arrive(cut, 1500), Verdict::Down);
    assert_eq!(line.arrive(LineTime(25_000_000), 40), Verdict::Down);
    line.change(LineTime(30_000_000), &Change::Up, &mut std::iter::empty());
    // 12 ms on the line, and no backlog from before.
    assert_eq!(passage(line.arrive(LineTime(30_000_000), 1500)).due, LineTime(42_000_000));
}

#[test]
fn a_shorter_delay_lets_no_packet_overtake_and_a_new_loss_holds_at_once() {
    let long = Shape { delay: Duration::from_millis(100), ..shape(1_000_000_000) };
    let mut line = Line::new(&long, 1);
    let first = passage(line.arrive(LineTime(0), 1500)).due;
    let delay = Duration::from_millis(10);
    line.change(LineTime(0), &Change::Delay { delay }, &mut std::iter::empty());
    assert_eq!(passage(line.arrive(LineTime(1_000), 1500)).due, first);
    let later = LineTime(200_000_000);
    assert_eq!(passage(line.arrive(later, 1500)).due, later + delay + Duration::from_micros(12));
    let loss = Loss::Random { rate: 1.0 };
    line.change(later, &Change::Loss { loss }, &mut std::iter::empty());
    assert_eq!(line.arrive(later, 1500), Verdict::Lost);
}
