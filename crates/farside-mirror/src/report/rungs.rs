//! What travelled, by *rung*: the way a block took to the destination, from the cheapest to the dearest.
//!
//! The destination counts them itself, from what arrives: nothing of it is the source's word, but for which of the blocks
//! that this side took from its own store the source then left out ([`StepEnd::known_bytes`]). Counted are steps that
//! arrived whole; wire bytes of others are overhead.
//!
//! [`StepEnd::known_bytes`]: crate::protocol::StepEnd::known_bytes

use farside_wire::{FrameFigures, FrameRung};

/// A way that blocks take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RungKind {
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

impl RungKind {
    /// All of them, the cheapest on the wire first.
    pub const ALL: [RungKind; 5] =
        [RungKind::Known, RungKind::Repeat, RungKind::Delta, RungKind::Compressed, RungKind::Raw];

    /// As JSON, metrics and tables call it.
    pub fn name(self) -> &'static str {
        match self {
            RungKind::Known => "known",
            RungKind::Repeat => "repeat",
            RungKind::Delta => "delta",
            RungKind::Compressed => "compressed",
            RungKind::Raw => "raw",
        }
    }
}

/// What took one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rung {
    /// Bytes of the volume.
    pub in_bytes: u64,
    /// What they cost: bytes of payloads, of table entries that name a place, of messages.
    pub out_bytes: u64,
}

impl Rung {
    fn add(&mut self, other: Rung) {
        self.in_bytes = self.in_bytes.saturating_add(other.in_bytes);
        self.out_bytes = self.out_bytes.saturating_add(other.out_bytes);
    }
}

/// All that travelled of a transfer. The bytes in add up to what changed and what was known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rungs {
    /// See [`RungKind::Known`].
    pub known: Rung,
    /// See [`RungKind::Repeat`].
    pub repeat: Rung,
    /// See [`RungKind::Delta`].
    pub delta: Rung,
    /// See [`RungKind::Compressed`].
    pub compressed: Rung,
    /// See [`RungKind::Raw`].
    pub raw: Rung,
}

impl Rungs {
    /// One of them.
    pub fn of(&self, kind: RungKind) -> Rung {
        match kind {
            RungKind::Known => self.known,
            RungKind::Repeat => self.repeat,
            RungKind::Delta => self.delta,
            RungKind::Compressed => self.compressed,
            RungKind::Raw => self.raw,
        }
    }

    /// One of them, to be counted in.
    pub fn of_mut(&mut self, kind: RungKind) -> &mut Rung {
        match kind {
            RungKind::Known => &mut self.known,
            RungKind::Repeat => &mut self.repeat,
            RungKind::Delta => &mut self.delta,
            RungKind::Compressed => &mut self.compressed,
            RungKind::Raw => &mut self.raw,
        }
    }

    /// Counts what a frame carried.
    pub fn add_frame(&mut self, frame: &FrameFigures) {
        let kind = match frame.rung {
            FrameRung::Raw => RungKind::Raw,
            FrameRung::Compressed => RungKind::Compressed,
            FrameRung::Delta => RungKind::Delta,
        };
        self.of_mut(kind).add(Rung { in_bytes: frame.in_bytes, out_bytes: frame.out_bytes });
        let repeated = Rung { in_bytes: frame.repeat_in_bytes, out_bytes: frame.repeat_out_bytes };
        self.repeat.add(repeated);
    }

    /// Adds what another step brought.
    pub fn add(&mut self, other: &Rungs) {
        for kind in RungKind::ALL {
            self.of_mut(kind).add(other.of(kind));
        }
    }

    /// Bytes of the volume on all of them.
    pub fn in_bytes(&self) -> u64 {
        RungKind::ALL.iter().fold(0, |sum, kind| sum.saturating_add(self.of(*kind).in_bytes))
    }

    /// What all of them cost.
    pub fn out_bytes(&self) -> u64 {
        RungKind::ALL.iter().fold(0, |sum, kind| sum.saturating_add(self.of(*kind).out_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_no_count_wraps() {
        let mut frame = FrameFigures {
            rung: FrameRung::Delta,
            in_bytes: 8192,
            out_bytes: 100,
            repeat_in_bytes: 4096,
            repeat_out_bytes: 3,
        };
        let mut step = Rungs::default();
        step.add_frame(&frame);
        frame.rung = FrameRung::Raw;
        step.add_frame(&frame);
        assert_eq!(step.delta, Rung { in_bytes: 8192, out_bytes: 100 });
        assert_eq!(step.repeat, Rung { in_bytes: 8192, out_bytes: 6 });
        assert_eq!((step.in_bytes(), step.out_bytes()), (3 * 8192, 206));

        let mut all = Rungs { known: Rung { in_bytes: u64::MAX, out_bytes: 1 }, ..Rungs::default() };
        all.known.add(Rung { in_bytes: 1, out_bytes: 1 });
        all.add(&step);
        assert_eq!(all.known, Rung { in_bytes: u64::MAX, out_bytes: 2 });
        assert_eq!((all.in_bytes(), all.out_bytes()), (u64::MAX, 208));
    }
}
