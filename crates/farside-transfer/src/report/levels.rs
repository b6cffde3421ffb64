//! What travelled, by *level*: how a block was coded, from the cheapest to the dearest.
//!
//! The destination counts them itself, from what arrives: nothing of it is the source's word, but for which of the blocks
//! that this side took from its own store the source then left out ([`StepEnd::known_bytes`]). Counted are steps that
//! arrived whole; wire bytes of others are overhead.
//!
//! [`StepEnd::known_bytes`]: crate::protocol::StepEnd::known_bytes

use farside_wire::{FrameLevel, FrameStats};

/// How a block is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelKind {
    /// The destination's own store had the content; the source named its fingerprint and did not read it.
    Known,
    /// The same content stands elsewhere in what both sides hold; the frame names the place.
    Repeat,
    /// Compressed against content that both sides hold: the old bytes at the same place, or similar ones.
    Delta,
    /// Compressed by itself.
    Compressed,
    /// As it is: compressing it would not have helped, or the link is faster than the compressor.
    Raw,
}

impl LevelKind {
    /// All of them, the cheapest on the wire first.
    pub const ALL: [LevelKind; 5] =
        [LevelKind::Known, LevelKind::Repeat, LevelKind::Delta, LevelKind::Compressed, LevelKind::Raw];

    /// As JSON, metrics and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            LevelKind::Known => "known",
            LevelKind::Repeat => "repeat",
            LevelKind::Delta => "delta",
            LevelKind::Compressed => "compressed",
            LevelKind::Raw => "raw",
        }
    }
}

/// What was coded at one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Bytes of the volume.
    pub in_bytes: u64,
    /// What they cost: bytes of payloads, of table entries that name a place, of messages.
    pub out_bytes: u64,
}

impl Level {
    fn add(&mut self, other: Level) {
        self.in_bytes = self.in_bytes.saturating_add(other.in_bytes);
        self.out_bytes = self.out_bytes.saturating_add(other.out_bytes);
    }
}

/// All that travelled of a transfer. The bytes in add up to what changed and what was known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    /// See [`LevelKind::Known`].
    pub known: Level,
    /// See [`LevelKind::Repeat`].
    pub repeat: Level,
    /// See [`LevelKind::Delta`].
    pub delta: Level,
    /// See [`LevelKind::Compressed`].
    pub compressed: Level,
    /// See [`LevelKind::Raw`].
    pub raw: Level,
    /// Of the raw ones: bytes that look encrypted or packed already. None if there was nothing raw, or if a version counted them that
    /// did not look.
    pub noise_bytes: Option<u64>,
}

impl Levels {
    /// One of them.
    pub fn of(&self, kind: LevelKind) -> Level {
        match kind {
            LevelKind::Known => self.known,
            LevelKind::Repeat => self.repeat,
            LevelKind::Delta => self.delta,
            LevelKind::Compressed => self.compressed,
            LevelKind::Raw => self.raw,
        }
    }

    /// One of them, to be counted in.
    pub fn of_mut(&mut self, kind: LevelKind) -> &mut Level {
        match kind {
            LevelKind::Known => &mut self.known,
            LevelKind::Repeat => &mut self.repeat,
            LevelKind::Delta => &mut self.delta,
            LevelKind::Compressed => &mut self.compressed,
            LevelKind::Raw => &mut self.raw,
        }
    }

    /// Counts what a frame carried.
    pub fn add_frame(&mut self, frame: &FrameStats) {
        let kind = match frame.level {
            FrameLevel::Raw => LevelKind::Raw,
            FrameLevel::Compressed => LevelKind::Compressed,
            FrameLevel::Delta => LevelKind::Delta,
        };
        self.of_mut(kind).add(Level { in_bytes: frame.in_bytes, out_bytes: frame.out_bytes });
        let repeated = Level { in_bytes: frame.repeat_in_bytes, out_bytes: frame.repeat_out_bytes };
        self.repeat.add(repeated);
        if kind == LevelKind::Raw {
            self.add_noise(frame.noise_bytes);
        }
    }

    /// Adds what another step brought.
    pub fn add(&mut self, other: &Levels) {
        for kind in LevelKind::ALL {
            self.of_mut(kind).add(other.of(kind));
        }
        if let Some(bytes) = other.noise_bytes {
            self.add_noise(bytes);
        }
    }

    fn add_noise(&mut self, bytes: u64) {
        self.noise_bytes = Some(self.noise_bytes.unwrap_or(0).saturating_add(bytes));
    }

    /// Raw bytes that would have compressed: the link was faster. None of it where nobody looked.
    pub fn plain_bytes(&self) -> u64 {
        self.noise_bytes.map_or(0, |noise| self.raw.in_bytes.saturating_sub(noise))
    }

    /// Bytes of the volume on all of them.
    pub fn in_bytes(&self) -> u64 {
        LevelKind::ALL.iter().fold(0, |sum, kind| sum.saturating_add(self.of(*kind).in_bytes))
    }

    /// What all of them cost.
    pub fn out_bytes(&self) -> u64 {
        LevelKind::ALL.iter().fold(0, |sum, kind| sum.saturating_add(self.of(*kind).out_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_no_count_wraps() {
        let mut frame = FrameStats {
            level: FrameLevel::Delta,
            in_bytes: 8192,
            out_bytes: 100,
            noise_bytes: 0,
            repeat_in_bytes: 4096,
            repeat_out_bytes: 3,
        };
        let mut step = Levels::default();
        step.add_frame(&frame);
        assert_eq!((step.noise_bytes, step.plain_bytes()), (None, 0));
        frame = FrameStats { level: FrameLevel::Raw, noise_bytes: 4096, ..frame };
        step.add_frame(&frame);
        assert_eq!(step.delta, Level { in_bytes: 8192, out_bytes: 100 });
        assert_eq!(step.repeat, Level { in_bytes: 8192, out_bytes: 6 });
        assert_eq!((step.in_bytes(), step.out_bytes()), (3 * 8192, 206));

        let mut all = Levels { known: Level { in_bytes: u64::MAX, out_bytes: 1 }, ..Levels::default() };
        all.known.add(Level { in_bytes: 1, out_bytes: 1 });
        all.add(&step);
        assert_eq!((all.noise_bytes, all.plain_bytes()), (Some(4096), 4096));
        assert_eq!(all.known, Level { in_bytes: u64::MAX, out_bytes: 2 });
        assert_eq!((all.in_bytes(), all.out_bytes()), (u64::MAX, 208));
    }
}
