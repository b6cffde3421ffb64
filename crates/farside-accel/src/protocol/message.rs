//! Bodies of the frames that agree upon something: protobuf messages, so that a later release can add to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farside_chunks::{ChunkName, ContainerName, OriginId};
use ipnet::IpNet;
use prost::Message;

use super::frame::{Frame, Kind};
use crate::policy::Action;

/// Longest text for people in a message, bytes.
pub const REASON_TEXT_MAX: usize = 256;

/// Subnets that a box may name: more are ignored.
const SUBNETS_MAX: usize = 256;

/// The first frame each way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// See [`VERSION`](super::version::VERSION).
    pub version: u32,
    /// What lies behind the box that says it; empty from a box that intercepts nothing.
    pub subnets: Vec<IpNet>,
}

/// What the box of a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenTarget {
    /// Connect to the server as the client.
    Transparent {
        /// From where.
        client: SocketAddr,
        /// To where.
        server: SocketAddr,
    },
    /// Connect to what the peer calls so, from the box's own address.
    Named(String),
    /// Connect nowhere: what comes is kept in the chunk store, and thrown away.
    Keep,
}

/// Connect, please.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// See [`OpenTarget`].
    pub target: OpenTarget,
    /// Differentiated services code point of the client's packets.
    pub dscp: Option<u8>,
    /// What the client's box would do for it.
    pub action: Action,
    /// The application, as the client's box calls it.
    pub application: String,
    /// How many bytes may come before credit is given.
    pub window: u32,
}

/// Connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The policy of the server's box.
    pub policy: Action,
    /// How many bytes may come before credit is given.
    pub window: u32,
}

/// Why there is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The server refused: the client is to see that.
    ByServer,
    /// The server could not be reached, or did not answer in time.
    NoAnswer,
    /// The policy of the server's box is to let it pass.
    ByPolicy,
    /// The server's box may not, or cannot, connect there.
    NotAllowed,
    /// It has as many connections as it takes.
    Overload,
}

/// Not connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// See [`Refusal`].
    pub refusal: Refusal,
    /// For people.
    pub text: String,
}

#[derive(Clone, PartialEq, Message)]
struct HelloMessage {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(message, repeated, tag = "2")]
    subnets: Vec<SubnetMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SubnetMessage {
    /// Four or sixteen bytes.
    #[prost(bytes = "vec", tag = "1")]
    address: Vec<u8>,
    #[prost(uint32, tag = "2")]
    prefix: u32,
}

#[derive(Clone, PartialEq, Message)]
struct EndMessage {
    #[prost(bytes = "vec", tag = "1")]
    address: Vec<u8>,
    #[prost(uint32, tag = "2")]
    port: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OpenMessage {
    #[prost(message, optional, tag = "1")]
    client: Option<EndMessage>,
    #[prost(message, optional, tag = "2")]
    server: Option<EndMessage>,
    #[prost(string, tag = "3")]
    named: String,
    /// One more than the code point; zero: not known.
    #[prost(uint32, tag = "4")]
    dscp: u32,
    #[prost(uint32, tag = "5")]
    action: u32,
    #[prost(string, tag = "6")]
    application: String,
    #[prost(uint32, tag = "7")]
    window: u32,
    #[prost(bool, tag = "8")]
    keep: bool,
}

#[derive(Clone, PartialEq, Message)]
struct OpenedMessage {
    #[prost(uint32, tag = "1")]
    policy: u32,
    #[prost(uint32, tag = "2")]
    window: u32,
}

#[derive(Clone, PartialEq, Message)]
struct RefusedMessage {
    #[prost(uint32, tag = "1")]
    refusal: u32,
    #[prost(string, tag = "2")]
    text: String,
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

fn end_message(end: SocketAddr) -> EndMessage {
    EndMessage { address: address_bytes(end.ip()), port: u32::from(end.port()) }
}

fn end_of(message: &EndMessage) -> Option<SocketAddr> {
    let port = u16::try_from(message.port).ok().filter(|port| *port > 0)?;
    Some(SocketAddr::new(address_of(&message.address)?, port))
}

/// An action on the wire.
pub fn action_to_code(action: Action) -> u32 {
    match action {
        Action::PassThrough => 0,
        Action::Transport => 1,
        Action::Lz => 2,
        Action::Dre => 3,
        Action::Full => 4,
    }
}

/// The same backwards; none where it is not known here.
pub fn action_from_code(code: u32) -> Option<Action> {
    Action::ALL.into_iter().find(|action| action_to_code(*action) == code)
}

/// For people, from outside: no more than so much, no control characters.
fn text_of(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(REASON_TEXT_MAX).collect()
}

impl Hello {
    /// As a frame.
    pub fn frame(&self) -> Frame {
        let subnets = self.subnets.iter().take(SUBNETS_MAX).map(|net| SubnetMessage {
            address: address_bytes(net.addr()),
            prefix: u32::from(net.prefix_len()),
        });
        let message = HelloMessage { version: self.version, subnets: subnets.collect() };
        Frame { kind: Kind::Hello, flow: 0, body: message.encode_to_vec().into() }
    }

