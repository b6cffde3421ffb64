//! TCP by the kernel.
//!
//! * **Congestion control** is asked for before the connection is made, so that it begins with it; the listening socket
//!   hands what it was given on to what it accepts. What is refused (a module that is not there, a name that only the
//!   administrator may use) stays the host's own, and is told as such.
//!   Where the path turns out to be near, a connection that asked for BBR gets cubic ([`crate::pacing`] says why).
//! * **Buffers** are the kernel's to size, within the host's bounds: a size set by hand ends that, and without CAP_NET_ADMIN it
//!   is cut to twice `wmem_max` (two times 4 MiB where it was looked at, while autotuning went to 32 MiB for receiving and
//!   4 MiB for sending). So none is set. Several times rate x round trip are needed, as what was lost waits in them: 4 MiB do
//!   for OC-3 up to 100 ms, and for 1 Gb/s up to 15 ms. Beyond that a second connection has a second buffer; that they are
//!   what limits shows in what the socket tells, and [`crate::lanes`] makes more connections of it.
//! * **Unsent bytes** are few ([`UNSENT_MAX`]): what a socket has taken is lost to other connections, to throttles and to
//!   priorities. Bytes in flight are not counted among them.
//! * **Nagle is off**: frames are written whole. Keepalive finds a dead path on a quiet connection.
//! * TCP_USER_TIMEOUT is *not* set: Linux counts the time a reader keeps its window closed against it, though the reader's
//!   host answers every probe (measured on Linux 6.18: set to 3 s, a healthy connection with a reader that pauses died
//!   after 3.5 s). It would kill a data stream whose far disk stalls. A black hole is found by the pings of the control
//!   connection, and the loss of a session closes its data streams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use nix::net::if_::if_indextoname;
use nix::sys::socket::{getsockopt, setsockopt};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::address::split_address;
use super::connection::{Connection, Listener, Transport};
use super::options::{Congestion, SocketOptions};
use super::race::first_to_connect;
use super::stats::{LinkStats, SocketStats};
use super::tcp_info::{self, MaxPacingRate, ReadTcpInfo};
use crate::limits::UNSENT_MAX;

const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Real connections.
#[derive(Debug, Default)]
pub struct TcpTransport;

/// Asks for what does not depend on whether the socket is connected. What is not granted stays as it is.
fn ask(socket: &impl AsFd, options: &SocketOptions, is_v6: bool) {
    let granted = |what: &str, result: io::Result<()>| {
        if let Err(e) = result {
            tracing::debug!("the kernel does not grant a connection {what}: {e}");
        }
    };
    let of = SockRef::from(socket);
    if let Congestion::Named(name) = &options.congestion {
        granted("its congestion control", of.set_tcp_congestion(name.as_bytes()));
    }
    if let Some(dscp) = options.dscp {
        // Six bits of eight; the other two are the kernel's, for congestion marks.
        let class = u32::from(dscp.min(63)) << 2;
        if is_v6 {
            granted("its class", of.set_tclass_v6(class));
        }
        // A socket of IPv6 has it for IPv4 too, for the addresses that are mapped; one of IPv6 alone refuses.
        let v4 = of.set_tos_v4(class);
        if !is_v6 {
            granted("its class", v4);
        }
    }
    let is_paced =
        || tcp_info::is_known_here() && getsockopt(socket, MaxPacingRate).is_ok_and(|rate| rate != u64::MAX);
    if options.pacing.is_some() || is_paced() {
        let rate = options.pacing.unwrap_or(u64::MAX);
        granted("its rate", setsockopt(socket, MaxPacingRate, &rate).map_err(io::Error::from));
    }
}

/// Twice as long as the session's own pause: then the kernel asks only where that has not.
fn keepalive(options: &SocketOptions) -> TcpKeepalive {
    let after = options.keepalive.map_or(KEEPALIVE_AFTER, |every| KEEPALIVE_AFTER.max(2 * every));
    TcpKeepalive::new().with_time(after).with_interval(KEEPALIVE_EVERY).with_retries(KEEPALIVE_PROBES)
}

