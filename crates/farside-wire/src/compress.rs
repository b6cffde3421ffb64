//! zstd, set by hand for frames of about a MiB with a prefix of some MiB.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
            (Effort::Raw | Effort::Fast, false) => &[FAST_ALONE],
            (Effort::Raw | Effort::Fast, true) => &[FAST],
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
/// A table as small as that of `zstd -3`, which is no quicker then: 0.3 % more bytes (1.3 of a database) at 5 to 20 % more speed.
const FAST_ALONE: Setting = Setting { hash_log: 17, ..FAST };
/// As `zstd -3` has it, which is no slower then.
const ALONE: Setting = Setting { level: 3, hash_log: 17, chain_log: 16, min_match: 0 };
const AGAINST: Setting = Setting { level: 3, hash_log: 20, chain_log: 16, min_match: 0 };
/// First copies within 3 % of `zstd -9 --long=27` of the image, at a quarter to a half of the speed of level 3. Beside 6 it is
/// 0.4 to 1.7 % smaller and at most a tenth slower (a third on sequences); 9 is the same and slower, and so is a larger table.
const LAZY: Setting = Setting { level: 8, hash_log: 20, chain_log: 20, min_match: 0 };
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
    choices: Arc<Mutex<ChoiceHistory>>,
}

/// A frame's data, and what it is coded against.
#[derive(Clone, Copy, Debug)]
struct Input<'a> {
    data: &'a [u8],
    prefix: &'a [u8],
}

/// Part of its data that makes a frame with a prefix a large one. Updates of databases are below it, frame by frame.
const LARGE_PART: usize = 16;

/// What the compressors of a stream have learnt of its data: a short transfer is over before each has learnt it by itself.
#[derive(Clone, Copy, Debug, Default)]
struct ChoiceHistory {
    /// Among the settings of *thorough* against a prefix, the short one last.
    thorough: SettingChoice,
    /// Between the short one of *strong* (1) and its others (0).
    strong: SettingChoice,
}

/// Which of some settings wins lately, so that most frames are coded once: data of a kind comes together.
#[derive(Clone, Copy, Debug, Default)]
struct SettingChoice {
    /// The setting that won last, by its place in the list.
    winner: usize,
    /// Frames that are still coded with it alone.
    alone: u32,
    /// For how many when it wins again.
    next_alone: u32,
    /// A frame is being coded with all of them; the others that are begun meanwhile do with the winner, if there is one.
    is_trial: bool,
    /// There was a winner: an update may be over after a few frames, and the wrong setting be a quarter larger.
    is_known: bool,
}

/// What is tried on a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tries {
    All,
    /// The setting at this place.
    One(usize),
}

impl Tries {
    fn has(self, place: usize) -> bool {
        self == Tries::All || self == Tries::One(place)
    }
}

impl SettingChoice {
    /// For the frame that begins. [`Tries::All`] is to be followed by [`won`](SettingChoice::won).
    fn begin(&mut self) -> Tries {
        if self.alone == 0 && !(self.is_trial && self.is_known) {
            self.is_trial = true;
            return Tries::All;
        }
        self.alone = self.alone.saturating_sub(1);
        Tries::One(self.winner)
    }

    /// What the settings made of the frame on which all were tried. Where only 1 part in `matters` of its bytes is between
    /// them, the present winner stays.
    fn won(&mut self, made: &Made, matters: usize) {
        (self.is_trial, self.is_known) = (false, true);
        let least = made.iter().copied().min().unwrap_or_default();
        if made[self.winner] <= least.saturating_add(least / matters) {
            self.next_alone = (2 * self.next_alone + 1).min(ALONE_MAX);
        } else {
            self.winner = made.iter().position(|bytes| *bytes == least).unwrap_or_default();
            self.next_alone = 0;
        }
        self.alone = self.next_alone;
    }
}

/// Bytes that each setting made of a frame, by its place; the most there can be for one that was not tried.
type Made = [usize; 3];
const NOT_TRIED: Made = [usize::MAX; 3];

