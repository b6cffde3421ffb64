//! Where the source of a replica stands now, asked outside of a transfer.

use std::time::Duration;

use farside_engine::VolumeName;
use farside_transfer::protocol::convert::Upstream;
use farside_transfer::protocol::{Body, Describe, Description};
use prost::Message;

use super::service::Destination;
use crate::error::MirrorError;
use crate::limits::HOP_WAIT;
use crate::links::ask;
use crate::relationship::RoleChangeCommand;
use crate::state::State;

impl Destination {
    /// Asks the source of `volume`, if that is a replica, and through it whatever it follows, `hops` sites in all. What has no
    /// session or does not answer in time stays as it was known. It waits for [`HOP_WAIT`] for each at most.
    pub(super) async fn look_upstream_of(&self, volume: &VolumeName, hops: usize) {
        // Also until the driver has it.
        let looked =
            tokio::time::timeout(HOP_WAIT * hops as u32, self.ask_where_it_stands(volume, hops)).await;
        if let Ok(Err(error)) = looked {
            tracing::debug!(%volume, "the source was not asked where it stands: {error}");
        }
    }

    async fn ask_where_it_stands(&self, volume: &VolumeName, hops: usize) -> Result<(), MirrorError> {
        let Ok(mirror) = self.mirror(volume) else { return Ok(()) };
        let status = mirror.status();
        if status.state == State::BrokenOff {
            return Ok(());
        }
        let known = status.relationship;
        let describe = Describe {
            relationship: known.id.as_bytes().to_vec(),
            volume: known.source.to_string(),
            destination: volume.to_string(),
            hops: hops as u32,
        };
        let answer = ask(&*self.parts.links, known.peer, Body::Describe(describe), Duration::ZERO).await?;
        let description = Description::decode(answer)
            .map_err(|e| MirrorError::protocol(format!("malformed description: {e}")))?;
        // One of an older version does not say it.
        let Some(origin) = description.origin else { return Ok(()) };
        let upstream = Upstream::from_message(&origin)?;
        mirror.change_roles(|done| RoleChangeCommand::SourceStands { of: known.id, upstream, done }).await
    }
}
