//! What connections look like, and which policy that makes.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Why a policy cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An action that there is not.
    #[error("{0:?} is no action; there are full, dre, lz, transport and pass-through")]
    Action(String),
    /// No port, and no range of ports.
    #[error("{0:?} is no port and no range of ports, such as 873 or 10565-10569")]
    Ports(String),
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl Ports {
    /// One port.
    pub const fn one(port: u16) -> Ports {
        Ports { first: port, last: port }
    }

    fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Ports, PolicyError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Ports { first, last }),
            _ => Err(PolicyError::Ports(text.to_owned())),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A look: what is left empty fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The server's port is one of these.
    pub ports: Vec<Ports>,
    /// Client or server is in one of these.
    pub addresses: Vec<IpNet>,
    /// The client is in one of these.
    pub clients: Vec<IpNet>,
    /// The server is in one of these.
    pub servers: Vec<IpNet>,
}

impl Rule {
    /// Whether a connection looks so.
    pub fn fits(&self, ends: &Ends) -> bool {
        // An address of IPv4 may come as one of IPv6.
        let (client, server) = (ends.client.ip().to_canonical(), ends.server.ip().to_canonical());
        let among = |nets: &[IpNet], one: &[std::net::IpAddr]| {
            nets.is_empty() || nets.iter().any(|net| one.iter().any(|address| net.contains(address)))
        };
        (self.ports.is_empty() || self.ports.iter().any(|ports| ports.has(ends.server.port())))
            && among(&self.addresses, &[client, server])
            && among(&self.clients, &[client])
            && among(&self.servers, &[server])
    }
}

/// The two ends of a connection, as they see each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Who connects.
    pub client: SocketAddr,
    /// To whom.
    pub server: SocketAddr,
}
