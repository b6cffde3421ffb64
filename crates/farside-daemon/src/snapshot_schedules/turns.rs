//! Turns of timetables: one at a time takes snapshots of one, or changes it. Whoever wants to change it ends what is being frozen.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Those of all timetables, by the volumes by which they are known.
#[derive(Default)]
pub(super) struct Turns {
    all: Mutex<BTreeMap<Uuid, One>>,
    stop: CancellationToken,
}

#[derive(Clone)]
struct One {
    turn: Arc<tokio::sync::Mutex<()>>,
    unwanted: CancellationToken,
}

impl One {
    fn new(stop: &CancellationToken) -> One {
        One { turn: Arc::default(), unwanted: stop.child_token() }
    }
}

/// While it lives nobody else has it.
pub(super) struct Turn {
    unwanted: CancellationToken,
    _turn: OwnedMutexGuard<()>,
}

impl Turn {
    /// Ends when somebody else waits for the turn, or the site stops.
    pub(super) fn unwanted(&self) -> &CancellationToken {
        &self.unwanted
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.unwanted.is_cancelled()
    }
}

impl Turns {
    /// To take a snapshot. None: somebody has it, so this time is over.
    pub(super) fn try_take(&self, volume: Uuid) -> Option<Turn> {
        let mut all = self.all.lock();
        // Those that nobody has or waits for are made anew.
        all.retain(|of, one| *of == volume || Arc::strong_count(&one.turn) > 1);
        let one = all.entry(volume).or_insert_with(|| One::new(&self.stop));
        let turn = Arc::clone(&one.turn).try_lock_owned().ok()?;
        one.unwanted = self.stop.child_token();
        Some(Turn { unwanted: one.unwanted.clone(), _turn: turn })
    }

    /// To change something: ends what is being frozen, and waits until it is thawed.
    pub(super) async fn take(&self, volume: Uuid) -> Turn {
        let one = self.all.lock().entry(volume).or_insert_with(|| One::new(&self.stop)).clone();
        one.unwanted.cancel();
        let turn = one.turn.lock_owned().await;
        Turn { unwanted: self.stop.child_token(), _turn: turn }
    }

    /// From now on nothing is wanted.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_changes_something_ends_what_is_being_taken_and_waits_for_it() {
        let (turns, volume) = (Turns::default(), Uuid::from_u128(1));
        let taking = turns.try_take(volume).unwrap();
        assert!(turns.try_take(volume).is_none() && !taking.is_unwanted());
        assert!(turns.try_take(Uuid::from_u128(2)).is_some(), "another is another");
        let mut change = Box::pin(turns.take(volume));
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut change).await.is_err());
        assert!(taking.is_unwanted());
        drop(taking);
        let changing = change.await;
        assert!(turns.try_take(volume).is_none());
        drop(changing);
        let next = turns.try_take(volume).unwrap();
        assert!(!next.is_unwanted());
        turns.stop();
        assert!(next.is_unwanted());
    }
}
