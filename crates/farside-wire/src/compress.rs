//! zstd, set by hand for frames of about a MiB with a prefix of some MiB.

use zstd_safe::{CCtx, CParameter, FrameFormat};

use crate::effort::Effort;
use crate::error::EncodeError;

/// How zstd is set; the other parameters follow from the level. More level is not fewer bytes: 5 was measured at nine
/// times the size of 3 on rewritten files, and long-distance matching at twice the size on a database with 9.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Setting {
    level: i32,
    /// log2 of the hash table's slots at most. One slot per 8 bytes of prefix and input together is needed.
    hash_log: u32,
    /// log2 of the slots of the second table: short hashes of levels 1 to 4, chains above.
    chain_log: u32,
}

impl Setting {
    /// Those that are tried; the smallest outcome counts.
    fn of(effort: Effort, has_prefix: bool) -> &'static [Setting] {
        match (effort, has_prefix) {
            (Effort::Raw | Effort::Fast, _) => &[FAST],
            (Effort::Standard, false) => &[ALONE],
            (Effort::Standard, true) => &[AGAINST],
            // What the slow one loses (sequences of four letters: a fifth), one of the quick ones wins, at next to no cost.
            (Effort::Strong, _) => &[THOROUGH, AGAINST, FAST],
        }
    }
}

const FAST: Setting = Setting { level: 1, hash_log: 18, chain_log: 16 };
/// As `zstd -3` has it, which is no slower then.
const ALONE: Setting = Setting { level: 3, hash_log: 17, chain_log: 16 };
const AGAINST: Setting = Setting { level: 3, hash_log: 20, chain_log: 16 };
/// Against level 3 a fifth smaller on databases (the bound, the whole old image as prefix, comes within 15 %) and first
/// copies (below `zstd -9 --long=27` of the image or level with it), at 10 to 60 MB/s.
const THOROUGH: Setting = Setting { level: 9, hash_log: 22, chain_log: 22 };

/// The compressor and the memory of what it makes.
///
/// Each frame has a zstd context of its own: the safe binding ties a context to the life of its prefix. The context's
/// tables come back from the allocator each time.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    compressed: Vec<u8>,
    /// The smallest so far of a frame.
    best: Vec<u8>,
}

impl Compressor {
    /// `data`, of at least a byte, coded against `prefix`; may be longer than it.
    pub(crate) fn compress(
        &mut self,
        data: &[u8],
        prefix: &[u8],
        effort: Effort,
    ) -> Result<&[u8], EncodeError> {
        self.best.clear();
        for setting in Setting::of(effort, !prefix.is_empty()) {
            self.compress_as(*setting, data, prefix)?;
            if self.best.is_empty() || self.compressed.len() < self.best.len() {
                std::mem::swap(&mut self.best, &mut self.compressed);
            }
        }
        Ok(&self.best)
    }

    fn compress_as(&mut self, setting: Setting, data: &[u8], prefix: &[u8]) -> Result<(), EncodeError> {
        self.compressed.clear();
        self.compressed.reserve(zstd_safe::compress_bound(data.len()));
        let failed = |code| EncodeError::Compressor(zstd_safe::get_error_name(code));
        let mut context = CCtx::try_create().ok_or(EncodeError::Compressor("no memory for a context"))?;
        let reach_log = (prefix.len() + data.len()).next_power_of_two().trailing_zeros();
        for parameter in [
            CParameter::CompressionLevel(setting.level),
            // Taken from the level, the window would end inside the prefix and lose what lies farther back.
            CParameter::WindowLog(reach_log.max(10)),
            CParameter::HashLog((reach_log - 1).clamp(12, setting.hash_log)),
            CParameter::ChainLog(setting.chain_log.min(reach_log)),
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
