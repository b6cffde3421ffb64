//! Who asks, and what they may do.

use std::fmt;

use farside_api::{AccessRole, WhoAmI};
use farside_peer::PeerId;
use farside_platform::Timestamp;

use crate::convert;

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    /// A process at the control socket, by its user.
    Local(Option<u32>),
    /// The owner of a token, by its name.
    Token(String),
    /// A person who has logged in.
    Account(String),
    /// Somebody at a peer's site, as that says it.
    Peer {
        /// The peer.
        id: PeerId,
        /// It and whom it names.
        name: String,
    },
    /// Nobody has said who they are.
    Nobody,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Local(Some(uid)) => write!(f, "uid {uid}"),
            Who::Local(None) => f.write_str("uid unknown"),
            Who::Token(name) => write!(f, "token {name}"),
            Who::Account(name) => write!(f, "account {name}"),
            Who::Peer { name, .. } => write!(f, "peer {name}"),
            Who::Nobody => f.write_str("nobody"),
        }
    }
}

/// Who asks, and what they may do now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Principal {
    pub(crate) who: Who,
    pub(crate) role: AccessRole,
    /// When token or session end.
    pub(crate) ends_at: Option<Timestamp>,
}

impl Principal {
    /// Whoever may open the control socket.
    pub(crate) fn local(uid: Option<u32>) -> Principal {
        Principal { who: Who::Local(uid), role: AccessRole::Administrator, ends_at: None }
    }

    /// As it is told to them.
    pub(crate) fn document(&self) -> WhoAmI {
        WhoAmI { who: self.who.to_string(), role: self.role, ends_at: self.ends_at.map(convert::time) }
    }
}
