//! Which file systems one machine alone has.

use std::fs::File;
use std::path::Path;

/// Magic numbers of file systems that one kernel alone mounts, and on which a file has one inode: ext2 to ext4, XFS, btrfs,
/// F2FS, ZFS, bcachefs, tmpfs, ramfs. Not an overlay: what lies below it can be opened beside it.
const LOCAL: [u32; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, 0x0102_1994, 0x8584_58f6];

/// Whether a lock of this file keeps out everybody who opens it as a file: it lies on a file system that no other machine has.
/// Of one that is not known it is not said.
pub(crate) fn is_local(file: &File) -> bool {
    // The type of the field differs between architectures; the numbers have 32 bits.
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u32)))
}

/// How much room the file system has on which a file at `path` lies, or would be made, bytes: what is left for who is not root.
/// None if it cannot be asked.
pub fn free_bytes_at(path: &Path) -> Option<u64> {
    let found = [path, path.parent()?].into_iter().find_map(|at| rustix::fs::statvfs(at).ok())?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_told_of_files_that_are_not_there_yet() {
        let directory = tempfile::tempdir().unwrap();
        assert!(free_bytes_at(&directory.path().join("x")).is_some_and(|free| free > 0));
        assert_eq!(free_bytes_at(&directory.path().join("x/y")), None);
    }

    #[test]
    fn a_file_system_that_the_kernel_makes_up_is_not_local() {
        assert!(!is_local(&File::open("/proc/self/status").unwrap()));
    }
}
