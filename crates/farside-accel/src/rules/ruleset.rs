//! The rule set as a value.

use std::fmt;

use super::sysctl::sysctls;
use super::term::{Family, Place, Term};

/// The name of the table in `inet`, and of the one in `bridge` where the box is inline.
pub const TABLE: &str = "farside";
/// Mark of a connection that this box accepts in the server's name.
pub const TAKEN: u32 = 0xfa;
/// Mark of a connection that is answered with a reset.
pub const REFUSED: u32 = 0xfb;
/// Mark of what this box sends itself: never held.
pub const OWN: u32 = 0xfc;
/// Mark of what IP has got from a bridge to be looked at.
pub const LIFTED: u32 = 0xfd;
/// The routing table that delivers everything here. Its number is the accelerator's port.
pub const ROUTE_TABLE: u32 = 7442;
/// Place of the routing rule. It comes before strongSwan's (220) and those that people add (1000 and up), which would send a taken
/// connection away.
pub const RULE_PRIORITY: u32 = 74;
/// Longest name of an interface, bytes (IFNAMSIZ with its end).
const INTERFACE_MAX: usize = 15;

/// What is intercepted, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// Interfaces towards this site's hosts.
    pub lan: Vec<String>,
    /// The interface towards the other sites.
    pub wan: String,
    /// Number of the queue in which SYNs wait.
    pub queue: u16,
    /// Port of the transparent listener, of IPv4 and IPv6.
    pub listener_port: u16,
    /// Ports that are never touched: where the boxes meet.
    pub own_ports: Vec<u16>,
    /// UDP port to which probes go; those that come from the WAN are queued.
    pub probe_port: u16,
    /// The bridge whose ports `lan` and `wan` are: the box is inline.
    pub bridge: Option<Bridge>,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The interface through which the box itself speaks over it.
    pub name: String,
    /// An Ethernet address of the box on it, that of a port: the bridge's own may change when a port is added.
    pub address: [u8; 6],
}

/// By what a rule queues a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueBy {
    /// The expression `queue` (CONFIG_NFT_QUEUE).
    Native,
    /// The target NFQUEUE of iptables in an nf_tables rule (CONFIG_NFT_COMPAT, CONFIG_NETFILTER_XT_TARGET_NFQUEUE).
    Compat,
}

/// What the kernel can, and the rules therefore use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// See there.
    pub queue: QueueBy,
    /// Whether the rules leave out connections to this box and between its LANs (CONFIG_NFT_FIB_INET). Otherwise who decides must.
    pub leaves_out_local: bool,
}

impl Means {
    /// From the best to what any kernel that can hold SYNs has.
    pub(crate) const ALL: [Means; 4] = [
        Means { queue: QueueBy::Native, leaves_out_local: true },
        Means { queue: QueueBy::Compat, leaves_out_local: true },
        Means { queue: QueueBy::Native, leaves_out_local: false },
        Means { queue: QueueBy::Compat, leaves_out_local: false },
    ];
}

/// Where a chain is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Prerouting,
    Forward,
    Output,
}

/// What a chain does with what it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Filter,
    /// What has got another mark is routed anew.
    Route,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Filter => "filter",
            Kind::Route => "route",
        }
    }
}

/// A chain that accepts what none of its rules fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) hook: Hook,
    pub(super) priority: i32,
    pub(super) rules: Vec<Vec<Term>>,
}

impl Ruleset {
    /// A name among its interfaces that no interface can have.
    pub(crate) fn bad_name(&self) -> Option<&str> {
        let is_bad = |name: &str| {
            name.is_empty()
                || name.len() > INTERFACE_MAX
                || name == "."
                || name == ".."
                || name.contains(|letter: char| letter.is_whitespace() || "/:\"\\*\0".contains(letter))
        };
        let bridge = self.bridge.iter().map(|bridge| &bridge.name);
        self.lan.iter().chain([&self.wan]).chain(bridge).map(String::as_str).find(|name| is_bad(name))
    }

