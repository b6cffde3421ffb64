//! What both boxes have to agree on.

/// The version of what stands here. Boxes of different versions let everything pass.
pub const VERSION: u32 = 3;

/// Most bytes of a flow in one frame of data as they are.
pub const PLAIN_MAX: usize = 64 * 1024;

/// What a part takes of its direction's window beside its bytes: its receiver holds about so much more while it waits. Without it a
/// window of 32 KiB is 32,768 parts of a byte, and 5 MB of memory.
pub const PART_COST: u64 = 256;
