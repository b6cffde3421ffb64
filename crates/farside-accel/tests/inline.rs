//! Two boxes that are bridges, with a router between them.
//!
//! ```text
//! client ── lan0 near wan0 ── router ── wan0 far lan0 ── server
//!   10.1.0.2    br0 .11    .1        10.2.0.1    br0 .12     .3
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "other tests use the rest")]
mod boxes;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use boxes::space::{PATIENCE, Space};
use boxes::{Line, until};
use farside_accel::accelerator::{Running, plan};
use farside_accel::control::{Interception, Secret, Settings};
use farside_accel::policy::{Action, Demotion};

/// A box's bridge with its address and its way to the other side.
fn bridge(space: &Space, host: &str, network: u8) {
    space
        .ip(&format!(
            "link add br0 type bridge\nlink set br0 up\n\
             link set lan0 master br0 up\nlink set wan0 master br0 up\n\
             addr add 10.{network}.0.{host}/24 dev br0\naddr add fd00:{network}::{host}/64 dev br0 nodad\n\
             route add default via 10.{network}.0.1\nroute add ::/0 via fd00:{network}::1"
        ))
        .unwrap();
    for path in ["iptables", "ip6tables"] {
        space.sysctl(&format!("net/bridge/bridge-nf-call-{path}"), "0").unwrap();
    }
    space.sysctl("net/ipv4/ip_forward", "1").unwrap();
    space.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
    for link in ["all", "br0"] {
        space.sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0").unwrap();
    }
}

/// `behind` is the router.
fn line() -> Option<Line> {
    let line = Line::of(|[client, near, far, server, router]| {
        let host = |space: &Space, network: u8, host: u8| {
            space.ip(&format!(
                "addr add 10.{network}.0.{host}/24 dev eth0\naddr add fd00:{network}::{host}/64 dev eth0 nodad\n\
                 link set eth0 up\nroute add default via 10.{network}.0.1\nroute add ::/0 via fd00:{network}::1"
            ))
        };
        let wire = |left: &Space, name: &str, right: &Space, other: &str| {
            left.ip(&format!("link add {name} type veth peer name {other} netns {}", right.path()))
        };
        wire(near, "lan0", client, "eth0")?;
        wire(near, "wan0", router, "north")?;
        wire(far, "wan0", router, "south")?;
        wire(far, "lan0", server, "eth0")?;
        for (link, network) in [("north", 1), ("south", 2)] {
            router.ip(&format!(
                "link set {link} up\naddr add 10.{network}.0.1/24 dev {link}\n\
                 addr add fd00:{network}::1/64 dev {link} nodad"
            ))?;
        }
        router.sysctl("net/ipv4/ip_forward", "1")?;
        router.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        bridge(near, "11", 1);
        bridge(far, "12", 2);
        host(client, 1, 2)?;
        host(server, 2, 3)
    })?;
    line.meet(&[&line.client, &line.near, &line.far], &["10.2.0.3:9", "[fd00:2::3]:9"]);
    Some(line)
}

fn boxes_of(line: &Line) -> (boxes::InSpace, boxes::InSpace) {
    let far = line.start("far", &line.far, "near", "10.1.0.11:7442");
    let near = line.start("near", &line.near, "far", "10.2.0.12:7442");
    until("the boxes meet", || near.is_active() && far.is_active());
    (near, far)
}

/// A datagram that the router may forward, and nobody else besides, arrives.
fn only_the_router_forwards(line: &Line) {
    let receiver = line.server.inside(|| UdpSocket::bind("10.2.0.3:5000").unwrap());
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    line.client.inside(|| {
        let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
        socket.set_ttl(2).unwrap();
        socket.send_to(b"plain", "10.2.0.3:5000").unwrap();
    });
    assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 5);
}

