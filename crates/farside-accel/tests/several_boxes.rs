//! Two boxes at a site, and two in a row.
//!
//! ```text
//! client ┐              ┌ lan0 near wan0 ┐                 ┌ lan0 far wan0 ┐                 ┌ server
//! second ┴ a router ────┤                ├── a router ─────┤               ├── a router ─────┘
//!                       └ lan0 other wan0┘                 └ lan0 spare wan0┘
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use boxes::space::{PATIENCE, Space};
use boxes::{InSpace, Line, join, noise, until};

/// A router or a box: forwarding, and no filter of ways back.
fn forwards(space: &Space, links: &[&str]) -> io::Result<()> {
    space.sysctl("net/ipv4/ip_forward", "1")?;
    for link in ["all"].iter().chain(links) {
        space.sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0")?;
    }
    Ok(())
}

/// `line.behind` is the second client. Clients are in 10.1/24 and 10.2/24, the boxes of the near site between 10.11 or 10.12 and 10.21
/// or 10.22, those of the far site between 10.31 or 10.32 and 10.41 or 10.42, the server in 10.5/24.
struct Sites {
    line: Line,
    other: Space,
    spare: Space,
    /// Before the near boxes, between the sites, and before the server.
    routers: [Space; 3],
}

impl Sites {
    fn new() -> Option<Sites> {
        let mut more = None;
        let line = Line::of(|[client, near, far, server, second]| {
            let [other, spare, r1, r2, r3] =
                [Space::new()?, Space::new()?, Space::new()?, Space::new()?, Space::new()?];
            join((client, "eth0"), (&r1, "client"), 1, (2, 1))?;
            join((second, "eth0"), (&r1, "second"), 2, (2, 1))?;
            join((&r1, "near"), (near, "lan0"), 11, (1, 2))?;
            join((&r1, "other"), (&other, "lan0"), 12, (1, 2))?;
            join((near, "wan0"), (&r2, "near"), 21, (2, 1))?;
            join((&other, "wan0"), (&r2, "other"), 22, (2, 1))?;
            join((&r2, "far"), (far, "wan0"), 31, (1, 2))?;
            join((&r2, "spare"), (&spare, "wan0"), 32, (1, 2))?;
            join((far, "lan0"), (&r3, "far"), 41, (2, 1))?;
            join((&spare, "lan0"), (&r3, "spare"), 42, (2, 1))?;
            join((&r3, "server"), (server, "eth0"), 5, (1, 2))?;
            for host in [(client, 1), (second, 2), (server, 5)] {
                host.0.ip(&format!("route add default via 10.{}.0.1", host.1))?;
            }
            for (space, links) in [
                (&r1, &["client", "second", "near", "other"][..]),
                (&r2, &["near", "other", "far", "spare"]),
                (&r3, &["far", "spare", "server"]),
                (near, &["lan0", "wan0"]),
                (&other, &["lan0", "wan0"]),
                (far, &["lan0", "wan0"]),
                (&spare, &["lan0", "wan0"]),
            ] {
                forwards(space, links)?;
            }
            // Each client has a box of its own, as routers share by addresses.
            r1.ip("route add default via 10.11.0.2\nroute add default via 10.12.0.2 table 2\nrule add from 10.2.0.0/24 lookup 2")?;
            for (space, lan, wan) in [(near, 11, 21), (&other, 12, 22)] {
                space.ip(&format!(
                    "route add 10.1.0.0/24 via 10.{lan}.0.1\nroute add 10.2.0.0/24 via 10.{lan}.0.1\n\
                     route add default via 10.{wan}.0.1"
                ))?;
            }
            r2.ip("route add 10.1.0.0/24 via 10.21.0.2\nroute add 10.2.0.0/24 via 10.22.0.2\nroute add 10.5.0.0/24 via 10.31.0.2")?;
            for (space, wan, lan) in [(far, 31, 41), (&spare, 32, 42)] {
                space.ip(&format!(
                    "route add default via 10.{wan}.0.1\nroute add 10.5.0.0/24 via 10.{lan}.0.1"
                ))?;
            }
            r3.ip("route add default via 10.41.0.2")?;
            more = Some((other, spare, [r1, r2, r3]));
            Ok(())
        })?;
        let (other, spare, routers) = more.unwrap();
        line.meet(&[&line.client, &line.behind], &["10.5.0.2:9"]);
        Some(Sites { line, other, spare, routers })
    }

    fn start(&self, name: &str, space: &Space, peers: &[(&str, &str)]) -> InSpace {
        InSpace::start(space, self.line.settings(name, peers))
    }
}

const FAR: (&str, &str) = ("far", "10.31.0.2:7442");
const SPARE: (&str, &str) = ("spare", "10.32.0.2:7442");
const NEAR: (&str, &str) = ("near", "10.21.0.2:7442");
const OTHER: (&str, &str) = ("other", "10.22.0.2:7442");

