//! What a source makes of what its destinations say, and what it refuses because of it: the decisions that keep two originals
//! from being unknown. Pure; `source` looks the facts up and carries the answers out, and [`model`] walks through all that
//! three sites can come to with them.

#[cfg(test)]
mod model;

/// What a destination says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Said {
    /// It was broken off: hosts went on there.
    BrokenOff,
    /// The same, and its mirror was deleted since.
    Ended,
    /// It follows, and a destination of its own was broken off.
    Beyond,
    /// It follows, and nobody went on beyond it (any more).
    Withdrawn,
}

/// What the pool of the source says of the relationship.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PoolSays {
    /// It is not open, or has no such volume.
    Absent,
    /// The volume is there.
    Present {
        /// A snapshot is pinned or was taken for the relationship.
        is_kept: bool,
        /// The volume follows the destination's.
        follows: bool,
        /// It is prepared for a role change, and the destination stands on its last snapshot.
        is_taken_over: bool,
    },
}

/// What the source does about it, and answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Heard {
    /// The role change that was prepared is done.
    TakenOver,
    /// It follows the destination: no alarm.
    Follows,
    /// It is overtaken from now on.
    Note,
    /// It is not, or no longer.
    Clear,
    /// Nothing is kept for the relationship, so it was released here: no news.
    NothingKept,
    /// Refused, to be said again: whatever is here of the relationship cannot be seen now.
    NotHere,
}

/// What is made of what a destination says. What is known of the relationship by the database suffices: a pool that is away must
/// not come back unfenced. `is_news`: it was never answered before, and comes from one that may mirror the volume and was
/// not followed by it meanwhile; then whoever released the relationship here did not know of it.
pub(crate) fn hear(said: Said, is_known: bool, is_news: bool, pool: PoolSays) -> Heard {
    let is_break = matches!(said, Said::BrokenOff | Said::Ended);
    match pool {
        PoolSays::Present { is_taken_over: true, .. } if is_break => Heard::TakenOver,
        PoolSays::Present { follows: true, .. } if is_break => Heard::Follows,
        _ if said == Said::Withdrawn => {
            if is_known {
                Heard::Clear
            } else {
                Heard::NothingKept
            }
        }
        _ if is_known => Heard::Note,
        PoolSays::Present { is_kept: true, .. } => Heard::Note,
        PoolSays::Present { .. } if is_news => Heard::Note,
        PoolSays::Present { .. } => Heard::NothingKept,
        PoolSays::Absent => Heard::NotHere,
    }
}

/// Whether hosts are kept from an overtaken volume: as the policy was once, or is now. A policy that goes with its right or
/// its peer does not take the fence along.
pub(crate) fn is_fenced(was_fenced: bool, policy: bool) -> bool {
    was_fenced || policy
}

/// What is left of a relationship at its source when the destination releases it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// That this side is overtaken, until its own administrator decides. The bases go.
    Mark,
}

/// The destination's *release*: it frees what is kept for it, and takes back nothing that it has said.
pub(crate) fn release(is_overtaken: bool) -> Left {
    if is_overtaken { Left::Mark } else { Left::Nothing }
}

/// What may be asked of a volume by those who mirror it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Request {
    /// A new mirror, or the first copy of one that is not known here.
    FirstCopy,
    /// An update of this very relationship, which may itself be the one that overtook.
    Update {
        /// It was broken off.
        of_overtaker: bool,
    },
    /// A role change, at either side.
    RoleChange,
}

/// Whether it is refused because hosts went on elsewhere. An update by others is not: it says so, and whoever reads the
/// replica may need what is there.
pub(crate) fn is_refused(request: Request, is_overtaken: bool) -> bool {
    match request {
        Request::FirstCopy | Request::RoleChange => is_overtaken,
        Request::Update { of_overtaker } => of_overtaker,
    }
}
