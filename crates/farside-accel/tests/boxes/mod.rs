//! Two boxes in the path, in network namespaces.
//!
//! ```text
//! client eth0 ── lan0 near wan0 ── wan0 far lan0 ── eth0 server eth1 ── eth0 behind
//!        10.1.0.2      .1  10.9.0.1  .2  10.2.0.1     .3  10.4.0.3      .4
//! ```

#[path = "../kernel/space.rs"]
#[allow(dead_code, reason = "the tests of the kernel use the rest")]
pub(crate) mod space;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_accel::accelerator::{Accelerator, Running};
use farside_accel::control::{Interception, Peer, Secret, Settings, StorePlace};
use farside_accel::policy::{Action, Demotion};
use farside_peer::Identity;
use space::{PATIENCE, Space};

pub(crate) struct Line {
    pub(crate) client: Space,
    pub(crate) near: Space,
    pub(crate) far: Space,
    pub(crate) server: Space,
    pub(crate) behind: Space,
    pub(crate) directory: tempfile::TempDir,
}

pub(crate) fn join(
    left: (&Space, &str),
    right: (&Space, &str),
    network: u8,
    hosts: (u8, u8),
) -> io::Result<()> {
    left.0.ip(&format!("link add {} type veth peer name {} netns {}", left.1, right.1, right.0.path()))?;
    for ((space, link), host) in [(left, hosts.0), (right, hosts.1)] {
        space.ip(&format!(
            "addr add 10.{network}.0.{host}/24 dev {link}\n\
             addr add fd00:{network}::{host}/64 dev {link} nodad\n\
             link set {link} up"
        ))?;
    }
    Ok(())
}

fn lay([client, near, far, server, behind]: [&Space; 5]) -> io::Result<()> {
    join((client, "eth0"), (near, "lan0"), 1, (2, 1))?;
    join((near, "wan0"), (far, "wan0"), 9, (1, 2))?;
    join((far, "lan0"), (server, "eth0"), 2, (1, 3))?;
    join((server, "eth1"), (behind, "eth0"), 4, (3, 4))?;
    let default = |space: &Space, v4: &str, v6: &str| {
        space.ip(&format!("route add default via {v4}\nroute add ::/0 via {v6}"))
    };
    default(client, "10.1.0.1", "fd00:1::1")?;
    default(near, "10.9.0.2", "fd00:9::2")?;
    default(server, "10.2.0.1", "fd00:2::1")?;
    default(behind, "10.4.0.3", "fd00:4::3")?;
    far.ip("route add 10.1.0.0/24 via 10.9.0.1\nroute add fd00:1::/64 via fd00:9::1\n\
             route add 10.4.0.0/24 via 10.2.0.3\nroute add fd00:4::/64 via fd00:2::3")?;
    for space in [near, far, server] {
        space.sysctl("net/ipv4/ip_forward", "1")?;
        space.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        space.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
    }
    for (space, links) in [(near, ["lan0", "wan0"]), (far, ["lan0", "wan0"]), (server, ["eth0", "eth1"])] {
        for link in links {
            space.sysctl(&format!("net/ipv4/conf/{link}/rp_filter"), "0")?;
        }
    }
    Ok(())
}

impl Line {
    /// As at the head. `None`, with a line, where it cannot be had.
    pub(crate) fn new() -> Option<Line> {
        let line = Line::of(lay)?;
        line.meet(&[&line.client], &["10.2.0.3:9", "[fd00:2::3]:9", "10.4.0.4:9", "[fd00:4::4]:9"]);
        Some(line)
    }

    /// Client, near, far, server and behind, joined by `lay`.
    pub(crate) fn of(lay: impl FnOnce([&Space; 5]) -> io::Result<()>) -> Option<Line> {
        let make = || {
            let [client, near, far, server, behind] =
                [Space::new()?, Space::new()?, Space::new()?, Space::new()?, Space::new()?];
            lay([&client, &near, &far, &server, &behind])?;
            Ok(Line { client, near, far, server, behind, directory: tempfile::tempdir()? })
        };
        let made: io::Result<Line> = make();
        match made {
            Ok(line) => Some(line),
            Err(error) => {
                let required = std::env::var_os("FARSIDE_REQUIRE_LAB").is_some();
                assert!(!required, "no network namespaces: {error}");
                eprintln!("skipped: no network namespaces (root and iproute2 are needed): {error}");
                None
            }
        }
    }

    /// The first packets on new links wait for their neighbours; those of a test do not. On a busy machine a neighbour may not
    /// answer in time at first.
    pub(crate) fn meet(&self, from: &[&Space], closed: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        for address in closed {
            for from in from {
                loop {
                    let refused = self.connect_from(from, address.parse().unwrap()).unwrap_err();
                    if refused.kind() == io::ErrorKind::ConnectionRefused {
                        break;
                    }
                    assert!(Instant::now() < deadline, "{address}: {refused}");
                }
            }
        }
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        self.connect_from(&self.client, to)
    }

    pub(crate) fn connect_from(&self, from: &Space, to: SocketAddr) -> io::Result<TcpStream> {
        from.inside(move || TcpStream::connect_timeout(&to, PATIENCE))
    }

