//! The connections that this box optimises, those it let pass not long ago, and what all of them came to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::{self, APPLICATIONS_MAX, ApplicationFigures};
use crate::figures::Figures;
use crate::policy::{Action, Demotion, Ends, OTHER};

/// Open connections that are shown, the oldest: what is said about all of them has to fit a line.
const OPEN_SHOWN: usize = 10_000;
/// Connections let pass that are still shown.
const PASSED_SHOWN: usize = 256;

/// What is known of a connection that is optimised.
#[derive(Debug)]
pub struct Record {
    /// Its ends.
    pub ends: Ends,
    /// The peer's name.
    pub peer: String,
    /// Whether this box has the client's side.
    pub is_near: bool,
    /// The application.
    pub application: String,
    /// This site's policy.
    pub configured: Action,
    /// The peer's.
    pub peer_policy: Action,
    /// When it was opened.
    pub opened: Instant,
    /// Its bytes, both ways.
    pub original_bytes: AtomicU64,
    /// What they cost between the boxes.
    pub wire_bytes: AtomicU64,
    /// Of those: what this box has sent to the other.
    pub sent: Bytes,
    /// It has nobody at its far end: it fills the store there, and is no connection to people.
    pub is_preposition: bool,
    /// Why less is done than both allow, as known from the start.
    pub demotion: Option<Demotion>,
    /// The same, as its bytes have shown.
    pub content: Seen,
    /// Ends it: both its sides are reset.
    pub reset: CancellationToken,
}

impl Record {
    /// What both sites allow.
    pub fn negotiated(&self) -> Action {
        self.configured.and(self.peer_policy)
    }

    /// Why less is done than both allow. What takes nothing away is no reason.
    pub fn reason(&self) -> Option<Demotion> {
        let reason = self.demotion.or_else(|| self.content.reason());
        reason.filter(|demotion| demotion.of(self.negotiated()) != self.negotiated())
    }

    /// What is done.
    pub fn applied(&self) -> Action {
        self.reason().map_or(self.negotiated(), |demotion| demotion.of(self.negotiated()))
    }
}

/// What the bytes of a connection have shown, for people.
#[derive(Debug, Default)]
pub struct Seen {
    /// From this side's host to the peer.
    pub(crate) outward: SeenOneWay,
    /// From the peer to this side's host.
    pub(crate) inward: SeenOneWay,
}

/// One direction of it.
#[derive(Debug, Default)]
pub(crate) struct SeenOneWay {
    bytes: AtomicU64,
    verdict: AtomicU8,
}

const ENCRYPTED: u8 = 1;
const INCOMPRESSIBLE: u8 = 2;

