//! A network in one process: named hosts, links with latency and rate on tokio's clock, and faults.
//!
//! It behaves as TCP does where sessions can tell: bytes arrive in order or the connection breaks; a closed
//! socket ends the stream after what was sent; a black hole is silence, and what was on its way arrives when it is
//! healed. It does not model loss, congestion or slow start: links are for correctness, not for stats.
//!
//! What a link has on its way is bounded ([`IN_FLIGHT_CHUNKS`]), so that back-pressure is real. With tokio's clock
//! paused the order of events follows from the times alone; jitter is drawn from the seed.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use farside_platform::{Randomness, SeededRandomness};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::address::split_address;
use super::connection::{Connection, Listener, Transport};
use super::options::SocketOptions;
use super::stats::{LinkStats, SocketStats};

/// Socket buffer of either end, bytes.
const SOCKET_BUFFER: usize = 64 * 1024;
/// Bytes that travel together.
const CHUNK: usize = 16 * 1024;
/// Chunks on their way in one direction of a connection: 4 MiB.
const IN_FLIGHT_CHUNKS: usize = 256;
/// Connections that wait to be accepted.
const BACKLOG: usize = 128;

/// How a link carries bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSettings {
    /// One way.
    pub latency: Duration,
    /// Added to the latency at random, up to this; order is kept.
    pub jitter: Duration,
    /// Bytes per second in each direction, all connections together; `None`: no limit.
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Up,
    BlackHole,
    Cut,
}

#[derive(Clone, Copy)]
enum Fault {
    Flip,
    Break,
}

/// One direction of a link.
#[derive(Default)]
struct Direction {
    carried: AtomicU64,
    /// By offset in what the direction has carried.
    faults: Mutex<Vec<(u64, Fault)>>,
    /// When the last byte accepted so far will have left.
    busy_until: Mutex<Option<Instant>>,
}

struct Link {
    mode: watch::Sender<Mode>,
    settings: Mutex<LinkSettings>,
    /// From the host that sorts first, and back.
    directions: [Direction; 2],
    /// Cancelled to break every connection over the link.
    connections: Mutex<CancellationToken>,
}

#[derive(Default)]
struct State {
    listeners: HashMap<String, mpsc::Sender<Connection>>,
    links: HashMap<(String, String), Arc<Link>>,
    settings: LinkSettings,
    /// Further addresses of hosts.
    other_names: HashMap<String, String>,
    killed: Vec<String>,
    ports_given: u16,
}

/// The network; clones are the same network.
#[derive(Clone)]
pub struct SimulatedNetwork {
    state: Arc<Mutex<State>>,
    random: Arc<SeededRandomness>,
}

/// A host on a [`SimulatedNetwork`]: its transport.
pub struct SimulatedHost {
    name: String,
    network: SimulatedNetwork,
}

impl SimulatedNetwork {
    /// A network whose links have `settings` until told otherwise.
    pub fn new(seed: u64, settings: LinkSettings) -> Self {
        let state = State { settings, ..State::default() };
        SimulatedNetwork { state: Arc::new(Mutex::new(state)), random: Arc::new(SeededRandomness::new(seed)) }
    }

    /// The transport of the host `name`. Its addresses are `name:PORT`.
    pub fn host(&self, name: &str) -> Arc<SimulatedHost> {
        Arc::new(SimulatedHost { name: name.to_owned(), network: self.clone() })
    }

    /// Gives the host a further address: who dials `other` gets to the host by a link of its own, under that name.
    pub fn also_known_as(&self, host: &str, other: &str) {
        self.state.lock().other_names.insert(other.to_owned(), host.to_owned());
    }

    /// Changes the link between two hosts; holds for bytes sent from now on.
    pub fn set_link(&self, a: &str, b: &str, settings: LinkSettings) {
        *self.link(a, b).settings.lock() = settings;
    }

    /// Breaks every connection between two hosts and refuses new ones.
    pub fn cut(&self, a: &str, b: &str) {
        let link = self.link(a, b);
        link.mode.send_replace(Mode::Cut);
        break_connections(&link);
    }

