//! Where a pool lies: a thing of 4096-byte blocks with a volatile cache.
//!
//! The contract is that of a disk with a write cache and no more: a finished write is seen by later reads, but
//! survives a power failure only once a [`BlockDevice::sync`] that *began after the write finished* has returned.
//! Until then it may be kept, lost, torn at any 512-byte sector, or overtaken by a later write.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, OFlags};

use crate::block::{BLOCK_BYTES, BlockBuffer};
use crate::draft::Draft;
use crate::page_cache::PageCache;
use crate::thin::{self, FileRoom, Reserve};
use crate::{file_system, holders, loop_device, ring};

/// What a device can answer besides success.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The medium or the kernel refused.
    #[error("{operation} of {length} bytes at byte {offset} of {device} failed: {source}")]
    Io {
        /// `read`, `write` or `sync`.
        operation: &'static str,
        /// Byte offset on the device.
        offset: u64,
        /// Bytes asked for.
        length: usize,
        /// The device's name.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The request lies outside the device.
    #[error("{length} bytes at byte {offset} lie outside {device}, which has {device_bytes} bytes")]
    OutOfRange {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes asked for.
        length: usize,
        /// The device's name.
        device: String,
        /// Its size.
        device_bytes: u64,
    },
    /// A raw device that shall be larger than it is.
    #[error(
        "{device} has {device_bytes} bytes; {wanted} are wanted. Make the device larger first (for example lvextend)"
    )]
    Smaller {
        /// The device's name.
        device: String,
        /// Bytes that it shall have.
        wanted: u64,
        /// Its size.
        device_bytes: u64,
    },
    /// Another process holds the device.
    #[error(
        "{device} is in use: {by}. Nothing was changed. Stop that farsided first, or name another file or device"
    )]
    Locked {
        /// The device's name.
        device: String,
        /// By whom, as far as the kernel tells.
        by: String,
    },
    /// The kernel says that something has the block device: a mount, swap, LVM, md, device mapper, another program.
    #[error(
        "{device} is in use: {by}. Nothing was changed. Name another device, or end that use first (lsblk and fuser -v \
         {device} show it)"
    )]
    InUse {
        /// The device's name.
        device: String,
        /// By what, as far as the kernel tells.
        by: String,
    },
    /// The device could not be opened or made.
    #[error("cannot open {device}: {source}")]
    Open {
        /// The device's name.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl DeviceError {
    /// Whether the file system that the pool's file lies on is full.
    pub fn is_full(&self) -> bool {
        matches!(self, DeviceError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    /// Whether the medium itself says that what was asked for is lost: the kernel's words for an unreadable sector, for a
    /// failed integrity check and for a target that gave up. A place that the device has not got counts too. Any other
    /// error (no memory, a cable, a path, a server) may pass, and says nothing of what the medium holds.
    pub fn is_verdict_of_the_medium(&self) -> bool {
        use rustix::io::Errno;
        match self {
            DeviceError::Io { source, .. } => [Errno::NODATA, Errno::ILSEQ, Errno::REMOTEIO]
                .iter()
                .any(|errno| source.raw_os_error() == Some(errno.raw_os_error())),
            DeviceError::OutOfRange { .. } => true,
            DeviceError::Locked { .. }
            | DeviceError::InUse { .. }
            | DeviceError::Smaller { .. }
            | DeviceError::Open { .. } => false,
        }
    }
}

/// A block device. Offsets and lengths are bytes and whole blocks; implementations are internally synchronised.
pub trait BlockDevice: Send + Sync + 'static {
    /// Size in bytes, a whole number of blocks.
    fn bytes(&self) -> u64;
    /// Size in bytes as people see it: of a file all of them, also those behind its last whole block.
    fn exact_bytes(&self) -> u64 {
        self.bytes()
    }
    /// Fills `buffer` from `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;
    /// Fills each buffer from its offset; what became of each.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        reads.iter_mut().map(|(offset, buffer)| self.read_at(*offset, buffer)).collect()
    }
    /// The same by way of the system's memory, which keeps what was read while there is room. What comes may have been written over:
    /// whoever asks can tell, and reads it anew by [`read_many`](Self::read_many).
    fn read_many_remembering(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        self.read_many(reads)
    }
    /// Fills those buffers of which the system's memory has all, under the same condition; which ones those are. It waits for nothing.
    fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        vec![false; reads.len()]
    }
    /// Whether those of [`read_many`](Self::read_many) go on at the same time, or one after the other.
    fn overlaps_reads(&self) -> bool {
        false
    }
    /// Writes `bytes` at `offset`, into the device's volatile cache at least.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Writes `pieces` one behind the other from `offset` on: as so many writes, but with one call of the kernel where it can be.
    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let mut at = offset;
        for piece in pieces {
            self.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
    /// Several of [`write_pieces_at`](Self::write_pieces_at), at the same time where it can be; what became of each. None overlaps another.
    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> Vec<Result<(), DeviceError>> {
        writes.iter().map(|(offset, pieces)| self.write_pieces_at(*offset, pieces)).collect()
    }
    /// Makes it at least `bytes` bytes long, for good: a file is made longer, a raw device has been or is refused. What is new
    /// reads as zeros, or as what was there.
    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        match self.bytes() {
            device_bytes if device_bytes >= bytes => Ok(()),
            device_bytes => Err(DeviceError::Smaller { device: self.name(), wanted: bytes, device_bytes }),
        }
    }
    /// Bytes left below the device, if it may lack what its size promises: a file takes its room as it is written.
    fn room_below(&self) -> Option<u64> {
        None
    }
    /// What the device has of the file system that it lies on, if it lies on one.
    fn file_room(&self) -> Option<FileRoom> {
        None
    }
    /// Has what lies below give room for these bytes now; what is there stays as it is.
    fn take_room(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (offset, bytes);
        Ok(())
    }
    /// Takes a small reserve from what lies below, if that has plenty left. One that `may_be_there` from an earlier opening is kept in
    /// any case.
    fn keep_reserve(&self, may_be_there: bool) {
        let _ = may_be_there;
    }
    /// Whether there is one.
    fn has_reserve(&self) -> bool {
        false
    }
    /// Gives the reserve back to what lies below, for what is about to be written; whether there was one.
    fn use_reserve(&self) -> bool {
        false
    }
    /// Makes every write that had finished when this was called survive a power failure.
    fn sync(&self) -> Result<(), DeviceError>;
    /// A name for messages: the path.
    fn name(&self) -> String;
}

