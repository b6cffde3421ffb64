//! How long updates of a mirror take, and what an objective makes of it. No clock: whoever calls hands in the moment, on monotonic
//! time.

use std::time::Duration;

use crate::objective::{self, Forecast, Pace, Update};

/// The moments of updates. One whose moments are not known (a restart) teaches nothing.
#[derive(Debug, Default)]
pub(super) struct Timing {
    pace: Pace,
    /// Since when the update that is queued or runs has had a session.
    connected: Option<Duration>,
    /// When it began to run.
    ran: Option<Duration>,
    /// When its snapshot was taken: as a rule when it began.
    taken: Option<Duration>,
    /// When the snapshot that is shown was taken.
    shown: Option<Duration>,
}

impl Timing {
    /// An update runs from now on. It has had a session since `connected`: what it waited before is no part of what updates take. Its
    /// snapshot was taken `at` another moment, if one is named.
    pub(super) fn begun(&mut self, now: Duration, connected: Duration, at: Option<Duration>) {
        self.connected = Some(connected);
        self.ran = Some(now);
        self.taken = Some(at.unwrap_or(now));
    }

    /// It has ended.
    pub(super) fn ended(&mut self, now: Duration, is_published: bool) {
        let (connected, ran, taken) = (self.connected.take(), self.ran.take(), self.taken.take());
        if !is_published {
            return;
        }
        if let (Some(connected), Some(ran), Some(taken), Some(shown)) = (connected, ran, taken, self.shown) {
            let update = Update {
                period: taken.saturating_sub(shown),
                waited: ran.saturating_sub(connected),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_says_nothing_of_the_updates_after_it() {
        let s = Duration::from_secs;
        let objective = s(20);
        let mut timing = Timing::default();
        // The first was taken at 100; the next was to begin at 110, had a session at 137, and took a second.
        timing.begun(s(100), s(100), None);
        timing.ended(s(101), true);
        timing.begun(s(137), s(137), None);
        timing.ended(s(138), true);
        assert_eq!(timing.shortfall(objective), None);
        let begins = timing.begins_at(objective).unwrap();
        assert!(begins <= s(137) + objective, "{begins:?}");
        let forecast = timing.forecast(objective).unwrap();
        assert!(forecast.meets(objective) && forecast.waits == Duration::ZERO, "{forecast:?}");
        // What waits for its turn counts.
        timing.begun(s(157), s(150), None);
        timing.ended(s(158), true);
        assert_eq!(timing.forecast(objective).unwrap().waits, s(7));
    }
}