    /// Breaks every connection between two hosts; new ones work at once.
    pub fn reset(&self, a: &str, b: &str) {
        break_connections(&self.link(a, b));
    }

    /// Swallows everything between two hosts in silence; nothing breaks.
    pub fn black_hole(&self, a: &str, b: &str) {
        self.link(a, b).mode.send_replace(Mode::BlackHole);
    }

    /// Ends [`cut`](Self::cut) and [`black_hole`](Self::black_hole).
    pub fn heal(&self, a: &str, b: &str) {
        self.link(a, b).mode.send_replace(Mode::Up);
    }

    /// The host's process dies: its listeners close and its connections break. It can neither dial nor listen until
    /// [`revive`](Self::revive).
    pub fn kill(&self, host: &str) {
        let mut state = self.state.lock();
        state.killed.push(host.to_owned());
        state.listeners.retain(|address, _| split_address(address).is_none_or(|(h, _)| h != host));
        for ((a, b), link) in &state.links {
            if a == host || b == host {
                break_connections(link);
            }
        }
    }

    /// The host may be used again.
    pub fn revive(&self, host: &str) {
        self.state.lock().killed.retain(|h| h != host);
    }

    /// Flips a bit of the byte that `from` sends to `to` after the next `after_bytes`.
    pub fn corrupt(&self, from: &str, to: &str, after_bytes: u64) {
        self.add_fault(from, to, after_bytes, Fault::Flip);
    }

    /// Breaks the connection that carries the byte after the next `after_bytes` from `from` to `to`.
    pub fn truncate(&self, from: &str, to: &str, after_bytes: u64) {
        self.add_fault(from, to, after_bytes, Fault::Break);
    }

    /// Bytes that `from` has sent to `to`, all connections together.
    pub fn carried(&self, from: &str, to: &str) -> u64 {
        self.link(from, to).directions[direction(from, to)].carried.load(Ordering::SeqCst)
    }

    fn add_fault(&self, from: &str, to: &str, after_bytes: u64, fault: Fault) {
        let link = self.link(from, to);
        let direction = &link.directions[direction(from, to)];
        let at = direction.carried.load(Ordering::SeqCst) + after_bytes;
        direction.faults.lock().push((at, fault));
    }

    fn link(&self, a: &str, b: &str) -> Arc<Link> {
        let key = if a <= b { (a.to_owned(), b.to_owned()) } else { (b.to_owned(), a.to_owned()) };
        let mut state = self.state.lock();
        let settings = state.settings;
        let link = state.links.entry(key).or_insert_with(|| {
            Arc::new(Link {
                mode: watch::Sender::new(Mode::Up),
                settings: Mutex::new(settings),
                directions: [Direction::default(), Direction::default()],
                connections: Mutex::new(CancellationToken::new()),
            })
        });
        Arc::clone(link)
    }

    fn is_killed(&self, host: &str) -> bool {
        self.state.lock().killed.iter().any(|h| h == host)
    }

    /// When bytes handed to the link now arrive.
    fn arrival(&self, link: &Link, direction: &Direction, bytes: usize, previous: Instant) -> Instant {
        let settings = *link.settings.lock();
        let now = Instant::now();
        let left = match settings.bytes_per_second {
            None => now,
            Some(rate) => {
                let mut busy_until = direction.busy_until.lock();
                let start = busy_until.map_or(now, |t| t.max(now));
                let end = start + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
                *busy_until = Some(end);
                end
            }
        };
        let jitter = match settings.jitter {
            Duration::ZERO => Duration::ZERO,
            jitter => jitter.mul_f64(self.random.next_u64() as f64 / u64::MAX as f64),
        };
        (left + settings.latency + jitter).max(previous)
    }
}

/// 0 for bytes from the host that sorts first.
fn direction(from: &str, to: &str) -> usize {
    usize::from(from > to)
}

fn break_connections(link: &Link) {
    std::mem::take(&mut *link.connections.lock()).cancel();
    // What was on its way is gone: new connections do not wait behind it.
    link.directions.iter().for_each(|direction| *direction.busy_until.lock() = None);
}

