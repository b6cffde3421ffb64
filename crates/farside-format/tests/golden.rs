//! Golden vectors: every structure laid out by hand from the tables of `docs/format.md` and compared with what is
//! encoded, and the hashes pinned in hex. A change here is another format version.

use farside_format::catalog::{
    CatalogChange, Change, MoveMain, MovedHead, RenameVolume, Replica, Restage, Snapshot, Stage, StagedFor,
};
use farside_format::journal::{BatchHeader, Record, decode_batch, ring_bytes, seal_batch};
use farside_format::pointer::{RawPointer, RawTreeReference};
use farside_format::superblock::CopyMark;
use farside_format::{
    Birth, ContentRoot, FAN_OUT, Fingerprint, Node, Place, Pointer, Superblock, TreeKind, TreeReference,
};
use uuid::Uuid;
use zerocopy::IntoBytes;

const POOL: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes by offset, everything else zero: the tables of the page, typed in.
struct Layout(Vec<u8>);

impl Layout {
    fn zeros(length: usize) -> Layout {
        Layout(vec![0; length])
    }

    fn put(mut self, offset: usize, bytes: &[u8]) -> Layout {
        assert!(self.0[offset..offset + bytes.len()].iter().all(|b| *b == 0), "fields overlap at {offset}");
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn u64(self, offset: usize, number: u64) -> Layout {
        self.put(offset, &number.to_le_bytes())
    }

    fn u32(self, offset: usize, number: u32) -> Layout {
        self.put(offset, &number.to_le_bytes())
    }
}

/// Block `n` of the vectors: byte i is `7·i + n`, modulo 251.
fn block(n: usize) -> Vec<u8> {
    (0..4096).map(|i| ((7 * i + n) % 251) as u8).collect()
}

fn pointer(n: u8) -> Pointer {
    Pointer {
        fingerprint: Fingerprint([n; 16]),
        place: Place(0x0605_0403_0200 + u64::from(n)),
        birth: Birth(0x10 + u64::from(n)),
    }
}

fn pointer_bytes(n: u8) -> Vec<u8> {
    let mut bytes = vec![n; 16];
    bytes.extend([n, 0x02, 0x03, 0x04, 0x05, 0x06]);
    bytes.extend([0x10 + n, 0, 0, 0, 0, 0]);
    bytes
}

fn tree_bytes(n: u8, level: u8, length: u64) -> Vec<u8> {
    let mut bytes = pointer_bytes(n);
    bytes.push(level);
    bytes.extend([0; 11]);
    bytes.extend(length.to_le_bytes());
    bytes
}

#[test]
fn fingerprints() {
    let rows = [
        (hex(&Fingerprint::of_block(&[0; 4096]).0), "00000000000000000000000000000000"),
        (hex(&Fingerprint::of_block(&block(0)).0), "972969a1b4cb0d5155048359b31f8245"),
        (hex(&Fingerprint::of_block(&block(1)).0), "765b2a9ac98aa8a4e7a7f576cbe44590"),
        (hex(&Fingerprint::of_block(&[0xff; 4096]).0), "f4b2a11a79529b6ffa34c4f6bb7b8111"),
    ];
    for (found, expected) in rows {
        assert_eq!(found, expected);
    }
    let mut children = [Fingerprint::HOLE; FAN_OUT];
    assert!(Fingerprint::of_node(1, &children).is_hole());
    children[0] = Fingerprint::of_block(&block(0));
    children[127] = Fingerprint::of_block(&block(1));
    let nodes: Vec<_> = (1..=6).map(|level| hex(&Fingerprint::of_node(level, &children).0)).collect();
    let expected = [
        "f7148d9a0382c4e1a89e803b2c0bdb30",
        "41fabe422d985102bdbe21cf05e45d87",
        "8d8a3507367897a8fcb5ce09740a0134",
        "b91bdb7b58fff742c2be117aacaa52c7",
        "2fc1237fc503f0ffa7add36e690c9b04",
        "f951f722a5e00ba208a64af04d1b79e7",
    ];
    assert_eq!(nodes, expected);
    let top = children[0].raise(0, 6);
    assert_eq!(hex(&top.0), "1169a64f855437afc506e41bbbbfe3ba");
    assert_eq!(hex(&ContentRoot::new(top, 4096).0), "634e4b058a3e5054b714616c0ae847f0");
    assert_eq!(hex(&ContentRoot::new(Fingerprint::HOLE, 0).0), "2ddcd5ebfee04425d46447efd8a68770");
}

#[test]
fn fingerprints_from_the_page_alone() {
    let keyed = |context: &str, parts: &[&[u8]]| -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(context, &[]));
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize().as_bytes()[..16].try_into().unwrap()
    };
    let data = block(3);
    let of_block = keyed("farside 2026-11 data block of 4096 bytes v1", &[&data]);
    assert_eq!(Fingerprint::of_block(&data).0, of_block);
    let mut children = [Fingerprint::HOLE; FAN_OUT];
    children[5] = Fingerprint(of_block);
    let mut bytes = vec![0; 128 * 16];
    bytes[5 * 16..6 * 16].copy_from_slice(&of_block);
    let of_node = keyed("farside 2026-11 tree node of 128 fingerprints v1", &[&[4], &bytes]);
    assert_eq!(Fingerprint::of_node(4, &children).0, of_node);
    let root = keyed("farside 2026-11 content root v1", &[&of_node, &77u64.to_le_bytes()]);
    assert_eq!(ContentRoot::new(Fingerprint(of_node), 77).0, root);
}

