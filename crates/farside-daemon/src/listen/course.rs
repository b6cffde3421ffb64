//! How far a connection is, how long that may take, and which connection has to go when others need its place. Pure.

use std::time::{Duration, Instant};

/// How long what is under way at a client may still take once the daemon stops.
const STOP_PATIENCE: Duration = Duration::from_millis(300);

/// What a listener grants its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// Connections at a time.
    pub(crate) places: usize,
    /// Of which one address may have so many (of IPv6 one network of 64 bits); no matter for sockets and sessions.
    pub(crate) places_each: usize,
    /// For the header of a request; for that of the first from the moment of connecting.
    pub(crate) header: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    /// Without a byte of a request's body that is waited for, or without taking a byte of the answer.
    pub(crate) stall: Duration,
    /// From connecting to the end, whatever is under way.
    pub(crate) life: Option<Duration>,
    /// Bytes of a header; what the client sends right behind it may be among them.
    pub(crate) header_bytes: usize,
}

/// The longest header is one with a long path, a cookie and a token: a few KiB.
const HEADER_BYTES_MAX: usize = 64 << 10;

impl Manners {
    /// The control socket: a request runs as long as it takes, and bodies may be files.
    pub(crate) const CONTROL: Manners = Manners {
        places: 128,
        places_each: 128,
        header: Duration::from_secs(5),
        idle: Duration::from_secs(30),
        stall: Duration::from_secs(60),
        life: None,
        header_bytes: HEADER_BYTES_MAX,
    };

    /// The API over HTTPS. The handshake is in the time for the first header. A browser has six connections, and a proxy in
    /// front of the daemon is one address for all.
    pub(crate) const NETWORK: Manners = Manners {
        places: 256,
        places_each: 96,
        header: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        stall: Duration::from_secs(30),
        life: None,
        header_bytes: HEADER_BYTES_MAX,
    };

    /// The API over sessions with peers.
    pub(crate) const PEERS: Manners = Manners { places: 64, places_each: 64, ..Manners::NETWORK };

    /// `/metrics`, `/healthz` and `/readyz` over TCP: small answers to anybody.
    pub(crate) const PUBLIC: Manners = Manners {
        places: 128,
        places_each: 48,
        header: Duration::from_secs(5),
        idle: Duration::from_secs(30),
        stall: Duration::from_secs(10),
        life: Some(Duration::from_secs(60)),
        header_bytes: HEADER_BYTES_MAX,
    };
}

/// How far one connection is.
#[derive(Debug)]
pub(crate) struct Course {
    connected: Instant,
    /// A request's header has been read, and its answer is not all written.
    answering: bool,
    /// Somebody reads that request's body yet; of one that was refused also after the answer.
    reading: bool,
    /// Since when a header has been on its way.
    header_since: Option<Instant>,
    /// How much of it has come.
    header_bytes: usize,
    /// Since when nothing has been under way.
    idle_since: Instant,
    /// Since when a body has been waited for.
    body_since: Option<Instant>,
    /// Since when the client has taken nothing of what it is sent.
    unread_since: Option<Instant>,
}

impl Course {
    pub(crate) fn new(now: Instant) -> Course {
        Course {
            connected: now,
            answering: false,
            reading: false,
            // Whoever connects has something to say.
            header_since: Some(now),
            header_bytes: 0,
            idle_since: now,
            body_since: None,
            unread_since: None,
        }
    }

    /// Bytes have come.
    pub(crate) fn heard(&mut self, bytes: usize, now: Instant) {
        if self.answering || self.reading {
            self.body_since = self.body_since.map(|_| now);
        } else {
            // More bytes of the same header win no time.
            self.header_since.get_or_insert(now);
            self.header_bytes = self.header_bytes.saturating_add(bytes);
        }
    }

    /// A header has been read.
    pub(crate) fn request_begins(&mut self) {
        self.answering = true;
        self.reading = true;
        self.header_since = None;
        self.header_bytes = 0;
    }

    /// So much has come without being a whole header that no more of it is read.
    pub(crate) fn header_is_too_long(&self, manners: &Manners) -> bool {
        !self.answering && !self.reading && self.header_bytes >= manners.header_bytes
    }

    /// The answer has been written.
    pub(crate) fn request_ends(&mut self, now: Instant) {
        self.answering = false;
        self.body_since = None;
        self.idle_since = now;
    }

    /// Nobody reads the body any more: what comes now is the next header.
    pub(crate) fn body_ends(&mut self, now: Instant) {
        self.reading = false;
        self.body_since = None;
        self.idle_since = now;
    }

