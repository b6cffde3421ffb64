//! The table of rules, and the socket that owns it.
//!
//! The kernel ties a table with the flag *owner* to the socket that made it. When that socket is closed, by a drop or because the
//! process died, the table goes, chains and rules with it, before `close` returns. (A child that is just being started has a copy of
//! the socket until its program is executed.) Nobody else can change or delete it. No child process and no program `nft` is needed.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_netfilter::nftables::{NfTablesMessage, TableAttribute, TableMessage};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily, NetfilterSubsystem,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::libc::{EAFNOSUPPORT, EEXIST, EINVAL, ENOENT, EOPNOTSUPP, EPERM, EPROTONOSUPPORT};

use super::error::KernelError;
use super::netlink::Netlink;
use crate::rules::{self, Means, Place, Ruleset, TABLE};

const WHAT: &str = "set up the nftables table \"inet farside\"";

/// The table. Dropping it removes it.
#[derive(Debug)]
pub struct OwnedTable {
    /// The owner: nobody else can change the table.
    socket: Netlink,
    means: Means,
}

impl OwnedTable {
    /// Installs the rules, all or none, in the network namespace of this thread. From then on SYNs wait in the queue if somebody
    /// reads it: open [`super::SynQueue`] first.
    pub fn install(ruleset: &Ruleset) -> Result<OwnedTable, KernelError> {
        if let Some(name) = ruleset.bad_name() {
            return Err(KernelError::InterfaceName(name.to_owned()));
        }
        let mut socket = open()?;
        let mut lacking = None;
        for means in Means::ALL {
            let Some((index, error)) = send(&mut socket, ruleset, means)? else {
                return Ok(OwnedTable { socket, means });
            };
            // An expression that the kernel does not know. The batch left nothing behind.
            if error.raw_os_error() == Some(ENOENT) && index > TABLE_MESSAGE {
                lacking = Some(KernelError::NoExpression { rule: rules::text_of(ruleset, means, index - 1) });
                continue;
            }
            return Err(refused(ruleset, means, index, error));
        }
        Err(lacking.unwrap_or(KernelError::NoNfTables { lacks: "it has no expression that queues" }))
    }

