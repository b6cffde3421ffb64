//! Interception in the kernel itself: rules, queue, routes and transparent sockets, between network namespaces that each test makes.
//!
//! Needs root and `ip`. Without them the tests say that they are skipped; `FARSIDE_REQUIRE_LAB=1` makes that a failure.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod decisions;
mod ownership;
mod space;
mod surroundings;
mod trouble;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use farside_accel::kernel::{Held, MarkRoutes, OwnedTable, SynQueue, transparent};
use farside_accel::packet::{Packet, Syn};
use farside_accel::rules::Ruleset;

use space::{Lab, PATIENCE, Space};

const QUEUE: u16 = 5;
const OWN_PORT: u16 = 7440;
const PROBE_PORT: u16 = 7442;

fn ruleset(listener_port: u16) -> Ruleset {
    Ruleset {
        lan: vec!["lan0".to_owned(), "lan1".to_owned()],
        wan: "wan0".to_owned(),
        queue: QUEUE,
        listener_port,
        own_ports: vec![OWN_PORT, PROBE_PORT],
        probe_port: PROBE_PORT,
        bridge: None,
    }
}

/// Everything installed, in the order in which it goes when it is dropped.
struct Installed {
    queue: SynQueue,
    table: OwnedTable,
    _routes: MarkRoutes,
    listeners: [tokio::net::TcpListener; 2],
}

fn install() -> Installed {
    let (v4, v6) = transparent::listen(0).unwrap();
    let queue = SynQueue::open(QUEUE).unwrap();
    let routes = MarkRoutes::install().unwrap();
    let port = v4.local_addr().unwrap().port();
    let table = OwnedTable::install(&ruleset(port)).unwrap();
    Installed { queue, table, _routes: routes, listeners: [v4, v6.unwrap()] }
}

impl Installed {
    async fn held(&mut self) -> Held {
        tokio::time::timeout(PATIENCE, self.queue.recv()).await.expect("nothing is held").unwrap()
    }

    /// The next packet, which must be a SYN.
    async fn syn(&mut self) -> (Held, Syn) {
        let held = self.held().await;
        let Packet::Syn(syn) = held.packet.clone() else { panic!("{held:?} is no SYN") };
        (held, syn)
    }

    async fn accept(&self, address: SocketAddr) -> tokio::net::TcpStream {
        let listener = &self.listeners[usize::from(address.is_ipv6())];
        tokio::time::timeout(PATIENCE, listener.accept()).await.expect("nothing to accept").unwrap().0
    }
}

fn connect(from: &Space, to: SocketAddr) -> JoinHandle<std::io::Result<TcpStream>> {
    from.spawn(move || TcpStream::connect_timeout(&to, PATIENCE))
}

fn listen(at: &Space, address: SocketAddr) -> TcpListener {
    at.inside(move || TcpListener::bind(address)).unwrap()
}

/// Waits for a thread, and lets the runtime run meanwhile.
async fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
    tokio::task::spawn_blocking(|| handle.join().unwrap()).await.unwrap()
}

/// Accepts the next connection of a listener elsewhere.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let listener = listener.try_clone().unwrap();
    let accepting = tokio::task::spawn_blocking(move || listener.accept().unwrap());
    tokio::time::timeout(PATIENCE, accepting).await.expect("nobody connects").unwrap()
}

/// Long enough to see that something does not happen.
const A_WHILE: Duration = Duration::from_millis(300);

fn lab() -> Option<Lab> {
    Lab::new()
}
