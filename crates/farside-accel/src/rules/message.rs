//! The rules as messages to nf_tables. Numbers are those of the kernel's `linux/netfilter/nf_tables.h`.

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook as HookAttribute, Immediate,
    InetHookNumber, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register,
    RuleAttribute, RuleMessage, SetAttribute, SetElementAttribute, SetElementList, SetElementMessage,
    SetMessage, TableAttribute, TableFlags, TableMessage, Verdict, VerdictAttribute,
};

use std::net::{IpAddr, SocketAddr};

use super::ruleset::{Chain, Hook, Means, QueueBy, Ruleset, TABLE};
use super::term::{Family, Place, Term};
use super::text;

const ACCEPT: u32 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const LINK_HEADER: u32 = 0;
const NETWORK_HEADER: u32 = 1;
/// Where a frame's type is; the kernel puts a VLAN's tag back there.
const ETHERTYPE: u32 = 12;
const PACKET_HOST: u8 = 0;
const TRANSPORT_HEADER: u32 = 2;
/// `NFT_REG32_00`: the first of 16 registers of 4 bytes.
const FIRST_REGISTER: u32 = 8;
/// nft's own numbers of the types of a set's key, 6 bits each: only it reads them.
const TYPE_IPV4: u32 = 7;
const TYPE_IPV6: u32 = 8;
const TYPE_PORT: u32 = 13;
/// Where TCP's flags are in its header.
const TCP_FLAGS: u32 = 13;
/// Where the destination's port is in the headers of TCP and UDP.
const DESTINATION_PORT: u32 = 2;
const SYN: u8 = 0x02;
const FIN_SYN_RST_ACK: u8 = 0x17;
/// `RTN_LOCAL`.
const LOCAL: u32 = 2;
const FIB_BY_DESTINATION: u32 = 2;
const FIB_INTERFACE_NAME: u32 = 2;
const FIB_ADDRESS_TYPE: u32 = 3;
const SOCKET_TRANSPARENT: u32 = 0;
const TCP_RESET: u32 = 1;
/// Of both ways to queue.
const BYPASS: u16 = 1;
const INTERFACE_NAME_SIZE: usize = 16;

/// Everything that makes the table, in order. It must be one batch, and there must be no table of this name.
pub(crate) fn batch(ruleset: &Ruleset, means: Means) -> Vec<(Place, NfTablesMessage)> {
    let mut messages = Vec::new();
    let mut sets = 1..;
    for (place, chains) in ruleset.tables(means) {
        let mut add = |message| messages.push((place, message));
        add(NfTablesMessage::NewTable(TableMessage {
            attributes: vec![
                TableAttribute::Name(TABLE.to_owned()),
                TableAttribute::Flags(TableFlags::Owner),
            ],
        }));
        sets.by_ref().zip(Family::ALL).for_each(|(id, family)| add(new_set(id, family)));
        for chain in chains {
            add(new_chain(&chain));
            chain.rules.iter().for_each(|rule| add(new_rule(chain.name, rule, means)));
        }
    }
    messages
}

/// What the `index`th message of [`batch`] is, in nft's words, for an error that the kernel answers it with.
pub(crate) fn text_of(ruleset: &Ruleset, means: Means, index: usize) -> String {
    let mut texts = Vec::new();
    for (place, chains) in ruleset.tables(means) {
        texts.push(format!("table {} {TABLE} {{ flags owner }}", place.name()));
        texts.extend(Family::ALL.map(|family| format!("set {}", family.carried())));
        for chain in chains {
            texts.push(format!("chain {}", chain.name));
            texts.extend(chain.rules.iter().map(|rule| text::line(rule)));
        }
    }
    texts.into_iter().nth(index).unwrap_or_else(|| "the batch".to_owned())
}

fn new_chain(chain: &Chain) -> NfTablesMessage {
    let hook = match chain.hook {
        Hook::Prerouting => InetHookNumber::PreRouting,
        Hook::Forward => InetHookNumber::Forward,
        Hook::Output => InetHookNumber::LocalOut,
    };
    NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(TABLE.to_owned()),
            ChainAttribute::Name(chain.name.to_owned()),
            ChainAttribute::Hook(vec![
                HookAttribute::Number(hook.into()),
                HookAttribute::Priority(chain.priority.cast_unsigned()),
            ]),
            ChainAttribute::Policy(ACCEPT),
            ChainAttribute::Type(chain.kind.name().to_owned()),
        ],
    })
}

