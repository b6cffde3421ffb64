//! How much of the time transfers may work, by what hosts feel of it. Pure.
//!
//! What an operation takes without transfers is learnt in windows in which they hardly worked; what it takes with them, in the others.
//! Where it takes more, transfers get half as much of the time, down to a floor that keeps them going; where it does not, a little
//! more with each window. The idea is TCP's (additive increase, multiplicative decrease), with latency as the sign of congestion,
//! as in background transports (LEDBAT, RFC 6817).

use std::time::Duration;

/// How often is decided. Two of them are within the 100 ms in which transfers have to give way.
pub const WINDOW: Duration = Duration::from_millis(50);
/// Of less is nothing learnt.
const OPERATIONS_MIN: u64 = 8;
/// So much of a window is work at most where it counts as one without transfers.
const IDLE_SHARE: f64 = 0.02;
/// Operations take that much longer before transfers give way: 5 %, and what clocks and chance make of short ones.
const SLOWER_BY: f64 = 1.05;
/// See above.
const SLOWER_BY_LEAST: Duration = Duration::from_micros(20);
/// Part of what is known that a new window replaces.
const LEARNING: f64 = 0.2;
/// Windows with transfers after which they rest for one, to learn anew what operations take without them.
const WINDOWS_UNTIL_REST: u32 = 100;
/// What transfers gain by a window in which hosts feel nothing.
const STEP: f64 = 0.02;

/// How far hosts go before transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Precedence {
    /// Not at all: transfers do what they can.
    Off = 0,
    /// Transfers keep half of a processor's time at least.
    Fair = 1,
    /// Transfers keep an eighth of a processor's time at least.
    #[default]
    High = 2,
}

impl Precedence {
    /// All, with their names.
    pub const NAMES: [(&str, Precedence); 3] =
        [("off", Precedence::Off), ("fair", Precedence::Fair), ("high", Precedence::High)];

    pub(crate) fn from_number(number: u8) -> Precedence {
        match number {
            0 => Precedence::Off,
            1 => Precedence::Fair,
            _ => Precedence::High,
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Precedence> {
        Precedence::NAMES.iter().find(|(known, _)| *known == name).map(|(_, precedence)| *precedence)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Precedence::NAMES[self as usize].0
    }

    /// What transfers keep, whatever hosts feel.
    fn floor(self) -> f64 {
        match self {
            Precedence::Off => 1.0,
            Precedence::Fair => 0.5,
            Precedence::High => 0.125,
        }
    }
}

/// What happened in a window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// How long it was.
    pub length: Duration,
    /// Operations of hosts that were answered.
    pub operations: u64,
    /// How long they took, together.
    pub taken: Duration,
    /// How long transfers worked, on all threads together.
    pub worked: Duration,
}

impl Window {
    /// Whether hosts did enough in it to learn something from.
    pub fn has_hosts(&self) -> bool {
        self.operations >= OPERATIONS_MIN
    }
}

/// Why transfers work less than they could.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldBack {
    /// Part of a processor's time that they use at most.
    pub share: f64,
    /// What operations of hosts take without transfers.
    pub without: Duration,
    /// What they take with them.
    pub with: Duration,
}

/// What was learnt, and what follows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    share: f64,
    /// What an operation takes without transfers, and with them; none where nothing is known.
    without: Option<Duration>,
    with: Option<Duration>,
    /// Windows with transfers since one without them.
    since_rest: u32,
    hosts_are_active: bool,
}

impl Default for Share {
    fn default() -> Share {
        Share { share: 1.0, without: None, with: None, since_rest: 0, hosts_are_active: false }
    }
}

impl Share {
    /// What follows from a window.
    pub fn after(mut self, window: &Window, precedence: Precedence) -> Share {
        // A long one is of a time in which nobody asked: transfers had ended.
        let counts = window.has_hosts();
        self.hosts_are_active = counts;
        if !counts {
            self.share = (self.share + 0.1).min(1.0);
            return self;
        }
        let mean = Duration::from_secs_f64(window.taken.as_secs_f64() / window.operations as f64);
        if window.worked.as_secs_f64() <= IDLE_SHARE * window.length.as_secs_f64() {
            self.without = Some(learnt(self.without, mean));
            self.since_rest = 0;
            return self;
        }
        self.with = Some(learnt(self.with, mean));
        self.since_rest += 1;
        let is_slower = |without: Duration| mean > without.mul_f64(SLOWER_BY) + SLOWER_BY_LEAST;
        match self.without {
            Some(without) if is_slower(without) => self.share = (self.share / 2.0).max(precedence.floor()),
            Some(_) => self.share = (self.share + STEP).min(1.0),
            // Not known yet: a rest will tell.
            None => {}
        }
        self
    }

