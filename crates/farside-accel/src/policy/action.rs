//! What can be done for a connection, and what takes something of it away again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::rule::PolicyError;

/// What is done for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing: it goes its plain way.
    PassThrough,
    /// Full windows, congestion control that knows the link, quick recovery of losses; the bytes as they are.
    Transport,
    /// The same, and compression.
    Lz,
    /// Transport, and references to what has passed before.
    Dre,
    /// All of it.
    Full,
}

impl Action {
    /// All of them, from the least to the most.
    pub const ALL: [Action; 5] =
        [Action::PassThrough, Action::Transport, Action::Lz, Action::Dre, Action::Full];

    /// As configuration and JSON call it.
    pub fn name(self) -> &'static str {
        match self {
            Action::PassThrough => "pass-through",
            Action::Transport => "transport",
            Action::Lz => "lz",
            Action::Dre => "dre",
            Action::Full => "full",
        }
    }

    /// Whether the connection goes over the session of the two boxes.
    pub fn is_optimized(self) -> bool {
        self != Action::PassThrough
    }

    /// Whether literals are compressed.
    pub fn compresses(self) -> bool {
        matches!(self, Action::Lz | Action::Full)
    }

    /// Whether chunks are kept and referred to.
    pub fn refers(self) -> bool {
        matches!(self, Action::Dre | Action::Full)
    }

    /// What both ends allow: of *lz* and *dre* together only *transport*.
    pub fn and(self, other: Action) -> Action {
        if !self.is_optimized() || !other.is_optimized() {
            return Action::PassThrough;
        }
        match (self.compresses() && other.compresses(), self.refers() && other.refers()) {
            (false, false) => Action::Transport,
            (true, false) => Action::Lz,
            (false, true) => Action::Dre,
            (true, true) => Action::Full,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Action {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Action, PolicyError> {
        let named = Action::ALL.into_iter().find(|action| action.name() == text);
        named.ok_or_else(|| PolicyError::Action(text.to_owned()))
    }
}

/// Why less is done for a connection than both ends allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Demotion {
    /// No box of a peer was found on the way to the server.
    NoPeer,
    /// There is no session with the peer.
    PeerLost,
    /// The server does not answer the peer's box: it is down, or its answers take another way.
    NoAnswer,
    /// Another pair of boxes has it already.
    BoxInBetween,
    /// It is encrypted: nothing in it repeats, and nothing gets smaller.
    Encrypted,
    /// It gets no smaller.
    Incompressible,
    /// There are as many connections as this box takes.
    Overload,
    /// The chunk store takes nothing: its disk is full or fails.
    StoreUnusable,
}

impl Demotion {
    /// What is left of `action`.
    pub fn of(self, action: Action) -> Action {
        let most = match self {
            Demotion::NoPeer
            | Demotion::PeerLost
            | Demotion::NoAnswer
            | Demotion::BoxInBetween
            | Demotion::Overload => Action::PassThrough,
            Demotion::Encrypted | Demotion::StoreUnusable => Action::Transport,
            Demotion::Incompressible => Action::Dre,
        };
        action.and(most)
    }

    /// For people.
    pub fn reason(self) -> &'static str {
        match self {
            Demotion::NoPeer => "no paired box on the way to the server",
            Demotion::PeerLost => "no session with the peer",
            Demotion::NoAnswer => {
                "the server does not answer the peer's box: it is down, or its answers take another way"
            }
            Demotion::BoxInBetween => "another pair of boxes optimises it",
            Demotion::Encrypted => "encrypted",
            Demotion::Incompressible => "gets no smaller",
            Demotion::Overload => "as many connections as this box takes",
            Demotion::StoreUnusable => "the chunk store takes nothing",
        }
    }
}
