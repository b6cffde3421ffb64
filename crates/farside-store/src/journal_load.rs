//! What a journal may hold, counted by what an opening pays for it: steps of replay, and data that must be read again.
//! Pure.
//!
//! Bytes alone bound neither: 128 MiB of records can be two million blocks mapped, or name 32 GiB of data that no sync
//! vouches for. So two more limits hold, besides those of the ring and of memory:
//!
//! * *Steps*: a record is one, and so is each block that it maps ([`steps`]). A consistency point is due after
//!   [`STEPS_PER_POINT`], and whoever appends waits for it before the records since the newest point on the medium are more
//!   than [`STEPS_MAX`].
//! * *Unproven data*: of batches above the last proven one an opening reads all data. A writer syncs after
//!   [`UNPROVEN_RECORDS`] records or [`UNPROVEN_BLOCKS`] blocks of it, as if its host had flushed.

use farside_format::journal::Record;

/// Most steps of a journal from the newest point on: replayed in 2 s of a processor at most, in half of it if many are of one write.
pub const STEPS_MAX: u64 = 1 << 21;
/// Steps after which a point is due: 500,000 scattered blocks, 4 GiB of long writes. While it runs three quarters as many
/// come before writers wait.
const STEPS_PER_POINT: u64 = STEPS_MAX / 2;
/// Steps from which on writers wait for a point. The rest is for operations under way: at most 512 steps each.
const STEPS_WAIT: u64 = STEPS_MAX / 8 * 7;
/// Records of data without a sync: read again one by one, at 60 to 100 µs each on an SSD.
pub const UNPROVEN_RECORDS: u64 = 8192;
/// Blocks of data without a sync: 256 MiB.
const UNPROVEN_BLOCKS: u64 = 65536;
/// A change of the catalog is decoded, checked and applied to lists of versions.
const STEPS_OF_A_CATALOG_CHANGE: u64 = 64;

/// What replaying a record costs, in steps.
pub(crate) fn steps(record: &Record) -> u64 {
    match record {
        Record::Map { fingerprints, .. } | Record::Share { fingerprints, .. } => {
            1 + fingerprints.len() as u64
        }
        Record::Unmap { .. } | Record::Point { .. } => 1,
        Record::Catalog(_) => STEPS_OF_A_CATALOG_CHANGE,
    }
}

/// What the journal holds at the moment.
#[derive(Default)]
pub(crate) struct JournalLoad {
    /// Steps since the last point was captured.
    since: u64,
    /// Steps that the point under way will make needless.
    capturing: u64,
    /// Records and blocks of data since the last sync began.
    unproven: (u64, u64),
}

impl JournalLoad {
    pub(crate) fn add(&mut self, record: &Record) {
        self.since += steps(record);
        if let Record::Map { fingerprints, .. } = record {
            self.unproven = (self.unproven.0 + 1, self.unproven.1 + fingerprints.len() as u64);
        }
    }

    /// Steps from the newest point on the medium on.
    pub(crate) fn steps(&self) -> u64 {
        self.since + self.capturing
    }

    pub(crate) fn point_is_due(&self) -> bool {
        self.since >= STEPS_PER_POINT
    }

    /// Whether whoever appends must wait for a point first.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.steps() >= STEPS_WAIT
    }

    pub(crate) fn must_sync(&self) -> bool {
        self.unproven.0 >= UNPROVEN_RECORDS || self.unproven.1 >= UNPROVEN_BLOCKS
    }

    /// A sync begins that will cover every record so far; how much those are.
    pub(crate) fn sync_begins(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.unproven)
    }

    /// It failed.
    pub(crate) fn sync_failed(&mut self, (records, blocks): (u64, u64)) {
        self.unproven = (self.unproven.0 + records, self.unproven.1 + blocks);
    }

    /// A point takes the state as it is. One that was captured before and failed leaves its steps behind.
    pub(crate) fn captured(&mut self) {
        self.capturing += std::mem::take(&mut self.since);
        self.sync_begins();
    }

    /// The point is on the medium.
    pub(crate) fn installed(&mut self) {
        self.capturing = 0;
    }
}

#[cfg(test)]
mod tests {
    use farside_format::Birth;

    use super::*;

    const UNMAP: Record = Record::Unmap { version: 1, birth: Birth(1), block: 0, count: 1 };

    #[test]
    fn whoever_waits_when_asked_to_never_passes_the_bound() {
        let mut load = JournalLoad::default();
        // The worst life: a point is captured as soon as it is due, and never comes to its end.
        while !load.is_nearly_full() {
            load.add(&UNMAP);
            if load.point_is_due() && load.capturing == 0 {
                load.captured();
            }
        }
        assert!(load.capturing > 0 && load.steps() < STEPS_MAX);
        // As many operations under way as there can be stripes, at their worst.
        assert!(load.steps() + 128 * 512 <= STEPS_MAX);
        load.installed();
        assert!(!load.is_nearly_full());
        load.captured();
        load.installed();
        assert_eq!(load.steps(), 0);
    }

    #[test]
    fn a_sync_is_due_by_records_and_by_blocks() {
        let map = |blocks| Record::Map {
            version: 1,
            birth: Birth(1),
            block: 0,
            place: farside_format::Place(1),
            fingerprints: vec![farside_format::Fingerprint([1; 16]); blocks],
        };
        for (blocks, records) in [(1, UNPROVEN_RECORDS), (256, UNPROVEN_BLOCKS / 256)] {
            let mut load = JournalLoad::default();
            for _ in 0..records {
                assert!(!load.must_sync());
                load.add(&map(blocks));
            }
            assert!(load.must_sync());
            load.sync_begins();
            assert!(!load.must_sync());
            (0..records).for_each(|_| load.add(&UNMAP));
            assert!(!load.must_sync(), "there is nothing to read of holes");
        }
    }
}
