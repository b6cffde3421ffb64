//! A pool: the locks, the state they protect, durability, and admission of space.
//!
//! Lock order: `room_turn` → `maintenance` → `readers` → `ring` → `state`; a stripe lock comes before all of them, so that nobody who
//! has reserved room waits for one. Those of `known_data.rs` come before `readers` and `state`. None is held across a wait for a peer or a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use farside_format::catalog::{CatalogChange, Change};
use farside_format::journal::Record;
use farside_format::superblock::CopyMark;
use farside_format::{Birth, Place, Pointer, Superblock, TreeReference};
use farside_platform::{BLOCK_BYTES, BlockDevice, Clock, Randomness};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use uuid::Uuid;

use crate::allocator::Allocator;
use crate::allowance::Allowance;
use crate::claim::{ClaimOptions, Claimed};
use crate::error::{Result, StoreError};
use crate::journal_load::JournalLoad;
use crate::known_data::KnownData;
use crate::nodes::{NodeReader, TreeIdentity};
use crate::readers::Readers;
use crate::ring::{Pending, RingWriter};
use crate::versions::{VersionState, Versions};
use crate::view::View;
use crate::wake::Wake;
use crate::write_behind::WriteBehind;

/// What may be chosen when a pool is opened.
#[derive(Clone)]
pub struct PoolOptions {
    /// Wall time for `created_at`.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub randomness: Arc<dyn Randomness>,
    /// Memory for cached nodes, bytes.
    pub node_cache_bytes: u64,
    /// Memory for changes that no consistency point on the medium has, bytes. A point begins at half of it, so that the whole is enough
    /// unless writers are faster than the point; at one and a half they wait for it.
    pub overlay_bytes: u64,
    /// Memory for data of small writes that nobody has flushed, bytes, besides what operations under way hold; whoever finds more
    /// waits until it is written. 0: none waits.
    pub write_behind_bytes: u64,
    /// Memory for telling transfers what the pool holds already, bytes per TiB of pool, half of it at least; taken once a
    /// transfer asks, and only as much as what is held needs.
    pub known_data_bytes_per_tib: u64,
    /// Whether the pool has a thread of its own for points and reaping. Without, they run inside the calls that
    /// make them due (simulation).
    pub background: bool,
    /// How the pool is kept from being open twice; none where nobody else can reach it (simulation).
    pub claim: Option<ClaimOptions>,
    /// What is opened is a copy of another pool: it gets an identity of its own, and its mirrors end.
    pub as_copy: bool,
    /// What the pool is called by whoever opens it: errors then name its volumes `POOL/VOL`, as they were asked for.
    pub name: Option<String>,
}

impl PoolOptions {
    /// 64 MiB of nodes, 64 MiB of changes (some 200,000 scattered writes between two points), 8 MiB of data that waits, 128 MiB per TiB for
    /// known data, a background thread.
    pub fn new(clock: Arc<dyn Clock>, randomness: Arc<dyn Randomness>) -> PoolOptions {
        PoolOptions {
            clock,
            randomness,
            node_cache_bytes: 64 << 20,
            overlay_bytes: 64 << 20,
            write_behind_bytes: 8 << 20,
            known_data_bytes_per_tib: 128 << 20,
            background: true,
            claim: None,
            as_copy: false,
            name: None,
        }
    }
}

/// Figures that only grow, for metrics.
#[derive(Default)]
pub struct Counters {
    /// Bytes of data written by hosts and transfers.
    pub written_bytes: AtomicU64,
    /// Bytes of data read.
    pub read_bytes: AtomicU64,
    /// Flushes answered.
    pub flushes: AtomicU64,
    /// Syncs of the device for flushes; fewer than flushes under load (group commit).
    pub syncs: AtomicU64,
    /// Consistency points.
    pub points: AtomicU64,
    /// Records of the journal that opening the pool replayed, and the steps that they took: one for a record and one for each
    /// block mapped.
    pub replayed_records: AtomicU64,
    /// See above.
    pub replayed_steps: AtomicU64,
    /// Blocks that opening the pool read because no sync vouched for them.
    pub verified_blocks: AtomicU64,
    /// Blocks that did not match their fingerprint.
    pub corrupt_blocks: AtomicU64,
}

