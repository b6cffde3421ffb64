//! What a transfer is for.

use std::fmt;

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferKind {
    /// The first copy.
    Initialize,
    /// What changed since the base.
    Update,
    /// What changed since the newest snapshot that both sides hold; what the destination alone has becomes a side branch.
    Resync,
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferKind::Initialize => "initialize",
            TransferKind::Update => "update",
            TransferKind::Resync => "resync",
        })
    }
}

impl std::str::FromStr for TransferKind {
    type Err = ();
    fn from_str(word: &str) -> Result<Self, ()> {
        Ok(match word {
            "initialize" => TransferKind::Initialize,
            "update" => TransferKind::Update,
            "resync" => TransferKind::Resync,
            _ => return Err(()),
        })
    }
}
