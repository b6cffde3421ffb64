//! Making a pool, and opening one: choose a superblock, load the last point, replay the journal, make a new point.
//!
//! The rules are in `docs/format.md`, "Consistency points and recovery". Everything up to the first write can be
//! repeated; a crash while opening changes nothing that the next opening needs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::catalog::{Catalog, Change};
use farside_format::claim::CLAIM_PLACE;
use farside_format::fingerprint::{FAN_OUT, level_for};
use farside_format::free_map::BLOCKS_PER_CHUNK;
use farside_format::journal::Record;
use farside_format::occupant::{HEAD_BYTES, TAIL_BYTES, recognise};
use farside_format::owner_counts::table_blocks;
use farside_format::superblock::{CopyMark, JOURNAL_BLOCKS_MIN, JOURNAL_START, SUPERBLOCK_PLACES};
use farside_format::{Birth, Fingerprint, FormatError, Pointer, Superblock, TreeReference};
use farside_platform::{BLOCK_BYTES, BlockBuffer, BlockDevice};
use uuid::Uuid;

use crate::allocator::Allocator;
use crate::background;
use crate::claim::Claim;
use crate::copies;
use crate::delta::{self, ChangeEffects};
use crate::error::{Result, StoreError};
use crate::io::account;
use crate::journal_load::{JournalLoad, steps};
use crate::nodes::{NodeReader, TreeIdentity};
use crate::owner_counts::OwnerCounts;
use crate::point::{CATALOG_TREE, FREE_MAP_TREE, OWNER_COUNTS_TREE, writer_blocks};
use crate::pool::{Pool, PoolOptions, State, SystemTrees, catalog_growth};
use crate::ring::{Pending, ReadBatch, RingEnd, RingReader, RingWriter, read_again};
use crate::versions::{Versions, blocks};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Largest journal that a new pool gets, blocks (256 MiB); a pool gives it 1/64 of its space.
const NEW_JOURNAL_BLOCKS_MAX: u64 = 65536;
/// What is read at once to see what a device holds.
const READ_BYTES: usize = 1 << 20;
/// Blocks a pool needs besides its journal to hold anything at all.
const DATA_BLOCKS_MIN: u64 = 1536;

impl Pool {
    /// Makes a pool on a blank device and opens it. One that holds anything is refused: `occupants` says what.
    pub fn create(device: Arc<dyn BlockDevice>, options: PoolOptions) -> Result<Arc<Pool>> {
        let found = occupants(&*device)?;
        if !found.is_empty() {
            return Err(StoreError::Occupied { device: device.name(), found });
        }
        Self::create_over(device, options)
    }

    /// Makes a pool on a device and opens it. What was on the device is lost, whatever it was.
    pub fn create_over(device: Arc<dyn BlockDevice>, options: PoolOptions) -> Result<Arc<Pool>> {
        let pool_blocks = device.bytes() / BLOCK;
        let journal_blocks = (pool_blocks / 64).clamp(JOURNAL_BLOCKS_MIN, NEW_JOURNAL_BLOCKS_MAX);
        let first = JOURNAL_START + journal_blocks;
        if pool_blocks < first + DATA_BLOCKS_MIN {
            return Err(StoreError::TooSmall {
                device: device.name(),
                needed: (JOURNAL_START + JOURNAL_BLOCKS_MIN + DATA_BLOCKS_MIN) * BLOCK,
                found: device.exact_bytes(),
            });
        }
        // Before anything is overwritten that another may have open.
        let id = Uuid::from_bytes(options.randomness.uuid_bytes());
        let claim = options.claim.clone().map(|claim| Claim::take(&device, id, claim, &*options.randomness));
        let mut claim = claim.transpose()?.flatten();
        // A journal that was never written costs twice per flush: write it now. Zeros end it, too.
        let zeros = BlockBuffer::zeroed(256);
        let mut at = 0;
        while at < first {
            let take = if at <= CLAIM_PLACE { 1 } else { (first - at).min(256) };
            if at != CLAIM_PLACE || claim.is_none() {
                device.write_at(at * BLOCK, &zeros[..(take * BLOCK) as usize])?;
            }
            at += take;
        }
        if let Some(claim) = &mut claim {
            claim.renew()?;
        }
        let superblock = Superblock {
            pool: id,
            copy: CopyMark::default(),
            pool_blocks,
            journal_blocks,
            generation: 0,
            open_epoch: 1,
            birth_epoch: 1,
            journal_position: 0,
            journal_sequence: 1,
            journal_chain: [0; 16],
            catalog: TreeReference::default(),
            free_map: TreeReference::default(),
            owner_counts: TreeReference::default(),
        };
        let nodes = NodeReader::new(device.clone(), &superblock, options.node_cache_bytes);
        let allocator = Allocator::new(pool_blocks, first);
        let versions = Versions::new();
        let loaded = Loaded::new(versions, allocator, Vec::new(), Birth(1), 0);
        let end = RingReader::new(&*device, &superblock).next;
        let (pool, _) =
            Self::start(device, superblock.clone(), superblock, 1, 0, options, nodes, loaded, end)?;
        pool.keep_claim(claim)?;
        pool.take_room_at_opening();
        // Two points: both slots hold one.
        pool.consistency_point()?;
        pool.consistency_point()?;
        Ok(pool)
    }