/// The pool's own trees, and what the next consistency point must know of the last. Behind the maintenance lock.
pub(crate) struct SystemTrees {
    pub(crate) generation: u64,
    pub(crate) newest_slot: usize,
    /// What this opening knows the newest superblock on the medium to be.
    pub(crate) published: Superblock,
    /// Journal position of the newest superblock.
    pub(crate) journal_position: u64,
    pub(crate) catalog: TreeReference,
    pub(crate) free_map: TreeReference,
    pub(crate) owner_counts: TreeReference,
    /// Pointers to the blocks of the free map, one per 64 MiB of pool.
    pub(crate) chunk_pointers: Vec<Pointer>,
}

/// What the state lock protects.
pub(crate) struct State {
    /// What whoever opened the pool calls it.
    pub(crate) name: Option<String>,
    pub(crate) versions: Versions,
    pub(crate) epoch: Birth,
    pub(crate) allocator: Allocator,
    pub(crate) pending: Pending,
    /// Records appended since the pool was opened.
    pub(crate) appended: u64,
    /// Leaves that the next point must write.
    pub(crate) dirty_leaves: u64,
    /// Leaves that the running point may still write.
    pub(crate) capturing_leaves: u64,
    /// Leaves promised to writes under way.
    pub(crate) promised_leaves: u64,
    /// Pairs set aside for inner nodes that the next point must write.
    pub(crate) dirty_pairs: Vec<Place>,
    /// Places for leaves of the point under way for which room was taken below; empty while there is plenty.
    pub(crate) chosen_leaves: Vec<Place>,
    /// Pairs set aside for whoever needs one next, so that taking and giving back is a push and a pop; the last
    /// ones are kept for catalog and free map.
    pub(crate) spare_pairs: Vec<Place>,
    /// Pairs that the next point needs and that are not set aside: none, unless a pool was opened that lacks them.
    pub(crate) owed_pairs: u64,
    /// How many of the spare ones stay for catalog and free map.
    pub(crate) spare_pairs_kept: usize,
    /// Data blocks written since the last capture: what they replaced is free two points later.
    pub(crate) written_blocks: u64,
    /// Data blocks written before it, while no point that began since has come to its end: what they replaced counts as used.
    pub(crate) counting_blocks: u64,
    /// Blocks that reaping left to versions whose changes, of which no point knows, may have replaced them: at most, and since when
    /// the first of them wait. The next point frees them.
    pub(crate) left_for_point: Option<(u64, Duration)>,
    /// Counts what may free space one day: operations accepted, and changes of the catalog.
    pub(crate) changed: u64,
    /// What it was at the last capture.
    pub(crate) changed_at_point: u64,
    /// Told whenever an operation under way gives back room.
    pub(crate) room_given_back: Arc<Condvar>,
    /// Blocks that catalog and free map take; what the owner counts take follows from [`Allocator::owners`].
    pub(crate) system_blocks: u64,
    /// Number of the last point on the medium.
    pub(crate) generation: u64,
    /// Bytes of the catalog as of the last point, and by how much it has grown since, at most.
    pub(crate) catalog_bytes: u64,
    /// See above.
    pub(crate) catalog_growth: u64,
    /// What `changed` was when the pool was last found full: nothing comes back until it moves.
    pub(crate) full_since: Option<u64>,
    /// And when a host was last told so.
    pub(crate) refused_since: Option<u64>,
    /// Memory of the deltas since the last capture.
    pub(crate) overlay_bytes: u64,
    /// Memory of those that the point under way writes, or that one which failed has left.
    pub(crate) capturing_overlay_bytes: u64,
    /// Bytes of journal promised to operations under way.
    pub(crate) promised_journal: u64,
    /// Bytes of the ring in use, as of the last batch or point.
    pub(crate) ring_used: u64,
    /// What an opening would have to replay.
    pub(crate) load: JournalLoad,
}

