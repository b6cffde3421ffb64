//! Whose replica a volume is: what a transfer knows of its relationship.

use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_peer::PeerId;
use uuid::Uuid;

/// A replica of this site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The relationship, the same on both sides.
    pub relationship: Uuid,
    /// The source's site.
    pub peer: PeerId,
    /// The volume there.
    pub source: VolumeName,
    /// The replica here.
    pub destination: VolumeName,
    /// Retention decides how long what is published stays: it is pinned for that ([`kept_of`](crate::bases::kept_of)).
    pub keeps: bool,
}

/// All replicas of this site: what they brought may serve a transfer of another one as base.
#[async_trait]
pub trait Replicas: Send + Sync + 'static {
    /// All of them. That they cannot be listed costs a transfer bytes only.
    async fn replicas(&self) -> Result<Vec<Replica>, Box<dyn std::error::Error + Send + Sync>>;
}
