//! Where a pool lies: a thing of 4096-byte blocks with a volatile cache.
//!
//! The contract is that of a disk with a write cache and no more: a finished write is seen by later reads, but
//! survives a power failure only once a [`BlockDevice::sync`] that *began after the write finished* has returned.
//! Until then it may be kept, lost, torn at any 512-byte sector, or overtaken by a later write.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};

use crate::block::{BLOCK_BYTES, BlockBuffer};

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
    /// Another process holds the device.
    #[error("{device} is in use by another process (its lock is held); stop that farsided first")]
    Locked {
        /// The device's name.
        device: String,
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
            DeviceError::Locked { .. } | DeviceError::Open { .. } => false,
        }
    }
}

/// A block device. Offsets and lengths are bytes and whole blocks; implementations are internally synchronised.
pub trait BlockDevice: Send + Sync + 'static {
    /// Size in bytes, a whole number of blocks.
    fn bytes(&self) -> u64;
    /// Fills `buffer` from `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError>;
    /// Writes `bytes` at `offset`, into the device's volatile cache at least.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError>;
    /// Makes every write that had finished when this was called survive a power failure.
    fn sync(&self) -> Result<(), DeviceError>;
    /// A name for messages: the path.
    fn name(&self) -> String;
}

/// A regular file or a raw device, by direct I/O where the file system allows it.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    bytes: u64,
    direct: bool,
}

impl FileDevice {
    /// Makes a file of `bytes` bytes (thin: blocks are claimed as they are written) and opens it. An existing
    /// regular file is refused; a raw device is taken as it is.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, DeviceError> {
        let open_error = |source| DeviceError::Open { device: path.display().to_string(), source };
        let is_device = path.metadata().map(|m| m.file_type().is_block_device()).unwrap_or(false);
        if !is_device {
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(open_error)?;
            file.set_len(bytes).map_err(open_error)?;
            file.sync_all().map_err(open_error)?;
            // The name must survive a power failure as well as the bytes.
            if let Some(directory) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                File::open(directory).and_then(|d| d.sync_all()).map_err(open_error)?;
            }
        }
        Self::open(path)
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
        let open = |flags: OFlags| {
            OpenOptions::new().read(true).write(writable).custom_flags(flags.bits() as i32).open(path)
        };
        let (file, direct) = match open(OFlags::DIRECT | OFlags::CLOEXEC) {
            Ok(file) => (file, true),
            // tmpfs and some network file systems have no direct I/O; the contract holds without it.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                (open(OFlags::CLOEXEC).map_err(open_error)?, false)
            }
            Err(e) => return Err(open_error(e)),
        };
        let lock = if writable {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        rustix::fs::flock(&file, lock).map_err(|_| DeviceError::Locked { device: device.clone() })?;
        let bytes = if file.metadata().map_err(open_error)?.file_type().is_block_device() {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|e| open_error(e.into()))?
        } else {
            file.metadata().map_err(open_error)?.len()
        };
        let bytes = bytes - bytes % BLOCK_BYTES as u64;
        Ok(FileDevice { file, path: path.to_path_buf(), bytes, direct })
    }

    /// Whether direct I/O is in use (reported in the log; without it flushes of large pools are slow).
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => {
                Err(DeviceError::OutOfRange { offset, length, device: self.name(), device_bytes: self.bytes })
            }
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

/// Direct I/O wants the buffer on a block boundary as well.
fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(BLOCK_BYTES) && bytes.len().is_multiple_of(BLOCK_BYTES)
}

impl BlockDevice for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes
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

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len())?;
        let result = if self.direct && !is_aligned(bytes) {
            self.file.write_all_at(&BlockBuffer::copy_of(bytes), offset)
        } else {
            self.file.write_all_at(bytes, offset)
        };
        result.map_err(|e| self.io_error("write", offset, bytes.len(), e))
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
        assert!(device.write_at(u64::MAX - 1, &bytes[..BLOCK_BYTES]).is_err());
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
