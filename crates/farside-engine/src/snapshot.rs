//! Snapshots: what an engine lists and takes, and one that somebody keeps open.

use farside_platform::Timestamp;
use uuid::Uuid;

use crate::difference::BLOCK_BYTES;
use crate::error::EngineError;

/// Who wanted a snapshot; decides whether it travels and who may remove it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotOwner {
    /// A person: it travels with the mirror, and only a person (or the destination's retention) removes it.
    Person,
    /// The relationship with this id: taken for its updates; it does not travel to another relationship.
    Relationship(Uuid),
}

/// A snapshot as an engine lists it.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// Its name within the volume.
    pub name: String,
    /// Its identity; travels with it, for history.
    pub uuid: Uuid,
    /// When the data was so at its origin; travels with it. Lag is counted from this.
    pub created_at: Timestamp,
    /// Size of the volume at that moment, bytes.
    pub size_bytes: u64,
    /// Who wanted it.
    pub owner: SnapshotOwner,
    /// Whether a person holds it (`snapshot hold`).
    pub held: bool,
    /// Relationships that need it as a base; while there is one it cannot be deleted.
    pub pinned_by: Vec<Uuid>,
    /// Higher than that of every snapshot of the volume that was made here before, whatever clocks said.
    pub sequence: u64,
}

/// What to take or commit as a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotSpec {
    /// Its name within the volume.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so.
    pub created_at: Timestamp,
    /// Who wants it.
    pub owner: SnapshotOwner,
    /// Pin it for this relationship in the same record that makes it.
    pub pin_for: Option<Uuid>,
}

/// A snapshot that somebody keeps open.
pub trait OpenSnapshot: Send + Sync {
    /// Reads and verifies a range, as [`Engine::read_snapshot`](crate::Engine::read_snapshot) does.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError>;
    /// Reads and verifies many ranges, as [`Engine::read_snapshot_ranges`](crate::Engine::read_snapshot_ranges) does.
    fn read_ranges(&self, ranges: &[(u64, u64)], mut buffer: &mut [u8]) -> Result<(), EngineError> {
        for (first, blocks) in ranges {
            let (bytes, rest) = buffer.split_at_mut(((*blocks * BLOCK_BYTES) as usize).min(buffer.len()));
            self.read(first * BLOCK_BYTES, bytes)?;
            buffer = rest;
        }
        Ok(())
    }
    /// Whether it, or its volume, was deleted since it was opened: its space waits for this to be dropped.
    fn is_deleted(&self) -> Result<bool, EngineError>;
}
