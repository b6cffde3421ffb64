//! Whatever can be written reads back the same, and one changed bit of anything under a checksum is refused.

use farside_format::free_map::{BLOCKS_PER_CHUNK, BlockState, set_state, state};
use farside_format::journal::{BatchHeader, Record, decode_batch, ring_bytes, seal_batch};
use farside_format::owner_counts::{
    PLACES_PER_BLOCK, extra_owners, set_extra_owners, shared_places, table_blocks,
};
use farside_format::pointer::{RawTreeReference, U48_MAX};
use farside_format::superblock::{CopyMark, JOURNAL_BLOCKS_MAX, JOURNAL_BLOCKS_MIN, JOURNAL_START};
use farside_format::{
    Birth, FAN_OUT, Fingerprint, FormatError, Node, NodeExpectation, Place, Pointer, Superblock, TreeKind,
    TreeReference,
};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    any::<[u8; 16]>().prop_filter("a hole has no fingerprint", |f| *f != [0; 16]).prop_map(Fingerprint)
}

fn pointer(birth_max: u64) -> impl Strategy<Value = Pointer> {
    let stored = (fingerprint(), 1..=U48_MAX, 0..=birth_max).prop_map(|(fingerprint, place, birth)| {
        Pointer { fingerprint, place: Place(place), birth: Birth(birth) }
    });
    prop_oneof![1 => Just(Pointer::HOLE), 4 => stored]
}

