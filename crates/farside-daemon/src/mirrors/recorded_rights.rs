//! Rights that were recorded for the way back of a mirror end with it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Mirrors;
use crate::peers;

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

    /// Does so for as long as the site lives.
    pub(crate) async fn watch_recorded_rights(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.end_recorded_rights().await;
        }
    }
}
