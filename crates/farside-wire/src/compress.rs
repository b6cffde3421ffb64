//! zstd, set by hand for frames of about a MiB with a prefix of some MiB.

use zstd_safe::{CCtx, CParameter, FrameFormat};

use crate::effort::Effort;
use crate::error::EncodeError;

/// How zstd is set; the other parameters follow from the level. More level is not fewer bytes: 6 was measured at a quarter
/// more than 3 on the update of sequences, and long-distance matching at twice the size on a database with 9.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Setting {
    level: i32,
    /// log2 of the hash table's slots at most. One slot per 8 bytes of prefix and input together is needed.
    hash_log: u32,
    /// log2 of the slots of the second table: short hashes of levels 1 to 4, chains above.
    chain_log: u32,
    /// Shortest match looked for; 0: what the level has, 5 and more.
    min_match: u32,
}

impl Setting {
    /// Those that are tried; the smallest outcome counts.
    fn of(effort: Effort, has_prefix: bool) -> &'static [Setting] {
        match (effort, has_prefix) {
            (Effort::Raw | Effort::Fast, _) => &[FAST],
            (Effort::Standard, false) => &[ALONE],
            (Effort::Standard, true) => &[AGAINST],
            (Effort::Thorough, false) => &[LAZY],
            (Effort::Thorough, true) => &[LAZY, AGAINST],
            // What the slow one loses (sequences of four letters: a fifth), one of the quick ones wins, at next to no cost.
            (Effort::Strong, _) => &[DEEP, AGAINST, FAST],
        }
    }

    /// One more for a frame that is large beside what it is coded against: tables of short fields of which some are new and the others
    /// a neighbour's, as the inodes of files that were written anew are. These make up half of such an update, and are 3 to 5 %
    /// smaller with matches of four bytes; databases are 1 to 2 % larger.
    fn short(effort: Effort) -> Option<Setting> {
        match effort {
            Effort::Thorough => Some(Setting { min_match: 4, ..LAZY }),
            Effort::Strong => Some(Setting { min_match: 4, ..DEEP }),
            _ => None,
        }
    }
}

const FAST: Setting = Setting { level: 1, hash_log: 18, chain_log: 16, min_match: 0 };
/// As `zstd -3` has it, which is no slower then.
const ALONE: Setting = Setting { level: 3, hash_log: 17, chain_log: 16, min_match: 0 };
const AGAINST: Setting = Setting { level: 3, hash_log: 20, chain_log: 16, min_match: 0 };
/// First copies within 5 % of `zstd -9 --long=27` of the image, at a third to a half of the speed of level 3. 5 is hardly
/// smaller than 3 on databases, 7 hardly than 6; a larger table is as good and slower.
const LAZY: Setting = Setting { level: 6, hash_log: 20, chain_log: 20, min_match: 0 };
/// Against level 3 a fifth smaller on databases (the bound, the whole old image as prefix, comes within 15 %) and first
/// copies (below `zstd -9 --long=27` of the image or level with it), at 10 to 60 MB/s.
const DEEP: Setting = Setting { level: 9, hash_log: 22, chain_log: 22, min_match: 0 };

/// The compressor and the memory of what it makes.
///
/// Each frame has a zstd context of its own: the safe binding ties a context to the life of its prefix. The context's
/// tables come back from the allocator each time.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    compressed: Vec<u8>,
    /// The smallest so far of a frame.
    best: Vec<u8>,
    habit: Habit,
    /// Between [`Setting::short`] (1) and the others (0).
    short: Habit,
}

/// Part of its data that makes a frame with a prefix a large one. Updates of databases are below it, frame by frame.
const LARGE_PART: usize = 16;

/// Which of two settings wins lately, so that most frames are coded once: data of a kind comes together.
#[derive(Debug, Default)]
struct Habit {
    /// The setting that won last, by its place in the list.
    winner: usize,
    /// Frames for which it alone is tried.
    alone: u32,
    /// For how many when it wins again.
    next_alone: u32,
}

impl Habit {
    /// Whether this one is tried on the present frame.
    fn tries(&self, place: usize) -> bool {
        self.alone == 0 || place == self.winner
    }

    /// The frame's winner.
    fn won(&mut self, place: usize) {
        if self.alone > 0 {
            self.alone -= 1;
            return;
        }
        let is_again = place == self.winner;
        self.next_alone = if is_again { (2 * self.next_alone + 1).min(ALONE_MAX) } else { 0 };
        (self.winner, self.alone) = (place, self.next_alone);
    }
}

