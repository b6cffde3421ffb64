//! Streams under limits, on a clock that the test moves: each asks, waits as it is told, and asks again.

use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Bucket, Direction, Limits, Rate, Throttles};
use crate::limits::{RATE_MAX, RATE_MIN, THROTTLE_DEPTH, THROTTLE_QUANTUM_MAX, THROTTLE_QUANTUM_MIN};

const SECOND: Duration = Duration::from_secs(1);
const MEBIBYTE: u64 = 1 << 20;

fn bucket(bytes_per_second: u64) -> Arc<Bucket> {
    Arc::new(Bucket::new(Rate::limited(bytes_per_second).unwrap()))
}

/// One that always has something to send.
struct Stream {
    limits: Limits,
    /// What it asks for each time.
    want: u64,
    /// How much later than told it asks: numbers to choose from.
    late: Duration,
    /// When it got how much.
    got: Vec<(Duration, u64)>,
}

impl Stream {
    fn new(limits: Limits) -> Stream {
        Stream { limits, want: 65_674, late: Duration::ZERO, got: Vec::new() }
    }

    fn bytes(&self, from: Duration, to: Duration) -> u64 {
        self.got.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| bytes).sum()
    }
}

/// A reproducible number below `bound` (xorshift).
fn draw(seed: &mut u64, bound: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % bound.max(1)
}

/// Lets the streams ask from `from` until `to`; `then` is called at `from` and after each of `at`.
fn run(streams: &mut [Stream], from: Duration, to: Duration, seed: &mut u64) {
    let mut due: BinaryHeap<std::cmp::Reverse<(Duration, u64, usize)>> =
        (0..streams.len()).map(|number| std::cmp::Reverse((from, 0, number))).collect();
    let mut turn = 0;
    while let Some(std::cmp::Reverse((now, _, number))) = due.pop() {
        if now >= to {
            continue;
        }
        turn += 1;
        let stream = &mut streams[number];
        let granted = stream.limits.take(now, stream.want);
        assert!(granted.bytes <= stream.want);
        assert_eq!(granted.bytes == 0, granted.retry_after > Duration::ZERO, "a wait that waits for nothing");
        let late = Duration::from_nanos(draw(seed, stream.late.as_nanos() as u64));
        let again = if granted.bytes > 0 {
            stream.got.push((now, granted.bytes));
            now
        } else {
            now + granted.retry_after + late
        };
        due.push(std::cmp::Reverse((again, turn, number)));
    }
}

/// Least and most of what went in any window of this length between `from` and `to`.
fn windows(streams: &[&Stream], length: Duration, from: Duration, to: Duration) -> (u64, u64) {
    let mut events: Vec<(Duration, u64)> = streams.iter().flat_map(|s| s.got.iter().copied()).collect();
    events.sort();
    let (mut least, mut most) = (u64::MAX, 0);
    // A window is widest just before an event, and narrowest just after one.
    let (mut first, mut last, mut sum) = (0, 0, 0);
    for start in events.iter().map(|(at, _)| *at).filter(|at| *at >= from && *at + length <= to) {
        while events[first].0 < start {
            // Never counted if it lies before the first window.
            if first < last {
                sum -= events[first].1;
            }
            first += 1;
        }
        last = last.max(first);
        while last < events.len() && events[last].0 < start + length {
            sum += events[last].1;
            last += 1;
        }
        most = most.max(sum);
        let at_start: u64 = events[first..].iter().take_while(|(at, _)| *at == start).map(|(_, b)| b).sum();
        least = least.min(sum - at_start);
    }
    (least, most)
}

fn assert_within(bytes: u64, wanted: u64, percent: f64, what: &str) {
    let share = bytes as f64 / wanted as f64;
    assert!((share - 1.0).abs() <= percent / 100.0, "{what}: {bytes} of {wanted}: {share}");
}

