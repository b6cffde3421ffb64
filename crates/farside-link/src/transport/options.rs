//! What a connection is asked to be like, before it is made and while it lives.
//!
//! Nothing here is a condition: a kernel that does not have BBR, or does not let this process use it, gives a connection all
//! the same. What was granted is read back from the socket ([`LinkStats::congestion`](super::LinkStats)).

use std::net::IpAddr;
use std::time::Duration;

/// The congestion control that a connection asks for.
///
/// BBR paces by the rate and the round trip it measures, so that a loss now and then does not slow it; cubic halves or so for each.
/// It also keeps its rate over a pause, where others begin anew unless the host is told otherwise
/// ([`HostTcp`](super::HostTcp)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// Whatever the host gives a new connection.
    Host,
    /// That one, where it is there and allowed.
    Named(String),
}

impl Congestion {
    /// BBR.
    pub fn bbr() -> Congestion {
        Congestion::Named("bbr".to_owned())
    }

    /// What takes the place of BBR where the path is near.
    pub(super) fn near() -> Congestion {
        Congestion::Named("cubic".to_owned())
    }
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion::bbr()
    }
}

/// What a connection is asked to be like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketOptions {
    /// The local address it goes out from: one end of a path. `None`: as the host's routes say.
    pub local: Option<IpAddr>,
    /// The congestion control it asks for.
    pub congestion: Congestion,
    /// The mark of its packets, 0 to 63, for IPv4 and IPv6 alike. `None`: left as it is.
    pub dscp: Option<u8>,
    /// The most it sends, bytes per second, spread evenly: a committed rate. `None`: no limit.
    pub pacing: Option<u64>,
    /// The largest segment, bytes, both ways: it is told to the other side in the handshake, so it holds for connections that are
    /// dialled from now on. `None`: as the interface says.
    pub mss: Option<u32>,
    /// How often whoever uses it asks a quiet connection for a sign of life. The kernel's own questions come after that, and not
    /// beside it.
    pub keepalive: Option<Duration>,
}