    /// The tables: one, or two where the box is inline.
    pub(super) fn tables(&self, means: Means) -> Vec<(Place, Vec<Chain>)> {
        let own = [self.hold_own(), self.carry_own(), self.refused_own()];
        match &self.bridge {
            None => {
                let through = [self.hold(means), self.divert(), self.refused()];
                vec![(Place::Inet, through.into_iter().chain(own).collect())]
            }
            Some(bridge) => {
                let through = [self.hold_lifted(means), self.divert(), self.refused()];
                vec![
                    (Place::Inet, through.into_iter().chain(own).collect()),
                    (Place::Bridge, vec![self.lift(bridge)]),
                ]
            }
        }
    }

    /// The interface by which the box itself speaks with the other sites.
    fn own_wan(&self) -> &String {
        self.bridge.as_ref().map_or(&self.wan, |bridge| &bridge.name)
    }

    /// Of frames that IP has got from the bridge. What goes its plain way is routed on; everything after it is bridged.
    fn hold_lifted(&self, means: Means) -> Chain {
        let probe =
            vec![Term::Mark(LIFTED), Term::Udp, Term::ToUdpPort(self.probe_port), Term::Queue(self.queue)];
        let mut syn = vec![Term::Mark(LIFTED), Term::Tcp];
        syn.extend(means.leaves_out_local.then_some(Term::NotToThisBox));
        syn.push(Term::Queue(self.queue));
        let rules = vec![probe, syn];
        Chain { name: "hold", kind: Kind::Filter, hook: Hook::Prerouting, priority: -150, rules }
    }

    /// In the bridge: has IP see SYNs, probes, and what belongs to a connection that is taken, and nothing else. Frames with a VLAN's tag
    /// are left alone: lifted, they would be nobody's.
    fn lift(&self, bridge: &Bridge) -> Chain {
        let up = || [Term::ToThisBox(bridge.address), Term::Accept];
        let probe = |family| {
            let from = [Term::FromInterface(self.wan.clone()), Term::Frame(family)];
            let is = [Term::Udp, Term::ToUdpPort(self.probe_port), Term::SetMark(LIFTED)];
            from.into_iter().chain(is).chain(up()).collect()
        };
        let syn = |interface: &String, family| {
            let mut terms = vec![
                Term::FromInterface(interface.clone()),
                Term::Frame(family),
                Term::Tcp,
                Term::Syn,
                Term::NotMark(OWN),
            ];
            terms.extend(self.own_ports.iter().map(|port| Term::NotToTcpPort(*port)));
            terms.push(Term::SetMark(LIFTED));
            terms.extend(up());
            terms
        };
        let carried = |family| {
            let is = [Term::Frame(family), Term::Tcp, Term::NotSyn, Term::Carried(family)];
            is.into_iter().chain(up()).collect()
        };
        let about = |family| {
            let is = [Term::Frame(family), Term::Icmp(family), Term::AboutCarried(family)];
            is.into_iter().chain(up()).collect()
        };
        let syns = self.lan.iter().flat_map(|interface| Family::ALL.map(|family| syn(interface, family)));
        let others = Family::ALL.map(carried).into_iter().chain(Family::ALL.map(about));
        let rules = Family::ALL.map(probe).into_iter().chain(syns).chain(others).collect();
        Chain { name: "lift", kind: Kind::Filter, hook: Hook::Prerouting, priority: -150, rules }
    }

    fn hold(&self, means: Means) -> Chain {
        let probe = vec![
            Term::FromInterface(self.wan.clone()),
            Term::Udp,
            Term::ToUdpPort(self.probe_port),
            Term::Queue(self.queue),
        ];
        let from = |interface: &String| {
            let mut terms =
                vec![Term::FromInterface(interface.clone()), Term::Tcp, Term::Syn, Term::NotMark(OWN)];
            terms.extend(self.own_ports.iter().map(|port| Term::NotToTcpPort(*port)));
            if means.leaves_out_local {
                terms.push(Term::NotToThisBox);
                // A box with one leg routes everything out of where it came in.
                if !self.lan.contains(&self.wan) {
                    terms.extend(self.lan.iter().cloned().map(Term::NotOutOf));
                }
            }
            terms.push(Term::Queue(self.queue));
            terms
        };
        let rules = [probe].into_iter().chain(self.lan.iter().map(from)).collect();
        // −150 is "mangle": after connection tracking has put fragments together, before addresses are translated.
        Chain { name: "hold", kind: Kind::Filter, hook: Hook::Prerouting, priority: -150, rules }
    }

