//! The superblock: the only thing at a fixed place, and the only overwrite that publishes anything.

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::FormatError;
use crate::fingerprint::BLOCK_BYTES;
use crate::journal::POSITION_MAX;
use crate::owner_counts;
use crate::pointer::{RawTreeReference, TreeReference, U48_MAX};
use crate::version::FORMAT_VERSION;

/// Blocks of the two slots.
pub const SUPERBLOCK_PLACES: [u64; 2] = [0, 256];
/// First block of the journal ring.
pub const JOURNAL_START: u64 = 512;
/// Smallest journal, blocks: two intervals of the largest batch, twice over (4 MiB).
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// Largest journal, blocks (4 GiB).
pub const JOURNAL_BLOCKS_MAX: u64 = 1 << 20;

const MAGIC: [u8; 8] = *b"FARSIDE\0";

/// Which copy of a pool this is. A pool that was copied has the id of the other, which all of its nodes and its journal bear: for
/// others it has this identity instead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CopyMark {
    /// How many copies of copies it is; 0 for an original. Of two slots the higher counts.
    pub number: u32,
    /// Its identity, made for it; nil for an original.
    pub identity: Uuid,
    /// The mirrors that it brought along are not ended yet.
    pub ends_mirrors: bool,
}

/// A superblock in memory. Field meanings: `docs/format.md`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The pool's id. A copy's is that of its original.
    pub pool: Uuid,
    /// Which copy it is.
    pub copy: CopyMark,
    /// Blocks of the pool.
    pub pool_blocks: u64,
    /// Blocks of the journal ring.
    pub journal_blocks: u64,
    /// Number of the consistency point.
    pub generation: u64,
    /// Raised at each opening.
    pub open_epoch: u64,
    /// Birth epoch after the point.
    pub birth_epoch: u64,
    /// Position of the first batch not in the point, bytes.
    pub journal_position: u64,
    /// Sequence of that batch.
    pub journal_sequence: u64,
    /// Checksum of the batch before it.
    pub journal_chain: [u8; 16],
    /// The catalog.
    pub catalog: TreeReference,
    /// The free map.
    pub free_map: TreeReference,
    /// The owner counts; all zero while no block has several owners.
    pub owner_counts: TreeReference,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    version: U32,
    block_bytes: U32,
    pool: [u8; 16],
    pool_blocks: U64,
    journal_start: U64,
    journal_blocks: U64,
    generation: U64,
    open_epoch: U64,
    birth_epoch: U64,
    journal_position: U64,
    journal_sequence: U64,
    journal_chain: [u8; 16],
    catalog: RawTreeReference,
    free_map: RawTreeReference,
    owner_counts: RawTreeReference,
    copy_identity: [u8; 16],
    copy_number: U32,
    copy_ends_mirrors: U32,
    reserved: [u8; 3800],
    checksum: [u8; 16],
}
const _: () = assert!(size_of::<RawSuperblock>() == BLOCK_BYTES);

impl CopyMark {
    /// What a copy calls something that the original calls `id`: its own, and always the same.
    pub fn own(&self, id: Uuid) -> Uuid {
        if self.number == 0 {
            return id;
        }
        let mut both = [0; 32];
        both[..16].copy_from_slice(self.identity.as_bytes());
        both[16..].copy_from_slice(id.as_bytes());
        uuid::Builder::from_custom_bytes(xxh3_128(&both).to_le_bytes()).into_uuid()
    }
}

impl Superblock {
    /// Blocks of the largest pool that places can name.
    pub const POOL_BLOCKS_MAX: u64 = U48_MAX;

    /// The mark of the pool whose newest slot this is, and whether only one of its slots has it: while a copy becomes a pool of its
    /// own. Once one has it, it is one.
    pub fn mark(&self, other: Option<&Superblock>) -> (CopyMark, bool) {
        match other.map(|other| other.copy).filter(|other| other.number != self.copy.number) {
            None => (self.copy, false),
            Some(other) if other.number > self.copy.number => (other, true),
            Some(_) => (self.copy, true),
        }
    }

    /// By what others know the pool.
    pub fn identity(&self) -> Uuid {
        if self.copy.number == 0 { self.pool } else { self.copy.identity }
    }

    /// First place that the allocator may give out.
    pub fn first_allocatable(&self) -> u64 {
        JOURNAL_START + self.journal_blocks
    }

