//! What a connection is asked to be like, before it is made and while it lives.
//!
//! Nothing here is a condition: a kernel that does not have BBR, or does not let this process use it, gives a connection all
//! the same. What was granted is read back from the socket ([`LinkFigures::congestion`](super::LinkFigures)).

use std::fmt;
use std::net::IpAddr;

/// Longest name of a congestion control: Linux has room for 16 bytes with the closing zero.
const CONGESTION_NAME_MAX: usize = 15;

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

    /// What was configured: `host`, or the name that the kernel has for it, such as `bbr` or `cubic`.
    ///
    /// # Errors
    /// A sentence for the operator if it cannot be one.
    pub fn parse(name: &str) -> Result<Congestion, String> {
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
        match name {
            "host" => Ok(Congestion::Host),
            _ if name.is_empty() || name.len() > CONGESTION_NAME_MAX || !name.bytes().all(is_name) => {
                Err(format!(
                    "{name:?} is no congestion control: expected \"host\" or a name of at most {CONGESTION_NAME_MAX} characters from /proc/sys/net/ipv4/tcp_available_congestion_control"
                ))
            }
            _ => Ok(Congestion::Named(name.to_owned())),
        }
    }
}

impl Default for Congestion {
    fn default() -> Congestion {
        Congestion::bbr()
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Congestion::Host => f.write_str("host"),
            Congestion::Named(name) => f.write_str(name),
        }
    }
}

/// What a connection is asked to be like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SocketTerms {
    /// The local address it goes out from: one end of a path. `None`: as the host's routes say.
    pub local: Option<IpAddr>,
    /// The congestion control it asks for.
    pub congestion: Congestion,
    /// The mark of its packets, 0 to 63, for IPv4 and IPv6 alike. `None`: left as it is.
    pub dscp: Option<u8>,
    /// The most it sends, bytes per second, spread evenly: a contracted rate. `None`: no limit.
    pub pacing: Option<u64>,
    /// Send and receive buffer, bytes, for a link whose product of rate and round trip is more than the host lets a connection
    /// have. Needs `CAP_NET_ADMIN`; without it, and with `None`, the kernel sizes them within its own bounds.
    pub buffer: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_the_kernel_could_have() {
        assert_eq!(Congestion::parse("host"), Ok(Congestion::Host));
        assert_eq!(Congestion::parse("bbr"), Ok(Congestion::default()));
        assert_eq!(Congestion::parse("tcp_bbr2").map(|c| c.to_string()), Ok("tcp_bbr2".to_owned()));
        for wrong in ["", "BBR", "a name", "exactly-sixteen-", "bbr\0"] {
            let said = Congestion::parse(wrong).unwrap_err();
            assert!(said.contains("tcp_available_congestion_control"), "{said}");
        }
    }
}