impl State {
    /// A volume's whole name, for whoever is told of it.
    pub(crate) fn full_name(&self, volume: &str) -> String {
        match &self.name {
            Some(pool) => format!("{pool}/{volume}"),
            None => volume.to_owned(),
        }
    }

    pub(crate) fn append(&mut self, record: &Record) {
        self.pending.push(record);
        self.load.add(record);
        self.appended += 1;
    }

    pub(crate) fn view(&self, version: &VersionState) -> View {
        let family = self.versions.volumes.get(&version.volume).map_or(0, |v| v.family);
        View::of(version, TreeIdentity { kind: farside_format::TreeKind::Volume, family })
    }

    /// Blocks set aside as pairs, and promised as leaves.
    pub(crate) fn reserved_blocks(&self) -> (u64, u64) {
        (2 * (self.dirty_pairs.len() + self.spare_pairs.len()) as u64, self.promised_blocks())
    }

    /// Blocks that must stay free for consequences already promised.
    pub(crate) fn promised_blocks(&self) -> u64 {
        self.dirty_leaves + self.capturing_leaves + self.promised_leaves
    }
}

/// A pool, open. Cheap to share behind an `Arc`; everything may be called from any thread.
pub struct Pool {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Data that is not there yet.
    pub(crate) behind: WriteBehind,
    /// What nodes and journal bear.
    pub(crate) id: Uuid,
    /// Which copy it is.
    pub(crate) copy: CopyMark,
    /// The mirrors that it brought along are not ended yet.
    pub(crate) ends_mirrors: AtomicBool,
    /// See [`Pool::pool_blocks`].
    blocks: AtomicU64,
    pub(crate) journal_blocks: u64,
    pub(crate) open_epoch: u64,
    /// Where the journal ended then.
    pub(crate) opened_at: u64,
    /// Up to where it is on the medium.
    pub(crate) durable_to: AtomicU64,
    pub(crate) options: PoolOptions,
    pub(crate) nodes: NodeReader,
    pub(crate) maintenance: Mutex<SystemTrees>,
    /// Every read of blocks or nodes is one of them: what one of them may look at does not become free.
    pub(crate) readers: Readers,
    pub(crate) ring: Mutex<RingWriter>,
    pub(crate) state: Mutex<State>,
    /// Records known to be on the medium.
    pub(crate) durable: AtomicU64,
    failed: Mutex<Option<String>>,
    /// Why the device refused the data that was to be written last; none if it took it. Nothing is in doubt then, but somebody
    /// has to be told.
    pub(crate) refused_write: Mutex<Option<String>>,
    /// Blocks that were left below the device when somebody looked last; all there are if it needs none.
    pub(crate) left_below_blocks: AtomicU64,
    /// Something was deleted and has not come free yet, as far as is known.
    pub(crate) frees: AtomicBool,
    /// See `staging_below.rs`.
    pub(crate) staging_allowance: Allowance,
    /// Why no point can be made for want of room below the device, if so. Nothing is in doubt then.
    pub(crate) refused_point: Mutex<Option<String>>,
    /// One sync at a time: a kernel tells of a lost write once, so whoever hears of it must be heard by all.
    syncing: Mutex<()>,
    pub(crate) stripes: Vec<RwLock<()>>,
    /// How many look for room that was not there: newcomers stand behind them.
    pub(crate) seeking_room: AtomicUsize,
    /// See [`Pool::settle`].
    pub(crate) settle_wanted: AtomicBool,
    /// Held by the one who makes points for it.
    pub(crate) room_turn: Mutex<()>,
    pub(crate) room_given_back: Arc<Condvar>,
    pub(crate) wake: Arc<Wake>,
    /// What tells others that the pool is open here, if they could open it; given back with [`Pool::close`].
    pub(crate) claimed: Mutex<Option<Claimed>>,
    /// What transfers may ask for.
    pub(crate) known: KnownData,
    /// See [`Pool::set_host_reserve`].
    pub(crate) host_reserve_percent: AtomicU8,
    /// Figures for metrics.
    pub counters: Counters,
}

