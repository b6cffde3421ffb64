//! What both boxes have to agree on.

/// The version of what stands here. Boxes of different versions let everything pass.
pub const VERSION: u32 = 2;

/// Most bytes of a flow in one frame of data as they are.
pub const PLAIN_MAX: usize = 64 * 1024;
