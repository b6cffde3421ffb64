//! Which of two sessions with the same process of a peer stays. Pure, and the same decision on both sides. Of two processes with one
//! key [`instances`](crate::instances) decides.

use crate::id::PeerId;

/// What to do with a session that comes while another is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolution {
    /// The new one replaces the old.
    Replace,
    /// The old one stays, but is suspected: the peer dialled although it should have it.
    KeepOld,
}

/// `old` and `new` have dialled the two sessions.
///
/// * The same side dialled both: it has lost the old one and knows it.
/// * Both dialled, at about the same time: the session dialled by the smaller id stays, whichever was there first.
pub(crate) fn resolve(us: PeerId, peer: PeerId, old: PeerId, new: PeerId) -> Resolution {
    if old == new || new == us.min(peer) { Resolution::Replace } else { Resolution::KeepOld }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_keep_the_same_session_whatever_the_order() {
        let (a, b) = (PeerId([1; 32]), PeerId([2; 32]));
        for us in [a, b] {
            let peer = if us == a { b } else { a };
            assert_eq!(resolve(us, peer, a, b), Resolution::KeepOld);
            assert_eq!(resolve(us, peer, b, a), Resolution::Replace);
            assert_eq!(resolve(us, peer, b, b), Resolution::Replace);
        }
    }
}