impl SeenOneWay {
    /// So many bytes more, and what is thought of all of them.
    pub(crate) fn shows(&self, bytes: usize, verdict: Option<Demotion>) {
        let verdict = match verdict {
            Some(Demotion::Encrypted) => ENCRYPTED,
            Some(_) => INCOMPRESSIBLE,
            None => 0,
        };
        self.verdict.store(verdict, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Seen {
    /// One side that is encrypted tells of the other; else the direction that has most of the bytes says what it is.
    fn reason(&self) -> Option<Demotion> {
        let [outward, inward] = [&self.outward, &self.inward]
            .map(|way| (way.bytes.load(Ordering::Relaxed), way.verdict.load(Ordering::Relaxed)));
        if outward.1 == ENCRYPTED || inward.1 == ENCRYPTED {
            return Some(Demotion::Encrypted);
        }
        (outward.max(inward).1 == INCOMPRESSIBLE).then_some(Demotion::Incompressible)
    }
}

#[derive(Debug)]
struct Passed {
    ends: Ends,
    application: String,
    configured: Action,
    reason: Option<Demotion>,
    at: Instant,
}

/// Sums since the start.
#[derive(Debug, Default)]
pub struct Sums {
    /// Connections let through as they are.
    pub passed: AtomicU64,
    /// Connections optimised.
    pub taken: AtomicU64,
    /// Connections reset because a box, a peer or a session was lost.
    pub reset: AtomicU64,
    bytes: Bytes,
    prepositioned: Bytes,
}

/// Bytes, and what they cost between the boxes.
#[derive(Debug, Default)]
pub struct Bytes {
    original: AtomicU64,
    wire: AtomicU64,
}

impl Bytes {
    /// So many more.
    pub(crate) fn add(&self, original: u64, wire: u64) {
        self.original.fetch_add(original, Ordering::Relaxed);
        self.wire.fetch_add(wire, Ordering::Relaxed);
    }
}

impl Sums {
    fn of(&self, record: &Record) -> &Bytes {
        if record.is_preposition { &self.prepositioned } else { &self.bytes }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<HashMap<u64, Arc<Record>>>,
    next: AtomicU64,
    passed: Mutex<VecDeque<Passed>>,
    /// See [`Sums`].
    pub sums: Sums,
    /// How long things take.
    pub figures: Arc<Figures>,
    /// Of connections that have ended or passed.
    ended: Mutex<Ended>,
}

/// What ended connections came to.
#[derive(Debug, Default)]
struct Ended {
    applications: BTreeMap<String, ApplicationFigures>,
    demotions: BTreeMap<&'static str, (Demotion, u64)>,
}

impl Ended {
    /// Of an application; of those that are too many, together.
    fn of(&mut self, application: &str) -> &mut ApplicationFigures {
        let is_known = self.applications.contains_key(application);
        let name = if is_known || self.applications.len() < APPLICATIONS_MAX { application } else { OTHER };
        let new = || ApplicationFigures { application: name.to_owned(), ..ApplicationFigures::default() };
        self.applications.entry(name.to_owned()).or_insert_with(new)
    }

    fn demoted(&mut self, demotion: Option<Demotion>) {
        if let Some(demotion) = demotion {
            self.demotions.entry(demotion.reason()).or_insert((demotion, 0)).1 += 1;
        }
    }
}

/// Adds a connection's bytes.
fn count(record: &Record, figures: &mut ApplicationFigures) {
    let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (sent_original, sent_wire) = (get(&record.sent.original), get(&record.sent.wire));
    figures.sent_original_bytes += sent_original;
    figures.sent_wire_bytes += sent_wire;
    // They are not read at one instant.
    figures.received_original_bytes += get(&record.original_bytes).saturating_sub(sent_original);
    figures.received_wire_bytes += get(&record.wire_bytes).saturating_sub(sent_wire);
}

/// A connection among the open ones, until it is dropped.
#[derive(Debug)]
pub struct Listed {
    record: Arc<Record>,
    key: u64,
    of: Arc<Connections>,
}

impl Listed {
    /// The connection.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // Moved to the sums while the list is locked: a reader of both counts no byte twice and misses none.
        let mut open = self.of.open.lock();
        open.remove(&self.key);
        let add =
            |to: &AtomicU64, of: &AtomicU64| to.fetch_add(of.load(Ordering::Relaxed), Ordering::Relaxed);
        let sums = self.of.sums.of(&self.record);
        add(&sums.original, &self.record.original_bytes);
        add(&sums.wire, &self.record.wire_bytes);
        if !self.record.is_preposition {
            let mut ended = self.of.ended.lock();
            count(&self.record, ended.of(&self.record.application));
            ended.demoted(self.record.reason());
        }
    }
}

impl Connections {
    /// Lists a connection that is optimised from now on.
    pub fn list(self: &Arc<Self>, record: Record) -> Listed {
        if !record.is_preposition {
            self.ended.lock().of(&record.application).taken += 1;
        }
        let record = Arc::new(record);
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.sums.taken.fetch_add(u64::from(!record.is_preposition), Ordering::Relaxed);
        self.open.lock().insert(key, Arc::clone(&record));
        Listed { record, key, of: Arc::clone(self) }
    }

    /// A connection goes its plain way.
    pub fn passed(&self, ends: Ends, application: &str, configured: Action, reason: Option<Demotion>) {
        self.sums.passed.fetch_add(1, Ordering::Relaxed);
        {
            let mut ended = self.ended.lock();
            ended.of(application).passed += 1;
            ended.demoted(reason);
        }
        let mut passed = self.passed.lock();
        if passed.len() == PASSED_SHOWN {
            passed.pop_front();
        }
        let at = Instant::now();
        passed.push_back(Passed { ends, application: application.to_owned(), configured, reason, at });
    }

    /// How many are optimised.
    pub fn open(&self) -> usize {
        self.open.lock().values().filter(|record| !record.is_preposition).count()
    }

    /// Bytes of connections, and what they cost between the boxes, since the start.
    pub fn bytes(&self) -> (u64, u64) {
        self.came_to(&self.sums.bytes, false)
    }

    /// The same of what filled the store ahead of time, at this side or at a peer's.
    pub fn prepositioned(&self) -> control::Prepositioned {
        let (original_bytes, wire_bytes) = self.came_to(&self.sums.prepositioned, true);
        control::Prepositioned { original_bytes, wire_bytes }
    }

    fn came_to(&self, ended: &Bytes, is_preposition: bool) -> (u64, u64) {
        let open = self.open.lock();
        let sum = |ended: &AtomicU64, of: fn(&Record) -> &AtomicU64| {
            let of_open = open.values().filter(|record| record.is_preposition == is_preposition);
            let open: u64 = of_open.map(|record| of(record).load(Ordering::Relaxed)).sum();
            open + ended.load(Ordering::Relaxed)
        };
        (sum(&ended.original, |r| &r.original_bytes), sum(&ended.wire, |r| &r.wire_bytes))
    }

    /// By application, by name: of those that are open and of all before them.
    pub fn by_application(&self) -> Vec<ApplicationFigures> {
        // In this order everywhere: a reader counts no connection twice and misses none.
        let open = self.open.lock();
        let ended = self.ended.lock();
        let mut all = Ended { applications: ended.applications.clone(), demotions: BTreeMap::new() };
        drop(ended);
        for record in open.values().filter(|record| !record.is_preposition) {
            let figures = all.of(&record.application);
            figures.open += 1;
            figures.demoted += u64::from(record.reason().is_some());
            count(record, figures);
        }
        all.applications.into_values().collect()
    }

    /// How often less was done than both sites allow, by why.
    pub fn demotions(&self) -> Vec<(Demotion, u64)> {
        self.ended.lock().demotions.values().copied().collect()
    }

    /// Resets the connection with these ends; whether there was one.
    pub fn reset(&self, client: SocketAddr, server: SocketAddr) -> bool {
        let ends = Ends { client, server };
        let open = self.open.lock();
        let mut found = false;
        for record in open.values().filter(|record| record.ends == ends) {
            record.reset.cancel();
            found = true;
        }
        found
    }

    /// For people: the open ones, oldest first, then those that passed, newest first.
    pub fn shown(&self) -> Vec<control::Connection> {
        let mut open: Vec<(u64, Arc<Record>)> = {
            let open = self.open.lock();
            let connections = open.iter().filter(|(_, record)| !record.is_preposition);
            connections.map(|(key, record)| (*key, Arc::clone(record))).collect()
        };
        open.sort_by_key(|(key, _)| *key);
        open.truncate(OPEN_SHOWN);
        let open = open.into_iter().map(|(_, record)| control::Connection {
            client: record.ends.client,
            server: record.ends.server,
            peer: Some(record.peer.clone()),
            is_near: record.is_near,
            application: record.application.clone(),
            configured: record.configured,
            peer_policy: Some(record.peer_policy),
            negotiated: record.negotiated(),
            applied: record.applied(),
            reason: record.reason(),
            original_bytes: record.original_bytes.load(Ordering::Relaxed),
            wire_bytes: record.wire_bytes.load(Ordering::Relaxed),
            age_seconds: record.opened.elapsed().as_secs_f64(),
        });
        let passed = self.passed.lock();
        let passed = passed.iter().rev().map(|passed| control::Connection {
            client: passed.ends.client,
            server: passed.ends.server,
            peer: None,
            is_near: true,
            application: passed.application.clone(),
            configured: passed.configured,
            peer_policy: None,
            negotiated: Action::PassThrough,
            applied: Action::PassThrough,
            reason: passed.reason,
            original_bytes: 0,
            wire_bytes: 0,
            age_seconds: passed.at.elapsed().as_secs_f64(),
        });
        open.chain(passed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(port: u16) -> Record {
        Record {
            ends: Ends { client: ([10, 1, 0, 5], port).into(), server: ([10, 2, 0, 5], 873).into() },
            peer: "south".to_owned(),
            is_near: true,
            application: "rsync".to_owned(),
            configured: Action::Full,
            peer_policy: Action::Lz,
            opened: Instant::now(),
            original_bytes: 100.into(),
            wire_bytes: 10.into(),
            sent: Bytes::default(),
            demotion: None,
            content: Seen::default(),
            is_preposition: false,
            reset: CancellationToken::new(),
        }
    }

    #[test]
    fn bytes_outlive_their_connections() {
        let connections = Arc::new(Connections::default());
        let (one, two) = (connections.list(record(1)), connections.list(record(2)));
        assert_eq!((connections.open(), connections.bytes()), (2, (200, 20)));
        one.record().original_bytes.fetch_add(5, Ordering::Relaxed);
        drop(one);
        assert_eq!((connections.open(), connections.bytes()), (1, (205, 20)));
        drop(two);
        assert_eq!((connections.open(), connections.bytes()), (0, (205, 20)));
    }

    #[test]
    fn applications_are_told_apart_and_are_no_more_than_so_many() {
        let connections = Arc::new(Connections::default());
        let one = connections.list(record(1));
        one.record().sent.add(60, 4);
        let two = connections.list(Record { demotion: Some(Demotion::Encrypted), ..record(2) });
        let prepositioned = connections.list(Record { is_preposition: true, ..record(3) });
        for n in 0..200 {
            connections.passed(record(9).ends, &format!("a{n}"), Action::Full, Some(Demotion::NoPeer));
        }
        drop(one);
        drop(prepositioned);
        let all = connections.by_application();
        assert!(all.len() <= APPLICATIONS_MAX + 1, "{}", all.len());
        let rsync = all.iter().find(|figures| figures.application == "rsync").unwrap();
        assert_eq!((rsync.open, rsync.demoted, rsync.taken, rsync.passed), (1, 1, 2, 0));
        assert_eq!((rsync.sent_original_bytes, rsync.sent_wire_bytes), (60, 4));
        assert_eq!((rsync.received_original_bytes, rsync.received_wire_bytes), (140, 16));
        let passed: u64 = all.iter().map(|figures| figures.passed).sum();
        assert_eq!(passed, 200, "none is lost");
        assert_eq!(connections.demotions(), [(Demotion::NoPeer, 200)]);
        drop(two);
        assert!(connections.demotions().contains(&(Demotion::Encrypted, 1)));
    }

    #[test]
    fn what_passed_is_shown_newest_first_and_not_for_ever() {
        let connections = Connections::default();
        for port in 1..=300 {
            let ends = record(port).ends;
            connections.passed(ends, "rsync", Action::Full, Some(Demotion::NoPeer));
        }
        let shown = connections.shown();
        assert_eq!(shown.len(), PASSED_SHOWN);
        assert_eq!((shown[0].client.port(), shown[255].client.port()), (300, 45));
        assert_eq!(shown[0].reason, Some(Demotion::NoPeer));
        assert_eq!(connections.sums.passed.load(Ordering::Relaxed), 300);
    }

    #[test]
    fn what_is_shown_is_of_the_direction_with_most_bytes() {
        let shown = record(1);
        assert_eq!((shown.reason(), shown.applied()), (None, Action::Lz));
        shown.content.inward.shows(1_000_000, Some(Demotion::Incompressible));
        assert_eq!((shown.reason(), shown.applied()), (Some(Demotion::Incompressible), Action::Transport));
        shown.content.outward.shows(2_000_000, None);
        assert_eq!((shown.reason(), shown.applied()), (None, Action::Lz));
        shown.content.inward.shows(0, Some(Demotion::Encrypted));
        assert_eq!(shown.reason(), Some(Demotion::Encrypted));
        let plain = Record { peer_policy: Action::Transport, ..shown };
        assert_eq!(plain.reason(), None, "nothing was taken away");
    }

    #[test]
    fn a_connection_is_reset_by_its_ends() {
        let connections = Arc::new(Connections::default());
        let listed = connections.list(record(1));
        let Ends { client, server } = listed.record().ends;
        assert!(!connections.reset(server, client) && !listed.record().reset.is_cancelled());
        assert!(connections.reset(client, server) && listed.record().reset.is_cancelled());
    }
}
