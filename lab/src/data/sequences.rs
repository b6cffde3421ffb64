//! `sequences` and `sequences-gz`: a store of nucleotide sequence files (FASTA) on ext4; B10 has 10 % of the bytes of A
//! replaced, B25 another 25 % of B10's. The second set holds the same files compressed by `gzip -n`.
//!
//! What is replaced is whole files, as a new release of a database does it: the new file is written beside the old one
//! and takes its name. Half of the new files are revisions (every thousandth base is another, some are gone or new, so
//! that line ends move); the other half are other sequences. All have repeats in common, as genomes have.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::error::DataError;
use super::filesystem::{self, Content, FileSystem};
use super::making::Making;
use super::set::MIB;
use super::{program, seeded};

/// How much of an image the files take. A replaced file stands there twice for a moment, and what a host deletes is not
/// used again at once, so the rest is needed.
const FILL: f64 = 0.6;

/// A compressed file has 30 % of the bytes: two bits a base, and the repeats.
const FILL_COMPRESSED: f64 = 0.45;

/// What the journal and tables take of even the smallest image.
const TABLES_BYTES: u64 = 6 * MIB;

/// Files are between half of the mean and one and a half; this many in an image of usual size.
const FILES: u64 = 48;

/// A file has at least this much, however small the image.
const FILE_BYTES_MIN: u64 = 16 * 1024;

/// Bases in a line.
const LINE: usize = 70;

/// Families of repeats that all sequences share, and how long their members are.
const REPEATS: usize = 400;
const REPEAT_BASES: std::ops::Range<usize> = 200..6000;

/// Share of a sequence that is repeats, and how much a copy has moved away from its family.
const REPEAT_SHARE: f64 = 0.35;
const REPEAT_DIVERGENCE: f64 = 0.08;

/// Of a revision: chance of another base, and of a base gone or new.
const SUBSTITUTION: f64 = 1e-3;
const INSERTION_OR_DELETION: f64 = 1e-4;

pub(super) const MINIMUM_BYTES: u64 = 10 * MIB;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    store(making, false)
}

pub(super) fn make_compressed(making: &mut Making<'_>) -> Result<(), DataError> {
    store(making, true)
}

/// What the files of all generations are; nothing in it depends on whether they are compressed.
struct Library {
    seed: u64,
    repeats: Vec<Vec<u8>>,
}

/// What a file holds: which sequences, how often revised.
#[derive(Clone, Copy, Debug)]
struct Holding {
    /// Of the sequences that it began with.
    origin: u64,
    revisions: u64,
    bytes: u64,
}

