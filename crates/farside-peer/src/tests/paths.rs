//! Several paths, lanes that die, and lanes that stay idle.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::site::{PATIENCE, Plan, Site, b_dials_a_on};
use super::streams::{echoed, pattern};
use crate::limits::{DIAL_NEXT_PATH_AFTER, PREOPENED_FOR, SILENCE_MAX, STREAMS_OPEN_MAX};
use crate::service::DataStream;
use crate::session::PathStats;
use farside_link::limits::{
    FAILBACK_AFTER, IDLE_LANE_TIMEOUT, IDLE_LANES_MAX, REDIAL_MIN, SEND_AHEAD_MAX, WINDOW_MIN, WINDOW_START,
};
use farside_link::{LinkOptions, PathSpec, PathsMode, StreamOptions, Window};
use farside_link::{LinkSettings, SimulatedNetwork};

const MIB: usize = 1 << 20;

/// 20 ms there and back, 2 MB/s on each link.
fn network(seed: u64) -> SimulatedNetwork {
    println!("seed {seed}");
    let latency = Duration::from_millis(10);
    let network = SimulatedNetwork::new(
        seed,
        LinkSettings { latency, bytes_per_second: Some(2_000_000), ..LinkSettings::default() },
    );
    network.also_known_as("a", "a2");
    network
}

/// `b` dials `a` over two paths; what they are called is the name of the link's other end.
async fn over_two_paths(network: &SimulatedNetwork, mode: PathsMode) -> (Site, Site) {
    let b = Plan::simulated(network, "b");
    let a = Plan::simulated(network, "a").knows(b.identity.id(), "b", None).await.start().await;
    let paths = vec![path("a"), path("a2")];
    let link = LinkOptions { paths, mode, ..LinkOptions::default() };
    let b = b.knows_over(a.id(), "a", Some(a.address()), link).await.start().await;
    a.link(&b).await;
    b.link(&a).await;
    both_up(&a, &b).await;
    (a, b)
}

fn path(host: &str) -> PathSpec {
    PathSpec { local: None, remote: format!("{host}:7440") }
}

