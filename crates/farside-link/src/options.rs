//! What is asked of a link: over which paths the far site is reached and how, and what one stream may take. Plain data.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{ADDRESS_MAX, KEEPALIVE_MAX, KEEPALIVE_MIN, OTHERS_MAX, PATHS_MAX};
use crate::throttle::Bucket;
use crate::transport::{SocketOptions, split_address};

/// A path: from which of this host's addresses to which of the peer's. Written `LOCAL=HOST:PORT` or `HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PathSpec {
    /// The address dialled from; `None`: the kernel's choice.
    pub local: Option<IpAddr>,
    /// Where is dialled, `HOST:PORT`.
    pub remote: String,
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.local {
            Some(local) => write!(f, "{local}={}", self.remote),
            None => f.write_str(&self.remote),
        }
    }
}

impl FromStr for PathSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = match text.split_once('=') {
            Some((local, remote)) => {
                let local = local.trim_start_matches('[').trim_end_matches(']');
                let local = local.parse().map_err(|_| {
                    format!("{local:?} is not an IP address of this host; a path is LOCAL=HOST:PORT")
                })?;
                (Some(local), remote)
            }
            None => (None, text),
        };
        let is_one_word = !remote.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=');
        if remote.len() > ADDRESS_MAX || !is_one_word || split_address(remote).is_none() {
            return Err(format!("{remote:?} is not HOST:PORT; a path is LOCAL=HOST:PORT"));
        }
        Ok(PathSpec { local, remote: remote.to_owned() })
    }
}

/// How several paths are used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PathsMode {
    /// All at once.
    #[default]
    Multiplex,
    /// The first that works; back to an earlier one when that has worked again for a while.
    Failover,
}

/// How a peer's link is made. What is not said is left to the kernel, or has no bound.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkOptions {
    /// At most [`PATHS_MAX`]; empty: the one to the peer's address. In failover mode the first is preferred.
    pub paths: Vec<PathSpec>,
    /// See [`PathsMode`].
    pub mode: PathsMode,
    /// Differentiated services code point of its packets, 0 to 63.
    pub dscp: Option<u8>,
    /// The committed rate, bytes per second: what is sent over all connections and paths together keeps below it
    /// (TLS is counted, the headers of packets are not), and each connection alone is paced to it.
    pub rate: Option<u64>,
    /// How often a connection without data is asked for a sign of life, [`KEEPALIVE_MIN`] to [`KEEPALIVE_MAX`]. `None`:
    /// [`KEEPALIVE_MIN`]. Of what the two sites say, the longer counts.
    pub keepalive: Option<Duration>,
    /// Where else the peer is, `HOST:PORT` each, at most [`OTHERS_MAX`]: other daemons of its site. One of them leads; it tells.
    pub others: Vec<String>,
}

impl LinkOptions {
    /// # Errors
    /// A sentence that says which of it cannot be.
    pub fn check(&self) -> Result<(), String> {
        if self.paths.len() > PATHS_MAX {
            return Err(format!("{} paths; a peer has at most {PATHS_MAX}", self.paths.len()));
        }
        if let Some((at, path)) =
            self.paths.iter().enumerate().find(|(at, path)| self.paths[..*at].contains(path))
        {
            return Err(format!("the path {path} is named twice (number {})", at + 1));
        }
        if self.others.len() > OTHERS_MAX {
            return Err(format!("{} other addresses; a peer has at most {OTHERS_MAX}", self.others.len()));
        }
        if let Some(address) =
            self.others.iter().find(|address| address.len() > ADDRESS_MAX || split_address(address).is_none())
        {
            return Err(format!("{address:?} is not HOST:PORT"));
        }
        if self.dscp.is_some_and(|dscp| dscp > 63) {
            return Err("a DSCP is a number from 0 to 63".to_owned());
        }
        if self.rate == Some(0) {
            return Err("a rate of 0 would stop everything; to stop mirrors, quiesce them".to_owned());
        }
        if self.keepalive.is_some_and(|keepalive| !(KEEPALIVE_MIN..=KEEPALIVE_MAX).contains(&keepalive)) {
            let (least, most) = (KEEPALIVE_MIN.as_secs(), KEEPALIVE_MAX.as_secs() / 60);
            return Err(format!("a keepalive is {least}s to {most}m"));
        }
        Ok(())
    }
}

