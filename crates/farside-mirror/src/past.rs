//! What a mirror remembers of its earlier directions. Whether volumes of a group fit together depends on it, and points that would tell
//! rotate away. Pure.

use farside_platform::Timestamp;
use prost::Message;
use uuid::Uuid;

/// So many side branches are remembered: a volume keeps the 16 newest by itself, and the first of each of as many days.
const SET_ASIDE_MAX: usize = 64;

/// By what hosts came to write to a volume that was a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WentOnBy {
    /// A person broke it off, whatever its source went on with.
    Break,
    /// A change of roles: its source had been stopped first.
    RoleChange,
}

/// What a mirror remembers of its earlier directions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Past {
    /// Of one that is broken off: by what; none if nobody knows.
    pub went_on_by: Option<WentOnBy>,
    /// When it became a replica by a change of roles; none if it follows by something else.
    pub turned_at: Option<Timestamp>,
    /// The resync by which it follows, or followed last.
    pub resync: Option<Resynced>,
    /// Side branches, oldest first: of which moment the data was that hosts went on from, if that is known.
    set_aside: Vec<(Uuid, Option<Timestamp>)>,
}

/// A resync, and what it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resynced {
    /// When it began.
    pub at: Timestamp,
    /// Since when hosts had been able to write to the volume; none if they were not, or if nobody knows.
    pub was_broken_off_at: Option<Timestamp>,
    /// By what they were; none if nobody knows.
    pub went_on_by: Option<WentOnBy>,
    /// When hosts had gone on at what it follows since; none if they had not, or if nobody knows.
    pub taken_over_at: Option<Timestamp>,
    /// What it finds was written since the data was as of this moment.
    pub went_on_from: Option<Timestamp>,
    /// The snapshot that has what the volume showed before.
    pub left: Option<Uuid>,
}

impl Past {
    /// A resync begins.
    pub(crate) fn resynced(&self, resync: Resynced) -> Past {
        Past { went_on_by: None, turned_at: None, resync: Some(resync), ..self.clone() }
    }

    /// A change of roles has made it the original.
    pub(crate) fn taken_over(&self) -> Past {
        Past { went_on_by: Some(WentOnBy::RoleChange), turned_at: None, resync: None, ..self.clone() }
    }

    /// A change of roles has made it a replica.
    pub(crate) fn turned(&self, now: Timestamp) -> Past {
        Past { went_on_by: None, turned_at: Some(now), resync: None, ..self.clone() }
    }

    /// A person has broken it off.
    pub(crate) fn broken_off(&self) -> Past {
        Past { went_on_by: Some(WentOnBy::Break), turned_at: None, ..self.clone() }
    }

    /// The resync has set this aside.
    pub(crate) fn note_set_aside(&mut self, snapshot: Uuid) {
        let from = self.resync.as_mut().and_then(|resync| {
            resync.left = Some(snapshot);
            resync.went_on_from
        });
        self.set_aside.retain(|(known, _)| *known != snapshot);
        self.set_aside.push((snapshot, from));
        let surplus = self.set_aside.len().saturating_sub(SET_ASIDE_MAX);
        self.set_aside.drain(..surplus);
    }

    /// The snapshot that has what the volume showed before the resync by which it follows, or followed.
    pub(crate) fn left(&self) -> Option<Uuid> {
        self.resync.and_then(|resync| resync.left)
    }

    /// Whether this is what a resync has set aside, or is about to: it may lie on the main line, below what has come since.
    pub(crate) fn is_set_aside(&self, snapshot: Uuid) -> bool {
        self.left() == Some(snapshot) || self.set_aside.iter().any(|(known, _)| *known == snapshot)
    }

    /// Of which moment the data was that what is in this side branch went on from.
    pub(crate) fn moment_below(&self, snapshot: Uuid) -> Option<Timestamp> {
        self.set_aside.iter().find(|(known, _)| *known == snapshot)?.1
    }