    fn divert(&self) -> Chain {
        let listener = |family| {
            vec![Term::Mark(TAKEN), Term::Tcp, Term::Listener(family, self.listener_port), Term::Accept]
        };
        let rules = vec![
            // First: only `tproxy` gives a SYN to the listener where an earlier connection of the same ends is in TIME-WAIT.
            listener(Family::V4),
            listener(Family::V6),
            vec![Term::Tcp, Term::TransparentSocket, Term::SetMark(TAKEN), Term::Accept],
            // A router between the other host and this box says that a segment is too big, or that it goes no further: to the
            // address that the socket speaks with, whose host knows nothing of it.
            vec![Term::Icmp(Family::V4), Term::TransparentSocket, Term::SetMark(TAKEN), Term::Accept],
            vec![Term::Icmp(Family::V6), Term::TransparentSocket, Term::SetMark(TAKEN), Term::Accept],
        ];
        Chain { name: "divert", kind: Kind::Filter, hook: Hook::Prerouting, priority: -149, rules }
    }

    fn refused(&self) -> Chain {
        let rules = vec![vec![Term::Mark(REFUSED), Term::Tcp, Term::Reset]];
        Chain { name: "refused", kind: Kind::Filter, hook: Hook::Forward, priority: 0, rules }
    }

    /// Connections that a program on this box begins. A verdict's mark has the SYN routed anew, to the listener.
    fn hold_own(&self) -> Chain {
        let mut terms = vec![Term::OutOf(self.own_wan().clone()), Term::Tcp, Term::Syn, Term::NotMark(OWN)];
        terms.extend(self.own_ports.iter().map(|port| Term::NotToTcpPort(*port)));
        terms.push(Term::Queue(self.queue));
        Chain { name: "hold_own", kind: Kind::Filter, hook: Hook::Output, priority: -150, rules: vec![terms] }
    }

    /// What programs on this box send to its own transparent sockets, whose addresses are elsewhere.
    fn carry_own(&self) -> Chain {
        let rule = |family| {
            vec![
                Term::Tcp,
                Term::NotSyn,
                Term::Is(family),
                Term::Carried(family),
                Term::SetMark(TAKEN),
                Term::Accept,
            ]
        };
        let rules = Family::ALL.map(rule).into();
        Chain { name: "carry_own", kind: Kind::Route, hook: Hook::Output, priority: -149, rules }
    }

    fn refused_own(&self) -> Chain {
        let rules = vec![vec![Term::Mark(REFUSED), Term::Tcp, Term::Reset]];
        Chain { name: "refused_own", kind: Kind::Filter, hook: Hook::Output, priority: 0, rules }
    }
}

impl fmt::Display for Ruleset {
    /// Everything that is installed, and what must hold beside it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# nftables; gone when the accelerator's process ends")?;
        write!(f, "{}", self.nft())?;
        writeln!(f, "\n# routing; harmless when left behind, as nothing else sets the mark")?;
        for family in ["", "-6 "] {
            writeln!(
                f,
                "ip {family}rule add fwmark {TAKEN:#x} lookup {ROUTE_TABLE} priority {RULE_PRIORITY}"
            )?;
            writeln!(f, "ip {family}route add local default dev lo table {ROUTE_TABLE}")?;
        }
        writeln!(f, "\n# sysctl; must hold, and is not changed")?;
        for sysctl in sysctls(&self.lan, &self.wan, self.bridge.as_ref().map(|bridge| bridge.name.as_str())) {
            writeln!(f, "{sysctl}")?;
        }
        Ok(())
    }
}