#[test]
fn pointers_and_tree_references() {
    assert_eq!(RawPointer::new(&pointer(7)).as_bytes(), pointer_bytes(7));
    assert_eq!(RawPointer::new(&Pointer::HOLE).as_bytes(), [0; 28]);
    let node = pointer(7);
    let lost = Pointer::lost_child(&node, 5);
    assert_eq!((lost.place, lost.birth), (Place(0), node.birth));
    let mut hasher =
        blake3::Hasher::new_keyed(&blake3::derive_key("farside 2026-11 child of a damaged node v1", &[]));
    hasher.update(&node.fingerprint.0).update(&[5]);
    assert_eq!(lost.fingerprint.0, hasher.finalize().as_bytes()[..16]);
    let decoded = RawPointer::new(&lost).decode().expect("a lost pointer");
    assert!(
        decoded == lost && lost.is_lost() && !lost.is_hole() && !node.is_lost() && !Pointer::HOLE.is_lost()
    );
    let root = RawTreeReference::new(&TreeReference { root: lost, level: 3, length_bytes: 1 });
    assert!(root.decode().is_err(), "a root is never lost");
    let tree = TreeReference { root: pointer(7), level: 3, length_bytes: 0x1234 };
    assert_eq!(RawTreeReference::new(&tree).as_bytes(), tree_bytes(7, 3, 0x1234));
}

#[test]
fn superblock() {
    let superblock = Superblock {
        pool: POOL,
        copy: CopyMark::default(),
        pool_blocks: 0x10_0000,
        journal_blocks: 0x4000,
        generation: 5,
        open_epoch: 6,
        birth_epoch: 7,
        journal_position: 0x8000,
        journal_sequence: 9,
        journal_chain: [0xab; 16],
        catalog: TreeReference { root: pointer(1), level: 1, length_bytes: 300 },
        free_map: TreeReference { root: pointer(2), level: 2, length_bytes: 0x4_0000 },
        owner_counts: TreeReference { root: pointer(3), level: 2, length_bytes: 0x40_0000 },
    };
    let layout = Layout::zeros(4096)
        .put(0, b"FARSIDE\0")
        .u32(8, 5)
        .u32(12, 4096)
        .put(16, POOL.as_bytes())
        .u64(32, 0x10_0000)
        .u64(40, 512)
        .u64(48, 0x4000)
        .u64(56, 5)
        .u64(64, 6)
        .u64(72, 7)
        .u64(80, 0x8000)
        .u64(88, 9)
        .put(96, &[0xab; 16])
        .put(112, &tree_bytes(1, 1, 300))
        .put(160, &tree_bytes(2, 2, 0x4_0000))
        .put(208, &tree_bytes(3, 2, 0x40_0000));
    let encoded = superblock.encode();
    assert_eq!(hex(&encoded[..4080]), hex(&layout.0[..4080]));
    assert_eq!(encoded[4080..], xxhash_rust::xxh3::xxh3_128(&layout.0[..4080]).to_le_bytes());
    assert_eq!(hex(&encoded[4080..]), "850684edcd6d1812f310e560fd236390");
    assert_eq!(Superblock::decode(encoded.as_slice()).as_ref(), Ok(&superblock));

    let identity = Uuid::from_bytes([0xcd; 16]);
    let copied = Superblock { copy: CopyMark { number: 2, identity, ends_mirrors: true }, ..superblock };
    let layout = layout.put(256, &[0xcd; 16]).u32(272, 2).u32(276, 1);
    let encoded = copied.encode();
    assert_eq!(hex(&encoded[..4080]), hex(&layout.0[..4080]));
    assert_eq!(copied.identity(), identity);
    assert_eq!(copied.copy.own(POOL).to_string(), "1d17d390-24fe-812d-a3be-e0e3f0bb3cf9");
    assert_eq!(Superblock::decode(encoded.as_slice()), Ok(copied));
    // An identity without a number, a number without an identity, and a flag of neither.
    for (number, identity, ends) in [(0, 0xcd, 0), (2, 0, 0), (0, 0, 1), (2, 0xcd, 2)] {
        let mut bad = layout.0.clone();
        bad[256..272].fill(identity);
        bad[272] = number;
        bad[276] = ends;
        let checksum = xxhash_rust::xxh3::xxh3_128(&bad[..4080]).to_le_bytes();
        bad[4080..].copy_from_slice(&checksum);
        assert!(Superblock::decode(&bad).is_err(), "{number} {identity} {ends}");
    }
}

