//! Role changes that peers ask for, and the rights they need.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_mirror::{Destination, MirrorError, Reversal, ReverseAccepted, ReverseOffer, ReverseRights};
use farside_peer::{Node, PeerId};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::exports::Exports;
use crate::peers::Rights;
use crate::plans;
use crate::state::State;

/// Hands a role change to the destination side of the pool that it is about, and tells hosts.
pub(super) struct Reversals {
    pub(super) destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>>,
    pub(super) exports: Arc<Exports>,
    pub(super) node: Node,
    /// All mirrors of the site, once they are made.
    pub(super) mirrors: Weak<dyn Together>,
}

/// What is known where all mirrors of the site are seen together.
#[async_trait]
pub(super) trait Together: Send + Sync {
    /// That the volume is of a group of two histories, with what to type at this site; none if it is not.
    fn of_two_histories(&self, volume: &VolumeName) -> Option<String>;
    /// Puts the mirror of a volume into a group, if it is in none and that fits.
    async fn join(&self, volume: &VolumeName, group: String);
    /// Has the group of a volume updated if its volumes show different moments. Answers whether that is decided: while one of them is under
    /// way nobody knows.
    async fn to_one_moment(&self, volume: &VolumeName) -> bool;
}

impl Reversals {
    fn of(&self, volume: &VolumeName) -> Result<Arc<Destination>, MirrorError> {
        let found = self.destinations.lock().get(&volume.pool).map(Arc::clone);
        found.ok_or_else(|| {
            MirrorError::State(format!(
                "pool {} is not open at the source. At the source: farside \
             pool list",
                volume.pool
            ))
        })
    }

    /// What one volume of a group alone must not do, where the group is of two histories: only this site may know that it is one.
    fn check_one_history(&self, volume: &VolumeName) -> Result<(), MirrorError> {
        let said = self.mirrors.upgrade().and_then(|mirrors| mirrors.of_two_histories(volume));
        said.map_or(Ok(()), |said| {
            Err(MirrorError::State(format!(
                "the source says, and \"here\" is the source in this: {said}. No role changed. To change the role of {volume} all the same, at \
                 the source: farside mirror set {volume} --group none, then this again"
            )))
        })
    }
}

#[async_trait]
impl Reversal for Reversals {
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        let volume = &offer.volume;
        let destination = self.of(volume)?;
        if let Some(reason) = plans::busy(volume, &self.exports.writers(volume)) {
            return Err(MirrorError::State(format!("at the source, {reason}. No role changed")));
        }
        self.check_one_history(volume)?;
        self.exports.drop_fenced_readers(volume).await;
        destination.prepare(offer).await
    }

    async fn look(&self, offer: &ReverseOffer) -> Result<(), MirrorError> {
        let volume = &offer.volume;
        let destination = self.of(volume)?;
        if let Some(reason) = plans::busy(volume, &self.exports.writers(volume)) {
            return Err(MirrorError::State(format!("at the source, {reason}. No role changed")));
        }
        self.check_one_history(volume)?;
        destination.look(offer).await
    }

    fn name_of(&self, peer: PeerId) -> Option<String> {
        let known = self.node.peers().into_iter().find(|known| known.record.id == peer)?;
        Some(known.record.name)
    }

    async fn awaits_first(&self, volume: &VolumeName) -> bool {
        match self.of(volume) {
            Ok(destination) => destination.awaits_first(volume).await,
            Err(_) => false,
        }
    }

    async fn give_way(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        let is_back = self.of(volume)?.give_way(volume, of).await?;
        if is_back {
            // Those who came while it followed are pinned to what it showed.
            self.exports.drop_replica_connections(volume);
        }
        Ok(is_back)
    }

    async fn released(&self, volume: &VolumeName, peer: PeerId, destination: &VolumeName) {
        // One whose pool is not open learns it by asking.
        if let Ok(of_pool) = self.of(volume) {
            of_pool.released(volume, peer, destination).await;
        }
    }

    async fn look_upstream(&self, volume: &VolumeName, hops: usize) {
        // Of a volume that cannot be seen now, what was known stays.
        if let Ok(of_pool) = self.of(volume) {
            of_pool.look_upstream(volume, hops).await;
        }
    }

    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError> {
        self.of(volume)?.prepared(volume, of).await
    }

    async fn is_changing(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        self.of(volume)?.is_changing(volume, of).await
    }

    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        let cancelled = self.of(volume)?.cancel(volume, of).await;
        // Those who came while it was read-only are pinned to its last snapshot.
        self.exports.drop_replica_connections(volume);
        cancelled
    }

    async fn done(&self, volume: &VolumeName, of: Uuid, group: Option<String>) -> Result<(), MirrorError> {
        let destination = self.of(volume)?;
        // Said again, it has nothing to do. What cannot be asked is taken for the first time.
        let is_news = destination.is_changing(volume, of).await.unwrap_or(true);
        destination.done(volume, of, group.clone()).await?;
        if let Some((group, mirrors)) = group.zip(self.mirrors.upgrade()) {
            mirrors.join(volume, group).await;
        }
        if is_news {
            tokio::spawn(to_one_moment(self.mirrors.clone(), volume.clone()));
        }
        Ok(())
    }
}

/// The volumes of a group change their roles one after the other, so each shows a moment of its own, and nothing that all could be taken
/// over at: before whoever asked for it, or the schedule, has them updated, this does.
async fn to_one_moment(mirrors: Weak<dyn Together>, volume: VolumeName) {
    for _ in 0..TO_ONE_MOMENT_LOOKS {
        tokio::time::sleep(TO_ONE_MOMENT_AFTER).await;
        let Some(mirrors) = mirrors.upgrade() else { return };
        if mirrors.to_one_moment(&volume).await {
            return;
        }
    }
}

/// Whoever asked for the change of a whole group may have it updated himself, right after the last.
const TO_ONE_MOMENT_AFTER: Duration = Duration::from_secs(2);
/// So often it is looked at while some of the group are under way.
const TO_ONE_MOMENT_LOOKS: usize = 60;

/// Records what the way back needs among the rights of peers.
pub(super) struct WayBack {
    pub(super) rights: Arc<Rights>,
    pub(super) state: State,
}

#[async_trait]
impl ReverseRights for WayBack {
    async fn grant_reverse(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError> {
        // Both ways: roles that have changed once may change again.
        let granted = self.rights.grant_reverse(&self.state, peer, volume).await;
        granted.map_err(MirrorError::from)
    }
}
