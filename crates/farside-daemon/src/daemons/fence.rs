//! Clients of clusters that daemons of this site had under an earlier lease are put on the blocklist before a cluster is used here.
//!
//! A process that hangs has more than the locks that are broken one by one: it may take a snapshot, or write a document. On the
//! blocklist it changes nothing in the cluster any more. Each client is noted in the database before anything is done with it.

use farside_api::ErrorBody;
use farside_engine::rbd::RbdEngine;
use tokio::runtime::Handle;

use crate::failure::Failure;
use crate::state::State;

/// How a cluster that is connected is made this daemon's alone, before anything in it is settled.
#[derive(Clone)]
pub(crate) struct Fence {
    pub(crate) state: State,
    pub(crate) number: i64,
    pub(crate) runtime: Handle,
}

impl Fence {
    /// Notes this daemon's client of the pool `name`, and fences those of earlier leases. Blocks.
    ///
    /// # Errors
    /// The cluster or the database fails: the pool is not used then.
    pub(crate) fn raise(&self, engine: &RbdEngine, name: &str) -> Result<(), ErrorBody> {
        let client = engine.client_of(name).map_err(Failure::into_error_body)?;
        let earlier = self
            .runtime
            .block_on(self.state.note_cluster_client(&client.cluster, &client.address, self.number))
            .map_err(Failure::into_error_body)?;
        for address in earlier {
            engine.fence_client(name, &address).map_err(Failure::into_error_body)?;
            tracing::warn!(
                pool = name,
                address,
                "a client that an earlier leading daemon had of this cluster is on the cluster's blocklist now"
            );
            self.runtime
                .block_on(self.state.forget_cluster_client(&client.cluster, &address))
                .map_err(Failure::into_error_body)?;
        }
        Ok(())
    }
}