/// A regular file or a raw device, by direct I/O where the file system allows it.
#[derive(Debug)]
pub struct FileDevice {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// It only grows.
    bytes: AtomicU64,
    direct: bool,
    uses_ring: bool,
    /// Beside direct I/O; none without, and where it cannot be opened.
    page_cache: Option<PageCache>,
    is_block_device: bool,
    reserve: Reserve,
    /// The file behind a loop device, locked as long as the device is open.
    _backing: Option<File>,
    /// Of a file that is being made, or was made here.
    pub(crate) draft: Option<Draft>,
}

impl FileDevice {
    /// Makes a file of `bytes` bytes (thin: blocks are claimed as they are written) and opens it. An existing
    /// regular file is refused; a raw device is taken as it is.
    ///
    /// # Errors
    /// The file cannot be made or opened; then it is not there.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, DeviceError> {
        if path.metadata().is_ok_and(|m| m.file_type().is_block_device()) {
            return Self::open(path);
        }
        let device = Self::draft(path, bytes)?;
        device.publish()?;
        Ok(device)
    }

    /// Makes and opens such a file, which is at `path` only once it is [published](Self::publish); dropped before, it is no more.
    ///
    /// # Errors
    /// Something is at `path`, or the file cannot be made or opened.
    pub fn draft(path: &Path, bytes: u64) -> Result<Self, DeviceError> {
        let open_error = |source| DeviceError::Open { device: path.display().to_string(), source };
        let draft = Draft::make(path, bytes).map_err(open_error)?;
        let mut device = Self::open(&draft.path)?;
        device.path = path.to_path_buf();
        device.draft = Some(draft);
        Ok(device)
    }

    /// Gives a draft its name, for good. Any other device has its name.
    ///
    /// # Errors
    /// Something has that name by now, or it cannot be given; then the file is a draft still.
    pub fn publish(&self) -> Result<(), DeviceError> {
        let Some(draft) = &self.draft else { return Ok(()) };
        draft.publish(&self.path).map_err(|source| DeviceError::Open { device: self.name(), source })
    }

    /// Drafts for this path that nobody finishes: their makers were killed.
    pub fn unfinished(path: &Path) -> Vec<PathBuf> {
        // One that can be opened is nobody's work at the moment.
        Draft::all_for(path).into_iter().filter(|draft| Self::open_read_only(draft).is_ok()).collect()
    }

    /// Opens for reading and writing, and locks it against every other process until dropped.
    pub fn open(path: &Path) -> Result<Self, DeviceError> {
        Self::open_with(path, true)
    }

    /// Opens for reading only, with a shared lock: an offline check can run beside another, never beside a daemon.
    pub fn open_read_only(path: &Path) -> Result<Self, DeviceError> {
        Self::open_with(path, false)
    }

    fn open_with(path: &Path, writable: bool) -> Result<Self, DeviceError> {
        let device = path.display().to_string();
        let open_error = |source| DeviceError::Open { device: device.clone(), source };
        let is_block_device = path.metadata().is_ok_and(|m| m.file_type().is_block_device());
        let open = |flags: OFlags| {
            let options =
                OpenOptions::new().read(true).write(writable).custom_flags(flags.bits() as i32).open(path);
            options.map_err(|source| match source.raw_os_error() {
                Some(errno) if is_block_device && errno == rustix::io::Errno::BUSY.raw_os_error() => {
                    DeviceError::InUse { device: device.clone(), by: holders::of(path) }
                }
                _ => open_error(source),
            })
        };
        let is_refused = |error: &DeviceError| {
            matches!(error, DeviceError::Open { source, .. }
                if source.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()))
        };
        // A lock belongs to one node of a device; this belongs to the device, whatever node it is opened by, and tells of mounts
        // and of other holders too. Who only reads asks and lets go, so that two checks run beside each other.
        let exclusive = if is_block_device { OFlags::EXCL } else { OFlags::empty() };
        let asked = (is_block_device && !writable).then(|| open(exclusive | OFlags::CLOEXEC)).transpose()?;
        let exclusive = if writable { exclusive } else { OFlags::empty() };
        let (file, direct) = match open(exclusive | OFlags::DIRECT | OFlags::CLOEXEC) {
            Ok(file) => (file, true),
            // tmpfs and some network file systems have no direct I/O; the contract holds without it.
            Err(error) if is_refused(&error) => (open(exclusive | OFlags::CLOEXEC)?, false),
            Err(error) => return Err(error),
        };
        drop(asked);
        let lock = if writable {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        rustix::fs::flock(&file, lock).map_err(|_| {
            let by = holders::of_lock(&file).unwrap_or_else(|| String::from("another process"));
            DeviceError::Locked { device: device.clone(), by: format!("{by} has it open (its lock is held)") }
        })?;
        let metadata = file.metadata().map_err(open_error)?;
        let is_block_device = metadata.file_type().is_block_device();
        let backing = is_block_device.then(|| lock_backing(&device, metadata.rdev(), lock)).transpose()?;
        let bytes = AtomicU64::new(whole_blocks(&file, is_block_device).map_err(open_error)?);
        let _backing = backing.flatten();
        let path = path.to_path_buf();
        let uses_ring = ring::is_allowed();
        let page_cache = direct.then(|| PageCache::beside(&file).ok()).flatten();
        Ok(FileDevice {
            file,
            path,
            bytes,
            direct,
            uses_ring,
            page_cache,
            is_block_device,
            reserve: Reserve::default(),
            _backing,
            draft: None,
        })
    }

    /// Reads and writes it without io_uring, as where the kernel forbids that.
    #[must_use]
    pub fn without_io_uring(self) -> Self {
        FileDevice { uses_ring: false, ..self }
    }

    /// Whether io_uring is in use for several reads or writes at once (reported in the log).
    pub fn uses_io_uring(&self) -> bool {
        self.uses_ring
    }

    /// Whether it is a raw device, not a file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether its lock alone keeps out everybody who opens it as a file: it is one, on a file system that no other machine
    /// has. A loop device that somebody has made of it is another matter.
    pub fn is_local_file(&self) -> bool {
        !self.is_block_device && file_system::is_local(&self.file)
    }

    /// Whether direct I/O is in use (reported in the log; without it flushes of large pools are slow).
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                offset,
                length,
                device: self.name(),
                device_bytes: self.bytes(),
            }),
        }
    }

    fn io_error(
        &self,
        operation: &'static str,
        offset: u64,
        length: usize,
        source: io::Error,
    ) -> DeviceError {
        DeviceError::Io { operation, offset, length, device: self.name(), source }
    }
}