fn tree() -> impl Strategy<Value = TreeReference> {
    (pointer(U48_MAX), 1..=6u8, any::<u64>()).prop_map(|(root, level, length_bytes)| {
        let level = if root.is_hole() { 0 } else { level };
        TreeReference { root, level, length_bytes }
    })
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn superblock() -> impl Strategy<Value = Superblock> {
    let copy = (any::<u32>(), 1..u128::MAX, any::<bool>()).prop_map(|(number, identity, ends_mirrors)| {
        let copied = CopyMark { number, identity: Uuid::from_u128(identity), ends_mirrors };
        if number == 0 { CopyMark::default() } else { copied }
    });
    let numbers = (any::<[u64; 5]>(), 0..=U48_MAX, any::<[u8; 16]>(), copy);
    let trees = (tree(), tree(), tree());
    (uuid(), JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX, any::<u64>(), numbers, trees).prop_map(
        |(pool, journal_blocks, more, (n, birth_epoch, journal_chain, copy), (catalog, free_map, counts))| {
            let pool_blocks = JOURNAL_START + journal_blocks + 1 + more % (1 << 40);
            let table_bytes = table_blocks(pool_blocks) * 4096;
            let length_bytes = if counts.level == 0 { 0 } else { table_bytes };
            Superblock {
                pool,
                copy,
                pool_blocks,
                journal_blocks,
                generation: n[0],
                open_epoch: n[1],
                birth_epoch,
                journal_position: (n[2] % (1 << 62)) & !4095,
                journal_sequence: n[3],
                journal_chain,
                catalog,
                free_map,
                owner_counts: TreeReference { length_bytes, ..counts },
            }
        },
    )
}

fn node() -> impl Strategy<Value = Node> {
    let kind = prop_oneof![
        Just(TreeKind::Volume),
        Just(TreeKind::Catalog),
        Just(TreeKind::FreeMap),
        Just(TreeKind::OwnerCounts)
    ];
    (0..=U48_MAX).prop_flat_map(move |birth| {
        (1..=6u8, kind.clone(), any::<[u64; 3]>(), 0..=U48_MAX, vec(pointer(birth), FAN_OUT)).prop_map(
            move |(level, kind, n, place, children)| Node {
                level,
                kind,
                family: n[0],
                position: n[1],
                birth: Birth(birth),
                mapped_blocks: n[2],
                lost_blocks: 0,
                place: Place(place),
                children: children.try_into().expect("as many as a node has"),
            },
        )
    })
}

fn record() -> impl Strategy<Value = Record> {
    let map = (any::<(bool, u64)>(), 0..=U48_MAX, 0..1u64 << 41, 1..1u64 << 47, vec(fingerprint(), 1..40))
        .prop_map(|((shared, version), birth, block, place, fingerprints)| {
            let (birth, place) = (Birth(birth), Place(place));
            if shared {
                Record::Share { version, birth, block, place, fingerprints }
            } else {
                Record::Map { version, birth, block, place, fingerprints }
            }
        });
    let unmap = (any::<u64>(), 0..=U48_MAX, 0..1u64 << 41, 0..1u64 << 41).prop_map(
        |(version, birth, block, count)| Record::Unmap { version, birth: Birth(birth), block, count },
    );
    let point = (any::<u64>(), 0..=U48_MAX)
        .prop_map(|(generation, epoch)| Record::Point { generation, birth_epoch: Birth(epoch) });
    prop_oneof![map, unmap, point]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn superblocks(superblock in superblock(), flip in 0..4096usize * 8) {
        let mut bytes = superblock.encode();
        prop_assert_eq!(Superblock::decode(bytes.as_slice()), Ok(superblock));
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(Superblock::decode(bytes.as_slice()).is_err(), "bit {} of a superblock", flip);
    }

    #[test]
    fn nodes(node in node(), pool in uuid(), flip in 0..4096usize * 8) {
        let mut bytes = [0; 4096];
        node.encode(pool, &mut bytes);
        prop_assert_eq!(Node::decode(&bytes), Ok((node.clone(), pool)));
        let pointer = Pointer { fingerprint: node.fingerprint(), place: node.place, birth: node.birth };
        let expected = NodeExpectation {
            pool, level: node.level, kind: node.kind, family: node.family, position: node.position, pointer,
        };
        prop_assert_eq!(Node::decode_expected(&bytes, &expected), Ok(node.clone()));
        let others = [
            ("pool", NodeExpectation { pool: Uuid::from_u128(pool.as_u128() ^ 1), ..expected }),
            ("level", NodeExpectation { level: node.level % 6 + 1, ..expected }),
            ("family", NodeExpectation { family: node.family ^ 1, ..expected }),
            ("position", NodeExpectation { position: node.position ^ 1, ..expected }),
            ("birth", NodeExpectation { pointer: Pointer { birth: Birth(node.birth.0 ^ 1), ..pointer }, ..expected }),
            ("place", NodeExpectation { pointer: Pointer { place: Place(node.place.0 ^ 1), ..pointer }, ..expected }),
            ("fingerprint", NodeExpectation {
                pointer: Pointer { fingerprint: Fingerprint([0xee; 16]), ..pointer }, ..expected
            }),
        ];
        for (field, other) in others {
            prop_assert_eq!(Node::decode_expected(&bytes, &other), Err(FormatError::NotTheExpectedNode { field }));
        }
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(Node::decode(&bytes).is_err(), "bit {} of a node", flip);
    }

    #[test]
    fn tree_references(tree in tree()) {
        prop_assert_eq!(RawTreeReference::new(&tree).decode(), Ok(tree));
    }

    #[test]
    fn batches_of_records(records in vec(record(), 0..8), n in any::<[u64; 4]>(), pool in uuid(), flip in any::<usize>()) {
        let mut payload = Vec::new();
        records.iter().for_each(|r| r.encode(&mut payload));
        let header = BatchHeader {
            payload_bytes: payload.len(),
            pool,
            open_epoch: n[0],
            sequence: n[1],
            position: (n[2] % (1 << 61)) & !4095,
            proven: n[3],
            records: records.len() as u32,
            previous: [3; 16],
            checksum: [0; 16],
        };
        let mut bytes = vec![0; ring_bytes(payload.len()) as usize];
        bytes[128..128 + payload.len()].copy_from_slice(&payload);
        let checksum = seal_batch(&mut bytes, payload.len(), &header);
        let (found, found_payload) = decode_batch(&bytes).unwrap();
        prop_assert_eq!(found, BatchHeader { checksum, ..header });
        prop_assert_eq!(Record::decode_all(found_payload, header.records), Ok(records));
        prop_assert!(Record::decode_all(found_payload, header.records + 1).is_err());
        let bit = flip % ((128 + payload.len()) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_batch(&bytes).is_err(), "bit {} of a batch", bit);
    }

    #[test]
    fn owner_counts(places in vec((0..PLACES_PER_BLOCK, any::<u32>()), 0..200)) {
        let mut block = [0; 4096];
        let mut model = std::collections::BTreeMap::new();
        for (place, extra) in places {
            set_extra_owners(&mut block, place, extra);
            model.insert(place, extra);
            // Little-endian, four bytes a place.
            let at = place as usize * 4;
            prop_assert_eq!(&block[at..at + 4], &extra.to_le_bytes());
        }
        model.retain(|_, extra| *extra > 0);
        prop_assert!(shared_places(&block).eq(model.iter().map(|(place, extra)| (*place, *extra))));
        for place in 0..PLACES_PER_BLOCK {
            prop_assert_eq!(extra_owners(&block, place), model.get(&place).copied().unwrap_or(0));
        }
    }

    #[test]
    fn free_map_states(places in vec((0..BLOCKS_PER_CHUNK, 0..3u8), 1..200)) {
        let mut chunk = [0; 4096];
        let mut model = std::collections::HashMap::new();
        for (place, number) in places {
            let to = [BlockState::Free, BlockState::InUse, BlockState::Waiting][number as usize];
            set_state(&mut chunk, place, to);
            model.insert(place, to);
        }
        for place in 0..BLOCKS_PER_CHUNK {
            prop_assert_eq!(state(&chunk, place), Ok(*model.get(&place).unwrap_or(&BlockState::Free)));
        }
        // Lowest bits first: block i of a chunk is bits 2i and 2i + 1.
        let (place, to) = model.iter().next().unwrap();
        prop_assert_eq!(chunk[(*place / 4) as usize] >> (2 * (place % 4)) & 3, *to as u8);
    }
}

#[test]
fn the_fourth_state_is_refused() {
    let mut chunk = [0; 4096];
    chunk[7] = 0b1100;
    assert!(state(&chunk, 29).is_err());
    assert_eq!(state(&chunk, 28), Ok(BlockState::Free));
}

#[test]
fn a_journal_position_beyond_the_limit_is_refused() {
    use farside_format::journal::POSITION_MAX;
    let superblock = Superblock {
        pool: Uuid::nil(),
        copy: farside_format::superblock::CopyMark::default(),
        pool_blocks: 4096,
        journal_blocks: 1024,
        generation: 1,
        open_epoch: 1,
        birth_epoch: 1,
        journal_position: POSITION_MAX,
        journal_sequence: 1,
        journal_chain: [0; 16],
        catalog: TreeReference::default(),
        free_map: TreeReference::default(),
        owner_counts: TreeReference::default(),
    };
    assert!(Superblock::decode(&superblock.encode()[..]).is_ok());
    let beyond = Superblock { journal_position: POSITION_MAX + 4096, ..superblock };
    assert!(Superblock::decode(&beyond.encode()[..]).is_err());
}
