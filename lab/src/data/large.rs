//! `large-tail`: more than any window or cache holds: the images of [`super::postgres`] and gigabytes of many
//! kinds before them, that a tool has to get past before it can meet the old content again. Only the
//! database changes between A and B.

use std::fmt::Write as _;

use rand::{Rng, RngCore};
use rand_chacha::ChaCha8Rng;

use super::capture::VolumeWriter;
use super::error::DataError;
use super::making::Making;
use super::set::MIB;
use super::text::Vocabulary;
use super::{cache, postgres, seeded};

/// From this size on the database has its usual size.
const USUAL_DATABASE_FROM_BYTES: u64 = 1024 * MIB;
const USUAL_DATABASE_BYTES: u64 = 160 * MIB;

/// Other content lies on the other side of the database, too, but little.
const LEAD_BYTES: u64 = 16 * MIB;

/// Content comes in pieces of one kind: up to this many MiB.
const PIECE_MIB_MAX: u64 = 8;

/// A piece is made of parts, so that memory stays small.
const PART_BYTES: usize = MIB as usize;

/// One piece in ten is a copy of an earlier one, as files are.
const COPY: f64 = 0.1;

pub(super) const MINIMUM_BYTES: u64 = postgres::MINIMUM_BYTES + 2 * LEAD_BYTES;

pub(super) fn make(making: &mut Making<'_>) -> Result<(), DataError> {
    let database_bytes = database_bytes(making);
    let before = making.volume_bytes() - LEAD_BYTES - database_bytes;
    write(making, database_bytes, before)
}

fn database_bytes(making: &Making<'_>) -> u64 {
    if making.volume_bytes() < USUAL_DATABASE_FROM_BYTES {
        postgres::MINIMUM_BYTES
    } else {
        USUAL_DATABASE_BYTES
    }
}

/// The database with so much other content before it, and the rest behind it.
fn write(making: &mut Making<'_>, database_bytes: u64, before: u64) -> Result<(), DataError> {
    let behind = making.volume_bytes() - before - database_bytes;
    let database = cache::other(making, &postgres::SET, database_bytes)?;
    let filler = Filler { seed: making.seed(), vocabulary: Vocabulary::new(making.seed()) };
    for generation in &database.manifest.generations {
        making.step(&format!("writing generation {}", generation.name))?;
        making.begin(&generation.name)?;
        let mut writer = making.writer()?;
        filler.write(0, before, &mut writer, &mut |written| making.share(written as f64 / before as f64))?;
        making.copy_into(&database.generation_dir(generation).join("0.img"), &mut writer)?;
        filler.write(1, behind, &mut writer, &mut |written| making.share(written as f64 / behind as f64))?;
        making.finish(writer)?;
    }
    Ok(())
}

/// Makes the other content.
struct Filler {
    seed: u64,
    vocabulary: Vocabulary,
}

/// What a piece holds.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Programs' archives, pictures, encrypted files.
    Random,
    /// Documents.
    Text,
    /// Lines of a log: a time, a few fixed words, numbers.
    Log,
    /// Pages of 8 KiB with records of equal shape.
    Records,
    /// Never written.
    Zero,
}

const KINDS: [Kind; 8] =
    [Kind::Random, Kind::Random, Kind::Text, Kind::Log, Kind::Log, Kind::Records, Kind::Records, Kind::Zero];

impl Filler {
    /// Writes `bytes` of pieces; the same for the same `region`.
    fn write(
        &self,
        region: u64,
        bytes: u64,
        writer: &mut VolumeWriter,
        tell: &mut dyn FnMut(u64) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut plan = seeded::stream(self.seed, "large plan", region);
        let mut written = 0;
        let mut pieces: Vec<(u64, Kind)> = Vec::new();
        while written < bytes {
            let copied = !pieces.is_empty() && plan.random_bool(COPY);
            let (number, kind) = if copied {
                pieces[plan.random_range(0..pieces.len())]
            } else {
                (region << 32 | pieces.len() as u64, KINDS[plan.random_range(0..KINDS.len())])
            };
            pieces.push((number, kind));
            let mut chance = seeded::stream(self.seed, "large piece", number);
            let mut left = (chance.random_range(1..=PIECE_MIB_MAX) * MIB).min(bytes - written);
            while left > 0 {
                let mut part = self.part(kind, &mut chance);
                part.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                writer.write(&part)?;
                left -= part.len() as u64;
                written += part.len() as u64;
            }
            tell(written)?;
        }
        Ok(())
    }

    fn part(&self, kind: Kind, chance: &mut ChaCha8Rng) -> Vec<u8> {
        let mut part = match kind {
            Kind::Zero => vec![0; PART_BYTES],
            Kind::Random => {
                let mut part = vec![0; PART_BYTES];
                chance.fill_bytes(&mut part);
                part
            }
            Kind::Text => self.vocabulary.paragraphs(PART_BYTES, chance).into_bytes(),
            Kind::Log => self.log(chance),
            Kind::Records => records(chance),
        };
        part.resize(PART_BYTES, b'\n');
        part
    }

    fn log(&self, chance: &mut ChaCha8Rng) -> Vec<u8> {
        let mut log = String::with_capacity(PART_BYTES + 256);
        let mut time = 1_704_153_600_000_u64 + chance.random_range(0..1_000_000_000);
        while log.len() < PART_BYTES {
            time += chance.random_range(1..2_000);
            // Writing to a String cannot fail.
            let _ = writeln!(
                log,
                "{}.{:03} host{} service[{}]: request {:08x} from 192.0.2.{} took {} us: {}",
                time / 1000,
                time % 1000,
                chance.random_range(1..9),
                chance.random_range(300..32_000),
                chance.next_u32(),
                chance.random_range(1..255),
                chance.random_range(80..90_000),
                self.vocabulary.phrase(chance.random_range(2..7), chance)
            );
        }
        log.into_bytes()
    }
}

fn records(chance: &mut ChaCha8Rng) -> Vec<u8> {
    const PAGE_BYTES: usize = 8192;
    let mut pages = Vec::with_capacity(PART_BYTES);
    let mut id = chance.next_u32();
    while pages.len() < PART_BYTES {
        let end = pages.len() + PAGE_BYTES;
        pages.extend_from_slice(&chance.next_u64().to_le_bytes());
        pages.extend_from_slice(&[0; 16]);
        while pages.len() + 64 <= end {
            id = id.wrapping_add(1);
            pages.extend_from_slice(&id.to_le_bytes());
            pages.extend_from_slice(&chance.random_range(0..1_000_u32).to_le_bytes());
            pages.extend_from_slice(&chance.random_range(0..100_000_u64).to_le_bytes());
            let filler = [b' '; 48];
            pages.extend_from_slice(&filler[..chance.random_range(24..=48)]);
        }
        pages.resize(end, 0);
    }
    pages
}
