//! What each realm has of a store, and whose container goes when room is needed. Pure.
//!
//! Realms share a store equally: each has a right to what there is of something scarce, divided by the number of realms that
//! hold something. A realm may have more for as long as others have less. When room is needed, the realm that is furthest
//! over its share gives. Since all shares are equal, that is the realm that has most. So nobody, whatever it brings, pushes out
//! what another one has within its share.

use std::collections::BTreeMap;

use crate::name::RealmId;
use crate::ring::Ring;

/// What there is too little of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scarce {
    /// Bytes of the store, or of the disk.
    Bytes,
    /// Room in the index.
    Chunks,
    /// One more container, which this realm is to have.
    Container(RealmId),
}

/// What a realm has.
#[derive(Debug, Default)]
struct Share {
    ring: Ring,
    bytes: u64,
    /// In the index.
    chunks: u64,
}

/// What all realms have.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Only of realms that hold something.
    of: BTreeMap<RealmId, Share>,
    bytes: u64,
    chunks: u64,
}

impl Shares {
    /// A container of so many bytes has come.
    pub(super) fn add(&mut self, realm: RealmId, slot: u32, bytes: u64) {
        let share = self.of.entry(realm).or_default();
        share.ring.push(slot);
        share.bytes += bytes;
        self.bytes += bytes;
    }

    /// It has gone, with these bytes and these chunks.
    pub(super) fn remove(&mut self, realm: RealmId, slot: u32, bytes: u64, chunks: u64) {
        let Some(share) = self.of.get_mut(&realm) else { return };
        share.ring.remove(slot);
        share.bytes -= bytes;
        share.chunks -= chunks;
        self.bytes -= bytes;
        self.chunks -= chunks;
        if share.ring.is_empty() {
            self.of.remove(&realm);
        }
    }

    /// One of its containers has other bytes than before.
    pub(super) fn resize(&mut self, realm: RealmId, before: u64, after: u64) {
        let Some(share) = self.of.get_mut(&realm) else { return };
        share.bytes = share.bytes + after - before;
        self.bytes = self.bytes + after - before;
    }

    /// So many of its chunks were entered into the index.
    pub(super) fn enter(&mut self, realm: RealmId, chunks: u64) {
        let Some(share) = self.of.get_mut(&realm) else { return };
        share.chunks += chunks;
        self.chunks += chunks;
    }

    /// The index is a new one.
    pub(super) fn nothing_entered(&mut self) {
        self.of.values_mut().for_each(|share| share.chunks = 0);
        self.chunks = 0;
    }

    /// Of all containers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of all realms.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The container that goes next. `take_mark` as in [`Ring::next_to_go`].
    pub(super) fn next_to_go(&mut self, scarce: Scarce, take_mark: impl FnMut(u32) -> bool) -> Option<u32> {
        let has = |realm: &RealmId, share: &Share| match scarce {
            Scarce::Bytes => share.bytes,
            Scarce::Chunks => share.chunks,
            Scarce::Container(asking) => share.ring.len() as u64 + u64::from(*realm == asking),
        };
        let (_, share) = self.of.iter_mut().max_by_key(|(realm, share)| has(realm, share))?;
        share.ring.next_to_go(take_mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RealmId = RealmId([1; 16]);
    const B: RealmId = RealmId([2; 16]);

    #[test]
    fn who_has_most_of_what_is_scarce_gives_its_oldest() {
        let mut shares = Shares::default();
        for slot in 0..3 {
            shares.add(A, slot, 100);
            shares.add(B, 10 + slot, 60);
        }
        shares.enter(B, 7);
        let next = |shares: &mut Shares, scarce| shares.next_to_go(scarce, |_| false);
        assert_eq!(next(&mut shares, Scarce::Bytes), Some(0));
        assert_eq!(next(&mut shares, Scarce::Chunks), Some(10));
        assert_eq!(next(&mut shares, Scarce::Container(A)), Some(0));
        assert_eq!(next(&mut shares, Scarce::Container(B)), Some(10));
        shares.remove(A, 0, 100, 0);
        assert_eq!(next(&mut shares, Scarce::Bytes), Some(1), "200 and 180 bytes");
        assert_eq!(next(&mut shares, Scarce::Container(A)), Some(10), "it would be three and three");
        shares.resize(B, 60, 90);
        assert_eq!(next(&mut shares, Scarce::Bytes), Some(10));
        assert_eq!((shares.bytes(), shares.chunks()), (410, 7));
    }

    #[test]
    fn what_was_asked_for_stays_once() {
        let mut shares = Shares::default();
        (0..3).for_each(|slot| shares.add(A, slot, 1));
        assert_eq!(shares.next_to_go(Scarce::Bytes, |slot| slot == 0), Some(1));
        assert_eq!(shares.next_to_go(Scarce::Bytes, |_| true), Some(1), "all of them");
        for slot in 0..3 {
            shares.remove(A, slot, 1, 0);
        }
        assert!(shares.next_to_go(Scarce::Bytes, |_| false).is_none());
    }
}
