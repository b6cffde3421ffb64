//! What travelled of a transfer, by *level*: how a block was coded, the cheapest on the wire first.

use serde::{Deserialize, Serialize};

/// What was coded at one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Level {
    /// Bytes of the volume.
    pub in_bytes: u64,
    /// What they cost on the wire.
    pub out_bytes: u64,
}

/// All levels. Their bytes in add up to `changed_bytes` and what was known; their bytes out and `overhead_bytes` to the
/// wire bytes of both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Levels {
    /// The destination's own store had the content: only its fingerprint was named, and the source did not read it.
    pub known: Level,
    /// The content stands elsewhere in what both sides hold, and the place was named.
    pub repeat: Level,
    /// Compressed against content that both sides hold.
    pub delta: Level,
    /// Compressed by itself.
    pub compressed: Level,
    /// As it is.
    pub raw: Level,
}

impl Levels {
    /// Each with its name in JSON, the cheapest first.
    pub fn named(&self) -> [(&'static str, Level); 5] {
        [
            ("known", self.known),
            ("repeat", self.repeat),
            ("delta", self.delta),
            ("compressed", self.compressed),
            ("raw", self.raw),
        ]
    }
}
