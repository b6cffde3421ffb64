//! A frame back to blocks, believing nothing it says.

use zerocopy::IntoBytes;
use zstd_safe::{DCtx, DParameter, FrameFormat};

use crate::error::FrameError;
use crate::history::History;
use crate::layout::{BLOCK_BYTES, Codec, DIGESTED_HEADER_BYTES, HEADER_BYTES, Header};
use crate::prefix::{PrefixOrigin, PrefixRange};
use crate::{Run, RunKind, digest, table};

/// Where a decoder finds the base's bytes.
pub trait PrefixSource {
    /// Fills `buffer` with the base's blocks from `position` on (blocks of 4096 bytes; past its end: zeros). An
    /// error says why it cannot be read.
    fn read_base(&mut self, position: u64, buffer: &mut [u8]) -> Result<(), String>;
}

/// The contents of a frame, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Its runs, ascending and apart.
    pub runs: Vec<Run>,
    /// The data runs' bytes, concatenated.
    pub data: Vec<u8>,
    /// Blocks of the base that served as prefix.
    pub base_blocks: u64,
}

impl Decoded {
    /// Each run with its bytes; a hole has none.
    pub fn pieces(&self) -> impl Iterator<Item = (Run, &[u8])> {
        let mut rest = &self.data[..];
        self.runs.iter().map(move |run| match run.kind {
            RunKind::Hole => (*run, &[][..]),
            RunKind::Data => {
                let (bytes, after) = rest.split_at(run.blocks as usize * BLOCK_BYTES);
                rest = after;
                (*run, bytes)
            }
        })
    }
}

/// Decodes the frames of one stream, in order. Keeps the stream's [`History`] and its scratch memory.
#[derive(Debug, Default)]
pub struct Decoder {
    history: History,
    prefix: Vec<u8>,
}

impl Decoder {
    /// For a stream that has carried nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Verifies and decodes one whole frame. After an error nothing of the frame was handed out and nothing of it
    /// entered the history.
    pub fn decode(&mut self, frame: &[u8], base: &mut dyn PrefixSource) -> Result<Decoded, FrameError> {
        let header = Header::parse(frame)?;
        let (table, payload) = frame[HEADER_BYTES..].split_at(header.table_bytes.get() as usize);
        let (runs, ranges) = table::read(&header, table)?;
        self.gather_prefix(&ranges, base)?;
        if digest::of_prefix(&self.prefix) != header.prefix_digest {
            return Err(FrameError::PrefixMismatch);
        }
        let data = decompress(&header, payload, &self.prefix)?;
        let found = digest::of_frame(&header.as_bytes()[..DIGESTED_HEADER_BYTES], table, payload, &data);
        if found != header.frame_digest {
            return Err(FrameError::Digest);
        }
        self.history.push(&data);
        let base_blocks =
            ranges.iter().filter(|r| r.origin == PrefixOrigin::Base).map(|r| u64::from(r.blocks)).sum();
        Ok(Decoded { runs, data, base_blocks })
    }

    /// The ranges were bounded when the table was read, so this is at most 16 MiB.
    fn gather_prefix(
        &mut self,
        ranges: &[PrefixRange],
        base: &mut dyn PrefixSource,
    ) -> Result<(), FrameError> {
        self.prefix.clear();
        for range in ranges {
            match range.origin {
                PrefixOrigin::Base => {
                    let from = self.prefix.len();
                    self.prefix.resize(from + range.blocks as usize * BLOCK_BYTES, 0);
                    base.read_base(range.position, &mut self.prefix[from..])
                        .map_err(FrameError::PrefixUnavailable)?;
                }
                PrefixOrigin::Carried => {
                    let bytes = self.history.blocks(range.position, range.blocks).ok_or_else(|| {
                        FrameError::PrefixUnavailable(
                            "it names data that this stream has not lately carried".into(),
                        )
                    })?;
                    self.prefix.extend_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}

/// The output is claimed by what the header says (at most 4 MiB) and can grow no further; decoding in one pass
/// needs no window of its own, whatever the payload says of it.
fn decompress(header: &Header, payload: &[u8], prefix: &[u8]) -> Result<Vec<u8>, FrameError> {
    let data_bytes = header.data_blocks.get() as usize * BLOCK_BYTES;
    match header.codec()? {
        Codec::Raw if !prefix.is_empty() => Err(FrameError::Malformed("a raw payload with a prefix")),
        Codec::Raw if payload.len() != data_bytes => {
            Err(FrameError::Payload("raw bytes are not as many as the data blocks"))
        }
        Codec::Raw => Ok(payload.to_vec()),
        Codec::Zstd => {
            let failed = |code| FrameError::Payload(zstd_safe::get_error_name(code));
            let mut context = DCtx::try_create().ok_or(FrameError::Payload("no memory for a context"))?;
            context.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(failed)?;
            if !prefix.is_empty() {
                context.ref_prefix(prefix).map_err(failed)?;
            }
            let mut data = vec![0; data_bytes];
            let length = context.decompress(&mut data[..], payload).map_err(failed)?;
            if length != data_bytes {
                return Err(FrameError::Payload("it is shorter than the data blocks"));
            }
            Ok(data)
        }
    }
}
