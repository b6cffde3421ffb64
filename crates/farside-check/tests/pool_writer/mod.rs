//! A pool written by hand from `docs/format.md`: no allocator, no overlay, no order of syncs; just points, nodes and
//! batches where the test wants them. What the store writes is never used here.

// Each test file compiles this for itself and uses its own part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

use farside_format::catalog::{Catalog, CatalogChange, Change, Snapshot, Version, VersionKind, Volume};
use farside_format::fingerprint::{FAN_OUT, FAN_OUT_BITS, level_for, span};
use farside_format::free_map::{BlockState, set_state};
use farside_format::journal::{BATCH_HEADER_BYTES, BatchHeader, Record, ring_bytes, seal_batch};
use farside_format::owner_counts::{PLACES_PER_BLOCK, set_extra_owners, table_blocks};
use farside_format::superblock::{JOURNAL_START, SUPERBLOCK_PLACES};
use farside_format::{
    Birth, ContentRoot, Fingerprint, Node, Place, Pointer, Superblock, TreeKind, TreeReference,
};
use farside_platform::SimulatedDisk;
use uuid::Uuid;

pub const BLOCK: u64 = 4096;
pub const JOURNAL_BLOCKS: u64 = 1024;
pub const POOL_BLOCKS: u64 = 8192;
/// Data blocks, leaves and chunks of the free map are laid here, one after the other.
const SINGLES_START: u64 = JOURNAL_START + JOURNAL_BLOCKS;
/// Inner nodes are laid here, each with its twin 256 further.
const TWINS_START: u64 = 6144;

/// Blocks of one version: where each lies.
pub type Blocks = BTreeMap<u64, Pointer>;

/// A node or data block that something refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    Data(TreeKind),
    Leaf(TreeKind),
    Inner(TreeKind),
    Twin(TreeKind),
}

#[derive(Default)]
pub struct Contents {
    pub catalog: Catalog,
    pub blocks: BTreeMap<u64, Blocks>,
}

/// Kind and family, level, position, and (place, birth) of the children.
type NodeContent = (u64, u8, u64, Vec<(u64, u64)>);

pub struct PoolWriter {
    pub disk: SimulatedDisk,
    pub pool: Uuid,
    next_single: u64,
    next_twin: u64,
    next_content: u8,
    /// Nodes by what they are: an unchanged node is shared.
    shared: HashMap<NodeContent, Pointer>,
    nodes: HashMap<u64, Node>,
    /// Every block referred to by any point, and what it is.
    pub pieces: BTreeMap<u64, Piece>,
    used_before: BTreeSet<u64>,
    /// Owners beyond the first that the next points' tables name, by place.
    pub extra_owners: BTreeMap<u64, u32>,
    position: u64,
    pub sequence: u64,
    chain: [u8; 16],
    pub batches: Vec<(u64, u64)>,
    pub superblock: Option<Superblock>,
}

impl PoolWriter {
    pub fn new() -> PoolWriter {
        PoolWriter {
            disk: SimulatedDisk::new("hand-written", POOL_BLOCKS * BLOCK).without_history(),
            pool: Uuid::from_u128(0x0f0f_1234),
            next_single: SINGLES_START,
            next_twin: 0,
            next_content: 0,
            shared: HashMap::new(),
            nodes: HashMap::new(),
            pieces: BTreeMap::new(),
            used_before: BTreeSet::new(),
            extra_owners: BTreeMap::new(),
            position: 0,
            sequence: 1,
            chain: [0; 16],
            batches: Vec::new(),
            superblock: None,
        }
    }

    fn single(&mut self) -> u64 {
        self.next_single += 1;
        assert!(self.next_single < TWINS_START);
        self.next_single - 1
    }

    fn twin(&mut self) -> u64 {
        let i = self.next_twin;
        self.next_twin += 1;
        TWINS_START + i / 256 * 512 + i % 256
    }

    /// New content at a new place; zeros after `bytes`.
    pub fn data(&mut self, birth: u64, bytes: usize) -> Pointer {
        self.next_content = self.next_content.wrapping_add(1).max(1);
        let place = self.single();
        let mut block = [0; BLOCK as usize];
        for (i, byte) in block[..bytes].iter_mut().enumerate() {
            *byte = self.next_content ^ (place as u8) ^ (i / 97) as u8;
        }
        self.disk.damage(place * BLOCK, &block);
        let fingerprint = Fingerprint::of_block(&block);
        assert!(!fingerprint.is_hole());
        self.pieces.insert(place, Piece::Data(TreeKind::Volume));
        Pointer { fingerprint, place: Place(place), birth: Birth(birth) }
    }