    /// Opens a pool: replays its journal, and goes on with it. The next consistency point comes when one is due: what an
    /// opening costs is bounded by what a journal may hold (`journal_load.rs`), not by the nodes that its changes lie under.
    ///
    /// If what the newest point wrote cannot be read, the older one and its longer journal serve, and a point is made at
    /// once. If that cannot be made, the pool is open for reading; a copy of a pool whose mirrors are to end is not open then.
    pub fn open(device: Arc<dyn BlockDevice>, options: PoolOptions) -> Result<Arc<Pool>> {
        let pool = Self::open_as_it_is(device, options)?;
        if pool.copy_mark().ends_mirrors
            && let Err(error) = pool.end_mirrors_of_copy()
        {
            // Nobody may use it with the mirrors of another.
            let _ = pool.close();
            return Err(StoreError::CopyNotMade { device: pool.device.name(), cause: error.to_string() });
        }
        Ok(pool)
    }

    fn open_as_it_is(device: Arc<dyn BlockDevice>, options: PoolOptions) -> Result<Arc<Pool>> {
        let [newest, older] = choose_superblocks(&*device)?;
        let (newest, slot) = newest.expect("one of the two was chosen");
        if newest.pool_blocks * BLOCK > device.bytes() {
            return Err(StoreError::TooSmall {
                device: device.name(),
                needed: newest.pool_blocks * BLOCK,
                found: device.exact_bytes(),
            });
        }
        // Before anything is read that another might still change.
        let claim =
            options.claim.clone().map(|claim| Claim::take(&device, newest.pool, claim, &*options.randomness));
        let is_claimed = claim.is_some();
        let mut claim = claim.transpose()?.flatten();
        let [newest, older] =
            if is_claimed { choose_superblocks(&*device)? } else { [Some((newest, slot)), older] };
        let (newest, slot) = newest.expect("one of the two was chosen");
        let nodes = NodeReader::new(device.clone(), &newest, options.node_cache_bytes);
        let other = older.as_ref().map(|(older, _)| older);
        let (copy, is_marked_anew) = copies::mark(&newest, other, options.as_copy, &*options.randomness)?;
        let (mut superblock, slot, (mut loaded, end)) = match (recover(&*device, &nodes, &newest), &older) {
            (Ok(recovered), _) => (newest.clone(), slot, recovered),
            (Err(error @ (StoreError::Corrupt { .. } | StoreError::Device(_))), Some((older, slot))) => {
                tracing::error!(pool = %newest.pool, "the newest consistency point cannot be read, the older one and the journal after it are taken instead: {error}");
                // Why the newest failed says more than why the older one does, too.
                let recovered = recover(&*device, &nodes, older).map_err(|_| error)?;
                (older.clone(), *slot, recovered)
            }
            (Err(error), _) => return Err(error),
        };
        loaded.generation = loaded.generation.max(newest.generation);
        let is_newest = superblock.generation == newest.generation;
        // Reading may have taken long, and whoever watched the claim meanwhile heard nobody: before the first write.
        if let Some(claim) = &mut claim {
            claim.renew()?;
        }
        // What was read may still sit in a volatile cache (the last daemon was killed, not the machine): before the
        // next batch claims that it is on the medium, make it so.
        device.sync()?;
        if is_marked_anew {
            tracing::warn!(pool = %copy.identity, device = device.name(), copy_of = %newest.identity(), "this copy of a pool \
                 becomes a pool of its own; its mirrors end");
            superblock.copy = copy;
        }
        // A slot, or a point, that cannot be read now may come back with nodes that are about to be overwritten.
        if older.is_none() || !is_newest || is_marked_anew {
            if older.is_none() {
                tracing::error!(pool = %superblock.pool, "one superblock is damaged; it is rewritten from the other. \
                     Nothing is lost, but the medium loses data: replace it");
            }
            let other = SUPERBLOCK_PLACES[1 - slot];
            device.write_at(other * BLOCK, &BlockBuffer::copy_of(&*superblock.encode()))?;
            device.sync()?;
            if is_marked_anew {
                let own = SUPERBLOCK_PLACES[slot];
                device.write_at(own * BLOCK, &BlockBuffer::copy_of(&*superblock.encode()))?;
                device.sync()?;
            }
            // Both superblocks hold the same point now: nothing needs what waits for another.
            loaded.allocator.free_waiting();
        }
        // The older superblock stays good for opening until the next point takes its slot: so does its journal.
        // Unless that leaves the ring too little room for a point; then one is made at once.
        let ring_bytes = superblock.journal_blocks * BLOCK;
        let kept = older.as_ref().filter(|_| !is_marked_anew).map(|(older, _)| older.journal_position);
        let kept = kept.filter(|tail| end.position.saturating_sub(*tail) <= ring_bytes / 8 * 7);
        let tail = kept.unwrap_or(superblock.journal_position);
        // A life that made no point left its batches only.
        let open_epoch = newest.open_epoch.max(loaded.open_epoch) + 1;
        let raised = Superblock { open_epoch, ..superblock.clone() };
        let has_open_end = loaded.has_open_end;
        // The pool was about to grow: the older superblock does not know of what is new.
        if let Some((older, _)) = older.as_ref().filter(|_| is_newest) {
            loaded.allocator.withhold_from(older.pool_blocks);
        }
        let (pool, has_room) =
            Self::start(device, raised, superblock, slot, tail, options, nodes, loaded, end)?;
        pool.keep_claim(claim)?;
        pool.take_room_at_opening();
        let needs_a_point = !is_newest || kept.is_none() || !has_room;
        // What was taken must not be doubted by the next opening, nor what was dropped be found again, however long this life
        // is idle. If this fails it is latched: what can be read shall be readable. A point that follows does the same.
        if has_open_end
            && !needs_a_point
            && let Err(error) = pool.close_end_of_journal()
        {
            tracing::error!(pool = %pool.id(), "the journal's end could not be written: {error}");
        }
        // The free map of the older point does not know what the newest wrote: if that can be read again after a crash, it
        // must not be found overwritten. A lost superblock may have been the newest. And where the pairs for changed nodes are
        // not found again, the point takes what there is, before anything else does.
        let due = pool.point_is_due();
        if due && pool.options.background {
            pool.wake.signal();
        }
        // The failure is latched: the pool refuses changes and says why. What can be read shall be readable.
        if (needs_a_point || (due && !pool.options.background))
            && let Err(error) = pool.point_of_opening(needs_a_point)
        {
            if matches!(error, StoreError::NoRoomForPoint { .. }) {
                tracing::error!(pool = %pool.id(), "{error}");
                if has_open_end
                    && needs_a_point
                    && let Err(error) = pool.close_end_of_journal()
                {
                    tracing::error!(pool = %pool.id(), "the journal's end could not be written: {error}");
                }
                return Ok(pool);
            }
            tracing::error!(pool = %pool.id(), "the pool is open for reading only: {error}. Copy its volumes to \
                 another pool, or break the mirrors whose replicas are at other sites. farside pool check lists the \
                 damage");
        } else if let Err(error) = pool.finish_growth() {
            tracing::error!(pool = %pool.id(), "the pool has become larger, and does not use what is new yet: {error}");
        }
        Ok(pool)
    }

