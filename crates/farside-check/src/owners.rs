//! The owner counts of one point against the owners that the walk of its trees finds (F3, F8).

use std::collections::BTreeMap;

use farside_format::owner_counts::{PLACES_PER_BLOCK, shared_places, table_blocks};
use farside_format::{Fingerprint, Superblock, TreeKind};

use crate::point::Usage;
use crate::reader::Reader;
use crate::report::{Location, What};
use crate::tree::{self, PoolTree};

const TOO_LOW_HINT: &str = "the block is freed, and overwritten, while others still have it; do not write to this pool, \
                            restore it from its mirror";
const TOO_HIGH_HINT: &str = "the block is never freed: space is lost, but nothing else";

/// What the table says of a place, and what was found.
struct Owners {
    extra: u32,
    found: u64,
    fingerprint: Fingerprint,
}

/// The table of one point: places with several owners.
pub(crate) struct OwnerTable {
    places: BTreeMap<u64, Owners>,
    /// False if part of it cannot be read: then nothing is said of owners.
    readable: bool,
}

impl Default for OwnerTable {
    fn default() -> Self {
        OwnerTable { places: BTreeMap::new(), readable: true }
    }
}

/// What one more owner of a place is.
pub(crate) enum Owner {
    /// The place has one owner only, as far as the table says, or this is the first: nothing else may have it.
    First,
    /// One of several.
    Further,
    /// One of several, and the place cannot hold what it wants there.
    OfOtherContent(Fingerprint),
    /// The table cannot be read.
    Unknown,
}

impl OwnerTable {
    /// Places with several owners, as the table has it.
    pub(crate) fn shared_places(&self) -> u64 {
        self.places.len() as u64
    }

    /// Counts an owner of a data block.
    pub(crate) fn count(&mut self, place: u64, fingerprint: Fingerprint) -> Owner {
        if !self.readable {
            return Owner::Unknown;
        }
        let Some(owners) = self.places.get_mut(&place) else { return Owner::First };
        owners.found += 1;
        if owners.found == 1 {
            owners.fingerprint = fingerprint;
            Owner::First
        } else if owners.fingerprint == fingerprint {
            Owner::Further
        } else {
            Owner::OfOtherContent(owners.fingerprint)
        }
    }
}

fn location(superblock: &Superblock) -> Location {
    Location {
        generation: Some(superblock.generation),
        tree: Some(TreeKind::OwnerCounts),
        ..Location::default()
    }
}

/// Reads the table, before the versions' trees are walked.
pub(crate) fn read(reader: &mut Reader<'_>, usage: &mut Usage, superblock: &Superblock) {
    let blocks = table_blocks(superblock.pool_blocks);
    let reference = superblock.owner_counts;
    let tree = PoolTree { kind: TreeKind::OwnerCounts, reference, blocks };
    let unreadable_before = usage.unreadable;
    let mut table = OwnerTable::default();
    tree::walk_pool_tree(
        reader,
        usage,
        superblock,
        &tree,
        &mut |reader, index, pointer| match tree::read_data(reader, pointer) {
            Ok(block) => {
                for (within, extra) in shared_places(&block) {
                    let place = index * PLACES_PER_BLOCK + within;
                    table.places.insert(place, Owners { extra, found: 0, fingerprint: Fingerprint::HOLE });
                }
            }
            Err(why) => {
                table.readable = false;
                let at = Location {
                    level: Some(0),
                    position: Some(index),
                    place: Some(pointer.place.0),
                    ..location(superblock)
                };
                reader.error(
                    What::DataBlock,
                    at,
                    pointer.fingerprint.to_string(),
                    why,
                    "nothing can be freed safely from this point; the other superblock's may be whole",
                );
            }
        },
    );
    table.readable &= usage.unreadable == unreadable_before;
    usage.owners = table;
}

/// Compares, once every tree has been walked. `all_known` says that no owner can have been missed.
pub(crate) fn compare(reader: &mut Reader<'_>, usage: &Usage, superblock: &Superblock, all_known: bool) {
    if !usage.owners.readable {
        return;
    }
    for (place, owners) in &usage.owners.places {
        let expected = 1 + u64::from(owners.extra);
        let hint = if owners.found > expected { TOO_LOW_HINT } else { TOO_HIGH_HINT };
        if owners.found > expected || (owners.found < expected && all_known) {
            let at = Location { place: Some(*place), ..location(superblock) };
            let expected = format!("{expected} owners, as the owner counts say");
            reader.error(What::OwnerCounts, at, expected, owners.found.to_string(), hint);
        }
    }
}
