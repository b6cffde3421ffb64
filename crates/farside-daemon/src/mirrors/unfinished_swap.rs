//! A change of roles that was begun and is not over, in words: whoever asked for it may be gone by then, and its source's hosts cannot
//! write meanwhile.

use farside_mirror::{MirrorStatus, Relationship, State, SwapMark};
use farside_peer::PeerStatus;

/// What is to be said of it at the site that asked; none if there is none, or if it goes on while the peer is there. `no_session` says
/// since when a peer is away.
pub(super) fn why(
    status: &MirrorStatus,
    peer: Option<&PeerStatus>,
    no_session: impl Fn(&PeerStatus) -> String,
) -> Option<String> {
    let away = peer.filter(|peer| !peer.state.connected).map(no_session);
    let is_begun = matches!(status.relationship.swap, Some(SwapMark::Swapping { .. }));
    if !is_begun || status.state == State::BrokenOff {
        return None;
    }
    said(&status.relationship, status.is_swapping, peer.map(|peer| peer.record.name.as_str()), away)
}

/// Whether a change of roles has begun and may still come about: it is asked for here, or the other site has prepared this volume for it.
pub(super) fn is_under_way(status: &MirrorStatus) -> bool {
    let is_prepared = matches!(status.relationship.swap, Some(SwapMark::Prepared { .. }));
    status.state != State::BrokenOff && (is_prepared || status.is_for_swap || status.is_swapping)
}

fn said(of: &Relationship, is_swapping: bool, peer: Option<&str>, away: Option<String>) -> Option<String> {
    let source = match peer {
        Some(peer) => format!("{peer}:{}", of.source),
        None => of.source.to_string(),
    };
    match (is_swapping, away) {
        (true, None) => None,
        (true, Some(away)) => Some(format!(
            "a swap is under way, and {source} may be read-only until it is over. There is {away}; the swap waits for it no longer than \
             it was asked to, and is given up then"
        )),
        (false, away) => Some(format!(
            "a swap was given up, no role has changed, and {source} may be read-only until its site has heard of that: it is told at the \
             next session{}",
            away.map(|away| format!(". There is {away}")).unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use farside_mirror::Schedule;
    use farside_peer::PeerId;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_swap_is_named_while_its_peer_is_away_and_after_it_was_given_up() {
        let (source, replica) = ("p/v".parse().unwrap(), "q/v".parse().unwrap());
        let of = Relationship::new(Uuid::nil(), PeerId([1; 32]), source, replica, Schedule::OnRequest);
        let away = || Some("no session with north since noon".to_owned());
        assert_eq!(said(&of, true, Some("north"), None), None);
        let waits = said(&of, true, Some("north"), away()).unwrap();
        assert!(waits.contains("a swap is under way, and north:p/v may be read-only"), "{waits}");
        assert!(waits.contains("There is no session with north"), "{waits}");
        let over = said(&of, false, Some("north"), away()).unwrap();
        assert!(over.contains("a swap was given up, no role has changed"), "{over}");
        assert!(said(&of, false, None, None).unwrap().ends_with("at the next session"));
    }
}
