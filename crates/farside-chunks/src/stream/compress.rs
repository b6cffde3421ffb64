//! The literals of one direction of a stream, compressed, each block with those before as history.

use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::layout::{COMPRESSED, NEW_FRAME, WINDOW_LOG_ALONE, WINDOW_LOG_MAX, WINDOW_LOG_MIN};
use super::settings::StreamSettings;

/// Share of its bytes that compressed literals may have and still be worth it.
const WORTH: f64 = 0.97;
/// Fewer literal bytes than this go as they are: a flush of zstd alone takes five.
const COMPRESSED_MIN: usize = 24;
/// Literal bytes that a stream says before a history begins. A question with a short answer is over by then: two contexts of zstd
/// at either side, with tables of a megabyte, took a sixth of the processor time of a connection, for ten bytes.
const BEGINS_AFTER: u64 = 256;
/// A stream that has said fewer literals than this has a smaller history: its tables take 0.1 MiB.
const GREETING: u64 = 2 << 10;
/// log2 of a greeting's history.
const WINDOW_LOG_GREETING: u32 = 13;
/// Literal bytes after which a stream that did not get smaller goes uncompressed.
const NOISE_AFTER: u64 = 128 << 10;
/// Literal bytes that then go uncompressed before the next is tried, at first and at most.
const NOISE_FOR: (u64, u64) = (1 << 20, 64 << 20);
/// A stream that begins with fewer literals than this is a conversation, most likely. The tables of a long history alone are
/// up to 64 MiB, and to clear them for 500 bytes takes milliseconds.
const CONVERSATION: usize = 16 << 10;
/// log2 of a conversation's history.
const WINDOW_LOG_CONVERSATION: u32 = 17;
/// Histories from this size on also look for what repeats far back: 2^log bytes.
const WINDOW_LOG_FAR: u32 = 24;
/// A history with more bytes than this is worth more than a higher level.
const WORTH_KEEPING: u64 = 8 << 20;

/// Literal bytes by which it is judged how small they get.
const OF_LATE: f64 = 1_048_576.0;

/// Of one direction of a stream.
pub(super) struct Compressor {
    settings: StreamSettings,
    history: Option<History>,
    /// Literal bytes so far, since it was to forget.
    said: u64,
    noise: Noise,
    /// Bytes of late, before and after; they fade.
    of_late: (f64, f64),
    compressed: Vec<u8>,
}

/// A zstd frame that goes on.
struct History {
    context: CCtx<'static>,
    level: i32,
    window_log: u32,
    /// Literals that are in it.
    bytes: u64,
}