fn connected(stream: TcpStream, options: &SocketOptions) -> io::Result<Connection> {
    let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&keepalive(options))?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    ask(&stream, options, local.is_ipv6());
    let stream = Arc::new(Mutex::new(stream));
    let held = Held { options: options.clone(), of_path: None, heeds_losses: false };
    let stats =
        TcpFigures { stream: Arc::downgrade(&stream), is_v6: local.is_ipv6(), held: Mutex::new(held) };
    Ok(Connection {
        io: Box::new(Tcp { stream }),
        stats: Arc::new(stats),
        local: written(local),
        remote: written(remote),
    })
}

async fn dial_one(to: SocketAddr, options: &SocketOptions) -> io::Result<Connection> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    ask(&socket, options, to.is_ipv6());
    if let Some(mss) = options.mss
        && let Err(e) = SockRef::from(&socket).set_tcp_mss(mss)
    {
        tracing::debug!("the kernel does not hold a connection to segments of {mss} bytes: {e}");
    }
    if let Some(local) = options.local {
        let bound = socket.bind(SocketAddr::new(local, 0));
        bound.map_err(|e| io::Error::new(e.kind(), format!("cannot go out from {local}: {e}")))?;
    }
    connected(socket.connect(to).await?, options)
}

#[async_trait]
impl Transport for TcpTransport {
    async fn dial(&self, address: &str, options: &SocketOptions) -> io::Result<Connection> {
        let mut addresses = addresses_of(address).await?;
        if let Some(local) = options.local {
            let (fit, other): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|to| is_same_family(local, to.ip()));
            if let (true, Some(other)) = (fit.is_empty(), other.first()) {
                let why = format!("{other} cannot be reached from an address of the other IP version");
                return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
            }
            addresses = fit;
        }
        let dial = |to| {
            let options = options.clone();
            async move { dial_one(to, &options).await }
        };
        first_to_connect((address, options.local), addresses, dial).await
    }

    async fn listen(&self, address: &str, options: &SocketOptions) -> io::Result<Box<dyn Listener>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for candidate in addresses_of(address).await? {
            match bind(candidate, options) {
                Ok(socket) => {
                    let address = socket.local_addr()?;
                    return Ok(Box::new(TcpDoor { socket, address, options: options.clone() }));
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }
}

/// What a name stands for. An address of a neighbour may name its interface (`[fe80::1%eth0]:7440`), which only the resolver reads,
/// and which is looked up anew each time: the number may be another card's after a restart.
async fn addresses_of(address: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(match split_address(address) {
        Some(neighbour) if neighbour.0.contains('%') => tokio::net::lookup_host(neighbour).await?.collect(),
        _ => tokio::net::lookup_host(address).await?.collect(),
    })
}

/// An address as it is stored and shown: a neighbour's with the name of its interface.
fn written(address: SocketAddr) -> String {
    if let SocketAddr::V6(v6) = address
        && v6.scope_id() != 0
        && let Ok(name) = if_indextoname(v6.scope_id())
        && let Ok(name) = name.to_str()
    {
        return format!("[{}%{name}]:{}", v6.ip(), v6.port());
    }
    address.to_string()
}

fn is_same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}

fn bind(address: SocketAddr, options: &SocketOptions) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A daemon that is started again takes its port at once, whatever connections of the last one linger.
    socket.set_reuseaddr(true)?;
    ask(&socket, options, address.is_ipv6());
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

struct TcpDoor {
    socket: TcpListener,
    address: SocketAddr,
    options: SocketOptions,
}

#[async_trait]
impl Listener for TcpDoor {
    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn accept(&mut self) -> io::Result<Connection> {
        let (socket, _) = self.socket.accept().await?;
        connected(socket, &self.options)
    }
}

/// A connection that can be asked for its stats. The lock is held for a call that does not wait, and nobody but the stats
/// competes for it.
struct Tcp {
    stream: Arc<Mutex<TcpStream>>,
}

impl AsyncRead for Tcp {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tcp {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.lock()).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.lock()).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_shutdown(cx)
    }
}