/// Locks against two writers of one partial block. More than the writers there can be.
pub(crate) const STRIPES: usize = 128;

/// Growth of the catalog after which a point is due: what it will take is kept free meanwhile.
const CATALOG_GROWTH_MAX: u64 = 4 << 20;
/// Part of the pool that is free when points begin to come for want of room, and part of that which they must be able to free.
const FREE_SHARE_MIN: u64 = 4;
/// See above.
const GAIN_SHARE_MIN: u64 = 2;
/// Part of the pool that is written between two points at most, so that what is told of its use is near the truth.
const WRITTEN_SHARE_MAX: u64 = 8;
/// How long what a deleted version left waits for a point that comes anyway.
const LEFT_FOR_POINT_MAX: Duration = Duration::from_secs(3);
/// Part of the pool that is free where a write surely finds room.
const FREE_SHARE_AT_ONCE: u64 = 16;
/// Payload bytes after which records are written out without waiting for a flush.
const PENDING_BYTES_MAX: usize = 512 << 10;

impl Pool {
    #[allow(clippy::too_many_arguments)] // Called once, by recovery, with what it found.
    pub(crate) fn assemble(
        device: Arc<dyn BlockDevice>,
        superblock: &farside_format::Superblock,
        options: PoolOptions,
        nodes: NodeReader,
        system: SystemTrees,
        ring: RingWriter,
        state: State,
    ) -> Pool {
        let room_given_back = state.room_given_back.clone();
        let known = KnownData::new(superblock.pool_blocks, options.known_data_bytes_per_tib);
        Pool {
            behind: WriteBehind::new(Arc::clone(&device)),
            device,
            id: superblock.pool,
            copy: superblock.copy,
            ends_mirrors: AtomicBool::new(superblock.copy.ends_mirrors),
            blocks: superblock.pool_blocks.into(),
            journal_blocks: superblock.journal_blocks,
            open_epoch: superblock.open_epoch,
            opened_at: ring.position,
            durable_to: AtomicU64::new(ring.position),
            options,
            nodes,
            maintenance: Mutex::new(system),
            readers: Readers::default(),
            ring: Mutex::new(ring),
            state: Mutex::new(state),
            durable: AtomicU64::new(0),
            failed: Mutex::new(None),
            refused_write: Mutex::new(None),
            left_below_blocks: AtomicU64::new(u64::MAX),
            frees: AtomicBool::new(false),
            staging_allowance: Allowance::default(),
            refused_point: Mutex::new(None),
            syncing: Mutex::new(()),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            seeking_room: AtomicUsize::new(0),
            settle_wanted: AtomicBool::new(false),
            room_turn: Mutex::new(()),
            room_given_back,
            wake: Arc::default(),
            claimed: Mutex::new(None),
            known,
            host_reserve_percent: AtomicU8::new(0),
            counters: Counters::default(),
        }
    }

    /// The pool's identity: by what others know it.
    pub fn id(&self) -> Uuid {
        if self.copy.number == 0 { self.id } else { self.copy.identity }
    }

    /// Its size in blocks. It only grows, with the maintenance lock held.
    pub(crate) fn pool_blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    pub(crate) fn set_pool_blocks(&self, blocks: u64) {
        self.blocks.store(blocks, Ordering::Release);
        self.nodes.set_pool_blocks(blocks);
    }

    /// Name of the device it lies on.
    pub fn device_name(&self) -> String {
        self.device.name()
    }

    /// Nodes read from the device since the pool was opened: what a walk costs.
    pub fn nodes_read(&self) -> u64 {
        self.nodes.reads()
    }

