//! Flows that give way: what is put into the far store ahead of time takes the line that connections leave.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// While connections have much to send, a byte of the background goes for so many of theirs: a ninth of the line, so that it ends.
const SHARE: u64 = 8;
/// Connections count as having much to send for so long after their last bulk part: longer than it takes to encode the next.
const ACTIVE_FOR: Duration = Duration::from_millis(20);
/// How often the line is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Background {
    flows: Mutex<HashSet<u32>>,
    /// One part of the background is queued at a time.
    turn: Arc<Semaphore>,
    /// Written to both streams since the trunk began, bytes.
    written: AtomicU64,
    /// The background's next part may go when so many were written.
    next_at: AtomicU64,
    /// When a connection last queued a bulk part.
    others: Mutex<Option<Instant>>,
}

impl Default for Background {
    fn default() -> Background {
        Background {
            flows: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            written: AtomicU64::new(0),
            next_at: AtomicU64::new(0),
            others: Mutex::default(),
        }
    }
}

impl Background {
    /// A flow gives way from now on.
    pub(super) fn add(&self, flow: u32) {
        self.flows.lock().insert(flow);
    }

    pub(super) fn remove(&self, flow: u32) {
        self.flows.lock().remove(&flow);
    }

    /// So many bytes were written.
    pub(super) fn written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Waits until a part of the background may be queued; none for one of a connection. The place is the part's until it is written.
    pub(super) async fn turn(
        &self,
        flow: u32,
        bytes: usize,
        is_queue_empty: impl Fn() -> bool,
    ) -> io::Result<Option<OwnedSemaphorePermit>> {
        if !self.flows.lock().contains(&flow) {
            *self.others.lock() = Some(Instant::now());
            return Ok(None);
        }
        let turn = Arc::clone(&self.turn).acquire_owned().await.map_err(io::Error::other)?;
        // While the turn is here, all that is queued is of connections.
        loop {
            let are_others_active = self.others.lock().is_some_and(|last| last.elapsed() < ACTIVE_FOR);
            let is_free = is_queue_empty() && !are_others_active;
            if is_free || self.written.load(Ordering::Relaxed) >= self.next_at.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let next_at = self.written.load(Ordering::Relaxed) + (SHARE + 1) * bytes as u64;
        self.next_at.store(next_at, Ordering::Relaxed);
        Ok(Some(turn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_background_has_the_line_alone_or_a_ninth_of_it() {
        let background = Background::default();
        background.add(7);
        let millis = |began: Instant| began.elapsed().as_millis();
        // Alone it waits for nothing but its own last part.
        let began = Instant::now();
        for _ in 0..10 {
            assert!(background.turn(7, 1000, || true).await.unwrap().is_some());
        }
        assert_eq!(millis(began), 0);
        // Others have parts queued all the time, 1000 bytes each 10 ms.
        assert!(background.turn(1, 1000, || false).await.unwrap().is_none());
        let began = Instant::now();
        for _ in 0..3 {
            let turn = background.turn(7, 1000, || false);
            let others = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    background.written(1000);
                    background.turn(1, 1000, || false).await.unwrap();
                }
            };
            tokio::select! {
                turn = turn => drop(turn.unwrap()),
                () = others => {}
            }
        }
        assert!((250..=300).contains(&millis(began)), "{}", millis(began));
        // They have nothing more to say: the background waits a moment, and goes on.
        let began = Instant::now();
        background.turn(7, 1_000_000, || true).await.unwrap();
        background.turn(7, 1_000_000, || true).await.unwrap();
        assert!(millis(began) <= 30, "{}", millis(began));
    }
}