/// Part of its bytes by which a frame must be smaller for another setting to become the choice of *thorough*: two that are as
/// good would take turns, and both be tried on every frame.
const MATTERS: usize = 100;

/// Frames in a row for which only the setting that keeps winning is tried: the others cost an eighth of their time then.
const ALONE_MAX: u32 = 7;

impl Compressor {
    /// Another for the same stream, at the same time: both learn of the other's frames which settings win.
    pub(crate) fn beside(&self) -> Compressor {
        Compressor { choices: self.choices.clone(), ..Compressor::default() }
    }

    /// `data`, of at least a byte, coded against `prefix`; may be longer than it. It is quicker where `data` stands right
    /// behind `prefix` in memory.
    pub(crate) fn compress(
        &mut self,
        data: &[u8],
        prefix: &[u8],
        effort: Effort,
    ) -> Result<&[u8], EncodeError> {
        self.best.clear();
        let input = Input { data, prefix };
        let settings = Setting::of(effort, !prefix.is_empty());
        match Setting::short(effort).filter(|_| !prefix.is_empty()) {
            Some(short) if effort == Effort::Thorough => self.by_choice(settings, short, input)?,
            Some(short) => {
                self.try_each(settings, Tries::All, input)?;
                self.short_by_choice(short, input)?;
            }
            None => {
                self.try_each(settings, Tries::All, input)?;
            }
        }
        Ok(&self.best)
    }

    /// Mostly one of the settings and the short one.
    fn by_choice(
        &mut self,
        settings: &[Setting],
        short: Setting,
        input: Input<'_>,
    ) -> Result<(), EncodeError> {
        let (tries, winner) = {
            let mut choices = self.choices();
            (choices.thorough.begin(), choices.thorough.winner)
        };
        let mut made = self.try_each(settings, tries, input)?;
        let place = settings.len();
        let is_short_tried = match tries {
            Tries::One(one) => one == place,
            Tries::All => winner == place || self.is_large(input.data),
        };
        if is_short_tried {
            made[place] = self.tries(short, input)?;
        }
        if tries == Tries::All {
            self.choices().thorough.won(&made, MATTERS);
        }
        Ok(())
    }

    /// Where bytes count most, after all others: mostly only where it wins.
    fn short_by_choice(&mut self, short: Setting, input: Input<'_>) -> Result<(), EncodeError> {
        if !self.is_large(input.data) {
            return Ok(());
        }
        let tries = self.choices().strong.begin();
        if tries.has(1) {
            let others = self.best.len();
            let made = [others, self.tries(short, input)?, usize::MAX];
            if tries == Tries::All {
                self.choices().strong.won(&made, usize::MAX);
            }
        }
        Ok(())
    }

    /// What those of `settings` make that are tried.
    fn try_each(
        &mut self,
        settings: &[Setting],
        tries: Tries,
        input: Input<'_>,
    ) -> Result<Made, EncodeError> {
        let mut made = NOT_TRIED;
        for (place, setting) in settings.iter().enumerate().filter(|(place, _)| tries.has(*place)) {
            made[place] = self.tries(*setting, input)?;
        }
        Ok(made)
    }

    fn is_large(&self, data: &[u8]) -> bool {
        self.best.len() > data.len() / LARGE_PART
    }

    fn choices(&self) -> MutexGuard<'_, ChoiceHistory> {
        // What is in it cannot be half changed.
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that this setting makes of a frame. The least is kept.
    fn tries(&mut self, setting: Setting, input: Input<'_>) -> Result<usize, EncodeError> {
        self.compress_as(setting, input)?;
        let bytes = self.compressed.len();
        if self.best.is_empty() || bytes < self.best.len() {
            std::mem::swap(&mut self.best, &mut self.compressed);
        }
        Ok(bytes)
    }