/// Asks a connection as long as it lives.
struct TcpFigures {
    stream: Weak<Mutex<TcpStream>>,
    is_v6: bool,
    held: Mutex<Held>,
}

/// What a connection is held to.
struct Held {
    /// What its owner has asked for; the committed rate is in it.
    options: SocketOptions,
    /// By what its path is known to carry, bytes per second.
    of_path: Option<u64>,
    /// See [`SocketStats::heed_losses`].
    heeds_losses: bool,
}

impl Held {
    fn rate(&self) -> Option<u64> {
        [self.options.pacing, self.of_path].into_iter().flatten().min()
    }

    /// What the kernel is asked for.
    fn asked(&self) -> SocketOptions {
        let is_bbr = self.options.congestion == Congestion::bbr();
        let congestion =
            if self.heeds_losses && is_bbr { Congestion::near() } else { self.options.congestion.clone() };
        SocketOptions { pacing: self.rate(), congestion, ..self.options.clone() }
    }
}

impl SocketStats for TcpFigures {
    fn stats(&self) -> Option<LinkStats> {
        if !tcp_info::is_known_here() {
            return None;
        }
        let stream = self.stream.upgrade()?;
        let stream = stream.lock();
        let info = getsockopt(&*stream, ReadTcpInfo).ok()?;
        let micros = |of: u64| Duration::from_micros(of);
        let segments = |of: u32| u64::from(of) * u64::from(info.snd_mss);
        Some(LinkStats {
            rtt: micros(info.rtt.into()),
            min_rtt: if info.min_rtt == u32::MAX { Duration::ZERO } else { micros(info.min_rtt.into()) },
            delivery_rate: (info.delivery_rate > 0).then_some(info.delivery_rate),
            app_limited: info.is_app_limited(),
            unsent_bytes: info.notsent_bytes.into(),
            in_flight_bytes: segments(info.unacked),
            window_bytes: segments(info.snd_cwnd),
            pacing_rate: (info.pacing_rate != u64::MAX && info.pacing_rate > 0).then_some(info.pacing_rate),
            congestion: SockRef::from(&*stream).tcp_congestion().ok().map(|name| {
                let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
                String::from_utf8_lossy(&name[..end]).into()
            }),
            timeouts: info.retransmits.into(),
            mss: info.snd_mss,
            path_mtu: (info.pmtu > 0).then_some(info.pmtu),
            delivered_bytes: segments(info.delivered),
            acknowledged_bytes: info.bytes_acked,
            sent_bytes: info.bytes_sent,
            retransmitted_bytes: info.bytes_retrans,
            busy: micros(info.busy_time),
            receiver_limited: micros(info.rwnd_limited),
            buffer_limited: micros(info.sndbuf_limited),
        })
    }

    fn apply(&self, options: &SocketOptions) {
        if let Some(stream) = self.stream.upgrade() {
            let mut held = self.held.lock();
            held.options = options.clone();
            let stream = stream.lock();
            ask(&*stream, &held.asked(), self.is_v6);
            if let Err(e) = SockRef::from(&*stream).set_tcp_keepalive(&keepalive(options)) {
                tracing::debug!("the kernel does not ask a quiet connection as often as it should: {e}");
            }
        }
    }

    fn heed_losses(&self) {
        let mut held = self.held.lock();
        if std::mem::replace(&mut held.heeds_losses, true) {
            return;
        }
        if let Some(stream) = self.stream.upgrade() {
            ask(&*stream.lock(), &held.asked(), self.is_v6);
        }
    }

