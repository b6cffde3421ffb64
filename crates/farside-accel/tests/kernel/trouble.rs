//! Many connections at once, and what goes wrong in passing.

use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farside_accel::kernel::Decision;
use farside_accel::packet::Packet;
use socket2::{Domain, Socket, Type};

use super::space::{PATIENCE, Space, at_server};
use super::{accept, connect, install, join, lab, listen};

#[test]
fn a_thousand_syns_are_held_at_once_and_none_is_lost() {
    const CONNECTIONS: usize = 1000;
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(90)[0];
        let begin = Instant::now();
        let client = lab.client.clone();
        let connecting = std::thread::spawn(move || {
            client.run(move || async move {
                let mut all = tokio::task::JoinSet::new();
                for _ in 0..CONNECTIONS {
                    all.spawn(tokio::net::TcpStream::connect(address));
                }
                all.join_all().await.into_iter().map(|stream| stream.unwrap().local_addr().unwrap()).collect()
            })
        });
        // All of them, before any is decided about: in the queue, the socket, and here.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut held = Vec::new();
        while held.len() < CONNECTIONS {
            held.push(installed.syn().await);
        }
        let ends: HashSet<SocketAddr> = held.iter().map(|(_, syn)| syn.ends.client).collect();
        assert_eq!(ends.len(), CONNECTIONS, "some came twice");
        let read = begin.elapsed();
        for (held, _) in held {
            installed.queue.decide(held, Decision::Take).unwrap();
        }
        let mut accepted = HashSet::new();
        let mut streams = Vec::new();
        while accepted.len() < CONNECTIONS {
            let stream = installed.accept(address).await;
            accepted.insert(stream.peer_addr().unwrap());
            streams.push(stream);
        }
        let connected: HashSet<SocketAddr> = join(connecting).await;
        assert_eq!(connected, accepted);
        assert_eq!(ends, accepted);
        eprintln!("{CONNECTIONS} SYNs were held after {read:?}, all connected after {:?}", begin.elapsed());
    });
}

#[test]
fn a_verdict_on_a_packet_that_is_gone_ends_nothing() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(91)[0];
        let _listener = listen(&lab.server, address);
        let connecting = connect(&lab.client, address);
        let (held, _) = installed.syn().await;
        // The kernel drops what came in by an interface that goes.
        lab.middle.ip("link set lan0 down\nlink set lan0 up").unwrap();
        installed.queue.decide(held, Decision::Plain).unwrap();

        let next = connect(&lab.neighbour, address);
        let (held, syn) = installed.syn().await;
        assert_eq!(syn.ends.client.ip(), SocketAddr::from(([10, 3, 0, 4], 1)).ip());
        installed.queue.decide(held, Decision::Plain).unwrap();
        join(next).await.unwrap();
        // The first client sends its SYN again.
        let (held, _) = installed.syn().await;
        installed.queue.decide(held, Decision::Plain).unwrap();
        join(connecting).await.unwrap();
    });
}

/// Why the queue goes before the table.
#[test]
fn what_is_held_when_the_table_goes_is_dropped() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(94)[0];
        let _listener = listen(&lab.server, address);
        let begin = Instant::now();
        let connecting = connect(&lab.client, address);
        let (held, _) = installed.syn().await;
        drop(installed.table);
        installed.queue.decide(held, Decision::Plain).unwrap();
        join(connecting).await.unwrap();
        assert!(begin.elapsed() > Duration::from_millis(900), "its first SYN got through");
    });
}

/// Connects from this port, as soon as the last connection from it has ended.
fn connect_from(client: &Space, port: u16, to: SocketAddr) -> std::thread::JoinHandle<TcpStream> {
    client.spawn(move || {
        loop {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into()).unwrap();
            match socket.connect_timeout(&to.into(), PATIENCE) {
                Ok(()) => return socket.into(),
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
}

/// A server closes first, and the client comes again from the same port while the near box's socket is in TIME-WAIT.
#[test]
fn a_client_comes_again_from_the_same_port() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(92)[0];
        for _ in 0..3 {
            let connecting = connect_from(&lab.client, 50_000, address);
            let begin = Instant::now();
            let (held, _) = installed.syn().await;
            installed.queue.decide(held, Decision::Take).unwrap();
            let stream = installed.accept(address).await;
            let mut connected = join(connecting).await;
            assert!(begin.elapsed() < Duration::from_millis(900), "it took a second SYN");
            assert_eq!(stream.peer_addr().unwrap(), connected.local_addr().unwrap());
            drop(stream);
            assert_eq!(connected.read(&mut [0; 1]).unwrap(), 0);
        }
    });
}

/// What is no SYN and no probe is not queued, and what looks like one and cannot be read goes its plain way.
#[test]
fn segments_of_plain_connections_are_not_queued() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(93)[0];
        let listener = listen(&lab.server, address);
        let connecting = connect(&lab.client, address);
        let (held, _) = installed.syn().await;
        installed.queue.decide(held, Decision::Plain).unwrap();
        let mut connected = join(connecting).await.unwrap();
        let (accepted, _) = accept(&listener).await;
        drop(accepted);
        assert_eq!(connected.read(&mut [0; 1]).unwrap(), 0);
        let next = tokio::time::timeout(super::A_WHILE, installed.queue.recv()).await;
        assert!(next.is_err(), "{next:?}");

        // A probe with more payload than is looked at.
        let sender = lab.server.inside(|| std::net::UdpSocket::bind(at_server(5000)[0])).unwrap();
        let receiver = lab
            .client
            .inside(|| std::net::UdpSocket::bind(super::space::at_client(super::PROBE_PORT)[0]))
            .unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        sender.send_to(&[7; 1400], receiver.local_addr().unwrap()).unwrap();
        let held = installed.held().await;
        assert_eq!(held.packet, Packet::Other);
        installed.queue.decide(held, Decision::Plain).unwrap();
        let mut buffer = [0; 2000];
        // Only the copy was short.
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 1400);
        assert_eq!(buffer[..1400], [7; 1400]);
    });
}