    #[allow(clippy::too_many_arguments)] // What the two ways to a pool found.
    fn start(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        published: Superblock,
        slot: usize,
        tail: u64,
        options: PoolOptions,
        nodes: NodeReader,
        mut loaded: Loaded,
        end: RingEnd,
    ) -> Result<(Arc<Pool>, bool)> {
        let mut ring = RingWriter::new(device.clone(), &superblock, &end);
        ring.tail = tail;
        let system = SystemTrees {
            generation: loaded.generation,
            newest_slot: slot,
            published,
            journal_position: superblock.journal_position,
            catalog: superblock.catalog,
            free_map: superblock.free_map,
            owner_counts: superblock.owner_counts,
            chunk_pointers: loaded.chunk_pointers,
        };
        let chunks = loaded.allocator.chunks();
        // The room that the last life had for what its records cost.
        let owed = std::mem::take(&mut loaded.owed);
        let mut dirty_pairs = Vec::with_capacity(owed.new_inner as usize);
        while (dirty_pairs.len() as u64) < owed.new_inner {
            match loaded.allocator.allocate_pair() {
                Some(pair) => dirty_pairs.push(pair),
                None => break,
            }
        }
        let owed_pairs = owed.new_inner - dirty_pairs.len() as u64;
        let has_room = owed_pairs == 0 && loaded.allocator.free_blocks() >= owed.new_leaves;
        let replayed = loaded.replayed;
        let state = State {
            name: options.name.clone(),
            versions: loaded.versions,
            epoch: loaded.epoch,
            allocator: loaded.allocator,
            pending: Pending::default(),
            appended: 0,
            dirty_leaves: owed.new_leaves,
            capturing_leaves: 0,
            promised_leaves: 0,
            dirty_pairs,
            chosen_leaves: Vec::new(),
            spare_pairs: Vec::new(),
            owed_pairs,
            spare_pairs_kept: crate::space::spare_pairs_kept(superblock.pool_blocks),
            written_blocks: 0,
            left_for_point: None,
            counting_blocks: replayed.written_blocks,
            changed: 0,
            changed_at_point: 0,
            room_given_back: Arc::default(),
            system_blocks: writer_blocks(superblock.catalog.length_bytes as usize, chunks),
            generation: loaded.generation,
            catalog_bytes: superblock.catalog.length_bytes,
            catalog_growth: loaded.catalog_growth,
            full_since: None,
            refused_since: None,
            overlay_bytes: owed.bytes,
            capturing_overlay_bytes: 0,
            promised_journal: 0,
            ring_used: ring.used(),
            load: loaded.load,
        };
        let background = options.background;
        let pool = Arc::new(Pool::assemble(device, &superblock, options, nodes, system, ring, state));
        if background {
            background::start(&pool)
                .map_err(|e| StoreError::Inconsistent(format!("no thread could be started: {e}")))?;
        }
        pool.counters.replayed_records.store(replayed.records, Ordering::Relaxed);
        pool.counters.replayed_steps.store(replayed.steps, Ordering::Relaxed);
        pool.counters.verified_blocks.store(replayed.verified_blocks, Ordering::Relaxed);
        Ok((pool, has_room))
    }
}

