//! What a set is: its description and its recipe.

// circle: data/making.rs, because a set is its recipe, and a recipe works on the making of its own set

use std::path::PathBuf;

use super::error::DataError;
use super::making::Making;
use super::manifest::{Generation, Manifest};

/// A set that lies whole in the cache.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its directory, with a directory per generation.
    pub dir: PathBuf,
    /// What it is.
    pub manifest: Manifest,
}

impl Prepared {
    /// Where a generation's images and tree are.
    pub fn generation_dir(&self, generation: &Generation) -> PathBuf {
        self.dir.join(&generation.name)
    }
}

/// A set that can be made.
#[derive(Debug)]
pub struct Set {
    /// As orders and directories call it.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub about: &'static str,
    /// Bytes of all volumes of one generation, unless the order says otherwise.
    pub default_bytes: u64,
    /// Fewer than this do not hold what the set is.
    pub minimum_bytes: u64,
    /// Volumes in each generation.
    pub volumes: u32,
    /// Names of the generations, in order.
    pub generations: &'static [&'static str],
    /// Whether generations have a `tree/` beside the image.
    pub has_tree: bool,
    /// Raised whenever the recipe makes something else than before, or the recipe of a set that it is made of; what an
    /// older one made is made anew.
    pub(super) generator: u32,
    /// The recipe.
    pub(super) make: fn(&mut Making<'_>) -> Result<(), DataError>,
}

pub(super) const MIB: u64 = 1024 * 1024;

/// What most sets have in common.
pub(super) const SET: Set = Set {
    name: "",
    about: "",
    default_bytes: 0,
    minimum_bytes: MIB,
    volumes: 1,
    generations: &["A", "B"],
    has_tree: false,
    generator: 1,
    make: |_| Ok(()),
};
