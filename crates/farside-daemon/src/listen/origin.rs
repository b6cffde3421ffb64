//! Where a connection comes from.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use farside_peer::PeerId;
use tokio::net::{TcpStream, UnixStream};

/// Where a request comes from, as its connection says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A socket of the data directory: whoever could open it.
    Socket {
        /// The user of the process at the other end; none: the kernel does not say.
        uid: Option<u32>,
    },
    /// The network.
    Network(SocketAddr),
    /// The session with a peer.
    Peer(PeerId),
    /// It is gone already.
    Unknown,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Socket { .. } => f.write_str("socket"),
            Origin::Network(address) => write!(f, "{}", address.ip().to_canonical()),
            Origin::Peer(id) => write!(f, "session with {id:?}"),
            Origin::Unknown => f.write_str("unknown"),
        }
    }
}

impl Origin {
    /// What has places of its own at a listener: an address, or the network of 64 bits that one subscriber has of IPv6.
    pub(crate) fn neighbourhood(&self) -> Option<IpAddr> {
        let Origin::Network(address) = self else { return None };
        Some(match address.ip().to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
            ip => ip,
        })
    }
}

/// A connection that says where it comes from.
pub(crate) trait FromSomewhere {
    /// Where that is.
    fn origin(&self) -> Origin;
}

impl FromSomewhere for UnixStream {
    fn origin(&self) -> Origin {
        Origin::Socket { uid: self.peer_cred().ok().map(|who| who.uid()) }
    }
}

impl FromSomewhere for TcpStream {
    fn origin(&self) -> Origin {
        self.peer_addr().map_or(Origin::Unknown, Origin::Network)
    }
}