/// What a superblock's point and the journal after it say, and where the journal ends.
fn recover(
    device: &dyn BlockDevice,
    nodes: &NodeReader,
    superblock: &Superblock,
) -> Result<(Loaded, RingEnd)> {
    let mut loaded = load(device, nodes, superblock)?;
    let mut reader = RingReader::new(device, superblock);
    // A batch is replayed as soon as a later one says that it was synced, so that few are in memory: those since the last sync of
    // the journal's writer, whose data `journal_load.rs` bounds. All at once would be 200 MB. The last one waits for the ring's end.
    let mut unproven: VecDeque<ReadBatch> = VecDeque::new();
    let mut end = reader.next;
    let (mut replayed, mut last_replayed) = (0, 0);
    let mut take = |loaded: &mut Loaded, batch: &ReadBatch| {
        if !batch.records.is_empty() {
            last_replayed = batch.header.sequence;
        }
        replayed += 1;
        end = batch.end;
        replay(loaded, batch)
    };
    // What batches say was synced, and what those before the last one do.
    let (mut proven, mut proven_before) = (0, 0);
    while let Some(batch) = reader.next()? {
        loaded.open_epoch = loaded.open_epoch.max(batch.header.open_epoch);
        proven_before = proven;
        proven = proven.max(batch.header.proven);
        while let Some(first) = unproven.pop_front_if(|first| first.header.sequence <= proven) {
            take(&mut loaded, &first)?;
        }
        unproven.push_back(batch);
    }
    let next = reader.next;
    let proven_beyond = reader.proven_beyond()?;
    if proven_beyond >= next.sequence {
        return Err(StoreError::JournalDamaged { sequence: next.sequence });
    }
    let proven = proven.max(proven_beyond);
    // A point that began with the last batch and did not come to its end changed nothing, and nothing follows it: the next batch takes
    // its place. Else openings that fail one after the other would fill the ring. One that a batch beyond the end proves stays where it
    // is: a power failure while its place is taken would leave a hole in what is proven, and nothing would open the pool.
    let mut vouched = proven;
    let last = unproven.back().filter(|last| last.header.sequence > proven);
    if let Some([Record::Point { generation, .. }]) = last.map(|last| &last.records[..]) {
        loaded.generation = loaded.generation.max(*generation);
        unproven.pop_back();
        vouched = proven_before.max(proven_beyond);
    }
    // An empty batch of an opening needs no other to vouch for it.
    let is_open = |batch: &ReadBatch| batch.header.sequence > vouched && !batch.records.is_empty();
    let has_open = unproven.iter().any(is_open);
    for batch in unproven {
        if batch.header.sequence > proven && !data_is_there(device, &batch, &mut loaded.replayed)? {
            tracing::info!(
                sequence = batch.header.sequence,
                "the journal ends here: its data was never synced"
            );
            break;
        }
        take(&mut loaded, &batch)?;
    }
    loaded.has_open_end = reader.is_torn || has_open || last_replayed > vouched;
    tracing::info!(
        pool = %superblock.pool,
        device = device.name(),
        generation = superblock.generation,
        batches = replayed,
        records = loaded.replayed.records,
        steps = loaded.replayed.steps,
        "opening the pool"
    );
    // What was read is on the medium once the caller has synced.
    loaded.load.sync_begins();
    Ok((loaded, end))
}

