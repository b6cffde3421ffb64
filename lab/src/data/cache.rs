//! The cache on disk: a set's directory appears under its name when it is whole, by one rename, and never before.
//!
//! `CACHE/.NAME.lock` is held by whoever makes or looks for NAME. It is made in a scratch directory of the run beside it,
//! which goes with the run: at once when making fails, and by the next start of the laboratory after a kill.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::Command;

use super::error::DataError;
use super::making::Making;
use super::manifest::{MANIFEST_FILE, MANIFEST_VERSION, Manifest};
use super::progress::Progress;
use super::set::{Prepared, Set};
use crate::testbed::{TestBed, TestBedError};

/// When this little is free after something failed, the full disk was the reason.
const FULL_BELOW_BYTES: u64 = 16 * 1024 * 1024;

/// Programs, packages unpacked and archives that lie in the making directory beside images, at most.
const SIDE_BYTES: u64 = 64 * 1024 * 1024;

/// The whole set, if it is there.
pub(super) fn find(
    set: &Set,
    size_bytes: u64,
    seed: u64,
    cache: &Path,
) -> Result<Option<Prepared>, DataError> {
    let dir = cache.join(directory_name(set, size_bytes, seed));
    Ok(read_whole(&dir, set)?.map(|manifest| Prepared { dir, manifest }))
}

/// The recipe's version is part of it: a newer laboratory never takes a set away from an older one that is using it.
fn directory_name(set: &Set, size_bytes: u64, seed: u64) -> String {
    format!("{}-{size_bytes}-{seed}-v{}.{}", set.name, MANIFEST_VERSION, set.generator)
}

/// Another set of the same seed that the one in hand is made of, found or made.
pub(super) fn other(
    making: &mut Making<'_>,
    set: &'static Set,
    size_bytes: u64,
) -> Result<Prepared, DataError> {
    let (seed, cache) = (making.seed(), making.cache().to_owned());
    let test_bed = making.test_bed();
    let other = open_or_make(set, size_bytes, seed, &cache, test_bed, making.progress())?;
    making.made_of(set.name, &other.manifest);
    Ok(other)
}

/// The whole set, found or made.
pub(super) fn open_or_make(
    set: &'static Set,
    size_bytes: u64,
    seed: u64,
    cache: &Path,
    test_bed: &TestBed,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Prepared, DataError> {
    fs::create_dir_all(cache).map_err(DataError::io("create", cache))?;
    let name = directory_name(set, size_bytes, seed);
    let lock = cache.join(format!(".{name}.lock"));
    let _lock = take_lock(&lock, progress)?;
    let dir = cache.join(&name);
    if let Some(manifest) = read_whole(&dir, set)? {
        return Ok(Prepared { dir, manifest });
    }
    // Every generation, the image that programs work in, and what lies beside it.
    let needed_bytes = size_bytes * (set.generations.len() as u64 + 1) + SIDE_BYTES;
    let full = |available_bytes| DataError::DiskFull {
        set: set.name,
        path: cache.to_owned(),
        needed_bytes,
        available_bytes,
    };
    let available_bytes = available(cache)?;
    if available_bytes < needed_bytes {
        return Err(full(available_bytes));
    }
    let scratch = test_bed.scratch_in(cache)?;
    let mut making = Making::new(set, size_bytes, seed, cache, scratch.path(), test_bed, progress)?;
    let made =
        making.program("zstd", Command::new("zstd").arg("--version")).and_then(|()| (set.make)(&mut making));
    match made {
        Ok(()) => keep(making, &dir),
        // Programs get the signal, too, and fail of it.
        Err(_) if test_bed.interrupted() => Err(TestBedError::Interrupted.into()),
        // A program inside the image knows only that writing failed.
        Err(error) => match available(cache) {
            Ok(available_bytes) if available_bytes < FULL_BELOW_BYTES => Err(full(available_bytes)),
            _ => Err(error),
        },
    }
}

/// Writes the manifest and gives the set its name.
fn keep(making: Making<'_>, dir: &Path) -> Result<Prepared, DataError> {
    let out = making.out().to_owned();
    let manifest = making.into_manifest();
    let path = out.join(MANIFEST_FILE);
    let text = serde_json::to_string_pretty(&manifest).expect("maps with text as keys become JSON");
    fs::write(&path, text + "\n").map_err(DataError::io("write", &path))?;
    // A rename that a power cut keeps must not name data that it lost.
    let opened = File::open(&path).map_err(DataError::io("open", &path))?;
    rustix::fs::syncfs(&opened).map_err(|error| DataError::io("sync", &path)(error.into()))?;
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(DataError::io("remove the outdated", dir))?;
    }
    fs::rename(&out, dir).map_err(DataError::io("rename to its place", dir))?;
    Ok(Prepared { dir: dir.to_owned(), manifest })
}

/// The manifest of a set that is there, of this recipe, with all its images.
fn read_whole(dir: &Path, set: &Set) -> Result<Option<Manifest>, DataError> {
    let path = dir.join(MANIFEST_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DataError::io("read", &path)(error)),
    };
    let Ok(manifest) = serde_json::from_slice::<Manifest>(&text) else { return Ok(None) };
    let current = manifest.version == MANIFEST_VERSION && manifest.generator == set.generator;
    let whole = manifest.generations.iter().all(|generation| {
        let of_size = |(file, size_bytes): (&str, u64)| {
            fs::metadata(dir.join(&generation.name).join(file)).is_ok_and(|found| found.len() == size_bytes)
        };
        generation.volumes.iter().map(|volume| (volume.file.as_str(), volume.size_bytes)).all(of_size)
    });
    Ok((current && whole).then_some(manifest))
}

/// Waits for the lock; it goes with the process, however that ends.
fn take_lock(path: &Path, progress: &mut dyn FnMut(Progress<'_>)) -> Result<File, DataError> {
    let lock = File::create(path).map_err(DataError::io("create", path))?;
    match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => {
            progress(Progress { step: "waiting for another process that makes the same set", share: None });
        }
        Err(TryLockError::Error(error)) => return Err(DataError::io("lock", path)(error)),
    }
    lock.lock().map_err(DataError::io("lock", path))?;
    Ok(lock)
}

/// Bytes that may be written into a directory.
fn available(dir: &Path) -> Result<u64, DataError> {
    let found =
        rustix::fs::statvfs(dir).map_err(|error| DataError::io("look at the disk of", dir)(error.into()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}
