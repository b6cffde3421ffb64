//! How many owners each data block has: as the owner counts say, and as the walk of the trees finds.

use std::collections::BTreeMap;

use farside_format::Fingerprint;

/// What the table says of a place, and what was found.
struct Owners {
    extra: u32,
    found: u64,
    fingerprint: Fingerprint,
}

/// The table of one point: places with several owners.
pub(crate) struct OwnerTable {
    places: BTreeMap<u64, Owners>,
    /// False if part of it cannot be read: then nothing is said of owners.
    readable: bool,
}

impl Default for OwnerTable {
    fn default() -> Self {
        OwnerTable { places: BTreeMap::new(), readable: true }
    }
}

/// What one more owner of a place is.
pub(crate) enum Owner {
    /// The place has one owner only, as far as the table says, or this is the first: nothing else may have it.
    First,
    /// One of several.
    Further,
    /// One of several, and the place cannot hold what it wants there.
    OfOtherContent(Fingerprint),
    /// The table cannot be read.
    Unknown,
}

impl OwnerTable {
    /// Places with several owners, as the table has it.
    pub(crate) fn shared_places(&self) -> u64 {
        self.places.len() as u64
    }

    /// The medium's table says that this place has `extra` owners besides the first.
    pub(crate) fn add(&mut self, place: u64, extra: u32) {
        self.places.insert(place, Owners { extra, found: 0, fingerprint: Fingerprint::HOLE });
    }

    /// Part of the table cannot be read.
    pub(crate) fn set_unreadable(&mut self) {
        self.readable = false;
    }

    /// (place, owners as the medium's table says, owners found), in the order of places; nothing if the table cannot
    /// be read.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let places = self.places.iter().filter(|_| self.readable);
        places.map(|(&place, owners)| (place, 1 + u64::from(owners.extra), owners.found))
    }

    /// Counts an owner of a data block.
    pub(crate) fn count(&mut self, place: u64, fingerprint: Fingerprint) -> Owner {
        if !self.readable {
            return Owner::Unknown;
        }
        let Some(owners) = self.places.get_mut(&place) else { return Owner::First };
        owners.found += 1;
        if owners.found == 1 {
            owners.fingerprint = fingerprint;
            Owner::First
        } else if owners.fingerprint == fingerprint {
            Owner::Further
        } else {
            Owner::OfOtherContent(owners.fingerprint)
        }
    }
}
