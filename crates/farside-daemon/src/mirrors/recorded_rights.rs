//! Rights that were recorded for the way back of a mirror end with it; rights on volumes follow these.

use std::collections::BTreeSet;
use std::time::Duration;

use farside_api::ErrorBody;
use farside_engine::VolumeName;
use farside_platform::Timestamp;

use super::Mirrors;
use crate::peers;
use crate::pools::seen::{self, VolumeSeen};
use crate::state::StateError;

/// How long log and history of a mirror that has ended stay.
const ENDED_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Looks from one look for older ones to the next: a day.
const PRUNED_EVERY: u64 = 24 * 60;
/// How often it is looked whether a mirror has ended whose right was recorded: peers end theirs without a word to this module.
const LOOK_EVERY: Duration = Duration::from_secs(60);

impl Mirrors {
    /// Takes back what was recorded for mirrors that are no more, of either direction. What fails is tried again later.
    pub(crate) async fn end_recorded_rights(&self) {
        let mirrors = async {
            // The source's first: a role change adds one of its own before it drops the other.
            let sources = self.parts.source.destinations();
            let of_sources = sources.into_iter().map(|r| (r.peer.0, r.source.to_string()));
            let replicas = self.parts.state.relationships(None).await?;
            let replicas = replicas.into_iter().map(|r| (r.peer.0, r.destination.to_string()));
            let mirrored: BTreeSet<([u8; 32], String)> = of_sources.chain(replicas).collect();
            Ok(move |peer: farside_peer::PeerId, volume: &str| {
                mirrored.contains(&(peer.0, volume.to_owned()))
            })
        };
        match self.parts.rights.end_recorded(&self.parts.state, mirrors).await {
            Ok(ended) => {
                for (peer, volume) in ended {
                    let peer = peers::name_of(&self.parts.node, peer);
                    tracing::info!(
                        peer,
                        volume,
                        "the mirror is no more, so the right that was recorded for its way back has ended; farside peer \
                         allow gives it again"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(
                    "cannot take back a right that a deleted mirror gave for the way back; it is tried \
                     again in a minute: {error}"
                )
            }
        }
    }

    /// Has the rights on a pool's volumes follow what these are called, and binds those that were given to a name.
    pub(crate) async fn rights_follow(&self, name: &str, volumes: &[VolumeSeen]) -> Result<(), StateError> {
        let named = |volume: &VolumeSeen| VolumeName { pool: name.to_owned(), volume: volume.name.clone() };
        let volumes: Vec<_> = volumes.iter().map(|volume| (named(volume), volume.uuid)).collect();
        for (peer, volume) in self.parts.rights.follow(&self.parts.state, &volumes).await? {
            let peer = peers::name_of(&self.parts.node, peer);
            tracing::info!(
                peer,
                volume,
                "the peer's right is one on this volume from now on, whatever it is called later"
            );
        }
        Ok(())
    }

    /// The volumes of all pools that can be looked at now.
    pub(crate) async fn all_seen(&self) -> Vec<(String, Vec<VolumeSeen>)> {
        let pools = self.parts.pools.open_pools();
        let mut all: Vec<_> = pools.iter().map(|(name, pool)| (name.clone(), seen::of_store(pool))).collect();
        for name in self.parts.pools.clustered() {
            // One that is away has its turn when it is back.
            if let Ok(volumes) = self.seen_in_cluster(&name).await {
                all.push((name, volumes));
            }
        }
        all
    }

    /// The volumes of a pool of Ceph.
    pub(crate) async fn seen_in_cluster(&self, name: &str) -> Result<Vec<VolumeSeen>, ErrorBody> {
        let (engine, name) = (self.parts.pools.engine(), name.to_owned());
        self.parts.far.run(move || seen::of_engine(&*engine, &name)).await
    }

    /// Does so for as long as the site lives.
    pub(crate) async fn watch_recorded_rights(&self) {
        for look in 1u64.. {
            tokio::time::sleep(LOOK_EVERY).await;
            if look % PRUNED_EVERY == 1 {
                let now = self.parts.clock.now();
                let before = Timestamp(now.0.saturating_sub(ENDED_KEPT.as_nanos() as u64));
                if let Err(error) = self.parts.state.prune_ended(before).await {
                    tracing::warn!("old log and history of ended mirrors stay for another day: {error}");
                }
            }
            self.end_recorded_rights().await;
            // Volumes that mirrors made.
            for (name, volumes) in self.all_seen().await {
                if let Err(error) = self.rights_follow(&name, &volumes).await {
                    tracing::warn!(
                        pool = name,
                        "rights on volumes of the pool were not written down; it is tried again in a minute: {error}"
                    );
                }
            }
        }
    }
}