    /// Of a frame's body; none if it is malformed.
    pub fn parse(body: &[u8]) -> Option<Hello> {
        let message = HelloMessage::decode(body).ok()?;
        let subnet = |subnet: &SubnetMessage| {
            let prefix = u8::try_from(subnet.prefix).ok()?;
            IpNet::new(address_of(&subnet.address)?, prefix).ok().map(|net| net.trunc())
        };
        let subnets = message.subnets.iter().take(SUBNETS_MAX).filter_map(subnet).collect();
        Some(Hello { version: message.version, subnets })
    }
}

impl Open {
    /// As a frame.
    pub fn frame(&self, flow: u32) -> Frame {
        let (client, server, named) = match &self.target {
            OpenTarget::Transparent { client, server } => {
                (Some(end_message(*client)), Some(end_message(*server)), String::new())
            }
            OpenTarget::Named(name) => (None, None, name.clone()),
            OpenTarget::Keep => (None, None, String::new()),
        };
        let message = OpenMessage {
            client,
            server,
            named,
            dscp: self.dscp.map_or(0, |dscp| u32::from(dscp) + 1),
            action: action_to_code(self.action),
            application: self.application.clone(),
            window: self.window,
            keep: self.target == OpenTarget::Keep,
        };
        Frame { kind: Kind::Open, flow, body: message.encode_to_vec().into() }
    }

    /// Of a frame's body; none if it is malformed, or asks for what is not known here.
    pub fn parse(body: &[u8]) -> Option<Open> {
        let message = OpenMessage::decode(body).ok()?;
        let target = match (&message.client, &message.server) {
            (None, None) if message.keep && message.named.is_empty() => OpenTarget::Keep,
            _ if message.keep => return None,
            (Some(client), Some(server)) => {
                let (client, server) = (end_of(client)?, end_of(server)?);
                if client.is_ipv4() != server.is_ipv4() {
                    return None;
                }
                OpenTarget::Transparent { client, server }
            }
            (None, None) if !message.named.is_empty() && message.named.len() <= REASON_TEXT_MAX => {
                OpenTarget::Named(message.named)
            }
            _ => return None,
        };
        let dscp = match message.dscp {
            0 => None,
            code => Some(u8::try_from(code - 1).ok().filter(|dscp| *dscp < 64)?),
        };
        let action = action_from_code(message.action).filter(|action| action.is_optimized())?;
        let application = text_of(&message.application);
        Some(Open { target, dscp, action, application, window: message.window })
    }
}

impl Opened {
    /// As a frame.
    pub fn frame(&self, flow: u32) -> Frame {
        let message = OpenedMessage { policy: action_to_code(self.policy), window: self.window };
        Frame { kind: Kind::Opened, flow, body: message.encode_to_vec().into() }
    }

    /// Of a frame's body.
    pub fn parse(body: &[u8]) -> Option<Opened> {
        let message = OpenedMessage::decode(body).ok()?;
        let policy = action_from_code(message.policy).filter(|action| action.is_optimized())?;
        Some(Opened { policy, window: message.window })
    }
}

impl Refused {
    /// As a frame.
    pub fn frame(&self, flow: u32) -> Frame {
        let refusal = match self.refusal {
            Refusal::ByServer => 1,
            Refusal::NoAnswer => 2,
            Refusal::ByPolicy => 3,
            Refusal::NotAllowed => 4,
            Refusal::Overload => 5,
        };
        let message = RefusedMessage { refusal, text: text_of(&self.text) };
        Frame { kind: Kind::Refused, flow, body: message.encode_to_vec().into() }
    }

