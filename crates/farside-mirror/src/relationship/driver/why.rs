//! What stands in a mirror's way, in words.

use super::Driver;
use crate::error::MirrorError;
use crate::limits::WAITERS_MAX;
use crate::schedule::Schedule;
use crate::state::Work;
use crate::store::SwapMark;

/// How the reason of an earlier attempt begins.
const BEFORE: &str = "the attempt before this one: ";

impl Driver {
    /// Whether anything may be asked of this mirror now.
    pub(crate) fn check_ready(&self) -> Result<(), MirrorError> {
        self.check_unprepared()?;
        // An update would bring nothing, and look as if all was well.
        match self.forgotten_why() {
            Some(why) => Err(MirrorError::State(why)),
            None => Ok(()),
        }
    }

    /// The same for a resync, which is a way out where nothing here remembers a role change.
    pub(crate) fn check_unprepared(&self) -> Result<(), MirrorError> {
        self.check_probed()?;
        if let Some(why) = self.prepared_why() {
            return Err(MirrorError::State(why));
        }
        if self.waiting.len() + self.waiting_next.len() >= WAITERS_MAX {
            return Err(MirrorError::State(format!(
                "{WAITERS_MAX} requests already wait for this mirror; try again \
                 when one has ended"
            )));
        }
        Ok(())
    }

    /// What keeps a volume that is prepared for a role change from everything else.
    pub(crate) fn prepared_why(&self) -> Option<String> {
        let Some(SwapMark::Prepared { .. }) = self.relationship.swap else { return None };
        let volume = &self.relationship.destination;
        Some(format!(
            "a role change is under way: {volume} is read-only until its peer has taken over or given up. To finish \
             it, at the peer: farside mirror swap again. If the peer has taken over and this site has not been \
             notified, at this site: farside mirror resync {volume}. To make {volume} writable at once, at this site: \
             farside mirror break {volume}"
        ))
    }

    /// A resync was asked for, and the volume shows what hosts here made of it until that has brought something.
    pub(super) fn shows_own_state(&self) -> bool {
        self.shows_own && self.state.resync_pending && self.state.work != Work::BrokenOff
    }

    /// What a volume shows that is to be resynced.
    fn own_state_why(&self) -> Option<String> {
        let volume = &self.relationship.destination;
        self.shows_own_state().then(|| {
            let begins = match self.relationship.schedule {
                Schedule::OnRequest if matches!(self.state.work, Work::Idle) => {
                    format!(" (farside mirror update {volume} begins it again)")
                }
                _ => String::new(),
            };
            format!(
                "a resync is pending{begins}: until it has brought the version of {}, {volume} shows its own state, as hosts here left \
                 it, read-only; farside mirror break {volume} gives it back to them like that",
                self.source_name()
            )
        })
    }

    /// What a volume is waiting for that was made read-only for a role change, when nothing here remembers it.
    pub(super) fn forgotten_why(&self) -> Option<String> {
        let destination = &self.relationship.destination;
        self.forgotten_fence.map(|_| {
            let source = self.source_name();
            format!(
                "{destination} is read-only for a role change that this site no longer remembers (its state database \
                 was lost). Look at the peer first: if {source} there is not broken off, run farside mirror break \
                 {destination} at this site, nothing is lost; if it is broken off, run farside mirror resync \
                 {destination} at this site"
            )
        })
    }

    /// Whether the pool has said what this replica is.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_probed
    }

    pub(crate) fn check_probed(&self) -> Result<(), MirrorError> {
        match &self.why {
            Some(why) if !self.is_probed => {
                Err(MirrorError::State(format!("the replica cannot be used: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// A transfer begins: what the one before it failed for is not what it is about, and is said so.
    pub(super) fn note_why_before(&mut self) {
        if !std::mem::take(&mut self.has_failed) {
            return;
        }
        self.why = self.why.take().map(|why| {
            let why = why.strip_prefix(BEFORE).unwrap_or(&why);
            format!("{BEFORE}{why}")
        });
    }

    /// What is in the way, the nearest first.
    pub(super) fn every_why(&self) -> Option<String> {
        let why = self
            .said_why()
            .or_else(|| self.prepared_why())
            .or_else(|| self.forgotten_why())
            .or_else(|| self.went_back.as_ref().map(|(_, why)| why.clone()))
            .or_else(|| self.schedule_why());
        let more = [self.own_state_why(), self.objective_why(), self.untold_why(), self.upstream_why()]
            .into_iter()
            .flatten();
        why.into_iter().chain(more).reduce(|all, more| format!("{all}; {more}"))
    }
}
