//! Sockets that speak with another host's address: the near box's listener, which answers in the server's name, and the far box's
//! connection, which comes from the client's address and port. Both take CAP_NET_ADMIN.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::interfaces::has_ipv6;
use crate::rules::OWN;

/// Connections that the kernel has made and nobody has accepted yet. It takes no more than `net.core.somaxconn`, 4096 by default.
const BACKLOG: i32 = 4096;
/// How often another port is tried that must be free in both families. One that is free in one of them nearly always is in the other.
const PORT_ATTEMPTS: usize = 16;

/// Listeners for taken connections, of IPv4 and, where the host has it, of IPv6, on the same port; with port 0 the kernel chooses.
/// Must be called inside a tokio runtime.
///
/// Of what they accept, `peer_addr` is the client and `local_addr` the server. Small segments go at once, as their sender sent them.
pub fn listen(port: u16) -> io::Result<(TcpListener, Option<TcpListener>)> {
    let attempts = if port == 0 { PORT_ATTEMPTS } else { 1 };
    let mut result = listen_once(port);
    for _ in 1..attempts {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => result = listen_once(port),
            _ => break,
        }
    }
    result
}

fn listen_once(port: u16) -> io::Result<(TcpListener, Option<TcpListener>)> {
    let v4 = listener(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))?;
    let port = v4.local_addr()?.port();
    let v6 = has_ipv6().then(|| listener(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)));
    Ok((v4, v6.transpose()?))
}

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    set_transparent(&socket, address)?;
    socket.set_reuse_address(true)?;
    // What is accepted inherits it.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connects to `server`: as `client`, from its address and port; or, without one, as this box. It takes as long as TCP does: the caller
/// bounds it. With `dscp` every segment has this code point, the first one too. Dropped without another word the connection is reset: the
/// server must not take the loss of a trunk for the end of what its client says.
///
/// A connection of the same client and port that this box closed itself less than a minute ago makes it fail with
/// [`io::ErrorKind::AddrNotAvailable`] (TIME-WAIT).
pub async fn connect(
    client: Option<SocketAddr>,
    server: SocketAddr,
    dscp: Option<u8>,
) -> io::Result<TcpStream> {
    let socket = if server.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_nodelay(true)?;
    SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    if let Some(dscp) = dscp {
        set_dscp(&SockRef::from(&socket), server, dscp)?;
    }
    if let Some(client) = client {
        if client.is_ipv4() != server.is_ipv4() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{client} cannot connect to {server}: one is IPv4, the other IPv6"),
            ));
        }
        let options = SockRef::from(&socket);
        set_transparent(&options, client)?;
        // The client may have connections from this port to other servers.
        options.set_reuse_address(true)?;
        options.set_mark(OWN)?;
        socket.bind(client)?;
    } else {
        // So that it is not held where it leaves by the WAN. Without the capability nothing is.
        let _ = SockRef::from(&socket).set_mark(OWN);
    }
    socket.connect(server).await
}

fn set_transparent(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) }
}

fn set_dscp(socket: &Socket, server: SocketAddr, dscp: u8) -> io::Result<()> {
    /// The two bits below are of congestion notification.
    const SHIFT: u32 = 2;
    let field = u32::from(dscp & 0x3f) << SHIFT;
    if server.is_ipv4() { socket.set_tos_v4(field) } else { socket.set_tclass_v6(field) }
}