/// What an opening paid for the journal.
#[derive(Clone, Copy, Default)]
struct Replayed {
    records: u64,
    /// See `journal_load.rs`.
    steps: u64,
    /// Blocks read because no sync vouched for them.
    verified_blocks: u64,
    /// Blocks that the journal says were written.
    written_blocks: u64,
}

/// What the last point and the journal say.
struct Loaded {
    versions: Versions,
    allocator: Allocator,
    chunk_pointers: Vec<Pointer>,
    epoch: Birth,
    /// Highest number a point ever had.
    generation: u64,
    /// Nodes that the next point must write for the records, and memory of the changes.
    owed: ChangeEffects,
    /// By how much the records can have let the catalog grow.
    catalog_growth: u64,
    load: JournalLoad,
    replayed: Replayed,
    /// Highest open epoch of a batch.
    open_epoch: u64,
    /// Whether batches at the journal's end, taken or not, are vouched for by nothing on the medium.
    has_open_end: bool,
}

impl Loaded {
    /// As of a point: no record was replayed.
    fn new(
        versions: Versions,
        allocator: Allocator,
        chunk_pointers: Vec<Pointer>,
        epoch: Birth,
        generation: u64,
    ) -> Loaded {
        Loaded {
            versions,
            allocator,
            chunk_pointers,
            epoch,
            generation,
            owed: ChangeEffects::default(),
            catalog_growth: 0,
            load: JournalLoad::default(),
            replayed: Replayed::default(),
            open_epoch: 0,
            has_open_end: false,
        }
    }
}

/// Which pool lies on a device; nothing is changed.
pub fn identity(device: &dyn BlockDevice) -> Result<Uuid> {
    let [newest, other] = choose_superblocks(device)?;
    let (newest, _) = newest.expect("one of the two was chosen");
    let (copy, _) = newest.mark(other.as_ref().map(|(other, _)| other));
    Ok(Superblock { copy, ..newest }.identity())
}

/// What is recognised on a device that is to become a pool; nothing if it is blank where others write first.
pub fn occupants(device: &dyn BlockDevice) -> Result<Vec<String>> {
    let bytes = device.bytes();
    let read = |from: u64, length: usize| {
        let mut buffer = BlockBuffer::zeroed(length.div_ceil(BLOCK_BYTES));
        for (at, part) in (from..).step_by(READ_BYTES).zip(buffer.chunks_mut(READ_BYTES)) {
            device.read_at(at, part)?;
        }
        Ok::<_, StoreError>(buffer)
    };
    let head = read(0, usize::try_from(bytes).unwrap_or(usize::MAX).min(HEAD_BYTES))?;
    let tail = usize::try_from(bytes).unwrap_or(usize::MAX).min(TAIL_BYTES);
    let tail = read(bytes - tail as u64, tail)?;
    Ok(recognise(&head, &tail, bytes))
}

pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    place: u64,
) -> Result<std::result::Result<Superblock, FormatError>> {
    let mut block = BlockBuffer::zeroed(1);
    read_again(device, place * BLOCK, &mut block)?;
    Ok(Superblock::decode(&block))
}

/// A sound superblock and its slot.
type Slot = Option<(Superblock, usize)>;

/// The newest sound superblock, and the other one if it is sound too, each with its slot. The first is always there.
fn choose_superblocks(device: &dyn BlockDevice) -> Result<[Slot; 2]> {
    if device.bytes() <= SUPERBLOCK_PLACES[1] * BLOCK {
        let found = device.exact_bytes();
        return Err(StoreError::TooSmall { device: device.name(), needed: 4 << 20, found });
    }
    // A slot that the device refuses is as good as a damaged one: either of the two opens the pool without loss.
    let slots = SUPERBLOCK_PLACES.map(|place| match read_superblock(device, place) {
        Ok(slot) => slot.map_err(SlotError::Format),
        Err(error) => Err(SlotError::Device(error)),
    });
    // One slot of another version is enough: whoever wrote it owes this version nothing about the other slot.
    for slot in &slots {
        if let Err(SlotError::Format(FormatError::Version { found, supported })) = slot {
            return Err(StoreError::OtherVersion {
                device: device.name(),
                found: *found,
                supported: *supported,
            });
        }
    }
    match slots {
        [Ok(a), Ok(b)] if a.pool == b.pool => {
            let (a, b) = (Some((a, 0)), Some((b, 1)));
            let b_is_newer = b.as_ref().map(|b| b.0.generation) > a.as_ref().map(|a| a.0.generation);
            Ok(if b_is_newer { [b, a] } else { [a, b] })
        }
        [Ok(_), Ok(_)] => {
            Err(StoreError::Inconsistent("the two superblocks belong to different pools".into()))
        }
        [Ok(a), Err(_)] => Ok([Some((a, 0)), None]),
        [Err(_), Ok(b)] => Ok([Some((b, 1)), None]),
        // Whether there is a pool at all is not known then.
        [Err(SlotError::Device(error)), Err(_)] | [Err(_), Err(SlotError::Device(error))] => Err(error),
        [Err(SlotError::Format(a)), Err(SlotError::Format(b))] => Err(StoreError::NoSuperblock {
            device: device.name(),
            slot_a: a.to_string(),
            slot_b: b.to_string(),
        }),
    }
}

/// Why a slot cannot be used.
enum SlotError {
    Device(StoreError),
    Format(FormatError),
}

/// Loads catalog, free map and owner counts of the point.
fn load(device: &dyn BlockDevice, nodes: &NodeReader, superblock: &Superblock) -> Result<Loaded> {
    let (first, pool_blocks) = (superblock.first_allocatable(), superblock.pool_blocks);
    if superblock.catalog.length_bytes > farside_format::catalog::CATALOG_BYTES_MAX {
        return Err(StoreError::Inconsistent("the catalog claims an impossible length".into()));
    }
    let pointers =
        leaves(nodes, CATALOG_TREE, &superblock.catalog, superblock.catalog.length_bytes.div_ceil(BLOCK))?;
    let mut bytes = Vec::with_capacity(pointers.len() * BLOCK_BYTES);
    for pointer in &pointers {
        bytes.extend_from_slice(&read_data(device, pointer, "the catalog")?);
    }
    bytes.truncate(superblock.catalog.length_bytes as usize);
    let catalog: Catalog = prost::Message::decode(bytes.as_slice())
        .map_err(|e| StoreError::Inconsistent(format!("the catalog cannot be decoded: {e}")))?;
    let versions = Versions::load(catalog)?;
    let mut allocator = Allocator::new(pool_blocks, first);
    let chunks = pool_blocks.div_ceil(BLOCKS_PER_CHUNK);
    let chunk_pointers = leaves(nodes, FREE_MAP_TREE, &superblock.free_map, chunks)?;
    for (chunk, pointer) in chunk_pointers.iter().enumerate() {
        if pointer.is_hole() {
            continue;
        }
        let data = read_data(device, pointer, "the free map")?;
        allocator.load_chunk(chunk as u64, &data).map_err(|problem| StoreError::Corrupt {
            what: "the free map".into(),
            place: pointer.place.0,
            problem,
        })?;
    }
    allocator.loaded();
    load_owner_counts(device, nodes, superblock, &mut allocator.owners)?;
    let (epoch, generation) = (Birth(superblock.birth_epoch), superblock.generation);
    Ok(Loaded::new(versions, allocator, chunk_pointers, epoch, generation))
}

