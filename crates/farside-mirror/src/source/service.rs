//! The source as its peers see it: which call goes where.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use farside_engine::{Engine, VolumeName};
use farside_peer::{DataStream, PeerId, PeerLink, PeerService, Refusal};
use farside_platform::Clock;
use farside_transfer::log_limit::Admitted;
use farside_transfer::protocol::{Body, Request, StreamHeader, check_request};
use farside_transfer::refusal::refusal;
use farside_transfer::source::{EncoderSettings, Similarity, TransferSource, refuse_stream};
use prost::Message;
use tokio::sync::watch;
use uuid::Uuid;

use super::registry::Registry;
use super::rights::SourceRights;
use super::shared::Shared;
use crate::error::MirrorError;
use crate::store::{SourceRelationship, SourceStore};

/// Serves destinations. One for each site.
pub struct SourceService {
    pub(super) shared: Arc<Shared>,
}

impl SourceService {
    /// Reads what the store knows of relationships and serves from then on.
    pub async fn open(
        engine: Arc<dyn Engine>,
        rights: Arc<dyn SourceRights>,
        store: Arc<dyn SourceStore>,
        clock: Arc<dyn Clock>,
        similarity: Similarity,
        encoders: EncoderSettings,
    ) -> Result<SourceService, MirrorError> {
        let registry = Arc::new(Registry::new(rights, store.source_relationships().await?));
        let transfers =
            TransferSource::new(engine.clone(), registry.clone(), clock.clone(), similarity, encoders);
        Ok(SourceService {
            shared: Arc::new(Shared {
                engine,
                registry,
                transfers,
                store,
                clock,
                overtaken_changes: watch::Sender::new(0),
                reversal: OnceLock::new(),
            }),
        })
    }

    /// Who holds which base of this site's volumes, in order of volume.
    pub fn destinations(&self) -> Vec<SourceRelationship> {
        let mut all: Vec<_> = self.shared.tables().relationships.values().cloned().collect();
        all.sort_by(|a, b| (&a.source, a.id).cmp(&(&b.source, b.id)));
        all
    }

    /// Transfers that are being served now: (relationship, transfer).
    pub fn serving(&self) -> Vec<(Uuid, Uuid)> {
        self.shared.transfers.serving().iter().map(|s| (s.relationship, s.transfer)).collect()
    }

    /// Ends the relationships of `peer` on `volume` from this side: their bases are released and the space comes back.
    /// The destination keeps its replica; its next update finds no common base, unless a snapshot that a person made
    /// serves. Returns how many there were.
    pub async fn release(&self, volume: &VolumeName, peer: PeerId) -> Result<usize, MirrorError> {
        let of_peer = |r: &&SourceRelationship| r.peer == peer && r.source == *volume;
        self.release_those(volume, of_peer).await
    }

    /// Ends one relationship on `volume` from this side, as [`SourceService::release`] does. Nothing to do is no error.
    pub async fn release_one(&self, volume: &VolumeName, id: Uuid) -> Result<usize, MirrorError> {
        self.release_those(volume, |r: &&SourceRelationship| r.id == id && r.source == *volume).await
    }

    /// `volume` has become the replica of `peer`'s volume `destination`, which mirrored it before: what was kept for that is
    /// released. Nothing to do is no error.
    pub async fn overwritten(
        &self,
        volume: &VolumeName,
        peer: PeerId,
        destination: &VolumeName,
    ) -> Result<usize, MirrorError> {
        let is_taken_over =
            |r: &&SourceRelationship| r.peer == peer && r.source == *volume && r.destination == *destination;
        self.shared.hand_on(volume, is_taken_over).await?;
        self.release_those(volume, is_taken_over).await
    }

    /// The relationship `of` has ended by a takeover at its destination: what is kept for it of `volume` is released.
    pub(crate) async fn release_ended(&self, of: Uuid, volume: VolumeName) -> Result<(), MirrorError> {
        self.shared.release(of, volume).await
    }