    /// Fails once a write or sync has failed: what the device holds is not known any more.
    pub(crate) fn check_usable(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(cause) => Err(StoreError::Failed { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Why the pool refuses changes, if it does.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().clone()
    }

    /// Remembers a failure of the device that leaves writes in doubt.
    pub(crate) fn latch<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let mut failed = self.failed.lock();
            if failed.is_none() {
                tracing::error!(
                    pool = %self.id, device = self.device.name(),
                    "the pool accepts no changes from now on: {error}. Flushed data is safe and readable. Check the \
                     kernel log, repair the device, then farside pool reopen: opening the pool replays its journal"
                );
                *failed = Some(error.to_string());
            }
        }
        result
    }

    /// Syncs the device, with all that waits to be written. Once a sync has failed none is tried again: it could succeed without what
    /// the first one lost.
    pub(crate) fn sync_device(&self) -> Result<()> {
        let _alone = self.syncing.lock();
        self.check_usable()?;
        self.write_out()?;
        self.latch(self.device.sync().map_err(StoreError::from))
    }

    /// Makes everything answered so far survive a crash: journal batch, then one sync, shared with whoever waits
    /// at the same time.
    pub fn flush(&self) -> Result<()> {
        self.flush_only()?;
        self.maintain_if_due()
    }

    fn flush_only(&self) -> Result<()> {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.make_durable()
    }

    fn make_durable(&self) -> Result<()> {
        self.check_usable()?;
        let target = self.state.lock().appended;
        if self.durable.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        let mut ring = self.ring.lock();
        let _latch = PanicLatch(self);
        self.check_usable()?;
        if self.durable.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        let (payloads, appended, unproven) = {
            let mut state = self.state.lock();
            (state.pending.take(), state.appended, state.load.sync_begins())
        };
        let batches = self.latch(ring.seal(payloads))?;
        let data = self.latch(self.write_out_with(&batches))?;
        self.state.lock().ring_used = ring.used();
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        // Where the device refuses data the batch is on the ring too early. Nothing vouches for it, so an opening reads what it names.
        if let Err(error) = data.and_then(|()| self.sync_device()) {
            self.state.lock().load.sync_failed(unproven);
            return Err(error);
        }
        ring.proven = ring.sequence - 1;
        self.durable_to.fetch_max(ring.position, Ordering::AcqRel);
        self.durable.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }

    /// Writes a batch without records, durably: it vouches for all that is before it, and takes the place of what was dropped
    /// behind it. Where the ring has no room for it a point is due at once, which does the same.
    pub(crate) fn close_end_of_journal(&self) -> Result<()> {
        let mut ring = self.ring.lock();
        let _latch = PanicLatch(self);
        if ring.used() + farside_format::journal::ring_bytes(0) > ring.capacity() {
            return Ok(());
        }
        self.latch(ring.write(vec![(Vec::new(), 0)]))?;
        self.state.lock().ring_used = ring.used();
        self.sync_device()?;
        ring.proven = ring.sequence - 1;
        self.durable_to.fetch_max(ring.position, Ordering::AcqRel);
        Ok(())
    }

    /// Writes out records that have piled up, without a sync, and first the data that they name: what the next opening finds then
    /// needs no power failure to be whole.
    fn spill(&self) -> Result<()> {
        self.write_out()?;
        let mut ring = self.ring.lock();
        let _latch = PanicLatch(self);
        let payloads = self.state.lock().pending.take();
        self.latch(ring.write(payloads))?;
        self.state.lock().ring_used = ring.used();
        Ok(())
    }

    /// Called before an operation that appends records, with no lock held: keeps ring, memory and pending records
    /// within their limits, by making the caller wait.
    pub(crate) fn admit(&self) -> Result<()> {
        self.check_usable()?;
        let (pending, due, must_sync) = {
            let state = self.state.lock();
            (state.pending.bytes(), self.is_due(&state), state.load.must_sync())
        };
        // Hosts that write without ever flushing would else meet the limit below, and wait for a whole point.
        if due && self.options.background {
            self.wake.signal();
        }
        // Of what no sync vouches for an opening reads all data.
        if must_sync {
            self.make_durable()?;
        } else if pending >= PENDING_BYTES_MAX {
            self.spill()?;
        }
        // Back-pressure: whoever waits here for the lock finds the work done by another. Two points empty the ring
        // behind both slots.
        for _ in 0..2 {
            if !self.is_nearly_full() {
                break;
            }
            let mut system = self.maintenance.lock();
            if self.is_nearly_full() {
                match self.point(&mut system) {
                    // What gives it room is a change as well; hosts are told that the pool is full.
                    Err(StoreError::NoRoomForPoint { .. }) => break,
                    result => result?,
                }
            }
        }
        Ok(())
    }