#[test]
fn any_ten_seconds_are_within_two_percent_at_every_rate() {
    for rate in
        [RATE_MIN, 16_000, 32_000, 193_000, 1_250_000, 4_000_000, 5_625_000, 125_000_000, 1_250_000_000]
    {
        let limit = bucket(rate);
        let mut streams = [Stream::new(Limits::chain([limit]))];
        run(&mut streams, Duration::ZERO, 25 * SECOND, &mut 1);
        let (least, most) = windows(&[&streams[0]], 10 * SECOND, Duration::ZERO, 25 * SECOND);
        assert_within(least, 10 * rate, 2.0, &format!("least at {rate}"));
        assert_within(most, 10 * rate, 2.0, &format!("most at {rate}"));
    }
}

#[test]
fn a_slow_line_gets_small_grants_often() {
    // 256 kb/s: a segment of 64 KiB would be two seconds of the line.
    let mut streams = [Stream::new(Limits::chain([bucket(32_000)]))];
    run(&mut streams, SECOND, 11 * SECOND, &mut 1);
    assert!(streams[0].got.iter().all(|(_, bytes)| *bytes == THROTTLE_QUANTUM_MIN));
    let gaps = streams[0].got.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.max().unwrap() < Duration::from_millis(46));
    // And a fast one is not cut into crumbs.
    assert_eq!(Limits::chain([bucket(1_000_000_000)]).take(SECOND, MEBIBYTE).bytes, THROTTLE_QUANTUM_MAX);
    assert_eq!(Limits::unlimited().take(SECOND, MEBIBYTE).bytes, MEBIBYTE);
    assert_eq!(Limits::chain([]).take(SECOND, MEBIBYTE).bytes, MEBIBYTE);
}

#[test]
fn bursts_are_short_however_long_nobody_asked() {
    for rate in [1_000_000, 40_000_000, 400_000_000] {
        let mut streams = [Stream::new(Limits::chain([bucket(rate)]))];
        run(&mut streams, 3600 * SECOND, 3601 * SECOND, &mut 1);
        let (_, most) = windows(&[&streams[0]], Duration::from_millis(10), Duration::ZERO, 4000 * SECOND);
        let allowed = rate * (THROTTLE_DEPTH.as_millis() as u64 + 10) / 1000;
        assert!(most <= allowed.max(2 * THROTTLE_QUANTUM_MAX), "{most} of {allowed} at {rate}");
        // Nor does one who asks now and then save up.
        let limits = Limits::chain([bucket(rate)]);
        limits.take(SECOND, 1);
        let first = limits.take(1000 * SECOND, u64::MAX).bytes;
        let second = limits.take(1000 * SECOND, u64::MAX).bytes;
        assert!(first + second <= allowed.max(2 * THROTTLE_QUANTUM_MAX), "{first} + {second} at {rate}");
    }
}

#[test]
fn sixteen_streams_under_one_limit_get_like_shares() {
    for rate in [256_000, 4_000_000, 100_000_000] {
        let limit = bucket(rate);
        let mut streams: Vec<Stream> =
            (0..16).map(|_| Stream::new(Limits::chain([Arc::clone(&limit)]))).collect();
        // However much each asks for at a time, and however late some of them come.
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.want = [65_674, 16_384, 1_500][number % 3];
            stream.late = Duration::from_micros(number as u64 * 100);
        }
        run(&mut streams, Duration::ZERO, 12 * SECOND, &mut 7);
        for stream in &streams {
            assert_within(stream.bytes(2 * SECOND, 12 * SECOND), 10 * rate / 16, 5.0, "a share");
        }
        let all: Vec<&Stream> = streams.iter().collect();
        let (least, most) = windows(&all, 10 * SECOND, SECOND, 12 * SECOND);
        assert_within(least, 10 * rate, 2.0, &format!("least of all at {rate}"));
        assert_within(most, 10 * rate, 2.0, &format!("most of all at {rate}"));
    }
}

