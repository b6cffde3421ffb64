//! Break never asks the peer: it takes less than two seconds whatever has become of the peer, of the link, or of the
//! state database, and in the middle of a transfer too. A program of its own: beside other tests it would be their times.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod support;

use std::time::{Duration, Instant};

use support::model::{BLOCK, Model};
use support::relay::Relay;
use support::{Pair, Site, check_pool, status};

/// What an administrator may count on, on a machine that is busy too. Measured are some hundredths of a second.
const BREAK_MAX: Duration = Duration::from_secs(2);
const BLOCKS: u64 = 2048;
/// Bytes per second of the link: the update that a break falls into would take 4 s.
const RATE: u64 = 2 << 20;

/// Breaks, and opens the volume for writing; the time of both.
#[track_caller]
fn take_over(site: &Site, volume: &str, situation: &str) {
    let began = Instant::now();
    site.ok(&format!("mirror break {volume} --yes"));
    let mut host = site.nbd(volume);
    let took = began.elapsed();
    println!("break {situation}: {:.3} s until a host can write", took.as_secs_f64());
    assert!(took < BREAK_MAX, "break {situation} took {took:?}");
    assert!(!host.read_only);
    host.write(0, &[7; 512]).unwrap();
    host.flush().unwrap();
    assert_eq!(status(site, volume)["state"], "broken-off");
}

/// Breaks in the middle of an update into which `happen` fell: the volume is what it was before that update.
fn in_the_middle(situation: &str, happen: impl FnOnce(&mut Pair, &Relay)) -> Pair {
    let (mut pair, relay) = Pair::through_relay();
    pair.mirror(BLOCKS * BLOCK);
    let mut model = Model::new(BLOCKS);
    let mut host = pair.a.nbd("p/v");
    model.fill(&mut host, 0, BLOCKS / 2).unwrap();
    pair.b.ok("mirror initialize q/v");
    let before = pair.b.nbd("q/v").read_all();
    model.fill(&mut host, 0, BLOCKS).unwrap();
    drop(host);
    relay.limit(Some(RATE));
    let passed = relay.passed();
    pair.b.ok("mirror update q/v --no-wait");
    assert!(relay.wait_for(passed + RATE, Duration::from_secs(20)), "the update does not run");
    happen(&mut pair, &relay);
    take_over(&pair.b, "q/v", situation);
    let after = pair.b.nbd("q/v").read_all();
    assert!(after[..512] == [7; 512] && after[512..] == before[512..], "break {situation}: other content");
    assert_eq!(pair.b.stop(), Some(0));
    check_pool(&pair.root.path().join("q.pool"));
    pair
}

#[test]
fn with_the_peer_dead() {
    in_the_middle("with the peer killed in the middle of a transfer", |pair, _| pair.a.kill());
}

#[test]
fn with_the_peer_frozen() {
    let pair = in_the_middle("with the peer frozen in the middle of a transfer", |pair, _| pair.a.freeze());
    pair.a.thaw();
}

#[test]
fn with_the_link_a_black_hole() {
    in_the_middle("with the link a black hole in the middle of a transfer", |_, relay| relay.swallow());
}

#[test]
fn with_the_session_lost_and_an_update_waiting_for_it() {
    in_the_middle("with an update waiting for the session", |pair, relay| {
        relay.cut();
        crate::support::eventually("the loss is seen", || status(&pair.b, "q/v")["state"] == "queued");
    });
}

/// As docs/src/recovery.md says: start the daemon, name the pool to it again, break.
#[test]
fn with_the_state_database_gone() {
    let (mut pair, relay) = Pair::through_relay();
    pair.mirror(BLOCKS * BLOCK);
    let mut model = Model::new(BLOCKS);
    let mut host = pair.a.nbd("p/v");
    model.fill(&mut host, 0, BLOCKS / 2).unwrap();
    pair.b.ok("mirror initialize q/v");
    let before = pair.b.nbd("q/v").read_all();
    model.fill(&mut host, 0, BLOCKS).unwrap();
    relay.limit(Some(RATE));
    let passed = relay.passed();
    pair.b.ok("mirror update q/v --no-wait");
    assert!(relay.wait_for(passed + RATE, Duration::from_secs(20)), "the update does not run");
    pair.a.kill();
    pair.b.kill();
    for file in ["farside.db", "farside.db-wal", "farside.db-shm"] {
        let _ = std::fs::remove_file(pair.b.dir.join(file));
    }
    let began = Instant::now();
    pair.b.restart();
    pair.b.ok(&format!("pool import q --path {}", pair.root.path().join("q.pool").display()));
    println!("daemon and pool are back after {:.3} s", began.elapsed().as_secs_f64());
    take_over(&pair.b, "q/v", "with the state database gone");
    let after = pair.b.nbd("q/v").read_all();
    assert!(after[..512] == [7; 512] && after[512..] == before[512..], "other content");
    // What is broken off stays so.
    pair.b.kill();
    pair.b.restart();
    assert_eq!(status(&pair.b, "q/v")["state"], "broken-off");
    assert!(pair.b.nbd("q/v").read_all() == after);
    assert_eq!(pair.b.stop(), Some(0));
    check_pool(&pair.root.path().join("q.pool"));
}
