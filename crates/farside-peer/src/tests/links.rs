//! Sessions over links that fail, peers that restart, are removed, or dial at the same moment.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farside_platform::Clock;
use tokio::time::{Instant, sleep, timeout};

use super::log;
use super::site::{PATIENCE, Plan, Site, b_dials_a, b_dials_a_on, dialler};
use crate::error::SessionError;
use crate::hello::Role;
use crate::identity::Identity;
use crate::limits::{ANSWER_MAX, PING_EVERY, SILENCE_MAX, SUSPECT_SILENCE_MAX};
use crate::registry::PeerRegistry;
use farside_link::limits::{DIAL_TIMEOUT, REDIAL_MAX};
use farside_link::{LinkOptions, StreamOptions};
use farside_link::{LinkSettings, SimulatedNetwork};

fn wan(seed: u64) -> SimulatedNetwork {
    println!("seed {seed}");
    let millis = Duration::from_millis;
    SimulatedNetwork::new(
        seed,
        LinkSettings { latency: millis(50), jitter: millis(5), bytes_per_second: Some(2_000_000) },
    )
}

#[tokio::test(start_paused = true)]
async fn a_cut_session_comes_back_when_the_link_does() {
    let network = wan(11);
    let (a, b) = b_dials_a_on(&network).await;
    let link = b.link(&a).await;
    let call = tokio::spawn({
        let link = Arc::clone(&link);
        async move { link.call(Bytes::from_static(b"hang"), None).await }
    });
    sleep(Duration::from_secs(1)).await;
    network.cut("a", "b");
    assert!(matches!(call.await.unwrap(), Err(SessionError::Lost(_))));
    timeout(PATIENCE, link.closed()).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    let state = b.wait_state(a.id(), |s| !s.connected).await;
    assert!(state.last_error.unwrap().contains("no route to host"));
    assert!(b.node.link(a.id()).is_none());
    network.heal("a", "b");
    let healed = Instant::now();
    b.proves_alive(&a).await;
    a.proves_alive(&b).await;
    assert!(
        healed.elapsed() < Duration::from_secs(2),
        "{:?}: whoever waits does not sit out a pause",
        healed.elapsed()
    );
    assert!(link.call(Bytes::new(), None).await.is_err(), "the old link stays lost");
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_is_found_by_both_sides_in_time() {
    let network = wan(12);
    let (a, b) = b_dials_a_on(&network).await;
    let (ab, ba) = (a.link(&b).await, b.link(&a).await);
    sleep(Duration::from_secs(5)).await;
    network.black_hole("a", "b");
    let start = Instant::now();
    timeout(PATIENCE, ab.closed()).await.expect("a notices");
    timeout(PATIENCE, ba.closed()).await.expect("b notices");
    let took = start.elapsed();
    assert!(took <= SILENCE_MAX + PING_EVERY + Duration::from_millis(200), "{took:?}");
    assert!(took >= SILENCE_MAX - PING_EVERY, "{took:?}: a slow link is not a black hole");
    network.heal("a", "b");
    // Nobody asks for it: the pauses alone bring it back.
    let healed = Instant::now();
    b.wait_state(a.id(), |s| s.connected).await;
    assert!(healed.elapsed() <= REDIAL_MAX + DIAL_TIMEOUT, "{:?}", healed.elapsed());
    b.proves_alive(&a).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_full_of_calls_is_no_black_hole() {
    let network = wan(13);
    let (a, b) = b_dials_a_on(&network).await;
    network.set_link(
        "a",
        "b",
        LinkSettings {
            latency: Duration::from_millis(300),
            bytes_per_second: Some(20_000),
            ..Default::default()
        },
    );
    // 1 MiB at 20 kB/s takes most of a minute each way; pongs are behind it.
    let answer = b.link(&a).await.call(Bytes::from(vec![5; crate::CALL_BYTES_MAX]), None).await.unwrap();
    assert_eq!(answer.len(), crate::CALL_BYTES_MAX);
}

#[tokio::test(start_paused = true)]
async fn the_round_trip_is_measured() {
    let network = wan(14);
    let (a, b) = b_dials_a_on(&network).await;
    for (here, there) in [(&a, &b), (&b, &a)] {
        let rtt = here.wait_state(there.id(), |s| s.rtt_seconds.is_some()).await.rtt_seconds.unwrap();
        assert!((0.1..0.15).contains(&rtt), "{rtt}");
        assert!(here.link(there).await.rtt_seconds().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_are_told_at_both_sides_and_after_the_session() {
    let network = wan(15);
    let (a, b) = b_dials_a_on(&network).await;
    let near = a.wait_state(b.id(), |s| s.clock_ahead_seconds.is_some()).await;
    assert!(near.clock_ahead_seconds.unwrap().abs() < 1.0, "{near:?}");
    assert_eq!(near.clocks_apart(), None);
    // The clock of a steps a day ahead; it is measured with the next ping.
    a.clock.step_wall(a.clock.now().plus(Duration::from_secs(86_400)));
    for (here, there, ahead) in [(&a, &b, -86_400.0), (&b, &a, 86_400.0)] {
        let state = here.wait_state(there.id(), |s| s.clocks_apart().is_some()).await;
        assert!((state.clocks_apart().unwrap() - ahead).abs() < 1.0, "{state:?}");
    }
    network.cut("a", "b");
    let state = b.wait_state(a.id(), |s| !s.connected).await;
    assert!(state.clocks_apart().is_some(), "what was measured last outlives the session: {state:?}");
}

#[tokio::test(start_paused = true)]
async fn two_that_dial_at_once_settle_on_one_session() {
    for seed in 20..40 {
        let network = wan(seed);
        let (a, b) = (Plan::simulated(&network, "a"), Plan::simulated(&network, "b"));
        let (id_a, id_b) = (a.identity.id(), b.identity.id());
        let a = a.knows(id_b, "b", Some("b:7440")).await;
        let b = b.knows(id_a, "a", Some("a:7440")).await;
        let (a, b) = (a.start().await, b.start().await);
        // Three round trips make a session; a second dial would come after 250 ms more at the earliest.
        sleep(Duration::from_millis(500)).await;
        let (sa, sb) = (a.wait_state(id_b, |s| s.connected).await, b.wait_state(id_a, |s| s.connected).await);
        assert_ne!(sa.dialled_by_us, sb.dialled_by_us, "one session, dialled by one side");
        let (la, lb) = (a.link(&b).await, b.link(&a).await);
        assert!(
            timeout(Duration::from_secs(300), async {
                tokio::select! { () = la.closed() => {}, () = lb.closed() => {} }
            })
            .await
            .is_err(),
            "and it stays"
        );
        a.proves_alive(&b).await;
        b.proves_alive(&a).await;
        a.node.shutdown().await;
        b.node.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_peer_is_taken_back_when_it_restarts() {
    let network = wan(15);
    let (a, b) = b_dials_a_on(&network).await;
    let link = a.link(&b).await;
    let (identity, registry) = (b.identity.clone(), Arc::clone(&b.registry));
    network.kill("b");
    timeout(PATIENCE, link.closed()).await.unwrap();
    b.node.shutdown().await;
    network.revive("b");
    let mut plan = Plan::simulated(&network, "b");
    (plan.identity, plan.registry) = (identity, registry);
    let b = plan.start().await;
    a.proves_alive(&b).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_restarted_unnoticed_replaces_its_ghost_at_once() {
    let network = wan(19);
    let (a, b) = b_dials_a_on(&network).await;
    let ghost = a.link(&b).await;
    // It lost its power, and comes back at another address.
    network.black_hole("a", "b");
    let restarted = dialler(&b.identity, network.host("b2"));
    let start = Instant::now();
    let _new = restarted.dial(a.address(), a.id(), Role::Control, [9; 16], &[]).await.unwrap();
    timeout(PATIENCE, ghost.closed()).await.unwrap();
    // Connection, TLS and hello are four round trips.
    assert!(start.elapsed() <= ANSWER_MAX + Duration::from_millis(600), "{:?}", start.elapsed());
    log::wait_for(&["session with the peer ended", &format!("{:?}", b.id()), "replaced by a newer session"])
        .await;
    assert_eq!(a.node.peers()[0].other_site, None);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_peer_seems_to_have_lost_is_kept_but_doubted() {
    let network = wan(17);
    let (mut a, mut b) = (Plan::simulated(&network, "a"), Plan::simulated(&network, "b"));
    if a.identity.id() > b.identity.id() {
        std::mem::swap(&mut a.identity, &mut b.identity);
    }
    // The smaller id dials, so that a dial of the other does not win.
    let b = b.knows(a.identity.id(), "a", None).await.start().await;
    let a = a.knows(b.id(), "b", Some(b.address())).await.start().await;
    let link = a.link(&b).await;
    // What process b is, it tells a joiner.
    let code = b.node.invite(Duration::from_secs(60)).unwrap().code;
    let joiner = dialler(&Identity::generate().unwrap(), network.host("joiner"));
    let role = Role::Pairing;
    let (_, welcome) = joiner.dial(b.address(), code.inviter(), role, [0; 16], &[]).await.unwrap();
    let mut second_path = dialler(&b.identity, network.host("b2"));
    second_path.instance = welcome.instance;
    let dial = || second_path.dial(a.address(), a.id(), Role::Control, [9; 16], &[]);
    assert!(matches!(dial().await, Err(SessionError::AlreadyConnected)));
    // Both ends are alive: the doubt passes.
    assert!(timeout(Duration::from_secs(60), link.closed()).await.is_err());
    // Now the session is dead, and the peer's dial is what tells a before the silence does.
    network.black_hole("a", "b");
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(dial().await, Err(SessionError::AlreadyConnected)));
    let doubted = Instant::now();
    timeout(PATIENCE, link.closed()).await.expect("a notices");
    assert!(doubted.elapsed() <= SUSPECT_SILENCE_MAX + PING_EVERY, "{:?}", doubted.elapsed());
    assert!(dial().await.is_ok());
}

#[tokio::test]
async fn a_removed_peer_is_cut_at_once_and_stays_out() {
    let (a, b) = b_dials_a().await;
    let (ab, ba) = (a.link(&b).await, b.link(&a).await);
    let _stream = ba.open_stream(Bytes::from_static(b"echo"), StreamOptions::default()).await.unwrap();
    assert!(a.node.remove_peer(b.id()).await.unwrap());
    assert!(timeout(Duration::ZERO, ab.closed()).await.is_ok(), "cut before the call returned");
    assert!(a.node.link(b.id()).is_none());
    timeout(PATIENCE, ba.closed()).await.unwrap();
    // It is told, dials again, and is refused.
    let told =
        |error: &Option<String>| error.as_ref().is_some_and(|e| e.contains("does not know this site's key"));
    b.wait_state(a.id(), |s| told(&s.last_error)).await;
    assert!(!a.node.remove_peer(b.id()).await.unwrap(), "it was there once");
    assert!(matches!(ab.call(Bytes::new(), None).await, Err(SessionError::Lost(_))));
}

#[tokio::test]
async fn changes_of_the_book_are_taken_up() {
    use crate::registry::PeerRegistry;
    let (a, b) = b_dials_a().await;
    let ab = a.link(&b).await;
    a.registry.unpin(b.id()).await.unwrap();
    a.node.registry_changed().await.unwrap();
    assert!(timeout(Duration::ZERO, ab.closed()).await.is_ok());
    a.pair(&b).await;
    a.proves_alive(&b).await;
    assert_eq!(a.node.peers()[0].record.address.as_deref(), Some(b.address()));
}

#[tokio::test(start_paused = true)]
async fn a_moved_peer_is_dialled_at_its_new_address() {
    use crate::registry::PeerRegistry;
    let network = wan(16);
    let a = Site::simulated(&network, "a").await;
    let plan = Plan::simulated(&network, "b").knows(a.id(), "a", Some("nowhere:1")).await;
    let mut known = plan.registry.lookup(a.id()).await.unwrap().unwrap();
    let b = plan.start().await;
    let record = crate::PeerRecord {
        id: b.id(),
        name: "b".into(),
        address: None,
        link: LinkOptions::default(),
        added_at: known.added_at,
    };
    a.registry.pin(record).await.unwrap();
    a.node.registry_changed().await.unwrap();
    b.wait_state(a.id(), |s| s.last_error.is_some()).await;
    known.address = Some(a.address().to_owned());
    b.registry.pin(known).await.unwrap();
    b.node.registry_changed().await.unwrap();
    b.proves_alive(&a).await;
}

/// Changes how often `at` wants a quiet session with `with` to be asked for a sign of life, as the owner of the registry does.
async fn set_keepalive(at: &Site, with: &Site, keepalive: Option<Duration>) {
    let mut record = at.registry.lookup(with.id()).await.unwrap().unwrap();
    record.link.keepalive = keepalive;
    at.registry.pin(record).await.unwrap();
    at.node.registry_changed().await.unwrap();
}

/// Bytes that both send in an hour.
async fn in_an_hour(network: &SimulatedNetwork) -> u64 {
    let carried = || network.carried("a", "b") + network.carried("b", "a");
    // What was under way at a change.
    sleep(Duration::from_secs(60)).await;
    let before = carried();
    sleep(Duration::from_secs(3600)).await;
    carried() - before
}

#[tokio::test(start_paused = true)]
async fn a_quiet_session_costs_what_either_side_says() {
    let network = wan(16);
    let (a, b) = b_dials_a_on(&network).await;
    let link = b.link(&a).await;
    let by_default = in_an_hour(&network).await;
    let seconds = |n| Some(Duration::from_secs(n));
    // Said by the side that was dialled alone; by both, the longer counts; and back.
    let (mut slow, mut slower) = (0, 0);
    for (of_a, of_b, bytes) in [(seconds(30), None, &mut slow), (seconds(30), seconds(300), &mut slower)] {
        set_keepalive(&a, &b, of_a).await;
        set_keepalive(&b, &a, of_b).await;
        *bytes = in_an_hour(&network).await;
    }
    println!("bytes an hour, of TLS: {by_default}, {slow}, {slower}");
    assert!(slow * 20 < by_default && slow > 0, "{slow} of {by_default}");
    assert!(slower * 5 < slow && slower > 0, "{slower} of {slow}");
    for site in [&a, &b] {
        let with = if site.id() == a.id() { &b } else { &a };
        set_keepalive(site, with, None).await;
    }
    let again = in_an_hour(&network).await;
    assert!(again.abs_diff(by_default) * 20 < by_default, "{again}, before {by_default}");
    assert!(timeout(Duration::from_secs(1), link.closed()).await.is_err(), "one session all the time");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_session_notices_that_its_peer_is_gone() {
    let pause = Duration::from_secs(120);
    for (seed, is_asked) in [(17, false), (18, true)] {
        let network = wan(seed);
        let (a, b) = b_dials_a_on(&network).await;
        set_keepalive(&b, &a, Some(pause)).await;
        sleep(Duration::from_secs(60)).await;
        let (ab, ba) = (a.link(&b).await, b.link(&a).await);
        network.black_hole("a", "b");
        let start = Instant::now();
        if is_asked {
            // Whoever wants something does not sit out the pause.
            let answer = timeout(PATIENCE, ba.call(Bytes::from_static(b"alive?"), None)).await;
            assert!(matches!(answer.expect("in time"), Err(SessionError::Lost(_))));
            assert!(start.elapsed() <= SILENCE_MAX + 2 * PING_EVERY, "{:?}", start.elapsed());
        } else {
            let most = pause + pause / 4 + SILENCE_MAX + 3 * PING_EVERY;
            timeout(most, ba.closed()).await.expect("b notices");
            timeout(most, ab.closed()).await.expect("a notices");
            assert!(start.elapsed() > SILENCE_MAX, "{:?}", start.elapsed());
        }
    }
}
