//! Fingerprints: what a block, a subtree and a whole version *are*, wherever they lie.
//!
//! A fingerprint is 16 bytes of BLAKE3 with a context of its own per kind, so that a block can never be taken for a
//! node. A hole (a block or subtree of zeros) is 16 zero bytes at every level. Fingerprints are a protocol: two
//! sites must agree on them for ever, so golden vectors pin them (tests below). The shape, six levels of 128 over
//! 4 KiB, is that of a Merkle tree (Merkle 1987) over a fixed radix; it depends on content alone.
//!
//! 128 bits resist accidents in any pool that can be built, and suit a realm under one administration; they are no
//! defence between parties who hold each other's chosen data (see the manual).

use std::fmt;

/// Children of a node.
pub const FAN_OUT: usize = 128;
/// log2 of [`FAN_OUT`].
pub const FAN_OUT_BITS: u32 = 7;
/// The level of the topmost node; data blocks are level 0.
pub const TOP_LEVEL: u8 = 6;
/// Bytes of one data block.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks a volume can have: 128^6 = 2^42, 16 PiB.
pub const BLOCKS_MAX: u64 = 1 << (FAN_OUT_BITS * TOP_LEVEL as u32);

const BLOCK_CONTEXT: &str = "farside 2026-11 data block of 4096 bytes v1";
const NODE_CONTEXT: &str = "farside 2026-11 tree node of 128 fingerprints v1";
const LOST_CONTEXT: &str = "farside 2026-11 child of a damaged node v1";
const ROOT_CONTEXT: &str = "farside 2026-11 content root v1";

/// 16 bytes that stand for a block or a subtree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// A block or subtree that holds only zeros.
    pub const HOLE: Fingerprint = Fingerprint([0; 16]);

    /// Whether it stands for zeros.
    pub fn is_hole(self) -> bool {
        self.0 == [0; 16]
    }

    /// Fingerprint of one data block of exactly [`BLOCK_BYTES`] bytes.
    pub fn of_block(block: &[u8]) -> Fingerprint {
        assert_eq!(block.len(), BLOCK_BYTES, "a data block has 4096 bytes");
        if is_zero(block) {
            return Fingerprint::HOLE;
        }
        let mut hasher = keyed(&BLOCK_KEY);
        hasher.update(block);
        truncate(&hasher)
    }

    /// Fingerprint of a node at `level` (1 to [`TOP_LEVEL`]) over its children's, absent ones being holes.
    pub fn of_node(level: u8, children: &[Fingerprint; FAN_OUT]) -> Fingerprint {
        assert!((1..=TOP_LEVEL).contains(&level), "a node's level is 1 to 6");
        if children.iter().all(|c| c.is_hole()) {
            return Fingerprint::HOLE;
        }
        let mut hasher = keyed(&NODE_KEY);
        hasher.update(&[level]);
        let mut bytes = [0; FAN_OUT * 16];
        for (to, child) in bytes.chunks_exact_mut(16).zip(children) {
            to.copy_from_slice(&child.0);
        }
        hasher.update(&bytes);
        truncate(&hasher)
    }

    /// What stands for child `index` of a node that cannot be read: its content is not known, nor whether it had any.
    pub fn of_lost_child(node: &Fingerprint, index: u8) -> Fingerprint {
        let mut hasher = keyed(&LOST_KEY);
        hasher.update(&node.0);
        hasher.update(&[index]);
        truncate(&hasher)
    }

    /// The fingerprint that a subtree of `level`, standing at the left edge, has at `to_level`, everything right of
    /// it being a hole. Levels above the highest used are computed, never stored.
    pub fn raise(self, level: u8, to_level: u8) -> Fingerprint {
        let mut fingerprint = self;
        for above in level + 1..=to_level {
            let mut children = [Fingerprint::HOLE; FAN_OUT];
            children[0] = fingerprint;
            fingerprint = Fingerprint::of_node(above, &children);
        }
        fingerprint
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// 16 bytes that stand for a whole version: its top fingerprint (level 6) and its size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentRoot(pub [u8; 16]);

impl ContentRoot {
    /// The root of a version whose level-6 fingerprint is `top` and whose size is `size_bytes`.
    pub fn new(top: Fingerprint, size_bytes: u64) -> ContentRoot {
        let mut hasher = keyed(&ROOT_KEY);
        hasher.update(&top.0);
        hasher.update(&size_bytes.to_le_bytes());
        ContentRoot(truncate(&hasher).0)
    }
}

impl fmt::Debug for ContentRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for ContentRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// Whether every byte is zero; exits at the first that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|w| u128::from_le_bytes(*w) == 0) && rest.iter().all(|&b| b == 0)
}

/// Level of the lowest subtree that covers `blocks` blocks; at least 1.
pub fn level_for(blocks: u64) -> u8 {
    (1..TOP_LEVEL).find(|&level| blocks <= span(level)).unwrap_or(TOP_LEVEL)
}

/// Data blocks that one subtree of `level` covers: 128^level.
pub const fn span(level: u8) -> u64 {
    1 << (FAN_OUT_BITS * level as u32)
}

static BLOCK_KEY: std::sync::LazyLock<[u8; 32]> =
    std::sync::LazyLock::new(|| blake3::derive_key(BLOCK_CONTEXT, &[]));
static NODE_KEY: std::sync::LazyLock<[u8; 32]> =
    std::sync::LazyLock::new(|| blake3::derive_key(NODE_CONTEXT, &[]));
static LOST_KEY: std::sync::LazyLock<[u8; 32]> =
    std::sync::LazyLock::new(|| blake3::derive_key(LOST_CONTEXT, &[]));
static ROOT_KEY: std::sync::LazyLock<[u8; 32]> =
    std::sync::LazyLock::new(|| blake3::derive_key(ROOT_CONTEXT, &[]));

fn keyed(key: &[u8; 32]) -> blake3::Hasher {
    blake3::Hasher::new_keyed(key)
}

fn truncate(hasher: &blake3::Hasher) -> Fingerprint {
    let mut out = [0; 16];
    out.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    // All zeros means a hole; a hash that comes out so (chance 2^-128) is moved aside.
    if out == [0; 16] {
        out[0] = 1;
    }
    Fingerprint(out)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}