    /// The segments from `from` to `to`, which a program on this box sends or which are bridged, go to a socket of this box (`is_so`), or
    /// no longer. Both
    /// may be so already. The kernel takes 50 µs.
    pub(super) fn carry(
        &mut self,
        place: Place,
        from: SocketAddr,
        to: SocketAddr,
        is_so: bool,
    ) -> io::Result<()> {
        let flags = NLM_F_ACK | if is_so { NLM_F_CREATE } else { 0 };
        let messages = vec![
            control(ControlMessage::BatchBegin),
            (flags, of(place, rules::carry(from, to, is_so))),
            control(ControlMessage::BatchEnd),
        ];
        match self.socket.exchange(messages)?.refusal {
            Some((_, error)) if !is_so && error.raw_os_error() == Some(ENOENT) => Ok(()),
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// By what it works here.
    pub fn means(&self) -> Means {
        self.means
    }
}

/// Places of the batch's first two messages.
const BEGIN: usize = 0;
const TABLE_MESSAGE: usize = 1;

/// Sends the rules as one batch; gives back what the kernel refused.
fn send(
    socket: &mut Netlink,
    ruleset: &Ruleset,
    means: Means,
) -> Result<Option<(usize, io::Error)>, KernelError> {
    let mut messages = vec![control(ControlMessage::BatchBegin)];
    messages.extend(rules::batch(ruleset, means).into_iter().map(|(place, message)| {
        let flags = match message {
            NfTablesMessage::NewRule(_) => NLM_F_CREATE | NLM_F_APPEND,
            // Or a table that is there would be changed.
            _ => NLM_F_CREATE | NLM_F_EXCL,
        };
        (NLM_F_ACK | flags, of(place, message))
    }));
    messages.push(control(ControlMessage::BatchEnd));
    let expected = messages.len() - 2;
    let answers = socket.exchange(messages).map_err(|error| KernelError::of(WHAT, error))?;
    if answers.refusal.is_none() && answers.done != expected {
        let error = io::Error::other("it did not acknowledge every message");
        return Err(KernelError::Refused { what: WHAT.to_owned(), error });
    }
    Ok(answers.refusal)
}

fn control(message: ControlMessage) -> (u16, NetfilterMessage) {
    let subsystem = u16::from(u8::from(NetfilterSubsystem::NfTables));
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem);
    (0, NetfilterMessage::new(header, message))
}

fn refused(ruleset: &Ruleset, means: Means, index: usize, error: io::Error) -> KernelError {
    match (index, error.raw_os_error()) {
        (BEGIN, Some(EPERM)) => KernelError::NotPermitted { what: WHAT },
        (BEGIN, Some(EOPNOTSUPP | EINVAL)) => KernelError::NoNfTables { lacks: "it has no nf_tables" },
        (TABLE_MESSAGE, Some(EPERM)) => {
            let owner = table_owner().ok().flatten();
            KernelError::TableOwned {
                owner: owner.map_or_else(|| "another process".to_owned(), |owner| owner.to_string()),
            }
        }
        (TABLE_MESSAGE, Some(EEXIST)) => KernelError::TableThere,
        (TABLE_MESSAGE, Some(EOPNOTSUPP | EINVAL)) => {
            KernelError::NoNfTables { lacks: "its nf_tables has no tables with an owner" }
        }
        (BEGIN, _) => KernelError::Refused { what: WHAT.to_owned(), error },
        _ => {
            let what = format!("{WHAT}, at `{}`", rules::text_of(ruleset, means, index - 1));
            KernelError::Refused { what, error }
        }
    }
}

fn open() -> Result<Netlink, KernelError> {
    Netlink::open(NETLINK_NETFILTER).map_err(|error| match error.raw_os_error() {
        Some(EPROTONOSUPPORT | EAFNOSUPPORT) => KernelError::NoNfTables { lacks: "it has no netfilter" },
        _ => KernelError::of(WHAT, error),
    })
}

fn of(place: Place, message: NfTablesMessage) -> NetfilterMessage {
    let family = match place {
        Place::Inet => NetfilterProtoFamily::Inet,
        Place::Bridge => NetfilterProtoFamily::Bridge,
    };
    NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message)
}

/// Who owns a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableOwner {
    /// Nobody: it stays until it is deleted.
    Nobody,
    /// The netlink socket with this number. It is the process's, if that has no other netlink socket of netfilter.
    Port(u32),
}

impl fmt::Display for TableOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableOwner::Port(port) = *self else {
            return f.write_str("nobody");
        };
        match fs::read_to_string(format!("/proc/{port}/comm")) {
            Ok(name) => write!(f, "process {port} ({})", name.trim()),
            Err(_) => write!(f, "another process (netlink port {port})"),
        }
    }
}

/// Whether there is a table `inet farside` in the network namespace of this thread, and whose it is.
pub fn table_owner() -> Result<Option<TableOwner>, KernelError> {
    const WHAT: &str = "look for the nftables table \"inet farside\"";
    let attributes = vec![TableAttribute::Name(TABLE.to_owned())];
    let question = of(Place::Inet, NfTablesMessage::GetTable(TableMessage { attributes }));
    let answers = open()?.exchange(vec![(0, question)]).map_err(|error| KernelError::of(WHAT, error))?;
    match answers.refusal {
        Some((_, error)) if error.raw_os_error() == Some(ENOENT) => return Ok(None),
        Some((_, error)) => return Err(KernelError::of(WHAT, error)),
        None => {}
    }
    let described = answers.told.into_iter().find_map(|message| match message.inner {
        NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(table)) => Some(table.attributes),
        _ => None,
    });
    let owner = |attribute| match attribute {
        TableAttribute::Owner(port) => Some(TableOwner::Port(port)),
        _ => None,
    };
    Ok(described.map(|attributes| attributes.into_iter().find_map(owner).unwrap_or(TableOwner::Nobody)))
}
