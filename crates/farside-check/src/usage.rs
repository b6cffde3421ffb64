//! Which places a point uses, and who claims them.

use std::collections::HashMap;

use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Pointer, Superblock};

use crate::owner_table::{Owner, OwnerTable};
use crate::places::PlaceSet;
use crate::reader::Reader;
use crate::report::{Location, What};

/// What a tree maps below a node.
#[derive(Clone, Copy, Default)]
pub(crate) struct Below {
    /// Data blocks; none if part is unknown or reaped.
    pub(crate) mapped: Option<u64>,
    /// Blocks below lost pointers; none likewise.
    pub(crate) lost: Option<u64>,
}

impl Below {
    pub(crate) fn nothing() -> Below {
        Below { mapped: Some(0), lost: Some(0) }
    }

    pub(crate) fn add(&mut self, other: Below) {
        self.mapped = self.mapped.zip(other.mapped).map(|(a, b)| a + b);
        self.lost = self.lost.zip(other.lost).map(|(a, b)| a + b);
    }
}

/// What a point has in use, as found by walking it.
#[derive(Default)]
pub(crate) struct Usage {
    /// Every place referenced, and the fixed areas.
    pub(crate) used: PlaceSet,
    /// Data blocks whose owner was not counted: it had them in a node that is damaged, from which a version descends that has
    /// them still. Others may own them as well.
    pub(crate) by_damaged_descent: PlaceSet,
    /// Data blocks below each node, by the node's place.
    pub(crate) mapped_below: HashMap<u64, Below>,
    /// Nodes that could not be read: what lies below them is unknown.
    pub(crate) unreadable: u64,
    /// Data blocks with several owners.
    pub(crate) owners: OwnerTable,
    /// Ownerships found, by the index of the version as whose they count.
    pub(crate) owned: HashMap<usize, u64>,
}

impl Usage {
    /// Marks a data block of a volume as used by one more owner.
    pub(crate) fn claim_data(
        &mut self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        at: &Location,
        pointer: &Pointer,
    ) {
        match self.owners.count(pointer.place.0, pointer.fingerprint) {
            Owner::First if self.by_damaged_descent.contains(pointer.place.0) => {}
            Owner::First => {
                self.claim(reader, superblock, at, 1);
            }
            Owner::Further => {}
            Owner::OfOtherContent(theirs) => reader.error(
                What::Ownership,
                at.clone(),
                format!("fingerprint {theirs}, as the place's other owners have"),
                pointer.fingerprint.to_string(),
                "one of the owners reads as damaged; restore it from its mirror or an older snapshot",
            ),
            Owner::Unknown => {
                self.used.insert(pointer.place.0);
            }
        }
    }

    /// Marks the `copies` blocks of a node or data block as used; notes places out of range or with two owners.
    /// False if the place was in use before.
    pub(crate) fn claim(
        &mut self,
        reader: &mut Reader<'_>,
        superblock: &Superblock,
        at: &Location,
        copies: u64,
    ) -> bool {
        let place = at.place.unwrap_or(0);
        let mut fresh = true;
        for copy in 0..copies {
            let place = place + copy * TWIN_DISTANCE;
            let at = Location { place: Some(place), ..at.clone() };
            if !(superblock.first_allocatable()..superblock.pool_blocks).contains(&place) {
                let expected = format!(
                    "a place from {} to {}",
                    superblock.first_allocatable(),
                    superblock.pool_blocks - 1
                );
                reader.error(What::PlaceOutOfRange, at, expected, place.to_string(), "");
            } else if !self.used.insert(place) {
                fresh = false;
                reader.error(
                    What::Ownership,
                    at,
                    "one owner of this place, or owners by descent",
                    "another owner, found before",
                    "two parts of the pool claim one block: freeing one would destroy the other; do not write to this \
                     pool, restore it from its mirror",
                );
            }
        }
        fresh
    }
}
