//! A mirror as a member of its group.

use farside_engine::VolumeName;
use farside_peer::PeerId;
use tokio::sync::mpsc;

use crate::relationship::Command;
use crate::store::Relationship;

/// Which group: its name, the source's site, and the pool here. What changes in one record is in one pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupKey {
    pub(super) name: String,
    peer: PeerId,
    pool: String,
}

impl GroupKey {
    /// The group of a mirror, if it is in one.
    pub(crate) fn of(relationship: &Relationship) -> Option<GroupKey> {
        let name = relationship.group.clone()?;
        Some(GroupKey { name, peer: relationship.peer, pool: relationship.destination.pool.clone() })
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
    /// Its driver.
    pub(crate) driver: mpsc::WeakSender<Command>,
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
}

impl Stands {
    /// In words, and what lets the group go on.
    pub(super) fn why(self, volume: &VolumeName) -> String {
        let (is, then) = match self {
            Stands::Quiesced => ("is quiesced", format!("farside mirror resume {volume}")),
            Stands::BrokenOff => ("is broken off", format!("farside mirror resync {volume}")),
            Stands::Resyncs => ("is to be resynced first", format!("farside mirror update {volume}")),
            Stands::Swaps => ("changes roles with its source", format!("farside mirror swap {volume}")),
        };
        format!(
            "{volume} {is}, and its group is updated as a whole. To go on: {then}; or take it out: farside mirror set {volume} \
             --group ''"
        )
    }
}
