//! Connections of which one end, or both, is a program on a box itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use boxes::space::PATIENCE;
use boxes::{Line, noise, until};

fn nothing_is_open(line: &[&boxes::InSpace]) {
    until("nothing is open", || line.iter().all(|one| one.accelerator.connections.open() == 0));
}

#[test]
fn a_program_on_the_near_box_is_the_client() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let noise = noise(3_000_000);
    for (number, at) in (1..).zip(["10.2.0.3:8000", "[fd00:2::3]:8000"]) {
        let server = line.serve(&line.server, at);
        line.exchange_from(&line.near, server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
    }
    for address in ["10.2.0.3:9", "[fd00:2::3]:9"] {
        let error = line.connect_from(&line.near, address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{address}");
    }
    nothing_is_open(&[&near, &far]);
    // To a host at its own LAN, and to the other box's port where boxes meet: not looked at.
    let on_lan = line.serve(&line.client, "10.1.0.2:8000");
    line.exchange_from(&line.near, on_lan, b"a neighbour");
    line.connect_from(&line.near, "10.9.0.2:7442".parse().unwrap()).unwrap();
    assert_eq!((near.taken(), near.accelerator.status().passed_through_connections), (2, 0));
}

#[test]
fn a_program_on_the_far_box_is_the_server() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let noise = noise(3_000_000);
    for (number, at) in (1..).zip(["10.2.0.1:8000", "[fd00:2::1]:8000"]) {
        let server = line.serve(&line.far, at);
        line.exchange(server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
    }
    for address in ["10.2.0.1:9", "[fd00:2::1]:9"] {
        let error = line.connect(address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{address}");
    }
    nothing_is_open(&[&near, &far]);
    // SSH to a box is whoever administers it.
    let ssh = line.serve(&line.far, "10.2.0.1:22");
    line.exchange(ssh, b"plainly");
    assert_eq!((near.taken(), far.taken()), (2, 2));
}

#[test]
fn programs_on_both_boxes() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let noise = noise(1_000_000);
    let server = line.serve(&line.far, "10.2.0.1:8000");
    line.exchange_from(&line.near, server, &noise);
    assert_eq!((near.taken(), far.taken()), (1, 1));
    // And the other way.
    let server = line.serve(&line.near, "10.1.0.1:8000");
    line.exchange_from(&line.far, server, &noise);
    assert_eq!((near.taken(), far.taken()), (2, 2));
    // What may be a session of the sites themselves, at a port that nobody knows.
    let server = line.serve(&line.far, "10.9.0.2:9990");
    line.exchange_from(&line.near, server, b"not touched");
    assert_eq!((near.taken(), near.accelerator.status().passed_through_connections), (2, 0));
}

#[test]
fn they_go_plainly_when_their_box_stops_and_nothing_is_left() {
    let Some(line) = Line::new() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let (near, far) = line.both();
    line.exchange_from(&line.near, server, b"one");
    let mut open = line.connect_from(&line.near, server).unwrap();
    until("it is taken", || near.taken() == 2);
    near.stop();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    let ended = open.read(&mut [0; 1]);
    assert!(ended.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset), "{ended:?}");
    let connected = line.exchange_from(&line.near, server, b"two");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!(far.taken(), 2);
    assert!(!line.near.ip_says("rule").contains("fwmark"));
}

/// The same port of a client on the box, first over the boxes, then plainly: what was carried is not any more.
#[test]
fn a_port_that_was_carried_goes_plainly_later() {
    let Some(line) = Line::new() else { return };
    let (near, far) = line.both();
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let connect = move || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        // A reset at the end leaves no TIME-WAIT.
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        socket.bind(&SocketAddr::from(([10, 9, 0, 1], 50_000)).into()).unwrap();
        socket.connect_timeout(&server.into(), PATIENCE).unwrap();
        std::net::TcpStream::from(socket)
    };
    drop(line.near.inside(connect));
    nothing_is_open(&[&near, &far]);
    far.stop();
    until("the near box has noticed", || !near.is_active());
    let began = std::time::Instant::now();
    line.exchange_over(line.near.inside(connect), b"plainly");
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(near.taken(), 1);
}
