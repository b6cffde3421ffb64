//! The replicas of this site, as transfers ask for them.

use std::sync::Arc;

use async_trait::async_trait;
use farside_transfer::{Replica, Replicas};

use crate::store::{Relationship, RelationshipStore};

/// Those that the store knows.
pub(crate) struct StoredReplicas(pub(crate) Arc<dyn RelationshipStore>);

#[async_trait]
impl Replicas for StoredReplicas {
    async fn replicas(&self) -> Result<Vec<Replica>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.relationships().await?.iter().map(Relationship::replica).collect())
    }
}
