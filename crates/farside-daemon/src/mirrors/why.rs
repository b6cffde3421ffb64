//! Why a mirror is not updated now, for whoever looks at it. Pure.

use farside_api::MirrorStopped;
use farside_mirror::{MirrorStatus, Relationship, Schedule, Stopped};
use farside_peer::PeerStatus;
use farside_transfer::Phase;

use crate::convert;
use crate::peers;

/// That the peer is away, of a mirror that would be updated if it were not: the same words from the first moment to the last, whatever
/// its attempts have come to.
pub(super) fn away(status: &MirrorStatus, peer: Option<&PeerStatus>) -> Option<String> {
    use farside_mirror::State;
    let Some(peer) = peer else {
        // That there is no session follows from it.
        let says_nothing = (status.why.is_none() || status.session_why.is_some() || status.shows_own_state)
            && matches!(status.state, State::Mirrored | State::Queued);
        return says_nothing.then(|| {
            format!(
                "the site that it followed is not paired any more (its peer was removed here, or this site's state database was \
                 lost), and nothing comes. Pair again (if that site has another key by then, farside peer rekey \
                 too; and farside peer allow at that site, if the right went; and here, for the way back, farside peer allow PEER {0} \
                 --reverse), or farside mirror delete {0}",
                status.relationship.destination
            )
        });
    };
    if peer.state.connected {
        return None;
    }
    let is_due = status.relationship.schedule != Schedule::OnRequest || status.state == State::Queued;
    if !is_due || !matches!(status.state, State::Mirrored | State::Queued) {
        return None;
    }
    if status.is_for_swap {
        return Some(format!(
            "a swap waits for its session, and changes the roles when it is back; farside mirror abort {} gives it up. There is {}",
            status.relationship.destination,
            no_session(peer)
        ));
    }
    if status.shows_own_state {
        let then = own_state(status);
        return Some(format!(
            "{}. A resync is pending, and goes on when the session is back. {then}",
            no_session(peer)
        ));
    }
    Some(format!("{}. The replica is unchanged, and is updated when the session is back", no_session(peer)))
}

/// What a volume shows that is to be resynced.
fn own_state(status: &MirrorStatus) -> String {
    let volume = &status.relationship.destination;
    format!(
        "Until it has ended {volume} shows its own state, as hosts here left it, read-only; farside mirror break {volume} gives it back \
         to them like that"
    )
}

/// Since when there is no session with a peer, and why.
pub(super) fn no_session(peer: &PeerStatus) -> String {
    let since = match peer.state.since {
        Some(since) => convert::time(since).strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        None => "this daemon has started".into(),
    };
    let because = peers::why(peer).map(|why| format!(": {why}")).unwrap_or_default();
    format!("no session with {} since {since}{because}", peer.record.name)
}

/// That the peer went away while a transfer runs, or while what has arrived waits for the other volumes of its group: they do not
/// come before the session is back, and whoever looks must not take that for progress.
pub(super) fn interrupted(status: &MirrorStatus, peer: Option<&PeerStatus>) -> Option<String> {
    use farside_mirror::State;
    let peer = peer.filter(|peer| !peer.state.connected)?;
    if !matches!(status.state, State::Transferring | State::Initializing) {
        return None;
    }
    let waits = status.progress.as_ref().is_some_and(|progress| progress.phase == Phase::Group);
    // What came first of several snapshots is shown already.
    let has_published = status.progress.as_ref().is_some_and(|progress| progress.snapshots_done > 0);
    let shows = match status.current.as_ref().filter(|_| has_published) {
        Some(current) => format!("shows {}", current.name),
        None => "is unchanged".into(),
    };
    let then = match status.why.as_deref().filter(|_| waits) {
        Some(waits) => format!("This volume {waits}; its replica {shows} until then"),
        None if status.shows_own_state => format!(
            "What has arrived is kept, and the resync goes on when the session is back. {}",
            own_state(status)
        ),
        None if status.is_for_swap => format!(
            "A swap waits for this transfer, which goes on when the session is back; farside mirror abort {} gives both up",
            status.relationship.destination
        ),
        None => format!(
            "What has arrived is kept, the replica {shows}, and the transfer goes on when the session is back"
        ),
    };
    Some(format!("{}. {then}", no_session(peer)))
}

/// That nobody can tell the source of a break any more: its peer was removed here.
pub(super) fn untold_for_good(status: &MirrorStatus, peer: Option<&PeerStatus>) -> Option<String> {
    let is_untold = status.source_heard == Some(farside_mirror::SourceHeard::NotYet) && peer.is_none();
    let Relationship { source, destination, .. } = &status.relationship;
    is_untold.then(|| {
        format!(
            "the site that it followed is not paired any more: that this mirror was broken off is not told to it, and hosts may be \
             writing to {source} there. Pair again (if that site has another key by then, farside peer rekey too) and it is told; or \
             farside mirror delete {destination}"
        )
    })
}

/// What keeps a mirror from being updated until a person does something about it.
pub(super) fn stopped(status: &MirrorStatus, peer: Option<&PeerStatus>) -> Option<MirrorStopped> {
    if status.state == farside_mirror::State::BrokenOff {
        return None;
    }
    if peer.is_none_or(peers::is_removed_there) {
        return Some(MirrorStopped::NotPaired);
    }
    match &status.stopped {
        Some(Stopped::NoRight(_)) => Some(MirrorStopped::NoRight),
        Some(Stopped::NoOriginal(_)) => Some(MirrorStopped::NoOriginal),
        Some(Stopped::NoRoom(_)) => Some(MirrorStopped::NoRoom),
        None => None,
    }
}

/// What stands in a mirror's way now. That there was no session is over once there is one.
pub(super) fn why_now(status: &MirrorStatus, peer: Option<&PeerStatus>) -> Option<String> {
    let why = status.why.as_deref()?;
    let is_connected = peer.is_some_and(|peer| peer.state.connected);
    let of_session = status.session_why.as_deref().filter(|_| is_connected);
    let left = match of_session.and_then(|of_session| why.strip_prefix(of_session)) {
        Some(left) => left.strip_prefix("; ").unwrap_or(left),
        None => why,
    };
    (!left.is_empty()).then(|| left.to_owned())
}
