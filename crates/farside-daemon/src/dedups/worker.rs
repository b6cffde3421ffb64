//! The thread of a pool that deduplicates its volumes, one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_api::{Dedup as Document, DedupPhase, Timestamp};
use farside_platform::Clock;
use farside_store::{Dedup, DedupFigures, DedupIndex, Pool, StoreError};
use farside_transfer::precedence::Hosts;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::document::{Kept, Wanted};
use super::of_pool::{Measured, OfPool, refuse_replica};
use crate::pace::Pace;
use crate::state::State;

/// How often its position is kept: so much is looked at once more after a crash.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How often it looks whether a volume is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Worker {
    pub(super) shared: Arc<OfPool>,
    pub(super) pool: Arc<Pool>,
    pub(super) state: State,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hosts: Arc<Hosts>,
    pub(super) runtime: Handle,
}

/// How the work on a volume ended.
enum Ended {
    Done,
    /// Somebody wants something else.
    Left,
    Failed(String),
    /// The volume is no more.
    Gone,
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Ended {
        match error {
            StoreError::NotFound(_) => Ended::Gone,
            StoreError::NoSpace { .. } => Ended::Failed(format!(
                "{error}. Sharing needs some room for metadata before it gives any back: delete snapshots or make the pool larger"
            )),
            error => Ended::Failed(error.to_string()),
        }
    }
}

type Worked<T> = Result<T, Ended>;

impl Worker {
    pub(super) fn work(self) {
        let mut index = DedupIndex::default();
        while let Some((volume, wanted)) = self.next() {
            let ended = match wanted {
                Wanted::Undo => self.undo(volume),
                _ => self.pass(volume, &mut index),
            };
            self.leave(volume, wanted, ended.err().unwrap_or(Ended::Done));
        }
    }

    fn now(&self) -> Timestamp {
        crate::convert::time(self.clock.now())
    }

    /// The next volume whose turn it is; none once there is nothing to wait for.
    fn next(&self) -> Option<(Uuid, Wanted)> {
        let mut volumes = self.shared.volumes.lock();
        loop {
            let is_wanted = volumes.kept.values().any(|kept| kept.wanted != Wanted::Off);
            if self.shared.ends.load(Ordering::Relaxed) || !is_wanted {
                // Under the lock: whoever wants something later begins another thread.
                volumes.is_served = false;
                return None;
            }
            let now = self.now();
            let due = volumes.kept.values_mut().filter(|kept| kept.is_due_at(now));
            // Who waits for room goes first; then whoever has waited longest.
            let order = |kept: &&mut Kept| (kept.wanted != Wanted::Undo, kept.document.completed_at);
            if let Some(kept) = due.min_by_key(order) {
                kept.is_due = false;
                let next = (kept.volume, kept.wanted);
                let limit = kept.document.limit_bytes_per_second.unwrap_or(0);
                self.shared.limit.store(limit, Ordering::Relaxed);
                self.shared.interrupted.store(false, Ordering::Relaxed);
                *self.shared.measured.lock() = Measured::default();
                let phase = if next.1 == Wanted::Undo { DedupPhase::Undoing } else { DedupPhase::Learning };
                volumes.current = Some((next.0, phase));
                return Some(next);
            }
            self.shared.changed.wait_for(&mut volumes, LOOK_EVERY);
        }
    }

    /// The work on a volume is over for now.
    fn leave(&self, volume: Uuid, wanted: Wanted, ended: Ended) {
        let now = self.now();
        if matches!(ended, Ended::Gone) {
            self.shared.volumes.lock().kept.remove(&volume);
            let forgotten =
                self.runtime.block_on(self.state.forget_dedup(&self.shared.name, &volume.to_string()));
            if let Err(error) = forgotten {
                tracing::debug!("the deduplication of a deleted volume was not forgotten: {error}");
            }
        }
        if let Some(kept) = self.shared.volumes.lock().kept.get_mut(&volume) {
            // Unless somebody wants something else by now.
            match ended {
                Ended::Done if wanted == Wanted::Undo && kept.wanted == wanted => kept.undone(None, now),
                Ended::Failed(why) if wanted == Wanted::Undo && kept.wanted == wanted => {
                    kept.undone(Some(why), now);
                }
                Ended::Done if kept.wanted == wanted => kept.rest(now),
                Ended::Failed(why) if kept.wanted == wanted => kept.failed(why, now),
                Ended::Left if self.shared.ends.load(Ordering::Relaxed) => kept.is_due = true,
                _ => {}
            }
            tell_end(kept, wanted);
        }
        self.keep(volume);
        let mut volumes = self.shared.volumes.lock();
        volumes.current = None;
        self.shared.changed.notify_all();
    }