fn new_rule(chain: &str, rule: &[Term], means: Means) -> NfTablesMessage {
    let expressions = rule.iter().flat_map(|term| term.expressions(means)).map(Into::into).collect();
    NfTablesMessage::NewRule(RuleMessage {
        attributes: vec![
            RuleAttribute::Table(TABLE.to_owned()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Expressions(expressions),
        ],
    })
}

impl Term {
    fn expressions(&self, means: Means) -> Vec<Expressions> {
        match self {
            Term::FromInterface(name) => vec![load(MetaKey::Iifname), is(padded(name))],
            Term::OutOf(name) => vec![load(MetaKey::Oifname), is(padded(name))],
            Term::Tcp => vec![load(MetaKey::L4Proto), is(vec![TCP])],
            Term::Udp => vec![load(MetaKey::L4Proto), is(vec![UDP])],
            Term::Syn => vec![header(TCP_FLAGS, 1), masked(FIN_SYN_RST_ACK), is(vec![SYN])],
            Term::NotSyn => vec![header(TCP_FLAGS, 1), masked(FIN_SYN_RST_ACK), is_not(vec![SYN])],
            Term::Icmp(Family::V4) => vec![load(MetaKey::L4Proto), is(vec![ICMP])],
            Term::Icmp(Family::V6) => vec![load(MetaKey::L4Proto), is(vec![ICMP6])],
            Term::NotToTcpPort(port) => vec![header(DESTINATION_PORT, 2), is_not(be16(*port))],
            Term::ToUdpPort(port) => vec![header(DESTINATION_PORT, 2), is(be16(*port))],
            Term::Mark(mark) => vec![load(MetaKey::Mark), is(host32(*mark))],
            Term::NotMark(mark) => vec![load(MetaKey::Mark), is_not(host32(*mark))],
            Term::NotToThisBox => vec![fib(FIB_ADDRESS_TYPE), is_not(host32(LOCAL))],
            Term::NotOutOf(name) => vec![fib(FIB_INTERFACE_NAME), is_not(padded(name))],
            Term::TransparentSocket => {
                let socket =
                    other("socket", vec![(1, be32(SOCKET_TRANSPARENT)), (2, be32(Register::Reg1.into()))]);
                vec![socket, is(vec![1])]
            }
            Term::Is(family) => vec![load(MetaKey::Nfproto), is(vec![family.number()])],
            Term::Frame(family) => {
                let ethertype = match family {
                    Family::V4 => 0x0800,
                    Family::V6 => 0x86dd,
                };
                vec![part(0, LINK_HEADER, ETHERTYPE, 2), is(be16(ethertype))]
            }
            Term::Carried(family) => carried(*family),
            Term::AboutCarried(family) => about_carried(*family),
            Term::ToThisBox(address) => {
                // A destination's address is the first of a frame.
                let destination = vec![
                    (2, be32(LINK_HEADER)),
                    (3, be32(0)),
                    (4, be32(6)),
                    (5, be32(Register::Reg1.into())),
                ];
                let to_host = Expressions::Meta(vec![
                    Meta::Key(MetaKey::PacketType),
                    Meta::SourceRegister(Register::Reg1),
                ]);
                vec![
                    constant(address.to_vec()),
                    other("payload", destination),
                    constant(vec![PACKET_HOST]),
                    to_host,
                ]
            }
            Term::SetMark(mark) => {
                let store =
                    Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]);
                vec![constant(host32(*mark)), store]
            }
            Term::Queue(number) => vec![queue(*number, means.queue)],
            Term::Listener(family, port) => {
                let tproxy = other(
                    "tproxy",
                    vec![(1, be32(family.number().into())), (3, be32(Register::Reg1.into()))],
                );
                vec![constant(be16(*port)), tproxy]
            }
            Term::Reset => vec![other("reject", vec![(1, be32(TCP_RESET))])],
            Term::Accept => {
                let verdict = VerdictAttribute::Code(Verdict::Other(ACCEPT));
                vec![Expressions::Immediate(vec![
                    Immediate::DestinationRegister(Register::Verdict),
                    Immediate::Data(DataAttribute::Verdict(vec![verdict])),
                ])]
            }
        }
    }
}

/// The segments from `from` to `to` belong to a socket of this box (`is_so`), or no longer.
pub(crate) fn carry(from: SocketAddr, to: SocketAddr, is_so: bool) -> NfTablesMessage {
    let family = Family::of(from.ip());
    let element = vec![SetElementAttribute::Key(DataAttribute::Value(key(from, to)))];
    let message = SetElementMessage {
        attributes: vec![
            SetElementList::Table(TABLE.to_owned()),
            SetElementList::Set(family.carried().to_owned()),
            SetElementList::Elements(vec![ListAttribute::Element(element)]),
        ],
    };
    if is_so { NfTablesMessage::NewSetElement(message) } else { NfTablesMessage::DeleteSetElement(message) }
}

fn new_set(id: u32, family: Family) -> NfTablesMessage {
    let address_type = match family {
        Family::V4 => TYPE_IPV4,
        Family::V6 => TYPE_IPV6,
    };
    let key_type =
        [address_type, TYPE_PORT, address_type, TYPE_PORT].iter().fold(0, |all, one| all << 6 | one);
    NfTablesMessage::NewSet(SetMessage {
        attributes: vec![
            SetAttribute::Table(TABLE.to_owned()),
            SetAttribute::Name(family.carried().to_owned()),
            SetAttribute::KeyType(key_type),
            SetAttribute::KeyLen(2 * (family.address_bytes() + 4)),
            SetAttribute::Id(id),
        ],
    })
}