#[async_trait]
impl Transport for SimulatedHost {
    async fn dial(&self, address: &str, _: &SocketOptions) -> io::Result<Connection> {
        let refused = |why: &str| io::Error::new(io::ErrorKind::ConnectionRefused, why.to_owned());
        let (host, _) = split_address(address).ok_or_else(|| refused("not an address"))?;
        if self.network.is_killed(&self.name) || self.network.is_killed(host) {
            return Err(refused("no such host"));
        }
        let link = self.network.link(&self.name, host);
        let mut mode = link.mode.subscribe();
        // A connection request into a black hole is repeated by the kernel until it gets through.
        let mode = *mode.wait_for(|m| *m != Mode::BlackHole).await.expect("the link is held");
        if mode == Mode::Cut {
            return Err(io::Error::new(io::ErrorKind::HostUnreachable, "no route to host"));
        }
        let alive = link.connections.lock().child_token();
        let round_trip = link.settings.lock().latency * 2;
        sleep(round_trip).await;
        // A link that is cut while somebody dials over it brings nobody across.
        if alive.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the link was cut meanwhile"));
        }
        // Meanwhile the process that dials may have died: nothing that it left behind speaks for it.
        if self.network.is_killed(&self.name) {
            return Err(refused("no such host"));
        }
        let listener = {
            let state = self.network.state.lock();
            let known_as = match (state.other_names.get(host), split_address(address)) {
                (Some(name), Some((_, port))) => format!("{name}:{port}"),
                _ => address.to_owned(),
            };
            state.listeners.get(&known_as).cloned().ok_or_else(|| refused("connection refused"))?
        };
        let (ours, near) = duplex(SOCKET_BUFFER);
        let (theirs, far) = duplex(SOCKET_BUFFER);
        let local = format!("{}:{}", self.name, 50_000 + self.network.random.next_u64() % 10_000);
        let theirs = Connection {
            io: Box::new(theirs),
            stats: SimulatedFigures::of(&link),
            local: address.to_owned(),
            remote: local.clone(),
        };
        listener.try_send(theirs).map_err(|_| refused("connection refused"))?;
        let stats = SimulatedFigures::of(&link);
        let (near_read, near_write) = tokio::io::split(near);
        let (far_read, far_write) = tokio::io::split(far);
        let out = direction(&self.name, host);
        let network = &self.network;
        carry(network.clone(), Arc::clone(&link), out, near_read, far_write, alive.clone());
        // A host that talks to itself has one direction.
        let back = if self.name == host { out } else { 1 - out };
        carry(network.clone(), link, back, far_read, near_write, alive);
        Ok(Connection { io: Box::new(ours), stats, local, remote: address.to_owned() })
    }

    async fn listen(&self, address: &str, _: &SocketOptions) -> io::Result<Box<dyn Listener>> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not an address");
        let (_, port) = split_address(address).ok_or_else(invalid)?;
        if self.network.is_killed(&self.name) {
            return Err(io::Error::other("the host is down"));
        }
        let mut state = self.network.state.lock();
        let port = if port == 0 {
            state.ports_given += 1;
            20_000 + state.ports_given
        } else {
            port
        };
        let address = format!("{}:{port}", self.name);
        if state.listeners.get(&address).is_some_and(|listener| !listener.is_closed()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (listener, arrivals) = mpsc::channel(BACKLOG);
        state.listeners.insert(address.clone(), listener);
        Ok(Box::new(SimulatedListener { address, arrivals }))
    }
}

struct SimulatedListener {
    address: String,
    arrivals: mpsc::Receiver<Connection>,
}

#[async_trait]
impl Listener for SimulatedListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> io::Result<Connection> {
        match self.arrivals.recv().await {
            Some(connection) => Ok(connection),
            // The host was killed: nobody will ever come again.
            None => std::future::pending().await,
        }
    }
}

/// What the network knows of a link; nothing of one connection on it.
struct SimulatedFigures {
    link: Weak<Link>,
}

