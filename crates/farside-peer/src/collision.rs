//! Which of two sessions with the same peer stays. Pure, and the same decision on both sides.

use crate::id::PeerId;

/// What the rule looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Whoever dialled it.
    pub(crate) dialler: PeerId,
    /// The peer's process at the other end.
    pub(crate) instance: [u8; 16],
}

/// What to do with a session that comes while another is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolution {
    /// The new one replaces the old.
    Replace,
    /// The old one stays, but is suspected: the peer dialled although it should have it.
    KeepOld,
}

/// * The peer's process is another one: the old session is a ghost.
/// * The same side dialled both: it has lost the old one and knows it.
/// * Both dialled, at about the same time: the session dialled by the smaller id stays, whichever was there first.
pub(crate) fn resolve(us: PeerId, peer: PeerId, old: Candidate, new: Candidate) -> Resolution {
    if old.instance != new.instance || old.dialler == new.dialler || new.dialler == us.min(peer) {
        Resolution::Replace
    } else {
        Resolution::KeepOld
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_keep_the_same_session_whatever_the_order() {
        let (a, b) = (PeerId([1; 32]), PeerId([2; 32]));
        let candidate = |dialler| Candidate { dialler, instance: [0; 16] };
        for us in [a, b] {
            let peer = if us == a { b } else { a };
            assert_eq!(resolve(us, peer, candidate(a), candidate(b)), Resolution::KeepOld);
            assert_eq!(resolve(us, peer, candidate(b), candidate(a)), Resolution::Replace);
            assert_eq!(resolve(us, peer, candidate(b), candidate(b)), Resolution::Replace);
            let restarted = Candidate { dialler: b, instance: [9; 16] };
            assert_eq!(resolve(us, peer, candidate(a), restarted), Resolution::Replace);
        }
    }
}
