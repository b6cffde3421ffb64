//! The rules in nft's words.

use std::fmt::Write;

use super::ruleset::{Chain, Hook, Means, Ruleset, TABLE};
use super::term::{Family, Place, Term};

impl Ruleset {
    /// The table, as `nft -f` reads it. `flags owner` is only kept by an nft that stays (`nft -i`).
    ///
    /// nft says `queue` for both expressions of [`super::QueueBy`].
    pub fn nft(&self) -> String {
        // Of the means only whether local connections are left out shows, and kernels that cannot are rare.
        let tables = self.tables(Means::ALL[0]);
        tables.iter().map(|(place, chains)| table(*place, chains)).collect::<Vec<_>>().join("\n")
    }
}

fn table(place: Place, chains: &[Chain]) -> String {
    let mut text = format!("table {} {TABLE} {{\n\tflags owner\n", place.name());
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
    for chain in chains {
        text.push('\n');
        chain.write(&mut text);
    }
    text.push_str("}\n");
    text
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
            Term::Is(Family::V4) => "meta nfproto ipv4".to_owned(),
            Term::Is(Family::V6) => "meta nfproto ipv6".to_owned(),
            Term::Frame(Family::V4) => "@ll,96,16 0x0800".to_owned(),
            Term::Frame(Family::V6) => "@ll,96,16 0x86dd".to_owned(),
            Term::Carried(family) => {
                let ip = match family {
                    Family::V4 => "ip",
                    Family::V6 => "ip6",
                };
                format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport @{}", family.carried())
            }
            Term::AboutCarried(Family::V4) => {
                "@th,192,32 . @th,240,16 . @th,160,32 . @th,224,16 @carried4".to_owned()
            }
            Term::AboutCarried(Family::V6) => {
                "@th,256,128 . @th,400,16 . @th,128,128 . @th,384,16 @carried6".to_owned()
            }
            Term::ToThisBox(address) => {
                let digits: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("ether daddr set {} meta pkttype set host", digits.join(":"))
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
