//! Throttles on the wire: what the sockets have carried, counted below TLS, against what the limits allow.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::site::{Site, b_dials_a_on};
use crate::registry::PeerRegistry;
use crate::service::PeerLink;
use farside_link::StreamOptions;
use farside_link::WireCounters;
use farside_link::throttle::clock;
use farside_link::{Bucket, Direction, Rate};
use farside_link::{LinkSettings, SimulatedNetwork};

fn wan(seed: u64) -> SimulatedNetwork {
    SimulatedNetwork::new(seed, LinkSettings { latency: Duration::from_millis(20), ..Default::default() })
}

fn rate(bytes_per_second: u64) -> Rate {
    Rate::limited(bytes_per_second).unwrap()
}

/// `to` opens a stream on which `from` sends without end, under the limit `own`; what it costs on the wire at `to`.
async fn flood(from: &mut Site, to: &Site, own: Option<Arc<Bucket>>) -> Arc<WireCounters> {
    let link: Arc<dyn PeerLink> = to.link(from).await;
    let options = StreamOptions { throttle: own, ..StreamOptions::default() };
    let near = link.open_stream(Bytes::from_static(b"keep"), options).await.unwrap();
    let (_, far) = from.kept().await;
    let wire = Arc::clone(&near.wire);
    let (mut reader, mut writer) = (near.io, far.io);
    tokio::spawn(async move {
        let block = vec![0x5a; 256 * 1024];
        while writer.write_all(&block).await.is_ok() {}
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        // To the end of the test.
        while !matches!(reader.read(&mut buffer).await, Ok(0) | Err(_)) {}
    });
    wire
}

/// Bytes that each of these receives in the next ten seconds.
async fn in_ten_seconds(wires: &[&WireCounters]) -> Vec<u64> {
    let before: Vec<u64> = wires.iter().map(|wire| wire.received()).collect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    wires.iter().zip(before).map(|(wire, before)| wire.received() - before).collect()
}

fn assert_within(bytes: u64, per_second: u64, percent: f64, what: &str) {
    let share = bytes as f64 / (10.0 * per_second as f64);
    assert!((share - 1.0).abs() <= percent / 100.0, "{what}: {bytes} bytes are {share} of {per_second}/s");
}

#[tokio::test(start_paused = true)]
async fn ten_seconds_on_the_wire_are_within_two_percent_whoever_limits() {
    let network = wan(31);
    let (mut a, b) = b_dials_a_on(&network).await;
    let own = Arc::new(Bucket::new(Rate::Unlimited));
    let wire = flood(&mut a, &b, Some(Arc::clone(&own))).await;
    let second = Duration::from_secs(1);
    // The receiver's limits: of the mirror, the peer, the site. The sender's: of the peer, the site.
    let (here, there) = (b.node.throttles(), a.node.throttles());
    let limits: [&dyn Fn(Rate); 5] = [
        &|rate| own.set_rate(clock(), rate),
        &|rate| here.set_peer(clock(), a.id(), Direction::In, rate),
        &|rate| here.set_site(clock(), Direction::In, rate),
        &|rate| there.set_peer(clock(), b.id(), Direction::Out, rate),
        &|rate| there.set_site(clock(), Direction::Out, rate),
    ];
    for (number, limit) in limits.iter().enumerate() {
        for per_second in [300_000, 32_000] {
            limit(rate(per_second));
            // What is under way at a change: two round trips, and what the pipe held.
            tokio::time::sleep(20 * second).await;
            let went = in_ten_seconds(&[&wire]).await[0];
            assert_within(went, per_second, 2.0, &format!("limit {number}"));
        }
        limit(Rate::Unlimited);
    }
    let went = in_ten_seconds(&[&wire]).await[0];
    assert!(went > 30_000_000, "nothing limits it any more: {went}");
}