#[test]
fn node() {
    let mut children = Box::new([Pointer::HOLE; FAN_OUT]);
    (children[0], children[127]) = (pointer(1), pointer(2));
    let node = Node {
        level: 2,
        kind: TreeKind::Volume,
        family: 11,
        position: 12,
        birth: Birth(0x100),
        mapped_blocks: 14,
        lost_blocks: 13,
        place: Place(15),
        children,
    };
    let layout = Layout::zeros(4096)
        .put(0, b"FSN1\x02\x01")
        .u64(8, 11)
        .u64(16, 12)
        .u64(24, 0x100)
        .u64(32, 14)
        .u64(40, 15)
        .put(48, POOL.as_bytes())
        .u64(64, 13)
        .put(512, &pointer_bytes(1))
        .put(512 + 127 * 28, &pointer_bytes(2));
    let checked: Vec<u8> = [&layout.0[..496], &layout.0[512..]].concat();
    let checksum = xxhash_rust::xxh3::xxh3_128(&checked).to_le_bytes();
    assert_eq!(hex(&checksum), "53a613cebe146892008251b8983a8401");
    let layout = layout.put(496, &checksum);
    let mut encoded = [0; 4096];
    node.encode(POOL, &mut encoded);
    assert_eq!(hex(&encoded), hex(&layout.0));
    assert_eq!(Node::decode(&encoded), Ok((node.clone(), POOL)));
    assert_eq!(hex(&node.fingerprint().0), "4cc74bba87ecd21bfc5d7742233bd4ab");
    for (kind, byte) in [(TreeKind::Catalog, 2), (TreeKind::FreeMap, 3), (TreeKind::OwnerCounts, 4)] {
        Node { kind, ..node.clone() }.encode(POOL, &mut encoded);
        assert_eq!(encoded[5], byte);
    }
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    assert_eq!(Record::decode(&bytes), Ok((record.clone(), &[][..])));
    bytes
}

fn records() -> [Record; 5] {
    [
        Record::Map {
            version: 1,
            birth: Birth(2),
            block: 3,
            place: Place(4),
            fingerprints: vec![Fingerprint([5; 16]), Fingerprint([6; 16])],
        },
        Record::Unmap { version: 1, birth: Birth(2), block: 3, count: 4 },
        Record::Catalog(Box::new(CatalogChange {
            change: Some(Change::RenameVolume(RenameVolume { volume: 1, name: "a".into() })),
        })),
        Record::Point { generation: 1, birth_epoch: Birth(2) },
        Record::Share {
            version: 1,
            birth: Birth(2),
            block: 3,
            place: Place(4),
            fingerprints: vec![Fingerprint([7; 16])],
        },
    ]
}

