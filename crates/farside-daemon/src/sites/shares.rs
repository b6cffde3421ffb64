//! How many streams one peer may have for requests at a time: transfers need streams, too, and so do other peers.

use std::collections::HashMap;
use std::sync::Arc;

use farside_peer::PeerId;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// In each direction: a quarter of the streams that a session has.
const STREAMS_OF_A_PEER: usize = 16;

/// Places by peer.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<HashMap<PeerId, Arc<Semaphore>>>);

/// A place, until dropped.
pub(crate) type Place = OwnedSemaphorePermit;

impl Shares {
    /// A place for one more stream with this peer; none: it has all that it may have.
    pub(super) fn take(&self, peer: PeerId) -> Option<Place> {
        let mut shares = self.0.lock();
        // Those whose peer has nothing open are made anew when they are wanted.
        shares.retain(|_, share| share.available_permits() < STREAMS_OF_A_PEER);
        let share = shares.entry(peer).or_insert_with(|| Arc::new(Semaphore::new(STREAMS_OF_A_PEER)));
        Arc::clone(share).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_takes_its_share_and_no_more() {
        let shares = Shares::default();
        let (a, b) = (PeerId([1; 32]), PeerId([2; 32]));
        let mut places: Vec<Place> = (0..STREAMS_OF_A_PEER).map(|_| shares.take(a).unwrap()).collect();
        assert!(shares.take(a).is_none() && shares.take(b).is_some());
        places.pop();
        assert!(shares.take(a).is_some());
        drop(places);
        assert!(shares.take(a).is_some());
    }
}