impl SimulatedFigures {
    fn of(link: &Arc<Link>) -> Arc<dyn SocketStats> {
        Arc::new(SimulatedFigures { link: Arc::downgrade(link) })
    }
}

impl SocketStats for SimulatedFigures {
    fn stats(&self) -> Option<LinkStats> {
        let settings = *self.link.upgrade()?.settings.lock();
        let rtt = 2 * settings.latency;
        Some(LinkStats {
            rtt,
            min_rtt: rtt,
            delivery_rate: settings.bytes_per_second,
            window_bytes: (IN_FLIGHT_CHUNKS * CHUNK) as u64,
            mss: CHUNK as u32,
            ..LinkStats::default()
        })
    }

    fn apply(&self, _: &SocketOptions) {}

    fn pace(&self, _: Option<u64>) {}
}

/// Carries one direction of a connection until it ends or breaks.
fn carry(
    network: SimulatedNetwork,
    link: Arc<Link>,
    direction: usize,
    from: ReadHalf<DuplexStream>,
    to: WriteHalf<DuplexStream>,
    alive: CancellationToken,
) {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT_CHUNKS);
    let broken = alive.clone();
    let sending_link = Arc::clone(&link);
    tokio::spawn(async move {
        tokio::select! {
            () = broken.cancelled() => {}
            () = accept_bytes(&network, &sending_link, direction, from, sender) => {}
        }
    });
    tokio::spawn(async move {
        tokio::select! {
            () = alive.cancelled() => {}
            () = deliver_bytes(&link, direction, to, receiver, &alive) => {}
        }
    });
}

/// Takes bytes from the sender's socket and gives each chunk its time of arrival. An empty chunk is the end.
async fn accept_bytes(
    network: &SimulatedNetwork,
    link: &Link,
    direction: usize,
    mut from: ReadHalf<DuplexStream>,
    sender: mpsc::Sender<(Instant, Bytes)>,
) {
    let mut previous = Instant::now();
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let ended = !matches!(from.read_buf(&mut chunk).await, Ok(n) if n > 0);
        previous = network.arrival(link, &link.directions[direction], chunk.len(), previous);
        if sender.send((previous, chunk.freeze())).await.is_err() || ended {
            return;
        }
    }
}

/// Hands chunks to the receiver's socket at their time. Bytes for a closed socket are discarded, as a kernel does.
async fn deliver_bytes(
    link: &Link,
    direction: usize,
    mut to: WriteHalf<DuplexStream>,
    mut receiver: mpsc::Receiver<(Instant, Bytes)>,
    alive: &CancellationToken,
) {
    let mut mode = link.mode.subscribe();
    while let Some((at, chunk)) = receiver.recv().await {
        sleep_until(at).await;
        if mode.wait_for(|m| *m != Mode::BlackHole).await.is_err() {
            return;
        }
        if chunk.is_empty() {
            let _ = to.shutdown().await;
            continue;
        }
        let (chunk, breaks) = apply_faults(&link.directions[direction], &chunk);
        let _ = to.write_all(&chunk).await;
        if breaks {
            alive.cancel();
            return;
        }
    }
}

