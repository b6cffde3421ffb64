//! Room for payload bytes: what a command takes from the limits until its answer is with the kernel.
//!
//! Three bounds: each connection has its commands and bytes, all connections together have a budget, and outside of it each
//! has a *share* that nobody else can take: known hosts over the network, and local clients that came first, a large one, thousands
//! more a small one. A client that is frozen in the middle of a write, or does not fetch what it
//! read, holds its own room and part of the budget until it is given up; everybody else goes on in their shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{HOLDERS_NAMED_MAX, Limits};

/// The budget of all connections, and who has how much of it.
pub(crate) struct ServerRoom {
    bytes: Arc<Semaphore>,
    /// Shares that nobody has.
    shares: Arc<Semaphore>,
    holders: Mutex<BTreeMap<u64, Arc<Holder>>>,
}

/// A connection, as others see it that wait for room.
struct Holder {
    /// Number, process and export.
    who: String,
    bytes: AtomicU64,
    /// Since when the payload of a write has been waited for.
    payload_since: Mutex<Option<Instant>>,
}

impl ServerRoom {
    pub(crate) fn new(limits: &Limits) -> Arc<ServerRoom> {
        let bytes = Arc::new(Semaphore::new(limits.server_bytes_max as usize));
        let shares = Arc::new(Semaphore::new(limits.shares_max));
        Arc::new(ServerRoom { bytes, shares, holders: Mutex::default() })
    }

    /// Who holds most of the budget, for the log.
    fn holders(&self) -> String {
        let mut holders: Vec<_> = self
            .holders
            .lock()
            .values()
            .map(|holder| (holder.bytes.load(Ordering::Relaxed), Arc::clone(holder)))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let others = holders.len().saturating_sub(HOLDERS_NAMED_MAX);
        let mut named: Vec<String> = holders
            .iter()
            .take(HOLDERS_NAMED_MAX)
            .map(|(bytes, holder)| {
                let kib = bytes.div_ceil(1024);
                match *holder.payload_since.lock() {
                    Some(since) => format!(
                        "{} holds {kib} KiB and has sent nothing of a write for {} s",
                        holder.who,
                        since.elapsed().as_secs()
                    ),
                    None => format!("{} holds {kib} KiB", holder.who),
                }
            })
            .collect();
        if others > 0 {
            named.push(format!("{others} others hold the rest"));
        }
        named.join("; ")
    }
}

/// The room of one connection.
pub(crate) struct Room {
    number: u64,
    requests: Arc<Semaphore>,
    requests_max: u32,
    bytes: Arc<Semaphore>,
    share: Arc<Semaphore>,
    share_max: u32,
    _one_of_the_shares: Option<OwnedSemaphorePermit>,
    logged_after: Duration,
    server: Arc<ServerRoom>,
    holder: Arc<Holder>,
}

/// Room that a command has taken.
pub(crate) struct Reservation {
    _request: OwnedSemaphorePermit,
    _bytes: Option<(OwnedSemaphorePermit, Taken)>,
}

/// Bytes of the share, or of the common budget.
enum Taken {
    Share { _permit: OwnedSemaphorePermit },
    Budget { _permit: OwnedSemaphorePermit, _held: Held },
}

/// Counts what a connection has of the budget.
struct Held {
    bytes: u64,
    holder: Arc<Holder>,
}

impl Held {
    fn new(bytes: u32, holder: &Arc<Holder>) -> Held {
        holder.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
        Held { bytes: bytes.into(), holder: Arc::clone(holder) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holder.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Room {
    /// For connection `number`, which the log calls `who`. One with a share of its own takes none of those that local clients have.
    pub(crate) fn new(
        limits: &Limits,
        server: &Arc<ServerRoom>,
        number: u64,
        who: String,
        has_own_share: bool,
    ) -> Room {
        let holder = Arc::new(Holder { who, bytes: AtomicU64::new(0), payload_since: Mutex::new(None) });
        server.holders.lock().insert(number, Arc::clone(&holder));
        let take_share = || Arc::clone(&server.shares).try_acquire_owned().ok();
        let one_of_the_shares = if has_own_share { None } else { take_share() };
        let share_max = match has_own_share || one_of_the_shares.is_some() {
            true => limits.connection_share_bytes,
            false => limits.small_share_bytes,
        };
        Room {
            number,
            requests: Arc::new(Semaphore::new(limits.requests_in_flight_max as usize)),
            requests_max: limits.requests_in_flight_max,
            bytes: Arc::new(Semaphore::new(limits.connection_bytes_max as usize)),
            share: Arc::new(Semaphore::new(share_max as usize)),
            share_max,
            _one_of_the_shares: one_of_the_shares,
            logged_after: limits.wait_logged_after,
            server: Arc::clone(server),
            holder,
        }
    }

    /// Waits until a command with `bytes` of payload may be taken on.
    pub(crate) async fn reserve(&self, bytes: u32) -> Reservation {
        let request = acquire(&self.requests, 1).await;
        let bytes = match bytes {
            0 => None,
            // The connection's own bytes first: while it waits for those it must not hold the others'.
            bytes => Some((acquire(&self.bytes, bytes).await, self.take(bytes).await)),
        };
        Reservation { _request: request, _bytes: bytes }
    }

    async fn take(&self, bytes: u32) -> Taken {
        if let Ok(permit) = Arc::clone(&self.share).try_acquire_many_owned(bytes) {
            return Taken::Share { _permit: permit };
        }
        let budget = async {
            let permit = acquire(&self.server.bytes, bytes).await;
            Taken::Budget { _permit: permit, _held: Held::new(bytes, &self.holder) }
        };
        let share = async {
            if bytes > self.share_max {
                return std::future::pending().await;
            }
            Taken::Share { _permit: acquire(&self.share, bytes).await }
        };
        let mut taken = std::pin::pin!(async {
            tokio::select! {
                taken = budget => taken,
                taken = share => taken,
            }
        });
        let began = Instant::now();
        if let Ok(taken) = tokio::time::timeout(self.logged_after, &mut taken).await {
            return taken;
        }
        tracing::warn!(
            "{} has waited for {} s for room to serve a command of {} KiB; it goes on waiting. {}. Who sends nothing of a \
             write, or fetches nothing of a reply, is given up after a while",
            self.holder.who,
            began.elapsed().as_secs(),
            bytes.div_ceil(1024),
            self.server.holders()
        );
        let taken = taken.await;
        tracing::info!("{} goes on after {} s", self.holder.who, began.elapsed().as_secs());
        taken
    }

    /// Whether the payload of a write is waited for.
    pub(crate) fn payload_awaited(&self, is_awaited: bool) {
        *self.holder.payload_since.lock() = is_awaited.then(Instant::now);
    }

    /// Waits until no command holds any of it.
    pub(crate) async fn all_free(&self) {
        drop(acquire(&self.requests, self.requests_max).await);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.server.holders.lock().remove(&self.number);
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, count: u32) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_many_owned(count).await;
    permit.expect("these semaphores are never closed")
}