#[test]
fn client_and_server_see_each_other_through_bridges() {
    let Some(line) = line() else { return };
    let (near, far) = boxes_of(&line);
    let noise = boxes::noise(3_000_000);
    for (number, at) in (1..).zip(["10.2.0.3:8000", "[fd00:2::3]:8000"]) {
        let server = line.serve(&line.server, at);
        // Nothing tells what is behind a bridge: a probe looks.
        let connected = line.exchange(server, b"plainly");
        assert!(connected < Duration::from_millis(500), "{connected:?}");
        assert_eq!(near.last_reason(), Some(Demotion::NoPeer));
        std::thread::sleep(Duration::from_millis(300));
        line.exchange(server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
        let refused = SocketAddr::new(server.ip(), 9);
        let error = line.connect(refused).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{at}");
    }
    assert_eq!((near.taken(), far.taken()), (2, 2));
    only_the_router_forwards(&line);

    // Programs on the boxes themselves.
    let server: SocketAddr = "10.2.0.3:8000".parse().unwrap();
    line.exchange_from(&line.near, server, b"from the near box");
    let on_far = line.serve(&line.far, "10.2.0.12:8000");
    line.exchange(on_far, b"plainly");
    std::thread::sleep(Duration::from_millis(300));
    line.exchange(on_far, &noise[..100_000]);
    assert_eq!((near.taken(), far.taken()), (4, 4));
}

#[test]
fn configured_subnets_are_proved_by_a_probe() {
    let Some(line) = line() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let far = line.start("far", &line.far, "near", "10.1.0.11:7442");
    let mut settings = line.settings("near", &[("far", "10.2.0.12:7442")]);
    settings.peers[0].subnets = vec!["10.2.0.0/24".parse().unwrap()];
    let near = boxes::InSpace::start(&line.near, settings);
    until("the boxes meet", || near.is_active() && far.is_active());
    line.exchange(server, b"the far box asks for a proof");
    assert_eq!(near.taken(), 0);
    std::thread::sleep(Duration::from_millis(300));
    line.exchange(server, b"and has it");
    assert_eq!((near.taken(), far.taken()), (1, 1));
}

#[test]
fn a_box_that_goes_leaves_a_bridge() {
    let Some(line) = line() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    let (near, far) = boxes_of(&line);
    line.exchange(server, b"the probe");
    std::thread::sleep(Duration::from_millis(300));
    line.exchange(server, b"one");
    assert_eq!(near.taken(), 1);
    near.stop();
    let tables = line.near.program({
        let mut command = Command::new("nft");
        command.args(["list", "ruleset"]);
        command
    });
    if let Ok(tables) = tables {
        assert_eq!(String::from_utf8(tables.stdout).unwrap(), "");
    }
    let connected = line.exchange(server, b"two");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
    assert_eq!(far.taken(), 1);
}

#[test]
fn smaller_packets_are_asked_for_through_bridges() {
    let Some(line) = line() else { return };
    let (_router, behind) = boxes::beyond_a_small_link(&line.server, 7);
    for space in [&line.behind, &line.far] {
        for network in [7, 8] {
            space
                .ip(&format!(
                    "route add 10.{network}.0.0/24 via 10.2.0.3\nroute add fd00:{network}::/64 via fd00:2::3"
                ))
                .unwrap();
        }
    }
    line.meet(&[&line.client, &line.near, &line.far], &["10.8.0.2:9", "[fd00:8::2]:9"]);
    let (near, far) = boxes_of(&line);
    let noise = boxes::noise(1_000_000);
    for (number, at) in (1..).zip(["10.8.0.2:8000", "[fd00:8::2]:8000"]) {
        let server = line.serve(&behind, at);
        line.exchange(server, b"the probe");
        std::thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        line.exchange(server, &noise);
        assert_eq!((near.taken(), far.taken()), (number, number), "{at}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

/// Set in a process that is to be killed.
const DOOMED: &str = "FARSIDE_TEST_INLINE";

/// Not a test: the process that [`a_killed_box_is_a_bridge`] kills.
#[test]
fn doomed_process() {
    let Some(pem) = std::env::var_os(DOOMED) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let settings = Settings {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        site_name: "near".to_owned(),
        identity: Secret::new(std::fs::read_to_string(pem).unwrap()),
        listen: "0.0.0.0:7442".to_owned(),
        interception: Some(Interception { lan: vec!["lan0".to_owned()], wan: "wan0".to_owned() }),
        store: None,
        forward_to: Vec::new(),
        policies: Vec::new(),
        otherwise: Action::Full,
        peers: Vec::new(),
        forwards: Vec::new(),
    };
    let _running = runtime.block_on(Running::start(settings)).unwrap();
    println!("started");
    std::thread::sleep(6 * PATIENCE);
}

#[test]
fn a_killed_box_is_a_bridge() {
    let Some(line) = line() else { return };
    let server = line.serve(&line.server, "10.2.0.3:8000");
    line.identity("near");
    let pem = line.directory.path().join("near").join("identity.pem");
    let mut child = line.near.inside(move || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "doomed_process", "--nocapture"])
            .env(DOOMED, pem)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let output = io::BufReader::new(child.stdout.take().unwrap());
    assert!(io::BufRead::lines(output).any(|line| line.unwrap().contains("started")));
    line.exchange(server, b"it passes");
    child.kill().unwrap();
    child.wait().unwrap();
    let connected = line.exchange(server, b"and so does this");
    assert!(connected < Duration::from_millis(200), "{connected:?}");
}

#[test]
fn what_stands_in_the_way_is_said() {
    let Some(line) = line() else { return };
    line.near.sysctl("net/bridge/bridge-nf-call-iptables", "1").unwrap();
    let interception = |lan: &str, wan: &str| Interception { lan: vec![lan.to_owned()], wan: wan.to_owned() };
    let of = move |lan: &'static str, wan: &'static str| {
        move || plan(&interception(lan, wan), 1, "0.0.0.0:7442").map_err(|error| error.to_string())
    };
    let said = line.near.inside(of("lan0", "wan0")).unwrap();
    assert!(said.contains("table bridge farside {"), "{said}");
    assert!(said.contains("# net.bridge.bridge-nf-call-iptables is 1"), "{said}");
    // One port, and something that is none of the same bridge.
    line.near.ip("link add other type veth peer name another").unwrap();
    let error = line.near.inside(of("lan0", "other")).unwrap_err();
    assert!(error.contains("lan0 is a port of the bridge br0"), "{error}");
    // The bridge itself as an ordinary interface.
    assert!(!line.near.inside(of("br0", "other")).unwrap().contains("table bridge"));

    let refused = boxes::InSpace::fails(&line.near, line.settings("near", &[]));
    assert!(refused.contains("net.bridge.bridge-nf-call-iptables is 1"), "{refused}");
}
