//! Tells the source what is staged of a step already: the staged version is walked against the base, metadata only, and
//! the list goes out in chunks while the walk goes on. Its cost follows what was staged.
//!
//! The staged version is written to meanwhile, but only behind the walk: the source sends nothing for a block before it was
//! told what is held up to there.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::{BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, EngineError, StagedVersion};
use farside_wire::RunKind;
use tokio::io::AsyncWrite;
use uuid::Uuid;

use crate::error::{TransferError, blocking, piece};
use crate::limits::{HELD_BLOCKS_PER_CHUNK, HELD_RUNS_PER_CHUNK};
use crate::protocol::held::{Held, HeldRun, encode_chunk, short};
use crate::protocol::stream::{self, StreamMessage};

/// What is told of.
pub(crate) struct Holding {
    pub(crate) staged: Arc<dyn StagedVersion>,
    pub(crate) held: Held,
    /// The base of the step, as this side calls it.
    pub(crate) base: Option<Uuid>,
    pub(crate) size_bytes: u64,
}

/// Sends all of it. `sent` counts its bytes of data. The wait for a source that reads slowly has no limit of its own: it
/// reads on as fast as it sends, and whether it still does that is watched where its frames arrive.
pub(crate) async fn send(
    holding: Holding,
    io: &mut (impl AsyncWrite + Unpin + ?Sized),
    sent: &AtomicU64,
) -> Result<(), TransferError> {
    let mut walk = blocking(move || Walk::begin(holding)).await?;
    loop {
        let runs;
        (runs, walk) = piece(move || {
            let runs = walk.chunk()?;
            Ok::<_, EngineError>((runs, walk))
        })
        .await?;
        let message =
            if runs.is_empty() { StreamMessage::HeldEnd } else { StreamMessage::Held(encode_chunk(&runs)) };
        let data_blocks: u64 = runs.iter().filter(|r| r.kind == RunKind::Data).map(|r| r.blocks).sum();
        sent.fetch_add(data_blocks * BLOCK_BYTES, Ordering::Relaxed);
        stream::write(io, &message).await.map_err(|e| farside_peer::SessionError::Lost(e.to_string()))?;
        if runs.is_empty() {
            return Ok(());
        }
    }
}

struct Walk {
    holding: Holding,
    extents: ChangedExtents,
    /// What of an extent did not fit into the chunk before.
    rest: VecDeque<ChangedExtent>,
}

impl Walk {
    fn begin(holding: Holding) -> Result<Walk, EngineError> {
        let extents = holding.staged.changed_from(holding.base)?;
        Ok(Walk { holding, extents, rest: VecDeque::new() })
    }

    /// The next extent within the snapshot's size, whole blocks.
    fn next(&mut self) -> Result<Option<ChangedExtent>, EngineError> {
        if let Some(rest) = self.rest.pop_front() {
            return Ok(Some(rest));
        }
        let Some(extent) = self.extents.next().transpose()? else { return Ok(None) };
        let length = extent.length.min(self.holding.size_bytes.saturating_sub(extent.offset));
        // They ascend: what lies past the end is followed by nothing that does not.
        Ok(Some(ChangedExtent { length, ..extent }).filter(|e| e.length > 0))
    }

    /// The next chunk; empty at the end.
    fn chunk(&mut self) -> Result<Vec<HeldRun>, EngineError> {
        let with_fingerprints = self.holding.held == Held::Fingerprints;
        let mut runs = Vec::new();
        let mut room = HELD_BLOCKS_PER_CHUNK;
        while room > 0 && (runs.len() as u64) < HELD_RUNS_PER_CHUNK {
            let Some(extent) = self.next()? else { break };
            let position = extent.offset / BLOCK_BYTES;
            let mut blocks = extent.length / BLOCK_BYTES;
            let kind = match extent.kind {
                ChangeKind::Data => RunKind::Data,
                ChangeKind::Hole => RunKind::Hole,
            };
            let mut fingerprints = Vec::new();
            if with_fingerprints && kind == RunKind::Data {
                let fits = blocks.min(room);
                if fits < blocks {
                    let length = fits * BLOCK_BYTES;
                    self.rest.push_back(ChangedExtent {
                        offset: extent.offset + length,
                        length: extent.length - length,
                        ..extent
                    });
                }
                blocks = fits;
                room -= fits;
                fingerprints =
                    self.holding.staged.fingerprints(position, blocks)?.iter().map(short).collect();
            }
            runs.push(HeldRun { position, blocks, kind, fingerprints });
        }
        Ok(runs)
    }
}