fn is_up(a: &Site, b: &Site, host: &str) -> bool {
    let stats = b.node.link_stats(a.id()).unwrap_or_default();
    stats.paths.iter().any(|stats| stats.path == path(host) && stats.up)
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = timeout(Duration::from_secs(600), async {
        while !is_so() {
            sleep(Duration::from_millis(100)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}"));
}

async fn both_up(a: &Site, b: &Site) {
    until("both paths work", || is_up(a, b, "a") && is_up(a, b, "a2")).await;
}

/// Writes `bytes` to one end and reads them at the other.
fn transfer(mut near: DataStream, mut far: DataStream, bytes: usize) -> JoinHandle<(DataStream, DataStream)> {
    tokio::spawn(async move {
        let payload = pattern(bytes);
        let sending = async {
            near.io.write_all(&payload).await.unwrap();
            near.io.shutdown().await.unwrap();
        };
        let receiving = async {
            let mut got = Vec::new();
            far.io.read_to_end(&mut got).await.unwrap();
            assert!(got == payload, "{} of {bytes} bytes", got.len());
            far.io.shutdown().await.unwrap();
        };
        tokio::join!(sending, receiving);
        (near, far)
    })
}

/// A stream that `opener` has opened, and its other end at `server`.
async fn opened(opener: &Site, server: &mut Site) -> (DataStream, DataStream) {
    let link = opener.link(server).await;
    let near = link.open_stream(Bytes::from_static(b"keep"), StreamOptions::default()).await.unwrap();
    (near, server.kept().await.1)
}

/// A transfer that goes on, within a time that counts only while something waits.
async fn through(transfer: JoinHandle<(DataStream, DataStream)>) {
    timeout(PATIENCE, transfer).await.expect("the transfer goes on").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_cut_costs_neither_transfer_nor_session() {
    for (seed, silent) in [(41, false), (42, true)] {
        let network = network(seed);
        let (mut a, mut b) = over_two_paths(&network, PathsMode::Multiplex).await;
        let session = b.link(&a).await;
        let (up, at_a) = opened(&b, &mut a).await;
        let (down, at_b) = opened(&a, &mut b).await;
        let (up, down) = (transfer(up, at_a, 4 * MIB), transfer(down, at_b, 4 * MIB));
        sleep(Duration::from_millis(500)).await;
        assert!(network.carried("b", "a") > 100_000, "both paths carry");
        assert!(network.carried("b", "a2") > 100_000, "both paths carry");
        if silent {
            network.black_hole("b", "a")
        } else {
            network.cut("b", "a")
        };
        until("the loss is noticed", || !is_up(&a, &b, "a")).await;
        through(up).await;
        through(down).await;
        let stats = || b.node.link_stats(a.id()).unwrap();
        until("streams end though a lane takes nothing more", || stats().streams == 0).await;
        assert!(stats().retransmitted_bytes < 4 * MIB as u64, "{}", stats().retransmitted_bytes);
        b.proves_alive(&a).await;
        network.heal("b", "a");
        until("the path comes back", || is_up(&a, &b, "a")).await;
        let before = network.carried("b", "a");
        let (up, at_a) = opened(&b, &mut a).await;
        through(transfer(up, at_a, 4 * MIB)).await;
        let carried = network.carried("b", "a") - before;
        assert!(carried > 300_000, "it carries data again, not {carried} bytes");
        assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
    }
}

/// What a site says of the path that is called so at `b`, and of the other one.
fn stats_at(site: &Site, peer: &Site, is_cut: impl Fn(&PathStats) -> bool) -> (PathStats, PathStats) {
    let stats = site.node.link_stats(peer.id()).unwrap();
    let (cut, other): (Vec<_>, Vec<_>) = stats.paths.into_iter().partition(|stats| is_cut(stats));
    (cut[0].clone(), other[0].clone())
}

#[tokio::test(start_paused = true)]
async fn a_dead_path_is_called_so_while_a_transfer_is_received_over_the_other() {
    let network = network(46);
    let (a, mut b) = over_two_paths(&network, PathsMode::Multiplex).await;
    let session = b.link(&a).await;
    // `b` receives all along, by many connections, and has nothing to send but that it lives.
    let (down, at_b) = opened(&a, &mut b).await;
    let down = transfer(down, at_b, 40 * MIB);
    sleep(Duration::from_secs(2)).await;
    assert!(is_up(&a, &b, "a") && is_up(&a, &b, "a2"));
    let before = b.node.link_stats(a.id()).unwrap();
    let carried = before.paths.iter().find(|stats| stats.path == path("a")).unwrap().received_bytes;
    assert!(carried > MIB as u64, "{carried}");
    network.black_hole("b", "a");
    sleep(Duration::from_secs(10)).await;
    for seconds in 10..14 {
        let (dead, other) = stats_at(&b, &a, |stats| stats.path == path("a"));
        assert!(!dead.up && other.up, "at the side that dials and receives: {dead:?} {other:?}");
        let down_for = dead.down_for.expect("it says since when").as_secs();
        assert!((seconds - 6..=seconds).contains(&down_for), "{down_for} of {seconds} s");
        assert!(dead.trouble.is_some() && other.trouble.is_none() && other.down_for.is_none());
        sleep(Duration::from_secs(1)).await;
    }
    network.heal("b", "a");
    until("the path comes back", || is_up(&a, &b, "a")).await;
    let (healed, _) = stats_at(&b, &a, |stats| stats.path == path("a"));
    assert_eq!((healed.down_for, healed.trouble), (None, None));
    through(down).await;
    drop((session, a));
}

#[tokio::test(start_paused = true)]
async fn failover_uses_the_first_path_that_works_and_goes_back() {
    let network = network(43);
    let (mut a, b) = over_two_paths(&network, PathsMode::Failover).await;
    let session = b.link(&a).await;
    let (up, at_a) = opened(&b, &mut a).await;
    let up = transfer(up, at_a, 4 * MIB);
    sleep(Duration::from_millis(500)).await;
    assert!(network.carried("b", "a") > 500_000, "{}", network.carried("b", "a"));
    assert!(network.carried("b", "a2") < 100_000, "only the first carries data");
    network.cut("b", "a");
    through(up).await;
    assert!(network.carried("b", "a2") > 2 * MIB as u64, "then the second does");
    network.heal("b", "a");
    until("the path comes back", || is_up(&a, &b, "a")).await;
    // Meanwhile no stream asks for paths.
    sleep(FAILBACK_AFTER + Duration::from_secs(1)).await;
    let before = (network.carried("b", "a"), network.carried("b", "a2"));
    let (up, at_a) = opened(&b, &mut a).await;
    through(transfer(up, at_a, 2 * MIB)).await;
    assert!(network.carried("b", "a") > before.0 + 2 * MIB as u64);
    assert!(network.carried("b", "a2") < before.1 + 100_000);
    assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_runs_goes_back_to_the_first_path_too() {
    let network = network(50);
    let (mut a, b) = over_two_paths(&network, PathsMode::Failover).await;
    let (up, at_a) = opened(&b, &mut a).await;
    let up = transfer(up, at_a, 100 * MIB);
    sleep(Duration::from_millis(500)).await;
    network.cut("b", "a");
    until("the second carries", || network.carried("b", "a2") > 4 * MIB as u64).await;
    network.heal("b", "a");
    until("the path comes back", || is_up(&a, &b, "a")).await;
    sleep(FAILBACK_AFTER + Duration::from_secs(5)).await;
    let before = (network.carried("b", "a"), network.carried("b", "a2"));
    until("the first carries again", || network.carried("b", "a") > before.0 + 4 * MIB as u64).await;
    assert!(network.carried("b", "a2") < before.1 + 100_000);
    through(up).await;
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_taken_away_carries_nothing_more() {
    use crate::registry::PeerRegistry;
    let network = network(51);
    let (mut a, b) = over_two_paths(&network, PathsMode::Multiplex).await;
    let (up, at_a) = opened(&b, &mut a).await;
    let up = transfer(up, at_a, 100 * MIB);
    until("both carry", || network.carried("b", "a").min(network.carried("b", "a2")) > MIB as u64).await;
    let mut record = b.registry.lookup(a.id()).await.unwrap().unwrap();
    record.link.paths = vec![path("a2")];
    b.registry.pin(record).await.unwrap();
    b.node.registry_changed().await.unwrap();
    let lanes = || -> usize {
        let stats = b.node.link_stats(a.id()).unwrap();
        stats.paths.iter().filter(|stats| stats.path == path("a")).map(|stats| stats.lanes).sum()
    };
    until("its lanes are closed", || lanes() == 0).await;
    let before = network.carried("b", "a");
    until("the other carries on", || network.carried("b", "a2") > 80 * MIB as u64).await;
    assert!(network.carried("b", "a") < before + 10_000);
    assert_eq!(b.node.link_stats(a.id()).unwrap().retransmitted_bytes, 0);
    through(up).await;
}

#[tokio::test(start_paused = true)]
async fn a_path_that_stands_by_and_goes_silent_is_noticed() {
    let network = network(53);
    let (a, b) = over_two_paths(&network, PathsMode::Failover).await;
    let session = b.link(&a).await;
    for _ in 0..2 {
        network.black_hole("b", "a2");
        until("the silence is noticed", || !is_up(&a, &b, "a2")).await;
        assert!(is_up(&a, &b, "a"));
        network.heal("b", "a2");
        both_up(&a, &b).await;
    }
    assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_swallows_everything_does_not_hold_up_a_new_session() {
    let network = network(54);
    let (a, b) = over_two_paths(&network, PathsMode::Multiplex).await;
    let session = b.link(&a).await;
    network.cut("b", "a");
    network.cut("b", "a2");
    timeout(PATIENCE, session.closed()).await.unwrap();
    network.black_hole("b", "a");
    network.heal("b", "a2");
    let healed = Instant::now();
    b.proves_alive(&a).await;
    // A pause, the dials of both paths, and three round trips.
    let took = healed.elapsed();
    assert!(took < REDIAL_MIN + DIAL_NEXT_PATH_AFTER + Duration::from_millis(200), "{took:?}");
    assert!(is_up(&a, &b, "a2") && !is_up(&a, &b, "a"));
    network.heal("b", "a");
    both_up(&a, &b).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_connections_have_all_ended_is_said_not_to_answer() {
    let network = network(52);
    let (a, b) = b_dials_a_on(&network).await;
    let session = b.link(&a).await;
    let trouble = |site: &Site| site.node.peers()[0].trouble.clone();
    assert_eq!((trouble(&a), trouble(&b)), (None, None));
    network.cut("a", "b");
    let cut = Instant::now();
    // Whoever dials knows more than whoever waits to be dialled.
    until("the dialled side says so", || trouble(&a).is_some_and(|why| why.contains("may dial again"))).await;
    until("the side that dials says so", || trouble(&b).is_some_and(|why| why.contains("no route"))).await;
    assert!(cut.elapsed() < Duration::from_secs(1), "{:?}", cut.elapsed());
    network.heal("a", "b");
    until("it answers again", || trouble(&a).is_none() && trouble(&b).is_none()).await;
    b.proves_alive(&a).await;
    assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
    network.cut("a", "b");
    timeout(PATIENCE, session.closed()).await.unwrap();
    assert_eq!(trouble(&b), None, "without a session that is said elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_short_cut_of_everything_is_a_pause() {
    let network = network(44);
    let (mut a, b) = b_dials_a_on(&network).await;
    let session = b.link(&a).await;
    let (up, at_a) = opened(&b, &mut a).await;
    let up = transfer(up, at_a, 10 * MIB);
    for _ in 0..3 {
        sleep(Duration::from_secs(1)).await;
        network.cut("a", "b");
        sleep(Duration::from_secs(6)).await;
        network.heal("a", "b");
        sleep(Duration::from_secs(2)).await;
    }
    up.await.unwrap();
    assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
}

#[tokio::test(start_paused = true)]
async fn a_long_cut_of_everything_ends_session_and_streams_and_a_new_one_comes() {
    for (seed, seconds) in [(45, 30), (46, 300)] {
        let network = network(seed);
        let (mut a, b) = over_two_paths(&network, PathsMode::Multiplex).await;
        let session = b.link(&a).await;
        let (mut near, mut far) = opened(&b, &mut a).await;
        near.io.write_all(b"begun").await.unwrap();
        let mut got = [0; 5];
        far.io.read_exact(&mut got).await.unwrap();
        network.cut("b", "a");
        network.cut("b", "a2");
        let cut = Instant::now();
        assert!(far.io.read(&mut got).await.is_err() && near.io.read(&mut got).await.is_err());
        timeout(PATIENCE, session.closed()).await.unwrap();
        assert!(cut.elapsed() < SILENCE_MAX + Duration::from_secs(4), "{:?}", cut.elapsed());
        sleep(Duration::from_secs(seconds)).await;
        network.heal("b", "a2");
        echoed(&b.link(&a).await, pattern(MIB)).await;
        echoed(&a.link(&b).await, pattern(MIB)).await;
        network.heal("b", "a");
        both_up(&a, &b).await;
    }
}

#[tokio::test(start_paused = true)]
async fn paths_change_while_the_session_lives() {
    use crate::registry::PeerRegistry;
    let network = network(47);
    let (mut a, b) = b_dials_a_on(&network).await;
    let session = b.link(&a).await;
    let mut record = b.registry.lookup(a.id()).await.unwrap().unwrap();
    record.link.paths = vec![path("a"), path("a2")];
    b.registry.pin(record.clone()).await.unwrap();
    b.node.registry_changed().await.unwrap();
    both_up(&a, &b).await;
    let (up, at_a) = opened(&b, &mut a).await;
    transfer(up, at_a, 4 * MIB).await.unwrap();
    assert!(network.carried("b", "a2") > MIB as u64);
    // A stream with paths of its own keeps to them.
    let before = network.carried("b", "a2");
    let options = StreamOptions { paths: vec![path("a")], ..StreamOptions::default() };
    let near = b.link(&a).await.open_stream(Bytes::from_static(b"keep"), options).await.unwrap();
    let far = a.kept().await.1;
    transfer(near, far, 4 * MIB).await.unwrap();
    assert!(network.carried("b", "a2") < before + 100_000);
    assert!(timeout(Duration::ZERO, session.closed()).await.is_err(), "one session all along");
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_on_the_lane_of_the_one_before() {
    let network = network(48);
    let (a, b) = b_dials_a_on(&network).await;
    let idle = || b.node.link_stats(a.id()).unwrap();
    for (number, opener) in [&b, &a, &b, &a].into_iter().enumerate() {
        let server = if opener.id() == a.id() { &b } else { &a };
        echoed(&opener.link(server).await, pattern(MIB)).await;
        until("the lane is free", || idle().streams == 0 && idle().idle_lanes == 1).await;
        assert_eq!(idle().reused_lanes, number as u64, "each but the first, whoever opened");
    }
    // Nobody uses it for long: then it is closed.
    sleep(IDLE_LANE_TIMEOUT + Duration::from_secs(1)).await;
    assert_eq!(idle().idle_lanes, 0);
    echoed(&b.link(&a).await, pattern(MIB)).await;
    assert_eq!(idle().reused_lanes, 3);
    // An idle lane that broke meanwhile costs nothing but the handshake.
    until("the lane is free", || idle().idle_lanes == 1).await;
    network.reset("a", "b");
    echoed(&b.link(&a).await, pattern(MIB)).await;
}

#[tokio::test(start_paused = true)]
async fn the_pool_of_idle_lanes_is_bounded() {
    let network = network(49);
    let (a, b) = b_dials_a_on(&network).await;
    let link = b.link(&a).await;
    let mut open = tokio::task::JoinSet::new();
    for _ in 0..STREAMS_OPEN_MAX {
        let link = std::sync::Arc::clone(&link);
        open.spawn(async move { echoed(&link, pattern(50_000)).await });
    }
    while let Some(done) = open.join_next().await {
        done.unwrap();
    }
    until("the streams have ended", || b.node.link_stats(a.id()).unwrap().streams == 0).await;
    let idle = b.node.link_stats(a.id()).unwrap().idle_lanes;
    assert!((1..=IDLE_LANES_MAX).contains(&idle), "{idle}");
    b.proves_alive(&a).await;
}

/// The far end may send what the opener takes before it has heard more of it than the opening.
#[tokio::test(start_paused = true)]
async fn who_serves_a_stream_need_not_wait_for_its_openers_first_ack() {
    let round_trip = Duration::from_millis(200);
    let settings = LinkSettings { latency: round_trip / 2, ..LinkSettings::default() };
    for (window, granted) in [
        (Window::Auto, WINDOW_START),
        (Window::Bytes(300_000), 300_000),
        (Window::Bytes(WINDOW_MIN), WINDOW_MIN),
    ] {
        println!("seed 52");
        let network = SimulatedNetwork::new(52, settings);
        let (mut a, b) = b_dials_a_on(&network).await;
        let link = b.link(&a).await;
        let options = StreamOptions { window, ..StreamOptions::default() };
        let opening =
            tokio::spawn(async move { link.open_stream(Bytes::from_static(b"keep"), options).await });
        let mut far = a.kept().await.1;
        let mut written = 0;
        let soon = Instant::now() + round_trip / 2;
        while let Ok(now) = tokio::time::timeout_at(soon, far.io.write(&[7; 10_000])).await {
            written += now.unwrap() as u64;
        }
        // What is written ahead of the lanes is not on its way yet.
        let within = granted..=granted + SEND_AHEAD_MAX;
        assert!(within.contains(&written), "{written} bytes, {granted} were granted");
        drop(opening.await.unwrap().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_copy_of_a_far_peer_has_its_connections_when_it_is_opened() {
    let round_trip = Duration::from_millis(200);
    let settings = LinkSettings {
        latency: round_trip / 2,
        bytes_per_second: Some(20_000_000),
        ..LinkSettings::default()
    };
    for (opener_dialled, wanted_lanes, expected) in
        [(true, 8, true), (true, 8, false), (false, 8, true), (true, 1, true)]
    {
        println!("seed 51");
        let network = SimulatedNetwork::new(51, settings);
        let (mut a, mut b) = b_dials_a_on(&network).await;
        let (opener, server) = if opener_dialled { (&b, &mut a) } else { (&a, &mut b) };
        let link = opener.link(server).await;
        let server_link = server.link(opener).await;
        if expected {
            // Each says it; who did not dial the session does nothing.
            link.expect_bulk();
            server_link.expect_bulk();
        }
        sleep(round_trip + Duration::from_millis(10)).await;
        let began = Instant::now();
        let options = StreamOptions { bulk: wanted_lanes > 1, ..StreamOptions::default() };
        let near = link.open_stream(Bytes::from_static(b"keep"), options).await.unwrap();
        let took = began.elapsed();
        let far = server.kept().await.1;
        // TLS and the hello, or the request to dial, TLS and the hello's way there; a connection before them.
        let round_trips = if expected { 2.0 } else { 3.0 };
        let ratio = took.as_secs_f64() / round_trip.as_secs_f64();
        assert!((ratio - round_trips).abs() < 0.3, "{ratio:.2} round trips, {round_trips} wanted");
        let lanes = || b.node.link_stats(a.id()).unwrap().paths.iter().map(|path| path.lanes).sum::<usize>();
        sleep(round_trip).await;
        assert_eq!(lanes(), wanted_lanes + 1, "and the control stream's, before anything is sent");
        transfer(near, far, MIB).await.unwrap();
        // What nobody took was closed, before the other side loses its patience with it.
        sleep(2 * PREOPENED_FOR).await;
        b.proves_alive(&a).await;
    }
}

/// Eight lanes bring the same opening at the same moment, on as many threads as there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_whose_lanes_come_all_at_once_is_opened_once() {
    const STREAMS: usize = 8;
    let settings = LinkSettings { latency: Duration::from_millis(100), ..LinkSettings::default() };
    println!("seed 53");
    let network = SimulatedNetwork::new(53, settings);
    let (mut a, b) = b_dials_a_on(&network).await;
    let link = b.link(&a).await;
    let mut opening = tokio::task::JoinSet::new();
    for number in 0..STREAMS {
        let link = std::sync::Arc::clone(&link);
        opening.spawn(async move {
            let options = StreamOptions { bulk: true, ..StreamOptions::default() };
            let header = format!("keep {number}");
            link.open_stream(Bytes::from(header), options).await.unwrap()
        });
    }
    let mut served = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for _ in 0..STREAMS {
        let (header, stream) = a.kept().await;
        assert!(served.insert(header.clone()), "{header:?} is served twice");
        kept.push(stream);
    }
    // And each opener has its stream.
    while let Some(opened) = opening.join_next().await {
        drop(opened.unwrap());
    }
}
