//! What a queued packet says, read from its IP header on. Pure.
//!
//! Anyone on the LAN makes these bytes: each length is checked before it is used, and what is not plainly a SYN or a small
//! datagram is [`Packet::Other`], which goes its way as it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::policy::Ends;

/// Longest payload of a datagram that is looked at, bytes.
pub const PROBE_MAX: usize = 512;
/// Bytes of a packet that are enough to read it: a datagram's payload, and headers with room to spare (a SYN has 120 at most,
/// an IPv6 header with a few extensions about 100).
pub const LOOK_AT: usize = PROBE_MAX + 256;
/// Most extension headers of IPv6 that are stepped over. A host sends one or two; a long chain is nobody's SYN.
const EXTENSIONS_MAX: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const DESTINATION_OPTIONS: u8 = 60;

/// "More fragments" and the offset of IPv4: either says that this is one of several.
const FRAGMENT: u16 = 0x3fff;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A packet that the rules queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A connection begins.
    Syn(Syn),
    /// A datagram to the port of probes.
    Probe(Probe),
    /// Anything else: a fragment, a truncated header, an address that nobody can connect to.
    Other,
}

/// The first segment of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Who connects to whom.
    pub ends: Ends,
    /// Differentiated services code point, 0 to 63. Nothing later shows it before the far side has connected.
    pub dscp: u8,
    /// Largest segment that the client takes, if it says.
    pub mss: Option<u16>,
    /// The client's first sequence number: a retransmission has the same.
    pub sequence: u32,
}

/// A datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who sent it.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// At most [`PROBE_MAX`] bytes.
    pub payload: Vec<u8>,
}

/// Reads a packet that begins with its IP header. It may be cut off after [`LOOK_AT`] bytes.
pub fn parse(bytes: &[u8]) -> Packet {
    let Some(datagram) = Datagram::read(bytes) else {
        return Packet::Other;
    };
    let read = match datagram.protocol {
        TCP => syn(&datagram).map(Packet::Syn),
        UDP => probe(&datagram).map(Packet::Probe),
        _ => None,
    };
    read.unwrap_or(Packet::Other)
}

/// What IPv4 and IPv6 have in common.
struct Datagram<'a> {
    source: IpAddr,
    destination: IpAddr,
    dscp: u8,
    protocol: u8,
    /// From the transport header on; cut off where the copy was.
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    fn read(bytes: &'a [u8]) -> Option<Datagram<'a>> {
        let datagram = match bytes.first()? >> 4 {
            4 => Datagram::read_v4(bytes)?,
            6 => Datagram::read_v6(bytes)?,
            _ => return None,
        };
        (is_a_hosts(datagram.source) && is_a_hosts(datagram.destination)).then_some(datagram)
    }

    fn read_v4(bytes: &'a [u8]) -> Option<Datagram<'a>> {
        let header = bytes.first_chunk::<20>()?;
        if be16(header[6], header[7]) & FRAGMENT != 0 {
            return None;
        }
        let header_length = usize::from(header[0] & 0x0f) * 4;
        let length = usize::from(be16(header[2], header[3])).min(bytes.len());
        if header_length < header.len() {
            return None;
        }
        Some(Datagram {
            source: v4(&header[12..16])?,
            destination: v4(&header[16..20])?,
            dscp: header[1] >> 2,
            protocol: header[9],
            payload: bytes.get(header_length..length)?,
        })
    }

    fn read_v6(bytes: &'a [u8]) -> Option<Datagram<'a>> {
        let header = bytes.first_chunk::<40>()?;
        let length = (header.len() + usize::from(be16(header[4], header[5]))).min(bytes.len());
        let mut rest = bytes.get(header.len()..length)?;
        let mut protocol = header[6];
        for _ in 0..EXTENSIONS_MAX {
            // A fragment or a routing header (the destination may not be the last one) ends it as `Other`.
            if protocol != HOP_BY_HOP && protocol != DESTINATION_OPTIONS {
                break;
            }
            let extension = rest.first_chunk::<2>()?;
            protocol = extension[0];
            rest = rest.get((usize::from(extension[1]) + 1) * 8..)?;
        }
        Some(Datagram {
            source: v6(&header[8..24])?,
            destination: v6(&header[24..40])?,
            dscp: (be16(header[0], header[1]) << 4).to_be_bytes()[0] >> 2,
            protocol,
            payload: rest,
        })
    }
}

fn syn(datagram: &Datagram<'_>) -> Option<Syn> {
    let header = datagram.payload.first_chunk::<20>()?;
    if header[13] & (FIN | SYN | RST | ACK) != SYN {
        return None;
    }
    let options = datagram.payload.get(header.len()..usize::from(header[12] >> 4) * 4)?;
    let client = SocketAddr::new(datagram.source, be16(header[0], header[1]));
    let server = SocketAddr::new(datagram.destination, be16(header[2], header[3]));
    let [_, _, _, _, s0, s1, s2, s3, ..] = *header;
    // Nothing can bind to port 0 and mean it.
    (client.port() != 0 && server.port() != 0).then(|| Syn {
        ends: Ends { client, server },
        dscp: datagram.dscp,
        mss: mss(options),
        sequence: u32::from_be_bytes([s0, s1, s2, s3]),
    })
}

/// The maximum segment size among a SYN's options.
fn mss(mut options: &[u8]) -> Option<u16> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const MSS: u8 = 2;
    loop {
        match options {
            [] | [END, ..] => return None,
            [NO_OPERATION, rest @ ..] => options = rest,
            [MSS, 4, high, low, ..] => return Some(be16(*high, *low)),
            [_, length, ..] if *length >= 2 => options = options.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}

fn probe(datagram: &Datagram<'_>) -> Option<Probe> {
    let header = datagram.payload.first_chunk::<8>()?;
    let payload = datagram.payload.get(header.len()..usize::from(be16(header[4], header[5])))?;
    (payload.len() <= PROBE_MAX).then(|| Probe {
        from: SocketAddr::new(datagram.source, be16(header[0], header[1])),
        to: SocketAddr::new(datagram.destination, be16(header[2], header[3])),
        payload: payload.to_vec(),
    })
}

/// Whether a connection of another host can have this end. The rules see packets before the kernel refuses such addresses, and
/// the far box binds to what it is told: 127.0.0.1 there would be that box itself. An IPv4 address written as one of IPv6 would
/// be bound as IPv4, past every check of its family. Link-local addresses of IPv6 are on no other link.
fn is_a_hosts(address: IpAddr) -> bool {
    if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return false;
    }
    match address {
        IpAddr::V4(address) => !address.is_broadcast() && address.octets()[0] != 0,
        IpAddr::V6(address) => !address.is_unicast_link_local() && address.to_ipv4_mapped().is_none(),
    }
}

fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

fn v4(bytes: &[u8]) -> Option<IpAddr> {
    Some(IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?)))
}

fn v6(bytes: &[u8]) -> Option<IpAddr> {
    Some(IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?)))
}

#[cfg(test)]
mod tests;