    /// How long transfers rest after a piece that took so long.
    pub fn rest_after(&self, piece: Duration, precedence: Precedence) -> Duration {
        if precedence == Precedence::Off || !self.hosts_are_active {
            return Duration::ZERO;
        }
        let is_to_learn = self.without.is_none() || self.since_rest >= WINDOWS_UNTIL_REST;
        if is_to_learn {
            // The window under way, and a whole one.
            return 2 * WINDOW;
        }
        piece.mul_f64(1.0 / self.share.max(precedence.floor()) - 1.0)
    }

    /// Whether transfers are held back, and why.
    pub fn held_back(&self, precedence: Precedence) -> Option<HeldBack> {
        let (without, with) = (self.without?, self.with?);
        let is_held = precedence != Precedence::Off && self.hosts_are_active && self.share < 1.0;
        is_held.then_some(HeldBack { share: self.share, without, with })
    }
}

fn learnt(known: Option<Duration>, seen: Duration) -> Duration {
    known.map_or(seen, |known| known.mul_f64(1.0 - LEARNING) + seen.mul_f64(LEARNING))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(mean_us: u64, worked_ms: u64) -> Window {
        let (operations, length) = (500, WINDOW);
        let taken = Duration::from_micros(mean_us * operations);
        Window { length, operations, taken, worked: Duration::from_millis(worked_ms) }
    }

    #[test]
    fn transfers_give_way_within_two_windows_and_come_back() {
        let high = Precedence::High;
        let mut share = Share::default();
        assert_eq!(share.rest_after(WINDOW, high), Duration::ZERO, "no host, no rest");
        share = share.after(&window(300, 0), high);
        assert_eq!(share.held_back(high), None);
        share = share.after(&window(600, 40), high).after(&window(600, 40), high);
        let held = share.held_back(high).expect("they are");
        assert!(held.share <= 0.25 && held.without < held.with, "{held:?}");
        assert_eq!(share.rest_after(Duration::from_millis(10), high), Duration::from_millis(30));
        for _ in 0..20 {
            share = share.after(&window(600, 5), high);
        }
        assert_eq!(share.held_back(high).expect("they are").share, 0.125, "never stopped");
        for _ in 0..100 {
            share = share.after(&window(305, 5), high);
        }
        assert_eq!(share.held_back(high), None, "hosts feel nothing");
    }

    #[test]
    fn how_far_is_a_setting_and_idle_hosts_hold_nobody_back() {
        let mut share = Share::default().after(&window(300, 0), Precedence::Fair);
        for _ in 0..20 {
            share = share.after(&window(900, 40), Precedence::Fair);
        }
        assert_eq!(share.held_back(Precedence::Fair).expect("they are").share, 0.5);
        assert_eq!(share.rest_after(WINDOW, Precedence::Off), Duration::ZERO);
        let idle = Window { operations: 0, taken: Duration::ZERO, ..window(0, 50) };
        assert_eq!(share.after(&idle, Precedence::Fair).rest_after(WINDOW, Precedence::Fair), Duration::ZERO);
    }

    /// A first copy takes hours: what operations take without it is looked at again and again.
    #[test]
    fn a_transfer_that_never_ends_rests_now_and_then_to_learn() {
        let high = Precedence::High;
        let mut share = Share::default().after(&window(500, 40), high);
        assert_eq!(share.rest_after(Duration::from_millis(1), high), 2 * WINDOW, "nothing is known");
        share = share.after(&window(500, 0), high);
        let mut rests = 0;
        for _ in 0..1000 {
            let rests_now = share.rest_after(Duration::from_millis(1), high) >= 2 * WINDOW;
            rests += u32::from(rests_now);
            share = share.after(&window(500, if rests_now { 0 } else { 40 }), high);
        }
        assert!((5..=15).contains(&rests), "{rests}");
    }
}
