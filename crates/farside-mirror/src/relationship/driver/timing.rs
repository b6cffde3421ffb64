//! What the driver learns of how long updates take, and what an objective makes of it.

use std::time::Duration;

use super::Driver;
use crate::objective::{self, Forecast, Pace, Update};
use crate::schedule::Schedule;

/// Moments on monotonic time. An update whose moments are not known (a restart) teaches nothing.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    pace: Pace,
    /// When the update that is queued or runs was asked for.
    asked: Option<Duration>,
    /// When the snapshot of the one that runs was taken: as a rule when it began.
    begun: Option<Duration>,
    /// When it began to run.
    ran: Option<Duration>,
    /// When the snapshot that is shown was taken.
    shown: Option<Duration>,
}

impl Driver {
    /// An update waits from now on.
    pub(super) fn note_asked(&mut self) {
        self.timing.asked = Some(self.parts.clock.monotonic());
    }

    /// It runs from now on; its snapshot was taken `at` another moment, if one is named.
    pub(super) fn note_begun(&mut self, at: Option<Duration>) {
        let now = self.parts.clock.monotonic();
        self.timing.ran = Some(now);
        self.timing.begun = Some(at.unwrap_or(now));
    }

    /// It has ended. Sets when the next one is due, where an objective says so.
    pub(super) fn note_ended(&mut self, is_published: bool) {
        let (asked, begun) = (self.timing.asked.take(), self.timing.begun.take());
        let ran = self.timing.ran.take();
        if !is_published {
            return;
        }
        let now = self.parts.clock.monotonic();
        if let (Some(asked), Some(ran), Some(begun), Some(shown)) = (asked, ran, begun, self.timing.shown) {
            let update = Update {
                period: begun.saturating_sub(shown),
                waited: ran.saturating_sub(asked),
                took: now.saturating_sub(ran),
            };
            self.timing.pace.note(update);
        }
        self.timing.shown = begun;
        self.aim();
    }

    /// The next update begins when the objective needs it.
    pub(super) fn aim(&mut self) {
        if let (Some(objective), Some(shown)) = (self.objective(), self.timing.shown) {
            self.ticker.aim(objective::begins_at(objective, &self.timing.pace, shown));
        }
    }

    fn objective(&self) -> Option<Duration> {
        match self.relationship.schedule {
            Schedule::Objective(objective) => Some(objective),
            _ => None,
        }
    }

    /// What comes of the objective, once anything is known.
    pub(super) fn forecast(&self) -> Option<Forecast> {
        let objective = self.objective()?;
        self.timing.pace.is_known().then(|| self.timing.pace.forecast(objective))
    }

    /// That an objective will be missed, before it is.
    pub(super) fn objective_why(&self) -> Option<String> {
        objective::shortfall(self.objective()?, &self.timing.pace)
    }

    /// By when the update that is to be queued has to be published, on monotonic time; none without a rule.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let interval = self.relationship.schedule.interval()?;
        // Of what is shown nobody knows how old it is: it is due now.
        Some(
            self.timing
                .shown
                .map_or_else(|| self.parts.clock.monotonic(), |shown| shown.saturating_add(interval)),
        )
    }
}
