//! The rules in nft's words.

use std::fmt::Write;

use super::ruleset::{Chain, Hook, Means, Ruleset, TABLE};
use super::term::{Family, Term};

impl Ruleset {
    /// The table, as `nft -f` reads it. `flags owner` is only kept by an nft that stays (`nft -i`).
    ///
    /// nft says `queue` for both expressions of [`super::QueueBy`].
    pub fn nft(&self) -> String {
        let mut text = format!("table inet {TABLE} {{\n\tflags owner\n");
        // Of the means only whether local connections are left out shows, and kernels that cannot are rare.
        for family in Family::ALL {
            let address = match family {
                Family::V4 => "ipv4_addr",
                Family::V6 => "ipv6_addr",
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "\n\tset {} {{\n\t\ttype {address} . inet_service . {address} . inet_service\n\t}}",
                family.carried()
            );
        }
        for chain in self.chains(Means::ALL[0]) {
            text.push('\n');
            chain.write(&mut text);
        }
        text.push_str("}\n");
        text
    }
}

impl Chain {
    fn write(&self, text: &mut String) {
        let hook = match self.hook {
            Hook::Prerouting => "prerouting",
            Hook::Forward => "forward",
            Hook::Output => "output",
        };
        let (name, kind, priority) = (self.name, self.kind.name(), self.priority);
        // Writing to a string does not fail.
        let _ = writeln!(text, "\tchain {name} {{");
        let _ = writeln!(text, "\t\ttype {kind} hook {hook} priority {priority}; policy accept;");
        for rule in &self.rules {
            let _ = writeln!(text, "\t\t{}", line(rule));
        }
        text.push_str("\t}\n");
    }
}

/// A rule.
pub(super) fn line(rule: &[Term]) -> String {
    rule.iter().map(Term::nft).collect::<Vec<_>>().join(" ")
}

impl Term {
    fn nft(&self) -> String {
        match self {
            Term::FromInterface(name) => format!("iifname \"{name}\""),
            Term::OutOf(name) => format!("oifname \"{name}\""),
            Term::Tcp => "meta l4proto tcp".to_owned(),
            Term::Udp => "meta l4proto udp".to_owned(),
            Term::Syn => "tcp flags syn / fin,syn,rst,ack".to_owned(),
            Term::NotSyn => "tcp flags & (fin|syn|rst|ack) != syn".to_owned(),
            Term::Icmp(Family::V4) => "meta l4proto icmp".to_owned(),
            Term::Icmp(Family::V6) => "meta l4proto ipv6-icmp".to_owned(),
            Term::NotToTcpPort(port) => format!("tcp dport != {port}"),
            Term::ToUdpPort(port) => format!("udp dport {port}"),
            Term::Mark(mark) => format!("meta mark {mark:#x}"),
            Term::NotMark(mark) => format!("meta mark != {mark:#x}"),
            Term::NotToThisBox => "fib daddr type != local".to_owned(),
            Term::NotOutOf(name) => format!("fib daddr oifname != \"{name}\""),
            Term::TransparentSocket => "socket transparent 1".to_owned(),
            Term::Carried(family) => {
                let (proto, ip) = match family {
                    Family::V4 => ("ipv4", "ip"),
                    Family::V6 => ("ipv6", "ip6"),
                };
                let set = family.carried();
                format!("meta nfproto {proto} {ip} saddr . tcp sport . {ip} daddr . tcp dport @{set}")
            }
            Term::SetMark(mark) => format!("meta mark set {mark:#x}"),
            Term::Queue(number) => format!("queue num {number} bypass"),
            Term::Listener(Family::V4, port) => format!("tproxy ip to :{port}"),
            Term::Listener(Family::V6, port) => format!("tproxy ip6 to :{port}"),
            Term::Reset => "reject with tcp reset".to_owned(),
            Term::Accept => "accept".to_owned(),
        }
    }
}
