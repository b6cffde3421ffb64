//! A site that has another key: its mirrors go on under the new one.
//!
//! The database changes in one moment and remembers which key took the place of which. Everything else follows from it: the
//! source's memory, the rights, and the replicas' records in the pools, each as soon as the pool is open. A crash in between
//! leaves what an opening puts right.

use std::collections::BTreeSet;

use farside_api::{ErrorBody, ErrorCode};
use farside_engine::{EngineError, ReplicaRecord, VolumeName};
use farside_peer::PeerId;

use super::Mirrors;
use crate::failure::Failure;
use crate::peers;
use crate::pools::seen::VolumeSeen;

/// Letters of a key that tell it apart from others.
const KEY_LETTERS_MIN: usize = 8;

/// What a site that has another key takes along, for the plan.
pub(crate) struct Taken {
    /// Replicas here of its volumes.
    pub(crate) replicas: Vec<VolumeName>,
    /// Volumes here that it mirrors, and as what.
    pub(crate) sources: Vec<(VolumeName, VolumeName)>,
}

impl Mirrors {
    /// The peer called so, or the one whose key begins so: also of one that is a peer no more, but whose replicas are here or
    /// whose bases are kept.
    pub(crate) async fn peer_or_key(&self, text: &str) -> Result<PeerId, ErrorBody> {
        let unknown = match peers::named(&self.parts.node, text) {
            Ok(peer) => return Ok(peer.record.id),
            Err(unknown) => unknown,
        };
        if text.len() < KEY_LETTERS_MIN || !text.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(unknown);
        }
        let known = self.parts.state.relationships(None).await.map_err(Failure::into_error_body)?;
        let sources = self.parts.source.destinations();
        let keys: BTreeSet<PeerId> =
            known.iter().map(|r| r.peer).chain(sources.iter().map(|r| r.peer)).collect();
        let text = text.to_ascii_lowercase();
        let mut found = keys.into_iter().filter(|key| key.to_string().starts_with(&text));
        match (found.next(), found.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                format!("the keys of several sites begin with {text}; give more letters of it"),
            )),
            (None, _) => Err(unknown.hint(
                "farside peer list shows who is paired; of a site that is not paired any more give the beginning of its \
                 key, as farside mirror status shows it",
            )),
        }
    }

    /// What `old` has here.
    pub(crate) async fn taken_along(&self, old: PeerId) -> Result<Taken, ErrorBody> {
        let known = self.parts.state.relationships(None).await.map_err(Failure::into_error_body)?;
        let replicas = known.into_iter().filter(|r| r.peer == old).map(|r| r.destination).collect();
        Ok(Taken { replicas, sources: self.held_by(old) })
    }

    /// Has `new` be what `old` was: its replicas here follow the new key, and what is kept for it is kept for the new key. The
    /// caller sees to it that no pool is opened or closed meanwhile, and brings sessions, rights and throttles in line.
    pub(crate) async fn replace_peer(&self, old: PeerId, new: PeerId) -> Result<(), ErrorBody> {
        // What runs from the old key ends: what was brought stays, and the next transfer goes on from it.
        let mut affected = Vec::new();
        let known = self.parts.state.relationships(None).await.map_err(Failure::into_error_body)?;
        for (name, volumes) in self.all_seen().await {
            let has_row = known.iter().any(|r| r.peer == old && r.destination.pool == name);
            if has_row || volumes.iter().any(|v| v.replica.as_ref().is_some_and(|r| r.peer == old.0)) {
                self.pool_closing(&name).await;
                affected.push((name, volumes));
            }
        }
        let mut outcome = self
            .parts
            .state
            .replace_peer(old, new, self.parts.clock.now())
            .await
            .map_err(Failure::into_error_body);
        if outcome.is_ok() {
            outcome = self.parts.source.replace_peer(old, new).await.map_err(Failure::into_error_body);
            let told =
                async { self.endings().await?.replace_peer(new).await.map_err(Failure::into_error_body) };
            outcome = outcome.and(told.await);
        }
        // Whatever failed, mirrors run again.
        for (name, volumes) in &affected {
            outcome = outcome.and(self.pool_opened(name, volumes).await);
        }
        outcome
    }

    /// Brings the replicas' records of a pool in line: those that name a key that another has taken the place of.
    pub(super) async fn follow_replaced_peers(
        &self,
        pool_name: &str,
        volumes: &[VolumeSeen],
    ) -> Result<(), ErrorBody> {
        let replaced = self.parts.state.replaced_peers().await.map_err(Failure::into_error_body)?;
        if replaced.is_empty() {
            return Ok(());
        }
        for volume in volumes {
            let Some(replica) = &volume.replica else { continue };
            let Some(new) = replaced.get(&PeerId(replica.peer)) else { continue };
            let name = VolumeName { pool: pool_name.to_owned(), volume: volume.name.clone() };
            let record = ReplicaRecord {
                relationship: replica.relationship,
                peer: new.0,
                source: replica.source.clone(),
                broken_off: replica.broken_off,
            };
            tracing::info!(volume = %name, old = ?PeerId(replica.peer), new = ?new, "the source's site has another key");
            let engine = self.parts.engine.clone();
            let set = move || -> Result<(), EngineError> { engine.set_replica_record(&name, Some(record)) };
            if let Err(error) = self.parts.blocking.run(set).await {
                // A pool that is read-only just now: the next opening tries it again, and reading and breaking off need it not.
                tracing::warn!(pool = pool_name, %error, "the new key of a source is not recorded in the pool yet");
            }
        }
        Ok(())
    }
}