#[test]
fn limits_stand_under_limits_and_leave_nothing_unused() {
    // A site with 10 MB/s, under it a peer with 6 and another without; three mirrors of the first, of which one has 1,
    // and one mirror of the other.
    let (site, peer, mirror) = (bucket(10_000_000), bucket(6_000_000), bucket(1_000_000));
    let open = Arc::new(Bucket::new(Rate::Unlimited));
    let of_peer = Limits::chain([Arc::clone(&site), peer]);
    let mut streams = [
        Stream::new(of_peer.and([mirror])),
        Stream::new(of_peer.and([Arc::clone(&open)])),
        Stream::new(of_peer.and([])),
        Stream::new(Limits::chain([site, open])),
    ];
    run(&mut streams, Duration::ZERO, 12 * SECOND, &mut 3);
    let share = |number: usize| streams[number].bytes(2 * SECOND, 12 * SECOND);
    assert_within(share(0), 10_000_000, 2.0, "the mirror with a limit of its own");
    assert_within(share(1), 25_000_000, 2.0, "its neighbours share what is left of the peer's");
    assert_within(share(2), 25_000_000, 2.0, "its neighbours share what is left of the peer's");
    assert_within(share(3), 40_000_000, 2.0, "the other peer has what is left of the site's");
}

#[test]
fn a_mirror_with_a_limit_of_its_own_has_its_whole_share_of_the_peers() {
    // Its turns there are as long as those of the others, though its own limit's are shorter.
    let peer = bucket(600_000);
    let mut streams = [
        Stream::new(Limits::chain([Arc::clone(&peer), bucket(400_000)])),
        Stream::new(Limits::chain([peer])),
    ];
    run(&mut streams, Duration::ZERO, 12 * SECOND, &mut 3);
    for stream in &streams {
        assert_within(stream.bytes(2 * SECOND, 12 * SECOND), 3_000_000, 2.0, "half of the peer's");
    }
}

#[test]
fn a_change_holds_at_once_and_makes_neither_a_burst_nor_a_pause() {
    let limit = bucket(8_000_000);
    let mut streams: Vec<Stream> = (0..8).map(|_| Stream::new(Limits::chain([Arc::clone(&limit)]))).collect();
    let (mut now, mut seed) = (Duration::ZERO, 5);
    for rate in [8_000_000, 500_000, 100_000_000, 32_000, 4_000_000, RATE_MIN, 1_000_000] {
        limit.set_rate(now, Rate::limited(rate).unwrap());
        run(&mut streams, now, now + 10 * SECOND, &mut seed);
        let all: Vec<&Stream> = streams.iter().collect();
        let (_, most) = windows(&all, 10 * SECOND, now, now + 10 * SECOND);
        let went: u64 = streams.iter().map(|s| s.bytes(now, now + 10 * SECOND)).sum();
        assert_within(went.max(most), 10 * rate, 2.0, &format!("ten seconds from the change to {rate}"));
        let next = streams.iter().filter_map(|s| s.got.iter().map(|(at, _)| *at).find(|at| *at >= now)).min();
        let turn = Duration::from_secs_f64(THROTTLE_QUANTUM_MIN as f64 / rate as f64);
        assert!(next.unwrap() <= now + turn + Duration::from_millis(51), "a pause at {rate}");
        now += 10 * SECOND;
    }
    limit.set_rate(now, Rate::Unlimited);
    assert!(streams.iter().all(|s| s.limits.take(now, MEBIBYTE).bytes == MEBIBYTE));
    limit.set_rate(now + SECOND, Rate::limited(1_000_000).unwrap());
    let at_once: u64 = streams.iter().map(|s| s.limits.take(now + SECOND, MEBIBYTE).bytes).sum();
    assert!(at_once <= 20_000, "what was unlimited saves nothing up: {at_once}");
}

#[test]
fn who_waits_is_not_kept_by_a_limit_that_was_changed() {
    let limit = bucket(RATE_MIN);
    let limits = Limits::chain([Arc::clone(&limit)]);
    while limits.take(SECOND, 65_536).bytes > 0 {}
    let told = limits.take(SECOND, 65_536).retry_after;
    assert!(told <= Duration::from_millis(50));
    limit.set_rate(SECOND, Rate::limited(100_000_000).unwrap());
    assert_eq!(limits.take(SECOND + told, 65_536).bytes, 65_536);
}