/// Bytes of the whole blocks of a file or device, as it is now.
fn whole_blocks(file: &File, is_block_device: bool) -> io::Result<u64> {
    let bytes = if is_block_device {
        rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))?
    } else {
        file.metadata()?.len()
    };
    Ok(bytes - bytes % BLOCK_BYTES as u64)
}

/// Locks the file behind a loop device as the device itself is locked. A file that cannot be opened is left alone: that
/// somebody else has the pool is then told by what the pool's users write into it.
fn lock_backing(device: &str, rdev: u64, lock: FlockOperation) -> Result<Option<File>, DeviceError> {
    let Some(path) = loop_device::backing_file(rdev) else { return Ok(None) };
    let Ok(file) = File::open(&path) else { return Ok(None) };
    match rustix::fs::flock(&file, lock) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let by = holders::of_lock(&file).unwrap_or_else(|| String::from("another process"));
            let by = format!("{by} has {} open, the file behind it (its lock is held)", path.display());
            Err(DeviceError::Locked { device: device.to_owned(), by })
        }
        Err(_) => Ok(None),
    }
}

/// The kernel takes no more at once.
const PIECES_PER_CALL: usize = 1024;

fn write_all_vectored_at(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match rustix::io::pwritev(file, slices, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Direct I/O wants the buffer on a block boundary as well.
fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES)
}