#[test]
fn two_boxes_of_a_site_share_connections_and_one_may_die() {
    let Some(sites) = Sites::new() else { return };
    let line = &sites.line;
    let far = sites.start("far", &line.far, &[NEAR, OTHER]);
    let near = sites.start("near", &line.near, &[FAR]);
    let other = sites.start("other", &sites.other, &[FAR]);
    until("the boxes meet", || near.is_active() && other.is_active() && far.is_active());
    let server = line.serve(&line.server, "10.5.0.2:8000");
    let noise = noise(500_000);
    for client in [&line.client, &line.behind] {
        line.exchange_from(client, server, b"a probe finds the box");
    }
    std::thread::sleep(Duration::from_millis(300));
    for client in [&line.client, &line.behind] {
        line.exchange_from(client, server, &noise);
    }
    assert_eq!((near.taken(), other.taken(), far.taken()), (1, 1, 2));

    // The whole machine dies, not only its process: its links are gone. Its router notices, as it does without boxes.
    let mut open = line.connect_from(&line.behind, server).unwrap();
    open.write_all(b"half of a request").unwrap();
    until("it is taken", || other.taken() == 2);
    sites.other.ip("link set lan0 down\nlink set wan0 down").unwrap();
    sites.routers[0].ip("route replace default via 10.11.0.2 table 2").unwrap();
    sites.routers[1].ip("route replace 10.2.0.0/24 via 10.21.0.2").unwrap();
    let connected = line.exchange_from(&line.behind, server, b"at once over the other box");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!(near.taken(), 2);
    // What was open is reset as soon as the far box knows that its peer is silent: nothing hangs.
    let began = Instant::now();
    open.set_read_timeout(Some(4 * PATIENCE)).unwrap();
    let ended = loop {
        match open.write_all(b"more").and_then(|()| {
            open.set_read_timeout(Some(Duration::from_millis(500)))?;
            open.read(&mut [0; 1])
        }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && began.elapsed() < 4 * PATIENCE => {}
            ended => break ended,
        }
    };
    eprintln!("a connection over a box that died ended after {:?}: {ended:?}", began.elapsed());
    assert!(ended.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
}

#[test]
fn of_two_boxes_at_the_servers_side_the_other_takes_over() {
    let Some(sites) = Sites::new() else { return };
    let line = &sites.line;
    let far = sites.start("far", &line.far, &[NEAR]);
    let spare = sites.start("spare", &sites.spare, &[NEAR]);
    let near = sites.start("near", &line.near, &[FAR, SPARE]);
    let both = || near.accelerator.status().peers.iter().all(|peer| peer.is_connected);
    until("the boxes meet", || both() && far.is_active() && spare.is_active());
    let server = line.serve(&line.server, "10.5.0.2:8000");
    line.exchange(server, b"a probe finds which of both is on the way");
    std::thread::sleep(Duration::from_millis(300));
    line.exchange(server, b"over that one");
    assert_eq!((near.taken(), far.taken(), spare.taken()), (1, 1, 0));

    far.stop();
    let is_lost =
        || near.accelerator.status().peers.iter().any(|peer| peer.name == "far" && !peer.is_connected);
    until("the near box has noticed", is_lost);
    sites.routers[1].ip("route replace 10.5.0.0/24 via 10.32.0.2").unwrap();
    sites.routers[2].ip("route replace default via 10.42.0.2").unwrap();
    let connected = line.exchange(server, b"plainly, and a probe finds the spare one");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    std::thread::sleep(Duration::from_millis(300));
    line.exchange(server, b"over the spare one");
    assert_eq!((near.taken(), spare.taken()), (2, 1));
}

/// `near` and `far` in a row at the same site, and `spare` at the other: the first on the way takes what it may, and the next leaves it
/// alone. When the first has gone, the next does it.
#[test]
fn of_two_boxes_in_a_row_one_takes_a_connection() {
    let Some(sites) = Sites::new() else { return };
    let line = &sites.line;
    // client ─ near ─ r2 ─ far ─ r3 ─ server: far turns round and holds what comes from r2; spare is on the server's own host.
    let mut far = line.settings("far", &[NEAR, ("spare", "10.5.0.2:7442")]);
    far.interception =
        Some(farside_accel::control::Interception { lan: vec!["wan0".to_owned()], wan: "lan0".to_owned() });
    let mut last = line.settings("spare", &[("near", "10.21.0.2:7442"), ("far", "10.41.0.2:7442")]);
    last.interception =
        Some(farside_accel::control::Interception { lan: vec!["lo".to_owned()], wan: "eth0".to_owned() });
    let far = InSpace::start(&line.far, far);
    let last = InSpace::start(&line.server, last);
    let near = sites.start("near", &line.near, &[("far", "10.31.0.2:7442"), ("spare", "10.5.0.2:7442")]);
    let all = |one: &InSpace| one.accelerator.status().peers.iter().all(|peer| peer.is_connected);
    until("the boxes meet", || all(&near) && all(&far) && all(&last));
    let server = line.serve(&line.server, "10.5.0.2:8000");
    line.exchange(server, b"plainly, and both look for a box");
    std::thread::sleep(Duration::from_millis(300));
    let noise = noise(500_000);
    line.exchange(server, &noise);
    assert_eq!((near.taken(), far.taken(), last.taken()), (1, 0, 1));
    near.stop();
    line.exchange(server, &noise);
    line.exchange(server, &noise);
    assert!(far.taken() >= 1, "the next in the row takes none");
}