    fn pace(&self, rate: Option<u64>) {
        let mut held = self.held.lock();
        let before = held.rate();
        held.of_path = rate;
        if held.rate() == before {
            return;
        }
        if let Some(stream) = self.stream.upgrade() {
            let rate = held.rate().unwrap_or(u64::MAX);
            if let Err(e) = setsockopt(&*stream.lock(), MaxPacingRate, &rate) {
                tracing::debug!("the kernel does not pace a connection: {e}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn pair(at: &str, dialled: &SocketOptions, accepted: &SocketOptions) -> (Connection, Connection) {
        let mut listener = TcpTransport.listen(at, accepted).await.unwrap();
        let address = listener.address();
        let (near, far) = tokio::join!(TcpTransport.dial(&address, dialled), listener.accept());
        (near.unwrap(), far.unwrap())
    }

    #[tokio::test]
    async fn a_connection_reports_its_statistics_until_it_is_closed() {
        let options = SocketOptions::default();
        let (mut near, mut far) = pair("127.0.0.1:0", &options, &options).await;
        assert_eq!((&near.local, &near.remote), (&far.remote, &far.local));
        near.io.write_all(&[7; 100_000]).await.unwrap();
        let mut got = vec![0; 100_000];
        far.io.read_exact(&mut got).await.unwrap();
        // Answered, so acknowledged.
        far.io.write_all(&[1]).await.unwrap();
        near.io.read_exact(&mut got[..1]).await.unwrap();
        let stats = near.stats.stats().expect("a kernel of this decade");
        assert!(stats.sent_bytes >= 100_000, "{stats:?}");
        assert!(stats.rtt > Duration::ZERO && stats.min_rtt > Duration::ZERO, "{stats:?}");
        assert!(stats.mss > 500 && stats.window_bytes >= u64::from(stats.mss), "{stats:?}");
        assert!(stats.path_mtu.is_some_and(|mtu| mtu > stats.mss), "{stats:?}");
        drop(near.io);
        assert_eq!(near.stats.stats(), None);
        assert_eq!(far.io.read(&mut got).await.unwrap(), 0, "asking keeps nothing open");
    }

    #[tokio::test]
    async fn what_is_granted_is_reported_and_what_is_not_is_no_failure() {
        // Every kernel has reno, for everybody.
        let reno =
            SocketOptions { congestion: Congestion::Named("reno".to_owned()), ..SocketOptions::default() };
        let absurd = SocketOptions {
            congestion: Congestion::Named("no-such".to_owned()),
            dscp: Some(200),
            ..SocketOptions::default()
        };
        let (near, far) = pair("127.0.0.1:0", &reno, &absurd).await;
        assert_eq!(near.stats.stats().unwrap().congestion.as_deref(), Some("reno"));
        let of_host = far.stats.stats().unwrap().congestion.expect("one is always in force");
        assert_ne!(&*of_host, "no-such");
        far.stats.apply(&reno);
        assert_eq!(far.stats.stats().unwrap().congestion.as_deref(), Some("reno"));
    }

    #[tokio::test]
    async fn what_is_near_heeds_losses_and_goes_on_doing_so() {
        let options = SocketOptions::default();
        let reno =
            SocketOptions { congestion: Congestion::Named("reno".to_owned()), ..SocketOptions::default() };
        let (near, far) = pair("127.0.0.1:0", &options, &reno).await;
        let granted = |of: &Connection| of.stats.stats().unwrap().congestion.unwrap();
        near.stats.heed_losses();
        assert_ne!(&*granted(&near), "bbr");
        // New options do not take that back, and what somebody has chosen stays.
        near.stats.apply(&SocketOptions { dscp: Some(10), ..options });
        assert_ne!(&*granted(&near), "bbr");
        far.stats.heed_losses();
        assert_eq!(&*granted(&far), "reno");
    }

    #[tokio::test]
    async fn marks_and_rates_are_set_and_taken_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let marked =
            SocketOptions { dscp: Some(10), pacing: Some(5_000_000_000), ..SocketOptions::default() };
        ask(&socket, &marked, false);
        assert_eq!(SockRef::from(&socket).tos_v4().unwrap(), 40);
        assert_eq!(getsockopt(&socket, MaxPacingRate), Ok(5_000_000_000));
        ask(&socket, &SocketOptions { dscp: Some(0), ..SocketOptions::default() }, false);
        assert_eq!(SockRef::from(&socket).tos_v4().unwrap(), 0);
        assert_eq!(getsockopt(&socket, MaxPacingRate), Ok(u64::MAX));
    }

    #[tokio::test]
    async fn the_lower_of_the_committed_rate_and_the_paths_holds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = Arc::new(Mutex::new(socket));
        let held = Held { options: SocketOptions::default(), of_path: None, heeds_losses: false };
        let stats = TcpFigures { stream: Arc::downgrade(&stream), is_v6: false, held: Mutex::new(held) };
        let committed_rate = |pacing| SocketOptions { pacing, ..SocketOptions::default() };
        let most = || getsockopt(&*stream.lock(), MaxPacingRate).unwrap();
        stats.apply(&committed_rate(Some(1_000_000)));
        stats.pace(Some(2_000_000));
        assert_eq!(most(), 1_000_000);
        stats.pace(Some(500_000));
        assert_eq!(most(), 500_000);
        stats.apply(&committed_rate(None));
        assert_eq!(most(), 500_000, "options that change leave it");
        stats.pace(None);
        assert_eq!(most(), u64::MAX);
    }

    #[tokio::test]
    async fn ipv6_is_marked_too_where_there_is_any() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        ask(&socket, &SocketOptions { dscp: Some(46), ..SocketOptions::default() }, true);
        assert_eq!(SockRef::from(&socket).tclass_v6().unwrap(), 184);
    }