fn store(making: &mut Making<'_>, compressed: bool) -> Result<(), DataError> {
    if compressed {
        making.program("gzip", Command::new("gzip").arg("--version"))?;
    }
    let room = making.volume_bytes().saturating_sub(TABLES_BYTES) as f64;
    let total_bytes = (room * if compressed { FILL_COMPRESSED / 0.3 } else { FILL }) as u64;
    let count = FILES.min(total_bytes / FILE_BYTES_MIN).max(4);
    let library = Library::new(making.seed());
    let mut sizes = seeded::stream(making.seed(), "sequence sizes", 0);
    let mut files: Vec<Holding> = (0..count)
        .map(|origin| {
            let mean = total_bytes / count;
            Holding { origin, revisions: 0, bytes: sizes.random_range(mean / 2..=mean * 3 / 2) }
        })
        .collect();
    let mut before: Option<PathBuf> = None;
    let file_system = FileSystem::create(making, "sequences.img", 0, Content::Large)?;
    for (number, (name, share)) in [("A", 1.0), ("B10", 0.10), ("B25", 0.25)].into_iter().enumerate() {
        making.step(&format!("writing the files of {name}"))?;
        let written = if number == 0 {
            (0..files.len()).collect()
        } else {
            replace(&mut files, share, making.seed(), number)
        };
        let dir = making.begin(name)?;
        let tree = dir.join("tree");
        fs::create_dir(&tree).map_err(DataError::io("create", &tree))?;
        let suffix = if compressed { ".gz" } else { "" };
        for (position, holding) in files.iter().enumerate() {
            let path = tree.join(format!("seq{position:03}.fa"));
            let file = tree.join(format!("seq{position:03}.fa{suffix}"));
            if let (Some(before), false) = (&before, written.contains(&position)) {
                let old = before.join(format!("seq{position:03}.fa{suffix}"));
                program::run("cp", Command::new("cp").arg("-p").arg(old).arg(&file))?;
            } else {
                library.write(holding, &path)?;
                if compressed {
                    program::run("gzip", Command::new("gzip").arg("-n").arg(&path))?;
                }
                filesystem::set_time(&file, number as u64)?;
            }
            making.share((position + 1) as f64 / files.len() as f64)?;
        }
        filesystem::set_time(&tree, number as u64)?;
        let mounted = file_system.mount()?;
        for position in written {
            let file = format!("seq{position:03}.fa{suffix}");
            let new = mounted.root().join(format!("{file}.new"));
            program::run("cp", Command::new("cp").arg("-p").arg(tree.join(&file)).arg(&new))?;
            fs::rename(&new, mounted.root().join(&file)).map_err(DataError::io("rename", &new))?;
        }
        mounted.unmount()?;
        making.step(&format!("keeping generation {name}"))?;
        making.capture(file_system.image())?;
        making.measure_tree()?;
        before = Some(tree);
    }
    Ok(())
}

/// Replaces files until `share` of the bytes is new; gives their positions. Every second one is a revision.
fn replace(files: &mut [Holding], share: f64, seed: u64, generation: usize) -> Vec<usize> {
    let wanted = (files.iter().map(|file| file.bytes).sum::<u64>() as f64 * share) as u64;
    let mut chance = seeded::stream(seed, "replaced files", generation as u64);
    let mut order: Vec<usize> = (0..files.len()).collect();
    let (mut replaced, mut replaced_bytes) = (Vec::new(), 0);
    while replaced_bytes < wanted && !order.is_empty() {
        let position = order.swap_remove(chance.random_range(0..order.len()));
        let file = &mut files[position];
        // The one that goes far beyond the share stays.
        if !replaced.is_empty() && replaced_bytes + file.bytes / 2 > wanted {
            continue;
        }
        if replaced.len() % 2 == 0 {
            file.revisions += 1;
        } else {
            // Beyond the numbers of the first generation.
            *file = Holding { origin: (generation as u64) << 32 | position as u64, revisions: 0, ..*file };
        }
        replaced_bytes += file.bytes;
        replaced.push(position);
    }
    replaced.sort_unstable();
    replaced
}

impl Library {
    fn new(seed: u64) -> Self {
        let mut chance = seeded::stream(seed, "repeats", 0);
        let repeats = (0..REPEATS)
            .map(|_| {
                let length = chance.random_range(REPEAT_BASES);
                let rich = chance.random_range(0.3..0.6);
                let mut repeat = Vec::with_capacity(length);
                unique(length, rich, &mut chance, &mut repeat);
                repeat
            })
            .collect();
        Self { seed, repeats }
    }

