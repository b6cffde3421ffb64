//! A mirror as a member of its group.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_transfer::protocol::group::GroupMoment;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::source::SourceService;
use crate::store::Relationship;

/// Which group: its name, the source's site, and the pool here. What changes in one record is in one pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupKey {
    pub(super) name: String,
    peer: PeerId,
    pub(super) pool: String,
}

impl GroupKey {
    /// The group of a mirror, if it is in one.
    pub(crate) fn of(relationship: &Relationship) -> Option<GroupKey> {
        let name = relationship.group.clone()?;
        Some(GroupKey { name, peer: relationship.peer, pool: relationship.destination.pool.clone() })
    }

    /// What mirrors the group's site has here: (the original here, the replica there).
    pub(super) fn followed(&self, source: &SourceService) -> Vec<(VolumeName, VolumeName)> {
        let all = source.destinations().into_iter();
        let of_site = all.filter(|r| r.peer == self.peer && r.base.is_some() && r.overtaken.is_none());
        of_site.map(|r| (r.source, r.destination)).collect()
    }
}

/// A mirror as its group sees it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) volume: VolumeName,
    pub(crate) source: VolumeName,
    pub(crate) role_change: u64,
    /// There is a base: it is updated with the others.
    pub(crate) counts: bool,
    /// What keeps it, and so the group, from new updates.
    pub(crate) stands: Option<Stands>,
    /// Wakes its driver: the group is updated.
    pub(crate) wake: Arc<Notify>,
}

impl Member {
    /// One of which only the row of the database is known. Its driver says more.
    pub(crate) fn unknown(relationship: &Relationship) -> Member {
        Member {
            volume: relationship.destination.clone(),
            source: relationship.source.clone(),
            role_change: relationship.role_change,
            counts: true,
            stands: Some(Stands::Unknown),
            wake: Arc::default(),
        }
    }

    /// Whether it is but the way back: its volume is the original now, and its former source follows it.
    pub(super) fn is_asleep(&self, followed: &[(VolumeName, VolumeName)]) -> bool {
        self.stands == Some(Stands::BrokenOff)
            && followed.iter().any(|(original, replica)| *original == self.volume && *replica == self.source)
    }
}

/// What keeps a member from new updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stands {
    /// A person has asked for quiet. What runs ends by itself.
    Quiesced,
    /// Hosts may write to it.
    BrokenOff,
    /// It has a difference of its own to bring.
    Resyncs,
    /// It changes its role.
    Swaps,
    /// The pool has not said yet what it is.
    Unknown,
}

impl Stands {
    /// In words, and what lets the group go on.
    pub(super) fn why(self, volume: &VolumeName, group: &str) -> String {
        let (is, then) = match self {
            Stands::Quiesced => ("is quiesced", format!("farside mirror resume {volume}")),
            Stands::BrokenOff => ("is broken off", format!("farside mirror resync {volume}")),
            Stands::Resyncs => ("is to be resynced first", format!("farside mirror update {volume}")),
            Stands::Unknown => ("cannot be looked at", format!("farside mirror status {volume} says why")),
            Stands::Swaps => ("changes roles with its source", format!("farside mirror swap {volume}")),
        };
        let instead = match self {
            Stands::BrokenOff => format!("to take over all of it: farside mirror break --group {group}; "),
            _ => String::new(),
        };
        format!(
            "{volume} {is}, and its group is updated as a whole. To go on: {then}; {instead}or take it out: farside mirror set {volume} \
             --group none"
        )
    }
}

/// A member's place in an update of its group.
pub(crate) struct Place {
    pub(super) key: GroupKey,
    pub(super) id: Uuid,
    /// Of the update.
    pub(super) number: u64,
    pub(super) moment: GroupMoment,
    /// When the moment was taken, on monotonic time.
    pub(super) taken_at: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_of_a_volume_that_became_the_original_is_asleep() {
        let name = |name: &str| name.parse::<VolumeName>().unwrap();
        let member = |stands| Member {
            volume: name("q/a"),
            source: name("p/a"),
            role_change: 1,
            counts: true,
            stands,
            wake: Arc::default(),
        };
        let followed = [(name("q/b"), name("p/b")), (name("q/a"), name("p/a"))];
        assert!(member(Some(Stands::BrokenOff)).is_asleep(&followed));
        // A person's break keeps the others where they are.
        assert!(!member(Some(Stands::BrokenOff)).is_asleep(&followed[..1]));
        assert!(!member(Some(Stands::Swaps)).is_asleep(&followed));
        assert!(!member(None).is_asleep(&followed));
        assert!(!member(Some(Stands::BrokenOff)).is_asleep(&[(name("q/a"), name("p/b"))]));
    }

    #[test]
    fn what_takes_one_out_can_be_typed() {
        let why = Stands::BrokenOff.why(&"q/a".parse().unwrap(), "shop");
        assert!(why.contains("farside mirror break --group shop; "), "{why}");
        assert!(why.ends_with("farside mirror set q/a --group none"), "{why}");
    }
}
