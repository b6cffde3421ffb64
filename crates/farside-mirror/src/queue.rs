//! The queue of a site's transfers: so many are under way at the same time, the *transfer size*; the rest wait.
//!
//! Who is next is decided by [`Line`], which is pure; here the waiting is done. The size is changed while transfers run:
//! those go on, and from then on as many begin as it allows.

pub(crate) mod line;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::line::BeforeIt;
use self::line::{Line, Ticket};
use crate::limits::{DUE_WITHIN, GIVE_WAY_LOOK_EVERY, TRANSFER_SIZE_DEFAULT, TRANSFERS_MAX};

pub(crate) use self::line::Claim;

/// The queue of a site; clones are the same one.
#[derive(Clone, Debug)]
pub struct TransferQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    seats: Mutex<Seats>,
    began: Instant,
}

#[derive(Debug)]
struct Seats {
    line: Line,
    /// How each of them hears of what is decided about it.
    told: Vec<(Ticket, Arc<Told>)>,
}

#[derive(Debug, Default)]
struct Told {
    /// Its turn has come.
    turn: Notify,
    /// It is asked to give its place to somebody else.
    gives_way: CancellationToken,
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
    ticket: Ticket,
    told: Arc<Told>,
    /// The line learns from it how long places are kept.
    teaches: bool,
}

impl UnderWay {
    /// Leaves its place. How long it kept it says nothing of those after it if it was waiting for a peer that was gone (`teaches`).
    pub(crate) fn end(mut self, teaches: bool) {
        self.teaches = teaches;
    }

    /// Resolves once the transfer is to give its place to somebody else.
    pub(crate) async fn is_to_give_way(&self) {
        self.told.gives_way.cancelled().await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.inner.leave(self.ticket, self.teaches);
    }
}

impl Inner {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Every change is carried out in one call of the line: a panic in between leaves nothing half done.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets begin who may, and asks whoever has to give way.
    fn look(&self, seats: &mut Seats) {
        let now = self.began.elapsed();
        let Seats { line, told } = seats;
        let of = |ticket: Ticket| told.iter().find(|(of, _)| *of == ticket).map(|(_, told)| told);
        while let Some(next) = line.begin_next(now) {
            // Remembered if nobody waits for it at this moment.
            of(next).inspect(|told| told.turn.notify_one());
        }
        for ticket in line.ask_to_give_way(now) {
            of(ticket).inspect(|told| told.gives_way.cancel());
        }
    }

    fn leave(&self, ticket: Ticket, teaches: bool) {
        let mut seats = self.seats();
        match teaches {
            true => seats.line.end(ticket, self.began.elapsed()),
            false => seats.line.leave(ticket),
        }
        seats.told.retain(|(of, _)| *of != ticket);
        self.look(&mut seats);
    }
}

impl Default for TransferQueue {
    /// Of [`TRANSFER_SIZE_DEFAULT`].
    fn default() -> TransferQueue {
        let seats = Seats { line: Line::new(TRANSFER_SIZE_DEFAULT), told: Vec::new() };
        TransferQueue { inner: Arc::new(Inner { seats: Mutex::new(seats), began: Instant::now() }) }
    }
}

impl TransferQueue {
    /// Lets this many transfers be under way from now on; 1 to [`TRANSFERS_MAX`], the next of them otherwise. Those that are,
    /// go on.
    pub fn set_size(&self, size: usize) {
        let mut seats = self.inner.seats();
        seats.line.set_size(size.clamp(1, TRANSFERS_MAX));
        self.inner.look(&mut seats);
    }

    /// As it is now.
    pub fn status(&self) -> QueueStatus {
        let seats = self.inner.seats();
        QueueStatus {
            size: seats.line.size(),
            under_way: seats.line.under_way(),
            waiting: seats.line.waiting(),
        }
    }

