//! The literals of one direction of a stream, as they were before they were compressed.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::block::Block;
use super::error::{DecodeError, malformed};
use super::layout::{COMPRESSED, NEW_FRAME};

/// Of one direction of a stream.
#[derive(Default)]
pub(super) struct Decompressor {
    history: Option<DCtx<'static>>,
    /// Of that history.
    window_log: u8,
    literals: Vec<u8>,
}

impl Decompressor {
    /// The literals of a block: as many as it announces, or an error.
    pub(super) fn literals(&mut self, block: &Block<'_>) -> Result<&[u8], DecodeError> {
        self.literals.clear();
        if block.flags & COMPRESSED == 0 {
            self.literals.extend_from_slice(block.payload);
        } else {
            self.decompress(block)?;
        }
        Ok(&self.literals)
    }

    fn decompress(&mut self, block: &Block<'_>) -> Result<(), DecodeError> {
        if block.payload.len() > zstd_safe::compress_bound(block.literal_bytes) + 64 {
            return Err(malformed("its literals are larger than uncompressed"));
        }
        if block.flags & NEW_FRAME != 0 {
            // One of another size would keep its memory.
            let before = self.history.take().filter(|_| self.window_log == block.window_log);
            let history = match before {
                Some(history) => history,
                None => DCtx::try_create().ok_or(malformed("no memory for it"))?,
            };
            self.history = Some(begin(history, block.window_log)?);
            self.window_log = block.window_log;
        }
        let history =
            self.history.as_mut().ok_or(malformed("it goes on with a history that is not there"))?;
        // A byte more than announced, so that too many are noticed.
        self.literals.resize(block.literal_bytes + 1, 0);
        let mut written = 0;
        let mut input = InBuffer::around(block.payload);
        loop {
            let before = (input.pos(), written);
            let mut output = OutBuffer::around_pos(&mut self.literals[..], written);
            let decompressed = history.decompress_stream(&mut output, &mut input);
            written = output.pos();
            let is_at_end = input.pos() == block.payload.len();
            match decompressed {
                Err(_) => return Err(malformed("its literals do not decompress")),
                // A frame's end, and another behind it: no stream is said so.
                Ok(0) if !is_at_end => return Err(malformed("more than one frame")),
                Ok(_) => {}
            }
            if written > block.literal_bytes || (before == (input.pos(), written) && !is_at_end) {
                return Err(malformed("other literals than announced"));
            }
            if is_at_end && (written == block.literal_bytes || before == (input.pos(), written)) {
                break;
            }
        }
        self.literals.truncate(written);
        if written == block.literal_bytes { Ok(()) } else { Err(malformed("other literals than announced")) }
    }

    /// Also of what was needed for the last block: up to a MiB, which an idle stream has no use for.
    pub(super) fn drop_history(&mut self) {
        self.history = None;
        self.literals = Vec::new();
    }
}

fn begin(mut history: DCtx<'static>, window_log: u8) -> Result<DCtx<'static>, DecodeError> {
    let is_ready = history.reset(ResetDirective::SessionOnly).is_ok()
        && history.set_parameter(DParameter::WindowLogMax(u32::from(window_log))).is_ok();
    is_ready.then_some(history).ok_or(malformed("no history for it"))
}
