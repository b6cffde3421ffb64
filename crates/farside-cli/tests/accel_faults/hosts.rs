//! Hosts that vanish, that end one side, or that say little.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bed::{Bed, End, seconds_until};
use crate::traffic::{MIB, Request, Transfer, fetch, fetch_slowly, file, send_slowly};
use crate::watch::{Seen, report};

/// A line of the table of a cell where the seconds are until the boxes have let go of what is gone.
fn report_gone(cell: &str, resets: u32, seconds: f64) {
    let seen = Seen { flow: seconds, ..Seen::default() };
    report(cell, resets, &seen, "flow: until the other host's connection is reset");
}

#[test]
fn a_client_that_has_lost_its_connections() {
    let Some(mut bed) = Bed::new() else { return };
    let lost = [fetch_slowly(1, 12 * MIB), fetch_slowly(2, 12 * MIB)];
    let lost = lost.map(|request| Transfer::start(&bed.client, request));
    lost.iter().for_each(|transfer| transfer.is_at(MIB));
    let at = Instant::now();
    bed.replace_client();
    let seconds = seconds_until(at, "the server has no connection any more", || bed.serving.open() == 0);
    for end in [End::Near, End::Far] {
        seconds_until(at, "nor has a box", || bed.open(end) == 0);
    }
    bed.optimises(fetch(1, MIB));
    report_gone("client vanishes in mid-transfer and is another one", 2, seconds);
    assert!(seconds < 5.0, "{seconds}");
}

#[test]
fn a_server_that_has_lost_its_connections() {
    let Some(mut bed) = Bed::new() else { return };
    let open = Transfer::start(&bed.client, send_slowly(1, 12 * MIB));
    open.is_at(MIB);
    let at = Instant::now();
    bed.replace_server();
    assert!(!bed.whole_or_reset(open));
    let seconds = at.elapsed().as_secs_f64();
    for end in [End::Near, End::Far] {
        seconds_until(at, "no box has a connection", || bed.open(end) == 0);
    }
    bed.optimises(fetch(1, MIB));
    report_gone("server vanishes in mid-transfer and is another one", bed.resets(), seconds);
    assert!(seconds < 5.0, "{seconds}");
}

#[test]
fn hosts_without_a_link_for_a_moment() {
    let Some(bed) = Bed::new() else { return };
    let open = [fetch_slowly(1, 12 * MIB), send_slowly(2, 12 * MIB)];
    let open = open.map(|request| Transfer::start(&bed.client, request));
    open.iter().for_each(|transfer| transfer.is_at(MIB));
    let at = Instant::now();
    for (space, back) in [(&bed.client, "10.1.0.1"), (&bed.server, "10.2.0.1")] {
        space.ip("link set eth0 down").unwrap();
        sleep(Duration::from_secs(2));
        space.ip(&format!("link set eth0 up\nroute add default via {back}")).unwrap();
    }
    let whole = open.map(|transfer| bed.whole_or_reset(transfer));
    let seen = Seen { flow: at.elapsed().as_secs_f64() - 4.0, ..Seen::default() };
    report(
        "client's link, then the server's, down for 2 s each",
        bed.resets(),
        &seen,
        "flow: all has arrived",
    );
    assert_eq!(whole, [true; 2]);
}

#[test]
fn half_a_connection_goes_on() {
    let Some(bed) = Bed::new() else { return };
    // The client's end comes at once, the server's after two seconds.
    let request = Request { up: 100_000, ..fetch_slowly(1, 8 * MIB) };
    let seconds = bed.optimises(request);
    let other = Request { down: 0, ..send_slowly(2, 8 * MIB) };
    bed.optimises(other);
    let seen = Seen { flow: seconds, ..Seen::default() };
    report("half-close: 8 MiB after the client's end", 0, &seen, "flow: all has arrived");
}

/// Single bytes with a pause before each, in both directions: each is there at once.
fn single_bytes(pause: u32, bytes: u32) {
    let Some(bed) = Bed::new() else { return };
    // Made before time counts.
    file(0);
    let slow = |request| Request { piece: 1, pause: pause * 1_000_000, ..request };
    let requests = [
        slow(Request { down: bytes, ..Request::default() }),
        slow(Request { up: bytes, ..Request::default() }),
    ];
    let transfers = requests.map(|request| Transfer::start(&bed.client, request));
    let late = transfers.map(|transfer| bed.optimised(transfer) - f64::from(pause * bytes));
    let seen = Seen { slowest: late[0].max(late[1]), ..Seen::default() };
    let cell = format!("{bytes} single bytes, {pause} s of silence between them");
    report(&cell, 0, &seen, "slowest: late, all together");
    assert!(late.iter().all(|late| *late < 0.8), "{late:?}");
}

#[test]
fn single_bytes_after_pauses() {
    single_bytes(3, 2);
}

#[test]
#[ignore = "takes two minutes"]
fn single_bytes_after_long_pauses() {
    single_bytes(25, 4);
}
