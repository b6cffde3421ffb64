//! Data sets: what real programs write, made deterministically as far as these programs allow.
//!
//! A *set* is a recipe: a real program (PostgreSQL under its own benchmark, SQLite, a mail store's files, a package
//! upgrade, …) works in a file system, and the images of that file system at several moments, the *generations*, are
//! kept. A contender brings the first generation over in its initial copy and each later one in an update.
//!
//! What was made stays in a cache, `CACHE/SET-SIZE-SEED-vVERSION/`: `manifest.json` tells what it is ([`Manifest`]), each
//! generation is a directory with `0.img` (… `7.img` for several volumes) and, where the set is files, `tree/`. Images
//! have holes where 4 KiB blocks are zero. The directory appears under its name only when it is whole; what a killed
//! process left is removed by the next one that makes the same set. Two processes may use one cache: who wants what the
//! other makes waits for it.
//!
//! What is bit-exact between two makings and what is not is told set by set in the manual (*Data sets*); nothing here
//! reads the clock for what it writes.

mod archives;
mod cache;
mod capture;
mod encrypted;
mod error;
mod filesystem;
mod fleet;
mod large;
mod machines;
mod mail;
mod making;
mod manifest;
mod packages;
mod postgres;
mod program;
mod progress;
mod random;
mod seeded;
mod sequences;
mod set;
mod sqlite;
mod text;
mod tree;
mod walk;

use std::path::Path;

pub use error::DataError;
pub use manifest::{BLOCK_BYTES, Generation, MANIFEST_FILE, MANIFEST_VERSION, Manifest, Tree, Volume};
pub use progress::Progress;
pub use set::{Prepared, Set};

use set::{MIB, SET};

use crate::testbed::TestBed;

/// What is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Order {
    /// Name of one of [`sets`].
    pub set: String,
    /// Bytes of all volumes of one generation together, rounded up to whole MiBs of each; the set's own size if absent.
    pub size_bytes: Option<u64>,
    /// Of everything that is drawn by chance.
    pub seed: u64,
}

/// Every set, in the order in which people should see them.
pub fn sets() -> &'static [Set] {
    static SETS: &[Set] = &[
        postgres::SET,
        Set {
            name: "sqlite",
            about: "a shop's SQLite database in write-ahead mode on ext4; B after more orders",
            default_bytes: 96 * MIB,
            minimum_bytes: sqlite::MINIMUM_BYTES,
            generator: 4,
            make: sqlite::make,
            ..SET
        },
        Set {
            name: "tree",
            about: "a package tree of 9400 files on ext4, before and after its upgrade",
            default_bytes: 128 * MIB,
            minimum_bytes: tree::MINIMUM_BYTES,
            has_tree: true,
            generator: 1,
            make: tree::make,
            ..SET
        },
        Set {
            name: "tree-replaced",
            about: "the same tree where the upgrade writes every file anew and renames it, as dpkg does",
            default_bytes: 192 * MIB,
            minimum_bytes: tree::MINIMUM_BYTES,
            has_tree: true,
            generator: 1,
            make: tree::make_replaced,
            ..SET
        },
        Set {
            name: "mail",
            about: "a mail store of eight volumes, Maildir and mbox, on five days",
            default_bytes: 256 * MIB,
            minimum_bytes: mail::MINIMUM_BYTES,
            volumes: mail::VOLUMES,
            generations: mail::DAYS,
            generator: 2,
            make: mail::make,
            ..SET
        },
        Set {
            name: "sequences",
            about: "FASTA sequence files on ext4; B10 has 10 % of their bytes replaced, B25 another 25 %",
            default_bytes: 96 * MIB,
            minimum_bytes: sequences::MINIMUM_BYTES,
            generations: &["A", "B10", "B25"],
            has_tree: true,
            generator: 2,
            make: sequences::make,
            ..SET
        },
        Set {
            name: "sequences-gz",
            about: "the same kind of files compressed by gzip",
            default_bytes: 48 * MIB,
            minimum_bytes: sequences::MINIMUM_BYTES,
            generations: &["A", "B10", "B25"],
            has_tree: true,
            generator: 2,
            make: sequences::make_compressed,
            ..SET
        },
        Set {
            name: "machines",
            about: "disks of two virtual machines, clones with packages of their own; B after an upgrade",
            default_bytes: 640 * MIB,
            minimum_bytes: machines::MINIMUM_BYTES,
            volumes: 2,
            generator: 2,
            make: machines::make,
            ..SET
        },
        Set {
            name: "iso",
            about: "a CD image of packages; B after an upgrade that renews a quarter of them and moves the others",
            default_bytes: 80 * MIB,
            minimum_bytes: archives::MINIMUM_BYTES,
            make: archives::make_iso,
            ..SET
        },
        Set {
            name: "tar",
            about: "the same packages as an archive",
            default_bytes: 80 * MIB,
            minimum_bytes: archives::MINIMUM_BYTES,
            make: archives::make_tar,
            ..SET
        },
        Set {
            name: "fleet",
            about: "ten volumes with 95 % in common, and a twin of the first; B after the same upgrade on each",
            default_bytes: 64 * MIB * fleet::VOLUMES as u64,
            minimum_bytes: fleet::MINIMUM_BYTES,
            volumes: fleet::VOLUMES,
            generator: 1,
            make: fleet::make,
            ..SET
        },
        Set {
            name: "random",
            about: "bytes that no program compresses; B has a quarter of the blocks rewritten in runs",
            default_bytes: 64 * MIB,
            minimum_bytes: MIB,
            generator: 1,
            make: random::make,
            ..SET
        },
        Set {
            name: "encrypted",
            about: "the postgres images as LUKS of one key",
            default_bytes: encrypted::DEFAULT_BYTES,
            minimum_bytes: encrypted::MINIMUM_BYTES,
            generator: 2,
            make: encrypted::make,
            ..SET
        },
        Set {
            name: "large-tail",
            about: "the postgres images with gigabytes of other content before them",
            default_bytes: 4096 * MIB,
            minimum_bytes: large::MINIMUM_BYTES,
            generator: 2,
            make: large::make,
            ..SET
        },
    ];
    SETS
}

