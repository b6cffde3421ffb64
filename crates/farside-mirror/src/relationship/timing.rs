//! How long updates of a mirror take, and what an objective makes of it. No clock: whoever calls hands in the moment, on monotonic
//! time.

use std::time::Duration;

use crate::objective::{self, Forecast, Pace, Update};

/// The moments of updates. One whose moments are not known (a restart) teaches nothing.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pace: Pace,
    /// When the update that is queued or runs was asked for.
    asked: Option<Duration>,
    /// When it began to run.
    ran: Option<Duration>,
    /// When its snapshot was taken: as a rule when it began.
    taken: Option<Duration>,
    /// When the snapshot that is shown was taken.
    shown: Option<Duration>,
}

impl Timing {
    /// An update waits from now on.
    pub(super) fn asked(&mut self, now: Duration) {
        self.asked = Some(now);
    }

    /// It runs from now on; its snapshot was taken `at` another moment, if one is named.
    pub(super) fn begun(&mut self, now: Duration, at: Option<Duration>) {
        self.ran = Some(now);
        self.taken = Some(at.unwrap_or(now));
    }

    /// It has ended.
    pub(super) fn ended(&mut self, now: Duration, is_published: bool) {
        let (asked, ran, taken) = (self.asked.take(), self.ran.take(), self.taken.take());
        if !is_published {
            return;
        }
        if let (Some(asked), Some(ran), Some(taken), Some(shown)) = (asked, ran, taken, self.shown) {
            let update = Update {
                period: taken.saturating_sub(shown),
                waited: ran.saturating_sub(asked),
                took: now.saturating_sub(ran),
            };
            self.pace.note(update);
        }
        self.shown = taken;
    }

    /// When the snapshot that is shown was taken, if this process knows.
    pub(super) fn shown(&self) -> Option<Duration> {
        self.shown
    }

    /// When the next update has to begin.
    pub(super) fn begins_at(&self, objective: Duration) -> Option<Duration> {
        Some(objective::begins_at(objective, &self.pace, self.shown?))
    }

    /// What comes of an objective, once anything is known.
    pub(super) fn forecast(&self, objective: Duration) -> Option<Forecast> {
        self.pace.is_known().then(|| self.pace.forecast(objective))
    }

    /// That it will be missed, before it is.
    pub(super) fn shortfall(&self, objective: Duration) -> Option<String> {
        objective::shortfall(objective, &self.pace)
    }
}