#[test]
fn late_callers_lose_nothing() {
    for late in [5, 20, 60] {
        let mut streams = [Stream::new(Limits::chain([bucket(4_000_000)]))];
        streams[0].late = Duration::from_millis(late);
        run(&mut streams, Duration::ZERO, 25 * SECOND, &mut 11);
        let (least, most) = windows(&[&streams[0]], 10 * SECOND, Duration::ZERO, 25 * SECOND);
        assert_within(least, 40_000_000, 2.0, &format!("late by up to {late} ms"));
        assert_within(most, 40_000_000, 2.0, &format!("late by up to {late} ms"));
    }
}

#[test]
fn what_was_not_used_is_the_others() {
    let limit = bucket(1_000_000);
    let (one, other) = (Limits::chain([Arc::clone(&limit)]), Limits::chain([Arc::clone(&limit)]));
    while one.take(SECOND, 10_000).bytes > 0 {}
    // Its place in the line goes with it.
    assert_eq!(one.take(SECOND, 10_000).bytes, 0);
    drop(one);
    assert_eq!(other.take(SECOND, 10_000).retry_after, Duration::from_millis(10));
    assert_eq!(other.take(SECOND + Duration::from_millis(10), 10_000).bytes, 10_000);
    // What is given back goes first.
    other.give_back(10_000);
    assert_eq!(other.take(SECOND + Duration::from_millis(10), 10_000).bytes, 10_000);
    assert_eq!(other.take(SECOND + Duration::from_millis(10), 10_000).bytes, 0);
}