    /// Writes a file: records with a head and lines of [`LINE`] bases.
    fn write(&self, holding: &Holding, path: &Path) -> Result<(), DataError> {
        let file = File::create_new(path).map_err(DataError::io("create", path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let mut chance = seeded::stream(self.seed, "sequence", holding.origin);
        let mut record = 0;
        let mut written = 0;
        let mut failed = Ok(());
        while written < holding.bytes && failed.is_ok() {
            record += 1;
            // The last one ends where the file does.
            let left = usize::try_from(holding.bytes - written).unwrap_or(usize::MAX).max(LINE);
            let length = chance.random_range(2_000..200_000).min(left);
            let mut bases = self.sequence(length, &mut chance);
            for revision in 1..=holding.revisions {
                let number = holding.origin << 16 ^ record << 4 ^ revision;
                bases = revise(&bases, &mut seeded::stream(self.seed, "revision", number));
            }
            let head = format!(
                ">FL{:06}.{} contig {record} length={}\n",
                holding.origin,
                holding.revisions + 1,
                bases.len()
            );
            failed = file.write_all(head.as_bytes());
            for line in bases.chunks(LINE) {
                failed = failed.and_then(|()| file.write_all(line)).and_then(|()| file.write_all(b"\n"));
            }
            // Of the first form, so that a revision has as many records.
            written += length as u64 + length as u64 / LINE as u64 + head.len() as u64;
        }
        failed.and_then(|()| file.flush()).map_err(DataError::io("write", path))
    }

    /// Unique stretches and copies of repeats, in lower case as masked ones are.
    fn sequence(&self, length: usize, chance: &mut ChaCha8Rng) -> Vec<u8> {
        let rich = chance.random_range(0.35..0.5);
        let mut bases = Vec::with_capacity(length + REPEAT_BASES.end);
        while bases.len() < length {
            if chance.random_bool(REPEAT_SHARE) {
                let start = bases.len();
                bases.extend_from_slice(&self.repeats[chance.random_range(0..self.repeats.len())]);
                let copy = &mut bases[start..];
                for place in places(copy.len(), REPEAT_DIVERGENCE, chance) {
                    copy[place] = base(rich, chance);
                }
                copy.make_ascii_lowercase();
            } else {
                let count = chance.random_range(REPEAT_BASES);
                unique(count, rich, chance, &mut bases);
            }
            // Gaps that no machine could read.
            if chance.random_bool(0.002) {
                bases.extend(std::iter::repeat_n(b'N', chance.random_range(10..500)));
            }
        }
        bases.truncate(length);
        bases
    }
}

/// Appends bases drawn one by one; `rich` is the share of G and C.
fn unique(count: usize, rich: f64, chance: &mut ChaCha8Rng, bases: &mut Vec<u8>) {
    // Two bytes a base: 15 bits decide the pair, one which of it. Drawing them all at once is many times faster.
    let mut drawn = vec![0; count * 2];
    chance.fill_bytes(&mut drawn);
    let rich = (rich * f64::from(1 << 15)) as u16;
    bases.extend(drawn.chunks_exact(2).map(|two| {
        let word = u16::from_le_bytes([two[0], two[1]]);
        let pair = if word >> 1 < rich { b"GC" } else { b"AT" };
        pair[usize::from(word & 1)]
    }));
}

/// One base.
fn base(rich: f64, chance: &mut ChaCha8Rng) -> u8 {
    let mut one = Vec::with_capacity(1);
    unique(1, rich, chance, &mut one);
    one[0]
}

/// Places in a sequence of which each is `share` likely: the steps between them are even up to twice the mean.
fn places(length: usize, share: f64, chance: &mut ChaCha8Rng) -> Vec<usize> {
    let step_max = (2.0 / share) as usize - 1;
    let mut places = Vec::new();
    let mut place = chance.random_range(0..=step_max);
    while place < length {
        places.push(place);
        place += chance.random_range(1..=step_max);
    }
    places
}

/// What another reading of the same sequence gives.
fn revise(bases: &[u8], chance: &mut ChaCha8Rng) -> Vec<u8> {
    let mut substituted = bases.to_vec();
    for place in places(bases.len(), SUBSTITUTION, chance) {
        substituted[place] = base(0.41, chance);
    }
    let mut revised = Vec::with_capacity(bases.len() + 64);
    let mut from = 0;
    for place in places(bases.len(), INSERTION_OR_DELETION, chance) {
        revised.extend_from_slice(&substituted[from..place]);
        // Either this base goes, or one comes in before it.
        from = place + 1;
        if chance.random_bool(0.5) {
            revised.extend([base(0.41, chance), substituted[place]]);
        }
    }
    revised.extend_from_slice(&substituted[from..]);
    revised
}
