//! The names of what only some engines have ([`capabilities`](crate::capabilities)).

use std::fmt;

/// One of the things that an engine may have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Capability {
    /// [`Branches`](crate::Branches).
    Branches,
    /// [`Together`](crate::Together).
    Together,
    /// [`KnownData`](crate::KnownData).
    KnownData,
    /// [`Subtrees`](crate::Subtrees).
    Subtrees,
}

impl Capability {
    /// Every one there is.
    pub const ALL: [Capability; 4] =
        [Capability::Branches, Capability::Together, Capability::KnownData, Capability::Subtrees];
}

impl fmt::Display for Capability {
    /// What an engine that has it does: "the engine of pool p does not …".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Capability::Branches => "keep versions of a volume beside its main line",
            Capability::Together => "change several volumes in one moment",
            Capability::KnownData => "find data by its content",
            Capability::Subtrees => "keep fingerprints of more than a block",
        })
    }
}
