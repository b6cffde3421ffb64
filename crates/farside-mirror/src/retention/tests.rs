use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// 2026-11-23, a Monday, at midnight.
const MONDAY: u64 = 1_795_392_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp(0).plus(Duration::from_secs(seconds))
}

fn point(number: usize, seconds: u64) -> KeptPoint {
    KeptPoint { snapshot: Uuid::from_u128(number as u128), at: at(seconds), noted_at: at(seconds) }
}

fn points(moments: impl IntoIterator<Item = u64>) -> Vec<KeptPoint> {
    moments.into_iter().enumerate().map(|(number, seconds)| point(number, seconds)).collect()
}

fn policy(text: &str) -> Retention {
    text.parse().unwrap()
}

/// Numbers of those that stay.
fn stay(points: &[KeptPoint], text: &str) -> Vec<usize> {
    let gone = to_go(points, &policy(text));
    points.iter().enumerate().filter(|(_, p)| !gone.contains(&p.snapshot)).map(|(number, _)| number).collect()
}

#[test]
fn text_is_read_as_it_is_written() {
    for text in ["none", "last=10,hourly=24,daily=7,weekly=4", "floor=2,last=1,yearly=3", "monthly=12"] {
        assert_eq!(policy(text).to_string(), text);
    }
    assert_eq!(policy(" daily=7, last=3").to_string(), "last=3,daily=7");
    assert!(policy("none").is_none() && !policy("floor=1").is_none());
    for text in [
        "",
        "daily",
        "daily=",
        "daily=0",
        "daily=-1",
        "daily=7,daily=8",
        "dayly=7",
        "last=100001",
        "last=1,,",
    ] {
        let error = text.parse::<Retention>().unwrap_err().to_string();
        assert!(error.contains("hourly=24"), "{text:?}: {error}");
    }
}

#[test]
fn the_newest_always_stays_and_the_first_of_each_period() {
    // Every ten minutes for two days.
    let all = points((0..288).map(|n| MONDAY + n * 600));
    assert_eq!(stay(&all, "none"), [287]);
    assert_eq!(stay(&all, "last=3"), [285, 286, 287]);
    assert_eq!(stay(&all, "hourly=2"), [276, 282, 287]);
    assert_eq!(stay(&all, "daily=7"), [0, 144, 287]);
    assert_eq!(stay(&all, "daily=1,weekly=1"), [0, 144, 287]);
    assert_eq!(stay(&all, "floor=2,daily=1"), [144, 286, 287]);
    assert!(stay(&[], "daily=1").is_empty());
}

#[test]
fn periods_are_those_of_the_calendar() {
    // The first of each day from 2024-02-26 (a Monday of a leap year) on, for 800 days.
    let from = 1_708_905_600;
    let all = points((0..800).map(|n| from + n * DAY));
    let dates = |numbers: Vec<usize>| -> Vec<String> {
        let date = |n: usize| at(from + n as u64 * DAY).to_string()[..10].to_owned();
        numbers.into_iter().map(date).collect()
    };
    assert_eq!(dates(stay(&all, "weekly=2")), ["2026-04-27", "2026-05-04", "2026-05-05"]);
    assert_eq!(dates(stay(&all, "monthly=3")), ["2026-03-01", "2026-04-01", "2026-05-01", "2026-05-05"]);
    assert_eq!(dates(stay(&all, "yearly=9")), ["2024-02-26", "2025-01-01", "2026-01-01", "2026-05-05"]);
}

#[test]
fn a_site_that_was_off_lets_nothing_go() {
    let mut all = points((0..7).map(|n| MONDAY + n * DAY));
    all.push(point(7, MONDAY + 400 * DAY));
    assert_eq!(stay(&all, "daily=8"), (0..8).collect::<Vec<_>>());
}

