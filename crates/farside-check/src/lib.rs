//! Verifies a pool offline, from the format alone.
//!
//! Everything here is derived from `docs/format.md` and the types of `farside-format`; nothing is shared with the
//! store, so that the two can disagree. It reads, and never writes. What it guarantees:
//!
//! * Each valid superblock is checked *by itself* as the description of a whole pool: trees, catalog, free map.
//! * A pool without a finding of [`Severity::Error`] opens, from either superblock, without loss, and every block of
//!   every version reads (the latter only with [`CheckOptions::read_data`]).
//! * Garbage never panics it, and costs time in proportion to what is reachable, not to what lengths claim.
//!
//! What it does not do: repair anything, or judge a pool that a daemon holds open (the device's lock prevents it).
//!
//! Memory: one bit per pool block and point (two points: 64 MiB per TiB), about 40 bytes per tree node of the pool,
//! about 50 bytes per block with several owners, 24 MiB of cached nodes, and with [`CheckOptions::replay`] about 120 bytes per block that the journal maps.
//!
//! Where to read on: [`tree`] for ownership by descent (F3, F4), [`free_map`], [`owners`] for blocks with several owners (F8), [`journal`] for the scan and its rules,
//! [`replay`] for what the records may say and [`overlay`] for the contents after them.

mod catalog;
mod error;
mod fixed_areas;
mod free_map;
mod journal;
mod options;
mod overlay;
mod owner_table;
mod owners;
mod places;
mod point;
mod reader;
mod replay;
mod report;
mod tree;
mod usage;

use farside_platform::{BLOCK_BYTES, BlockDevice};

pub use error::CheckError;
pub use options::{CheckOptions, Progress, ProgressCallback};
pub use report::{
    Finding, JournalEnd, JournalReport, Location, Report, Severity, SlotReport, VersionReport, VolumeReport,
    What,
};

use reader::Reader;

/// Checks the pool on `device`; reads only.
///
/// # Errors
/// Only if there is no superblock to start from; everything else is a finding of the report.
pub fn check(device: &dyn BlockDevice, options: &CheckOptions) -> Result<Report, CheckError> {
    let blocks = device.bytes() / BLOCK_BYTES as u64;
    let smallest = farside_format::superblock::JOURNAL_START + farside_format::superblock::JOURNAL_BLOCKS_MIN;
    if blocks <= smallest {
        return Err(CheckError::TooSmall { device: device.name(), bytes: device.exact_bytes() });
    }
    let mut reader = Reader::new(device, options);
    let slots = fixed_areas::read_superblocks(&mut reader)?;
    let newest = slots.newest().clone();
    let older = slots.older().cloned();
    reader.begin(newest.pool, older.is_some());
    let mut report = Report::new(device.name(), &newest, slots.reports);

    reader.stage("fixed areas");
    fixed_areas::check(&mut reader, &newest);
    if let Some(older) = &older {
        fixed_areas::compare(&mut reader, older, &newest);
    }

    reader.stage("newest point");
    let newest_point = point::check(&mut reader, &newest, None);
    newest_point.describe(&mut report);

    let older_point = older.as_ref().map(|older| {
        reader.stage("older point");
        let point = point::check(&mut reader, older, Some(&newest_point));
        point::compare(&mut reader, &point, &newest_point);
        point
    });

    reader.stage("journal");
    let outcome = journal::check(&mut reader, &newest_point, None);
    if let Some(older_point) = &older_point {
        journal::check_older(&mut reader, older_point, &newest_point, &outcome);
    }
    report.journal = outcome.report;
    report.versions_after_replay = outcome.versions;
    reader.finish(&mut report);
    Ok(report)
}
