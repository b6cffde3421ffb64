//! The queue of a site's transfers: so many are under way at the same time, the *transfer size*; the rest wait.
//!
//! Who has waited longest is next, and who has ended a transfer comes last with the next one, so that mirrors take turns
//! (round robin). The size is changed while transfers run: those go on, and from then on as many begin as it allows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::{TRANSFER_SIZE_DEFAULT, TRANSFERS_MAX};

/// The queue of a site; clones are the same one.
#[derive(Clone, Debug)]
pub struct TransferQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    counts: Mutex<Counts>,
    /// Those who wait, in the order in which they came. Whoever has it is the next.
    line: tokio::sync::Mutex<()>,
    /// There may be room for the next.
    room: Notify,
}

#[derive(Debug)]
struct Counts {
    size: usize,
    under_way: usize,
    waiting: usize,
}

/// A queue as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// Transfers that may be under way at the same time.
    pub size: usize,
    /// Transfers that are. More than the size for a while after that was made smaller.
    pub under_way: usize,
    /// Transfers that have a session with their source, and wait.
    pub waiting: usize,
}

/// A transfer's slot among those under way; it leaves it when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    inner: Arc<Inner>,
}

impl Inner {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Every change is of one number: a panic in between leaves nothing half done.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counted among those who wait, until this is dropped.
struct Waiting<'a>(&'a Inner);

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner) -> Waiting<'a> {
        inner.counts().waiting += 1;
        Waiting(inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.counts().waiting -= 1;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.inner.counts().under_way -= 1;
        self.inner.room.notify_one();
    }
}

impl Default for TransferQueue {
    /// Of [`TRANSFER_SIZE_DEFAULT`].
    fn default() -> TransferQueue {
        let counts = Mutex::new(Counts { size: TRANSFER_SIZE_DEFAULT, under_way: 0, waiting: 0 });
        let inner = Inner { counts, line: tokio::sync::Mutex::default(), room: Notify::new() };
        TransferQueue { inner: Arc::new(inner) }
    }
}

impl TransferQueue {
    /// Lets this many transfers be under way from now on; 1 to [`TRANSFERS_MAX`], the next of them otherwise. Those that are,
    /// go on.
    pub fn set_size(&self, size: usize) {
        self.inner.counts().size = size.clamp(1, TRANSFERS_MAX);
        self.inner.room.notify_one();
    }

    /// As it is now.
    pub fn status(&self) -> QueueStatus {
        let Counts { size, under_way, waiting } = *self.inner.counts();
        QueueStatus { size, under_way, waiting }
    }

    /// Waits for a transfer's turn. Whoever stops waiting, by dropping this, leaves the line.
    pub(crate) async fn enter(&self) -> UnderWay {
        let inner = &*self.inner;
        let _waiting = Waiting::new(inner);
        let _next = inner.line.lock().await;
        loop {
            {
                let mut counts = inner.counts();
                if counts.under_way < counts.size {
                    counts.under_way += 1;
                    return UnderWay { inner: Arc::clone(&self.inner) };
                }
            }
            // Only the next in line waits here, and room that came since the look above is remembered.
            inner.room.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::mpsc;

    use super::*;

    fn now(queue: &TransferQueue) -> (usize, usize, usize) {
        let QueueStatus { size, under_way, waiting } = queue.status();
        (size, under_way, waiting)
    }

    /// Everybody who can go on has, when a moment of the paused clock has passed.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// `count` transfers, one after the other into the line; each tells its number when its turn has come.
    async fn come(queue: &TransferQueue, count: usize) -> mpsc::UnboundedReceiver<(usize, UnderWay)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for number in 0..count {
            let (queue, sender) = (queue.clone(), sender.clone());
            tokio::spawn(async move {
                let slot = queue.enter().await;
                let _ = sender.send((number, slot));
            });
            settle().await;
        }
        receiver
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_as_its_size_are_under_way_and_the_first_that_came_is_next() {
        let queue = TransferQueue::default();
        assert_eq!(now(&queue), (16, 0, 0));
        queue.set_size(3);
        let mut turns = come(&queue, 6).await;
        assert_eq!(now(&queue), (3, 3, 3));
        let mut under_way = Vec::new();
        for wanted in 0..3 {
            let (number, slot) = turns.recv().await.unwrap();
            assert_eq!(number, wanted);
            under_way.push(slot);
        }
        for wanted in 3..6 {
            settle().await;
            assert!(turns.try_recv().is_err(), "nobody begins before one has ended");
            under_way.remove(0);
            let (number, slot) = turns.recv().await.unwrap();
            assert_eq!(number, wanted);
            under_way.push(slot);
        }
        drop(under_way);
        assert_eq!(now(&queue), (3, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn its_size_is_changed_while_transfers_run() {
        let queue = TransferQueue::default();
        queue.set_size(4);
        let mut turns = come(&queue, 10).await;
        let mut under_way = Vec::new();
        while let Ok((_, slot)) = turns.try_recv() {
            under_way.push(slot);
        }
        // Smaller: those go on, and nobody begins until there are fewer.
        queue.set_size(2);
        settle().await;
        assert_eq!(now(&queue), (2, 4, 6));
        under_way.truncate(2);
        settle().await;
        assert!(turns.try_recv().is_err());
        under_way.truncate(1);
        settle().await;
        assert_eq!(now(&queue), (2, 2, 5));
        under_way.push(turns.try_recv().unwrap().1);
        // Larger: as many as there is room for begin at once.
        queue.set_size(5);
        settle().await;
        assert_eq!(now(&queue), (5, 5, 2));
        while let Ok((_, slot)) = turns.try_recv() {
            under_way.push(slot);
        }
        assert_eq!(under_way.len(), 5);
        for (asked, kept) in [(0, 1), (17, 16), (usize::MAX, 16)] {
            queue.set_size(asked);
            assert_eq!(queue.status().size, kept);
        }
        settle().await;
        assert_eq!(now(&queue), (16, 7, 0), "the last two, too");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_is_in_nobodys_way() {
        let queue = TransferQueue::default();
        queue.set_size(1);
        let first = queue.enter().await;
        let mut gone = Vec::new();
        for _ in 0..3 {
            let queue = queue.clone();
            gone.push(tokio::spawn(async move { drop(queue.enter().await) }));
            settle().await;
        }
        let mut turns = come(&queue, 1).await;
        assert_eq!(now(&queue), (1, 1, 4));
        for waiting in &gone {
            waiting.abort();
        }
        settle().await;
        assert_eq!(now(&queue), (1, 1, 1));
        drop(first);
        assert_eq!(turns.recv().await.unwrap().0, 0);

        // One that was told of the room and goes without taking it leaves it to the next.
        let whole = queue.enter().await;
        let next = queue.clone();
        let next = tokio::spawn(async move { drop(next.enter().await) });
        settle().await;
        let mut turns = come(&queue, 1).await;
        drop(whole);
        next.abort();
        assert_eq!(turns.recv().await.unwrap().0, 0);
    }
}
