//! Which snapshots are there, found without a look at all others: those of a volume in order, and one by its name or its identity.
//! In memory only: made when a pool is opened, and kept by [`Versions`](crate::versions::Versions). Pure.
//!
//! A name leads to the versions that may have it. Whoever looks one up compares: names come from peers, and two may have one
//! hash.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use farside_format::Birth;
use farside_format::catalog::Snapshot;

/// About 100 bytes a snapshot.
#[derive(Default)]
pub(crate) struct SnapshotIndex {
    volumes: HashMap<u64, OfVolume>,
    hasher: RandomState,
}

#[derive(Default)]
struct OfVolume {
    /// When their data was frozen, and their version: oldest data first.
    in_order: BTreeSet<(Birth, u64)>,
    /// Hashes of names, and versions.
    names: BTreeSet<(u64, u64)>,
    /// The same of identities.
    identities: BTreeSet<(u64, u64)>,
}

impl SnapshotIndex {
    /// Version `id` of `volume`, frozen then, is a snapshot that lives.
    pub(crate) fn enter(&mut self, volume: u64, id: u64, frozen: Birth, described: &Snapshot) {
        let (name, identity) = self.hashes(described);
        let of = self.volumes.entry(volume).or_default();
        of.in_order.insert((frozen, id));
        of.names.insert((name, id));
        of.identities.insert((identity, id));
    }

    /// It is none any more, or is to be described anew.
    pub(crate) fn leave(&mut self, volume: u64, id: u64, frozen: Birth, described: &Snapshot) {
        let (name, identity) = self.hashes(described);
        let Some(of) = self.volumes.get_mut(&volume) else { return };
        of.in_order.remove(&(frozen, id));
        of.names.remove(&(name, id));
        of.identities.remove(&(identity, id));
        if of.in_order.is_empty() {
            self.volumes.remove(&volume);
        }
    }

    /// None of the volume lives any more.
    pub(crate) fn leave_all_of(&mut self, volume: u64) {
        self.volumes.remove(&volume);
    }

    /// The snapshots of a volume, oldest data first.
    pub(crate) fn of(&self, volume: u64) -> impl DoubleEndedIterator<Item = u64> {
        self.volumes.get(&volume).into_iter().flat_map(|of| of.in_order.iter().map(|(_, id)| *id))
    }

    /// How many a volume has.
    pub(crate) fn count(&self, volume: u64) -> usize {
        self.volumes.get(&volume).map_or(0, |of| of.in_order.len())
    }

    /// Those of a volume that may have this name.
    pub(crate) fn maybe_named(&self, volume: u64, name: &str) -> impl Iterator<Item = u64> {
        let hash = self.hasher.hash_one(name);
        self.volumes.get(&volume).into_iter().flat_map(move |of| with(&of.names, hash))
    }

    /// Those of a volume that may have this identity.
    pub(crate) fn maybe_identified(&self, volume: u64, identity: &[u8]) -> impl Iterator<Item = u64> {
        let hash = self.hasher.hash_one(identity);
        self.volumes.get(&volume).into_iter().flat_map(move |of| with(&of.identities, hash))
    }

    fn hashes(&self, described: &Snapshot) -> (u64, u64) {
        (self.hasher.hash_one(described.name.as_str()), self.hasher.hash_one(described.uuid.as_slice()))
    }
}

fn with(all: &BTreeSet<(u64, u64)>, hash: u64) -> impl Iterator<Item = u64> {
    all.range((hash, 0)..=(hash, u64::MAX)).map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(name: &str, number: u8) -> Snapshot {
        Snapshot { name: name.into(), uuid: vec![number; 16], ..Snapshot::default() }
    }

    #[test]
    fn what_leaves_is_found_no_more_and_nothing_else_goes_with_it() {
        let mut index = SnapshotIndex::default();
        index.enter(1, 7, Birth(3), &described("a", 1));
        index.enter(1, 5, Birth(4), &described("b", 2));
        index.enter(2, 6, Birth(3), &described("a", 1));
        assert_eq!(index.of(1).collect::<Vec<_>>(), [7, 5], "oldest data first, whatever their numbers");
        assert_eq!(index.maybe_named(1, "a").collect::<Vec<_>>(), [7]);
        assert_eq!(index.maybe_identified(2, &[1; 16]).collect::<Vec<_>>(), [6]);
        index.leave(1, 7, Birth(3), &described("a", 1));
        assert_eq!((index.maybe_named(1, "a").count(), index.maybe_identified(1, &[1; 16]).count()), (0, 0));
        assert_eq!((index.count(1), index.count(2), index.count(3)), (1, 1, 0));
        index.leave_all_of(2);
        assert_eq!(index.of(2).count(), 0);
    }

    #[test]
    fn two_of_one_name_are_both_found() {
        let mut index = SnapshotIndex::default();
        index.enter(1, 7, Birth(3), &described("a", 1));
        index.enter(1, 9, Birth(3), &described("a", 2));
        assert_eq!(index.maybe_named(1, "a").collect::<Vec<_>>(), [7, 9]);
        index.leave(1, 7, Birth(3), &described("a", 1));
        assert_eq!(index.maybe_named(1, "a").collect::<Vec<_>>(), [9]);
    }
}