    /// As it is kept; none if there is nothing to say.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let nanoseconds = |at: Option<Timestamp>| at.map_or(0, |at| at.0);
        let kept = Kept {
            resynced_at: nanoseconds(self.resync.map(|r| r.at)),
            was_broken_off_at: nanoseconds(self.resync.and_then(|r| r.was_broken_off_at)),
            taken_over_at: nanoseconds(self.resync.and_then(|r| r.taken_over_at)),
            went_on_from: nanoseconds(self.resync.and_then(|r| r.went_on_from)),
            left: self.left().map(|left| left.as_bytes().to_vec()).unwrap_or_default(),
            set_aside: self
                .set_aside
                .iter()
                .map(|(snapshot, from)| KeptBranch {
                    snapshot: snapshot.as_bytes().to_vec(),
                    from: nanoseconds(*from),
                })
                .collect(),
            went_on_by: number(self.went_on_by),
            was_went_on_by: number(self.resync.and_then(|r| r.went_on_by)),
            turned_at: nanoseconds(self.turned_at),
        };
        (*self != Past::default()).then(|| kept.encode_to_vec())
    }

    /// As it was kept. What makes no sense is not remembered: whatever depends on it has another way to tell, or asks.
    pub fn from_bytes(bytes: &[u8]) -> Past {
        let Ok(kept) = Kept::decode(bytes) else { return Past::default() };
        let moment = |at: u64| (at != 0).then_some(Timestamp(at));
        let branch = |b: &KeptBranch| Some((Uuid::from_slice(&b.snapshot).ok()?, moment(b.from)));
        Past {
            went_on_by: by_number(kept.went_on_by),
            turned_at: moment(kept.turned_at),
            resync: moment(kept.resynced_at).map(|at| Resynced {
                at,
                was_broken_off_at: moment(kept.was_broken_off_at),
                went_on_by: by_number(kept.was_went_on_by),
                taken_over_at: moment(kept.taken_over_at),
                went_on_from: moment(kept.went_on_from),
                left: Uuid::from_slice(&kept.left).ok(),
            }),
            set_aside: kept.set_aside.iter().filter_map(branch).take(SET_ASIDE_MAX).collect(),
        }
    }
}

/// Moments are nanoseconds since 1970, 0 if there is none.
#[derive(Clone, PartialEq, Message)]
struct Kept {
    #[prost(uint64, tag = "1")]
    resynced_at: u64,
    #[prost(uint64, tag = "2")]
    went_on_from: u64,
    #[prost(message, repeated, tag = "3")]
    set_aside: Vec<KeptBranch>,
    #[prost(uint64, tag = "4")]
    was_broken_off_at: u64,
    #[prost(uint64, tag = "5")]
    taken_over_at: u64,
    #[prost(bytes = "vec", tag = "6")]
    left: Vec<u8>,
    #[prost(uint32, tag = "7")]
    went_on_by: u32,
    #[prost(uint64, tag = "8")]
    turned_at: u64,
    #[prost(uint32, tag = "9")]
    was_went_on_by: u32,
}

fn number(by: Option<WentOnBy>) -> u32 {
    match by {
        None => 0,
        Some(WentOnBy::Break) => 1,
        Some(WentOnBy::RoleChange) => 2,
    }
}

fn by_number(number: u32) -> Option<WentOnBy> {
    match number {
        1 => Some(WentOnBy::Break),
        2 => Some(WentOnBy::RoleChange),
        _ => None,
    }
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

    fn resync(at: u64, from: Option<u64>) -> Resynced {
        Resynced {
            at: Timestamp(at),
            was_broken_off_at: Some(Timestamp(5)),
            went_on_by: Some(WentOnBy::RoleChange),
            taken_over_at: Some(Timestamp(7)),
            went_on_from: from.map(Timestamp),
            left: Some(Uuid::from_u128(777)),
        }
    }

    #[test]
    fn what_was_set_aside_knows_from_where_until_it_is_too_old() {
        let id = |number: u64| Uuid::from_u128(number.into());
        let mut past = Past::default().resynced(resync(9, None));
        assert!(past.is_set_aside(id(777)) && !past.is_set_aside(id(1)));
        past.note_set_aside(id(1));
        assert!(past.is_set_aside(id(1)) && past.moment_below(id(1)).is_none());
        for number in 1..=100 {
            past = past.resynced(resync(number * 10, Some(number)));
            past.note_set_aside(id(number));
            assert_eq!(past.left(), Some(id(number)));
        }
        assert_eq!(past.moment_below(id(100)), Some(Timestamp(100)));
        assert_eq!(past.moment_below(id(37)), Some(Timestamp(37)));
        assert!(!past.is_set_aside(id(36)));
        // Once roles have changed it does not follow by that; its side branches are there still.
        let (turned, taken_over, broken) = (past.turned(Timestamp(3)), past.taken_over(), past.broken_off());
        assert_eq!((turned.resync, turned.turned_at), (None, Some(Timestamp(3))));
        assert_eq!((taken_over.resync, taken_over.went_on_by), (None, Some(WentOnBy::RoleChange)));
        assert_eq!((broken.left(), broken.went_on_by), (Some(id(100)), Some(WentOnBy::Break)));
        assert_eq!(turned.moment_below(id(100)), Some(Timestamp(100)));
        for past in [past, turned, taken_over, broken] {
            assert_eq!(Past::from_bytes(&past.to_bytes().unwrap()), past);
        }
        assert_eq!(Past::default().to_bytes(), None);
        assert_eq!(Past::from_bytes(&[0xff; 7]), Past::default());
    }
}
