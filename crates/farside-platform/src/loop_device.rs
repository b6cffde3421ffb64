//! The file behind a loop device. Whoever has the device open has the file: the lock of the one must keep out the other.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// What the kernel counts sizes and offsets of block devices in.
const SECTOR_BYTES: u64 = 512;

/// The file that a pool on the loop device `rdev` lies in, if it begins there where the device does: two devices at several
/// places of a file hold two pools. None also where the kernel's path leads nowhere in this process's view of the file
/// system, or to a file of another size: what had that name then is not what has it now.
pub(crate) fn backing_file(rdev: u64) -> Option<PathBuf> {
    let directory = format!("/sys/dev/block/{}:{}", major(rdev), minor(rdev));
    let directory = Path::new(&directory);
    let text = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let path = PathBuf::from(text("loop/backing_file")?.trim_end_matches('\n'));
    if number("loop/offset")? != 0 {
        return None;
    }
    let found = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let is_whole = number("loop/sizelimit")? == 0;
    (!is_whole || number("size")? == found.size() / SECTOR_BYTES).then_some(path)
}
