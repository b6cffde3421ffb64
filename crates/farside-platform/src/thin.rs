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
/// So many times as much has to be left once it is taken.
const PLENTY: u64 = 4;

/// What a file has of the file system that it lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileRoom {
    /// Bytes that the file system has given it for what it holds; a reserve behind its end does not count.
    pub taken_bytes: u64,
    /// Bytes that the file system has left.
    pub left_bytes: u64,
    /// Bytes of the file system in all.
    pub file_system_bytes: u64,
}

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
    left_below(file)
}

/// What a file has of its file system; none if that cannot be told.
pub(crate) fn file_room(file: &File, has_reserve: bool) -> Option<FileRoom> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let found = rustix::fs::fstatvfs(file).ok()?;
    let reserve = if has_reserve { reserve_bytes(metadata.len()) } else { 0 };
    Some(FileRoom {
        // Blocks of stat(2) have 512 bytes, whatever those of the file system have.
        taken_bytes: metadata.blocks().saturating_mul(512).saturating_sub(reserve),
        left_bytes: found.f_bavail.checked_mul(found.f_frsize)?,
        file_system_bytes: found.f_blocks.checked_mul(found.f_frsize)?,
    })
}

fn left_below(file: &File) -> Option<u64> {
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

/// Gives back what lies behind the end: some file systems do by the one, some by the other.
fn release(file: &File, length: u64) -> bool {
    let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let is_punched = rustix::fs::fallocate(file, punched, length, reserve_bytes(length)).is_ok();
    file.set_len(length).is_ok() || is_punched
}

impl Reserve {
    /// Takes the reserve, if the file system then still has several times as much left: all of it or none. One that `may_be_there`
    /// from an earlier opening of the file is kept however little there is.
    pub(crate) fn keep(&self, file: &File, may_be_there: bool) {
        let mut is_there = self.0.lock();
        if *is_there {
            return;
        }
        let Some(length) = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len()) else {
            return;
        };
        let wanted = reserve_bytes(length);
        let left = || left_below(file);
        let Some(before) = left().filter(|_| wanted > 0) else { return };
        let has_plenty = before / (PLENTY + 1) >= wanted;
        if !has_plenty && !may_be_there {
            return;
        }
        let is_taken = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, length, wanted).is_ok();
        // What costs next to nothing was there.
        let was_there = || left().is_some_and(|after| after + wanted / 2 > before);
        if is_taken && (has_plenty || was_there()) {
            *is_there = true;
        } else {
            release(file, length);
        }
    }

    /// Gives it back to the file system, for what is about to be written; whether there was one.
    pub(crate) fn give_back(&self, file: &File) -> bool {
        let mut is_there = self.0.lock();
        if !std::mem::take(&mut *is_there) {
            return false;
        }
        file.metadata().is_ok_and(|metadata| release(file, metadata.len()))
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
        reserve.keep(&file, false);
        let with = taken();
        if with == before {
            eprintln!("*** SKIP: this file system takes no room before it is needed");
            return;
        }
        assert!(with >= before + (LENGTH / RESERVE_SHARE), "{before} {with}");
        let held = file_room(&file, true).unwrap();
        assert!(held.taken_bytes < with && held.left_bytes < held.file_system_bytes, "{held:?}");
        assert_eq!(file_room(&file, false).unwrap().taken_bytes, with);
        reserve.keep(&file, true);
        assert_eq!(taken(), with, "once is enough");
        let next = Reserve::default();
        next.keep(&file, true);
        assert_eq!(taken(), with, "it is found by the next");
        assert!(reserve.give_back(&file) && !reserve.give_back(&file));
        assert!(taken() <= before + (1 << 20), "{before} {}", taken());
        assert_eq!(file.metadata().unwrap().len(), LENGTH);
        let mut end = [0; 6];
        file.read_exact_at(&mut end, LENGTH - 6).unwrap();
        assert_eq!(&end, b"before");
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