    /// The site whose key was `old` has the key `new`: its relationships are the new key's. What was served to the old one ends.
    pub async fn replace_peer(&self, old: PeerId, new: PeerId) -> Result<(), MirrorError> {
        let of_old = |r: &&SourceRelationship| r.peer == old;
        let ids: Vec<Uuid> =
            self.shared.tables().relationships.values().filter(of_old).map(|r| r.id).collect();
        for id in ids {
            self.shared.transfers.stop(id, false);
            let lock = self.shared.registry.lock(id);
            let _lock = lock.lock().await;
            let Some(changed) = self.shared.tables().relationships.get(&id).cloned() else { continue };
            let changed = SourceRelationship { peer: new, ..changed };
            self.shared.tables().relationships.insert(id, changed.clone());
            self.shared.store.save_source(&changed).await?;
        }
        Ok(())
    }

    async fn release_those(
        &self,
        volume: &VolumeName,
        which: impl Fn(&&SourceRelationship) -> bool,
    ) -> Result<usize, MirrorError> {
        let ids: Vec<Uuid> =
            self.shared.tables().relationships.values().filter(which).map(|r| r.id).collect();
        for id in &ids {
            self.shared.release(*id, volume.clone()).await?;
        }
        Ok(ids.len())
    }

    /// Logs a refusal, as far as the peer's share of the log reaches.
    fn log_refusal(&self, peer: PeerId, what: &str, refusal: &Refusal) {
        let now = self.shared.clock.monotonic();
        match self.shared.tables().refusals_logged.admit(peer, now) {
            Admitted::Line { suppressed: 0 } => {
                tracing::warn!(%peer, code = refusal.code, "refused a {what} of the peer: {}", refusal.message);
            }
            Admitted::Line { suppressed } => tracing::warn!(
                %peer, code = refusal.code, suppressed,
                "refused a {what} of the peer: {} (further refusals before it were not logged)", refusal.message
            ),
            Admitted::Nothing => {}
        }
    }
}

#[async_trait]
impl PeerService for SourceService {
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        let peer = link.peer();
        let answer = self.shared.answer(link, request).await;
        answer.inspect_err(|refusal| self.log_refusal(peer, "call", refusal))
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, mut stream: DataStream) {
        let peer = link.peer();
        let opened = self
            .shared
            .admit(peer)
            .and_then(|()| {
                StreamHeader::decode(&header[..])
                    .map_err(|e| refusal("failed", format!("malformed stream header: {e}")))
            })
            .and_then(|header| self.shared.transfers.step(peer, header));
        match opened {
            Ok(step) => step.send(stream).await,
            Err(refusal) => {
                self.log_refusal(peer, "stream", &refusal);
                refuse_stream(&mut stream, &refusal).await;
            }
        }
    }
}

impl Shared {
    async fn answer(self: &Arc<Self>, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        let request =
            Request::decode(request).map_err(|e| refusal("failed", format!("malformed request: {e}")))?;
        let body = check_request(request).map_err(|why| refusal("version", why))?;
        let peer = link.peer();
        // What frees something is always accepted, and so is what keeps two sides from writing.
        if !matches!(body, Body::End(_) | Body::Release(_) | Body::Overtaken(_)) {
            self.admit(peer)?;
        }
        let answer = match body {
            Body::Describe(describe) => self.describe(peer, describe).await?.encode_to_vec(),
            Body::Begin(begin) => self.begin(link, begin).await?.encode_to_vec(),
            Body::Acknowledge(acknowledge) => self.acknowledge(peer, acknowledge).await?.encode_to_vec(),
            Body::End(end) => self.end(peer, &end).await?.encode_to_vec(),
            Body::Release(release) => self.release_for(peer, &release).await?.encode_to_vec(),
            Body::Compare(compare) => self.compare(peer, compare).await?.encode_to_vec(),
            Body::Overtaken(overtaken) => self.overtaken(peer, overtaken).await?.encode_to_vec(),
            Body::Swap(swap) => self.swap(peer, swap).await?.encode_to_vec(),
            Body::Reserve(reserve) => self.reserve(peer, reserve).await?.encode_to_vec(),
            Body::ReserveTogether(group) => self.reserve_together(peer, group).await?.encode_to_vec(),
        };
        Ok(answer.into())
    }
}
