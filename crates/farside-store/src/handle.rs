//! An open volume or snapshot: what an NBD export, a transfer or a test reads and writes.

use std::sync::Arc;

use farside_format::fingerprint::{BLOCKS_MAX, FAN_OUT, TOP_LEVEL, span};
use farside_format::{ContentRoot, Fingerprint};
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use crate::difference::{self, DifferenceKind, DifferingBlocks};
use crate::error::{Result, StoreError};
use crate::io::PIECE_BLOCKS;
use crate::pool::{Pool, State};
use crate::space::SpaceClass;
use crate::versions::VersionState;
use crate::view::View;
use crate::volumes::{find_snapshot, find_snapshot_by_uuid, find_volume};
use crate::write_behind::Way;

/// Most fingerprints that one call answers: those of 256 MiB, 1 MiB of memory.
pub const FINGERPRINTS_MAX: u64 = 1 << 16;
/// Bytes of writes that go to the device together: as many blocks as one operation may have (its room in the journal).
pub const JOINED_BYTES_MAX: usize = PIECE_BLOCKS as usize * BLOCK_BYTES;
/// Blocks whose fingerprints are looked up in one step: 128 leaves.
const FINGERPRINTS_PER_STEP: u64 = 1 << 14;

/// How a volume differs from a snapshot, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChangedBlocks {
    /// Hold other data than in the snapshot.
    pub data_blocks: u64,
    /// Were data in the snapshot, are holes now, or lie past the end.
    pub hole_blocks: u64,
}

/// A version of a volume, by what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// What hosts see.
    Head,
    /// The snapshot with this identity.
    Snapshot(Uuid),
}

/// An open version. While it is open the version is not reaped; a deleted one stays readable here.
pub struct VersionHandle {
    pub(crate) pool: Arc<Pool>,
    pub(crate) version: u64,
    size_bytes: u64,
    writable: bool,
    way: Way,
}

impl Pool {
    /// Opens a volume for reading and writing; of a replica that is not broken off, the published version, for
    /// reading only and pinned to what is published now.
    pub fn open_volume(self: &Arc<Self>, name: &str) -> Result<VersionHandle> {
        let mut state = self.locked();
        let volume = find_volume(&state, name)?;
        let writable = volume.replica.as_ref().is_none_or(|r| r.broken_off);
        let head = volume.head;
        self.handle(state.versions.version_mut(head)?, writable)
    }

    /// Opens a snapshot.
    pub fn open_snapshot(self: &Arc<Self>, volume: &str, name: &str) -> Result<VersionHandle> {
        let mut state = self.locked();
        let id = find_snapshot(&state, volume, name)?.id;
        self.handle(state.versions.version_mut(id)?, false)
    }

    /// Opens a snapshot by identity.
    pub fn open_snapshot_by_uuid(self: &Arc<Self>, volume: &str, uuid: Uuid) -> Result<VersionHandle> {
        let mut state = self.locked();
        let id = find_snapshot_by_uuid(&state, volume, uuid)?.id;
        self.handle(state.versions.version_mut(id)?, false)
    }

    /// Reads a snapshot without being in anybody's way: while the reader lives, snapshot and volume may be deleted all the same.
    pub fn snapshot_reader(self: &Arc<Self>, volume: &str, uuid: Uuid) -> Result<SnapshotReader> {
        let mut state = self.locked();
        let version = find_snapshot_by_uuid(&state, volume, uuid)?;
        let (id, size_bytes) = (version.id, version.size_bytes);
        Ok(SnapshotReader { walked: Walked::begin(self, &mut state, id)?, size_bytes })
    }

    /// What `newer` has that `older` has not, both of one volume; against nothing, every allocated block. Metadata only.
    /// Unlike one of open handles it is in nobody's way.
    pub fn difference(
        self: &Arc<Self>,
        volume: &str,
        older: Option<Version>,
        newer: Version,
    ) -> Result<Difference> {
        let mut state = self.locked();
        let find = |version| match version {
            Version::Head => find_volume(&state, volume).map(|found| found.head),
            Version::Snapshot(uuid) => find_snapshot_by_uuid(&state, volume, uuid).map(|found| found.id),
        };
        let (older, newer) = (older.map(find).transpose()?, find(newer)?);
        Difference::begin(self, &mut state, older, newer)
    }