#[tokio::test(start_paused = true)]
async fn a_change_holds_within_a_second_of_a_transfer_under_way() {
    let network = wan(32);
    let (mut a, b) = b_dials_a_on(&network).await;
    b.node.throttles().set_peer(clock(), a.id(), Direction::In, rate(100_000));
    let wire = flood(&mut a, &b, None).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for per_second in [1_000_000, 50_000, 400_000] {
        b.node.throttles().set_peer(clock(), a.id(), Direction::In, rate(per_second));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let went = in_ten_seconds(&[&wire]).await[0];
        assert_within(went, per_second, 2.0, "from a second after the change");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_below_what_was_granted_holds_within_seconds_whoever_dialled() {
    let seconds = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    for (seed, b_receives) in [(36, true), (37, false)] {
        println!("seed {seed}");
        let settings = LinkSettings {
            latency: Duration::from_millis(20),
            jitter: Duration::ZERO,
            bytes_per_second: Some(1_100_000),
        };
        let network = SimulatedNetwork::new(seed, settings);
        let (a, b) = b_dials_a_on(&network).await;
        let (mut from, to) = if b_receives { (a, b) } else { (b, a) };
        // No limit: what is granted is the whole window.
        let wire = flood(&mut from, &to, None).await;
        seconds(10).await;
        let limit = |rate| to.node.throttles().set_peer(clock(), from.id(), Direction::In, rate);
        limit(rate(8_000));
        // What was on its way in the pipe and its buffers.
        seconds(6).await;
        let went = in_ten_seconds(&[&wire]).await[0];
        assert!(went < 100_000, "{went} bytes in ten seconds at 8 kB/s");
        // Raised again before that is used up.
        limit(rate(400_000));
        seconds(2).await;
        assert_within(in_ten_seconds(&[&wire]).await[0], 400_000, 2.0, "raised");
        limit(rate(8_000));
        seconds(6).await;
        limit(Rate::Unlimited);
        seconds(1).await;
        let went = in_ten_seconds(&[&wire]).await[0];
        assert!(went > 8_000_000, "nothing limits it any more: {went}");
    }
}

#[tokio::test(start_paused = true)]
async fn three_mirrors_under_a_peer_under_a_site() {
    let network = wan(33);
    let (mut a, b) = b_dials_a_on(&network).await;
    let throttles = b.node.throttles();
    throttles.set_site(clock(), Direction::In, rate(1_000_000));
    throttles.set_peer(clock(), a.id(), Direction::In, rate(600_000));
    let own = Arc::new(Bucket::new(rate(100_000)));
    let mut wires = vec![flood(&mut a, &b, Some(own)).await];
    for _ in 0..2 {
        wires.push(flood(&mut a, &b, None).await);
    }
    let wires: Vec<&WireCounters> = wires.iter().map(|wire| &**wire).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let went = in_ten_seconds(&wires).await;
    assert_within(went.iter().sum(), 600_000, 2.0, "the peer's limit holds for all three");
    assert_within(went[0], 100_000, 2.0, "the mirror's own");
    assert_within(went[1], 250_000, 3.0, "half of what is left");
    assert_within(went[2], 250_000, 3.0, "half of what is left");
    // Now the site has less than the peer.
    throttles.set_site(clock(), Direction::In, rate(240_000));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let went = in_ten_seconds(&wires).await;
    assert_within(went.iter().sum(), 240_000, 2.0, "the site's limit");
    for bytes in went {
        assert_within(bytes, 80_000, 3.0, "a third each");
    }
}

/// Changes the committed rate of the link from `at` to `with`, as the owner of the registry does.
async fn set_committed_rate(at: &Site, with: &Site, bytes_per_second: Option<u64>) {
    let mut record = at.registry.lookup(with.id()).await.unwrap().unwrap();
    record.link.rate = bytes_per_second;
    at.registry.pin(record).await.unwrap();
    at.node.registry_changed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_committed_rate_holds_for_all_connections_together() {
    let network = wan(35);
    let (mut a, b) = b_dials_a_on(&network).await;
    set_committed_rate(&a, &b, Some(600_000)).await;
    let mut wires = Vec::new();
    for _ in 0..3 {
        wires.push(flood(&mut a, &b, None).await);
    }
    let wires: Vec<&WireCounters> = wires.iter().map(|wire| &**wire).collect();
    let throttle = |rate| a.node.throttles().set_peer(clock(), b.id(), Direction::Out, rate);
    let went = async || {
        // What is under way at a change: two round trips, and what the pipe held.
        tokio::time::sleep(Duration::from_secs(20)).await;
        in_ten_seconds(&wires).await.iter().sum::<u64>()
    };
    assert_within(went().await, 600_000, 2.0, "the committed rate");
    throttle(rate(240_000));
    assert_within(went().await, 240_000, 2.0, "a throttle below the committed rate");
    set_committed_rate(&a, &b, Some(120_000)).await;
    assert_within(went().await, 120_000, 2.0, "another committed rate, below the throttle");
    throttle(Rate::Unlimited);
    assert_within(went().await, 120_000, 2.0, "the committed rate alone");
    throttle(rate(300_000));
    set_committed_rate(&a, &b, None).await;
    assert_within(went().await, 300_000, 2.0, "the throttle alone");
}

#[tokio::test(start_paused = true)]
async fn calls_do_not_wait_and_are_counted() {
    let network = wan(34);
    let (mut a, b) = b_dials_a_on(&network).await;
    b.node.throttles().set_peer(clock(), a.id(), Direction::In, rate(200_000));
    let wire = flood(&mut a, &b, None).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let link = b.link(&a).await;
    let all = link.wire();
    let before = (all.received(), tokio::time::Instant::now());
    for _ in 0..10 {
        let asked = tokio::time::Instant::now();
        let answer = link.call(Bytes::from(vec![7; 100_000]), None).await.unwrap();
        assert_eq!(answer.len(), 100_000);
        assert!(asked.elapsed() < Duration::from_secs(1), "a call waited for the streams' limit");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let elapsed = before.1.elapsed().as_secs_f64();
    let share = (all.received() - before.0) as f64 / (elapsed * 200_000.0);
    assert!((share - 1.0).abs() < 0.03, "with the answers, which came too, {share} of the limit");
    assert!(wire.received() > 0);
}
