//! `tree`: a package tree before and after its upgrade: two consecutive versions of Debian's kernel headers.
//!
//! Generations have the files (`tree/`) and the image of an ext4 file system that holds them. B's image is A's, changed
//! in place by rsync as an upgrade on a mounted host: files that did not change keep their blocks.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::filesystem::{self, Content, FileSystem};
use super::making::Making;
use super::{DataError, MIB, packages, program};

/// What the packages' names begin and end with; between stands the number that grows.
const PACKAGE: (&str, &str) = ("linux-headers-6.1.0-", "-common");

/// How much of an image the files may take, as their bytes. The rest goes to inodes, the journal, and the tails of
/// files, of which most are smaller than two blocks.
const FILL: f64 = 0.5;

/// What the journal and tables take of even the smallest image.
const TABLES_BYTES: u64 = 6 * MIB;

pub(super) const MINIMUM_BYTES: u64 = 16 * MIB;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let (older, newer) = packages::newest_two(making.cache(), PACKAGE)?;
    making.program("dpkg-deb", Command::new("dpkg-deb").arg("--version"))?;
    making.program("rsync", Command::new("rsync").arg("--version"))?;

    making.step("unpacking the older package")?;
    let dir = making.begin("A")?;
    unpack(making, &older, &dir.join("tree"))?;
    let file_system = FileSystem::create(making, "tree.img", 0, Content::Small)?;
    let mounted = file_system.mount()?;
    let everything = dir.join("tree/.");
    program::run("cp", Command::new("cp").arg("-a").arg(&everything).arg(mounted.root()))?;
    mounted.unmount()?;
    making.step("keeping generation A")?;
    making.capture(file_system.image())?;
    making.measure_tree()?;

    making.step("upgrading to the newer package")?;
    let dir = making.begin("B")?;
    unpack(making, &newer, &dir.join("tree"))?;
    let mounted = file_system.mount()?;
    let mut upgrade = Command::new("rsync");
    // By content, as an upgrade that knows which files are new; only these are written, where they are.
    upgrade.args(["-rlptc", "--delete", "--inplace"]).arg(dir.join("tree/")).arg(mounted.root());
    program::run("rsync", &mut upgrade)?;
    mounted.unmount()?;
    making.step("keeping generation B")?;
    making.capture(file_system.image())?;
    making.measure_tree()
}

/// Unpacks a package's files to `tree`; of a small image only a share of them.
fn unpack(making: &mut Making<'_>, package: &Path, tree: &Path) -> Result<(), DataError> {
    making.input(package)?;
    let scratch = making.scratch().join("package");
    program::run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(package).arg(&scratch))?;
    let sources = scratch.join("usr/src");
    let missing = || DataError::Missing { what: format!("the directory usr/src in {}", package.display()) };
    let found =
        fs::read_dir(&sources).map_err(DataError::io("list", &sources))?.next().ok_or_else(missing)?;
    let found = found.map_err(DataError::io("list", &sources))?.path();
    keep_share(&found, making.volume_bytes())?;
    fs::rename(&found, tree).map_err(DataError::io("move", &found))?;
    fs::remove_dir_all(&scratch).map_err(DataError::io("remove", &scratch))
}

/// Removes files until the rest fits into an image: always the same ones, by their names alone, so that two versions
/// keep the same files. Directories that are left empty go, too; the others keep their times.
fn keep_share(root: &Path, image_bytes: u64) -> Result<(), DataError> {
    let (files, directories) = filesystem::walk(root)?;
    let mut total_bytes = 0;
    for file in &files {
        let path = root.join(file);
        total_bytes += fs::metadata(&path).map_err(DataError::io("look at", &path))?.len();
    }
    let room = image_bytes.saturating_sub(TABLES_BYTES) as f64 * FILL;
    if total_bytes as f64 <= room {
        return Ok(());
    }
    // Whole steps, because the two versions differ a little in size and must keep the same files.
    let kept_of_1000 = (room / total_bytes as f64 * 100.0).floor() as u64 * 10;
    let directories: Vec<PathBuf> = directories.into_iter().map(|directory| root.join(directory)).collect();
    let mut times = Vec::new();
    for directory in directories.iter().map(PathBuf::as_path).chain([root]) {
        let modified = fs::metadata(directory).and_then(|found| found.modified());
        times.push((directory, modified.map_err(DataError::io("look at", directory))?));
    }
    for file in files {
        if hash(file.as_os_str()) % 1000 >= kept_of_1000 {
            let path = root.join(file);
            fs::remove_file(&path).map_err(DataError::io("remove", &path))?;
        }
    }
    // Deepest first.
    for directory in directories.iter().rev() {
        // Those that still hold something stay.
        let _ = fs::remove_dir(directory);
    }
    for (directory, modified) in times.into_iter().filter(|(directory, _)| directory.exists()) {
        let opened = File::open(directory).and_then(|opened| opened.set_modified(modified));
        opened.map_err(DataError::io("set the time of", directory))?;
    }
    Ok(())
}

/// FNV-1a: the same number for a name on every machine.
fn hash(name: &OsStr) -> u64 {
    name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