    /// Writes the nodes over `blocks`, sharing those that exist.
    pub fn tree(&mut self, kind: TreeKind, family: u64, blocks: &Blocks, length_bytes: u64) -> TreeReference {
        let Some(&last) = blocks.keys().last() else {
            return TreeReference { length_bytes, ..Default::default() };
        };
        let top = level_for(last + 1);
        let mut below: BTreeMap<u64, (Pointer, u64)> = blocks.iter().map(|(b, p)| (*b, (*p, 1))).collect();
        for level in 1..=top {
            let mut nodes: BTreeMap<u64, (Box<[Pointer; FAN_OUT]>, u64)> = BTreeMap::new();
            for (position, (pointer, mapped)) in below {
                let node = nodes
                    .entry(position >> FAN_OUT_BITS)
                    .or_insert_with(|| (Box::new([Pointer::HOLE; FAN_OUT]), 0));
                node.0[position as usize % FAN_OUT] = pointer;
                node.1 += mapped;
            }
            below = nodes
                .into_iter()
                .map(|(position, (children, mapped))| {
                    (position, (self.node(kind, family, level, position, children, mapped), mapped))
                })
                .collect();
        }
        TreeReference { root: below[&0].0, level: top, length_bytes }
    }

    fn node(
        &mut self,
        kind: TreeKind,
        family: u64,
        level: u8,
        position: u64,
        children: Box<[Pointer; FAN_OUT]>,
        mapped_blocks: u64,
    ) -> Pointer {
        let key = children.iter().map(|c| (c.place.0, c.birth.0)).collect();
        let key = (family << 8 | kind as u64, level, position, key);
        if let Some(pointer) = self.shared.get(&key) {
            return *pointer;
        }
        let birth = children.iter().map(|c| c.birth).max().unwrap();
        let place = Place(if level == 1 { self.single() } else { self.twin() });
        let node =
            Node { level, kind, family, position, birth, mapped_blocks, lost_blocks: 0, place, children };
        let pointer = self.put(&node);
        self.pieces.insert(place.0, if level == 1 { Piece::Leaf(kind) } else { Piece::Inner(kind) });
        if level > 1 {
            self.pieces.insert(place.0 + 256, Piece::Twin(kind));
        }
        self.shared.insert(key, pointer);
        pointer
    }

    /// Writes a node at its place, twice if it is an inner one.
    pub fn put(&mut self, node: &Node) -> Pointer {
        let mut block = [0; BLOCK as usize];
        node.encode(self.pool, &mut block);
        self.disk.damage(node.place.0 * BLOCK, &block);
        if node.level > 1 {
            self.disk.damage((node.place.0 + 256) * BLOCK, &block);
        }
        self.nodes.insert(node.place.0, node.clone());
        Pointer { fingerprint: node.fingerprint(), place: node.place, birth: node.birth }
    }

    pub fn node_at(&self, place: u64) -> Node {
        self.nodes[&place].clone()
    }

    /// Places that a tree holds from block `from` on.
    fn mark(&self, pointer: &Pointer, level: u8, position: u64, from: u64, used: &mut BTreeSet<u64>) {
        if pointer.is_hole() || (position + 1) * span(level) <= from {
            return;
        }
        used.insert(pointer.place.0);
        if level > 1 {
            used.insert(pointer.place.0 + 256);
        }
        if level > 0 {
            for (i, child) in self.nodes[&pointer.place.0].children.iter().enumerate() {
                self.mark(child, level - 1, position << FAN_OUT_BITS | i as u64, from, used);
            }
        }
    }

