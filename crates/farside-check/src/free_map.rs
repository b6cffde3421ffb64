//! The free map of one point against what the point refers to (F3).

use farside_format::free_map::{BLOCKS_PER_CHUNK, BlockState, state};
use farside_format::{BLOCK_BYTES, Pointer, Superblock, TreeKind};

use crate::places::{PlaceSet, runs};
use crate::reader::Reader;
use crate::report::{Location, What};
use crate::tree::{self, PoolTree};
use crate::usage::Usage;

/// Walks the tree of the free map, and returns the pointers to its chunks (index, pointer), in order. They are read
/// later: the map itself is among what it must show as used.
pub(crate) fn walk(
    reader: &mut Reader<'_>,
    usage: &mut Usage,
    superblock: &Superblock,
) -> Vec<(u64, Pointer)> {
    let blocks = superblock.pool_blocks.div_ceil(BLOCKS_PER_CHUNK);
    if superblock.free_map.length_bytes.div_ceil(BLOCK_BYTES as u64) != blocks {
        reader.error(
            What::FreeMap,
            location(superblock),
            format!("{} bytes for {} blocks", blocks * BLOCK_BYTES as u64, superblock.pool_blocks),
            format!("{} bytes", superblock.free_map.length_bytes),
            "",
        );
    }
    let tree = PoolTree { kind: TreeKind::FreeMap, reference: superblock.free_map, blocks };
    let mut chunks = Vec::new();
    tree::walk_pool_tree(reader, usage, superblock, &tree, &mut |_, index, pointer| {
        chunks.push((index, *pointer))
    });
    chunks
}

fn location(superblock: &Superblock) -> Location {
    Location { generation: Some(superblock.generation), tree: Some(TreeKind::FreeMap), ..Location::default() }
}

/// Compares state by state, and returns the places that wait. `all_known` says that no reference can have been
/// missed; up to `unattributed_max` blocks may be in use for nobody, since damage took the maps that said for whom. Of
/// those `surplus_owners` were found elsewhere. The second answer are the places that are in use for nobody known.
pub(crate) fn compare(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    usage: &Usage,
    all_known: bool,
    (surplus_owners, unattributed_max): (u64, u64),
    chunks: &[(u64, Pointer)],
) -> (PlaceSet, PlaceSet) {
    // Places past the device cannot be in use; without this a superblock could ask for 2^34 empty chunks.
    let chunk_count = superblock.pool_blocks.min(reader.device_blocks()).div_ceil(BLOCKS_PER_CHUNK);
    let mut waiting = PlaceSet::default();
    let mut unreferenced = PlaceSet::default();
    let mut chunks = chunks.iter().peekable();
    for index in 0..chunk_count {
        let pointer = chunks.next_if(|(i, _)| *i == index).map(|(_, pointer)| pointer);
        let bytes = match pointer {
            Some(pointer) => match tree::read_data(reader, pointer) {
                Ok(bytes) => bytes.to_vec(),
                Err(why) => {
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
                        "the pool cannot allocate without its free map; volumes are not concerned and can be copied away",
                    );
                    continue;
                }
            },
            // If nodes of the map itself cannot be read, a missing chunk is no hole.
            None if !all_known || !usage.used.has_chunk(index) => continue,
            None => vec![0; BLOCK_BYTES],
        };
        compare_chunk(reader, superblock, usage, (index, &bytes), all_known, &mut waiting, &mut unreferenced);
    }
    if unreferenced.len().saturating_add(surplus_owners) > unattributed_max {
        for (place, count) in runs(unreferenced.iter()) {
            let at = Location {
                position: Some(place / BLOCKS_PER_CHUNK),
                place: Some(place),
                ..location(superblock)
            };
            reader.error(
                What::FreeMap,
                at,
                "free or waiting: nothing refers to these blocks",
                format!("{count} blocks in use"),
                "space is lost but nothing else; if blocks past the pool's end are named, the pool was cut short",
            );
        }
    }
    (waiting, unreferenced)
}

fn compare_chunk(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    usage: &Usage,
    (index, bytes): (u64, &[u8]),
    all_known: bool,
    waiting: &mut PlaceSet,
    unreferenced: &mut PlaceSet,
) {
    let first = index * BLOCKS_PER_CHUNK;
    let mut wrong: [Vec<u64>; 3] = Default::default();
    for within in 0..BLOCKS_PER_CHUNK {
        let place = first + within;
        let used = usage.used.contains(place);
        match state(bytes, within) {
            Err(_) => wrong[0].push(place),
            Ok(BlockState::InUse) if !used && all_known => {
                unreferenced.insert(place);
            }
            Ok(found @ (BlockState::Free | BlockState::Waiting)) => {
                if used {
                    wrong[1].push(place);
                } else if found == BlockState::Waiting {
                    waiting.insert(place);
                    if place >= superblock.pool_blocks {
                        wrong[2].push(place);
                    }
                }
            }
            Ok(BlockState::InUse) => {}
        }
    }
    let messages = [
        (
            "a state of 0, 1 or 2",
            "3",
            "the free map is damaged by software, not by the medium; do not write to this pool",
        ),
        (
            "in use: something refers to these blocks",
            "free or waiting",
            "the next write may overwrite them; do not write to this pool, copy its volumes away",
        ),
        (
            "free: these blocks lie past the end of the pool",
            "waiting",
            "the free map says more than there is",
        ),
    ];
    for ((expected, found, hint), places) in messages.into_iter().zip(wrong) {
        for (place, count) in runs(places.into_iter()) {
            let at = Location { position: Some(index), place: Some(place), ..location(superblock) };
            reader.error(What::FreeMap, at, expected, format!("{count} blocks {found}"), hint);
        }
    }
}