    /// How a volume as hosts see it now differs from one of its snapshots. Metadata only, and nothing is changed; what
    /// hosts write meanwhile may be counted or not.
    pub fn changed_since(self: &Arc<Self>, volume: &str, snapshot: Uuid) -> Result<ChangedBlocks> {
        let mut changed = ChangedBlocks::default();
        for range in self.difference(volume, Some(Version::Snapshot(snapshot)), Version::Head)? {
            let range = range?;
            match range.kind {
                DifferenceKind::Data => changed.data_blocks += range.changed,
                DifferenceKind::Hole => changed.hole_blocks += range.changed,
            }
        }
        Ok(changed)
    }

    pub(crate) fn version_fingerprints(
        self: &Arc<Self>,
        version: u64,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>> {
        if count > FINGERPRINTS_MAX || first.checked_add(count).is_none_or(|end| end > BLOCKS_MAX) {
            return Err(StoreError::Invalid(format!(
                "fingerprints of {count} blocks from block {first} on: at most {FINGERPRINTS_MAX} at once, and no volume \
                 has more than {BLOCKS_MAX} blocks"
            )));
        }
        let walked = Walked::begin(self, &mut self.locked(), version)?;
        let mut fingerprints = Vec::with_capacity(count as usize);
        let end = first + count;
        let mut at = first;
        while at < end {
            let piece = (end - at).min(FINGERPRINTS_PER_STEP);
            let _reading = self.readers.read();
            walked.view()?.visit(&self.nodes, at, piece, &mut |pointer, count| {
                fingerprints.extend(std::iter::repeat_n(pointer.fingerprint, count as usize));
                true
            })?;
            at += piece;
        }
        Ok(fingerprints)
    }

    fn version_subtree_fingerprints(
        self: &Arc<Self>,
        version: u64,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>> {
        let inside = level <= TOP_LEVEL
            && first.checked_add(count).is_some_and(|end| end <= BLOCKS_MAX / span(level.min(TOP_LEVEL)));
        if count > FINGERPRINTS_MAX || !inside {
            return Err(StoreError::Invalid(format!(
                "fingerprints of {count} subtrees of level {level} from {first} on: at most {FINGERPRINTS_MAX} at once, of \
                 levels 0 to {TOP_LEVEL}, inside {BLOCKS_MAX} blocks"
            )));
        }
        if level == 0 {
            return self.version_fingerprints(version, first, count);
        }
        let walked = Walked::begin(self, &mut self.locked(), version)?;
        let mut fingerprints = Vec::with_capacity(count as usize);
        let end = first + count;
        let mut at = first;
        while at < end {
            // The children of one node: what lies above is looked up anew, from the cache.
            let piece = (end - at).min(FAN_OUT as u64 - at % FAN_OUT as u64);
            let _reading = self.readers.read();
            walked.view()?.subtrees(&self.nodes, level, at, piece, &mut fingerprints)?;
            at += piece;
        }
        Ok(fingerprints)
    }

    fn handle(self: &Arc<Self>, version: &mut VersionState, writable: bool) -> Result<VersionHandle> {
        version.users += 1;
        Ok(VersionHandle {
            pool: self.clone(),
            version: version.id,
            size_bytes: version.size_bytes,
            writable,
            way: Way::Direct,
        })
    }
}

impl VersionHandle {
    /// Size in bytes when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The identity of the volume that it is a version of, whatever that is called by now; none if it was deleted.
    pub fn volume_id(&self) -> Option<Uuid> {
        let state = self.pool.locked();
        let version = state.versions.version(self.version).ok()?;
        let volume = state.versions.volume_numbered(version.volume)?;
        Uuid::from_slice(&volume.uuid).ok()
    }

    /// Whether it takes writes.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The same, read by way of the system's memory, which keeps what was read while there is room: for a host, who may read it again.
    #[must_use]
    pub fn remembering(mut self) -> VersionHandle {
        self.way = Way::Remembering;
        self
    }

    /// Whether what is read by it stays in the system's memory.
    pub fn remembers(&self) -> bool {
        self.way == Way::Remembering
    }

    /// Reads any range, verified. After an error nothing in `buffer` is.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.pool.read(self.version, offset, buffer, self.way)
    }

    /// Those of several reads that wait for nobody, verified; which ones were done. None where the handle does not
    /// [remember](Self::remembering), or if they are more than [`JOINED_BYTES_MAX`] together.
    pub fn read_at_once(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        let is_inside =
            |(offset, buffer): &(u64, &mut [u8])| self.check(*offset, buffer.len() as u64).is_ok();
        match self.way == Way::Remembering && bytes <= JOINED_BYTES_MAX && reads.iter().all(is_inside) {
            true => self.pool.read_remembered(self.version, reads),
            false => vec![false; reads.len()],
        }
    }

    /// Several reads, (offset, buffer) each; what became of each. All together at most [`JOINED_BYTES_MAX`]. Where
    /// [`overlaps_reads`](Self::overlaps_reads), they go on at the same time.
    pub fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        if bytes <= JOINED_BYTES_MAX
            && reads.iter().all(|(offset, b)| self.check(*offset, b.len() as u64).is_ok())
        {
            return self.pool.read_joined(self.version, reads, self.way);
        }
        reads.iter_mut().map(|(offset, buffer)| self.read(*offset, buffer)).collect()
    }