impl BlockDevice for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn exact_bytes(&self) -> u64 {
        match self.file.metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => self.bytes(),
        }
    }

    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        let found = |source| self.io_error("grow", bytes, 0, source);
        let mut now = whole_blocks(&self.file, self.is_block_device).map_err(found)?;
        if now < bytes && !self.is_block_device {
            // What was reserved is part of the file from then on.
            let mut reserve = self.reserve.0.lock();
            *reserve = false;
            self.file.set_len(bytes).and_then(|()| self.file.sync_all()).map_err(found)?;
            now = bytes;
        }
        self.bytes.fetch_max(now, Ordering::AcqRel);
        if now < bytes {
            return Err(DeviceError::Smaller { device: self.name(), wanted: bytes, device_bytes: now });
        }
        Ok(())
    }

    fn room_below(&self) -> Option<u64> {
        if self.is_block_device { None } else { thin::room_below(&self.file) }
    }

    fn file_room(&self) -> Option<FileRoom> {
        if self.is_block_device {
            return None;
        }
        let has_reserve = *self.reserve.0.lock();
        thin::file_room(&self.file, has_reserve)
    }

    fn take_room(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if self.is_block_device {
            return Ok(());
        }
        thin::take_room(&self.file, offset, bytes)
            .map_err(|source| self.io_error("taking room", offset, bytes as usize, source))
    }

    fn keep_reserve(&self, may_be_there: bool) {
        if !self.is_block_device {
            self.reserve.keep(&self.file, may_be_there);
        }
    }

    fn has_reserve(&self) -> bool {
        !self.is_block_device && *self.reserve.0.lock()
    }

    fn use_reserve(&self) -> bool {
        !self.is_block_device && self.reserve.give_back(&self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buffer.len())?;
        let length = buffer.len();
        let result = if self.direct && !is_aligned(buffer) {
            let mut aligned = BlockBuffer::zeroed(length.div_ceil(BLOCK_BYTES));
            let done = self.file.read_exact_at(&mut aligned, offset);
            buffer.copy_from_slice(&aligned[..length]);
            done
        } else {
            self.file.read_exact_at(buffer, offset)
        };
        result.map_err(|e| self.io_error("read", offset, length, e))
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        let is_plain = |(offset, buffer): &(u64, &mut [u8])| {
            self.check(*offset, buffer.len()).is_ok() && (!self.direct || is_aligned(buffer))
        };
        if self.uses_ring
            && reads.len() > 1
            && reads.iter().all(is_plain)
            && let Some(outcomes) = ring::read_many(&self.file, reads)
        {
            return outcomes
                .into_iter()
                .zip(reads)
                .map(|(outcome, (offset, buffer))| {
                    outcome.map_err(|e| self.io_error("read", *offset, buffer.len(), e))
                })
                .collect();
        }
        reads.iter_mut().map(|(offset, buffer)| self.read_at(*offset, buffer)).collect()
    }

    fn read_many_remembering(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        let Some(page_cache) = &self.page_cache else { return self.read_many(reads) };
        if reads.iter().any(|(offset, buffer)| self.check(*offset, buffer.len()).is_err()) {
            return self.read_many(reads);
        }
        let outcomes = page_cache.read_many(reads, self.uses_ring);
        outcomes
            .into_iter()
            .zip(reads)
            .map(|(outcome, (offset, buffer))| {
                outcome.map_err(|e| self.io_error("read", *offset, buffer.len(), e))
            })
            .collect()
    }

    fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        match &self.page_cache {
            Some(page_cache) => page_cache.read_remembered(reads),
            None => vec![false; reads.len()],
        }
    }

    fn overlaps_reads(&self) -> bool {
        self.uses_ring
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len())?;
        let result = if self.direct && !is_aligned(bytes) {
            self.file.write_all_at(&BlockBuffer::copy_of(bytes), offset)
        } else {
            self.file.write_all_at(bytes, offset)
        };
        result.map_err(|e| self.io_error("write", offset, bytes.len(), e))
    }

    fn write_pieces_at(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), DeviceError> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        self.check(offset, length)?;
        let mut at = offset;
        for some in pieces.chunks(PIECES_PER_CALL) {
            let length: usize = some.iter().map(|piece| piece.len()).sum();
            let result = if self.direct && !some.iter().all(|piece| is_aligned(piece)) {
                self.file.write_all_at(&BlockBuffer::copy_of(&some.concat()), at)
            } else {
                let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
                write_all_vectored_at(&self.file, &mut slices, at)
            };
            result.map_err(|e| self.io_error("write", at, length, e))?;
            at += length as u64;
        }
        Ok(())
    }

    fn write_many(&self, writes: &[(u64, Vec<&[u8]>)]) -> Vec<Result<(), DeviceError>> {
        let length = |pieces: &[&[u8]]| pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let is_plain = |(offset, pieces): &(u64, Vec<&[u8]>)| {
            self.check(*offset, length(pieces)).is_ok()
                && pieces.len() <= PIECES_PER_CALL
                && (!self.direct || pieces.iter().all(|piece| is_aligned(piece)))
        };
        let by_ring = if self.uses_ring && writes.len() > 1 && writes.iter().all(is_plain) {
            let slices: Vec<(u64, Vec<IoSlice<'_>>)> = writes
                .iter()
                .map(|(offset, pieces)| (*offset, pieces.iter().map(|piece| IoSlice::new(piece)).collect()))
                .collect();
            ring::write_many(&self.file, &slices)
        } else {
            None
        };
        let Some(outcomes) = by_ring else {
            return writes.iter().map(|(offset, pieces)| self.write_pieces_at(*offset, pieces)).collect();
        };
        outcomes
            .into_iter()
            .zip(writes)
            .map(|(outcome, (offset, pieces))| match outcome {
                Ok(written) if written == length(pieces) => Ok(()),
                // Cut short or interrupted.
                Ok(_) => self.write_pieces_at(*offset, pieces),
                Err(error) => Err(self.io_error("write", *offset, length(pieces), error)),
            })
            .collect()
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.file.sync_data().map_err(|e| self.io_error("sync", 0, 0, e))
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_buffers_and_the_last_block_work() {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(&directory.path().join("d"), 8 * BLOCK_BYTES as u64).unwrap();
        let bytes = vec![7; 2 * BLOCK_BYTES + 1];
        device.write_at(6 * BLOCK_BYTES as u64, &bytes[1..]).unwrap();
        device.sync().unwrap();
        let mut back = vec![0; BLOCK_BYTES + 1];
        device.read_at(7 * BLOCK_BYTES as u64, &mut back[1..]).unwrap();
        assert!(back[1..].iter().all(|b| *b == 7));
        let past = device.read_at(7 * BLOCK_BYTES as u64, &mut vec![0; 2 * BLOCK_BYTES]).unwrap_err();
        assert!(matches!(past, DeviceError::OutOfRange { .. }), "{past}");
        // Pieces, aligned and not, some of them empty, and more than go into one call.
        let blocks = BlockBuffer::copy_of(
            &(0..4 * BLOCK_BYTES).map(|i| (i / BLOCK_BYTES + i) as u8).collect::<Vec<_>>(),
        );
        let (odd, quarter) = (&bytes[1..=BLOCK_BYTES], BLOCK_BYTES / 4);
        let fine: Vec<&[u8]> = blocks.chunks(2).collect();
        for pieces in [
            vec![&blocks[..BLOCK_BYTES], &[], &blocks[BLOCK_BYTES..]],
            vec![odd, &blocks[..BLOCK_BYTES], odd],
            vec![&blocks[..quarter], &blocks[quarter..2 * BLOCK_BYTES]],
            fine,
        ] {
            device.write_pieces_at(BLOCK_BYTES as u64, &pieces).unwrap();
            let mut back = vec![0; pieces.concat().len()];
            device.read_at(BLOCK_BYTES as u64, &mut back).unwrap();
            assert!(back == pieces.concat());
        }
        let past = device.write_pieces_at(7 * BLOCK_BYTES as u64, &[odd, odd]).unwrap_err();
        assert!(matches!(past, DeviceError::OutOfRange { .. }), "{past}");
        assert!(device.write_at(u64::MAX - 1, &bytes[..BLOCK_BYTES]).is_err());
    }

    #[test]
    fn a_small_file_is_said_to_be_as_small_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        std::fs::write(&path, [7; 100]).unwrap();
        let device = FileDevice::open_read_only(&path).unwrap();
        assert_eq!((device.bytes(), device.exact_bytes()), (0, 100));
    }

    #[test]
    fn a_device_in_use_is_locked_and_a_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        let device = FileDevice::create(&path, 8 * BLOCK_BYTES as u64).unwrap();
        assert!(matches!(FileDevice::open(&path).unwrap_err(), DeviceError::Locked { .. }));
        assert!(matches!(FileDevice::open_read_only(&path).unwrap_err(), DeviceError::Locked { .. }));
        drop(device);
        let (a, b) = (FileDevice::open_read_only(&path).unwrap(), FileDevice::open_read_only(&path).unwrap());
        assert!(a.write_at(0, &[1; BLOCK_BYTES]).is_err(), "opened for reading only");
        assert!(matches!(FileDevice::open(&path).unwrap_err(), DeviceError::Locked { .. }));
        drop((a, b));
        assert!(matches!(FileDevice::create(&path, 4096).unwrap_err(), DeviceError::Open { .. }));
    }
}
