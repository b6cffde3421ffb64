//! Why a check could not begin.

use farside_platform::DeviceError;

/// Why a check could not even begin. Damage that leaves at least one superblock is a [finding](crate::Finding), not an error.
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
