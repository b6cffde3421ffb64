//! What the driver makes of how long updates take.

use std::time::Duration;

use super::Driver;
use crate::objective::Forecast;
use crate::schedule::Schedule;

impl Driver {
    /// An update that has had a session since `connected` runs from now on; its snapshot was taken `at` another moment, if one is named.
    pub(super) fn note_begun(&mut self, connected: Duration, at: Option<Duration>) {
        self.timing.begun(self.parts.clock.monotonic(), connected, at);
    }

    /// It has ended. Sets when the next one is due, where an objective says so.
    pub(super) fn note_ended(&mut self, is_published: bool) {
        self.timing.ended(self.parts.clock.monotonic(), is_published);
        if is_published {
            self.aim();
        }
    }

    /// The next update begins when the objective needs it.
    pub(super) fn aim(&mut self) {
        if let Some(at) = self.objective().and_then(|objective| self.timing.begins_at(objective)) {
            self.ticker.aim(at);
        }
    }

    pub(super) fn objective(&self) -> Option<Duration> {
        match self.relationship.schedule {
            Schedule::Objective(objective) => Some(objective),
            _ => None,
        }
    }

    /// What comes of the objective, once anything is known.
    pub(super) fn forecast(&self) -> Option<Forecast> {
        self.timing.forecast(self.objective()?)
    }

    /// That an objective will be missed, before it is.
    pub(super) fn objective_why(&self) -> Option<String> {
        self.timing.shortfall(self.objective()?)
    }

    /// By when the update that is to be queued has to be published, on monotonic time; none without a rule.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let interval = self.relationship.schedule.interval()?;
        // Of what is shown nobody knows how old it is: it is due now.
        let now = || self.parts.clock.monotonic();
        Some(self.timing.shown().map_or_else(now, |shown| shown.saturating_add(interval)))
    }
}
