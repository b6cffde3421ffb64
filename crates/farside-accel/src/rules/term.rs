//! The words of a rule.

use std::net::IpAddr;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `inet farside`: what IP sees.
    Inet,
    /// `bridge farside`: what is bridged.
    Bridge,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Inet => "inet",
            Place::Bridge => "bridge",
        }
    }
}

impl Family {
    pub(super) const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub(super) fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The set of [`Term::Carried`].
    pub(super) fn carried(self) -> &'static str {
        match self {
            Family::V4 => "carried4",
            Family::V6 => "carried6",
        }
    }
}

/// A word: a match, or what is done with what has matched so far. [`super::text`] says it in nft's words, [`super::message`] in
/// the kernel's expressions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// Came in by this interface.
    FromInterface(String),
    /// Leaves by this interface.
    OutOf(String),
    /// Is TCP. Must come before whatever looks into a segment.
    Tcp,
    /// Is UDP. Must come before whatever looks into a datagram.
    Udp,
    /// The first segment of a connection: of FIN, SYN, RST and ACK only SYN.
    Syn,
    /// Any other segment.
    NotSyn,
    /// Is ICMP of this family; what socket its error is about, `TransparentSocket` finds.
    Icmp(Family),
    /// Not to this port.
    NotToTcpPort(u16),
    /// To this port.
    ToUdpPort(u16),
    /// Has this mark.
    Mark(u32),
    /// Has another mark, or none.
    NotMark(u32),
    /// To an address that is not this box's.
    NotToThisBox,
    /// Routed out of another interface.
    NotOutOf(String),
    /// Belongs to a socket of this box with another host's address.
    TransparentSocket,
    /// Is of this family.
    Is(Family),
    /// Is a frame of this family without a VLAN's tag. In a bridge.
    Frame(Family),
    /// Its ends are in the set of what goes to a socket of this box and would not find it. After [`Term::Is`] or [`Term::Frame`].
    Carried(Family),
    /// Is ICMP's error about what goes the opposite way.
    AboutCarried(Family),
    /// Goes up to this box, whose address this is, instead of through its bridge.
    ToThisBox([u8; 6]),
    /// Gets this mark.
    SetMark(u32),
    /// Waits in this queue; goes on if nobody reads it.
    Queue(u16),
    /// Is given to the listener at this port, if there is one; otherwise the rule ends.
    Listener(Family, u16),
    /// Is answered with a reset.
    Reset,
    /// Goes on to the next chain.
    Accept,
}
