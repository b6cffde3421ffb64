//! What a data set is: the file `manifest.json` beside its generations. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the manifest's fields; a set whose manifest has another one is made anew.
pub const MANIFEST_VERSION: u32 = 1;

/// The manifest's name in the set's directory.
pub const MANIFEST_FILE: &str = "manifest.json";

/// What [`Changed::blocks`] counts.
pub const BLOCK_BYTES: u64 = 4096;

/// A data set, as it lies in the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`].
    pub version: u32,
    /// Which set.
    pub set: String,
    /// Bytes of all volumes of one generation together.
    pub size_bytes: u64,
    /// Of everything that was drawn by chance.
    pub seed: u64,
    /// Version of the set's recipe.
    pub generator: u32,
    /// Programs that made it, and their versions.
    pub programs: BTreeMap<String, String>,
    /// What went in besides the seed (packages, other sets): name and SHA-256.
    pub inputs: BTreeMap<String, String>,
    /// The moments, in order.
    pub generations: Vec<Generation>,
}

/// One moment of a data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Also the name of its directory.
    pub name: String,
    /// Its volumes, in order.
    pub volumes: Vec<Volume>,
    /// The same content as files, `tree/`, where the set is files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Tree>,
}

/// The image of one volume in one generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Name in the generation's directory.
    pub file: String,
    /// Length.
    pub size_bytes: u64,
    /// Bytes of the blocks that are not all zero; the others are holes.
    pub data_bytes: u64,
    /// SHA-256 of the whole image, in hex.
    pub sha256: String,
    /// Its length under `zstd -3` alone.
    pub zstd3_bytes: u64,
    /// How it differs from the generation before; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Changed>,
}

/// What differs from the same volume of the generation before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Blocks of [`BLOCK_BYTES`] that differ.
    pub blocks: u64,
    /// Of these, blocks that were all zero before.
    pub blocks_from_zero: u64,
    /// The new bytes of these blocks, one after the other, under `zstd -3`.
    pub zstd3_bytes: u64,
}

/// A generation's files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// SHA-256, in hex, of the archive that `tar --sort=name --owner=0 --group=0 --numeric-owner --format=gnu` makes of it.
    pub sha256: String,
    /// Length of that archive under `zstd -3` alone.
    pub zstd3_bytes: u64,
}
