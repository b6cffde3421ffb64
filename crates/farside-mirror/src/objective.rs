//! A recovery point objective: when an update has to begin so that the replica's data never gets older than that.
//!
//! The data of a replica is as old as the snapshot it shows. It is at its oldest in the moment before the next one is published: then
//! its age is the time between the two snapshots (the *period*) and the time that the update took. So with an objective O and an
//! update that takes `f + s · period`, the period may be `(O − f) / (1 + s)`. Both figures are learnt from the mirror's own updates:
//! `f` from the quickest, `s` from the slow ones, since an objective is about these. Waiting for a turn is part of `f`, as long
//! as it is for the slow ones. Waiting for a session is not: an outage says nothing of the updates after it. A tenth of the objective is kept back. An update begins as late as that allows: the longer the period,
//! the more of what was overwritten twice need not travel. Of a mirror whose updates nobody has seen yet half of the objective is
//! kept back: hundreds that begin together wait for each other. Pure: no clock, no I/O.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{EVERY_MIN, OBJECTIVE_MARGIN, OBJECTIVE_MARGIN_UNKNOWN, PACE_UPDATES};

/// One update that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// Between the snapshot before and this one.
    pub period: Duration,
    /// From when it had a session until it began: for its turn. It does not get shorter with the period.
    pub waited: Duration,
    /// From its beginning until it was published.
    pub took: Duration,
}

/// How long updates of a mirror take.
#[derive(Clone, Default, Debug)]
pub struct Pace {
    updates: VecDeque<Update>,
}

/// What an objective comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Between two updates.
    pub period: Duration,
    /// How long the next one will take, its wait included.
    pub takes: Duration,
    /// Of that, for its turn.
    pub waits: Duration,
    /// How old the data will be at most; none if it falls behind more and more.
    pub lag: Option<Duration>,
}

impl Forecast {
    /// The same where a turn comes after `line` at the earliest: what others bring shows in the line before it shows in a mirror's own
    /// updates.
    #[must_use]
    pub fn behind(self, line: Duration) -> Forecast {
        let longer = line.saturating_sub(self.waits);
        Forecast {
            takes: self.takes.saturating_add(longer),
            waits: self.waits.max(line),
            lag: self.lag.map(|lag| lag.saturating_add(longer)),
            ..self
        }
    }

    /// Whether the data stays within `objective`.
    pub fn meets(&self, objective: Duration) -> bool {
        self.lag.is_some_and(|lag| lag <= objective)
    }
}

impl Pace {
    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Learns from one more.
    pub fn note(&mut self, update: Update) {
        if self.updates.len() == PACE_UPDATES {
            self.updates.pop_front();
        }
        self.updates.push_back(update);
    }

    /// What an update takes whatever it brings, how long it waits before that, and how much longer it takes for each second of its
    /// period.
    fn figures(&self) -> (Duration, Duration, f64) {
        // The third quartile: one update that was held up does not change everything, a load that lasts does.
        let slow_at = self.updates.len() * 3 / 4;
        let fixed = self.updates.iter().map(|u| u.took).min().unwrap_or_default();
        let slope = |u: &Update| {
            (u.took - fixed).as_secs_f64() / u.period.max(Duration::from_millis(1)).as_secs_f64()
        };
        let mut slopes: Vec<f64> = self.updates.iter().map(slope).collect();
        slopes.sort_by(f64::total_cmp);
        let mut waits: Vec<Duration> = self.updates.iter().map(|u| u.waited).collect();
        waits.sort_unstable();
        let wait = waits.get(slow_at).copied().unwrap_or_default();
        (fixed, wait, slopes.get(slow_at).copied().unwrap_or(0.0))
    }

    /// What comes of an objective.
    pub fn forecast(&self, objective: Duration) -> Forecast {
        let (work, waits, slope) = self.figures();
        let fixed = work.saturating_add(waits);
        let takes = |period: f64| fixed.as_secs_f64() + slope * period;
        let margin = if self.is_known() { OBJECTIVE_MARGIN } else { OBJECTIVE_MARGIN_UNKNOWN };
        let aim = objective.as_secs_f64() * (1.0 - margin);
        let wanted = ((aim - fixed.as_secs_f64()) / (1.0 + slope)).max(EVERY_MIN.as_secs_f64());
        // One begins when the one before has ended: a period is no shorter than an update takes.
        let period = match takes(wanted) <= wanted {
            true => wanted,
            false if slope < 1.0 => (fixed.as_secs_f64() / (1.0 - slope)).max(EVERY_MIN.as_secs_f64()),
            false => {
                let takes = Duration::try_from_secs_f64(takes(wanted)).unwrap_or(Duration::MAX);
                return Forecast { period: takes, takes, waits, lag: None };
            }
        };
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let (period, takes) = (seconds(period), seconds(takes(period)));
        Forecast { period, takes, waits, lag: Some(period.saturating_add(takes)) }
    }
}