/// Frames in a row for which only the setting that keeps winning is tried: the other costs an eighth of its time then.
const ALONE_MAX: u32 = 7;

impl Compressor {
    /// `data`, of at least a byte, coded against `prefix`; may be longer than it. It is quicker where `data` stands right
    /// behind `prefix` in memory.
    pub(crate) fn compress(
        &mut self,
        data: &[u8],
        prefix: &[u8],
        effort: Effort,
    ) -> Result<&[u8], EncodeError> {
        self.best.clear();
        let settings = Setting::of(effort, !prefix.is_empty());
        // Where bytes count most all are tried.
        let by_habit = effort == Effort::Thorough && settings.len() > 1;
        let mut winner = 0;
        for (place, setting) in settings.iter().enumerate() {
            if by_habit && !self.habit.tries(place) {
                continue;
            }
            if self.tries(*setting, data, prefix)? {
                winner = place;
            }
        }
        if by_habit {
            self.habit.won(winner);
        }
        if let Some(setting) = Setting::short(effort)
            && !prefix.is_empty()
            && self.best.len() > data.len() / LARGE_PART
        {
            let is_shorter = self.short.tries(1) && self.tries(setting, data, prefix)?;
            self.short.won(is_shorter.into());
        }
        Ok(&self.best)
    }

    /// Whether this setting makes less of `data` than those before.
    fn tries(&mut self, setting: Setting, data: &[u8], prefix: &[u8]) -> Result<bool, EncodeError> {
        self.compress_as(setting, data, prefix)?;
        let is_best = self.best.is_empty() || self.compressed.len() < self.best.len();
        if is_best {
            std::mem::swap(&mut self.best, &mut self.compressed);
        }
        Ok(is_best)
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
            CParameter::MinMatch(setting.min_match),
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

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn what_keeps_winning_is_tried_alone_and_what_lost_now_and_then() {
        let mut habit = Habit::default();
        let mut tried = [0, 0];
        let mut frame = |habit: &mut Habit, winner: usize| {
            for (place, tried) in tried.iter_mut().enumerate() {
                *tried += u32::from(habit.tries(place));
            }
            let alone = habit.alone > 0;
            habit.won(if alone { habit.winner } else { winner });
            tried
        };
        for _ in 0..800 {
            frame(&mut habit, 1);
        }
        let [loser, winner] = frame(&mut habit, 1);
        assert!(winner >= 800 && (100..110).contains(&loser), "{loser} of {winner}");
        // The data is of another kind now: within eight frames that is seen, and both are tried until it is sure.
        let until = (0..8).position(|_| {
            frame(&mut habit, 0);
            habit.winner == 0
        });
        assert!(until.is_some() && habit.alone <= ALONE_MAX);
    }

    /// Inodes: 256 bytes each, of which two times, a number and a checksum are new and the rest is that of a neighbour.
    fn inodes(count: usize, rng: &mut SmallRng) -> Vec<u8> {
        let mut table = Vec::with_capacity(256 * count);
        let mut size = 0u32;
        for number in 0..count as u32 {
            let mut inode = [0u8; 256];
            let (time, again): (u32, u32) = (rng.random(), rng.random());
            size = if number % 3 == 0 { rng.random_range(0..20_000) } else { size };
            for (at, field) in [
                (4, size),
                (44, number / 7),
                (100, rng.random()),
                (124, rng.random()),
                (132, time),
                (136, again),
                (148, time),
            ] {
                inode[at..at + 4].copy_from_slice(&u32::to_le_bytes(field));
            }
            table.extend_from_slice(&inode);
        }
        table
    }

    #[test]
    fn tables_of_short_fields_are_smaller_with_short_matches() {
        let seed = 6;
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let (old, new) = (inodes(4096, &mut rng), inodes(4096, &mut rng));
        for (effort, without) in
            [(Effort::Thorough, &[LAZY, AGAINST][..]), (Effort::Strong, &[DEEP, AGAINST, FAST])]
        {
            let mut alone = Compressor::default();
            without.iter().for_each(|setting| {
                alone.tries(*setting, &new, &old).unwrap();
            });
            let found = Compressor::default().compress(&new, &old, effort).unwrap().len();
            println!("{effort:?}: {found} of {}, {} without", new.len(), alone.best.len());
            assert!(found < new.len() && found * 100 <= alone.best.len() * 98);
        }
    }
}