    /// Of a frame's body. A refusal that is not known here is one that says nothing of the server.
    pub fn parse(body: &[u8]) -> Option<Refused> {
        let message = RefusedMessage::decode(body).ok()?;
        let refusal = match message.refusal {
            1 => Refusal::ByServer,
            3 => Refusal::ByPolicy,
            4 => Refusal::NotAllowed,
            5 => Refusal::Overload,
            _ => Refusal::NoAnswer,
        };
        Some(Refused { refusal, text: text_of(&message.text) })
    }
}

/// Body of an *ask*: a sequence number, and the missing chunk's origin (16 bytes), container and place, if it is one.
pub fn ask_body(sequence: u64, missing: Option<ChunkName>) -> bytes::Bytes {
    let mut body = Frame::number(Kind::Ask, 0, sequence).body.to_vec();
    if let Some(ChunkName { container, place }) = missing {
        body.extend_from_slice(&container.origin.0);
        body.extend_from_slice(&Frame::numbers(Kind::Ask, 0, &[container.number, u64::from(place)]).body);
    }
    body.into()
}

/// The same backwards.
pub fn parse_ask(frame: &Frame) -> Option<(u64, Option<ChunkName>)> {
    let (sequence, rest) = frame.split_number()?;
    if rest.is_empty() {
        return Some((sequence, None));
    }
    let (origin, place) = rest.split_at_checked(16)?;
    let name = Frame { kind: Kind::Ask, flow: 0, body: bytes::Bytes::copy_from_slice(place) };
    let [number, place] = name.as_numbers()?;
    let container = ContainerName { origin: OriginId(origin.try_into().ok()?), number };
    Some((sequence, Some(ChunkName { container, place: u16::try_from(place).ok()? })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(target: OpenTarget, dscp: Option<u8>) -> Open {
        Open { target, dscp, action: Action::Full, application: "rsync".to_owned(), window: 65_536 }
    }

    #[test]
    fn what_is_said_is_heard() {
        let ends = |client: &str, server: &str| OpenTarget::Transparent {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        };
        for open in [
            open(ends("10.1.0.5:40000", "10.2.0.5:873"), Some(46)),
            open(ends("[fd00::1]:40000", "[fd01::1]:873"), Some(0)),
            open(OpenTarget::Named("10.2.0.5:5432".to_owned()), None),
            open(OpenTarget::Keep, None),
        ] {
            assert_eq!(Open::parse(&open.frame(7).body), Some(open));
        }
        let hello =
            Hello { version: 1, subnets: vec!["10.2.0.0/16".parse().unwrap(), "fd01::/64".parse().unwrap()] };
        assert_eq!(Hello::parse(&hello.frame().body), Some(hello));
        let opened = Opened { policy: Action::Lz, window: 1 << 20 };
        assert_eq!(Opened::parse(&opened.frame(7).body), Some(opened));
        for refusal in
            [Refusal::ByServer, Refusal::NoAnswer, Refusal::ByPolicy, Refusal::NotAllowed, Refusal::Overload]
        {
            let refused = Refused { refusal, text: "because".to_owned() };
            assert_eq!(Refused::parse(&refused.frame(7).body), Some(refused));
        }
    }

    #[test]
    fn the_frozen_bytes_of_an_opening() {
        // Since version 2. Version 1 had no field 8.
        let keep = Open { application: "a".to_owned(), window: 5, ..open(OpenTarget::Keep, None) };
        assert_eq!(&keep.frame(7).body[..], b"\x28\x04\x32\x01a\x38\x05\x40\x01");
        let both = OpenMessage { named: "h:1".to_owned(), keep: true, action: 4, ..Default::default() };
        assert_eq!(Open::parse(&both.encode_to_vec()), None, "it is one or the other");
    }

    #[test]
    fn what_is_asked_for_is_understood() {
        let container = ContainerName { origin: OriginId([3; 16]), number: 700 };
        for missing in [None, Some(ChunkName { container, place: 300 })] {
            let frame = Frame { kind: Kind::Ask, flow: 7, body: ask_body(1000, missing) };
            assert_eq!(parse_ask(&frame), Some((1000, missing)));
        }
        let short = Frame {
            kind: Kind::Ask,
            flow: 7,
            body: ask_body(1, Some(ChunkName { container, place: 3 })).slice(..9),
        };
        assert_eq!(parse_ask(&short), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mixed = OpenTarget::Transparent {
            client: "10.1.0.5:40000".parse().unwrap(),
            server: "[fd01::1]:873".parse().unwrap(),
        };
        assert_eq!(Open::parse(&open(mixed, None).frame(7).body), None);
        let no_port = OpenTarget::Transparent {
            client: "10.1.0.5:40000".parse().unwrap(),
            server: "10.2.0.5:0".parse().unwrap(),
        };
        assert_eq!(Open::parse(&open(no_port, None).frame(7).body), None);
        assert_eq!(Open::parse(b""), None);
        let pass = Opened { policy: Action::PassThrough, window: 0 };
        assert_eq!(Opened::parse(&pass.frame(7).body), None, "an opened flow is optimised");
        let loud = Refused { refusal: Refusal::NoAnswer, text: format!("a\n{}", "b".repeat(1000)) };
        let text = Refused::parse(&loud.frame(7).body).unwrap().text;
        assert!(text.starts_with("ab") && text.len() == REASON_TEXT_MAX, "{text}");
    }
}