/// Each part begins a register of 4 bytes; a port has two bytes of zero behind it.
fn key(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut key = Vec::new();
    for end in [from, to] {
        match end.ip() {
            IpAddr::V4(address) => key.extend(address.octets()),
            IpAddr::V6(address) => key.extend(address.octets()),
        }
        key.extend(end.port().to_be_bytes());
        key.extend([0, 0]);
    }
    key
}

/// The parts of a set's key, each a place in the packet, from the first register on.
fn look_up(family: Family, parts: [(u32, u32); 4]) -> Vec<Expressions> {
    let length = family.address_bytes();
    let step = length / 4;
    let registers = [(0, length), (step, 2), (step + 1, length), (2 * step + 1, 2)];
    let mut expressions: Vec<Expressions> = parts
        .into_iter()
        .zip(registers)
        .map(|((base, offset), (register, length))| part(register, base, offset, length))
        .collect();
    let set = [family.carried().as_bytes(), b"\0"].concat();
    expressions.push(other("lookup", vec![(1, set), (2, be32(FIRST_REGISTER))]));
    expressions
}

fn carried(family: Family) -> Vec<Expressions> {
    let (source, destination) = family.addresses();
    look_up(
        family,
        [
            (NETWORK_HEADER, source),
            (TRANSPORT_HEADER, 0),
            (NETWORK_HEADER, destination),
            (TRANSPORT_HEADER, DESTINATION_PORT),
        ],
    )
}

/// An error's header has 8 bytes; then comes what it is about, from its IP header on: sent by this box, and so the other way round.
fn about_carried(family: Family) -> Vec<Expressions> {
    const ERROR_HEADER: u32 = 8;
    let (source, destination) = family.addresses();
    // Without options or extensions, as the kernel sends TCP.
    let ports = ERROR_HEADER + destination + family.address_bytes();
    look_up(
        family,
        [
            (TRANSPORT_HEADER, ERROR_HEADER + destination),
            (TRANSPORT_HEADER, ports + DESTINATION_PORT),
            (TRANSPORT_HEADER, ERROR_HEADER + source),
            (TRANSPORT_HEADER, ports),
        ],
    )
}

/// Loads a part of the packet into the 4-byte registers from this one on.
fn part(register: u32, base: u32, offset: u32, length: u32) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::from(FIRST_REGISTER + register)),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

impl Family {
    /// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
    fn number(self) -> u8 {
        match self {
            Family::V4 => 2,
            Family::V6 => 10,
        }
    }

    fn address_bytes(self) -> u32 {
        match self {
            Family::V4 => 4,
            Family::V6 => 16,
        }
    }

    /// Where source and destination are in the header of IP.
    fn addresses(self) -> (u32, u32) {
        match self {
            Family::V4 => (12, 16),
            Family::V6 => (8, 24),
        }
    }
}

fn load(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::DestinationRegister(Register::Reg1), Meta::Key(key)])
}

fn header(offset: u32, length: u32) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(TRANSPORT_HEADER),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn masked(mask: u8) -> Expressions {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(1),
        Bitwise::Mask(DataAttribute::Value(vec![mask])),
        Bitwise::Xor(DataAttribute::Value(vec![0])),
    ])
}

fn fib(result: u32) -> Expressions {
    other("fib", vec![(1, be32(Register::Reg1.into())), (2, be32(result)), (3, be32(FIB_BY_DESTINATION))])
}

fn is(value: Vec<u8>) -> Expressions {
    compare(Operator::Equal, value)
}

fn is_not(value: Vec<u8>) -> Expressions {
    compare(Operator::NotEqual, value)
}

fn compare(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg1),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}

fn constant(value: Vec<u8>) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Reg1),
        Immediate::Data(DataAttribute::Value(value)),
    ])
}

fn queue(number: u16, by: QueueBy) -> Expressions {
    match by {
        QueueBy::Native => other("queue", vec![(1, be16(number)), (2, be16(1)), (3, be16(BYPASS))]),
        QueueBy::Compat => {
            // `xt_NFQ_info_v3`: first queue, how many, flags.
            let info = [number, 1, BYPASS].map(host16).concat();
            other("target", vec![(1, b"NFQUEUE\0".to_vec()), (2, be32(3)), (3, info)])
        }
    }
}

fn other(name: &str, attributes: Vec<(u16, Vec<u8>)>) -> Expressions {
    let attributes = attributes.into_iter().map(|(kind, value)| DefaultNla::new(kind, value)).collect();
    Expressions::Other { expression_type: name.to_owned(), attributes }
}

/// As long as the register that it is compared with, or a longer name with this beginning would fit too.
fn padded(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(INTERFACE_NAME_SIZE, 0);
    bytes
}

fn be16(value: u16) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn be32(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

#[expect(clippy::host_endian_bytes, reason = "the kernel compares it with a number of its own")]
fn host32(value: u32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

#[expect(clippy::host_endian_bytes, reason = "a structure of the kernel's, not of the wire")]
fn host16(value: u16) -> [u8; 2] {
    value.to_ne_bytes()
}
