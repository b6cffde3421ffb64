//! What a mirror remembers of its earlier directions. Whether volumes of a group fit together depends on it, and points that would tell
//! rotate away. Pure.

use farside_platform::Timestamp;
use prost::Message;
use uuid::Uuid;

/// So many side branches are remembered: a volume keeps the 16 newest by itself, and the first of each of as many days.
const SET_ASIDE_MAX: usize = 64;

/// What a mirror remembers of its earlier directions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Past {
    /// When a resync began by which the volume follows; none if it has followed ever since, or since a change of roles.
    pub resynced_at: Option<Timestamp>,
    /// Since when hosts had been able to write to it then; none if they were not, or if nobody knows.
    pub was_broken_off_at: Option<Timestamp>,
    /// What that resync finds was written since the data was as of this moment.
    pub went_on_from: Option<Timestamp>,
    /// Side branches, oldest first: of which moment the data was that hosts went on from.
    set_aside: Vec<(Uuid, Timestamp)>,
}

impl Past {
    /// A resync begins `now`. What hosts went on from is known of a volume that was broken off.
    pub(crate) fn resynced(
        &self,
        now: Timestamp,
        was_broken_off_at: Option<Timestamp>,
        went_on_from: Option<Timestamp>,
    ) -> Past {
        Past { resynced_at: Some(now), was_broken_off_at, went_on_from, ..self.clone() }
    }

    /// It does not follow by a resync any more.
    pub(crate) fn roles_changed(&self) -> Past {
        Past { set_aside: self.set_aside.clone(), ..Past::default() }
    }

    /// The resync has set this aside. Answers whether anything is remembered of it.
    pub(crate) fn note_set_aside(&mut self, snapshot: Uuid) -> bool {
        let Some(from) = self.went_on_from else { return false };
        self.set_aside.retain(|(known, _)| *known != snapshot);
        self.set_aside.push((snapshot, from));
        let surplus = self.set_aside.len().saturating_sub(SET_ASIDE_MAX);
        self.set_aside.drain(..surplus);
        true
    }

    /// Of which moment the data was that what is in this side branch went on from.
    pub(crate) fn moment_below(&self, snapshot: Uuid) -> Option<Timestamp> {
        self.set_aside.iter().find(|(known, _)| *known == snapshot).map(|(_, from)| *from)
    }

    /// As it is kept; none if there is nothing to say.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let kept = Kept {
            resynced_at: self.resynced_at.map_or(0, |at| at.0),
            was_broken_off_at: self.was_broken_off_at.map_or(0, |at| at.0),
            went_on_from: self.went_on_from.map_or(0, |at| at.0),
            set_aside: self
                .set_aside
                .iter()
                .map(|(snapshot, from)| KeptBranch { snapshot: snapshot.as_bytes().to_vec(), from: from.0 })
                .collect(),
        };
        (*self != Past::default()).then(|| kept.encode_to_vec())
    }

    /// As it was kept. What makes no sense is not remembered: whatever depends on it has another way to tell, or asks.
    pub fn from_bytes(bytes: &[u8]) -> Past {
        let Ok(kept) = Kept::decode(bytes) else { return Past::default() };
        let moment = |at: u64| (at != 0).then_some(Timestamp(at));
        let branch = |b: &KeptBranch| Some((Uuid::from_slice(&b.snapshot).ok()?, moment(b.from)?));
        Past {
            resynced_at: moment(kept.resynced_at),
            was_broken_off_at: moment(kept.was_broken_off_at),
            went_on_from: moment(kept.went_on_from),
            set_aside: kept.set_aside.iter().filter_map(branch).take(SET_ASIDE_MAX).collect(),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Kept {
    /// Nanoseconds since 1970, as all moments here; 0 if there is none.
    #[prost(uint64, tag = "1")]
    resynced_at: u64,
    #[prost(uint64, tag = "2")]
    went_on_from: u64,
    #[prost(message, repeated, tag = "3")]
    set_aside: Vec<KeptBranch>,
    #[prost(uint64, tag = "4")]
    was_broken_off_at: u64,
}

#[derive(Clone, PartialEq, Message)]
struct KeptBranch {
    #[prost(bytes = "vec", tag = "1")]
    snapshot: Vec<u8>,
    #[prost(uint64, tag = "2")]
    from: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_aside_knows_from_where_until_it_is_too_old() {
        let mut past = Past::default().resynced(Timestamp(9), None, None);
        assert!(!past.note_set_aside(Uuid::from_u128(1)) && past.moment_below(Uuid::from_u128(1)).is_none());
        for number in 1..=100 {
            past = past.resynced(Timestamp(number * 10), Some(Timestamp(5)), Some(Timestamp(number)));
            assert!(past.note_set_aside(Uuid::from_u128(number.into())));
        }
        assert_eq!(past.moment_below(Uuid::from_u128(100)), Some(Timestamp(100)));
        assert_eq!(past.moment_below(Uuid::from_u128(37)), Some(Timestamp(37)));
        assert_eq!(past.moment_below(Uuid::from_u128(36)), None);
        // What has changed its role follows by that; its side branches are there still.
        let changed = past.roles_changed();
        assert_eq!(
            (changed.resynced_at, changed.was_broken_off_at, changed.went_on_from),
            (None, None, None)
        );
        assert_eq!(changed.moment_below(Uuid::from_u128(100)), Some(Timestamp(100)));
        for past in [past, changed] {
            assert_eq!(Past::from_bytes(&past.to_bytes().unwrap()), past);
        }
        assert_eq!(Past::default().to_bytes(), None);
        assert_eq!(Past::from_bytes(&[0xff; 7]), Past::default());
    }
}
