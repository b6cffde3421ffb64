//! Dials a peer whenever it has no session, for as long as it is pinned.

use std::sync::Arc;
use std::time::Duration;

use farside_platform::Randomness;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Inner, PeerState};
use crate::book::PeerRecord;
use crate::error::SessionError;
use crate::hello::Role;
use crate::limits::{REDIAL_MAX, REDIAL_MIN, SESSION_PROVEN_AFTER};
use crate::session::{Session, Terms};

/// Pauses that double, drawn from their upper half so that two sites do not stay in step.
struct Pauses {
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Pauses { next: REDIAL_MIN }
    }

    fn draw(&mut self, random: &dyn Randomness) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(REDIAL_MAX);
        pause.mul_f64(0.5 + 0.5 * (random.next_u64() as f64 / u64::MAX as f64))
    }
}

impl Inner {
    /// Starts the task; cancelling the token stops it.
    pub(super) fn keep_dialled(
        self: &Arc<Self>,
        record: &PeerRecord,
        state: watch::Receiver<PeerState>,
        wanted: Arc<Notify>,
    ) -> CancellationToken {
        let token = self.stop.child_token();
        if let Some(address) = &record.address {
            let (node, record, address) = (Arc::clone(self), record.clone(), address.clone());
            let stop = token.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = node.dial_for_ever(&record, &address, state, &wanted) => {}
                }
            });
        }
        token
    }

    async fn dial_for_ever(
        self: &Arc<Self>,
        record: &PeerRecord,
        address: &str,
        mut state: watch::Receiver<PeerState>,
        wanted: &Notify,
    ) {
        let mut pauses = Pauses::new();
        let mut told = None;
        // Ends with the peer's entry, which holds the sender.
        while state.wait_for(|s| !s.connected).await.is_ok() {
            match self.dial(record, address).await {
                Ok(session) => {
                    let since = Instant::now();
                    session.lost_token().cancelled().await;
                    if since.elapsed() >= SESSION_PROVEN_AFTER {
                        pauses = Pauses::new();
                        told = None;
                    }
                }
                // The peer's own session is there or about to be.
                Err(SessionError::AlreadyConnected) => {}
                Err(e) => {
                    let error = e.to_string();
                    self.note_error(record.id, &error);
                    if told.as_ref() != Some(&error) {
                        tracing::warn!(peer = %record.name, id = ?record.id, address, "cannot connect to the peer, will keep trying; its mirrors stand still until then: {error}");
                        told = Some(error);
                    }
                }
            }
            let pause = pauses.draw(&*self.random);
            let failed = Instant::now();
            tokio::select! {
                () = sleep(pause) => {}
                // However many ask, and however often: the peer is not flooded.
                () = wanted.notified() => sleep_until(failed + pause.min(REDIAL_MIN)).await,
            }
        }
    }

    async fn dial(
        self: &Arc<Self>,
        record: &PeerRecord,
        address: &str,
    ) -> Result<Arc<Session>, SessionError> {
        let id = self.random.uuid_bytes();
        let (control, welcome) =
            self.dialler.dial(address, record.id, Role::Control, id, [0; 16], &[]).await?;
        let terms = Terms {
            peer: record.id,
            peer_name: record.name.clone(),
            id,
            instance: welcome.instance,
            version: welcome.version,
            dialled: Some(address.to_owned()),
        };
        self.install(terms, control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_platform::SeededRandomness;

    #[test]
    fn pauses_grow_to_their_limit() {
        let random = SeededRandomness::new(5);
        let mut pauses = Pauses::new();
        let drawn: Vec<_> = (0..12).map(|_| pauses.draw(&random)).collect();
        assert!(drawn[0] >= REDIAL_MIN / 2 && drawn[0] <= REDIAL_MIN);
        assert!(drawn.iter().all(|p| *p <= REDIAL_MAX));
        assert!(drawn[11] >= REDIAL_MAX / 2);
    }
}
