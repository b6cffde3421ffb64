//! A WAN that filters, loses, is cut, or leads back another way.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::{Bed, End};
use crate::traffic::{MIB, Transfer, fetch, fetch_slowly, send, send_slowly};
use crate::watch::{MARGIN, Seen, UNNOTICED, report};

/// A peer that was there a moment ago is waited for so long before a connection goes plainly, seconds. Round trips are short here.
const PATIENCE_WITH_A_PEER: f64 = 1.5;
/// A peer that says nothing is asked no more after so long.
const SILENT: f64 = 0.15;
/// A client's second try.
const TRY: f64 = 1.0;

/// Long files in both directions, that are whole afterwards.
fn both_ways(bed: &Bed) -> [Transfer; 2] {
    let both = [fetch_slowly(1, 10 * MIB), send_slowly(2, 10 * MIB)];
    let both = both.map(|request| Transfer::start(&bed.client, request));
    both.iter().for_each(|transfer| transfer.is_at(MIB));
    both
}

fn are_whole(bed: &Bed, open: [Transfer; 2]) -> [bool; 2] {
    open.map(|transfer| bed.whole_or_reset(transfer))
}

#[test]
fn a_firewall_strips_options() {
    let Some(bed) = Bed::new() else { return };
    let options = ["sack-perm", "timestamp", "window", "maxseg"];
    let rules: Vec<String> =
        options.iter().map(|option| format!("tcp flags & syn == syn reset tcp option {option}")).collect();
    bed.fault(&rules.join("\n"));
    // So that the boxes meet anew, through it.
    let (watch, at) = (bed.watch(), Instant::now());
    bed.near.signal(Signal::KILL);
    sleep(Duration::from_millis(500));
    bed.meet();
    bed.optimises(fetch(1, 6 * MIB));
    bed.optimises(send(2, 6 * MIB));
    sleep(Duration::from_millis(500));
    let seen = watch.end(at, || bed.plain_ports());
    report("a firewall strips TCP options", seen.resets, &seen, "the boxes meet through it");
    assert!(seen.all_flow <= 0.6 && seen.again.is_some(), "{seen:?}");
}

/// The far box may just have connected for one, and its answer be lost: the server takes no other packet for that connection before the
/// boxes hear of each other again, or give each other up. Then the client's next try is let through.
fn longest(seconds: u32) -> f64 {
    f64::from(seconds) + 2.0 * TRY
}

/// A fault of the WAN that takes the boxes from each other but lets hosts pass, for so many seconds.
fn boxes_apart(cell: &str, rules: &str, seconds: u64, check: impl FnOnce(&Seen, [bool; 2])) {
    let Some(bed) = Bed::new() else { return };
    let open = both_ways(&bed);
    let (watch, at) = (bed.watch(), Instant::now());
    bed.fault(rules);
    sleep(Duration::from_secs(seconds));
    bed.whole(Transfer::start(&bed.client, fetch(3, MIB)));
    bed.fault("");
    let mended = Instant::now();
    let whole = are_whole(&bed, open);
    bed.meet();
    sleep(Duration::from_millis(500));
    let mut seen = watch.end(at, || bed.plain_ports());
    seen.again = seen.again.map(|again| again - (mended - at).as_secs_f64());
    bed.optimises(fetch(1, MIB));
    let note = format!("for {seconds} s; again: since its end");
    report(cell, bed.resets() + seen.resets, &seen, &note);
    check(&seen, whole);
    assert!(seen.plain > 0 && seen.again.is_some_and(|again| again < 10.0), "{seen:?}");
}

#[test]
fn a_firewall_drops_what_is_between_the_boxes_for_a_moment() {
    let rules = "tcp dport 7442 drop\ntcp sport 7442 drop";
    boxes_apart("a firewall drops TCP 7442, for a moment", rules, 4, |seen, whole| {
        assert_eq!(whole, [true; 2], "open connections go on");
        // One that began soon after the boxes had met again was once held for the patience with a peer, and went
        // plainly then.
        let is_as_they_meet =
            (4.0..7.0).contains(&seen.all_flow) && seen.slowest <= PATIENCE_WITH_A_PEER + MARGIN;
        assert!(seen.all_flow <= SILENT + MARGIN || is_as_they_meet, "{seen:?}");
        assert!(seen.slowest <= longest(4), "{seen:?}");
    });
}

#[test]
fn a_firewall_drops_what_is_between_the_boxes() {
    let rules = "tcp dport 7442 drop\ntcp sport 7442 drop";
    boxes_apart("a firewall drops TCP 7442", rules, 18, |seen, whole| {
        assert_eq!(whole, [false; 2], "open connections are reset");
        assert!(seen.all_flow <= SILENT + MARGIN, "{seen:?}");
        assert!(seen.slowest <= longest(18), "{seen:?}");
    });
}

