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
use super::term::{Family, Term};
use super::text;

const ACCEPT: u32 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const IPV4: u32 = 2;
const IPV6: u32 = 10;
const NETWORK_HEADER: u32 = 1;
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
pub(crate) fn batch(ruleset: &Ruleset, means: Means) -> Vec<NfTablesMessage> {
    let mut messages = vec![NfTablesMessage::NewTable(TableMessage {
        attributes: vec![TableAttribute::Name(TABLE.to_owned()), TableAttribute::Flags(TableFlags::Owner)],
    })];
    messages.extend((1..).zip(Family::ALL).map(|(id, family)| new_set(id, family)));
    for chain in ruleset.chains(means) {
        messages.push(new_chain(&chain));
        messages.extend(chain.rules.iter().map(|rule| new_rule(chain.name, rule, means)));
    }
    messages
}

/// What the `index`th message of [`batch`] is, in nft's words, for an error that the kernel answers it with.
pub(crate) fn text_of(ruleset: &Ruleset, means: Means, index: usize) -> String {
    let mut texts = vec![format!("table inet {TABLE} {{ flags owner }}")];
    texts.extend(Family::ALL.map(|family| format!("set {}", family.carried())));
    for chain in ruleset.chains(means) {
        texts.push(format!("chain {}", chain.name));
        texts.extend(chain.rules.iter().map(|rule| text::line(rule)));
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
            Term::Carried(family) => carried(*family),
            Term::SetMark(mark) => {
                let store =
                    Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(Register::Reg1)]);
                vec![constant(host32(*mark)), store]
            }
            Term::Queue(number) => vec![queue(*number, means.queue)],
            Term::Listener(family, port) => {
                let family = match family {
                    Family::V4 => IPV4,
                    Family::V6 => IPV6,
                };
                let tproxy = other("tproxy", vec![(1, be32(family)), (3, be32(Register::Reg1.into()))]);
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
    let (address, address_type) = match family {
        Family::V4 => (4, TYPE_IPV4),
        Family::V6 => (16, TYPE_IPV6),
    };
    let key_type =
        [address_type, TYPE_PORT, address_type, TYPE_PORT].iter().fold(0, |all, one| all << 6 | one);
    NfTablesMessage::NewSet(SetMessage {
        attributes: vec![
            SetAttribute::Table(TABLE.to_owned()),
            SetAttribute::Name(family.carried().to_owned()),
            SetAttribute::KeyType(key_type),
            SetAttribute::KeyLen(2 * (address + 4)),
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

fn carried(family: Family) -> Vec<Expressions> {
    // Where the source is in the header of IP, and how long; the destination follows it.
    let (protocol, source, length) = match family {
        Family::V4 => (IPV4, 12, 4),
        Family::V6 => (IPV6, 8, 16),
    };
    let part = |register, base, offset, length| {
        Expressions::Payload(vec![
            Payload::DestinationRegister(Register::from(FIRST_REGISTER + register)),
            Payload::Base(base),
            Payload::Offset(offset),
            Payload::Len(length),
        ])
    };
    let step = length / 4;
    let set = [family.carried().as_bytes(), b"\0"].concat();
    vec![
        load(MetaKey::Nfproto),
        #[expect(clippy::cast_possible_truncation, reason = "2 or 10")]
        is(vec![protocol as u8]),
        part(0, NETWORK_HEADER, source, length),
        part(step, TRANSPORT_HEADER, 0, 2),
        part(step + 1, NETWORK_HEADER, source + length, length),
        part(2 * step + 1, TRANSPORT_HEADER, 2, 2),
        other("lookup", vec![(1, set), (2, be32(FIRST_REGISTER))]),
    ]
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