    /// A server that sends back what it gets, and in front of it, whom it sees.
    pub(crate) fn serve(&self, on: &Space, at: &str) -> SocketAddr {
        let at: SocketAddr = at.parse().unwrap();
        let listener = on.inside(move || TcpListener::bind(at).unwrap());
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(mut socket) = socket else { return };
                std::thread::spawn(move || {
                    let who = socket.peer_addr().unwrap();
                    let mut all = Vec::new();
                    if socket.read_to_end(&mut all).is_ok() {
                        let _ = socket.write_all(format!("{who}\n").as_bytes());
                        let _ = socket.write_all(&all);
                    }
                });
            }
        });
        address
    }

    /// Sends `bytes` to a server, and checks what comes back. How long it took to connect.
    pub(crate) fn exchange(&self, with: SocketAddr, bytes: &[u8]) -> Duration {
        self.exchange_from(&self.client, with, bytes)
    }

    pub(crate) fn exchange_from(&self, from: &Space, with: SocketAddr, bytes: &[u8]) -> Duration {
        let began = Instant::now();
        let socket = self.connect_from(from, with).unwrap();
        let connected = began.elapsed();
        self.exchange_over(socket, bytes);
        connected
    }

    pub(crate) fn exchange_over(&self, mut socket: TcpStream, bytes: &[u8]) {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(bytes).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        let expected = [format!("{}\n", socket.local_addr().unwrap()).as_bytes(), bytes].concat();
        assert!(got == expected, "{} bytes came back instead of {}", got.len(), expected.len());
    }

    pub(crate) fn identity(&self, name: &str) -> (String, String) {
        let home = self.directory.path().join(name);
        std::fs::create_dir_all(&home).unwrap();
        let identity = Identity::load_or_create(&home).unwrap();
        (std::fs::read_to_string(home.join("identity.pem")).unwrap(), identity.id().to_string())
    }

    pub(crate) fn start(&self, name: &str, in_space: &Space, peer: &str, address: &str) -> InSpace {
        InSpace::start(in_space, self.settings(name, &[(peer, address)]))
    }

    /// Of a box that is called so, and its peers: names and addresses.
    pub(crate) fn settings(&self, name: &str, peers: &[(&str, &str)]) -> Settings {
        let (pem, _) = self.identity(name);
        let peer = |(name, address): &(&str, &str)| Peer {
            id: self.identity(name).1,
            name: (*name).to_owned(),
            address: Some((*address).to_owned()),
            subnets: Vec::new(),
        };
        Settings {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            site_name: name.to_owned(),
            identity: Secret::new(pem),
            listen: "0.0.0.0:7442".to_owned(),
            interception: Some(Interception { lan: vec!["lan0".to_owned()], wan: "wan0".to_owned() }),
            store: Some(StorePlace {
                path: self.directory.path().join(name).join("chunks").display().to_string(),
                bytes: 64 << 20,
            }),
            forward_to: Vec::new(),
            policies: Vec::new(),
            otherwise: Action::Full,
            peers: peers.iter().map(peer).collect(),
            forwards: Vec::new(),
        }
    }

    pub(crate) fn near(&self) -> InSpace {
        self.start("near", &self.near, "far", "10.9.0.2:7442")
    }

    pub(crate) fn far(&self) -> InSpace {
        self.start("far", &self.far, "near", "10.9.0.1:7442")
    }

    pub(crate) fn both(&self) -> (InSpace, InSpace) {
        let (far, near) = (self.far(), self.near());
        until("the boxes meet", || near.is_active() && far.is_active());
        (near, far)
    }
}

/// Makes `router` a router to a link of 1300 bytes, a router at its other end, and a host behind that one which knows nothing of it:
/// networks `network` and `network + 1`, the host is .2 in the latter. `router` has a default route or will know the way back.
pub(crate) fn beyond_a_small_link(router: &Space, network: u8) -> (Space, Space) {
    let (other, host) = (Space::new().unwrap(), Space::new().unwrap());
    let next = network + 1;
    join((router, "small0"), (&other, "small0"), network, (1, 2)).unwrap();
    join((&other, "eth0"), (&host, "eth0"), next, (1, 2)).unwrap();
    for space in [router, &other] {
        space.ip("link set small0 mtu 1300").unwrap();
        space.sysctl("net/ipv4/ip_forward", "1").unwrap();
        space.sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
        space.sysctl("net/ipv4/conf/all/rp_filter", "0").unwrap();
    }
    router
        .ip(&format!(
            "route add 10.{next}.0.0/24 via 10.{network}.0.2\nroute add fd00:{next}::/64 via fd00:{network}::2"
        ))
        .unwrap();
    for (space, from) in [(&other, network), (&host, next)] {
        space.ip(&format!("route add default via 10.{from}.0.1\nroute add ::/0 via fd00:{from}::1")).unwrap();
    }
    (other, host)
}

/// A box on a thread, and a runtime, of a namespace.
pub(crate) struct InSpace {
    pub(crate) accelerator: Arc<Accelerator>,
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl InSpace {
    /// Why it does not start.
    pub(crate) fn fails(space: &Space, settings: Settings) -> String {
        space.run(move || async move { Running::start(settings).await.err().unwrap().to_string() })
    }

    pub(crate) fn start(space: &Space, settings: Settings) -> InSpace {
        let (started, is_started) = mpsc::channel();
        let (stop, is_stopped) = mpsc::channel();
        let thread = space.spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let running = runtime.block_on(Running::start(settings)).unwrap();
            started.send(Arc::clone(&running.accelerator)).unwrap();
            let _ = is_stopped.recv();
            runtime.block_on(running.stop());
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        InSpace { accelerator: is_started.recv().unwrap(), stop, thread: Some(thread) }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.accelerator.status().bypass.is_none()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.accelerator.status().taken_connections
    }

    /// Why the newest connection that passed was let pass.
    pub(crate) fn last_reason(&self) -> Option<Demotion> {
        let shown = self.accelerator.connections.shown();
        shown.iter().find(|connection| connection.peer.is_none()).and_then(|connection| connection.reason)
    }

    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for InSpace {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + 2 * PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut noise = vec![0; bytes];
    rand::rngs::StdRng::seed_from_u64(20_261_124).fill_bytes(&mut noise);
    noise
}