#[test]
fn a_firewall_rejects_what_is_between_the_boxes() {
    let rules = "tcp dport 7442 reject with tcp reset\ntcp sport 7442 reject with tcp reset";
    boxes_apart("a firewall rejects TCP 7442", rules, 4, |seen, _| {
        // One that began in the moment in which the boxes met again was once held for the patience with a peer, and went plainly then.
        let is_as_they_meet =
            (4.0..4.0 + MARGIN).contains(&seen.all_flow) && seen.slowest <= PATIENCE_WITH_A_PEER + MARGIN;
        assert!(seen.all_flow <= SILENT + MARGIN || is_as_they_meet, "{seen:?}");
        assert!(seen.slowest <= longest(4), "{seen:?}");
    });
}

/// A server farther on, which is found by a probe only.
const BEHIND: &str = "10.4.0.4:8000";

fn with_a_server_farther_on() -> Option<Bed> {
    let bed = Bed::new()?;
    bed.server.ip("addr add 10.4.0.4/32 dev lo").unwrap();
    bed.far.space.ip("route add 10.4.0.0/24 via 10.2.0.3").unwrap();
    bed.router.ip("route add 10.4.0.0/24 via 10.9.0.2").unwrap();
    bed.serving.also(&bed.server, BEHIND);
    Some(bed)
}

fn is_plain(bed: &Bed, expected: bool) -> f64 {
    let ended = Transfer::start_to(&bed.client, BEHIND, fetch(1, MIB)).end();
    assert!(ended.result.is_ok(), "{ended:?}");
    assert_eq!(bed.plain_ports().contains(&ended.port), expected, "{ended:?}");
    ended.set_up.as_secs_f64()
}

#[test]
fn a_firewall_drops_probes() {
    let Some(bed) = with_a_server_farther_on() else { return };
    bed.fault("udp dport 7442 drop");
    let mut slowest = 0.0_f64;
    // A probe finds nothing within 2 s.
    for _ in 0..6 {
        slowest = slowest.max(is_plain(&bed, true));
        sleep(Duration::from_millis(400));
    }
    // What needs no probe is optimised.
    bed.optimises(fetch(1, MIB));
    let seen = Seen { slowest, ..Seen::default() };
    report("a firewall drops the boxes' probes (UDP 7442)", 0, &seen, "servers farther on go plainly");
    assert!(slowest < 0.5, "{slowest}");
}

#[test]
fn probes_pass() {
    let Some(bed) = with_a_server_farther_on() else { return };
    is_plain(&bed, true);
    sleep(Duration::from_millis(500));
    is_plain(&bed, false);
}

#[test]
fn answers_take_another_way() {
    let Some(bed) = Bed::new() else { return };
    let open = both_ways(&bed);
    bed.server.ip("route add 10.1.0.0/24 via 10.7.0.1").unwrap();
    let (watch, at) = (bed.watch(), Instant::now());
    sleep(Duration::from_secs(4));
    let seen = watch.end(at, || bed.plain_ports());
    let (_, port) = bed.whole(Transfer::start(&bed.client, fetch(1, 4 * MIB)));
    assert!(bed.plain_ports().contains(&port));
    let shown = bed.near.site.json("accel connections");
    let is_told = shown.as_array().unwrap().iter().any(|one| one["reason"] == "no-answer");
    // Open connections have stood still. They go on when the way is back.
    bed.server.ip("route del 10.1.0.0/24 via 10.7.0.1").unwrap();
    let whole = are_whole(&bed, open);
    let note = "plain from then on, reason no-answer; open ones stand still until the way is back";
    report("the server's answers do not pass the far box", seen.resets, &seen, note);
    assert_eq!((whole, seen.resets), ([true; 2], 0), "{seen:?}");
    assert!(seen.all_flow <= PATIENCE_WITH_A_PEER + MARGIN, "{seen:?}");
    assert!(seen.slowest <= PATIENCE_WITH_A_PEER + TRY + MARGIN, "{seen:?}");
    assert!(is_told, "the reason is shown");
}

#[test]
fn first_packets_pass_the_near_box_only() {
    let Some(bed) = Bed::new() else { return };
    let (watch, at) = (bed.watch(), Instant::now());
    bed.router.ip("route replace 10.2.0.0/24 via 10.7.0.3").unwrap();
    bed.optimises(fetch(1, 4 * MIB));
    bed.optimises(send(2, 4 * MIB));
    let seen = watch.end(at, || bed.plain_ports());
    report("the client's packets pass the near box only", seen.resets, &seen, "optimised");
    assert_eq!(seen.resets, 0, "{seen:?}");
    assert!(seen.is_mostly_optimised() && seen.slowest <= UNNOTICED, "{seen:?}");
}