    /// Whether nothing is due that a writer does, and so much is free that nobody looks for any.
    pub(crate) fn is_calm(&self) -> bool {
        let is_calm = |state: &State| {
            state.pending.bytes() < PENDING_BYTES_MAX
                && !state.load.must_sync()
                && !self.is_nearly_full_in(state)
                && state.allocator.free_blocks() > self.pool_blocks() / FREE_SHARE_AT_ONCE
        };
        self.options.background
            && self.seeking_room.load(Ordering::Acquire) == 0
            && self.check_usable().is_ok()
            && self.state.try_lock().is_some_and(|state| is_calm(&state))
    }

    /// Whether an operation must wait for a consistency point before it begins. The ring's own lock is held during a
    /// sync, so nobody asks it here.
    fn is_nearly_full(&self) -> bool {
        self.is_nearly_full_in(&self.state.lock())
    }

    fn is_nearly_full_in(&self, state: &State) -> bool {
        state.ring_used > self.journal_bytes() / 4 * 3
            || state.overlay_bytes + state.capturing_overlay_bytes > self.options.overlay_bytes / 2 * 3
            || state.load.is_nearly_full()
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal_blocks * BLOCK_BYTES as u64
    }

    /// Whether a consistency point is due: by amount of journal or memory, never by time.
    pub(crate) fn point_is_due(&self) -> bool {
        self.is_due(&self.state.lock())
    }

    fn is_due(&self, state: &State) -> bool {
        // What is used spans two intervals.
        state.ring_used > self.journal_bytes() / 2
            || state.overlay_bytes > self.options.overlay_bytes / 2
            || state.catalog_growth > CATALOG_GROWTH_MAX
            || state.load.point_is_due()
            || self.is_due_for_room(state)
            || self.is_due_for_reaped(state)
    }

    /// Whether a point frees what deleted versions left to changes that none has written yet. Where nobody writes, no other comes.
    fn is_due_for_reaped(&self, state: &State) -> bool {
        state.left_for_point.is_some_and(|(blocks, since)| {
            blocks > 4 * state.system_blocks + 64
                && self.options.clock.monotonic().saturating_sub(since) >= LEFT_FOR_POINT_MAX
        })
    }

    /// Whether a point can free a good part of what is left while that is little, or much was written. What a point itself replaces
    /// is no reason for the next one.
    fn is_due_for_room(&self, state: &State) -> bool {
        let (free, written) = (state.allocator.free_blocks(), state.written_blocks);
        let gain = state.allocator.waiting_blocks() + written;
        let is_short = free < self.pool_blocks() / FREE_SHARE_MIN && gain >= free / GAIN_SHARE_MIN;
        let below = self.left_below_blocks.load(Ordering::Relaxed);
        let is_short = is_short || (self.is_scarce_below() && gain >= below / GAIN_SHARE_MIN);
        (is_short || written >= self.pool_blocks() / WRITTEN_SHARE_MAX) && gain > 4 * state.system_blocks + 64
    }

    fn maintain_if_due(&self) -> Result<()> {
        if !self.point_is_due() {
            return Ok(());
        }
        if self.options.background {
            self.wake.signal();
            return Ok(());
        }
        match self.consistency_point() {
            // What the caller asked for is done, and safe in the journal.
            Err(StoreError::NoRoomForPoint { .. }) => Ok(()),
            Err(error) if error.is_full_below() => Ok(()),
            result => result,
        }
    }