/// The chunk as it arrives, and whether the connection breaks after it.
fn apply_faults(direction: &Direction, chunk: &[u8]) -> (Vec<u8>, bool) {
    let start = direction.carried.fetch_add(chunk.len() as u64, Ordering::SeqCst);
    let mut arrives = chunk.to_vec();
    let mut breaks = false;
    direction.faults.lock().retain(|(at, fault)| {
        let Some(offset) = at.checked_sub(start).filter(|o| *o < chunk.len() as u64) else {
            return true;
        };
        match fault {
            Fault::Flip => {
                if let Some(byte) = arrives.get_mut(offset as usize) {
                    *byte ^= 1;
                }
            }
            Fault::Break => {
                arrives.truncate(offset as usize);
                breaks = true;
            }
        }
        false
    });
    (arrives, breaks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ByteStream;

    async fn connected(network: &SimulatedNetwork) -> (Box<dyn ByteStream>, Box<dyn ByteStream>) {
        let (a, b) = (network.host("a"), network.host("b"));
        let options = SocketOptions::default();
        let mut listener = b.listen("b:0", &options).await.unwrap();
        let near = a.dial(&listener.address(), &options).await.unwrap();
        let far = listener.accept().await.unwrap();
        assert!(far.remote.starts_with("a:"), "{}", far.remote);
        (near.io, far.io)
    }

    #[tokio::test(start_paused = true)]
    async fn latency_and_rate_are_kept() {
        let network = SimulatedNetwork::new(
            1,
            LinkSettings {
                latency: Duration::from_millis(50),
                bytes_per_second: Some(1000),
                ..Default::default()
            },
        );
        let (mut near, mut far) = connected(&network).await;
        let start = Instant::now();
        near.write_all(&[7; 500]).await.unwrap();
        let mut got = [0; 500];
        far.read_exact(&mut got).await.unwrap();
        let took = start.elapsed();
        assert!((Duration::from_millis(549)..Duration::from_millis(552)).contains(&took), "{took:?}");
        assert_eq!(network.carried("a", "b"), 500);
        assert_eq!(network.carried("b", "a"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_black_hole_holds_and_a_cut_breaks() {
        let network = SimulatedNetwork::new(1, LinkSettings::default());
        let (mut near, mut far) = connected(&network).await;
        network.black_hole("a", "b");
        near.write_all(b"late").await.unwrap();
        let mut got = [0; 4];
        let silence = tokio::time::timeout(Duration::from_secs(600), far.read_exact(&mut got)).await;
        assert!(silence.is_err());
        network.heal("a", "b");
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"late");
        network.cut("b", "a");
        assert_eq!(far.read(&mut got).await.unwrap(), 0);
        assert_eq!(near.read(&mut got).await.unwrap(), 0);
        assert!(network.host("a").dial("b:1", &SocketOptions::default()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_dials_while_the_link_is_cut_does_not_get_through() {
        let latency = Duration::from_millis(50);
        let network = SimulatedNetwork::new(1, LinkSettings { latency, ..LinkSettings::default() });
        let _door = network.host("b").listen("b:1", &SocketOptions::default()).await.unwrap();
        let (host, options) = (network.host("a"), SocketOptions::default());
        let mut dialling = host.dial("b:1", &options);
        assert!(tokio::time::timeout(latency, &mut dialling).await.is_err());
        network.cut("a", "b");
        network.heal("a", "b");
        assert_eq!(dialling.await.err().map(|e| e.kind()), Some(io::ErrorKind::ConnectionReset));
        assert!(host.dial("b:1", &options).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_on_its_way_when_a_link_broke_keeps_nobody_waiting() {
        let slow = LinkSettings { bytes_per_second: Some(10_000), ..LinkSettings::default() };
        let network = SimulatedNetwork::new(1, slow);
        let (mut near, _far) = connected(&network).await;
        // Half a minute of the link.
        near.write_all(&vec![0; 300_000]).await.unwrap();
        network.reset("a", "b");
        let (mut near, mut far) = connected(&network).await;
        let begins = Instant::now();
        near.write_all(b"!").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'!');
        assert!(begins.elapsed() < Duration::from_secs(5), "{:?}", begins.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn faults_hit_their_byte() {
        let network = SimulatedNetwork::new(1, LinkSettings::default());
        let (mut near, mut far) = connected(&network).await;
        network.corrupt("a", "b", 2);
        network.truncate("a", "b", 6);
        near.write_all(b"abcdefgh").await.unwrap();
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"abbdef");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_bounded() {
        let network = SimulatedNetwork::new(
            1,
            LinkSettings { latency: Duration::from_millis(1), ..Default::default() },
        );
        let (mut near, _far) = connected(&network).await;
        let mut taken = 0;
        let block = vec![0; CHUNK];
        while tokio::time::timeout(Duration::from_secs(10), near.write_all(&block)).await.is_ok() {
            taken += CHUNK;
        }
        assert!(taken <= IN_FLIGHT_CHUNKS * CHUNK + 3 * SOCKET_BUFFER, "{taken}");
    }
}
