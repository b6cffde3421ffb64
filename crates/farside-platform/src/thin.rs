//! A file takes its room from the file system as it is written, so it may lack what its size promises. What a pool needs to go on
//! in spite of that: how much is left below, taking room before it is needed, and a reserve.
//!
//! The reserve lies behind the file's end: it belongs to the file, and nothing can be read there.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The part of a file that its reserve has, and the most that it takes.
const RESERVE_SHARE: u64 = 16;
const RESERVE_BYTES_MAX: u64 = 16 << 20;

/// Whether a file has a reserve. The lock is held while the file's length is set.
#[derive(Debug, Default)]
pub(crate) struct Reserve(pub(crate) Mutex<bool>);

/// Bytes that the file system below has left, if the file may still take some of it.
pub(crate) fn room_below(file: &File) -> Option<u64> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // Blocks of stat(2) have 512 bytes, whatever those of the file system have.
    if metadata.blocks().saturating_mul(512) >= metadata.len() + reserve_bytes(metadata.len()) {
        return None;
    }
    let found = rustix::fs::fstatvfs(file).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// Has the file system give the file room for these bytes; what is there stays as it is. File systems that cannot do it are content.
pub(crate) fn take_room(file: &File, offset: u64, bytes: u64) -> std::io::Result<()> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, offset, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn reserve_bytes(length: u64) -> u64 {
    (length / RESERVE_SHARE).min(RESERVE_BYTES_MAX)
}

impl Reserve {
    /// Takes the reserve, if the file system has `share` times as much left. All of it or none.
    pub(crate) fn keep(&self, file: &File, share: u64) {
        let mut is_there = self.0.lock();
        if *is_there {
            return;
        }
        let Some(length) = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len()) else {
            return;
        };
        let wanted = reserve_bytes(length);
        let left =
            || rustix::fs::fstatvfs(file).ok().and_then(|found| found.f_bavail.checked_mul(found.f_frsize));
        if wanted == 0 || (share > 0 && left().is_none_or(|left| left < wanted.saturating_mul(share))) {
            return;
        }
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, length, wanted) {
            Ok(()) => *is_there = true,
            // It may have got a part.
            Err(_) => {
                let _ = file.set_len(length);
            }
        }
    }

    /// Gives it back to the file system, for what is about to be written; whether there was one.
    pub(crate) fn give_back(&self, file: &File) -> bool {
        let mut is_there = self.0.lock();
        if !std::mem::take(&mut *is_there) {
            return false;
        }
        let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return false };
        // Some file systems give back by the one what lies behind the end, some by the other.
        let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_punched = rustix::fs::fallocate(file, punched, length, reserve_bytes(length)).is_ok();
        file.set_len(length).is_ok() || is_punched
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_reserve_changes_nothing_in_the_file_and_comes_back() {
        const LENGTH: u64 = 64 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        file.write_all_at(b"before", LENGTH - 6).unwrap();
        assert!(room_below(&file).is_some_and(|left| left > 0));
        let taken = || file.metadata().unwrap().blocks() * 512;
        let reserve = Reserve::default();
        assert!(!reserve.give_back(&file), "there is none");
        let before = taken();
        reserve.keep(&file, 0);
        let with = taken();
        if with == before {
            eprintln!("*** SKIP: this file system takes no room before it is needed");
            return;
        }
        assert!(with >= before + (LENGTH / RESERVE_SHARE), "{before} {with}");
        reserve.keep(&file, 0);
        assert_eq!(taken(), with, "once is enough");
        assert!(reserve.give_back(&file) && !reserve.give_back(&file));
        assert!(taken() <= before + (1 << 20), "{before} {}", taken());
        assert_eq!(file.metadata().unwrap().len(), LENGTH);
        let mut end = [0; 6];
        file.read_exact_at(&mut end, LENGTH - 6).unwrap();
        assert_eq!(&end, b"before");
        reserve.keep(&file, u64::MAX);
        assert!(!reserve.give_back(&file), "no file system has as much left");
    }

    #[test]
    fn what_was_written_stays_when_room_is_taken_and_a_whole_file_lacks_none() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(b"here", 4096).unwrap();
        take_room(&file, 0, 1 << 20).unwrap();
        let mut there = [0; 4];
        file.read_exact_at(&mut there, 4096).unwrap();
        assert_eq!(&there, b"here");
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        take_room(&file, 1 << 20, 1 << 17).unwrap();
        if file.metadata().unwrap().blocks() * 512 >= (1 << 20) + (1 << 16) {
            assert_eq!(room_below(&file), None);
        }
    }
}