    /// When a transfer is due that is to be published `left` from now (overdue: less than zero), on the line's time; at once if
    /// nobody said.
    pub(crate) fn due(&self, left: Option<SignedDuration>) -> i64 {
        let most = SignedDuration::try_from(DUE_WITHIN).unwrap_or(SignedDuration::MAX);
        let left = left.unwrap_or_default().min(most);
        let now = SignedDuration::try_from(self.inner.began.elapsed()).unwrap_or(SignedDuration::MAX);
        i64::try_from(now.saturating_add(left).as_millis()).unwrap_or(i64::MIN)
    }

    /// Whether whoever comes now has to wait for its turn.
    pub(crate) fn is_full(&self) -> bool {
        let status = self.status();
        status.under_way >= status.size || status.waiting > 0
    }

    /// Waits for a transfer's turn. Whoever stops waiting, by dropping this, leaves the line.
    pub(crate) async fn enter(&self, claim: Claim) -> UnderWay {
        let told = Arc::new(Told::default());
        let place = {
            let mut seats = self.inner.seats();
            let ticket = seats.line.come(claim);
            seats.told.push((ticket, told.clone()));
            self.inner.look(&mut seats);
            // From here on it leaves the line, or its place, when this is dropped.
            UnderWay { inner: self.inner.clone(), ticket, told: told.clone(), teaches: true }
        };
        loop {
            // Who is long enough under way to give way shows only as time passes.
            match tokio::time::timeout(GIVE_WAY_LOOK_EVERY, told.turn.notified()).await {
                Ok(()) => return place,
                Err(_) => self.inner.look(&mut self.inner.seats()),
            }
        }
    }

    /// A person waits for the transfer of this mirror from now on, if it is in line.
    pub(crate) fn is_for_a_person(&self, mirror: Uuid) {
        let mut seats = self.inner.seats();
        seats.line.is_for_a_person(mirror);
        self.inner.look(&mut seats);
    }

    /// How long a transfer of this mirror has to wait for its turn, as things stand.
    pub(crate) fn wait_of(&self, mirror: Uuid) -> Duration {
        self.inner.seats().line.wait_of(mirror)
    }

    /// What the transfer of this mirror waits for; none if it is not in line.
    pub(crate) fn before(&self, mirror: Uuid) -> Option<BeforeIt> {
        self.inner.seats().line.before(mirror)
    }
}

#[cfg(test)]
mod tests {
    use farside_peer::PeerId;
    use tokio::sync::mpsc;

    use super::*;

    fn now(queue: &TransferQueue) -> (usize, usize, usize) {
        let QueueStatus { size, under_way, waiting } = queue.status();
        (size, under_way, waiting)
    }

    fn claim() -> Claim {
        Claim {
            peer: PeerId([1; 32]),
            mirror: Uuid::nil(),
            is_first_copy: false,
            is_for_person: false,
            due: 0,
        }
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
                let slot = queue.enter(claim()).await;
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
        let first = queue.enter(claim()).await;
        let mut gone = Vec::new();
        for _ in 0..3 {
            let queue = queue.clone();
            gone.push(tokio::spawn(async move { drop(queue.enter(claim()).await) }));
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
        let whole = queue.enter(claim()).await;
        let next = queue.clone();
        let next = tokio::spawn(async move { drop(next.enter(claim()).await) });
        settle().await;
        let mut turns = come(&queue, 1).await;
        drop(whole);
        next.abort();
        assert_eq!(turns.recv().await.unwrap().0, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_copy_hears_that_it_is_to_give_way() {
        let queue = TransferQueue::default();
        queue.set_size(1);
        let copy = queue.enter(Claim { is_first_copy: true, ..claim() }).await;
        let mut turns = come(&queue, 1).await;
        let soon = tokio::time::timeout(Duration::from_secs(240), copy.is_to_give_way()).await;
        assert!(soon.is_err(), "it has its minutes");
        tokio::time::timeout(Duration::from_secs(120), copy.is_to_give_way()).await.expect("and no more");
        drop(copy);
        assert_eq!(turns.recv().await.unwrap().0, 0);
    }
}