#[test]
fn journal_records() {
    let [map, unmap, catalog, point, share] = records();
    let layout = Layout::zeros(8 + 40 + 32)
        .put(0, &[1])
        .u32(4, 72)
        .u64(8, 1)
        .u64(16, 2)
        .u64(24, 3)
        .u64(32, 4)
        .u32(40, 2)
        .put(48, &[5; 16])
        .put(64, &[6; 16]);
    assert_eq!(hex(&encoded(&map)), hex(&layout.0));
    let layout = Layout::zeros(40).put(0, &[2]).u32(4, 32).u64(8, 1).u64(16, 2).u64(24, 3).u64(32, 4);
    assert_eq!(hex(&encoded(&unmap)), hex(&layout.0));
    // Field 2 (a message of 5 bytes): field 1 is 1, field 2 is "a".
    assert_eq!(hex(&encoded(&catalog)), "0300000007000000120508011201".to_owned() + "61");
    let layout = Layout::zeros(24).put(0, &[4]).u32(4, 16).u64(8, 1).u64(16, 2);
    assert_eq!(hex(&encoded(&point)), hex(&layout.0));
    let layout = Layout::zeros(8 + 40 + 16).put(0, &[5]).u32(4, 56).u64(8, 1).u64(16, 2);
    let layout = layout.u64(24, 3).u64(32, 4).u32(40, 1).put(48, &[7; 16]);
    assert_eq!(hex(&encoded(&share)), hex(&layout.0));
}

/// Fields by number, as protobuf lays them out: number and type (1), length (1), bytes.
#[test]
fn changes_of_version_2() {
    let (relationship, incremental) = (vec![0xaa; 16], vec![0xbb; 16]);
    let staged = Some(StagedFor { relationship, incremental });
    let purpose = format!("0a10{}1210{}", "aa".repeat(16), "bb".repeat(16));
    let body = |change: Change| {
        let record = Record::Catalog(Box::new(CatalogChange { change: Some(change) }));
        hex(&encoded(&record)[8..])
    };
    let stage =
        Change::Stage(Stage { version: 1, volume: 2, base: 3, size_bytes: 5, staged: staged.clone() });
    assert_eq!(body(stage), format!("422e08011002180320052a24{purpose}"));
    let restage = Change::Restage(Restage { version: 1, size_bytes: 5, staged });
    assert_eq!(body(restage), format!("6a2a080110051a24{purpose}"));
    let rescue = Some(Snapshot { name: "r".into(), ..Default::default() });
    let replica = Some(Replica { source: "p".into(), ..Default::default() });
    let moved = MovedHead { volume: 1, base: 2, head: 3, rescue, sets_replica: true, replica };
    let moves = Change::MoveMain(MoveMain { moved: vec![moved], epoch: 9 });
    assert_eq!(body(moves), "62160a1208011002180322030a0172280132031a01701009");
}

#[test]
fn journal_batch() {
    let mut payload = Vec::new();
    records().iter().for_each(|r| r.encode(&mut payload));
    let header = BatchHeader {
        payload_bytes: payload.len(),
        pool: POOL,
        open_epoch: 1,
        sequence: 2,
        position: 0x3000,
        proven: 1,
        records: 5,
        previous: [9; 16],
        checksum: [0; 16],
    };
    let mut bytes = vec![0; ring_bytes(payload.len()) as usize];
    assert_eq!(bytes.len(), 4096);
    bytes[128..128 + payload.len()].copy_from_slice(&payload);
    let checksum = seal_batch(&mut bytes, payload.len(), &header);
    let layout = Layout::zeros(4096)
        .put(0, b"FSJBATCH")
        .u32(8, 5)
        .u32(12, payload.len() as u32)
        .put(16, POOL.as_bytes())
        .u64(32, 1)
        .u64(40, 2)
        .u64(48, 0x3000)
        .u64(56, 1)
        .u32(64, 5)
        .put(80, &[9; 16])
        .put(128, &payload);
    assert_eq!(checksum, xxhash_rust::xxh3::xxh3_128(&layout.0[..128 + payload.len()]).to_le_bytes());
    assert_eq!(hex(&checksum), "6cb4161d8ea73891d4b5bf3e49ffa3d4");
    assert_eq!(hex(&bytes), hex(&layout.put(96, &checksum).0));
    let (found, found_payload) = decode_batch(&bytes).unwrap();
    assert_eq!((found, found_payload), (BatchHeader { checksum, ..header }, payload.as_slice()));
}
