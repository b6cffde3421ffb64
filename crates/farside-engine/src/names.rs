//! Names: pools, volumes, snapshots.

use std::fmt;

use crate::error::EngineError;

/// `POOL/VOL`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeName {
    /// The pool.
    pub pool: String,
    /// The volume in it.
    pub volume: String,
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

impl std::str::FromStr for VolumeName {
    type Err = EngineError;
    /// Parses `POOL/VOL`.
    fn from_str(text: &str) -> Result<Self, EngineError> {
        match text.split_once('/') {
            Some((pool, volume)) if is_label(pool) && is_label(volume) => {
                Ok(VolumeName { pool: pool.into(), volume: volume.into() })
            }
            _ => Err(EngineError::BadName { name: text.into() }),
        }
    }
}

/// Whether `name` may name a pool, volume or snapshot: 1 to 128 of `A-Za-z0-9._:+-`, not beginning with `-` or `.`.
/// (A snapshot's name may hold `:` and `+` so that it can be a time.)
pub fn is_label(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:+-".contains(&b))
}
