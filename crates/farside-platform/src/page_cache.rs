//! Reading a device by way of the kernel's page cache, beside direct reads and writes.
//!
//! The kernel keeps what was read as long as nobody needs the memory for more, and drops what a direct write makes old. That it does
//! is the file system's word: whoever reads here compares what comes with its fingerprint, and reads the medium if it does not match.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::io::{ReadWriteFlags, preadv2};

use crate::ring;

#[derive(Debug)]
pub(crate) struct PageCache {
    file: File,
}

impl PageCache {
    /// Beside a file that is open for direct I/O.
    pub(crate) fn beside(direct: &File) -> io::Result<PageCache> {
        // The same file, whatever its path leads to by now.
        let file = File::open(format!("/proc/self/fd/{}", direct.as_raw_fd()))?;
        Ok(PageCache { file })
    }

    /// Fills each buffer from its offset, by io_uring or one by one; what became of each.
    pub(crate) fn read_many(&self, reads: &mut [(u64, &mut [u8])], by_ring: bool) -> Vec<io::Result<()>> {
        if by_ring
            && reads.len() > 1
            && let Some(outcomes) = ring::read_many(&self.file, reads)
        {
            return outcomes;
        }
        reads.iter_mut().map(|(offset, buffer)| self.file.read_exact_at(buffer, *offset)).collect()
    }

    /// Fills those buffers of which the kernel has all in memory; which ones those are. It waits for nothing.
    pub(crate) fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let filled = |(offset, buffer): &mut (u64, &mut [u8])| {
            let length = buffer.len();
            let read = preadv2(&self.file, &mut [IoSliceMut::new(buffer)], *offset, ReadWriteFlags::NOWAIT);
            read == Ok(length)
        };
        reads.iter_mut().map(filled).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{BLOCK_BYTES, BlockBuffer, BlockDevice, FileDevice};

    /// A file system that has no direct I/O has no second way either.
    fn device(directory: &std::path::Path) -> Option<FileDevice> {
        let device = FileDevice::create(&directory.join("d"), 64 * BLOCK_BYTES as u64).unwrap();
        device.is_direct().then_some(device)
    }

    fn block(of: u8) -> BlockBuffer {
        BlockBuffer::copy_of(&[of; BLOCK_BYTES])
    }

    #[test]
    fn what_was_read_is_remembered_until_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = device(directory.path()) else {
            eprintln!("skipped: no direct I/O here");
            return;
        };
        let at = |number: u64| number * BLOCK_BYTES as u64;
        for number in 0..64 {
            device.write_at(at(number), &block(number as u8 + 1)).unwrap();
        }
        let mut buffers = [block(0), block(0)];
        let [a, b] = &mut buffers;
        let mut reads: Vec<(u64, &mut [u8])> = vec![(at(3), a), (at(40), b)];
        assert_eq!(device.read_remembered(&mut reads), [false; 2], "written, never read");
        assert!(device.read_many_remembering(&mut reads).iter().all(Result::is_ok));
        assert_eq!(device.read_remembered(&mut reads), [true; 2]);
        assert!(buffers[0][..] == block(4)[..] && buffers[1][..] == block(41)[..]);
        let mut past = block(0);
        assert!(device.read_many_remembering(&mut [(at(64), &mut past)])[0].is_err());
        assert_eq!(device.read_remembered(&mut [(at(64), &mut past)]), [false]);
        // Whatever way the write goes.
        device.write_at(at(3), &block(77)).unwrap();
        let pieces = block(78);
        let many = device.write_many(&[(at(40), vec![&pieces[..]]), (at(41), vec![&pieces[..]])]);
        assert!(many.iter().all(Result::is_ok));
        for (number, expected) in [(3, 77), (40, 78)] {
            let mut buffer = block(0);
            let remembered = device.read_remembered(&mut [(at(number), &mut buffer)]);
            assert!(!remembered[0] || buffer[0] == expected, "block {number} is {}", buffer[0]);
            assert!(device.read_many_remembering(&mut [(at(number), &mut buffer)])[0].is_ok());
            assert_eq!(buffer[0], expected);
        }
    }
}