/// How a peer is reached, as its record says now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reach {
    /// Over which paths, and how.
    pub link: LinkOptions,
    /// Where it is dialled if there are no paths, `HOST:PORT`.
    pub address: Option<String>,
}

impl Reach {
    /// Where to dial, in the order of preference; none if the peer has to dial this side.
    pub fn paths(&self) -> Vec<PathSpec> {
        if !self.link.paths.is_empty() {
            return self.link.paths.clone();
        }
        self.address.iter().map(|address| PathSpec { local: None, remote: address.clone() }).collect()
    }

    /// Where to dial once none of the [paths](Self::paths) leads to the peer: another daemon of its site may have its work.
    pub fn elsewhere(&self) -> Vec<PathSpec> {
        let is_new = |address: &&String| self.address.as_ref() != Some(*address);
        let others = self.link.others.iter().filter(is_new);
        others.map(|address| PathSpec { local: None, remote: address.clone() }).collect()
    }

    /// What is asked of a connection over `path`.
    pub fn socket(&self, path: &PathSpec) -> SocketOptions {
        let LinkOptions { dscp, rate, .. } = self.link;
        SocketOptions {
            local: path.local,
            dscp,
            pacing: rate,
            keepalive: self.link.keepalive,
            ..SocketOptions::default()
        }
    }
}

/// How many bytes of a data stream may be on their way, unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Window {
    /// Grows while it is what limits the stream.
    #[default]
    Auto,
    /// Fixed, bytes.
    Bytes(u64),
}

/// Whether a data stream competes with other traffic.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Priority {
    /// As any TCP connection does.
    #[default]
    Normal,
    /// It gives way to whatever else uses the path.
    Low,
}

/// What one data stream may take of the link, as its opener wants it.
#[derive(Clone, Default, Debug)]
pub struct StreamOptions {
    /// See [`Window`].
    pub window: Window,
    /// See [`Priority`].
    pub priority: Priority,
    /// So much is to come that several connections at once are worth their handshakes where the peer is far.
    pub bulk: bool,
    /// What comes on the stream is under this limit too, beside those of site and peer.
    pub throttle: Option<Arc<Bucket>>,
    /// Instead of the peer's paths; empty: the peer's. Has effect at the side that dialled the session.
    pub paths: Vec<PathSpec>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_they_are_read() {
        for text in ["a:7440", "10.0.0.1=a:7440", "fd00::1=[fd00::2]:7440"] {
            assert_eq!(text.parse::<PathSpec>().unwrap().to_string(), text);
        }
        for text in ["", "a", "eth0=a:7440", "10.0.0.1=a", "=a:7440", "10.0.0.1=", "a b:1", "1.1.1.1=b=c:1"] {
            assert!(text.parse::<PathSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn terms_that_cannot_be_are_refused() {
        let path = |n: usize| PathSpec { local: None, remote: format!("a:{n}") };
        let options = |paths| LinkOptions { paths, ..LinkOptions::default() };
        assert!(options((1..=PATHS_MAX).map(path).collect()).check().is_ok());
        assert!(options((0..=PATHS_MAX).map(path).collect()).check().is_err());
        assert!(options(vec![path(1), path(1)]).check().unwrap_err().contains("a:1"));
        assert!(LinkOptions { dscp: Some(64), ..LinkOptions::default() }.check().is_err());
        assert!(LinkOptions { rate: Some(0), ..LinkOptions::default() }.check().is_err());
        let keepalive = |seconds| {
            let keepalive = Some(Duration::from_secs(seconds));
            LinkOptions { keepalive, ..LinkOptions::default() }.check()
        };
        assert!(keepalive(1).is_err() && keepalive(2).is_ok() && keepalive(600).is_ok());
        assert_eq!(keepalive(601).unwrap_err(), "a keepalive is 2s to 10m");
    }
}