    fn compress_as(&mut self, setting: Setting, input: Input<'_>) -> Result<(), EncodeError> {
        let Input { data, prefix } = input;
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
    use std::collections::VecDeque;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// So many frames, `under_way` at a time, of which `winner` is the best: how often each of two settings was tried.
    fn frames(choice: &mut SettingChoice, count: usize, under_way: usize, winner: usize) -> [usize; 2] {
        let mut tried = [0, 0];
        let mut begun = VecDeque::new();
        for frame in 0..count + under_way {
            if frame >= under_way && begun.pop_front() == Some(Tries::All) {
                let made = [0, 1].map(|place| if place == winner { 900 } else { 1000 });
                choice.won(&[made[0], made[1], usize::MAX], MATTERS);
            }
            if frame < count {
                let tries = choice.begin();
                begun.push_back(tries);
                (0..2).filter(|place| tries.has(*place)).for_each(|place| tried[place] += 1);
            }
        }
        tried
    }

    #[test]
    fn what_keeps_winning_is_tried_alone_and_what_lost_now_and_then() {
        for under_way in 1..=3 {
            let mut choice = SettingChoice::default();
            let [loser, winner] = frames(&mut choice, 800, under_way, 1);
            assert!(
                winner >= 790 && (70..=110).contains(&loser),
                "{loser}, {winner} of 800, {under_way} at a time"
            );
            // The data is of another kind now: within a dozen frames that is seen.
            frames(&mut choice, 12, under_way, 0);
            assert_eq!(choice.winner, 0, "{under_way} at a time");
        }
    }

    #[test]
    fn what_one_learns_of_a_stream_the_one_beside_it_knows() {
        let mut rng = SmallRng::seed_from_u64(9);
        let (old, new) = (inodes(2048, &mut rng), inodes(2048, &mut rng));
        let mut first = Compressor::default();
        let mut second = first.beside();
        first.compress(&new, &old, Effort::Thorough).unwrap();
        let learnt = second.choices().thorough.winner;
        assert_eq!(learnt, 2, "matches of four bytes are what wins here");
        // The next frame that all are tried on is under way: the winner alone is tried on this one.
        first.choices().thorough.begin();
        let seen = second.compress(&new, &old, Effort::Thorough).unwrap().len();
        let short = Compressor::default()
            .tries(Setting::short(Effort::Thorough).unwrap(), Input { data: &new, prefix: &old })
            .unwrap();
        assert_eq!(seen, short);
    }

    #[test]
    fn the_first_frames_try_all_until_there_is_a_winner() {
        let mut choice = SettingChoice::default();
        assert_eq!([choice.begin(), choice.begin()], [Tries::All, Tries::All]);
        choice.won(&[1000, 800, 900], MATTERS);
        assert_eq!(choice.begin(), Tries::All, "it has to win again");
        assert_eq!(choice.begin(), Tries::One(1));
        choice.won(&[1000, 800, 900], MATTERS);
        assert_eq!(choice.begin(), Tries::One(1));
    }

    #[test]
    fn settings_that_are_as_good_do_not_take_turns() {
        let mut choice = SettingChoice::default();
        choice.won(&[1000, 992, usize::MAX], MATTERS);
        assert_eq!((choice.winner, choice.alone), (0, 1));
        let mut choice = SettingChoice::default();
        choice.won(&[1000, 980, 970], MATTERS);
        assert_eq!((choice.winner, choice.alone), (2, 0));
        // Where every byte counts the smaller one wins.
        let mut choice = SettingChoice::default();
        choice.won(&[1000, 999, usize::MAX], usize::MAX);
        assert_eq!(choice.winner, 1);
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
                alone.tries(*setting, Input { data: &new, prefix: &old }).unwrap();
            });
            let found = Compressor::default().compress(&new, &old, effort).unwrap().len();
            println!("{effort:?}: {found} of {}, {} without", new.len(), alone.best.len());
            assert!(found < new.len() && found * 100 <= alone.best.len() * 98);
        }
    }
}