#[test]
fn what_went_without_asking_is_made_up_for() {
    let limit = bucket(1_000_000);
    let mut streams = [Stream::new(Limits::chain([Arc::clone(&limit)]))];
    let (mut now, mut charged) = (Duration::ZERO, 0);
    while now < 10 * SECOND {
        run(&mut streams, now, now + SECOND / 10, &mut 1);
        now += SECOND / 10;
        streams[0].limits.charge(now, 30_000);
        charged += 30_000;
    }
    assert_within(streams[0].bytes(Duration::ZERO, now) + charged, 10_000_000, 2.0, "with what was charged");
    // A flood of it does not keep the others out for ever.
    streams[0].limits.charge(now, 1 << 40);
    run(&mut streams, now, now + 3 * SECOND, &mut 1);
    assert!(streams[0].bytes(now, now + 3 * SECOND) > 1_900_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever streams come and go under whatever limits that change: no limit lets more through than it may, and no
    /// counter runs away.
    #[test]
    fn nothing_passes_a_limit(
        rates in proptest::collection::vec(8_000_u64..200_000_000, 1..6),
        site in 8_000_u64..100_000_000,
        wants in proptest::collection::vec(1_u64..200_000, 1..9),
        seed in 1_u64..u64::MAX,
    ) {
        let mut seed = seed;
        let (site_limit, peer_limit) = (bucket(site), bucket(rates[0]));
        let make = |want: u64| Stream { want, ..Stream::new(Limits::chain([Arc::clone(&site_limit), Arc::clone(&peer_limit)])) };
        let mut streams: Vec<Stream> = wants.iter().map(|want| make(*want)).collect();
        let mut now = Duration::from_nanos(draw(&mut seed, 1 << 40));
        for rate in rates {
            peer_limit.set_rate(now, Rate::limited(rate).unwrap());
            // One leaves, one comes, one returns what it had.
            let number = draw(&mut seed, streams.len() as u64) as usize;
            streams[number] = make(streams[number].want);
            for stream in &mut streams {
                stream.late = Duration::from_millis(draw(&mut seed, 30));
                stream.got.clear();
            }
            let length = Duration::from_millis(200 + draw(&mut seed, 2000));
            run(&mut streams, now, now + length, &mut seed);
            let went: u64 = streams.iter().map(|s| s.bytes(now, now + length)).sum();
            let tightest = rate.min(site);
            // Saved up: 100 ms worth, and a quota in the allowance of each.
            let spare = (tightest / 10).max(THROTTLE_QUANTUM_MAX) + streams.len() as u64 * THROTTLE_QUANTUM_MAX;
            let most = (tightest as f64 * length.as_secs_f64()) as u64 + spare;
            prop_assert!(went <= most, "{} of {} at {}", went, most, tightest);
            now += length;
        }
    }

    /// A rate reads back as it is written.
    #[test]
    fn rates_read_back(bytes in 8_000_u64..=1_000_000_000_000) {
        let rate = Rate::limited(bytes).unwrap();
        prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
    }
}

#[test]
fn rates_as_people_write_them() {
    for (text, bytes) in [
        ("4MB/s", 4_000_000),
        ("1.5MB/s", 1_500_000),
        ("512KiB/s", 524_288),
        ("2MiB/s", 2_097_152),
        ("8000B/s", 8_000),
        ("64kbit/s", 8_000),
        ("256kb/s", 32_000),
        ("10Mb/s", 1_250_000),
        ("45Mbit/s", 5_625_000),
        ("1.544Mbps", 193_000),
        ("1Gbit/s", 125_000_000),
        ("1000GB/s", 1_000_000_000_000),
    ] {
        assert_eq!(text.parse::<Rate>().unwrap().bytes_per_second(), Some(bytes), "{text}");
    }
    assert_eq!("unlimited".parse::<Rate>().unwrap(), Rate::Unlimited);
    for text in [
        "",
        "4",
        "4M",
        "4MB",
        "4 MB/s",
        "MB/s",
        "4mb/s",
        "4XB/s",
        "-4MB/s",
        "4e6B/s",
        ".5MB/s",
        "1.MB/s",
        "1.2345MB/s",
        "1.2.3MB/s",
    ] {
        assert!(text.parse::<Rate>().unwrap_err().to_string().contains("4MB/s"), "{text}");
    }
    assert!("0B/s".parse::<Rate>().unwrap_err().to_string().contains("quiesce"));
    assert!("1kB/s".parse::<Rate>().unwrap_err().to_string().contains("8kB/s"));
    assert!("1001GB/s".parse::<Rate>().unwrap_err().to_string().contains("unlimited"));
    assert!("99999999999999999999GB/s".parse::<Rate>().is_err());
    assert_eq!(Rate::limited(5_625_000).unwrap().to_string(), "5.625MB/s");
    assert_eq!(Rate::limited(1_250_001).unwrap().to_string(), "1250.001kB/s");
}

#[test]
fn what_is_sent_to_a_peer_keeps_to_its_throttle_and_to_the_committed_rate() {
    let (throttles, peer, other) = (Throttles::default(), "a peer", "another");
    let limited = |rate: Option<u64>| rate.map_or(Rate::Unlimited, |rate| Rate::limited(rate).unwrap());
    let limits = throttles.limits(peer, None);
    for (throttle, committed, holds) in [
        (None, None, None),
        (None, Some(1_000_000), Some(1_000_000)),
        (Some(4_000_000), Some(1_000_000), Some(1_000_000)),
        (Some(400_000), Some(1_000_000), Some(400_000)),
        (Some(400_000), None, Some(400_000)),
        (None, None, None),
    ] {
        // In this order and the other: neither forgets what the other said.
        for committed_first in [true, false] {
            if committed_first {
                throttles.set_committed_rate(SECOND, peer, limited(committed));
            }
            throttles.set_peer(SECOND, peer, Direction::Out, limited(throttle));
            if !committed_first {
                throttles.set_committed_rate(SECOND, peer, limited(committed));
            }
            assert_eq!(throttles.peer(&peer, Direction::Out), limited(holds), "{throttle:?} {committed:?}");
            assert_eq!(limits.sent.rate(), holds, "a stream under way heeds it");
            assert_eq!(limits.received.rate(), None, "it limits what is sent");
            assert_eq!(throttles.peer(&other, Direction::Out), Rate::Unlimited);
        }
    }
    throttles.set_committed_rate(SECOND, peer, limited(Some(1_000_000)));
    throttles.forget(&peer);
    assert_eq!(throttles.peer(&peer, Direction::Out), Rate::Unlimited, "it goes with the peer");
    for (figure, rate) in [(0, RATE_MIN), (RATE_MIN, RATE_MIN), (5_625_000, 5_625_000), (u64::MAX, RATE_MAX)]
    {
        assert_eq!(Rate::committed(figure).bytes_per_second(), Some(rate));
    }
}