    /// Whether the device does several reads at the same time for one caller.
    pub fn overlaps_reads(&self) -> bool {
        self.pool.device.overlaps_reads()
    }

    /// Writes any range; durable after the next flush.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_write(offset, bytes.len() as u64)?;
        self.pool.write(self.version, offset, bytes, SpaceClass::Host)
    }

    /// Several writes, (offset, bytes) each, in their order; what became of each. They are joined if they can be, see
    /// [`write_joined`](Self::write_joined).
    pub fn write_many(&self, writes: &[(u64, &[u8])]) -> Vec<Result<()>> {
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        let can_be_joined = writes.len() > 1
            && bytes <= JOINED_BYTES_MAX
            && writes.iter().all(|(_, bytes)| !bytes.is_empty());
        // If they fail together, one by one each says what became of it; for one there may be room that there is not for all.
        if can_be_joined && self.write_joined(writes).is_ok() {
            return writes.iter().map(|_| Ok(())).collect();
        }
        writes.iter().map(|(offset, bytes)| self.write(*offset, bytes)).collect()
    }

    /// Several small writes of whole blocks as one, see [`write_joined`](Self::write_joined), if they wait for nobody: not for the device,
    /// nor for room, nor for somebody who waits for one of them. `None`, and nothing is done, if they would have to, or are not such.
    pub fn write_at_once(&self, writes: &[(u64, &[u8])]) -> Option<Result<()>> {
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        let is_plain = |(offset, bytes): &(u64, &[u8])| {
            !bytes.is_empty() && self.check_write(*offset, bytes.len() as u64).is_ok()
        };
        if bytes > JOINED_BYTES_MAX || !writes.iter().all(is_plain) {
            return None;
        }
        self.pool.write_together_at_once(self.version, writes)
    }

    /// Several writes, (offset, bytes) each, as one: they appear in one moment, all or none. Scattered in the volume, on the device
    /// they lie side by side. Where two overlap the later one counts. At most [`JOINED_BYTES_MAX`] in all.
    pub fn write_joined(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        if bytes > JOINED_BYTES_MAX {
            return Err(StoreError::Invalid(format!(
                "{bytes} bytes in joined writes: at most {JOINED_BYTES_MAX}"
            )));
        }
        for (offset, bytes) in writes {
            self.check_write(*offset, bytes.len() as u64)?;
            if bytes.is_empty() {
                return Err(StoreError::Invalid(format!("no bytes at {offset}: nothing to be joined")));
            }
        }
        self.pool.write_joined(self.version, writes, SpaceClass::Host)
    }

    /// Zeros any range: whole blocks are deallocated, edges merged.
    pub fn write_zeroes(&self, offset: u64, length: u64) -> Result<()> {
        self.check_write(offset, length)?;
        self.pool.write_zeroes(self.version, offset, length, SpaceClass::Host)
    }

    /// Deallocates the whole blocks of a range; partial edges are left as they are.
    pub fn trim(&self, offset: u64, length: u64) -> Result<()> {
        self.check_write(offset, length)?;
        let block = BLOCK_BYTES as u64;
        let (first, last) = (offset.div_ceil(block), (offset + length) / block);
        self.pool.unmap_blocks(self.version, first, last.saturating_sub(first), SpaceClass::Metadata)
    }

    /// Makes everything answered so far, on any handle of the pool, survive a crash.
    pub fn flush(&self) -> Result<()> {
        self.pool.flush()
    }

    /// Allocated and unallocated parts of a range, joined: (length in bytes, allocated), at most `ranges_max` of them
    /// from its start. Whole blocks, so the first and last may reach beyond the range. Metadata only.
    pub fn allocation(&self, offset: u64, length: u64, ranges_max: usize) -> Result<Vec<(u64, bool)>> {
        self.check(offset, length)?;
        let block = BLOCK_BYTES as u64;
        let (first, last) = (offset / block, (offset + length).div_ceil(block));
        let ranges = self.pool.mapped_ranges(self.version, first, last - first, ranges_max)?;
        Ok(ranges.into_iter().map(|(blocks, mapped)| (blocks * block, mapped)).collect())
    }

    /// Content root of what it holds now.
    pub fn content_root(&self) -> Result<ContentRoot> {
        self.pool.version_root(self.version)
    }

    /// What this version has that `base` has not; against nothing, every allocated block. Metadata only.
    pub fn difference_from(self: Arc<Self>, base: Option<Arc<VersionHandle>>) -> Difference {
        let against = base.as_ref().map(|b| b.version);
        let walk = Difference::begin(&self.pool, &mut self.pool.locked(), against, self.version)
            .expect("an open version is there");
        Difference { _open: base.into_iter().chain([self]).collect(), ..walk }
    }

    /// Compares this version with the snapshot of this name of the same volume, piece by piece, from wherever is asked for.
    pub fn compared_with(&self, snapshot: &str) -> Result<Comparison> {
        let mut state = self.pool.locked();
        let volume = state.versions.version(self.version)?.volume;
        let base = state.versions.snapshot_named(volume, snapshot).map(|version| version.id);
        let base = base.ok_or_else(|| StoreError::NotFound(format!("snapshot {snapshot}")))?;
        Ok(Comparison {
            base: Walked::begin(&self.pool, &mut state, base)?,
            incremental: Walked::begin(&self.pool, &mut state, self.version)?,
        })
    }

    /// Fingerprints of `count` blocks from block `first` on; past the end: holes. Metadata only; at most
    /// [`FINGERPRINTS_MAX`] at once.
    pub fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>> {
        self.pool.version_fingerprints(self.version, first, count)
    }

    /// Fingerprints of `count` subtrees of `level` (0: blocks, 1: leaf nodes, to 6) from number `first` on, in spans of that
    /// level; past the end: holes. Metadata only, and no leaf is read but where something was changed since the last
    /// consistency point; at most [`FINGERPRINTS_MAX`] at once.
    pub fn subtree_fingerprints(&self, level: u8, first: u64, count: u64) -> Result<Vec<Fingerprint>> {
        self.pool.version_subtree_fingerprints(self.version, level, first, count)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        check_inside(self.size_bytes, offset, length)
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<()> {
        if !self.writable {
            return Err(StoreError::Refused("this is a snapshot or a replica: it cannot be written".into()));
        }
        self.check(offset, length)
    }
}

