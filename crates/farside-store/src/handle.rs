//! An open volume or snapshot: what an NBD export, a transfer or a test reads and writes.

use std::sync::Arc;

use farside_format::ContentRoot;
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use crate::difference::{self, DifferingBlocks};
use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::space::SpaceClass;
use crate::versions::VersionState;
use crate::view::View;
use crate::volumes::{find_snapshot, find_snapshot_by_uuid, find_volume};

/// An open version. While it is open the version is not reaped; a deleted one stays readable here.
pub struct VersionHandle {
    pool: Arc<Pool>,
    version: u64,
    size_bytes: u64,
    writable: bool,
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

    fn handle(self: &Arc<Self>, version: &mut VersionState, writable: bool) -> Result<VersionHandle> {
        version.users += 1;
        Ok(VersionHandle {
            pool: self.clone(),
            version: version.id,
            size_bytes: version.size_bytes,
            writable,
        })
    }
}

impl VersionHandle {
    /// Size in bytes when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it takes writes.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Reads any range, verified.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len() as u64)?;
        self.pool.read(self.version, offset, buffer)
    }

    /// Writes any range; durable after the next flush.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_write(offset, bytes.len() as u64)?;
        self.pool.write(self.version, offset, bytes, SpaceClass::Host)
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
        Difference { base, incremental: self, next: Some(0), found: Vec::new().into_iter() }
    }

    fn view(&self) -> Result<View> {
        let state = self.pool.locked();
        Ok(state.view(state.versions.version(self.version)?))
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            return Err(StoreError::Invalid(format!(
                "{length} bytes at {offset} lie past the end ({} bytes)",
                self.size_bytes
            )));
        }
        Ok(())
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<()> {
        if !self.writable {
            return Err(StoreError::Refused("this is a snapshot or a replica: it cannot be written".into()));
        }
        self.check(offset, length)
    }
}

impl Drop for VersionHandle {
    fn drop(&mut self) {
        let mut state = self.pool.locked();
        if let Ok(version) = state.versions.version_mut(self.version) {
            version.users -= 1;
            if version.deleted && version.users == 0 {
                drop(state);
                self.pool.wake.ring();
            }
        }
    }
}

/// A difference under way: an iterator of ranges in ascending order. Neighbours of one kind are joined.
pub struct Difference {
    base: Option<Arc<VersionHandle>>,
    incremental: Arc<VersionHandle>,
    next: Option<u64>,
    found: std::vec::IntoIter<DifferingBlocks>,
}

impl Difference {
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
