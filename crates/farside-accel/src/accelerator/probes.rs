//! Probes that this box sends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use farside_peer::PeerId;

use crate::protocol::{Nonce, ProbeDatagram};

/// The port that probes are sent to.
pub(crate) const PROBE_PORT: u16 = 7442;

/// Sends probes. Who hears of them tells over a session; what comes back here is nobody's.
#[derive(Debug)]
pub(super) struct ProbeSender {
    v4: UdpSocket,
    v6: Option<UdpSocket>,
}

impl ProbeSender {
    pub(super) fn new() -> io::Result<ProbeSender> {
        let bind = |address: IpAddr| {
            let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(socket)
        };
        // A host may have no IPv6 at all.
        Ok(ProbeSender {
            v4: bind(Ipv4Addr::UNSPECIFIED.into())?,
            v6: bind(Ipv6Addr::UNSPECIFIED.into()).ok(),
        })
    }

    pub(super) fn send(&self, sender: PeerId, server: IpAddr, nonce: Nonce) {
        let socket = match server {
            IpAddr::V4(_) => Some(&self.v4),
            IpAddr::V6(_) => self.v6.as_ref(),
        };
        let datagram = ProbeDatagram::new(sender, nonce).encode();
        let sent = socket.map(|socket| socket.send_to(&datagram, SocketAddr::new(server, PROBE_PORT)));
        // One that is lost is one that found nothing.
        if let Some(Err(error)) = sent {
            tracing::debug!(%server, %error, "a probe was not sent");
        }
    }
}
