//! `iso` and `tar`: Debian packages on a CD image (sectors of 2 KiB) and in an archive (512 bytes), before and after an upgrade.
//!
//! The packages are those of `machines`, without unpacking. Upgraded ones are other bytes, as compressors make them, and of
//! another length, so that all behind them moves by a multiple of a sector, which is seldom one of a block.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::error::DataError;
use super::making::Making;
use super::packages::Package;
use super::set::MIB;
use super::{packages, program};

/// Headers, directories, and what files leave free of their last sector.
const TABLES_BYTES: u64 = MIB;

/// A few packages, one of them upgraded.
pub(super) const MINIMUM_BYTES: u64 = 4 * MIB;

/// The time of everything, seconds since 1970.
const TIME: u64 = 1_700_000_000;

/// Makes the file of the second path of what the directory of the first holds.
type Pack = fn(&Path, &Path) -> Result<(), DataError>;

pub(super) fn make_iso(making: &mut Making<'_>) -> Result<(), DataError> {
    making.program("xorriso", Command::new("xorriso").arg("-version"))?;
    make(making, |from, to| {
        let mut command = Command::new("xorriso");
        command.args(["-as", "mkisofs", "-quiet", "-r", "-J", "-no-pad", "-V", "packages", "-o"]);
        command.arg(to).arg(from).env("SOURCE_DATE_EPOCH", TIME.to_string());
        program::run("xorriso", &mut command).map(drop)
    })
}

pub(super) fn make_tar(making: &mut Making<'_>) -> Result<(), DataError> {
    making.program("tar", Command::new("tar").arg("--version"))?;
    make(making, |from, to| {
        let mut command = Command::new("tar");
        command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        command.arg("-cf").arg(to).arg("-C").arg(from).arg(".");
        program::run("tar", &mut command).map(drop)
    })
}

fn make(making: &mut Making<'_>, pack: Pack) -> Result<(), DataError> {
    let mut room = making.volume_bytes().saturating_sub(TABLES_BYTES);
    let mut chosen: Vec<Package> = Vec::new();
    for package in packages::all_of(making.cache(), "machines")? {
        let files = [Some(&package.first), package.upgrade.as_ref()];
        let mut bytes = 0;
        for file in files.into_iter().flatten() {
            bytes = bytes.max(fs::metadata(file).map_err(DataError::io("look at", file))?.len());
        }
        // Of a small image, the packages of the list that still fit.
        if bytes <= room {
            room -= bytes;
            for file in files.into_iter().flatten() {
                making.input(file)?;
            }
            chosen.push(package);
        }
    }
    for (name, is_upgraded) in [("A", false), ("B", true)] {
        making.step(&format!("packing generation {name}"))?;
        let pool = making.scratch().join(name);
        fs::create_dir(&pool).map_err(DataError::io("create", &pool))?;
        for package in &chosen {
            let upgrade = package.upgrade.as_ref().filter(|_| is_upgraded);
            put(upgrade.unwrap_or(&package.first), &package.name, &pool)?;
        }
        set_time(&pool)?;
        let packed = making.scratch().join(format!("{name}.packed"));
        pack(&pool, &packed)?;
        making.begin(name)?;
        making.capture(&packed)?;
    }
    Ok(())
}

/// Copies a package to where an archive keeps it: a directory for each letter.
fn put(file: &Path, name: &str, pool: &Path) -> Result<(), DataError> {
    let dir = pool.join(&name[..1]);
    fs::create_dir_all(&dir).map_err(DataError::io("create", &dir))?;
    let copy = dir.join(file.file_name().unwrap_or_default());
    fs::copy(file, &copy).map_err(DataError::io("write", &copy))?;
    set_time(&copy)?;
    set_time(&dir)
}

fn set_time(path: &Path) -> Result<(), DataError> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(TIME);
    let set = File::open(path).and_then(|opened| opened.set_modified(time));
    set.map_err(DataError::io("set the time of", path))
}
