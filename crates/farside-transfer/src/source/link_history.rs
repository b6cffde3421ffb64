//! What transfers have learnt of the links they went over, for those that come after them. Hints, and lost with the process.

use std::collections::HashMap;

use farside_peer::PeerId;
use farside_wire::LevelControl;
use uuid::Uuid;

/// What was learnt, by whom it was learnt. At most one entry for each relationship and each peer with one.
#[derive(Default)]
pub(crate) struct LinkHistory {
    relationships: HashMap<Uuid, LevelControl>,
    /// By the latest transfer to it, of whichever volume.
    peers: HashMap<PeerId, LevelControl>,
}

impl LinkHistory {
    /// What a step of a relationship begins with: what the one before it has learnt, or else the latest of any volume to that
    /// peer; none if there was no other.
    pub(crate) fn of(&self, relationship: Uuid, peer: PeerId) -> Option<LevelControl> {
        self.relationships.get(&relationship).or_else(|| self.peers.get(&peer)).map(LevelControl::again)
    }

    /// For the steps after it.
    pub(crate) fn remember(&mut self, relationship: Uuid, peer: PeerId, level_control: LevelControl) {
        self.peers.insert(peer, level_control.clone());
        self.relationships.insert(relationship, level_control);
    }

    /// A relationship is no more; `is_peer` says with whom there are others.
    pub(crate) fn forget(&mut self, relationship: Uuid, is_peer: impl Fn(&PeerId) -> bool) {
        self.relationships.remove(&relationship);
        self.peers.retain(|peer, _| is_peer(peer));
    }
}

#[cfg(test)]
mod tests {
    use farside_wire::Effort;

    use super::*;

    #[test]
    fn a_new_relationship_begins_with_what_another_to_its_peer_has_learnt() {
        let (peer, other) = (PeerId([1; 32]), PeerId([2; 32]));
        let [first, second] = [1, 2].map(Uuid::from_u128);
        let effort =
            |learnt: &LinkHistory, relationship, peer| learnt.of(relationship, peer).map(|l| l.effort());
        let mut learnt = LinkHistory::default();
        learnt.remember(first, peer, LevelControl::pinned(Effort::Thorough));
        assert_eq!(effort(&learnt, second, peer), Some(Effort::Thorough));
        assert_eq!(effort(&learnt, second, other), None);
        // What it learns itself counts more than what others learn after it.
        learnt.remember(second, peer, LevelControl::pinned(Effort::Strong));
        learnt.remember(first, peer, LevelControl::pinned(Effort::Fast));
        assert_eq!(effort(&learnt, second, peer), Some(Effort::Strong));

        learnt.forget(second, |_| true);
        assert_eq!(effort(&learnt, second, peer), Some(Effort::Fast));
        learnt.forget(first, |left| *left != peer);
        assert_eq!(effort(&learnt, second, peer), None);
    }
}
