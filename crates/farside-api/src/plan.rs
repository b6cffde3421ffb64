//! What a destructive request would do.

use serde::{Deserialize, Serialize};

/// The answer to `--plan`: nothing has been changed.
///
/// The figures tell two fates apart: what is *lost* is nowhere afterwards; what is *kept* leaves the volume's main line
/// and stays as a side branch that opens.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Plan {
    /// What was asked, in words: `delete volume p/v`.
    pub action: String,
    /// What would happen, a sentence each.
    pub would: Vec<String>,
    /// What would be lost for good, a sentence each; empty if nothing.
    pub lost: Vec<String>,
    /// Data that would be lost for good, in blocks of 4096 bytes; 0 if nothing, null where it cannot be known here.
    #[serde(default)]
    pub lost_blocks: Option<u64>,
    /// The same in bytes.
    #[serde(default)]
    pub lost_bytes: Option<u64>,
    /// How far back in time hosts would find themselves without a way forward again; 0 if nowhere, null where unknown.
    #[serde(default)]
    pub lost_seconds: Option<f64>,
    /// What stays as a side branch, and how to open it; null if nothing has to.
    #[serde(default)]
    pub kept_as: Option<String>,
    /// Blocks that hosts would not see any more, but that the side branch holds; null where unknown.
    #[serde(default)]
    pub kept_blocks: Option<u64>,
    /// The same in bytes.
    #[serde(default)]
    pub kept_bytes: Option<u64>,
    /// The span of time that the side branch holds, seconds.
    #[serde(default)]
    pub kept_seconds: Option<f64>,
    /// What would come from the other site, at most, in bytes: what the source occupies. Null where nothing does, or it is unknown.
    #[serde(default)]
    pub brings_bytes: Option<u64>,
    /// Room for it in the pool, in bytes; null where it is unknown.
    #[serde(default)]
    pub room_bytes: Option<u64>,
    /// Why it would be refused as things stand, if so.
    pub refused: Option<String>,
}
