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
mod fixed_areas;
mod free_map;
mod journal;
mod overlay;
mod owners;
mod places;
mod point;
mod reader;
mod replay;
mod report;
mod tree;

use farside_platform::{BLOCK_BYTES, BlockDevice, DeviceError};

pub use report::{
    Finding, JournalEnd, JournalReport, Location, Report, Severity, SlotReport, VersionReport, VolumeReport,
    What,
};

use reader::Reader;

/// What to check.
pub struct CheckOptions {
    /// Read every data block and compare it with its fingerprint. Without it only metadata is read, about 1 % of
    /// the pool.
    pub read_data: bool,
    /// Apply the journal virtually and report the versions as an opening would find them.
    pub replay: bool,
    /// Findings beyond this many are counted, not kept.
    pub findings_max: usize,
    /// Called now and then, at least every 64 MiB read.
    pub progress: Option<ProgressCallback>,
}

/// See [`CheckOptions::progress`].
pub type ProgressCallback = Box<dyn Fn(Progress) + Send + Sync>;

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { read_data: true, replay: true, findings_max: 1000, progress: None }
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions")
            .field("read_data", &self.read_data)
            .field("replay", &self.replay)
            .field("findings_max", &self.findings_max)
            .finish_non_exhaustive()
    }
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it is at, for people.
    pub stage: &'static str,
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Bytes that the newest point has in use; nearly all of them are read once if data is read. 0 while unknown.
    pub bytes_in_use: u64,
}

/// Why a check could not even begin. Damage that leaves at least one superblock is a [`Finding`], not an error.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Too small for any pool.
    #[error("{device} has {bytes} bytes, less than the smallest pool; it holds no farside pool")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size.
        bytes: u64,
    },
    /// Neither superblock can be used, so nothing says what the rest means.
    #[error(
        "{device} has no usable superblock (slot A: {a}; slot B: {b}); nothing was changed. If this is the right \
         device, keep it as it is and restore the pool from its mirror"
    )]
    NoSuperblock {
        /// The device's name.
        device: String,
        /// What is wrong with slot A.
        a: String,
        /// What is wrong with slot B.
        b: String,
    },
    /// A pool of another format version.
    #[error(
        "{device} holds a pool of format version {found}; this farside checks version {supported}. Nothing was read \
         further: check it with the farside that wrote it"
    )]
    OtherVersion {
        /// The device's name.
        device: String,
        /// The version found there.
        found: u32,
        /// The version this code knows.
        supported: u32,
    },
    /// The device refused to read a superblock although the other is unusable as well.
    #[error("the superblocks cannot be read: {0}")]
    Device(#[from] DeviceError),
}

/// Checks the pool on `device`; reads only.
///
/// # Errors
/// Only if there is no superblock to start from; everything else is a finding of the report.
pub fn check(device: &dyn BlockDevice, options: &CheckOptions) -> Result<Report, CheckError> {
    let blocks = device.bytes() / BLOCK_BYTES as u64;
    let smallest = farside_format::superblock::JOURNAL_START + farside_format::superblock::JOURNAL_BLOCKS_MIN;
    if blocks <= smallest {
        return Err(CheckError::TooSmall { device: device.name(), bytes: device.bytes() });
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
    report.take_point(&newest_point);

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