fn load_owner_counts(
    device: &dyn BlockDevice,
    nodes: &NodeReader,
    superblock: &Superblock,
    owners: &mut OwnerCounts,
) -> Result<()> {
    let reference = &superblock.owner_counts;
    let blocks = table_blocks(superblock.pool_blocks);
    if reference.level != 0 && reference.level != level_for(blocks) {
        return Err(StoreError::Inconsistent("the owner counts claim an impossible height".into()));
    }
    // Most of the table is holes: walked, never laid out.
    let mut pending = vec![(reference.root, reference.level, 0)];
    while let Some((pointer, level, position)) = pending.pop() {
        if pointer.is_hole() {
            continue;
        }
        if level > 0 {
            let node = nodes.read(OWNER_COUNTS_TREE, level, position, &pointer)?;
            pending.extend(
                (position * FAN_OUT as u64..)
                    .zip(node.children.iter())
                    .map(|(at, child)| (*child, level - 1, at)),
            );
            continue;
        }
        let data = read_data(device, &pointer, "the owner counts")?;
        owners.load_block(position, &data, superblock.pool_blocks).map_err(|problem| {
            StoreError::Corrupt { what: "the owner counts".into(), place: pointer.place.0, problem }
        })?;
    }
    Ok(())
}

/// The data pointers of one of the pool's own trees, `count` of them.
fn leaves(
    nodes: &NodeReader,
    tree: TreeIdentity,
    reference: &TreeReference,
    count: u64,
) -> Result<Vec<Pointer>> {
    let mut pointers = vec![reference.root];
    for level in (1..=reference.level).rev() {
        let mut below = Vec::new();
        for (position, pointer) in pointers.iter().enumerate() {
            if below.len() as u64 >= count {
                break;
            }
            if pointer.is_hole() {
                below.extend([Pointer::HOLE; FAN_OUT]);
            } else {
                below.extend_from_slice(&nodes.read(tree, level, position as u64, pointer)?.children[..]);
            }
        }
        pointers = below;
    }
    pointers.resize(count as usize, Pointer::HOLE);
    Ok(pointers)
}

fn read_data(device: &dyn BlockDevice, pointer: &Pointer, what: &str) -> Result<BlockBuffer> {
    let mut block = BlockBuffer::zeroed(1);
    if pointer.is_hole() {
        return Ok(block);
    }
    device.read_at(pointer.place.0 * BLOCK, &mut block)?;
    if Fingerprint::of_block(&block) != pointer.fingerprint {
        return Err(StoreError::Corrupt {
            what: what.into(),
            place: pointer.place.0,
            problem: FormatError::Checksum { what: "data block" },
        });
    }
    Ok(block)
}

