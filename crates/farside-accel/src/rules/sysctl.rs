//! Kernel parameters on which interception depends. farside changes none of them: it says which are wrong, and what to type.

use std::fmt;

/// A kernel parameter that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// As `sysctl` takes it: a dot in an interface's name is a slash.
    pub name: String,
    /// Its value.
    pub wanted: Wanted,
    /// Where it matters.
    pub concerns: Concerns,
    /// What goes wrong otherwise, in half a sentence.
    pub otherwise: &'static str,
}

/// What a parameter must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This.
    Is(&'static str),
    /// An interface's `rp_filter`: not strict. Of its own value and that of *all* the kernel takes the greater one, and only 1 is
    /// strict.
    NotStrict,
}

/// Where a parameter matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns {
    /// Everywhere.
    All,
    /// Where the LAN has IPv6.
    Ipv6,
    /// Where an interface is a bridge.
    Bridges,
}

const ALL_RP_FILTER: &str = "net.ipv4.conf.all.rp_filter";

/// What must hold for a box with these interfaces, or for one that is this bridge.
pub fn sysctls(lan: &[String], wan: &str, bridge: Option<&str>) -> Vec<Sysctl> {
    // IP sees nothing of a bridge's ports.
    let mut interfaces: Vec<&str> = match bridge {
        Some(bridge) => vec![bridge],
        None => lan.iter().map(String::as_str).chain([wan]).collect(),
    };
    interfaces.sort_unstable();
    interfaces.dedup();
    let sysctl = |name: &str, value, concerns, otherwise| {
        let (name, wanted) = (name.to_owned(), Wanted::Is(value));
        Sysctl { name, wanted, concerns, otherwise }
    };
    let mut marks: Vec<Sysctl> = ["all"]
        .iter()
        .chain(&interfaces)
        .map(|interface| Sysctl {
            name: format!("net.ipv4.conf.{}.src_valid_mark", interface.replace('.', "/")),
            wanted: Wanted::Is("0"),
            concerns: Concerns::All,
            otherwise: "segments of connections that are taken are dropped as if they came from this box",
        })
        .collect();
    let mut all = vec![
        sysctl(
            "net.ipv4.ip_forward",
            "1",
            Concerns::All,
            "connections that are not optimised do not pass this box",
        ),
        sysctl(
            "net.ipv6.conf.all.forwarding",
            "1",
            Concerns::Ipv6,
            "IPv6 connections that are not optimised do not pass this box (where an interface gets its address by router \
             advertisements, set its accept_ra to 2 first)",
        ),
        sysctl(
            "net.ipv4.tcp_fwmark_accept",
            "0",
            Concerns::All,
            "answers of connections that are taken stay on this box",
        ),
    ];
    all.extend(interfaces.into_iter().map(|interface| Sysctl {
        name: format!("net.ipv4.conf.{}.rp_filter", interface.replace('.', "/")),
        wanted: Wanted::NotStrict,
        concerns: Concerns::All,
        otherwise: "packets of optimised connections are dropped where the way back to their sender is another one",
    }));
    all.append(&mut marks);
    all.extend(["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"].map(|name| {
        sysctl(
            name,
            "0",
            Concerns::Bridges,
            "the rules run inside the bridge, and the socket that they find is lost before IP sees the packet: no connection",
        )
    }));
    all
}

impl Sysctl {
    /// What is wrong and what to type, if it is wrong. `read` gives a parameter's value, `None` where there is none: the
    /// kernel then lacks what it would change.
    pub fn judge(&self, read: impl Fn(&str) -> Option<String>) -> Option<String> {
        let is = read(&self.name)?;
        let (is_right, set) = match self.wanted {
            Wanted::Is(value) => (is == value, value),
            Wanted::NotStrict => {
                let all = read(ALL_RP_FILTER).unwrap_or_default();
                (is == "2" || (is != "1" && all != "1") || all == "2", "2")
            }
        };
        let (name, otherwise) = (&self.name, self.otherwise);
        let also = if self.wanted == Wanted::NotStrict && is != "1" {
            format!(" and {ALL_RP_FILTER} is 1")
        } else {
            String::new()
        };
        (!is_right).then(|| {
            format!(
                "{name} is {is}{also}: {otherwise}. Type `sysctl -w {name}={set}`, and put {name}={set} into a file of \
                 /etc/sysctl.d/"
            )
        })
    }

    /// Where it lies below `/proc/sys`.
    pub fn path(name: &str) -> String {
        let swap = |letter| match letter {
            '.' => '/',
            '/' => '.',
            letter => letter,
        };
        name.chars().map(swap).collect()
    }
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.wanted, self.concerns) {
            (Wanted::NotStrict, _) => write!(f, "{name} = 2    # or 0, if {ALL_RP_FILTER} is 0 or 2"),
            (Wanted::Is(value), Concerns::All) => write!(f, "{name} = {value}"),
            (Wanted::Is(value), Concerns::Ipv6) => write!(f, "{name} = {value}    # where the LAN has IPv6"),
            (Wanted::Is(value), Concerns::Bridges) => {
                write!(f, "{name} = {value}    # where an interface is a bridge")
            }
        }
    }
}
