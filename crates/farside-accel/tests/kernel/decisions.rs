//! What becomes of a held packet.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use farside_accel::kernel::{Decision, transparent};
use farside_accel::packet::Packet;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};

use super::space::{PATIENCE, at_client, at_server};
use super::{A_WHILE, PROBE_PORT, accept, connect, install, join, lab, listen};

#[test]
fn a_syn_waits_and_goes_its_plain_way() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        for address in at_server(80) {
            let listener = listen(&lab.server, address);
            let connecting = connect(&lab.client, address);
            let (held, syn) = installed.syn().await;
            assert_eq!(syn.ends.server, address);
            assert_eq!(syn.mss, Some(if address.is_ipv4() { 1460 } else { 1440 }));
            tokio::time::sleep(A_WHILE).await;
            assert!(!connecting.is_finished(), "it is not held");
            installed.queue.decide(held, Decision::Plain).unwrap();
            let connected = join(connecting).await.unwrap();
            let (_stream, peer) = accept(&listener).await;
            assert_eq!(peer, connected.local_addr().unwrap());
            assert_eq!(peer, syn.ends.client);
        }
    });
}

#[test]
fn a_taken_connection_is_accepted_in_the_servers_name() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        // Nobody listens there, and nobody needs to.
        for address in at_server(81) {
            let connecting = connect(&lab.client, address);
            let (held, syn) = installed.syn().await;
            installed.queue.decide(held, Decision::Take).unwrap();
            let mut stream = installed.accept(address).await;
            let mut connected = join(connecting).await.unwrap();
            assert_eq!(stream.local_addr().unwrap(), address);
            assert_eq!(stream.peer_addr().unwrap(), connected.local_addr().unwrap());
            assert_eq!(stream.peer_addr().unwrap(), syn.ends.client);
            assert!(stream.nodelay().unwrap(), "not inherited from the listener");

            connected.write_all(b"question").unwrap();
            let mut buffer = [0; 8];
            stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"question");
            stream.write_all(b"response").await.unwrap();
            connected.set_read_timeout(Some(PATIENCE)).unwrap();
            connected.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"response");
        }
    });
}

#[test]
fn a_refused_connection_is_reset() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        for address in at_server(82) {
            // The server itself would accept.
            let _listener = listen(&lab.server, address);
            let connecting = connect(&lab.client, address);
            let (held, _) = installed.syn().await;
            installed.queue.decide(held, Decision::Refuse).unwrap();
            let error = join(connecting).await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        }
    });
}

#[test]
fn a_dropped_syn_is_sent_again() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(83)[0];
        let _listener = listen(&lab.server, address);
        let connecting = connect(&lab.client, address);
        let (first, syn) = installed.syn().await;
        installed.queue.decide(first, Decision::Drop).unwrap();
        let (second, again) = installed.syn().await;
        assert_eq!(syn, again);
        installed.queue.decide(second, Decision::Plain).unwrap();
        join(connecting).await.unwrap();
    });
}

#[test]
fn what_is_dropped_undecided_goes_its_plain_way() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        let address = at_server(84)[0];
        let _listener = listen(&lab.server, address);
        let connecting = connect(&lab.client, address);
        let begin = Instant::now();
        drop(installed.held().await);
        join(connecting).await.unwrap();
        assert!(begin.elapsed() < Duration::from_millis(900), "only the second SYN got through");

        // The queue is closed with packets in it, and with one that somebody still has.
        let connecting = [connect(&lab.client, address), connect(&lab.neighbour, address)];
        let begin = Instant::now();
        tokio::time::sleep(A_WHILE).await;
        drop(installed.queue);
        for connecting in connecting {
            join(connecting).await.unwrap();
        }
        assert!(begin.elapsed() < A_WHILE + Duration::from_millis(500), "only the second SYN got through");
        // Without a queue the rules let everything through.
        let begin = Instant::now();
        join(connect(&lab.client, address)).await.unwrap();
        assert!(begin.elapsed() < Duration::from_millis(500));
    });
}

