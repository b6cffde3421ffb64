//! The literals of one direction of a stream, compressed, each block with those before as history.

use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::layout::{COMPRESSED, NEW_FRAME, WINDOW_LOG_MAX};
use super::settings::StreamSettings;

/// Share of its bytes that compressed literals may have and still be worth it.
const WORTH: f64 = 0.97;
/// Fewer literal bytes than this go as they are: a flush of zstd alone takes five.
const COMPRESSED_MIN: usize = 24;
/// Literal bytes after which a stream that did not get smaller goes uncompressed.
const NOISE_AFTER: u64 = 128 << 10;
/// Literal bytes that then go uncompressed before the next is tried, at first and at most.
const NOISE_FOR: (u64, u64) = (1 << 20, 64 << 20);

/// Of one direction of a stream.
pub(super) struct Compressor {
    settings: StreamSettings,
    history: Option<CCtx<'static>>,
    noise: Noise,
    compressed: Vec<u8>,
}

/// Whether it is worth compressing what comes.
#[derive(Clone, Copy, Debug)]
struct Noise {
    in_bytes: u64,
    out_bytes: u64,
    /// Bytes that go uncompressed yet.
    skip: u64,
    next_skip: u64,
}

impl Compressor {
    pub(super) fn new(settings: StreamSettings) -> Compressor {
        Compressor { settings, history: None, noise: Noise::new(), compressed: Vec::new() }
    }

    /// The payload of a block with these literals, and the flags that say what it is.
    pub(super) fn payload<'a>(&'a mut self, literals: &'a [u8]) -> (u8, &'a [u8]) {
        if !self.settings.compresses || !self.noise.tries(literals.len()) {
            return (0, literals);
        }
        let is_new = self.history.is_none();
        if !self.go_on(literals) {
            return (0, literals);
        }
        (COMPRESSED | if is_new { NEW_FRAME } else { 0 }, &self.compressed)
    }

    /// False if zstd does not; then the history begins anew.
    fn go_on(&mut self, literals: &[u8]) -> bool {
        let history = match &mut self.history {
            Some(history) => history,
            None => {
                let Some(history) = begin(self.settings) else { return false };
                self.history.insert(history)
            }
        };
        if compress(history, literals, &mut self.compressed).is_err() {
            self.history = None;
            return false;
        }
        self.noise.note(literals.len(), self.compressed.len());
        true
    }

    /// Also of what was needed for the last block.
    pub(super) fn drop_history(&mut self) {
        self.history = None;
        self.compressed = Vec::new();
    }

    /// From the next history on.
    pub(super) fn set(&mut self, settings: StreamSettings) {
        let is_other =
            (settings.level, settings.window_log) != (self.settings.level, self.settings.window_log);
        // One that is not used is memory for nothing.
        if is_other || !settings.compresses {
            self.history = None;
        }
        // Whoever has it compressed again wants to know what it is now.
        if !settings.compresses {
            self.noise = Noise::new();
        }
        self.settings = settings;
    }
}

/// Bytes without a history before or after them, as a payload of those flags. None if that is no smaller.
pub(super) fn compress_alone(settings: StreamSettings, bytes: &[u8]) -> Option<(u8, Vec<u8>)> {
    if !settings.compresses {
        return None;
    }
    let mut compressed = Vec::new();
    compress(&mut begin(settings)?, bytes, &mut compressed).ok()?;
    (compressed.len() < bytes.len()).then_some((COMPRESSED | NEW_FRAME, compressed))
}

impl Noise {
    fn new() -> Noise {
        Noise { in_bytes: 0, out_bytes: 0, skip: 0, next_skip: NOISE_FOR.0 }
    }

    fn tries(&mut self, bytes: usize) -> bool {
        if bytes < COMPRESSED_MIN {
            return false;
        }
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(bytes as u64);
            return false;
        }
        true
    }

    fn note(&mut self, in_bytes: usize, out_bytes: usize) {
        self.in_bytes += in_bytes as u64;
        self.out_bytes += out_bytes as u64;
        if self.in_bytes < NOISE_AFTER {
            return;
        }
        if self.out_bytes as f64 > WORTH * self.in_bytes as f64 {
            self.skip = self.next_skip;
            self.next_skip = (2 * self.next_skip).min(NOISE_FOR.1);
        } else {
            self.next_skip = NOISE_FOR.0;
        }
        (self.in_bytes, self.out_bytes) = (0, 0);
    }
}

fn begin(settings: StreamSettings) -> Option<CCtx<'static>> {
    let mut history = CCtx::try_create()?;
    let window_log = settings.window_log.clamp(10, WINDOW_LOG_MAX);
    let all = [
        CParameter::CompressionLevel(settings.level.clamp(1, 19)),
        CParameter::WindowLog(window_log),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ];
    all.into_iter().all(|parameter| history.set_parameter(parameter).is_ok()).then_some(history)
}

fn compress(history: &mut CCtx<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), zstd_safe::ErrorCode> {
    out.clear();
    // A flush ends a block; it adds three bytes to each 128 KiB, and some for what was left of the block before.
    out.reserve(zstd_safe::compress_bound(bytes.len()) + 64);
    let mut input = InBuffer::around(bytes);
    let mut output = OutBuffer::around(out);
    loop {
        let left = history.compress_stream2(
            &mut output,
            &mut input,
            zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush,
        )?;
        if left == 0 && input.pos() == bytes.len() {
            return Ok(());
        }
        if output.pos() == output.capacity() {
            // Cannot be: the buffer takes whatever a flush makes of these bytes.
            return Err(0);
        }
    }
}
