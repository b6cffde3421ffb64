//! `tree` and `tree-replaced`: a package tree before and after its upgrade: two consecutive versions of Debian's kernel
//! headers.
//!
//! Generations have the files (`tree/`) and the image of an ext4 file system that holds them. B's image is A's, changed
//! by rsync on the mounted file system. Of `tree` only what differs is written, in place: what did not change keeps its
//! blocks. Of `tree-replaced` every file of the package is written anew beside the old one and renamed, as dpkg does:
//! nearly all content moves to other blocks, and hardly any of it is new.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::DataError;
use super::filesystem::{Content, FileSystem};
use super::making::Making;
use super::set::MIB;
use super::{packages, program, walk};

/// What the packages' names begin and end with; between stands the number that grows.
const PACKAGE: (&str, &str) = ("linux-headers-6.1.0-", "-common");

/// How much of an image the files may take, as their bytes. The rest goes to inodes, the journal, and the tails of
/// files, of which most are smaller than two blocks.
const FILL: f64 = 0.5;

/// What the journal and tables take of even the smallest image.
const TABLES_BYTES: u64 = 6 * MIB;

pub(super) const MINIMUM_BYTES: u64 = 16 * MIB;

/// Changes only what differs, in place.
const IN_PLACE: &[&str] = &["-rlptc", "--delete", "--inplace"];
/// Writes every file anew, whatever it holds, and renames it.
const REPLACED: &[&str] = &["-rlpt", "--ignore-times", "--whole-file", "--delete"];

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    upgrade(making, IN_PLACE)
}

pub(super) fn make_replaced(making: &mut Making<'_>) -> Result<(), DataError> {
    upgrade(making, REPLACED)
}

/// The older package and the newer one.
pub(super) fn packages(making: &mut Making<'_>) -> Result<[PathBuf; 2], DataError> {
    let (older, newer) = packages::newest_two(making.cache(), PACKAGE)?;
    for package in [&older, &newer] {
        making.input(package)?;
    }
    making.program("dpkg-deb", Command::new("dpkg-deb").arg("--version"))?;
    making.program("rsync", Command::new("rsync").arg("--version"))?;
    Ok([older, newer])
}

/// Makes what is at `to` what is at `from`, by content: only what differs is written, in place.
pub(super) fn change_in_place(from: &Path, to: &Path) -> Result<(), DataError> {
    rsync(IN_PLACE, from, to)
}

fn rsync(options: &[&str], from: &Path, to: &Path) -> Result<(), DataError> {
    program::run("rsync", Command::new("rsync").args(options).arg(from.join("")).arg(to))?;
    Ok(())
}

fn upgrade(making: &mut Making<'_>, options: &[&str]) -> Result<(), DataError> {
    let [older, newer] = packages(making)?;
    let image_bytes = making.volume_bytes();

    making.step("unpacking the older package")?;
    let dir = making.begin("A")?;
    unpack(making, &older, &dir.join("tree"), image_bytes)?;
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
    unpack(making, &newer, &dir.join("tree"), image_bytes)?;
    let mounted = file_system.mount()?;
    rsync(options, &dir.join("tree"), mounted.root())?;
    mounted.unmount()?;
    making.step("keeping generation B")?;
    making.capture(file_system.image())?;
    making.measure_tree()
}

/// Unpacks a package's files to `tree`; for a small image only a share of them.
pub(super) fn unpack(
    making: &Making<'_>,
    package: &Path,
    tree: &Path,
    image_bytes: u64,
) -> Result<(), DataError> {
    let scratch = making.scratch().join("package");
    program::run("dpkg-deb", Command::new("dpkg-deb").arg("-x").arg(package).arg(&scratch))?;
    let sources = scratch.join("usr/src");
    let missing = || DataError::Missing { what: format!("the directory usr/src in {}", package.display()) };
    let found =
        fs::read_dir(&sources).map_err(DataError::io("list", &sources))?.next().ok_or_else(missing)?;
    let found = found.map_err(DataError::io("list", &sources))?.path();
    keep_share(&found, image_bytes)?;
    fs::rename(&found, tree).map_err(DataError::io("move", &found))?;
    fs::remove_dir_all(&scratch).map_err(DataError::io("remove", &scratch))
}

/// Removes files until the rest fits into an image: always the same ones, by their names alone, so that two versions
/// keep the same files. Directories that are left empty go, too; the others keep their times.
fn keep_share(root: &Path, image_bytes: u64) -> Result<(), DataError> {
    let (files, directories) = walk::walk(root)?;
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
