//! What a step is made of: two snapshots and what is read of them.

use std::sync::Arc;

use farside_engine::{
    BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, Engine, EngineError, Fingerprint, VolumeName,
};
use farside_wire::{Origin, Regions, Run, RunKind};
use uuid::Uuid;

use crate::protocol::held::Held;
use crate::source::counters::Counters;
use crate::source::cross_volume::CrossVolume;
use crate::source::known::Metadata;
use crate::source::remaining::{Fingerprints, Remaining};
use crate::source::similarity::Content;

/// What a step is made of.
#[derive(Clone)]
pub(crate) struct StepSource {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) volume: VolumeName,
    pub(crate) base: Option<Uuid>,
    pub(crate) incremental: Uuid,
    /// Size of the incremental, bytes.
    pub(crate) size_bytes: u64,
    /// Whether frames may refer to what both sides hold: the base, and what the stream has brought.
    pub(crate) refers: bool,
}

impl StepSource {
    /// What the volume's index of similar content shall have for the next step: not of the base, which goes when this transfer
    /// is over.
    pub(crate) fn content(&self) -> Content {
        let (engine, volume) = (self.engine.clone(), self.volume.clone());
        Content { engine, volume, snapshot: self.incremental }
    }

    /// The difference, as far as the incremental reaches: of a volume that has shrunk nothing travels for what was
    /// cut off, the size says it.
    pub(crate) fn extents(&self) -> Result<ChangedExtents, EngineError> {
        let size_bytes = self.size_bytes;
        let extents = self.engine.changed_extents(&self.volume, self.base, self.incremental)?;
        let within = extents.filter_map(move |extent| match extent {
            Ok(extent) if extent.offset >= size_bytes => None,
            Ok(extent) => {
                Some(Ok(ChangedExtent { length: extent.length.min(size_bytes - extent.offset), ..extent }))
            }
            Err(error) => Some(Err(error)),
        });
        Ok(Box::new(within))
    }

    /// What travels of it.
    pub(crate) fn remaining(&self, held: Held) -> Result<Remaining, EngineError> {
        let runs = self.extents()?.map(|extent| extent.and_then(run));
        let source = self.clone();
        let fingerprints = move |first, count| source.fingerprints(first, count);
        Ok(Remaining::new(Box::new(runs), held, Box::new(fingerprints)))
    }

    /// Fingerprints of so many blocks of the incremental from a block on.
    pub(crate) fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.engine.fingerprints(&self.volume, self.incremental, first, count)
    }

    /// Fingerprints for questions about what the destination knows.
    pub(crate) fn metadata(&self) -> Metadata {
        let (blocks, nodes) = (self.clone(), self.clone());
        Metadata {
            blocks: Box::new(move |first, count| blocks.fingerprints(first, count)),
            nodes: self.engine.subtrees(&self.volume.pool).is_some().then(|| nodes.nodes()),
        }
    }

    fn nodes(self) -> Fingerprints {
        Box::new(move |first, count| {
            let gone = || EngineError::NotFound { what: format!("pool {}", self.volume.pool) };
            let subtrees = self.engine.subtrees(&self.volume.pool).ok_or_else(gone)?;
            subtrees.subtree_fingerprints(&self.volume, self.incremental, 1, first, count)
        })
    }

    /// The base, if frames may refer to it.
    pub(crate) fn usable_base(&self) -> Option<Uuid> {
        self.base.filter(|_| self.refers)
    }
}

fn run(extent: ChangedExtent) -> Result<Run, EngineError> {
    if !extent.offset.is_multiple_of(BLOCK_BYTES) || !extent.length.is_multiple_of(BLOCK_BYTES) {
        return Err(EngineError::Invalid(format!(
            "the engine answered a difference that is not whole blocks: {extent:?}"
        )));
    }
    let kind = match extent.kind {
        ChangeKind::Data => RunKind::Data,
        ChangeKind::Hole => RunKind::Hole,
    };
    Ok(Run { position: extent.offset / BLOCK_BYTES, blocks: extent.length / BLOCK_BYTES, kind })
}

/// What both sides hold, as this side has it. Counts what is read of it.
pub(crate) struct BothSides<'a> {
    pub(crate) source: &'a StepSource,
    pub(crate) cross_volume: &'a CrossVolume,
    pub(crate) counters: &'a Counters,
}

impl Regions for BothSides<'_> {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let blocks = buffer.len() as u64 / BLOCK_BYTES;
        self.read_ranges(origin, &[(position, blocks)], buffer)
    }

    fn read_ranges(
        &mut self,
        origin: Origin,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), String> {
        self.counters.base_read.add(buffer.len() as u64);
        let engine = &*self.source.engine;
        let snapshot = match origin {
            Origin::Base => self.source.usable_base().ok_or("this copy has no base")?,
            Origin::Incremental => self.source.incremental,
            Origin::Other(number) => return self.cross_volume.read(engine, number, ranges, buffer),
        };
        let read = engine.read_snapshot_ranges(&self.source.volume, snapshot, ranges, buffer);
        read.map_err(|e| e.to_string())
    }
}

impl StepSource {
    /// Something could not be read that frames would be coded against.
    pub(crate) fn warn_of_damage(&self, why: &str) {
        tracing::warn!(
            volume = %self.volume,
            "part of the common base cannot be read; the transfer goes on without it and sends more bytes: {why}. \
             Check this pool offline (farside pool check)"
        );
    }
}