    /// Writes a consistency point into a slot. `spoil` changes the catalog after the trees were filled in, and the free
    /// map's bytes, to make points that are wrong.
    pub fn point(
        &mut self,
        slot: usize,
        generation: u64,
        birth_epoch: u64,
        contents: &mut Contents,
        spoil: impl FnOnce(&mut PoolWriter, &mut Catalog, &mut BTreeMap<u64, BlockState>),
    ) {
        let mut used: BTreeSet<u64> = (0..SINGLES_START).collect();
        for version in &mut contents.catalog.versions {
            let family = contents.catalog.volumes.iter().find(|v| v.id == version.volume).unwrap().family;
            let tree = self.tree(TreeKind::Volume, family, &contents.blocks[&version.id], version.size_bytes);
            version.set_tree(&tree);
            self.mark(&tree.root, tree.level, 0, version.reaped_blocks, &mut used);
        }
        count_owned(contents);
        let mut catalog = contents.catalog.clone();
        let mut states = BTreeMap::new();
        spoil(self, &mut catalog, &mut states);
        let bytes = prost::Message::encode_to_vec(&catalog);
        let mut blocks = Blocks::new();
        for (i, chunk) in bytes.chunks(BLOCK as usize).enumerate() {
            let mut block = [0; BLOCK as usize];
            block[..chunk.len()].copy_from_slice(chunk);
            blocks.insert(i as u64, self.pool_data(TreeKind::Catalog, birth_epoch - 1, &block));
        }
        let catalog = self.tree(TreeKind::Catalog, 0, &blocks, bytes.len() as u64);
        self.mark(&catalog.root, catalog.level, 0, 0, &mut used);
        let owner_counts = self.owner_counts(birth_epoch - 1);
        self.mark(&owner_counts.root, owner_counts.level, 0, 0, &mut used);
        // One chunk and one leaf hold the free map of so small a pool; both are in it.
        let chunk_place = self.next_single;
        used.extend([chunk_place, chunk_place + 1]);
        let mut chunk = [0; BLOCK as usize];
        for &place in &used {
            set_state(&mut chunk, place, BlockState::InUse);
        }
        for &place in self.used_before.difference(&used) {
            set_state(&mut chunk, place, BlockState::Waiting);
        }
        for (place, state) in states {
            set_state(&mut chunk, place, state);
        }
        let pointer = self.pool_data(TreeKind::FreeMap, birth_epoch - 1, &chunk);
        assert_eq!(pointer.place.0, chunk_place);
        let free_map = self.tree(TreeKind::FreeMap, 0, &Blocks::from([(0, pointer)]), BLOCK);
        assert_eq!(free_map.root.place.0, chunk_place + 1);
        self.used_before = used;
        let superblock = Superblock {
            pool: self.pool,
            copy: farside_format::superblock::CopyMark::default(),
            pool_blocks: POOL_BLOCKS,
            journal_blocks: JOURNAL_BLOCKS,
            generation,
            open_epoch: 1,
            birth_epoch,
            journal_position: self.position,
            journal_sequence: self.sequence,
            journal_chain: self.chain,
            catalog,
            free_map,
            owner_counts,
        };
        self.disk.damage(SUPERBLOCK_PLACES[slot] * BLOCK, superblock.encode().as_slice());
        self.superblock = Some(superblock);
    }

    fn owner_counts(&mut self, birth: u64) -> TreeReference {
        let mut table: BTreeMap<u64, [u8; BLOCK as usize]> = BTreeMap::new();
        for (place, extra) in &self.extra_owners {
            let block = table.entry(place / PLACES_PER_BLOCK).or_insert([0; BLOCK as usize]);
            set_extra_owners(block, place % PLACES_PER_BLOCK, *extra);
        }
        let blocks: Blocks = table
            .iter()
            .map(|(index, block)| (*index, self.pool_data(TreeKind::OwnerCounts, birth, block)))
            .collect();
        let length = if blocks.is_empty() { 0 } else { table_blocks(POOL_BLOCKS) * BLOCK };
        self.tree(TreeKind::OwnerCounts, 0, &blocks, length)
    }

    fn pool_data(&mut self, kind: TreeKind, birth: u64, block: &[u8]) -> Pointer {
        let place = self.single();
        self.disk.damage(place * BLOCK, block);
        self.pieces.insert(place, Piece::Data(kind));
        Pointer { fingerprint: Fingerprint::of_block(block), place: Place(place), birth: Birth(birth) }
    }

