//! The owner counts of one point against the owners that the walk of its trees finds (F3, F8).

use farside_format::owner_counts::{PLACES_PER_BLOCK, shared_places, table_blocks};
use farside_format::{Superblock, TreeKind};

use crate::catalog::VersionTree;
use crate::owner_table::OwnerTable;
use crate::reader::Reader;
use crate::report::{Location, What};
use crate::tree::{self, PoolTree};
use crate::usage::Usage;

const TOO_LOW_HINT: &str = "the block is freed, and overwritten, while others still have it; do not write to this pool, \
                            restore it from its mirror";
const TOO_HIGH_HINT: &str = "the block is never freed: space is lost, but nothing else";
const OWNED_HINT: &str = "the volume's quota and reservation go by a wrong figure; no data is concerned";

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
                    table.add(index * PLACES_PER_BLOCK + within, extra);
                }
            }
            Err(why) => {
                table.set_unreadable();
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
    if usage.unreadable > unreadable_before {
        table.set_unreadable();
    }
    usage.owners = table;
}

/// Compares, once every tree has been walked. `all_known` says that no owner can have been missed; up to
/// `unattributed_max` may be too many, since damage took the maps that named them. Answers how many are.
pub(crate) fn compare(
    reader: &mut Reader<'_>,
    usage: &Usage,
    superblock: &Superblock,
    all_known: bool,
    unattributed_max: u64,
) -> u64 {
    // A place of which no owner is left is counted once more as one that is in use for nobody.
    let surplus: u64 =
        usage.owners.counted().map(|(_, expected, found)| expected.saturating_sub(found.max(1))).sum();
    for (place, expected, found) in usage.owners.counted() {
        let hint = if found > expected { TOO_LOW_HINT } else { TOO_HIGH_HINT };
        if found > expected || (found < expected && all_known && surplus > unattributed_max) {
            let at = Location { place: Some(place), ..location(superblock) };
            let expected = format!("{expected} owners, as the owner counts say");
            reader.error(What::OwnerCounts, at, expected, found.to_string(), hint);
        }
    }
    if all_known { surplus } else { 0 }
}

/// Compares what versions own with what the catalog says (F9). Too many by `unattributed_max` at most: what damage took from a
/// map is owned for ever.
pub(crate) fn compare_owned(
    reader: &mut Reader<'_>,
    usage: &Usage,
    superblock: &Superblock,
    versions: &[VersionTree],
    all_known: bool,
    unattributed_max: u64,
) {
    let found_of = |index: usize| usage.owned.get(&index).copied().unwrap_or(0);
    let surplus: u64 = versions
        .iter()
        .enumerate()
        .map(|(i, version)| version.owned_blocks.saturating_sub(found_of(i)))
        .sum();
    for (index, version) in versions.iter().enumerate() {
        let (counted, found) = (version.owned_blocks, found_of(index));
        if found > counted || (found < counted && all_known && surplus > unattributed_max) {
            let expected = format!("{counted} blocks owned, as the catalog says");
            let at = version.location(superblock.generation);
            reader.error(What::OwnedBlocks, at, expected, found.to_string(), OWNED_HINT);
        }
    }
}
