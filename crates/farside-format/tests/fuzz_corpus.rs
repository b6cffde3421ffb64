//! The fuzz targets on stable Rust: over the committed corpus, and over a second of seeded mutations of it. Half of the
//! mutations put the checksum right again, so that what lies behind it is reached too.
//!
//! `FARSIDE_WRITE_CORPUS=1 cargo test -p farside-format --test fuzz_corpus` writes the corpus anew.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use farside_format::catalog::{Catalog, CatalogChange, Change, Freeze, FrozenHead, Snapshot, Volume};
use farside_format::fuzz::{fuzz_journal_record, fuzz_node, fuzz_superblock};
use farside_format::journal::{BatchHeader, Record, ring_bytes, seal_batch};
use farside_format::{
    Birth, FAN_OUT, Fingerprint, Node, Place, Pointer, Superblock, TreeKind, TreeReference,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

const POOL: Uuid = Uuid::from_u128(0xfa_51de);
const MUTATIONS: Duration = Duration::from_millis(350);

fn pointer(n: u8) -> Pointer {
    Pointer { fingerprint: Fingerprint([n; 16]), place: Place(2000 + u64::from(n)), birth: Birth(1) }
}

fn superblock() -> Vec<u8> {
    let superblock = Superblock {
        pool: POOL,
        copy: farside_format::superblock::CopyMark::default(),
        pool_blocks: 1 << 20,
        journal_blocks: 1024,
        generation: 3,
        open_epoch: 2,
        birth_epoch: 9,
        journal_position: 8192,
        journal_sequence: 3,
        journal_chain: [1; 16],
        catalog: TreeReference { root: pointer(1), level: 1, length_bytes: 100 },
        free_map: TreeReference { root: pointer(2), level: 1, length_bytes: 1 << 18 },
        owner_counts: TreeReference { root: pointer(3), level: 2, length_bytes: 1 << 22 },
    };
    superblock.encode().to_vec()
}

fn fix_superblock(bytes: &mut [u8]) {
    if bytes.len() == 4096 {
        let checksum = xxh3_128(&bytes[..4080]).to_le_bytes();
        bytes[4080..].copy_from_slice(&checksum);
    }
}

fn node(level: u8, children: usize) -> Vec<u8> {
    let mut all = Box::new([Pointer::HOLE; FAN_OUT]);
    for (i, child) in all.iter_mut().take(children).enumerate() {
        *child = pointer(1 + i as u8);
    }
    let node = Node {
        level,
        kind: TreeKind::Volume,
        family: 2,
        position: 3,
        birth: Birth(4),
        mapped_blocks: children as u64,
        lost_blocks: 0,
        place: Place(6000),
        children: all,
    };
    let mut bytes = vec![0; 4096];
    node.encode(POOL, &mut bytes);
    bytes
}

fn fix_node(bytes: &mut [u8]) {
    if bytes.len() == 4096 {
        let checksum = xxh3_128(&[&bytes[..496], &bytes[512..]].concat()).to_le_bytes();
        bytes[496..512].copy_from_slice(&checksum);
    }
}

fn records() -> [Record; 5] {
    let snapshot = Snapshot { name: "daily".into(), uuid: vec![7; 16], ..Default::default() };
    let frozen = vec![FrozenHead { head: 1, version: 2, snapshot: Some(snapshot) }];
    let change = CatalogChange { change: Some(Change::Freeze(Freeze { frozen, epoch: 4 })) };
    let fingerprints = vec![Fingerprint([5; 16]), Fingerprint([6; 16])];
    [
        Record::Map {
            version: 1,
            birth: Birth(4),
            block: 9,
            place: Place(3000),
            fingerprints: fingerprints.clone(),
        },
        Record::Share { version: 1, birth: Birth(4), block: 90, place: Place(3000), fingerprints },
        Record::Unmap { version: 1, birth: Birth(4), block: 0, count: 8 },
        Record::Catalog(Box::new(change)),
        Record::Point { generation: 4, birth_epoch: Birth(6) },
    ]
}

fn batch(records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::new();
    records.iter().for_each(|r| r.encode(&mut payload));
    let mut bytes = vec![0; ring_bytes(payload.len()) as usize];
    bytes[128..128 + payload.len()].copy_from_slice(&payload);
    let header = BatchHeader {
        payload_bytes: payload.len(),
        pool: POOL,
        open_epoch: 2,
        sequence: 3,
        position: 8192,
        proven: 2,
        records: records.len() as u32,
        previous: [1; 16],
        checksum: [0; 16],
    };
    seal_batch(&mut bytes, payload.len(), &header);
    bytes
}

fn fix_batch(bytes: &mut [u8]) {
    if bytes.len() < 128 {
        return;
    }
    let length = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    let Some(end) = length.checked_add(128).filter(|end| *end <= bytes.len()) else { return };
    bytes[96..112].fill(0);
    let checksum = xxh3_128(&bytes[..end]).to_le_bytes();
    bytes[96..112].copy_from_slice(&checksum);
}

/// A unit with one thing wrong behind a right checksum.
fn spoilt(mut bytes: Vec<u8>, offset: usize, byte: u8, fix: fn(&mut [u8])) -> Vec<u8> {
    bytes[offset] ^= byte;
    fix(&mut bytes);
    bytes
}

struct Target {
    name: &'static str,
    run: fn(&[u8]),
    fix: fn(&mut [u8]),
    units: Vec<(&'static str, Vec<u8>)>,
}

fn targets() -> [Target; 3] {
    let single = |record: &Record| {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        bytes
    };
    let [map, share, unmap, change, point] = records();
    let volume =
        Volume { id: 1, uuid: vec![1; 16], name: "v".into(), family: 2, head: 3, ..Default::default() };
    let catalog = Catalog { next_id: 4, volumes: vec![volume], versions: vec![], unattributed_blocks_max: 0 };
    [
        Target {
            name: "superblock",
            run: fuzz_superblock,
            fix: fix_superblock,
            units: vec![
                ("valid", superblock()),
                ("version-2", spoilt(superblock(), 8, 1, fix_superblock)),
                ("owner-counts-length", spoilt(superblock(), 248, 1, fix_superblock)),
                ("journal-too-large", spoilt(superblock(), 51, 1, fix_superblock)),
                ("reserved-byte", spoilt(superblock(), 3000, 1, fix_superblock)),
                ("wrong-checksum", spoilt(superblock(), 60, 1, |_| {})),
                ("short", superblock()[..4095].to_vec()),
            ],
        },
        Target {
            name: "node",
            run: fuzz_node,
            fix: fix_node,
            units: vec![
                ("leaf-full", node(1, 128)),
                ("inner-sparse", node(3, 2)),
                ("empty", node(1, 0)),
                ("level-7", spoilt(node(6, 1), 4, 1, fix_node)),
                ("kind-0", spoilt(node(1, 1), 5, 1, fix_node)),
                ("child-younger", spoilt(node(1, 1), 512 + 22, 8, fix_node)),
                ("hole-with-place", spoilt(node(1, 1), 512 + 28 + 16, 1, fix_node)),
                ("wrong-checksum", spoilt(node(1, 1), 600, 1, |_| {})),
            ],
        },
        Target {
            name: "journal_record",
            run: fuzz_journal_record,
            fix: fix_batch,
            units: vec![
                ("batch", batch(&records())),
                ("batch-empty", batch(&[])),
                ("batch-record-count", spoilt(batch(&records()), 64, 1, fix_batch)),
                ("batch-length", spoilt(batch(&records()), 14, 0x10, fix_batch)),
                ("map", single(&map)),
                ("map-count", spoilt(single(&map), 40, 1, |_| {})),
                ("share", single(&share)),
                ("share-place", spoilt(single(&share), 38, 0xff, |_| {})),
                ("unmap", single(&unmap)),
                ("change", single(&change)),
                ("point", single(&point)),
                ("catalog", prost::Message::encode_to_vec(&catalog)),
            ],
        },
    ]
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz-corpus").join(target)
}

#[test]
fn the_corpus_is_what_this_file_makes_and_nothing_panics_on_it() {
    for target in targets() {
        let folder = folder(target.name);
        for (name, bytes) in &target.units {
            let path = folder.join(name);
            if std::env::var_os("FARSIDE_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, bytes).unwrap();
            }
            let found = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(found == *bytes, "{} is not what it should be; the format changed", path.display());
        }
        // Units that fuzzing added are replayed too.
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
        }
    }
}

#[test]
fn what_a_name_says_is_true() {
    let [superblocks, nodes, batches] = targets();
    let accepted = |units: &[(&'static str, Vec<u8>)], decodes: fn(&[u8]) -> bool| -> Vec<&'static str> {
        units.iter().filter(|(_, bytes)| decodes(bytes)).map(|(name, _)| *name).collect()
    };
    assert_eq!(accepted(&superblocks.units, |b| Superblock::decode(b).is_ok()), ["valid"]);
    assert_eq!(accepted(&nodes.units, |b| Node::decode(b).is_ok()), ["leaf-full", "inner-sparse", "empty"]);
    let decodes = |b: &[u8]| {
        farside_format::journal::decode_batch(b)
            .is_ok_and(|(h, payload)| Record::decode_all(payload, h.records).is_ok())
    };
    assert_eq!(accepted(&batches.units, decodes), ["batch", "batch-empty"]);
    let is_record = |b: &[u8]| Record::decode(b).is_ok();
    assert_eq!(accepted(&batches.units, is_record), ["map", "share", "unmap", "change", "point"]);
}

#[test]
fn mutations_of_the_corpus() {
    let seed: u64 = SmallRng::from_os_rng().random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    for target in targets() {
        let until = Instant::now() + MUTATIONS;
        let mut runs = 0u64;
        while Instant::now() < until {
            let mut bytes = target.units[rng.random_range(0..target.units.len())].1.clone();
            for _ in 0..rng.random_range(1..6) {
                mutate(&mut rng, &mut bytes);
            }
            if rng.random_bool(0.5) {
                (target.fix)(&mut bytes);
            }
            (target.run)(&bytes);
            runs += 1;
        }
        println!("{}: {runs} mutations", target.name);
        assert!(runs > 100, "{runs} mutations of {} are too few to mean anything", target.name);
    }
}

fn mutate(rng: &mut SmallRng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    // Headers are short and decide most: half of the mutations go there.
    let within = if rng.random_bool(0.5) { bytes.len().min(160) } else { bytes.len() };
    let at = rng.random_range(0..within);
    match rng.random_range(0..6) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
        3 => {
            let end = (at + rng.random_range(1..32)).min(bytes.len());
            let fill = if rng.random_bool(0.5) { 0xff } else { 0 };
            bytes[at..end].fill(fill);
        }
        4 => {
            let from = rng.random_range(0..bytes.len());
            let length = rng.random_range(1..64).min(bytes.len() - from.max(at));
            bytes.copy_within(from..from + length, at);
        }
        _ if rng.random_bool(0.1) => bytes.truncate(at),
        _ => bytes[at] = bytes[at].wrapping_add(1),
    }
}