#[test]
fn the_code_point_of_a_syn_is_seen_and_given_to_the_far_leg() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        for address in at_server(85) {
            let _listener = listen(&lab.server, address);
            let connecting = lab.client.spawn(move || {
                let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
                let set = if address.is_ipv4() { Socket::set_tos_v4 } else { Socket::set_tclass_v6 };
                set(&socket, 34 << 2).unwrap();
                socket.connect_timeout(&address.into(), PATIENCE)
            });
            let (held, syn) = installed.syn().await;
            assert_eq!(syn.dscp, 34);
            installed.queue.decide(held, Decision::Plain).unwrap();
            join(connecting).await.unwrap();

            let stream = transparent::connect(None, address, Some(34)).await.unwrap();
            assert!(stream.nodelay().unwrap());
            let options = SockRef::from(&stream);
            let is = if address.is_ipv4() { options.tos_v4() } else { options.tclass_v6() };
            assert_eq!(is.unwrap(), 34 << 2);
        }
    });
}

#[test]
fn the_far_leg_comes_from_the_clients_address_and_port() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let _installed = install();
        for (client, address) in at_client(45_678).into_iter().zip(at_server(86)) {
            let listener = listen(&lab.server, address);
            let mut stream = transparent::connect(Some(client), address, None).await.unwrap();
            let (mut accepted, peer) = accept(&listener).await;
            assert_eq!(peer, client);
            assert!(stream.nodelay().unwrap());
            accepted.write_all(b"welcome").unwrap();
            let mut buffer = [0; 7];
            stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"welcome");

            let refused =
                transparent::connect(Some(client), at_server(87)[usize::from(client.is_ipv6())], None);
            assert_eq!(refused.await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
        }
        let mixed = transparent::connect(Some(at_client(45_678)[0]), at_server(86)[1], None).await;
        assert_eq!(mixed.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    });
}

/// Both legs in one box: what two boxes do, without what lies between them.
#[test]
fn client_and_server_see_each_other_through_both_legs() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        const SIZE: usize = 3_000_000;
        let mut installed = install();
        for address in at_server(88) {
            let listener = listen(&lab.server, address);
            let serving = lab.server.spawn(move || {
                let (mut stream, peer) = listener.accept().unwrap();
                let mut buffer = vec![0; SIZE];
                stream.read_exact(&mut buffer).unwrap();
                stream.write_all(&buffer).unwrap();
                peer
            });
            let asking = lab.client.spawn(move || {
                let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
                let sent: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
                stream.write_all(&sent).unwrap();
                let mut received = vec![0; SIZE];
                stream.read_exact(&mut received).unwrap();
                assert!(sent == received);
                stream.local_addr().unwrap()
            });
            let (held, syn) = installed.syn().await;
            let mut far =
                transparent::connect(Some(syn.ends.client), syn.ends.server, Some(syn.dscp)).await.unwrap();
            installed.queue.decide(held, Decision::Take).unwrap();
            let mut near = installed.accept(address).await;
            assert_eq!((near.peer_addr().unwrap(), near.local_addr().unwrap()), (syn.ends.client, address));
            copy_bidirectional(&mut near, &mut far).await.unwrap();
            assert_eq!(join(serving).await, join(asking).await);
        }
    });
}

#[test]
fn a_probe_is_seen_and_let_through_or_dropped() {
    let Some(lab) = lab() else { return };
    let middle = lab.middle.clone();
    middle.run(move || async move {
        let mut installed = install();
        for client in at_client(PROBE_PORT) {
            let receiver = lab.client.inside(move || UdpSocket::bind(client)).unwrap();
            receiver.set_read_timeout(Some(A_WHILE)).unwrap();
            let sender =
                lab.server.inside(move || UdpSocket::bind(at_server(5000)[usize::from(client.is_ipv6())]));
            let sender = sender.unwrap();
            let mut buffer = [0; 64];
            for decision in [Decision::Plain, Decision::Drop] {
                sender.send_to(b"is there a box?", client).unwrap();
                let held = installed.held().await;
                let Packet::Probe(probe) = held.packet.clone() else { panic!("{held:?} is no probe") };
                assert_eq!((probe.from, probe.to), (sender.local_addr().unwrap(), client));
                assert_eq!(probe.payload, b"is there a box?");
                installed.queue.decide(held, decision).unwrap();
                let received = receiver.recv(&mut buffer).map(|length| buffer[..length].to_vec());
                match decision {
                    Decision::Plain => assert_eq!(received.unwrap(), b"is there a box?"),
                    _ => assert!(received.is_err(), "it came through"),
                }
            }
        }
    });
}