    /// Appends a batch to the journal.
    pub fn batch(&mut self, proven: u64, records: &[Record]) {
        let mut payload = Vec::new();
        for record in records {
            record.encode(&mut payload);
        }
        let mut bytes = vec![0; ring_bytes(payload.len()) as usize];
        bytes[BATCH_HEADER_BYTES..][..payload.len()].copy_from_slice(&payload);
        let header = BatchHeader {
            payload_bytes: payload.len(),
            pool: self.pool,
            open_epoch: 1,
            sequence: self.sequence,
            position: self.position,
            proven,
            records: records.len() as u32,
            previous: self.chain,
            checksum: [0; 16],
        };
        self.chain = seal_batch(&mut bytes, payload.len(), &header);
        let place = JOURNAL_START + self.position / BLOCK % JOURNAL_BLOCKS;
        self.disk.damage(place * BLOCK, &bytes);
        self.batches.push((self.sequence, place));
        self.position += bytes.len() as u64;
        self.sequence += 1;
    }
}

/// Fills in what each version owns: mappings born after its parent was frozen, of whoever has them still.
fn count_owned(contents: &mut Contents) {
    let found: BTreeMap<u64, (u64, u64, u64)> =
        contents.catalog.versions.iter().map(|v| (v.id, (v.parent, v.frozen, v.reaped_blocks))).collect();
    let mut owned: BTreeSet<(u64, u64, u64, u64)> = BTreeSet::new();
    for (id, blocks) in &contents.blocks {
        let Some((_, _, reaped)) = found.get(id) else { continue };
        for (block, pointer) in blocks.range(reaped..) {
            let mut owner = *id;
            while let Some((_, frozen, _)) = found.get(&found[&owner].0)
                && pointer.birth.0 <= *frozen
            {
                owner = found[&owner].0;
            }
            owned.insert((owner, *block, pointer.place.0, pointer.birth.0));
        }
    }
    for version in &mut contents.catalog.versions {
        version.owned_blocks = owned.iter().filter(|(owner, ..)| *owner == version.id).count() as u64;
    }
}

pub fn map(version: u64, block: u64, pointer: &Pointer) -> Record {
    Record::Map {
        version,
        birth: pointer.birth,
        block,
        place: pointer.place,
        fingerprints: vec![pointer.fingerprint],
    }
}

pub fn change(change: Change) -> Record {
    Record::Catalog(Box::new(CatalogChange { change: Some(change) }))
}

pub fn volume(id: u64, name: &str, family: u64, head: u64) -> Volume {
    Volume { id, uuid: vec![id as u8; 16], name: name.into(), family, head, ..Default::default() }
}

pub fn version(id: u64, volume: u64, parent: u64, kind: VersionKind, size_bytes: u64) -> Version {
    Version { id, volume, parent, kind: kind as i32, size_bytes, ..Default::default() }
}

pub fn description(name: &str) -> Snapshot {
    Snapshot { name: name.into(), uuid: vec![9; 16], ..Default::default() }
}

/// The content root computed the straight way, from nothing but fingerprints.
pub fn root_of(blocks: &Blocks, size_bytes: u64) -> ContentRoot {
    let mut below: BTreeMap<u64, Fingerprint> = blocks.iter().map(|(b, p)| (*b, p.fingerprint)).collect();
    for level in 1..=6 {
        let mut nodes: BTreeMap<u64, [Fingerprint; FAN_OUT]> = BTreeMap::new();
        for (position, fingerprint) in below {
            nodes.entry(position >> FAN_OUT_BITS).or_insert([Fingerprint::HOLE; FAN_OUT])
                [position as usize % FAN_OUT] = fingerprint;
        }
        below = nodes.into_iter().map(|(p, n)| (p, Fingerprint::of_node(level, &n))).collect();
    }
    ContentRoot::new(below.get(&0).copied().unwrap_or(Fingerprint::HOLE), size_bytes)
}

pub const ALPHA: u64 = 1;
pub const ALPHA_HEAD: u64 = 3;
pub const BETA: u64 = 4;
pub const BETA_HEAD: u64 = 6;
pub const MONDAY: u64 = 7;
pub const GAMMA_HEAD: u64 = 10;
pub const ALPHA_BYTES: u64 = 1000 * BLOCK - 100;
pub const BETA_BYTES: u64 = 20_000 * BLOCK;

