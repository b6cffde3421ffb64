//! A frame back to blocks, believing nothing it says.

use farside_format::Fingerprint;
use zerocopy::IntoBytes;
use zstd_safe::{DCtx, DParameter, FrameFormat};

use crate::error::FrameError;
use crate::layout::{BLOCK_BYTES, Codec, DIGESTED_HEADER_BYTES, HEADER_BYTES, Header, WINDOW_BYTES_MAX};
use crate::prefix::{Region, Regions};
use crate::run::{Origin, Run, RunKind};
use crate::{digest, table};

/// The contents of a frame, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Its runs, ascending and apart.
    pub runs: Vec<Run>,
    /// The bytes of data and repeat runs, concatenated.
    pub bytes: Vec<u8>,
    /// Blocks of the base that served as prefix.
    pub base_blocks: u64,
    /// Blocks among them that are repeats.
    pub repeat_blocks: u64,
}

impl Decoded {
    /// Each run with its bytes; a hole has none.
    pub fn pieces(&self) -> impl Iterator<Item = (Run, &[u8])> {
        let mut rest = &self.bytes[..];
        self.runs.iter().map(move |run| match run.kind {
            RunKind::Hole => (*run, &[][..]),
            RunKind::Data | RunKind::Repeat { .. } => {
                let (bytes, after) = rest.split_at(run.blocks as usize * BLOCK_BYTES);
                rest = after;
                (*run, bytes)
            }
        })
    }
}

/// Decodes frames. Keeps its scratch memory between them (at most 20 MiB).
#[derive(Debug, Default)]
pub struct Decoder {
    prefix: Vec<u8>,
    data: Vec<u8>,
}

impl Decoder {
    /// A new one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Verifies and decodes one whole frame. After an error nothing of the frame was handed out.
    pub fn decode(&mut self, frame: &[u8], regions: &mut dyn Regions) -> Result<Decoded, FrameError> {
        let header = Header::parse(frame)?;
        let (table, payload) = frame[HEADER_BYTES..].split_at(header.table_bytes.get() as usize);
        let (runs, ranges) = table::read(&header, table)?;
        self.gather_prefix(&header, &ranges, regions)?;
        if digest::of_prefix(&self.prefix) != header.prefix_digest {
            return Err(FrameError::PrefixMismatch);
        }
        let codec = header.codec()?;
        self.decompress(&header, codec, payload)?;
        let bytes = self.lay_out(&header, &runs, regions)?;
        let found = digest::of_frame(
            &header.as_bytes()[..DIGESTED_HEADER_BYTES],
            table,
            if codec == Codec::Raw { &[] } else { payload },
            bytes.chunks_exact(BLOCK_BYTES).map(Fingerprint::of_block),
        );
        let repeat_blocks = u64::from(header.repeat_blocks.get());
        if found != header.frame_digest {
            return Err(if repeat_blocks > 0 { FrameError::RepeatMismatch } else { FrameError::Digest });
        }
        let base_blocks =
            ranges.iter().filter(|r| r.origin == Origin::Base).map(|r| u64::from(r.blocks)).sum();
        Ok(Decoded { runs, bytes, base_blocks, repeat_blocks })
    }

    /// The ranges add up to what the header says, at most 16 MiB.
    fn gather_prefix(
        &mut self,
        header: &Header,
        ranges: &[Region],
        regions: &mut dyn Regions,
    ) -> Result<(), FrameError> {
        claim(&mut self.prefix, header.prefix_blocks.get() as usize * BLOCK_BYTES);
        self.prefix.resize(ranges.iter().map(Region::bytes).sum(), 0);
        regions.read_all(ranges, &mut self.prefix).map_err(FrameError::PrefixUnavailable)
    }

    /// Leaves the data runs' bytes in `self.data`. The output is claimed by what the header says (at most 4 MiB) and
    /// can grow no further; decoding in one pass claims no window.
    fn decompress(&mut self, header: &Header, codec: Codec, payload: &[u8]) -> Result<(), FrameError> {
        let data_bytes = header.data_blocks.get() as usize * BLOCK_BYTES;
        match codec {
            Codec::Raw if !self.prefix.is_empty() => {
                Err(FrameError::Malformed("a raw payload with a prefix"))
            }
            Codec::Raw if payload.len() != data_bytes => {
                Err(FrameError::Payload("raw bytes are not as many as the data blocks"))
            }
            Codec::Raw => {
                claim(&mut self.data, data_bytes);
                self.data.extend_from_slice(payload);
                Ok(())
            }
            Codec::Zstd => {
                check_payload_header(payload)?;
                let failed = |code| FrameError::Payload(zstd_safe::get_error_name(code));
                let mut context = DCtx::try_create().ok_or(FrameError::Payload("no memory for a context"))?;
                context.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(failed)?;
                if !self.prefix.is_empty() {
                    context.ref_prefix(&self.prefix).map_err(failed)?;
                }
                claim(&mut self.data, data_bytes);
                self.data.resize(data_bytes, 0);
                let length = context.decompress(&mut self.data[..], payload).map_err(failed)?;
                if length != data_bytes {
                    return Err(FrameError::Payload("it is shorter than the data blocks"));
                }
                Ok(())
            }
        }
    }

    /// Data and repeats in the order of the runs: at most 4 and 16 MiB.
    fn lay_out(
        &mut self,
        header: &Header,
        runs: &[Run],
        regions: &mut dyn Regions,
    ) -> Result<Vec<u8>, FrameError> {
        if header.repeat_blocks == 0 {
            return Ok(std::mem::take(&mut self.data));
        }
        let mut bytes =
            Vec::with_capacity(self.data.len() + usize::from(header.repeat_blocks.get()) * BLOCK_BYTES);
        let mut data = &self.data[..];
        for run in runs {
            // Bounded by the header's counts, which the runs add up to.
            let length = run.blocks.min(u64::from(u32::MAX)) as usize * BLOCK_BYTES;
            match run.kind {
                RunKind::Hole => {}
                RunKind::Data => {
                    let (of_run, rest) = data.split_at(length);
                    bytes.extend_from_slice(of_run);
                    data = rest;
                }
                RunKind::Repeat { origin, from } => {
                    let at = bytes.len();
                    bytes.resize(at + length, 0);
                    regions.read(origin, from, &mut bytes[at..]).map_err(FrameError::RepeatUnavailable)?;
                }
            }
        }
        Ok(bytes)
    }
}

/// Empties `memory` and gives it room for just so many bytes; grown as it fills, it could take twice as many.
fn claim(memory: &mut Vec<u8>, bytes: usize) {
    memory.clear();
    if memory.capacity() < bytes {
        // First gives back what it had.
        *memory = Vec::new();
        memory.reserve_exact(bytes);
    }
}

/// Refuses a payload that does not begin as encoders have it begin (neither content size nor checksum nor dictionary), or that
/// asks for a window larger than any prefix and data need. Decoding in one pass would not claim it; a decoder that works
/// through a payload bit by bit would.
fn check_payload_header(payload: &[u8]) -> Result<(), FrameError> {
    let [0, window, ..] = payload else {
        return Err(FrameError::Payload("it does not begin as a payload does"));
    };
    let power = 1 << (10 + (window >> 3));
    let found = power + power / 8 * u64::from(window & 7);
    if found > WINDOW_BYTES_MAX {
        return Err(FrameError::Limit { what: "window bytes", found, limit: WINDOW_BYTES_MAX });
    }
    Ok(())
}
