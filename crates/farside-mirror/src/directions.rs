//! What a source makes of what its destinations say, and what it refuses because of it: the decisions that keep two originals
//! from being unknown. Pure; `source` looks the facts up and carries the answers out, and `model` walks through all that
//! three sites can come to with them.

#[cfg(test)]
mod model;

/// What a destination says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Said {
    /// It was broken off: hosts went on there.
    BrokenOff,
    /// The same, and its mirror is over since.
    Ended,
    /// The same, and it follows the source's volume again, by way of another.
    Returned {
        /// It followed one since, by what was noted, that it has left.
        has_left: bool,
    },
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
        /// The volume follows the destination's, by whatever way.
        follows: bool,
        /// Whether it stands in one line with who went on.
        settled: Settled,
        /// It is prepared for a role change, and the destination stands on its last snapshot.
        is_taken_over: bool,
        /// It has followed the destination's since that was broken off, and was broken off itself after that.
        has_followed_since: bool,
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
    /// Nobody went on elsewhere any more, and the relationship is over: all that is left of it goes.
    Over,
    /// It has come back, but not what it has left: it is overtaken by that, as noted.
    Back,
    /// Nothing is kept for the relationship, so it was released here: no news.
    NothingKept,
    /// Refused, to be said again: whatever is here of the relationship cannot be seen now.
    NotHere,
}

/// What is made of what a destination says. What is known of the relationship by the database suffices: a pool that is away must
/// not come back unfenced. `is_news`: it was never answered before, and comes from one that may mirror the volume and was
/// not followed by it meanwhile; then whoever released the relationship here did not know of it.
///
/// Of two breaks the later one counts. Who follows a volume lets go of the mirror in the other direction with the first version that
/// it has of that, and a break of that mirror that it never heard of is older than whatever comes after. What the destination does
/// later begins with a transfer from here, by which the mirror is known here again.
pub(crate) fn hear(said: Said, is_known: bool, is_news: bool, pool: PoolSays) -> Heard {
    let is_break = matches!(said, Said::BrokenOff | Said::Ended);
    let if_known = |heard| if is_known { heard } else { Heard::NothingKept };
    match pool {
        PoolSays::Present { is_taken_over: true, .. } if is_break => Heard::TakenOver,
        PoolSays::Present { follows: true, .. } if is_break => Heard::Follows,
        // Only with the pool open what is kept for it can go.
        PoolSays::Absent if matches!(said, Said::Returned { .. }) && is_known => Heard::NotHere,
        PoolSays::Present { settled: Settled::Follows, .. } if matches!(said, Said::Returned { .. }) => {
            if_known(Heard::Over)
        }
        _ if said == (Said::Returned { has_left: true }) => if_known(Heard::Back),
        _ if said == (Said::Returned { has_left: false }) => if_known(Heard::Over),
        PoolSays::Present { settled: Settled::Follows | Settled::Followed, .. } if said == Said::Ended => {
            if_known(Heard::Over)
        }
        PoolSays::Present { settled: Settled::Follows, .. } if said == Said::Beyond => if_known(Heard::Clear),
        // Who follows it, as far as it has said, may have left: then the word counts when it comes again.
        PoolSays::Present { settled: Settled::Followed, .. } if said == Said::Beyond => Heard::NotHere,
        _ if said == Said::Withdrawn => if_known(Heard::Clear),
        _ if is_known => Heard::Note,
        PoolSays::Present { has_followed_since: true, .. } if is_break => Heard::NothingKept,
        PoolSays::Present { is_kept: true, .. } => Heard::Note,
        PoolSays::Present { .. } if is_news => Heard::Note,
        PoolSays::Present { .. } => Heard::NothingKept,
        PoolSays::Absent => Heard::NotHere,
    }
}

/// Who went on without a volume, by what one of its destinations has said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GoneOn<P> {
    /// That destination, if it was itself.
    pub(crate) itself: Option<P>,
    /// What that follows since, the nearest first. Where it was not itself: first the one that went on.
    pub(crate) follows: Vec<P>,
}

impl<P> Default for GoneOn<P> {
    fn default() -> Self {
        GoneOn { itself: None, follows: Vec::new() }
    }
}

impl<P: Clone + PartialEq> GoneOn<P> {
    /// All of them, the nearest first.
    pub(crate) fn places(&self) -> Vec<P> {
        self.itself.iter().chain(&self.follows).cloned().collect()
    }

    /// Which of those that it has followed since, by what was noted, it does not follow now. They may go on without it.
    pub(crate) fn left(&self, now: &[P]) -> Vec<P> {
        self.follows.iter().filter(|place| !now.contains(place)).cloned().collect()
    }

    /// Whether they are of no concern any more to a volume that follows `chain`, and that is followed by those of `line`.
    ///
    /// It follows one of them: then they have one original, and whoever of them has gone on since is the concern of the one that
    /// it has left. Or all of them follow it. One is not enough: what comes back may have left another that goes on. So it is not
    /// for the one that went on itself to say that it follows by way of another: that must have said so too.
    pub(crate) fn settled(&self, chain: &[P], line: &[P]) -> Settled {
        let places = self.places();
        let has_followed = !self.follows.is_empty();
        if places.iter().any(|place| chain.contains(place)) {
            Settled::Follows
        } else if has_followed && places.iter().all(|place| line.contains(place)) {
            Settled::Followed
        } else {
            Settled::No
        }
    }
}

/// How a volume stands in one line with who went on without it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Settled {
    /// It does not.
    No,
    /// It follows one of them.
    Follows,
    /// All of them follow it.
    Followed,
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
