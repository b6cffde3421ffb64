//! Two boxes in the path, in network namespaces: what a client and a server see, and what happens when a box goes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::io;
use std::time::Duration;

use boxes::{Line, join, noise, until};
use farside_accel::policy::Demotion;

#[test]
fn client_and_server_see_each_other_and_nothing_else() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let noise = noise(3_000_000);
    for (number, at) in (1..).zip(["10.2.0.3:8000", "[fd00:2::3]:8000"]) {
        let server = line.serve(&line.server, at);
        // The server's answer names the client's own address and port.
        line.exchange(server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
    }
    until("nothing is open", || {
        near.accelerator.connections.open() + far.accelerator.connections.open() == 0
    });
    // Three of twelve MB are new: the rest comes back, or once more in the other family. What had just passed when it came back
    // was not known to be there yet.
    assert!(near.accelerator.status().wire_bytes < 6_500_000, "{}", near.accelerator.status().wire_bytes);
}

#[test]
fn what_the_server_refuses_the_client_sees_refused() {
    let Some(line) = Line::new() else { return };
    let (near, _far) = line.both();
    for address in ["10.2.0.3:9", "[fd00:2::3]:9"] {
        let error = line.connect(address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{address}");
    }
    assert_eq!(near.taken(), 0);
}

#[test]
fn a_box_that_stops_lets_everything_pass_and_another_takes_over() {
    let Some(line) = Line::new() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let (near, far) = line.both();
    line.exchange(server, b"one");
    near.stop();
    let connected = line.exchange(server, b"two");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!(far.taken(), 1);
    let near = line.near();
    until("they meet again", || near.is_active() && far.is_active());
    line.exchange(server, b"three");
    assert_eq!((near.taken(), far.taken()), (1, 2));
    far.stop();
    until("the near box has noticed", || !near.is_active());
    let connected = line.exchange(server, b"four");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!((near.taken(), near.last_reason()), (1, Some(Demotion::PeerLost)));
}

#[test]
fn a_server_farther_on_is_found_by_a_probe() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    for (number, at) in (1..).zip(["10.4.0.4:8000", "[fd00:4::4]:8000"]) {
        let server = line.serve(&line.behind, at);
        let connected = line.exchange(server, b"the first goes plainly at once");
        assert!(connected < Duration::from_millis(500), "{connected:?}");
        assert_eq!(near.last_reason(), Some(Demotion::NoPeer));
        std::thread::sleep(Duration::from_millis(300));
        line.exchange(server, b"and the next over the boxes");
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
    }
}

#[test]
fn answers_that_take_another_way_are_noticed() {
    let Some(line) = Line::new() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let (near, far) = line.both();
    // A second line, past the far box, which only the server's answers take.
    join((&line.server, "past0"), (&line.near, "past0"), 8, (3, 1)).unwrap();
    line.near.sysctl("net/ipv4/conf/past0/rp_filter", "0").unwrap();
    line.server.ip("route add 10.1.0.0/24 via 10.8.0.1").unwrap();
    line.exchange(server, b"plainly, after the far box has waited in vain");
    assert_eq!((near.taken(), near.last_reason()), (0, Some(Demotion::NoAnswer)));
    let connected = line.exchange(server, b"and at once from then on");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!(far.taken(), 0);
}

#[test]
fn the_boxes_own_connections_and_those_between_lans_are_not_touched() {
    let Some(line) = Line::new() else { return };
    let (near, _far) = line.both();
    let to_box = line.serve(&line.near, "10.1.0.1:8000");
    line.exchange(to_box, b"to the box itself");
    assert_eq!((near.taken(), near.accelerator.status().passed_through_connections), (0, 0));
}

/// A host behind another router of the far site: not in the subnets of the far box's LAN, and still at that side.
#[test]
fn nobody_connects_as_a_host_of_the_other_side() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let server = line.serve(&line.server, "10.2.0.3:8000");
    line.client.ip("addr add 10.4.0.9/32 dev lo").unwrap();
    let pretended = line.client.inside(move || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([10, 4, 0, 9], 0)).into()).unwrap();
        socket.connect_timeout(&server.into(), Duration::from_secs(2))
    });
    // Plainly, the server's answer goes to the host that has the address.
    assert!(pretended.is_err());
    assert_eq!((near.last_reason(), far.taken()), (Some(Demotion::NoPeer), 0));
    line.exchange_from(&line.client, line.serve(&line.server, "10.2.0.3:8001"), b"and others still do");
    assert_eq!(far.taken(), 1);
}

#[test]
fn a_box_does_not_answer_a_probe_for_what_is_not_behind_it() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    line.far.ip("route replace 10.4.0.0/24 via 10.9.0.1").unwrap();
    for _ in 0..2 {
        let _ = line.client.inside(|| {
            std::net::TcpStream::connect_timeout(
                &"10.4.0.4:8000".parse().unwrap(),
                Duration::from_millis(500),
            )
        });
        assert_eq!(near.last_reason(), Some(Demotion::NoPeer));
    }
    assert_eq!((near.taken(), far.taken()), (0, 0));
}