    /// Encodes into one block.
    pub fn encode(&self) -> Box<[u8; BLOCK_BYTES]> {
        let mut raw = RawSuperblock {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            block_bytes: (BLOCK_BYTES as u32).into(),
            pool: *self.pool.as_bytes(),
            pool_blocks: self.pool_blocks.into(),
            journal_start: JOURNAL_START.into(),
            journal_blocks: self.journal_blocks.into(),
            generation: self.generation.into(),
            open_epoch: self.open_epoch.into(),
            birth_epoch: self.birth_epoch.into(),
            journal_position: self.journal_position.into(),
            journal_sequence: self.journal_sequence.into(),
            journal_chain: self.journal_chain,
            catalog: RawTreeReference::new(&self.catalog),
            free_map: RawTreeReference::new(&self.free_map),
            owner_counts: RawTreeReference::new(&self.owner_counts),
            copy_identity: *self.copy.identity.as_bytes(),
            copy_number: self.copy.number.into(),
            copy_ends_mirrors: u32::from(self.copy.ends_mirrors).into(),
            reserved: [0; 3800],
            checksum: [0; 16],
        };
        raw.checksum = xxh3_128(&raw.as_bytes()[..4080]).to_le_bytes();
        let mut block = Box::new([0; BLOCK_BYTES]);
        block.copy_from_slice(raw.as_bytes());
        block
    }

    /// Decodes one block; every length and level that others will rely on is checked here.
    pub fn decode(block: &[u8]) -> Result<Superblock, FormatError> {
        let raw =
            RawSuperblock::ref_from_bytes(block).map_err(|_| FormatError::Length { what: "superblock" })?;
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: "superblock" });
        }
        // The version comes before the checksum: another version may check differently.
        if raw.version.get() != FORMAT_VERSION {
            return Err(FormatError::Version { found: raw.version.get(), supported: FORMAT_VERSION });
        }
        if raw.checksum != xxh3_128(&block[..4080]).to_le_bytes() {
            return Err(FormatError::Checksum { what: "superblock" });
        }
        let bad = |field| Err(FormatError::Field { what: "superblock", field });
        let (pool_blocks, journal_blocks) = (raw.pool_blocks.get(), raw.journal_blocks.get());
        if raw.block_bytes.get() != BLOCK_BYTES as u32 {
            return bad("block bytes");
        }
        if raw.journal_start.get() != JOURNAL_START
            || !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&journal_blocks)
            || pool_blocks > U48_MAX
            || pool_blocks <= JOURNAL_START + journal_blocks
        {
            return bad("pool or journal blocks");
        }
        let position = raw.journal_position.get();
        if !position.is_multiple_of(BLOCK_BYTES as u64)
            || position > POSITION_MAX
            || raw.birth_epoch.get() > U48_MAX
        {
            return bad("journal position or birth epoch");
        }
        if raw.reserved != [0; 3800] {
            return bad("reserved");
        }
        let copy = CopyMark {
            number: raw.copy_number.get(),
            identity: Uuid::from_bytes(raw.copy_identity),
            ends_mirrors: match raw.copy_ends_mirrors.get() {
                0 => false,
                1 => true,
                _ => return bad("mirrors of a copy"),
            },
        };
        if (copy.number == 0) != copy.identity.is_nil() || (copy.number == 0 && copy.ends_mirrors) {
            return bad("identity of a copy");
        }
        let owner_counts = raw.owner_counts.decode()?;
        let table_bytes = owner_counts::table_blocks(pool_blocks) * BLOCK_BYTES as u64;
        if owner_counts.length_bytes != if owner_counts.level == 0 { 0 } else { table_bytes } {
            return bad("length of the owner counts");
        }
        Ok(Superblock {
            pool: Uuid::from_bytes(raw.pool),
            copy,
            pool_blocks,
            journal_blocks,
            generation: raw.generation.get(),
            open_epoch: raw.open_epoch.get(),
            birth_epoch: raw.birth_epoch.get(),
            journal_position: raw.journal_position.get(),
            journal_sequence: raw.journal_sequence.get(),
            journal_chain: raw.journal_chain,
            catalog: raw.catalog.decode()?,
            free_map: raw.free_map.decode()?,
            owner_counts,
        })
    }
}