/// The set of that name.
///
/// # Errors
///
/// [`DataError::UnknownSet`], which names those there are.
pub fn set(name: &str) -> Result<&'static Set, DataError> {
    sets()
        .iter()
        .find(|set| set.name == name)
        .ok_or_else(|| DataError::UnknownSet { name: name.to_owned(), known: known() })
}

fn known() -> String {
    let names: Vec<&str> = sets().iter().map(|set| set.name).collect();
    names.join(", ")
}

/// Gives the ordered set from `cache`, made if it is not there yet. Waits for another process that makes the same one.
///
/// # Errors
///
/// An unknown set or a size it cannot have; a program or package that is missing, with what brings it; a full disk; a
/// program that failed. Nothing half-made stays behind.
pub fn prepare(
    order: &Order,
    cache: &Path,
    test_bed: &TestBed,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Prepared, DataError> {
    let (set, size_bytes) = checked(order)?;
    cache::open_or_make(set, size_bytes, order.seed, cache, test_bed, progress)
}

/// Gives the ordered set from `cache` if it lies there whole; makes nothing and waits for nobody.
///
/// # Errors
///
/// An unknown set or a size it cannot have; a cache that cannot be read.
pub fn find(order: &Order, cache: &Path) -> Result<Option<Prepared>, DataError> {
    let (set, size_bytes) = checked(order)?;
    cache::find(set, size_bytes, order.seed, cache)
}

/// The set, and how large it will be.
fn checked(order: &Order) -> Result<(&'static Set, u64), DataError> {
    let set = set(&order.set)?;
    let size_bytes = order.size_bytes.unwrap_or(set.default_bytes);
    // Volumes are whole MiBs: what file systems, partitions and encryption all take.
    let unit = MIB * u64::from(set.volumes);
    let size_bytes = size_bytes.div_ceil(unit).saturating_mul(unit);
    if size_bytes < set.minimum_bytes {
        return Err(DataError::TooSmall { set: set.name, size_bytes, minimum_bytes: set.minimum_bytes });
    }
    Ok((set, size_bytes))
}