#[test]
fn one_percent_is_lost() {
    let Some(bed) = Bed::new() else { return };
    let (watch, at) = (bed.watch(), Instant::now());
    bed.fault("numgen random mod 100 < 1 drop");
    let open = [fetch(1, 16 * MIB), send(2, 16 * MIB), fetch_slowly(3, 16 * MIB)];
    let open = open.map(|request| Transfer::start(&bed.client, request));
    for transfer in open {
        bed.whole(transfer);
    }
    let seen = watch.end(at, || bed.plain_ports());
    let note = format!("{} connections, {} of them plainly", seen.begun, seen.plain);
    report("1 % loss in both directions", seen.resets, &seen, &note);
    assert_eq!(seen.resets, 0, "{seen:?}");
    // A peer whose answer is lost is taken for silent for a moment: some go plainly.
    assert!(seen.is_mostly_optimised(), "{seen:?}");
}

/// No fault: a switch between two buildings. BBR sent six of ten packets twice on such a line.
#[test]
fn a_near_line_with_a_short_queue_is_not_flooded() {
    let Some(bed) = Bed::new() else { return };
    bed.router.says("tc", "qdisc add dev west root tbf rate 100mbit burst 15000 limit 30000");
    let seconds = bed.optimises(fetch(1, 16 * MIB));
    let said: Value = serde_json::from_str(&bed.router.says("tc", "-s -j qdisc show dev west")).unwrap();
    let count = |what: &str| said[0][what].as_u64().unwrap();
    let (packets, drops) = (count("packets"), count("drops"));
    let seen = Seen { flow: seconds, ..Seen::default() };
    let note = format!("{drops} of {} packets were dropped; flow: all has arrived", packets + drops);
    report("100 Mb/s, no distance, 20 packets of queue", 0, &seen, &note);
    assert!(drops * 5 < packets, "{drops} packets were dropped, {packets} were not");
}

/// The WAN is cut for so long, with no answer or with those of a router whose line is down.
fn cut(cell: &str, seconds: u64, is_silent: bool, survives: bool) {
    let Some(bed) = Bed::new() else { return };
    let open = both_ways(&bed);
    if is_silent {
        bed.fault("drop");
    } else {
        bed.router.ip("link set east down").unwrap();
    }
    sleep(Duration::from_secs(seconds));
    if is_silent {
        bed.fault("");
    } else {
        bed.router.ip("link set east up\nroute add 10.2.0.0/24 via 10.9.0.2").unwrap();
    }
    let (at, watch) = (Instant::now(), bed.watch());
    let whole = are_whole(&bed, open);
    bed.meet();
    sleep(Duration::from_millis(700));
    let mut seen = watch.end(at, || bed.plain_ports());
    bed.optimises(fetch(1, MIB));
    let note = format!("all since the link is back, after {seconds} s");
    seen.again = seen.again.or(Some(0.0));
    report(cell, bed.resets() + seen.resets, &seen, &note);
    assert_eq!(whole, [survives; 2]);
    assert!(seen.again.is_some_and(|again| again < 35.0), "{seen:?}");
    // What is between the boxes is sent again after a pause that has doubled, up to the length of the cut.
    assert!(seen.slowest <= PATIENCE_WITH_A_PEER + 2.0 * TRY + MARGIN, "{seen:?}");
}

#[test]
fn the_link_is_silent_for_five_seconds() {
    cut("link silent for 5 s", 5, true, true);
}

#[test]
fn the_link_is_down_for_five_seconds() {
    cut("link down for 5 s", 5, false, true);
}

#[test]
#[ignore = "takes two minutes"]
fn the_link_is_silent_for_a_minute() {
    cut("link silent for 60 s", 60, true, false);
}

#[test]
#[ignore = "takes two minutes"]
fn the_link_is_down_for_a_minute() {
    cut("link down for 60 s", 60, false, false);
}

#[test]
#[ignore = "takes a minute and a half"]
fn a_way_that_is_mended_is_found_again() {
    let Some(bed) = Bed::new() else { return };
    bed.server.ip("route add 10.1.0.0/24 via 10.7.0.1").unwrap();
    bed.whole(Transfer::start(&bed.client, fetch(1, MIB)));
    bed.server.ip("route del 10.1.0.0/24 via 10.7.0.1").unwrap();
    let (watch, at) = (bed.watch(), Instant::now());
    sleep(Duration::from_secs(65));
    let seen = watch.end(at, || bed.plain_ports());
    report("the server's answers pass the far box again", seen.resets, &seen, "");
    assert!(seen.slowest <= UNNOTICED && seen.again.is_some(), "{seen:?}");
    assert!(bed.taken(End::Near) > 0);
}