fn check_inside(size_bytes: u64, offset: u64, length: u64) -> Result<()> {
    if offset.checked_add(length).is_none_or(|end| end > size_bytes) {
        return Err(StoreError::Invalid(format!(
            "{length} bytes at {offset} lie past the end ({size_bytes} bytes)"
        )));
    }
    Ok(())
}

impl Drop for VersionHandle {
    fn drop(&mut self) {
        let mut state = self.pool.locked();
        if let Ok(version) = state.versions.version_mut(self.version) {
            version.users -= 1;
            if version.deleted && !version.is_in_use() {
                drop(state);
                self.pool.wake.signal();
            }
        }
    }
}

/// Reads a snapshot as long as it lives, even one that is deleted meanwhile, which is not refused because of it. The space of
/// a deleted one comes free once this is dropped.
pub struct SnapshotReader {
    walked: Walked,
    size_bytes: u64,
}

impl SnapshotReader {
    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads any range, verified.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        check_inside(self.size_bytes, offset, buffer.len() as u64)?;
        self.walked.pool.read(self.walked.version, offset, buffer, Way::Direct)
    }

    /// Reads `ranges`, (first block, blocks) each, one behind the other into `buffer`, which has just their size; verified. In
    /// the order in which they lie on the device, and several at a time. Blocks past the end are zeros.
    pub fn read_ranges(&self, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
        let blocks = ranges.iter().try_fold(0_u64, |sum, (first, count)| {
            first.checked_add(*count)?;
            sum.checked_add(*count)
        });
        let bytes = buffer.len() as u64;
        if blocks.and_then(|blocks| blocks.checked_mul(BLOCK_BYTES as u64)) != Some(bytes) {
            return Err(StoreError::Invalid(format!("{} ranges do not make up {bytes} bytes", ranges.len())));
        }
        self.walked.pool.read_ranges(self.walked.version, ranges, buffer)
    }

    /// Whether the snapshot, or its volume, was deleted since: only this keeps it.
    pub fn is_deleted(&self) -> Result<bool> {
        let state = self.walked.pool.locked();
        Ok(state.versions.version(self.walked.version)?.deleted)
    }
}