/// When the next update has to begin, on monotonic time: `taken` is when the snapshot was taken that is shown. Whatever the forecast
/// is, not later than one objective after that: by then the data is too old, and one that takes so long has to begin as soon as it can.
pub fn begins_at(objective: Duration, pace: &Pace, taken: Duration) -> Duration {
    taken.saturating_add(pace.forecast(objective).period.min(objective))
}

/// By these words it is known in a longer reason.
pub const NOT_MET: &str = "will not be met";

/// What keeps an objective from being met, in words; none if it is met.
pub fn shortfall(objective: Duration, pace: &Pace) -> Option<String> {
    pace.is_known().then(|| shortfall_of(objective, &pace.forecast(objective)))?
}

/// The same of a forecast.
pub fn shortfall_of(objective: Duration, forecast: &Forecast) -> Option<String> {
    if forecast.meets(objective) {
        return None;
    }
    let seconds = |time: Duration| format!("{:.0} s", time.as_secs_f64().max(1.0));
    let what = match forecast.lag {
        Some(lag) if forecast.waits > forecast.takes / 2 => format!(
            "the objective of {} {NOT_MET}: the data will be up to {} old, as updates take {}, and for {} of it they wait for \
             their turn",
            seconds(objective),
            seconds(lag),
            seconds(forecast.takes),
            seconds(forecast.waits)
        ),
        Some(lag) => format!(
            "the objective of {} {NOT_MET}: with updates one after the other the data will be up to {} old, as they take {}",
            seconds(objective),
            seconds(lag),
            seconds(forecast.takes)
        ),
        None => format!(
            "the objective of {} {NOT_MET}, and the mirror falls behind more and more: updates take {} and bring what \
             changes in less",
            seconds(objective),
            seconds(forecast.takes)
        ),
    };
    Some(format!(
        "{what}. What helps: a higher throttle or a faster link, fewer mirrors on it at once, or a longer objective"
    ))
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn pace(updates: &[(f64, f64)]) -> Pace {
        let mut pace = Pace::default();
        updates.iter().for_each(|(period, took)| {
            pace.note(Update { period: s(*period), waited: s(0.0), took: s(*took) })
        });
        pace
    }

    #[test]
    fn an_unknown_mirror_begins_with_its_margin() {
        let forecast = Pace::default().forecast(s(30.0));
        assert_eq!((forecast.period, forecast.takes), (s(15.0), s(0.0)));
        assert!(forecast.meets(s(30.0)) && shortfall(s(30.0), &Pace::default()).is_none());
        assert_eq!(begins_at(s(30.0), &Pace::default(), s(100.0)), s(115.0));
        // Never more often than a schedule may be.
        assert_eq!(Pace::default().forecast(s(1.0)).period, EVERY_MIN);
    }

    #[test]
    fn the_slower_the_updates_the_earlier_they_begin() {
        // 2 s whatever there is, and a tenth of the period: (27 - 2) / 1.1 = 22.7 s.
        let usual = pace(&[(0.001, 2.0), (20.0, 4.0), (20.0, 4.0), (20.0, 4.0)]);
        let forecast = usual.forecast(s(30.0));
        assert!((forecast.period.as_secs_f64() - 22.7).abs() < 0.1, "{forecast:?}");
        assert!(forecast.meets(s(30.0)));
        assert!((forecast.lag.unwrap().as_secs_f64() - 27.0).abs() < 0.1, "the margin is kept: {forecast:?}");
    }

    #[test]
    fn what_cannot_be_met_is_said_before_it_is_broken() {
        // Half of each period: 2 s and more, objective 3 s: 1.4 s would do, but an update takes longer than that.
        let slow = pace(&[(0.001, 2.0), (10.0, 7.0), (10.0, 7.0), (10.0, 7.0)]);
        let forecast = slow.forecast(s(3.0));
        assert!(!forecast.meets(s(3.0)));
        // p = 2 + p / 2: 4 s, and as long again.
        assert_eq!(forecast.lag.map(|lag| lag.as_secs_f64().round()), Some(8.0));
        assert!(shortfall(s(3.0), &slow).unwrap().contains("up to 8 s old"));
        assert!(shortfall(s(10.0), &slow).is_none());
        // What changes in a second takes longer than a second to bring.
        let hopeless = pace(&[(0.001, 1.0), (10.0, 16.0), (20.0, 31.0), (30.0, 46.0)]);
        assert_eq!(hopeless.forecast(s(30.0)).lag, None);
        assert!(shortfall(s(30.0), &hopeless).unwrap().contains("more and more"));
    }

    #[test]
    fn a_line_that_gets_long_shows_before_a_mirrors_own_updates_do() {
        let forecast = pace(&[(50.0, 2.0); 8]).forecast(s(60.0));
        assert!(forecast.meets(s(60.0)) && forecast.behind(Duration::ZERO) == forecast);
        let behind = forecast.behind(s(40.0));
        assert_eq!(behind.takes, forecast.takes + s(40.0));
        let said = shortfall_of(s(60.0), &behind).unwrap();
        assert!(said.contains(NOT_MET) && said.contains("for 40 s of it they wait for their turn"), "{said}");
        // What a mirror has waited for before is no news.
        assert_eq!(behind.behind(s(40.0)), behind);
    }

    #[test]
    fn the_next_update_never_begins_later_than_the_objective() {
        // Updates that take longer than the objective, and such that fall behind more and more.
        let slow = pace(&[(29.0, 29.0); 3]);
        let hopeless = pace(&[(0.001, 1.0), (10.0, 16.0), (20.0, 31.0), (30.0, 46.0)]);
        for pace in [slow, hopeless] {
            assert!(!pace.forecast(s(20.0)).meets(s(20.0)));
            assert!(begins_at(s(20.0), &pace, s(100.0)) <= s(120.0));
        }
    }

    #[test]
    fn one_that_was_held_up_does_not_change_everything_and_a_load_that_lasts_does() {
        let mut pace = pace(&[(20.0, 1.0); PACE_UPDATES]);
        pace.note(Update { period: s(20.0), waited: s(0.0), took: s(15.0) });
        assert!(pace.forecast(s(30.0)).period > s(25.0));
        for _ in 0..PACE_UPDATES / 2 {
            pace.note(Update { period: s(20.0), waited: s(0.0), took: s(9.0) });
        }
        assert!(pace.forecast(s(30.0)).period < s(20.0));
    }

    /// A replayed day: the load follows the hour, the link is sometimes slow. Lag stays within the objective wherever the link
    /// allows, and what was forecast before each update is within a fifth of what came.
    #[test]
    fn over_a_day_the_forecast_is_near_to_what_happens() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
        use rand::Rng;
        let objective = s(60.0);
        let mut pace = Pace::default();
        let (mut now, mut taken) = (0.0_f64, 0.0_f64);
        let (mut updates, mut near, mut broken) = (0, 0, 0);
        while now < 86_400.0 {
            let forecast = pace.forecast(objective);
            now = now.max(taken + forecast.period.as_secs_f64());
            let hour = now / 3600.0;
            // A share of the link: 5 % at night, 35 % at noon.
            let share = 0.20 - 0.15 * (hour / 24.0 * std::f64::consts::TAU).cos();
            let took = 0.8 + share * (now - taken) * random.random_range(0.9..1.1);
            let lag = now - taken + took;
            if updates >= PACE_UPDATES {
                let predicted = forecast.lag.unwrap().as_secs_f64();
                near += usize::from((lag - predicted).abs() <= 0.2 * predicted);
                broken += usize::from(lag > objective.as_secs_f64());
            }
            pace.note(Update { period: s(now - taken), waited: s(0.0), took: s(took) });
            (taken, now) = (now, now + took);
            updates += 1;
        }
        let judged = updates - PACE_UPDATES;
        assert!(near * 100 >= judged * 99, "{near} of {judged} were near");
        assert_eq!(broken, 0, "of {judged}");
    }
}
