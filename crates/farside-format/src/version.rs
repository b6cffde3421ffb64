//! Which version of the format this code knows: superblocks and journal batches carry it.

/// The version this code writes and reads.
pub const FORMAT_VERSION: u32 = 5;