/// What went stays gone, and what stays would have stayed: asking after each arrival gives what asking at the end gives.
#[test]
fn asked_again_and_again_it_keeps_what_it_would_keep_at_once() {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..60 {
        let text = ["hourly=5,daily=3", "last=2,weekly=3,monthly=2", "hourly=3,daily=2,weekly=2,yearly=1"]
            [random.random_range(0..3)];
        let (mut now, mut all, mut live) = (MONDAY, Vec::new(), Vec::new());
        for number in 0..300 {
            now += random.random_range(60..6 * HOUR);
            all.push(point(number, now));
            live.push(point(number, now));
            let gone = to_go(&live, &policy(text));
            live.retain(|p| !gone.contains(&p.snapshot));
        }
        let live: Vec<usize> = live.iter().map(|p| p.snapshot.as_u128() as usize).collect();
        assert_eq!(live, stay(&all, text), "{text}");
    }
}

/// A source that turns hostile: whatever moments it names, and however many points it sends, it pushes out no more than the time that
/// really passes does.
#[test]
fn a_source_that_lies_about_time_pushes_nothing_out() {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let retention = policy("last=3,hourly=24,daily=7,weekly=4");
    // A month of points, one each hour.
    let mut live: Vec<KeptPoint> = Vec::new();
    for hour in 0..30 * 24 {
        live.push(point(hour, MONDAY + hour as u64 * HOUR));
        let gone = to_go(&live, &retention);
        live.retain(|p| !gone.contains(&p.snapshot));
    }
    let good: Vec<KeptPoint> = live[..live.len() - 3].to_vec();
    let mut now = MONDAY + 30 * DAY;
    // Two hours of 5,000 points, of moments from 1970 to 2500.
    for number in 0..5000 {
        now += u64::from(number % 2 == 0) * 3;
        let claimed = match random.random_range(0..3) {
            0 => random.random_range(0..17_000_000_000),
            1 => MONDAY + random.random_range(0..60 * DAY),
            _ => now,
        };
        let before = live.last().map(|p| p.noted_at);
        let counts = counts_for(at(claimed), before, at(now));
        live.push(KeptPoint { snapshot: Uuid::from_u128(100_000 + number), at: counts, noted_at: at(now) });
        let gone = to_go(&live, &retention);
        live.retain(|p| !gone.contains(&p.snapshot));
    }
    let lost = good.iter().filter(|p| !live.iter().any(|l| l.snapshot == p.snapshot)).count();
    // Two hours have passed, and perhaps a midnight and a Monday.
    assert!(lost <= 3 + 2, "{lost} of {} points were pushed out", good.len());
}

#[test]
fn what_counts_is_never_before_the_last_transfer_nor_to_come() {
    assert_eq!(counts_for(at(50), Some(at(40)), at(60)), at(50));
    assert_eq!(counts_for(at(30), Some(at(40)), at(60)), at(40));
    assert_eq!(counts_for(at(70), Some(at(40)), at(60)), at(60));
    assert_eq!(counts_for(at(30), None, at(60)), at(30));
    // The clock here was set back.
    assert_eq!(counts_for(at(50), Some(at(90)), at(60)), at(60));
}

#[test]
fn a_clock_that_was_set_back_loses_no_old_point() {
    // Five good days, then the clock is a year behind for an hour of 60 points.
    let mut all = points((0..5).map(|n| MONDAY + n * DAY));
    all.extend((0..60).map(|n| point(5 + n as usize, MONDAY - 365 * DAY + n * 60)));
    let stays = stay(&all, "daily=7");
    assert!((0..5).all(|n| stays.contains(&n)), "{stays:?}");
}

#[test]
fn the_floor_is_the_newest_ones() {
    let all = points((0..5).map(|n| MONDAY + n));
    let is_floor = |number: u128, text: &str| is_floor(&all, Uuid::from_u128(number), &policy(text));
    assert!(
        is_floor(4, "none") && !is_floor(3, "daily=7") && is_floor(3, "floor=2") && !is_floor(2, "floor=2")
    );
}
