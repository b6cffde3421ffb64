//! The pinned peers: as the registry has them, and added and removed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_link::throttle::clock;
use farside_link::{Rate, Reach};
use tokio::sync::{Notify, Semaphore, watch};

use super::inner::{Inner, Peer, Peers};
use super::redial::dialled_at;
use super::status::{ISOLATED, PeerState};
use crate::error::SessionError;
use crate::id::PeerId;
use crate::instances::Instances;
use crate::limits::CALLS_OUTSTANDING_MAX;
use crate::registry::PeerRecord;
use crate::session::PacketLimits;

impl Inner {
    /// Makes memory agree with the registry.
    pub(super) async fn follow_registry(self: &Arc<Self>) -> Result<(), SessionError> {
        let _guard = self.registry_lock.lock().await;
        let records = self.registry.list().await?;
        let mut peers = self.peers.lock();
        let pinned: Vec<PeerId> = records.iter().map(|r| r.id).collect();
        peers.retain(|id, peer| {
            let stays = pinned.contains(id);
            if !stays {
                peer.cut();
                self.throttles.forget(id);
            }
            stays
        });
        for record in records {
            self.apply_record(&mut peers, record);
        }
        Ok(())
    }

    /// Pins a peer in registry and memory. One that is pinned anew keeps its link's info.
    pub(super) async fn pin(self: &Arc<Self>, mut record: PeerRecord) -> Result<PeerRecord, SessionError> {
        let _guard = self.registry_lock.lock().await;
        if let Some(known) = self.registry.lookup(record.id).await? {
            record.link = known.link;
        }
        let record = self.registry.pin(record).await?;
        let mut peers = self.peers.lock();
        self.apply_record(&mut peers, record.clone());
        // A peer that was refused until now may be in a long pause.
        if let Some(peer) = peers.get_mut(&record.id).filter(|p| p.session.is_none()) {
            self.dial_now(peer);
        }
        Ok(record)
    }

    pub(super) async fn remove(&self, id: PeerId) -> Result<bool, SessionError> {
        let _guard = self.registry_lock.lock().await;
        let was_pinned = self.registry.unpin(id).await?;
        self.forget(id);
        Ok(was_pinned)
    }

    /// It is no peer any more: its sessions are cut.
    pub(super) fn forget(&self, id: PeerId) {
        if let Some(peer) = self.peers.lock().remove(&id) {
            tracing::info!(peer = %peer.record.name, ?id, "peer removed");
            peer.cut();
            self.throttles.forget(&id);
        }
    }

    fn apply_record(self: &Arc<Self>, peers: &mut Peers, record: PeerRecord) {
        let id = record.id;
        let committed_rate = record.link.rate.map_or(Rate::Unlimited, Rate::committed);
        self.throttles.set_committed_rate(clock(), id, committed_rate);
        if let Some(peer) = peers.get_mut(&id) {
            let reach = reach_of(&record);
            let moved = dialled_at(&peer.reach.borrow()) != dialled_at(&reach);
            peer.record = record;
            peer.reach.send_if_modified(|known| {
                let changed = *known != reach;
                *known = reach;
                changed
            });
            if moved {
                self.dial_now(peer);
            }
            return;
        }
        let last_error = self.isolated.then(|| String::from(ISOLATED));
        let state = watch::Sender::new(PeerState { last_error, ..PeerState::default() });
        let wanted: Arc<Notify> = Arc::default();
        let reach = watch::Sender::new(reach_of(&record));
        let packets: Arc<PacketLimits> = Arc::default();
        let redial = self.keep_dialled(
            &record,
            (reach.subscribe(), Arc::clone(&packets)),
            state.subscribe(),
            Arc::clone(&wanted),
        );
        let peer = Peer {
            record,
            session: None,
            instances: Instances::default(),
            asking: Arc::default(),
            other_site_said: None,
            refused_for_its_key: AtomicU64::new(0),
            state,
            wire: Arc::default(),
            calls: Arc::new(Semaphore::new(CALLS_OUTSTANDING_MAX)),
            reach,
            packets,
            redial,
            wanted,
        };
        peers.insert(id, peer);
    }

    fn dial_now(self: &Arc<Self>, peer: &mut Peer) {
        peer.redial.cancel();
        let reach = (peer.reach.subscribe(), Arc::clone(&peer.packets));
        let (state, wanted) = (peer.state.subscribe(), Arc::clone(&peer.wanted));
        peer.redial = self.keep_dialled(&peer.record, reach, state, wanted);
    }

    pub(super) fn close_all(&self, reason: &str) {
        for peer in self.peers.lock().values() {
            peer.redial.cancel();
            if let Some(session) = &peer.session {
                session.close(reason);
            }
        }
    }
}

fn reach_of(record: &PeerRecord) -> Reach {
    Reach { link: record.link.clone(), address: record.address.clone() }
}

impl Peer {
    fn cut(&self) {
        self.redial.cancel();
        if let Some(session) = &self.session {
            session.close("the peer was removed by an administrator");
        }
    }
}