    /// One pass over a volume, and a count where one is due.
    fn pass(&self, volume: Uuid, index: &mut DedupIndex) -> Worked<()> {
        let (kept, among) = {
            let volumes = self.shared.volumes.lock();
            let kept = volumes.kept.get(&volume).ok_or(Ended::Gone)?.clone();
            let is_on = |kept: &&Kept| kept.wanted == Wanted::On;
            (kept, volumes.kept.values().filter(is_on).map(|kept| kept.volume).collect::<Vec<_>>())
        };
        // Before the table is handed over: it would be lost with the refusal.
        refuse_replica(&self.pool, &kept.document.volume, volume)
            .map_err(|error| Ended::Failed(error.message))?;
        let (under_way, last) = (kept.under_way(), kept.last());
        let has_work = match (&under_way, &last) {
            (None, Some(last)) => self.pool.dedup_has_work(volume, last),
            _ => true,
        };
        let mut was_full = false;
        if has_work {
            let handed_over = std::mem::take(index);
            let mut pass = match under_way {
                Some(at) => self.pool.resume_dedup(volume, &among, at, kept.figures(), handed_over)?,
                None => {
                    let now = self.now();
                    self.with(volume, |kept| kept.begin(now));
                    self.pool.begin_dedup(volume, &among, last, handed_over)?
                }
            };
            self.with(volume, |kept| kept.note(pass.figures(), Some(pass.position())));
            self.keep(volume);
            let stepped = self.steps(volume, &mut pass);
            let position = pass.position();
            *index = pass.into_index();
            stepped?;
            self.with(volume, |kept| kept.pass_ended(position));
            was_full = position.since == 0;
        }
        let now = self.now();
        let is_old =
            self.shared.volumes.lock().kept.get(&volume).is_some_and(|kept| kept.is_to_be_counted(now));
        if was_full || is_old { self.count(volume) } else { Ok(()) }
    }

    fn steps(&self, volume: Uuid, pass: &mut Dedup) -> Worked<()> {
        let mut last_kept = Instant::now();
        let mut pace = Pace::new(&self.hosts, &self.shared.limit, &self.shared.interrupted);
        loop {
            self.check_left()?;
            let stepped = pass.step(&mut |bytes| {
                self.shared.measured.lock().read(bytes);
                pace.after(bytes);
            });
            let (figures, position): (DedupFigures, _) = (pass.figures(), pass.position());
            let done = pass.done_part();
            self.with(volume, |kept| kept.note(figures, Some(position)));
            let phase = if done.is_some() { DedupPhase::Sharing } else { DedupPhase::Learning };
            self.is_at(volume, phase, done);
            if !stepped? {
                return Ok(());
            }
            if last_kept.elapsed() >= KEEP_EVERY {
                self.keep(volume);
                last_kept = Instant::now();
            }
        }
    }

    fn count(&self, volume: Uuid) -> Worked<()> {
        self.is_at(volume, DedupPhase::Counting, None);
        let mut count = self.pool.begin_dedup_count(volume)?;
        let mut pace = Pace::new(&self.hosts, &self.shared.limit, &self.shared.interrupted);
        loop {
            self.check_left()?;
            let counted = count.step(&mut |bytes| {
                self.shared.measured.lock().read(bytes);
                pace.after(bytes);
            })?;
            if let Some(savings) = counted {
                let now = self.now();
                self.with(volume, |kept| kept.counted(savings, now));
                return Ok(());
            }
        }
    }

    /// Gives each block a place of its own. One that is left begins again, and finds what is shared still.
    fn undo(&self, volume: Uuid) -> Worked<()> {
        let now = self.now();
        self.with(volume, |kept| kept.begin(now));
        let mut undo = self.pool.begin_dedup_undo(volume)?;
        let mut pace = Pace::new(&self.hosts, &self.shared.limit, &self.shared.interrupted);
        loop {
            self.check_left()?;
            let stepped = undo.step(&mut |bytes| {
                self.shared.measured.lock().read(bytes);
                pace.after(bytes);
            });
            self.with(volume, |kept| kept.note_undone(undo.undone()));
            self.is_at(volume, DedupPhase::Undoing, undo.done_part());
            match stepped {
                Ok(true) => {}
                Ok(false) => {
                    // So that what it says of the pool is true soon.
                    self.pool.settle();
                    return Ok(());
                }
                Err(error @ StoreError::NoSpace { .. }) => {
                    return Err(Ended::Failed(format!(
                        "{error}. What was copied so far has places of its own, the rest is shared as before: make room, then undo again"
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn check_left(&self) -> Worked<()> {
        if self.shared.interrupted.load(Ordering::Relaxed) { Err(Ended::Left) } else { Ok(()) }
    }

    fn is_at(&self, volume: Uuid, phase: DedupPhase, done: Option<f64>) {
        self.shared.volumes.lock().current = Some((volume, phase));
        self.shared.measured.lock().is_at(done);
    }

    fn with(&self, volume: Uuid, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.shared.volumes.lock().kept.get_mut(&volume) {
            change(kept);
        }
    }

    /// Keeps where it is, once what lies before is durable in the pool: what a kill took would not be looked at again. What cannot be
    /// kept costs what is looked at once more.
    fn keep(&self, volume: Uuid) {
        let row = self.shared.volumes.lock().kept.get(&volume).map(|kept| kept.row(&self.shared.name));
        let Some(row) = row else { return };
        if let Err(error) = self.pool.flush() {
            tracing::debug!(pool = self.shared.name, "how far deduplication is is not kept: {error}");
            return;
        }
        if let Err(error) = self.runtime.block_on(self.state.keep_dedup(&row)) {
            tracing::warn!(
                pool = self.shared.name,
                "how far deduplication is could not be kept: {error}. It goes on all the same"
            );
        }
    }
}

fn tell_end(kept: &Kept, was: Wanted) {
    let Document { volume, scanned_bytes, shared_bytes, damaged_blocks, why, .. } = &kept.document;
    let what = if was == Wanted::Undo { "undoing deduplication" } else { "deduplication" };
    match why {
        Some(why) => tracing::warn!(volume, scanned_bytes, shared_bytes, "{what} does not go on: {why}"),
        None if *scanned_bytes > 0 => {
            tracing::info!(volume, scanned_bytes, shared_bytes, damaged_blocks, "{what}: a pass has ended");
        }
        None => {}
    }
}
