//! What the thread of a pool and those who look at it share: what is wanted of its volumes, and how far it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farside_api::{Dedup as Document, DedupPhase, DedupState, ErrorBody, ErrorCode};
use farside_store::Pool;
use parking_lot::{Condvar, Mutex};
use uuid::Uuid;

use super::document::{Kept, Wanted};

/// Over how long its rate is measured.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// How fast it is, and how far in the volume at hand.
#[derive(Clone, Copy, Default)]
pub(super) struct Measured {
    since: Option<Instant>,
    bytes: u64,
    rate: Option<f64>,
    /// When the part done was first known, and how much that was.
    from: Option<(Instant, f64)>,
    done: Option<f64>,
}

impl Measured {
    pub(super) fn read(&mut self, bytes: u64) {
        let now = Instant::now();
        let took = now - *self.since.get_or_insert(now);
        self.bytes += bytes;
        if took >= RATE_WINDOW || (self.rate.is_none() && took >= RATE_WINDOW / 10) {
            self.rate = Some(self.bytes as f64 / took.as_secs_f64());
            (self.since, self.bytes) = (Some(now), 0);
        }
    }

    pub(super) fn is_at(&mut self, done: Option<f64>) {
        self.done = done;
        if let (None, Some(done)) = (self.from, done) {
            self.from = Some((Instant::now(), done));
        }
    }

    pub(super) fn tell(&self, document: &mut Document) {
        document.rate_bytes_per_second = self.rate.filter(|rate| *rate > 0.0);
        document.done = self.done;
        if let (Some((at, from)), Some(done)) = (self.from, self.done)
            && done > from
        {
            document.eta_seconds = Some(at.elapsed().as_secs_f64() * (1.0 - done) / (done - from));
        }
    }
}

/// What a pool's thread and those who look at it share.
#[derive(Default)]
pub(super) struct OfPool {
    pub(super) name: String,
    pub(super) volumes: Mutex<Volumes>,
    /// Told when there is something new for the thread, and when it leaves a volume.
    pub(super) changed: Condvar,
    /// The thread is to end.
    pub(super) ends: AtomicBool,
    /// It is to leave the volume at hand.
    pub(super) interrupted: AtomicBool,
    /// Bytes per second for the volume at hand; 0: no limit.
    pub(super) limit: AtomicU64,
    pub(super) measured: Mutex<Measured>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
pub(super) struct Volumes {
    pub(super) kept: BTreeMap<Uuid, Kept>,
    /// The one that the thread works on, and at what.
    pub(super) current: Option<(Uuid, DedupPhase)>,
    /// Whether there is a thread that will look here again.
    pub(super) is_served: bool,
}

impl OfPool {
    pub(super) fn new(name: &str) -> Arc<OfPool> {
        Arc::new(OfPool { name: name.to_owned(), ..OfPool::default() })
    }

    /// As it is shown. `pool` is none while that is not open.
    pub(super) fn document(&self, volume: Uuid, pool: Option<&Pool>) -> Option<Document> {
        let volumes = self.volumes.lock();
        let kept = volumes.kept.get(&volume)?;
        let mut document = kept.document.clone();
        let phase = match (kept.wanted, &volumes.current) {
            (Wanted::Off, _) => None,
            (_, Some((current, phase))) if *current == volume => Some(*phase),
            (Wanted::Undo, _) => Some(DedupPhase::Waiting),
            (Wanted::On, _) => kept.is_due.then_some(DedupPhase::Waiting),
        };
        document.state = match (kept.wanted, pool.is_some(), phase) {
            (Wanted::Off, ..) => DedupState::Off,
            (_, true, Some(_)) => DedupState::Running,
            _ => DedupState::Idle,
        };
        let is_current = volumes.current.is_some_and(|(current, _)| current == volume);
        if document.state == DedupState::Running {
            document.phase = phase;
            document.next_at = None;
        }
        if is_current {
            self.measured.lock().tell(&mut document);
        }
        if pool.is_none() && kept.wanted != Wanted::Off {
            document.why = Some(format!("pool {} is not open; it goes on once it is", self.name));
        }
        document.pool_saved_bytes = pool.map(|pool| pool.status().shared_saves_bytes);
        Some(document)
    }

    /// The thread has ended by a panic, which is in the log.
    pub(super) fn panicked(&self) {
        let mut volumes = self.volumes.lock();
        volumes.is_served = false;
        let current = volumes.current.take().map(|(current, _)| current);
        if let Some(kept) = current.and_then(|current| volumes.kept.get_mut(&current)) {
            kept.document.why =
                Some("an internal error ended it, which is in the log; start it again".to_owned());
        }
        self.changed.notify_all();
    }

    /// Has the thread leave a volume, and waits until it has.
    pub(super) fn interrupt(&self, volume: Uuid) {
        let mut volumes = self.volumes.lock();
        while volumes.current.is_some_and(|(current, _)| current == volume) {
            self.interrupted.store(true, Ordering::Relaxed);
            self.changed.wait(&mut volumes);
        }
    }
}

pub(super) fn refuse_replica(pool: &Pool, name: &str, volume: Uuid) -> Result<(), ErrorBody> {
    let found = pool.volumes().into_iter().find(|found| found.uuid == volume);
    match found.and_then(|found| found.replica).filter(|replica| !replica.broken_off) {
        None => Ok(()),
        Some(replica) => Err(ErrorBody::new(
            ErrorCode::Refused,
            format!("{name} is a replica of {}: its next update replaces what it shows", replica.source),
        )
        .hint(
            "deduplicate the source; what a transfer brings and the pool has already is shared as it comes",
        )),
    }
}