    /// An address that swallows what is sent there: its queue of connections is full, and nobody accepts.
    async fn swallowing(at: &str) -> (SocketAddr, TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{at}:0").parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        let full = Duration::from_millis(300);
        while let Ok(connected) = tokio::time::timeout(full, TcpStream::connect(address)).await {
            queued.push(connected.unwrap());
        }
        (address, listener, queued)
    }

    #[tokio::test]
    async fn a_host_is_reached_though_the_first_addresses_of_its_name_swallow_everything() {
        let (dead, also_dead) = (swallowing("127.0.0.77").await, swallowing("127.0.0.78").await);
        let alive = TcpListener::bind("127.0.0.79:0").await.unwrap();
        let addresses = vec![dead.0, also_dead.0, alive.local_addr().unwrap()];
        let dial = |to| async move { dial_one(to, &SocketOptions::default()).await };
        let began = std::time::Instant::now();
        let connection = first_to_connect(("a name of three", None), addresses, dial).await.unwrap();
        assert_eq!(connection.remote, alive.local_addr().unwrap().to_string());
        let took = began.elapsed();
        assert!(took < crate::limits::DIAL_TIMEOUT / 2, "no address was waited for to its end: {took:?}");
    }

    #[tokio::test]
    async fn a_neighbours_interface_is_named() {
        let neighbour = "fe80::1".parse().unwrap();
        assert_eq!(
            written(std::net::SocketAddrV6::new(neighbour, 7440, 0, 1).into()),
            "[fe80::1%lo]:7440",
            "number 1 is lo in every network namespace"
        );
        let by_name = addresses_of("[fe80::1%lo]:7440").await.unwrap();
        assert_eq!(by_name, addresses_of("[fe80::1%1]:7440").await.unwrap());
        assert_eq!(by_name, [std::net::SocketAddrV6::new(neighbour, 7440, 0, 1).into()]);
        assert!(addresses_of("[fe80::1%no-such0]:7440").await.is_err());
        assert_eq!(written("127.0.0.1:7440".parse().unwrap()), "127.0.0.1:7440");
    }

    #[tokio::test]
    async fn goes_out_from_the_configured_address() {
        let from = |local: &str| SocketOptions { local: local.parse().ok(), ..SocketOptions::default() };
        let (_, far) = pair("127.0.0.1:0", &from("127.0.0.9"), &SocketOptions::default()).await;
        assert!(far.remote.starts_with("127.0.0.9:"), "{}", far.remote);
        let error = TcpTransport.dial("127.0.0.1:9", &from("192.0.2.1")).await.err().expect("not ours");
        assert!(error.to_string().contains("cannot go out from 192.0.2.1"), "{error}");
        let error = TcpTransport.dial("127.0.0.1:9", &from("::1")).await.err().expect("not the same kind");
        assert!(error.to_string().contains("other IP version"), "{error}");
    }
}
