//! Blocks and a prefix to a frame.

use zerocopy::IntoBytes;
use zstd_safe::{CCtx, CParameter, FrameFormat};

use crate::error::EncodeError;
use crate::layout::{
    BLOCK_BYTES, Codec, DATA_BLOCKS_MAX, DIGESTED_HEADER_BYTES, FRAME_VERSION, HEADER_BYTES, Header, MAGIC,
    RUNS_MAX,
};
use crate::prefix::Prefix;
use crate::{Run, RunKind, digest, table};

/// zstd's level. With frames of this size 3 is the safe point: more level is not fewer bytes (level 5 without
/// long-distance matching was measured at nine times the size on rewritten files).
const LEVEL: i32 = 3;
/// log2 of the long hash table's slots at most: one slot per 8 bytes of prefix and input together is needed, and
/// 19 to 20 was measured best for 1 MiB frames.
const HASH_LOG_MAX: u32 = 20;
/// log2 of the short hash table's slots (zstd calls it chain log), the default of level 3.
const SHORT_HASH_LOG: u32 = 16;

/// What became of a frame's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// How the payload is coded.
    pub codec: Codec,
    /// Bytes of the whole frame.
    pub frame_bytes: usize,
    /// Bytes of its payload.
    pub payload_bytes: usize,
}

/// Makes frames. Keeps its scratch memory between them (at most about 4 MiB); use one per stream.
///
/// Each frame has a zstd context of its own: the safe binding ties a context to the life of its prefix. The
/// context's tables (up to 6 MiB) come back from the allocator each time, which is within the noise of a frame.
#[derive(Debug, Default)]
pub struct Encoder {
    compressed: Vec<u8>,
}

impl Encoder {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes one frame to `out` (cleared first): `runs`, ascending and apart, with the data runs' bytes
    /// concatenated in `data`, against `prefix`.
    pub fn encode(
        &mut self,
        runs: &[Run],
        data: &[u8],
        prefix: &Prefix,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, EncodeError> {
        let data_blocks = check(runs, data)?;
        self.compress(data, prefix.bytes())?;
        let (codec, payload) = if self.compressed.len() < data.len() {
            (Codec::Zstd, &self.compressed[..])
        } else {
            (Codec::Raw, data)
        };
        // A raw payload refers to nothing; naming the prefix would make the destination read it in vain.
        let (ranges, prefix_bytes) =
            if codec == Codec::Zstd { (prefix.ranges(), prefix.bytes()) } else { (&[][..], &[][..]) };

        out.clear();
        out.resize(HEADER_BYTES, 0);
        table::write(runs, ranges, out);
        let mut header = Header {
            magic: MAGIC,
            version: FRAME_VERSION,
            codec: codec as u8,
            zero: 0.into(),
            table_bytes: ((out.len() - HEADER_BYTES) as u32).into(),
            payload_bytes: (payload.len() as u32).into(),
            data_blocks: data_blocks.into(),
            prefix_blocks: ((prefix_bytes.len() / BLOCK_BYTES) as u32).into(),
            runs: (runs.len() as u32).into(),
            prefix_ranges: (ranges.len() as u32).into(),
            prefix_digest: digest::of_prefix(prefix_bytes),
            frame_digest: [0; 16],
        };
        header.frame_digest = digest::of_frame(
            &header.as_bytes()[..DIGESTED_HEADER_BYTES],
            &out[HEADER_BYTES..],
            payload,
            data,
        );
        out[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        out.extend_from_slice(payload);
        Ok(Encoded { codec, frame_bytes: out.len(), payload_bytes: payload.len() })
    }

    /// Leaves the compressed data in `self.compressed`; as long as `data` or longer means it did not help.
    fn compress(&mut self, data: &[u8], prefix: &[u8]) -> Result<(), EncodeError> {
        self.compressed.clear();
        if data.is_empty() {
            return Ok(());
        }
        self.compressed.reserve(zstd_safe::compress_bound(data.len()));
        let failed = |code| EncodeError::Compressor(zstd_safe::get_error_name(code));
        let mut context = CCtx::try_create().ok_or(EncodeError::Compressor("no memory for a context"))?;
        let reach_log = (prefix.len() + data.len()).next_power_of_two().trailing_zeros();
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            // Taken from the level, the window would end inside the prefix and lose what lies farther back.
            CParameter::WindowLog(reach_log.max(10)),
            CParameter::HashLog((reach_log - 1).clamp(12, HASH_LOG_MAX)),
            CParameter::ChainLog(SHORT_HASH_LOG.min(reach_log)),
            CParameter::EnableLongDistanceMatching(false),
            CParameter::ChecksumFlag(false),
            CParameter::ContentSizeFlag(false),
            CParameter::Format(FrameFormat::Magicless),
        ] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        if !prefix.is_empty() {
            context.ref_prefix(prefix).map_err(failed)?;
        }
        context.compress2(&mut self.compressed, data).map_err(failed)?;
        Ok(())
    }
}

/// The encoder's input is this program's own: what it checks here are mistakes of the caller.
fn check(runs: &[Run], data: &[u8]) -> Result<u32, EncodeError> {
    if runs.is_empty() || runs.len() > RUNS_MAX as usize {
        return Err(EncodeError::Limit { what: "runs", found: runs.len() as u64, limit: RUNS_MAX.into() });
    }
    let (mut end, mut data_blocks) = (0, 0u64);
    for run in runs {
        if run.blocks == 0 || run.position < end || run.end() > farside_format::fingerprint::BLOCKS_MAX {
            return Err(EncodeError::Input(
                "the runs of a frame must ascend, not be empty and lie within a volume",
            ));
        }
        if run.kind == RunKind::Data {
            data_blocks += run.blocks;
        }
        end = run.end();
    }
    if data_blocks > DATA_BLOCKS_MAX.into() {
        return Err(EncodeError::Limit {
            what: "data blocks",
            found: data_blocks,
            limit: DATA_BLOCKS_MAX.into(),
        });
    }
    if data.len() as u64 != data_blocks * BLOCK_BYTES as u64 {
        return Err(EncodeError::Input("the data of a frame must be as long as its data runs"));
    }
    Ok(data_blocks as u32)
}
