//! The parts of a pool at known places: both superblocks, the blocks that stay zero, and the slots against each
//! other.

use farside_format::claim::{CLAIM_PLACE, Claim};
use farside_format::fingerprint::is_zero;
use farside_format::superblock::{JOURNAL_START, SUPERBLOCK_PLACES};
use farside_format::{BLOCK_BYTES, FormatError, Superblock};
use farside_platform::BlockBuffer;

use crate::error::CheckError;
use crate::reader::Reader;
use crate::report::{Location, Severity, SlotReport, What};

/// The usable superblocks.
pub(crate) struct Slots {
    slots: [Option<Superblock>; 2],
    pub(crate) reports: [SlotReport; 2],
    newest: usize,
}

impl Slots {
    pub(crate) fn newest(&self) -> &Superblock {
        self.slots[self.newest].as_ref().expect("the newest slot was chosen among the usable ones")
    }

    /// The other slot, if it is a point of its own (after a repair both slots hold the same one).
    pub(crate) fn older(&self) -> Option<&Superblock> {
        self.slots[1 - self.newest].as_ref().filter(|older| *older != self.newest())
    }
}

/// Reads both slots.
pub(crate) fn read_superblocks(reader: &mut Reader<'_>) -> Result<Slots, CheckError> {
    let mut other_version = None;
    let mut slots = SUPERBLOCK_PLACES.map(|place| {
        let mut block = BlockBuffer::zeroed(1);
        reader.read(place, &mut block)?;
        Superblock::decode(&block).map_err(|problem| {
            if let FormatError::Version { found, supported } = problem {
                other_version = Some((found, supported));
            }
            problem.to_string()
        })
    });
    // One slot of another version is enough: whoever wrote it owes this version nothing about the other slot.
    if let Some((found, supported)) = other_version {
        return Err(CheckError::OtherVersion { device: reader.device_name(), found, supported });
    }
    let newest = match &slots {
        [Ok(a), Ok(b)] => usize::from(b.generation > a.generation),
        [Ok(_), Err(_)] => 0,
        [Err(_), Ok(_)] => 1,
        [Err(a), Err(b)] => {
            let device = reader.device_name();
            return Err(CheckError::NoSuperblock { device, a: a.clone(), b: b.clone() });
        }
    };
    let reports = slots.each_ref().map(|slot| SlotReport {
        generation: slot.as_ref().map(|s| s.generation).map_err(|why| why.clone()),
    });
    for (slot, superblock) in slots.iter().enumerate() {
        let Err(why) = superblock else { continue };
        let location =
            Location { slot: Some(slot), place: Some(SUPERBLOCK_PLACES[slot]), ..Location::default() };
        reader.find(
            Severity::Warning,
            What::Superblock,
            location,
            "a valid superblock",
            why.clone(),
            "a power failure while a point was published leaves this, or the medium lost it; the other slot opens the \
             pool without loss, and opening rewrites this one",
        );
    }
    // Two pools in one place: the slot of the other pool says nothing about this one.
    if let [Ok(a), Ok(b)] = &slots
        && (a.pool != b.pool || a.journal_blocks != b.journal_blocks)
    {
        reader.error(
            What::Superblock,
            Location { slot: Some(1 - newest), ..Location::default() },
            "both slots describe the same pool and journal",
            format!(
                "pools {} and {}, journals of {} and {} blocks",
                a.pool, b.pool, a.journal_blocks, b.journal_blocks
            ),
            "one slot was written by another pool; only the newer one is checked",
        );
        slots[1 - newest] = Err("it belongs to another pool".into());
    }
    let mut slots = slots.map(Result::ok);
    // While a copy of a pool becomes one of its own, one slot has the mark of that before the other.
    if let Some((mark, true)) = slots[newest].as_ref().map(|found| found.mark(slots[1 - newest].as_ref())) {
        slots.iter_mut().flatten().for_each(|slot| slot.copy = mark);
    }
    Ok(Slots { slots, reports, newest })
}

/// Blocks 1 – 255 and 257 – 511 are zero but for the claim, and the pool lies inside its device.
pub(crate) fn check(reader: &mut Reader<'_>, newest: &Superblock) {
    if newest.pool_blocks > reader.device_blocks() {
        let found = format!("a device of {} blocks", reader.device_blocks());
        reader.error(
            What::Superblock,
            Location::default(),
            format!("a device of at least {} blocks", newest.pool_blocks),
            found,
            "the device or file was cut short; blocks past its end are lost",
        );
    }
    for (first, end) in [(1, SUPERBLOCK_PLACES[1]), (SUPERBLOCK_PLACES[1] + 1, JOURNAL_START)] {
        let mut blocks = BlockBuffer::zeroed((end - first) as usize);
        if let Err(why) = reader.read(first, &mut blocks) {
            let location = Location { place: Some(first), ..Location::default() };
            reader.error(What::ReservedArea, location, "readable blocks", why, "");
            continue;
        }
        for (place, block) in (first..end).zip(blocks.chunks_exact(BLOCK_BYTES)) {
            let is_claim = place == CLAIM_PLACE && Claim::decode(block).is_ok();
            if !is_zero(block) && !is_claim {
                let location = Location { place: Some(place), ..Location::default() };
                reader.error(
                    What::ReservedArea,
                    location,
                    "zeros",
                    "other bytes",
                    "something other than farside wrote to this device; nothing of the pool is lost here",
                );
            }
        }
    }
}

/// The two points follow each other.
pub(crate) fn compare(reader: &mut Reader<'_>, older: &Superblock, newest: &Superblock) {
    let rules = [
        (
            "a generation above the older one",
            newest.generation,
            older.generation,
            newest.generation > older.generation,
        ),
        (
            "an open epoch not below the older one",
            newest.open_epoch,
            older.open_epoch,
            newest.open_epoch >= older.open_epoch,
        ),
        (
            "a birth epoch above the older one",
            newest.birth_epoch,
            older.birth_epoch,
            newest.birth_epoch > older.birth_epoch,
        ),
        (
            "a journal position not before the older one",
            newest.journal_position,
            older.journal_position,
            newest.journal_position >= older.journal_position,
        ),
        (
            "a journal sequence not below the older one",
            newest.journal_sequence,
            older.journal_sequence,
            newest.journal_sequence >= older.journal_sequence,
        ),
        (
            "a pool no smaller than the older one",
            newest.pool_blocks,
            older.pool_blocks,
            newest.pool_blocks >= older.pool_blocks,
        ),
    ];
    for (expected, new, old, holds) in rules {
        if !holds {
            reader.error(
                What::Superblock,
                Location { generation: Some(newest.generation), ..Location::default() },
                expected,
                format!("{new} after {old}"),
                "one slot was written out of turn or brought back from an old copy of the device",
            );
        }
    }
    let lag = newest.journal_position.saturating_sub(older.journal_position);
    if lag > newest.journal_blocks * BLOCK_BYTES as u64 {
        reader.error(
            What::Superblock,
            Location { generation: Some(newest.generation), ..Location::default() },
            "points at most one ring of journal apart",
            format!("{lag} bytes"),
            "the older superblock alone could not open the pool: its journal is overwritten",
        );
    }
}