/// A version that a walk or a [`SnapshotReader`] is looking at. It is not reaped meanwhile; unlike an open handle it is in
/// nobody's way.
pub(crate) struct Walked {
    pool: Arc<Pool>,
    pub(crate) version: u64,
}

impl Walked {
    pub(crate) fn begin(pool: &Arc<Pool>, state: &mut State, version: u64) -> Result<Walked> {
        state.versions.version_mut(version)?.walkers += 1;
        Ok(Walked { pool: pool.clone(), version })
    }

    /// As it is now.
    pub(crate) fn view(&self) -> Result<View> {
        let state = self.pool.locked();
        Ok(state.view(state.versions.version(self.version)?))
    }
}

impl Drop for Walked {
    fn drop(&mut self) {
        let mut state = self.pool.locked();
        if let Ok(version) = state.versions.version_mut(self.version) {
            version.walkers -= 1;
            if version.deleted && !version.is_in_use() {
                drop(state);
                self.pool.wake.signal();
            }
        }
    }
}

/// Two versions of a volume that are compared piece by piece. While it lives neither is reaped, but it is in nobody's way.
pub struct Comparison {
    base: Walked,
    incremental: Walked,
}

impl Comparison {
    /// What differs from block `first` on, in ascending order, as far as one step comes: up to the block that is returned
    /// too, or to the end. A step visits some thousand nodes at most, and always comes further than `first`. Metadata only.
    pub fn changes_from(&self, first: u64) -> Result<(Vec<DifferingBlocks>, Option<u64>)> {
        let pool = &self.incremental.pool;
        let _reading = pool.readers.read();
        let (base, incremental) = (self.base.view()?, self.incremental.view()?);
        difference::step(&pool.nodes, &base, &incremental, first)
    }
}

/// A difference under way: an iterator of ranges in ascending order. Neighbours of one kind are joined.
///
/// It goes in steps. Each looks at both versions anew, as they are then, and holds off the reuse of freed places
/// (invariant S3) only while it lasts: hosts write and consistency points happen in between. So of a version that is
/// being written each block is told of once, as it was at some moment of the walk.
pub struct Difference {
    base: Option<Walked>,
    incremental: Walked,
    next: Option<u64>,
    found: std::vec::IntoIter<DifferingBlocks>,
    /// Kept open as long as the walk goes on.
    _open: Vec<Arc<VersionHandle>>,
}

impl Difference {
    /// Of version `incremental` against version `base`, or against nothing.
    pub(crate) fn begin(
        pool: &Arc<Pool>,
        state: &mut State,
        base: Option<u64>,
        incremental: u64,
    ) -> Result<Difference> {
        // Both are looked up first: a walk that ends takes the lock that the caller holds.
        for version in base.into_iter().chain([incremental]) {
            state.versions.version(version)?;
        }
        Ok(Difference {
            base: base.map(|base| Walked::begin(pool, state, base)).transpose()?,
            incremental: Walked::begin(pool, state, incremental)?,
            next: Some(0),
            found: Vec::new().into_iter(),
            _open: Vec::new(),
        })
    }

    fn refill(&mut self) -> Result<bool> {
        while let Some(from) = self.next {
            let pool = &self.incremental.pool;
            let _reading = pool.readers.read();
            let incremental = self.incremental.view()?;
            let base = match &self.base {
                Some(base) => base.view()?,
                None => View::empty(incremental.tree),
            };
            let (found, next) = difference::step(&pool.nodes, &base, &incremental, from)?;
            self.next = next;
            if !found.is_empty() {
                self.found = found.into_iter();
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Iterator for Difference {
    type Item = Result<DifferingBlocks>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(range) = self.found.next() {
            return Some(Ok(range));
        }
        match self.refill() {
            Ok(true) => self.found.next().map(Ok),
            Ok(false) => None,
            Err(error) => {
                self.next = None;
                Some(Err(error))
            }
        }
    }
}