/// Whether all data that a batch's records tell of is on the device. What they share was written before: either an earlier
/// record, which ends the journal if its data is not there, tells of it, or the point.
fn data_is_there(device: &dyn BlockDevice, batch: &ReadBatch, replayed: &mut Replayed) -> Result<bool> {
    for record in &batch.records {
        let Record::Map { place, fingerprints, .. } = record else { continue };
        if (place.0 + fingerprints.len() as u64) * BLOCK > device.bytes() {
            return Ok(false);
        }
        replayed.verified_blocks += fingerprints.len() as u64;
        let mut data = BlockBuffer::zeroed(fingerprints.len());
        match read_again(device, place.0 * BLOCK, &mut data) {
            Ok(()) => {}
            // A write that a power failure interrupted can leave this, too.
            Err(error) if error.is_proof_of_damage() => return Ok(false),
            Err(error) => return Err(error),
        }
        let all = data.chunks(BLOCK_BYTES).zip(fingerprints).all(|(b, f)| Fingerprint::of_block(b) == *f);
        if !all {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies one batch to what the point said.
fn replay(loaded: &mut Loaded, batch: &ReadBatch) -> Result<()> {
    let problem =
        |what: String| StoreError::Inconsistent(format!("journal batch {}: {what}", batch.header.sequence));
    for record in &batch.records {
        loaded.load.add(record);
        loaded.replayed.records += 1;
        loaded.replayed.steps += steps(record);
        match record {
            Record::Map { version, birth, block, place, fingerprints }
            | Record::Share { version, birth, block, place, fingerprints } => {
                let count = fingerprints.len() as u64;
                let pointers: Vec<Pointer> = fingerprints
                    .iter()
                    .enumerate()
                    .map(|(i, f)| Pointer {
                        fingerprint: *f,
                        place: farside_format::Place(place.0 + i as u64),
                        birth: *birth,
                    })
                    .collect();
                check_target(loaded, *version, *birth, *block, count).map_err(problem)?;
                if matches!(record, Record::Share { .. }) {
                    loaded.allocator.claim_shared(*place, count).map_err(|b| {
                        problem(format!("pool block {b} gets one owner more while nothing uses it"))
                    })?;
                } else {
                    loaded.replayed.written_blocks += count;
                    loaded.allocator.claim(*place, count).map_err(|b| {
                        problem(format!("pool block {b} is mapped while something else uses it"))
                    })?;
                }
                loaded.versions.owns(*version, count);
                change(loaded, *version, count, |delta, level, effects| {
                    delta::map(delta, level, *block, &pointers, *birth, effects);
                })?;
            }
            Record::Unmap { version, birth, block, count } => {
                check_target(loaded, *version, *birth, *block, *count).map_err(problem)?;
                change(loaded, *version, *count, |delta, level, effects| {
                    delta::unmap(delta, level, *block, *count, *birth, effects);
                })?;
            }
            Record::Catalog(change) => {
                let change = change.change.as_ref().ok_or_else(|| problem("an unknown change".into()))?;
                // A tree that becomes higher gets a node for each level.
                let raised = match change {
                    Change::ResizeHead(c) => Some((c.version, c.size_bytes)),
                    Change::Restage(c) => Some((c.version, c.size_bytes)),
                    Change::Stage(c) => Some((c.base, c.size_bytes)),
                    _ => None,
                };
                if let Some((version, size_bytes)) = raised
                    && let Some(version) = loaded.versions.versions.get(&version)
                {
                    loaded.owed.new_inner += version.raising_to(size_bytes).new_inner;
                }
                loaded.catalog_growth += catalog_growth(change);
                loaded.versions.apply(change, &mut loaded.epoch)?;
            }
            Record::Point { generation, birth_epoch } => {
                // A point whose superblock was lost, or never written, keeps its number.
                loaded.generation = loaded.generation.max(*generation);
                if birth_epoch.0 != loaded.epoch.0 + 1 {
                    return Err(problem(format!("epoch {} follows {}", birth_epoch.0, loaded.epoch.0)));
                }
                loaded.epoch = *birth_epoch;
            }
        }
    }
    Ok(())
}

fn check_target(
    loaded: &Loaded,
    version: u64,
    birth: Birth,
    block: u64,
    count: u64,
) -> std::result::Result<(), String> {
    let Some(found) = loaded.versions.versions.get(&version).filter(|v| v.is_writable()) else {
        return Err(format!("version {version} cannot be written"));
    };
    if birth != loaded.epoch {
        return Err(format!("birth {} in epoch {}", birth.0, loaded.epoch.0));
    }
    // A shrink unmaps past the new end before it takes effect; the tree's own height bounds it.
    if block + count > farside_format::fingerprint::span(found.level()).max(blocks(found.size_bytes)) {
        return Err(format!("blocks {block}+{count} lie past the end of version {version}"));
    }
    Ok(())
}

fn change(
    loaded: &mut Loaded,
    version: u64,
    blocks: u64,
    change: impl FnOnce(&mut Option<Arc<delta::Delta>>, u8, &mut ChangeEffects),
) -> Result<()> {
    let entry = loaded.versions.version_mut(version)?;
    let mut effects = ChangeEffects { new_inner: entry.old_part(), ..ChangeEffects::default() };
    let level = entry.level();
    change(&mut entry.delta, level, &mut effects);
    loaded.versions.changed(version, blocks, None);
    loaded.owed.new_leaves += effects.new_leaves;
    loaded.owed.new_inner += effects.new_inner;
    loaded.owed.bytes += effects.bytes;
    account(&mut loaded.versions, &mut loaded.allocator, version, &effects)
}
