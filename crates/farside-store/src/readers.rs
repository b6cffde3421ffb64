//! Who reads blocks or nodes, so that no place is used again under a reader (invariant S3). Who begins to read does not wait
//! for those who read already, however long they take: a walk over a damaged or slow medium may take seconds. Only where a pool lacks
//! room, and gives up its older point, all readers are kept out for a moment ([`Readers::shut`]).
//!
//! What a reader can see are places that were in use when it looked. Such a place is freed at the earliest just after, is in the
//! map of the next point as *waiting*, and becomes free when the point after that one is installed. So there are two phases: a
//! point that is installed *turns* to the other one, and before it gives anything out it waits for those who came before the
//! turn of the point before. They have had the time between two points to end. The idea is that of grace periods (RCU).

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The readers of a pool.
#[derive(Default)]
pub(crate) struct Readers {
    /// Held shared by those who came in each phase.
    phases: [RwLock<()>; 2],
    current: AtomicUsize,
}

/// A reader, while it lives.
pub(crate) type Reading<'a> = RwLockReadGuard<'a, ()>;

impl Readers {
    /// Begins to read. What is looked up after it stays where it is until the reader has gone.
    pub(crate) fn read(&self) -> Reading<'_> {
        loop {
            let phase = self.current.load(Ordering::SeqCst);
            let reading = self.phases[phase].read();
            if self.is_current(phase) {
                return reading;
            }
        }
    }

    /// The same, if nobody has shut it.
    pub(crate) fn try_read(&self) -> Option<Reading<'_>> {
        let phase = self.current.load(Ordering::SeqCst);
        self.phases[phase].try_read().filter(|_| self.is_current(phase))
    }

    /// Whoever came late, into a phase that was turned from meanwhile, would not be waited for long enough.
    fn is_current(&self, phase: usize) -> bool {
        self.current.load(Ordering::SeqCst) == phase
    }

    /// Waits for those who came before the last turn. Called between two turns by the one who makes points.
    pub(crate) fn wait_for_earlier(&self) {
        drop(self.phases[1 - self.current.load(Ordering::SeqCst)].write());
    }

    /// Those who come from now on are later ones. Called under the state lock, with what they will see in place.
    pub(crate) fn turn(&self) {
        self.current.fetch_xor(1, Ordering::SeqCst);
    }

    /// Waits for all, and keeps everybody out while what it answers with lives.
    pub(crate) fn shut(&self) -> [RwLockWriteGuard<'_, ()>; 2] {
        // The later one first: whoever finds it shut waits there. No turn comes meanwhile: the caller is the one who makes points.
        let current = self.current.load(Ordering::SeqCst);
        let later = self.phases[current].write();
        let earlier = self.phases[1 - current].write();
        [later, earlier]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Whether `wait` ends while `reading` is held; it must end after.
    fn ends_beside(readers: &Readers, reading: Reading<'_>, wait: impl FnOnce(&Readers) + Send) -> bool {
        let (ended, has_ended) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                wait(readers);
                let _ = ended.send(());
            });
            let beside = has_ended.recv_timeout(Duration::from_millis(100)).is_ok();
            // Nobody who comes now waits for either.
            drop(readers.try_read());
            drop(reading);
            if !beside {
                has_ended.recv_timeout(Duration::from_secs(10)).expect("it ends when the reader has gone");
            }
            beside
        })
    }

    #[test]
    fn a_point_waits_for_readers_of_before_the_last_turn_alone() {
        let readers = Readers::default();
        assert!(ends_beside(&readers, readers.read(), Readers::wait_for_earlier));
        let early = readers.read();
        readers.turn();
        drop(readers.try_read().expect("nobody is kept out"));
        assert!(!ends_beside(&readers, early, Readers::wait_for_earlier));
    }

    #[test]
    fn who_shuts_waits_for_all_and_keeps_all_out() {
        let readers = Readers::default();
        assert!(!ends_beside(&readers, readers.read(), |readers| drop(readers.shut())));
        let early = readers.read();
        readers.turn();
        assert!(!ends_beside(&readers, early, |readers| drop(readers.shut())));
        let shut = readers.shut();
        assert!(readers.try_read().is_none());
        drop(shut);
        assert!(readers.try_read().is_some());
    }
}
