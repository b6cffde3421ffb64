//! What the source's transfers ask of whoever keeps the relationships that they are for.

use farside_engine::VolumeName;
use farside_peer::PeerId;
use uuid::Uuid;

/// A base that is kept for a relationship.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptBase {
    /// The relationship.
    pub relationship: Uuid,
    /// The volume here.
    pub volume: VolumeName,
    /// The snapshot of it that both sides hold.
    pub snapshot: Uuid,
}

/// The relationships of a source: who may read what, and which bases are kept for whom. Asked before every frame, so it must
/// answer from memory.
pub trait SourceRelationships: Send + Sync + 'static {
    /// Whether `peer` may read `volume` now.
    fn may_read(&self, peer: PeerId, volume: &VolumeName) -> bool;
    /// Whether the relationship is one that this site knows.
    fn is_kept(&self, relationship: Uuid) -> bool;
    /// The base that is kept for a relationship; none if there is none, or no such relationship.
    fn base_of(&self, relationship: Uuid) -> Option<Uuid>;
    /// All bases that are kept for `peer`.
    fn bases_of(&self, peer: PeerId) -> Vec<KeptBase>;
}