    /// A body is waited for, or no longer.
    pub(crate) fn body_awaited(&mut self, is_awaited: bool, now: Instant) {
        self.body_since = is_awaited.then(|| self.body_since.unwrap_or(now));
    }

    /// The client takes what it is sent, or does not.
    pub(crate) fn writes(&mut self, is_stuck: bool, now: Instant) {
        self.unread_since = is_stuck.then(|| self.unread_since.unwrap_or(now));
    }

    /// Since when it has been the client's turn, if it is.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        match (self.unread_since, self.answering) {
            (Some(since), _) => Some(since),
            (None, true) => self.body_since,
            (None, false) => Some(self.header_since.unwrap_or(self.idle_since)),
        }
    }

    /// Until when it may go on like this.
    pub(crate) fn deadline(&self, manners: &Manners, is_stopping: bool) -> Option<Instant> {
        let patience = match (self.unread_since, self.answering) {
            (Some(_), _) | (None, true) => manners.stall,
            (None, false) if self.header_since.is_some() => manners.header,
            (None, false) => manners.idle,
        };
        let patience = if is_stopping { STOP_PATIENCE } else { patience };
        let turn = self.waits_since().map(|since| since + patience);
        let life = manners.life.map(|life| self.connected + life);
        turn.into_iter().chain(life).min()
    }
}

/// Who has waited for its client longest; nobody, if all are being answered.
pub(crate) fn longest_waiting<K>(courses: impl Iterator<Item = (K, Option<Instant>)>) -> Option<K> {
    courses.filter_map(|(key, since)| Some((key, since?))).min_by_key(|(_, since)| *since).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn manners() -> Manners {
        Manners {
            places: 2,
            places_each: 2,
            header: 5 * S,
            idle: 30 * S,
            stall: 60 * S,
            life: None,
            header_bytes: 100,
        }
    }

    #[test]
    fn each_wait_for_the_client_has_its_end_and_an_answer_has_none() {
        let start = Instant::now();
        let manners = manners();
        let mut course = Course::new(start);
        let at = |course: &Course| course.deadline(&manners, false).map(|at| (at - start).as_secs());
        assert_eq!(at(&course), Some(5), "says nothing");
        course.heard(40, start + 4 * S);
        assert_eq!(at(&course), Some(5), "says little");
        course.request_begins();
        assert_eq!(at(&course), None, "is answered, however long that takes");
        assert_eq!(course.waits_since(), None);
        course.body_awaited(true, start + 6 * S);
        course.body_awaited(true, start + 7 * S);
        assert_eq!(at(&course), Some(66), "owes a body");
        course.heard(40, start + 50 * S);
        assert_eq!(at(&course), Some(110), "sends it slowly");
        course.body_awaited(false, start + 51 * S);
        course.body_ends(start + 51 * S);
        assert_eq!(at(&course), None);
        course.writes(true, start + 52 * S);
        course.writes(true, start + 53 * S);
        assert_eq!(at(&course), Some(112), "does not fetch its answer");
        course.writes(false, start + 54 * S);
        course.request_ends(start + 55 * S);
        assert_eq!(at(&course), Some(85), "is idle");
        course.heard(40, start + 60 * S);
        assert_eq!(at(&course), Some(65), "begins the next");
        assert!(!course.header_is_too_long(&manners));
        course.heard(60, start + 60 * S);
        assert!(course.header_is_too_long(&manners), "and never comes to its end");
        let stopping = course.deadline(&manners, true).unwrap();
        assert_eq!(stopping, start + 60 * S + STOP_PATIENCE);
        course.request_begins();
        assert_eq!(course.deadline(&manners, true), None, "a request that has begun is answered");
        let short = Manners { life: Some(20 * S), ..manners };
        assert_eq!(course.deadline(&short, false), Some(start + 20 * S), "unless no answer takes so long");
    }

    #[test]
    fn a_body_that_is_read_to_its_end_after_the_answer_is_no_header() {
        let now = Instant::now();
        let manners = manners();
        let mut course = Course::new(now);
        course.request_begins();
        course.heard(1000, now);
        course.request_ends(now);
        course.heard(1000, now);
        assert!(!course.header_is_too_long(&manners), "a request that was refused early");
        course.body_ends(now);
        course.heard(100, now);
        assert!(course.header_is_too_long(&manners));
    }

    #[test]
    fn who_has_waited_longest_goes_and_who_is_answered_stays() {
        let now = Instant::now();
        let waits = [None, Some(now + 2 * S), Some(now + S), None];
        assert_eq!(longest_waiting(waits.into_iter().enumerate()), Some(2));
        assert_eq!(longest_waiting([None, None].into_iter().enumerate()), None);
    }
}
