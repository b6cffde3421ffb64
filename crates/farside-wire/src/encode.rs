//! Blocks and a prefix to a frame.

use farside_format::Fingerprint;
use farside_format::fingerprint::BLOCKS_MAX;
use zerocopy::IntoBytes;

use crate::compress::Compressor;
use crate::effort::Effort;
use crate::error::EncodeError;
use crate::gate::Gate;
use crate::layout::{
    BLOCK_BYTES, Codec, DATA_BLOCKS_MAX, DIGESTED_HEADER_BYTES, FRAME_VERSION, FRAME_VERSION_OLDEST,
    HEADER_BYTES, Header, MAGIC, OTHERS_MAX, REPEAT_BLOCKS_MAX, RUNS_MAX,
};
use crate::prefix::{Prefix, Region};
use crate::run::{Origin, Run, RunKind};
use crate::stats::FrameLevel;
use crate::{digest, table};

/// What became of a frame's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// How the data blocks travel.
    pub level: FrameLevel,
    /// Bytes of the whole frame.
    pub frame_bytes: usize,
    /// Bytes of its payload.
    pub payload_bytes: usize,
    /// Bytes of its table.
    pub table_bytes: usize,
    /// Data blocks in it.
    pub data_blocks: u64,
    /// Blocks in it that are repeats.
    pub repeat_blocks: u64,
}

/// Makes frames. Keeps its scratch memory between them (at most about 4 MiB); use one per stream, or one per worker, the
/// others [`beside`](Encoder::beside) the first.
#[derive(Debug, Default)]
pub struct Encoder {
    compressor: Compressor,
    gate: Gate,
}

impl Encoder {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another for the same stream: what one learns of the settings that suit its data, all know.
    #[must_use]
    pub fn beside(&self) -> Encoder {
        Encoder { compressor: self.compressor.beside(), gate: Gate::default() }
    }

    /// Writes one frame to `out` (cleared first): `runs`, ascending and apart, with the data runs' bytes
    /// concatenated in `data`, against `prefix`. `fingerprints` are those of every data and repeat block, in order; they
    /// are believed here and checked by the destination. The prefix stays what it is; its memory serves as scratch.
    pub fn encode(
        &mut self,
        runs: &[Run],
        data: &[u8],
        fingerprints: &[Fingerprint],
        prefix: &mut Prefix,
        effort: Effort,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, EncodeError> {
        let blocks = check(runs, data, fingerprints)?;
        if prefix.ranges().iter().any(|r| matches!(r.origin, Origin::Other(n) if n >= OTHERS_MAX)) {
            return Err(EncodeError::Input("a prefix names more other volumes than there can be"));
        }
        let compressed = match effort {
            Effort::Raw => None,
            _ if data.is_empty() || !self.gate.lets_through(data, prefix) => None,
            _ => {
                let compressor = &mut self.compressor;
                let compressed = match prefix.bytes() {
                    [] => compressor.compress(data, &[], effort)?,
                    _ => prefix.joined(data, |prefix, data| compressor.compress(data, prefix, effort))?,
                };
                self.gate.was(compressed.len(), data.len());
                Some(compressed).filter(|c| c.len() < data.len())
            }
        };
        let is_compressed = compressed.is_some();
        let (codec, payload) = compressed.map_or((Codec::Raw, data), |bytes| (Codec::Zstd, bytes));
        // A raw payload refers to nothing; naming the prefix would make the destination read it in vain.
        let none: (&[Region], &[u8]) = (&[], &[]);
        let (ranges, prefix_bytes) = if is_compressed { (prefix.ranges(), prefix.bytes()) } else { none };

        out.clear();
        out.resize(HEADER_BYTES, 0);
        let prefix_ranges = table::write(runs, ranges, out);
        let table_bytes = out.len() - HEADER_BYTES;
        // Only who has offered other volumes gets frames that name some: to everybody else they are what they always were.
        let names_others = ranges.iter().any(|range| matches!(range.origin, Origin::Other(_)));
        let mut header = Header {
            magic: MAGIC,
            version: if names_others { FRAME_VERSION } else { FRAME_VERSION_OLDEST },
            codec: codec as u8,
            // All of these are within their limits, which fit.
            repeat_blocks: (blocks.repeat as u16).into(),
            table_bytes: (table_bytes as u32).into(),
            payload_bytes: (payload.len() as u32).into(),
            data_blocks: (blocks.data as u32).into(),
            prefix_blocks: ((prefix_bytes.len() / BLOCK_BYTES) as u32).into(),
            runs: (runs.len() as u32).into(),
            prefix_ranges: (prefix_ranges as u32).into(),
            prefix_digest: digest::of_prefix(prefix_bytes),
            frame_digest: [0; 16],
        };
        header.frame_digest = digest::of_frame(
            &header.as_bytes()[..DIGESTED_HEADER_BYTES],
            &out[HEADER_BYTES..],
            if is_compressed { payload } else { &[] },
            fingerprints.iter().copied(),
        );
        out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        out.extend_from_slice(payload);
        let level = match codec {
            Codec::Raw => FrameLevel::Raw,
            Codec::Zstd if prefix_bytes.is_empty() => FrameLevel::Compressed,
            Codec::Zstd => FrameLevel::Delta,
        };
        Ok(Encoded {
            level,
            frame_bytes: out.len(),
            payload_bytes: payload.len(),
            table_bytes,
            data_blocks: blocks.data,
            repeat_blocks: blocks.repeat,
        })
    }
}

/// Blocks of a frame.
struct Blocks {
    data: u64,
    repeat: u64,
}

/// The encoder's input is this program's own: what it checks here are mistakes of the caller.
fn check(runs: &[Run], data: &[u8], fingerprints: &[Fingerprint]) -> Result<Blocks, EncodeError> {
    let within = |what, found, limit: u32| {
        if found <= u64::from(limit) {
            Ok(())
        } else {
            Err(EncodeError::Limit { what, found, limit: limit.into() })
        }
    };
    within("runs", runs.len() as u64, RUNS_MAX)?;
    let (mut end, mut blocks) = (0, Blocks { data: 0, repeat: 0 });
    for run in runs {
        if run.blocks == 0 || run.position < end || run.end() > BLOCKS_MAX {
            return Err(EncodeError::Input(
                "the runs of a frame must ascend, not be empty and lie within a volume",
            ));
        }
        match run.kind {
            RunKind::Data => blocks.data += run.blocks,
            RunKind::Hole => {}
            RunKind::Repeat { from, .. } if from.saturating_add(run.blocks) > BLOCKS_MAX => {
                return Err(EncodeError::Input("what a frame repeats must lie within a volume"));
            }
            RunKind::Repeat { origin: Origin::Other(_), .. } => {
                return Err(EncodeError::Input("a frame repeats nothing of other volumes"));
            }
            RunKind::Repeat { .. } => blocks.repeat += run.blocks,
        }
        end = run.end();
    }
    if runs.is_empty() {
        return Err(EncodeError::Input("a frame needs runs"));
    }
    within("data blocks", blocks.data, DATA_BLOCKS_MAX)?;
    within("repeat blocks", blocks.repeat, REPEAT_BLOCKS_MAX)?;
    if data.len() as u64 != blocks.data * BLOCK_BYTES as u64 {
        return Err(EncodeError::Input("the data of a frame must be as long as its data runs"));
    }
    if fingerprints.len() as u64 != blocks.data + blocks.repeat {
        return Err(EncodeError::Input("a frame needs the fingerprint of each of its blocks"));
    }
    Ok(blocks)
}
