//! Why a frame could not be made or must not be believed.

/// Why a frame was refused. Nothing of it was handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer or more bytes than the header says.
    #[error("a frame of {expected} bytes came with {found}")]
    Length {
        /// What the header (or its absence) calls for.
        expected: usize,
        /// What there was.
        found: usize,
    },
    /// Not a frame at all.
    #[error("bytes that do not begin like a frame")]
    Magic,
    /// A frame of a version this side does not speak.
    #[error(
        "frame version {found}; this side speaks {oldest} to {newest}",
        oldest = crate::FRAME_VERSION_OLDEST,
        newest = crate::FRAME_VERSION
    )]
    Version {
        /// What the frame says.
        found: u8,
    },
    /// A codec this side does not know.
    #[error("frame with unknown codec {found}")]
    Codec {
        /// What the frame says.
        found: u8,
    },
    /// A number larger than the protocol allows.
    #[error("frame with {found} {what}, more than the limit of {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What the frame claims.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Fields that contradict each other or the grammar.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// The prefix bytes here are not those the sender used: ask for the data again without prefix.
    #[error("the prefix of a frame differs from the sender's; the base may be damaged on one side")]
    PrefixMismatch,
    /// The prefix bytes could not be had: ask for the data again without prefix.
    #[error("the prefix of a frame cannot be read: {0}")]
    PrefixUnavailable(String),
    /// What the frame repeats could not be had: ask for the data again without the base.
    #[error("what a frame repeats cannot be read: {0}")]
    RepeatUnavailable(String),
    /// A frame with repeats whose blocks are not the sender's: ask for the data again without the base.
    #[error("the blocks of a frame with repeats are not the sender's; the base may be damaged on one side")]
    RepeatMismatch,
    /// The payload does not decompress to what the header says.
    #[error("the payload of a frame does not decompress: {0}")]
    Payload(&'static str),
    /// It decompressed, to something else than was sent.
    #[error("a frame's contents do not match its digest")]
    Digest,
}

impl FrameError {
    /// Whether the same blocks, sent again without reference to what both sides hold, may well arrive.
    pub fn is_about_prefix(&self) -> bool {
        matches!(
            self,
            FrameError::PrefixMismatch
                | FrameError::PrefixUnavailable(_)
                | FrameError::RepeatUnavailable(_)
                | FrameError::RepeatMismatch
        )
    }
}

/// Why the encoder refused its input: a mistake of the caller, or the compressor out of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More than a frame may hold.
    #[error("a frame cannot hold {found} {what}; the limit is {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Runs out of order, or bytes that are not as many as the runs say.
    #[error("{0}")]
    Input(&'static str),
    /// The compressor failed.
    #[error("zstd failed: {0}")]
    Compressor(&'static str),
}

/// Why a written similarity index is not used. Nothing is lost: the index is a hint and fills again.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Not an index at all.
    #[error("bytes that do not begin like a similarity index")]
    Magic,
    /// Of a version this program does not know.
    #[error("similarity index of version {found}, which this program does not know")]
    Version {
        /// What it says.
        found: u8,
    },
    /// Larger than it may be.
    #[error("a similarity index of {found} bytes; its budget is {budget_bytes}")]
    Budget {
        /// What it says.
        found: u64,
        /// What is allowed.
        budget_bytes: u64,
    },
    /// Fields that contradict each other.
    #[error("malformed similarity index")]
    Malformed,
    /// Damaged.
    #[error("the checksum of a similarity index is wrong")]
    Checksum,
    /// It could not be read, or is shorter than it says.
    #[error("a similarity index cannot be read: {0}")]
    Io(#[from] std::io::Error),
}