/// The literals of a block, as they travel.
pub(super) struct Payload<'a> {
    /// [`COMPRESSED`] and [`NEW_FRAME`].
    pub(super) flags: u8,
    /// Of the frame that begins; 0 if none does.
    pub(super) window_log: u8,
    pub(super) bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    fn plain(bytes: &'a [u8]) -> Payload<'a> {
        Payload { flags: 0, window_log: 0, bytes }
    }
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
        Compressor {
            settings,
            history: None,
            said: 0,
            of_late: (0.0, 0.0),
            noise: Noise::new(),
            compressed: Vec::new(),
        }
    }

    /// The payload of a block with these literals.
    pub(super) fn payload<'a>(&'a mut self, literals: &'a [u8]) -> Payload<'a> {
        let said = self.said;
        self.said += literals.len() as u64;
        let is_begun = self.history.is_some() || self.said >= BEGINS_AFTER;
        if !self.settings.compresses || !is_begun || !self.noise.tries(literals.len()) {
            return Payload::plain(literals);
        }
        if self.history.as_ref().is_some_and(|history| history.is_over(&self.settings, literals.len())) {
            self.history = None;
        }
        let is_new = self.history.is_none();
        let Some(window_log) = self.go_on(literals, said) else { return Payload::plain(literals) };
        let (flags, window_log) = if is_new { (COMPRESSED | NEW_FRAME, window_log) } else { (COMPRESSED, 0) };
        Payload { flags, window_log: window_log as u8, bytes: &self.compressed }
    }

    /// log2 of the history's size; none if zstd does not, and then the history begins anew.
    fn go_on(&mut self, literals: &[u8], said: u64) -> Option<u32> {
        let history = match &mut self.history {
            Some(history) => history,
            None => self.history.insert(History::begin(&self.settings, literals.len(), said)?),
        };
        let window_log = history.window_log;
        if compress(&mut history.context, literals, &mut self.compressed).is_err() {
            self.history = None;
            return None;
        }
        history.bytes += literals.len() as u64;
        let fades = 1.0 - (literals.len() as f64 / OF_LATE).min(1.0);
        self.of_late.0 = self.of_late.0 * fades + literals.len() as f64;
        self.of_late.1 = self.of_late.1 * fades + self.compressed.len() as f64;
        self.noise.note(literals.len(), self.compressed.len());
        Some(window_log)
    }

    /// So many literal bytes before the next are history.
    pub(super) fn history_bytes(&self) -> u64 {
        self.history.as_ref().map_or(0, |history| history.bytes.min(1 << history.window_log))
    }

    /// Bytes that a literal byte takes, by those of late; 1 before there were any.
    pub(super) fn ratio(&self) -> f64 {
        let (before, after) = self.of_late;
        if !self.settings.compresses || before == 0.0 { 1.0 } else { (after / before).min(1.0) }
    }

    /// Also of what was needed for the last block.
    pub(super) fn drop_history(&mut self) {
        self.history = None;
        self.said = 0;
        self.compressed = Vec::new();
    }

    /// From the next block on, as far as the history that there is allows.
    pub(super) fn set(&mut self, settings: StreamSettings) {
        // One that is not used is memory for nothing.
        if !settings.compresses {
            self.history = None;
        }
        // Whoever has it compressed again wants to know what it is now.
        if !settings.compresses {
            self.noise = Noise::new();
        }
        self.settings = settings;
    }
}

impl History {
    /// Of a stream that has said so much before.
    fn begin(settings: &StreamSettings, literals: usize, said: u64) -> Option<History> {
        let mut window_log = settings.window_log.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
        if literals < CONVERSATION {
            window_log = window_log.min(WINDOW_LOG_CONVERSATION);
        }
        if said + (literals as u64) < GREETING {
            window_log = window_log.min(WINDOW_LOG_GREETING);
        }
        let context = context(settings.level, window_log)?;
        Some(History { context, level: settings.level, window_log, bytes: 0 })
    }

    /// Whether what comes begins a new one, with these settings.
    fn is_over(&self, settings: &StreamSettings, literals: usize) -> bool {
        let (has, wanted) = (self.window_log, settings.window_log.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX));
        if has > wanted || self.level > settings.level {
            // Its memory, or time, is needed.
            return true;
        }
        if self.level < settings.level && self.bytes < WORTH_KEEPING {
            return true;
        }
        // What was a conversation has much to say now.
        let is_full = if has <= WINDOW_LOG_GREETING { 1 << has } else { 4 << has };
        let is_bulk = literals >= CONVERSATION || self.bytes >= is_full;
        has < wanted && is_bulk && (has <= WINDOW_LOG_CONVERSATION || self.bytes >= 1 << has)
    }
}

/// Bytes without a history before or after them; as they are if they get no smaller.
pub(super) fn compress_alone<'a>(
    settings: StreamSettings,
    bytes: &'a [u8],
    compressed: &'a mut Vec<u8>,
) -> Payload<'a> {
    // A power of two that holds all of them.
    let window_log = bytes.len().max(1).next_power_of_two().ilog2().clamp(WINDOW_LOG_MIN, WINDOW_LOG_ALONE);
    let context = if settings.compresses { context(settings.level, window_log) } else { None };
    let is_compressed = context.is_some_and(|mut context| compress(&mut context, bytes, compressed).is_ok());
    if is_compressed && compressed.len() < bytes.len() {
        Payload { flags: COMPRESSED | NEW_FRAME, window_log: window_log as u8, bytes: compressed }
    } else {
        Payload::plain(bytes)
    }
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

fn context(level: i32, window_log: u32) -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    let all = [
        CParameter::CompressionLevel(level.clamp(1, 19)),
        CParameter::WindowLog(window_log),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::EnableLongDistanceMatching(window_log >= WINDOW_LOG_FAR),
    ];
    all.into_iter().all(|parameter| context.set_parameter(parameter).is_ok()).then_some(context)
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
