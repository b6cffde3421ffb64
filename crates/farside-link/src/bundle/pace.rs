//! Where the time of the sending side goes. Pure: time comes as an argument.

use std::time::Duration;

use super::options::BlockedShares;

/// What keeps what is written from going.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limiting {
    /// Nothing is to be sent.
    Application,
    Window,
    Socket,
    Throttle,
    LowPriority,
    /// No lane can be used.
    Lanes,
}

/// Sums the times.
#[derive(Debug)]
pub(super) struct Pace {
    limiting: Limiting,
    since: Duration,
    spent: [Duration; 5],
}

impl Pace {
    pub(super) fn new(now: Duration) -> Pace {
        Pace { limiting: Limiting::Application, since: now, spent: [Duration::ZERO; 5] }
    }

    /// From `now` on it is this.
    pub(super) fn switch(&mut self, limiting: Limiting, now: Duration) {
        let spent = now.saturating_sub(self.since);
        if let Some(place) = place(self.limiting) {
            self.spent[place] += spent;
        }
        (self.limiting, self.since) = (limiting, now);
    }

    /// Time up to `now` in which there was something to send and the sockets were what limited.
    pub(super) fn socket_limited(&self, now: Duration) -> Duration {
        let running =
            if self.limiting == Limiting::Socket { now.saturating_sub(self.since) } else { Duration::ZERO };
        self.spent[1] + running
    }

    /// The shares up to `now`.
    pub(super) fn shares(&self, now: Duration) -> BlockedShares {
        let mut spent = self.spent;
        if let Some(place) = place(self.limiting) {
            spent[place] += now.saturating_sub(self.since);
        }
        let all: Duration = spent.iter().sum();
        let share = |n: usize| if all.is_zero() { 0.0 } else { spent[n].as_secs_f64() / all.as_secs_f64() };
        BlockedShares {
            window: share(0),
            socket: share(1),
            throttle: share(2),
            low_priority: share(3),
            lanes: share(4),
        }
    }
}

fn place(limiting: Limiting) -> Option<usize> {
    match limiting {
        Limiting::Application => None,
        Limiting::Window => Some(0),
        Limiting::Socket => Some(1),
        Limiting::Throttle => Some(2),
        Limiting::LowPriority => Some(3),
        Limiting::Lanes => Some(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_with_something_to_send_counts() {
        let at = Duration::from_secs;
        let mut pace = Pace::new(at(0));
        assert_eq!(pace.shares(at(5)), BlockedShares::default());
        pace.switch(Limiting::Socket, at(100));
        pace.switch(Limiting::Window, at(103));
        pace.switch(Limiting::Application, at(104));
        let shares = pace.shares(at(1000));
        assert_eq!((shares.socket, shares.window, shares.throttle), (0.75, 0.25, 0.0));
        assert_eq!(pace.socket_limited(at(1000)), at(3));
        pace.switch(Limiting::Socket, at(1000));
        assert_eq!(pace.socket_limited(at(1002)), at(5));
    }
}
