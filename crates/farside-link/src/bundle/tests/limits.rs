//! Throttles of either side hold, and change live.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::site::{MIB, Pair, link, options, read_pattern, write_pattern};
use crate::options::Priority;
use crate::throttle::{self, Bucket, Limits, Rate};

/// Seconds that 4 MiB take, and then 4 MiB more at another rate, where the limit is this side's or that one's.
async fn seconds_under(limited_is_sender: bool, rates: [u64; 2]) -> [f64; 2] {
    let rate = |n: u64| Rate::limited(n).unwrap();
    let bucket = Arc::new(Bucket::new(rate(rates[0])));
    let limits = Limits::chain([Arc::clone(&bucket)]);
    let (mut ours, mut theirs) = (options(), options());
    if limited_is_sender {
        ours.limits_out = limits;
    } else {
        theirs.limits_in = limits;
    }
    let (pair, mut near, mut far) = Pair::with(link(20, 50_000_000), 3, ours, theirs).await;
    let mut taken = [0.0; 2];
    for (n, rate_now) in rates.into_iter().enumerate() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        bucket.set_rate(throttle::clock(), rate(rate_now));
        let begun = Instant::now();
        let writing = tokio::spawn(async move {
            near.write_all(&vec![7; 4 * MIB]).await.unwrap();
            near
        });
        far.read_exact(&mut vec![0; 4 * MIB]).await.unwrap();
        near = writing.await.unwrap();
        taken[n] = begun.elapsed().as_secs_f64();
        // A pause saves nothing up that would make a burst.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let throttled = pair.a.stats().blocked;
    if limited_is_sender {
        assert!(throttled.throttle > 0.5, "{throttled:?}");
    } else {
        assert!(throttled.window > 0.5, "{throttled:?}");
    }
    taken
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_either_side_holds_and_changes_live() {
    for limited_is_sender in [true, false] {
        let rates = [400_000, 2_000_000];
        let seconds = seconds_under(limited_is_sender, rates).await;
        for (rate, seconds) in rates.into_iter().zip(seconds) {
            let wanted = 4.0 * MIB as f64 / rate as f64;
            // Less by the credit that lay ready after the pause: a round trip's and 50 ms' worth, at least 64 KiB.
            let early = (64.0 * 1024.0_f64).max(rate as f64 * 0.2) / rate as f64;
            assert!(
                (wanted - early - 0.05..wanted * 1.02 + 0.1).contains(&seconds),
                "{seconds} s of {wanted} s at {rate} B/s, sender limited: {limited_is_sender}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_is_throttled() {
    let (pair, near, mut far) = Pair::new(link(5, 50_000_000), 2).await;
    let writing = write_pattern(near, 8 * MIB);
    read_pattern(&mut far, 8 * MIB).await;
    assert_eq!(pair.a.stats().blocked.throttle, 0.0);
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_begins_with_little_and_takes_what_nobody_else_uses() {
    let mut low = options();
    low.priority = Priority::Low;
    let (pair, near, mut far) = Pair::with(link(20, 2_000_000), 2, low, options()).await;
    let writing = write_pattern(near, 16 * MIB);
    let begun = Instant::now();
    read_pattern(&mut far, 16 * MIB).await;
    let blocked = pair.a.stats().blocked;
    assert!(blocked.low_priority > 0.01 && blocked.throttle == 0.0, "{blocked:?}");
    // The simulated link shows no queue, so that the cap grows: 4 MB/s in the end.
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    drop(writing.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_that_pauses_goes_on_at_once() {
    for latency_ms in [0, 1, 20] {
        let mut low = options();
        low.priority = Priority::Low;
        let (_pair, mut near, mut far) = Pair::with(link(latency_ms, 2_000_000), 1, low, options()).await;
        for burst in 0..40_usize {
            // Of all sizes around a segment, after pauses that are shorter and longer than a look.
            let bytes = vec![burst as u8; 700 + 997 * burst];
            near.write_all(&bytes).await.unwrap();
            let mut got = vec![0; bytes.len()];
            let begun = Instant::now();
            far.read_exact(&mut got).await.unwrap();
            assert_eq!(got, bytes);
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(1), "{latency_ms} ms, burst {burst}: {took:?}");
            tokio::time::sleep(Duration::from_micros(300 * burst as u64)).await;
        }
    }
}