    /// Validates a change of the catalog under the lock, applies it, appends its record, and makes it durable.
    pub(crate) fn change<T>(&self, make: impl FnOnce(&mut State) -> Result<(Change, T)>) -> Result<T> {
        self.admit()?;
        let answer = self.change_under_maintenance(make)?;
        self.maintain_if_due()?;
        Ok(answer)
    }

    /// The same for callers that hold the maintenance lock: it never makes a consistency point. They call
    /// [`Pool::admit`] before they take the lock.
    pub(crate) fn change_under_maintenance<T>(
        &self,
        make: impl FnOnce(&mut State) -> Result<(Change, T)>,
    ) -> Result<T> {
        self.change_and_then(make, |_, _| Ok(()))
    }

    /// The same, followed by something that belongs to it, in the same moment: nobody sees the one without the other.
    pub(crate) fn change_and_then<T>(
        &self,
        make: impl FnOnce(&mut State) -> Result<(Change, T)>,
        then: impl FnOnce(&mut State, &T) -> Result<()>,
    ) -> Result<T> {
        // Where the device refuses data nothing becomes durable: so nothing changes either.
        self.write_out()?;
        let answer = {
            let mut state = self.state.lock();
            let (change, answer) = make(&mut state)?;
            let growth = admit_change(&state, &change)?;
            let State { versions, epoch, .. } = &mut *state;
            versions.apply(&change, epoch)?;
            let change = CatalogChange { change: Some(change) };
            state.append(&Record::Catalog(Box::new(change)));
            state.catalog_growth += growth;
            state.changed += 1;
            then(&mut state, &answer)?;
            answer
        };
        self.flush_only()?;
        Ok(answer)
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Stops the background thread and makes a last consistency point; what is deleted is reaped when the pool is
    /// opened again. Dropping a pool
    /// without closing it is a crash: nothing flushed is lost, opening replays the journal.
    pub fn close(&self) -> Result<()> {
        self.wake.stop();
        let closed = self.check_usable().and_then(|()| match self.consistency_point() {
            Err(StoreError::NoRoomForPoint { .. }) => self.flush_only(),
            // The journal has all that was flushed.
            Err(error) if error.is_full_below() => self.flush_only().and(Err(error)),
            result => result,
        });
        // Nothing is written here any more, whatever came of it.
        if let Some(claimed) = self.claimed.lock().take() {
            claimed.give_back();
        }
        closed
    }
}

/// A panic while records are on their way to the medium leaves them in doubt, like a failed write. Made after the
/// ring is locked, so that the failure is known before anybody else can lock it.
pub(crate) struct PanicLatch<'a>(pub(crate) &'a Pool);

impl Drop for PanicLatch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _: Result<()> = self.0.latch(Err(StoreError::Inconsistent("a panic while writing".into())));
        }
    }
}

/// Bytes by which a change can let the catalog grow, at most.
pub(crate) fn catalog_growth(change: &Change) -> u64 {
    match change {
        Change::DeleteVolume(_) | Change::DeleteVersion(_) => 0,
        _ => 4 * prost::Message::encoded_len(&CatalogChange { change: Some(change.clone()) }) as u64 + 256,
    }
}

/// Bytes by which a change can let the catalog grow: its own description, and for each version it makes about as much
/// again. Refuses what no batch could carry, and growth past the limit while there is still room to delete.
pub(crate) fn admit_change(state: &State, change: &Change) -> Result<u64> {
    let bytes = prost::Message::encoded_len(&CatalogChange { change: Some(change.clone()) }) as u64;
    if bytes > farside_format::journal::PAYLOAD_BYTES_MAX as u64 / 2 {
        return Err(StoreError::Invalid("too many at once: name fewer volumes in one snapshot".into()));
    }
    let growth = catalog_growth(change);
    let limit = farside_format::catalog::CATALOG_BYTES_MAX / 16 * 15;
    if growth > 0 && state.catalog_bytes + state.catalog_growth + growth > limit {
        return Err(StoreError::Refused(
            "the pool's catalog is full (240 MiB): delete snapshots first".into(),
        ));
    }
    Ok(growth)
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.wake.stop();
    }
}
