//! The two ways out of a relationship: break (the replica is taken over) and delete (it is over). Neither needs the
//! peer.

use farside_engine::ReplicaRecord;

use super::driver::Driver;
use crate::error::{MirrorError, blocking};
use crate::limits::FAREWELL_TIMEOUT;
use crate::protocol::{Body, Release};
use crate::source::let_go;
use crate::state::Work;
use crate::transfer;

impl Driver {
    pub(super) async fn break_off(&mut self) -> Result<(), MirrorError> {
        self.stop().await;
        let broken = self.replica_record(true);
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let result = blocking(move || {
            // What a crash left staged would never be wanted again. It only costs space: not a reason not to break.
            if let Err(error) = engine.abandon_staged(&volume) {
                tracing::warn!(%volume, "what was staged could not be thrown away: {error}");
            }
            engine.set_replica_record(&volume, Some(broken))
        })
        .await;
        match &result {
            Ok(()) => {
                self.why = None;
                tracing::info!(relationship = %self.relationship.id, volume = %self.relationship.destination, "broken off");
            }
            Err(error) => {
                // Not durable, so not so.
                self.standing.work = Work::Idle;
                self.why = Some(format!("break failed: {error}"));
            }
        }
        result
    }

    fn replica_record(&self, broken_off: bool) -> ReplicaRecord {
        ReplicaRecord {
            relationship: self.relationship.id,
            peer: self.relationship.peer.0,
            source: self.relationship.source.to_string(),
            broken_off,
        }
    }

    /// Each part may find its work done: repeating a deletion that failed finishes it.
    pub(super) async fn delete(&mut self) -> Result<(), MirrorError> {
        self.stop().await;
        let result = self.undo().await;
        match &result {
            Ok(()) => self.tell_source_to_release(),
            Err(error) => {
                // The volume may not be a replica any more: nothing is done before the pool has been asked again.
                self.forget_probe(format!("delete failed, repeat it: {error}"));
            }
        }
        result
    }

    async fn undo(&self) -> Result<(), MirrorError> {
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        let undone = blocking(move || {
            let volume = &relationship.destination;
            if let Err(error) = engine.abandon_staged(volume) {
                tracing::warn!(%volume, "what was staged could not be thrown away: {error}");
            }
            let record = engine.replica_record(volume)?;
            if record.is_some_and(|record| record.relationship == relationship.id) {
                engine.set_replica_record(volume, None)?;
            }
            let_go(&*engine, volume, relationship.id, &[])
        });
        match undone.await {
            // With the volume gone there is nothing to undo.
            Ok(()) | Err(MirrorError::Engine(farside_engine::EngineError::NotFound { .. })) => {}
            Err(error) => return Err(error),
        }
        self.parts.store.remove(self.relationship.id).await
    }

    /// If there is a session now; otherwise the source's administrator has `mirror release`.
    fn tell_source_to_release(&self) {
        let release = Release {
            relationship: self.relationship.id.as_bytes().to_vec(),
            volume: self.relationship.source.to_string(),
        };
        let (links, peer, id) = (self.parts.links.clone(), self.relationship.peer, self.relationship.id);
        tokio::spawn(async move {
            let told = transfer::ask(&*links, peer, Body::Release(release), FAREWELL_TIMEOUT);
            if !matches!(tokio::time::timeout(FAREWELL_TIMEOUT, told).await, Ok(Ok(_))) {
                tracing::warn!(
                    relationship = %id,
                    "the source was not told that the mirror is over; there, run `farside mirror release`"
                );
            }
        });
    }
}
