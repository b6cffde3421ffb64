//! What can go wrong between this process and the kernel, for the person who reads it.

use std::fs;
use std::io;

/// Why the kernel does not intercept.
///
/// After each of these nothing is intercepted: connections go their plain way.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// CAP_NET_ADMIN is missing.
    #[error(
        "may not {what}: it takes CAP_NET_ADMIN over this network namespace. Nothing was changed, connections go their plain way. \
         Run farsided as root, or give it the capability: AmbientCapabilities=CAP_NET_ADMIN in its unit, --cap-add NET_ADMIN in a \
         container"
    )]
    NotPermitted {
        /// What was tried.
        what: &'static str,
    },
    /// Another process has a table of this name.
    #[error(
        "the nftables table \"inet farside\" belongs to {owner}. That one goes on, nothing was changed. It is probably another \
         farsided: stop it, and this one can start; its table goes with it"
    )]
    TableOwned {
        /// Who it may be.
        owner: String,
    },
    /// There is a table of this name that belongs to nobody: somebody loaded it by hand.
    #[error(
        "there is already an nftables table \"inet farside\", and no process owns it. It was left as it is. Look at it with `nft \
         list table inet farside`, and remove it with `nft delete table inet farside`"
    )]
    TableThere,
    /// Another process reads this queue.
    #[error(
        "queue {number} of NFQUEUE is read by another process (see /proc/net/netfilter/nfnetlink_queue). Nothing was changed. Stop \
         that process, or choose another number"
    )]
    QueueTaken {
        /// Its number.
        number: u16,
    },
    /// No nf_tables, or none that knows owners.
    #[error(
        "this kernel cannot hold the rules: {lacks}. Connections go their plain way. Take a kernel of Linux 5.12 or later with \
         nf_tables"
    )]
    NoNfTables {
        /// What it does not know.
        lacks: &'static str,
    },
    /// The kernel knows no way to do what a rule says.
    #[error(
        "this kernel does not know an expression of the rule `{rule}`. Nothing was changed, connections go their plain way. It \
         needs CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET, CONFIG_NFT_REJECT_INET, and CONFIG_NFT_QUEUE or \
         CONFIG_NFT_COMPAT with CONFIG_NETFILTER_XT_TARGET_NFQUEUE (as modules: they are loaded by themselves)"
    )]
    NoExpression {
        /// In nft's words.
        rule: String,
    },
    /// A name that no interface can have.
    #[error("{0:?} is no interface's name. Nothing was changed. `ip -brief link` lists them")]
    InterfaceName(String),
    /// Only some of the interfaces are ports of one bridge.
    #[error(
        "{port} is a port of the bridge {bridge}: IP never sees what comes in by it, and nothing would be taken. Nothing was changed. \
         Name {bridge} instead; or, for a box that is a bridge between its LAN and its WAN, name ports of one bridge for both"
    )]
    BridgePort {
        /// Its name.
        port: String,
        /// The bridge's.
        bridge: String,
    },
    /// The rules of IP run inside the bridge.
    #[error(
        "{parameter} is 1: the rules would run inside the bridge, and no connection that is taken would come about. Nothing was \
         changed. Type `sysctl -w {parameter}=0`, and put {parameter}=0 into a file of /etc/sysctl.d/; a firewall that filters what is \
         bridged by iptables needs another way then"
    )]
    BridgeCallsRules {
        /// Its name.
        parameter: &'static str,
    },
    /// The kernel refused something for another reason.
    #[error("the kernel refused to {what}: {error}. Nothing is intercepted, connections go their plain way")]
    Refused {
        /// What was tried.
        what: String,
        /// Its reason.
        #[source]
        error: io::Error,
    },
}

impl KernelError {
    /// What a failure to `what` is: a missing capability has a name of its own.
    pub(super) fn of(what: &'static str, error: io::Error) -> KernelError {
        if error.kind() == io::ErrorKind::PermissionDenied {
            KernelError::NotPermitted { what }
        } else {
            KernelError::Refused { what: what.to_owned(), error }
        }
    }
}

impl From<KernelError> for io::Error {
    fn from(error: KernelError) -> io::Error {
        let kind = match &error {
            KernelError::NotPermitted { .. } => io::ErrorKind::PermissionDenied,
            KernelError::TableOwned { .. } | KernelError::TableThere | KernelError::QueueTaken { .. } => {
                io::ErrorKind::ResourceBusy
            }
            KernelError::NoNfTables { .. } | KernelError::NoExpression { .. } => io::ErrorKind::Unsupported,
            KernelError::InterfaceName(_) | KernelError::BridgePort { .. } => io::ErrorKind::InvalidInput,
            KernelError::BridgeCallsRules { .. } => io::ErrorKind::Unsupported,
            KernelError::Refused { error, .. } => error.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Whether this thread has CAP_NET_ADMIN, as far as `/proc` tells. The kernel's EPERM does not say what it is about.
pub(super) fn has_net_admin() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let Ok(status) = fs::read_to_string("/proc/thread-self/status") else {
        return true;
    };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
        .is_none_or(|capabilities| capabilities & (1 << CAP_NET_ADMIN) != 0)
}