/// Two volumes, a snapshot between two points, and a journal tail of two batches: 5 (proven by 6) and 6.
pub struct Story {
    pub writer: PoolWriter,
    /// As of the newest point.
    pub contents: Contents,
    /// After replay: version to blocks.
    pub replayed: BTreeMap<u64, (Blocks, u64)>,
    /// The data that batches 5 and 6 map.
    pub tail_data: [u64; 2],
}

/// Writes the story. `spoil` acts on the newest point, see [`PoolWriter::point`].
pub fn story(spoil: impl FnOnce(&mut PoolWriter, &mut Catalog, &mut BTreeMap<u64, BlockState>)) -> Story {
    let mut w = PoolWriter::new();
    let mut alpha = Blocks::new();
    for block in 0..200 {
        alpha.insert(block, w.data(1, BLOCK as usize));
    }
    alpha.insert(999, w.data(1, BLOCK as usize - 100));
    let mut beta = Blocks::new();
    for block in [5, 16_387] {
        beta.insert(block, w.data(1, BLOCK as usize));
    }
    let mut contents = Contents {
        catalog: Catalog {
            next_id: 7,
            volumes: vec![volume(ALPHA, "alpha", 2, ALPHA_HEAD), volume(BETA, "beta", 5, BETA_HEAD)],
            versions: vec![
                version(ALPHA_HEAD, ALPHA, 0, VersionKind::Head, ALPHA_BYTES),
                version(BETA_HEAD, BETA, 0, VersionKind::Head, BETA_BYTES),
            ],
            unattributed_blocks_max: 0,
        },
        blocks: BTreeMap::from([(ALPHA_HEAD, alpha.clone()), (BETA_HEAD, beta.clone())]),
    };
    w.point(0, 1, 2, &mut contents, |_, _, _| {});

    alpha.insert(10, w.data(2, BLOCK as usize));
    w.batch(0, &[map(ALPHA_HEAD, 10, &alpha[&10])]);
    let monday = alpha.clone();
    w.batch(
        1,
        &[change(Change::Freeze(farside_format::catalog::Freeze {
            frozen: vec![farside_format::catalog::FrozenHead {
                head: ALPHA_HEAD,
                version: MONDAY,
                snapshot: Some(description("monday")),
            }],
            epoch: 2,
        }))],
    );
    alpha.insert(20, w.data(3, BLOCK as usize));
    alpha.remove(&30);
    alpha.insert(999, w.data(3, 50));
    w.batch(
        2,
        &[
            map(ALPHA_HEAD, 20, &alpha[&20]),
            Record::Unmap { version: ALPHA_HEAD, birth: Birth(3), block: 30, count: 1 },
            map(ALPHA_HEAD, 999, &alpha[&999]),
        ],
    );
    w.batch(3, &[Record::Point { generation: 2, birth_epoch: Birth(4) }]);

    let mut snapshot = version(MONDAY, ALPHA, 0, VersionKind::Snapshot, ALPHA_BYTES);
    snapshot.frozen = 2;
    snapshot.snapshot = Some(description("monday"));
    contents.catalog.next_id = 8;
    contents.catalog.versions[0].parent = MONDAY;
    contents.catalog.versions.push(snapshot);
    contents.blocks.insert(ALPHA_HEAD, alpha.clone());
    contents.blocks.insert(MONDAY, monday.clone());
    w.point(1, 2, 4, &mut contents, spoil);

    let (in_beta, in_gamma) = (w.data(4, BLOCK as usize), w.data(4, BLOCK as usize));
    beta.insert(6, in_beta);
    w.batch(4, &[map(BETA_HEAD, 6, &in_beta)]);
    let create = farside_format::catalog::CreateVolume {
        volume: Some(volume(8, "gamma", 9, GAMMA_HEAD)),
        size_bytes: 3 * BLOCK,
    };
    w.batch(5, &[change(Change::CreateVolume(create)), map(GAMMA_HEAD, 1, &in_gamma)]);
    let replayed = BTreeMap::from([
        (ALPHA_HEAD, (alpha, ALPHA_BYTES)),
        (MONDAY, (monday, ALPHA_BYTES)),
        (BETA_HEAD, (beta, BETA_BYTES)),
        (GAMMA_HEAD, (Blocks::from([(1, in_gamma)]), 3 * BLOCK)),
    ]);
    Story { writer: w, contents, replayed, tail_data: [in_beta.place.0, in_gamma.place.0] }
}
