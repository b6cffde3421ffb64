//! How a chunk is named.

use std::fmt;

/// Who may share chunks: by default one peer and this site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RealmId(pub [u8; 16]);

/// Who makes containers and numbers them: one opening of one store. It is new at each opening, so that a store that
/// has lost what it wrote last never gives the same name to something else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OriginId(pub [u8; 16]);

/// A container, the same at both sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerName {
    /// Who made it.
    pub origin: OriginId,
    /// Counted from 0.
    pub number: u64,
}

/// A chunk, the same at both sites.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkName {
    /// Where it is.
    pub container: ContainerName,
    /// Its place there, counted from 0; less than [`CHUNKS_PER_CONTAINER`](crate::container::CHUNKS_PER_CONTAINER).
    pub place: u16,
}

impl ChunkName {
    /// The name of the chunk after it, if it is in the same container.
    pub fn next(self) -> ChunkName {
        ChunkName { place: self.place.saturating_add(1), ..self }
    }
}

/// As 32 hexadecimal digits.
pub(crate) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The other way; none for anything else.
pub(crate) fn from_hex(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(u128::to_be_bytes)
}

impl fmt::Debug for RealmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0)[..8])
    }
}

impl fmt::Debug for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0)[..8])
    }
}

impl fmt::Debug for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.origin, self.number)
    }
}

impl fmt::Debug for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.container, self.place)
    }
}
