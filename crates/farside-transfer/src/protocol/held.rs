//! The held list: what a destination has of a step already, from a transfer that was cut. It tells it to the source
//! on the step's data stream, in chunks, ascending; see `docs/protocol.md`.
//!
//! ```text
//! chunk = runs, run * runs, short fingerprint * data blocks of the runs (only if the stream's header says so)
//! run   = gap, blocks << 1 | kind     gap: blocks between the end of the run before in this chunk (or 0) and this one;
//!                                     kind: 0 data, 1 hole
//! ```
//!
//! Numbers are as in a frame's table. A short fingerprint is the first 8 bytes of the block's fingerprint: enough to say
//! what need not travel, because the content root proves the whole, and a wrong guess (once in 2^64 blocks) costs a step
//! that is sent anew.

use farside_engine::Fingerprint;
use farside_format::fingerprint::BLOCKS_MAX;
use farside_wire::{RunKind, varint};

use crate::error::TransferError;
use crate::limits::{HELD_BLOCKS_PER_CHUNK, HELD_RUNS_PER_CHUNK};

/// Bytes of a fingerprint that travel.
pub const SHORT_BYTES: usize = 8;

/// The front of a block's fingerprint.
pub type ShortFingerprint = [u8; SHORT_BYTES];

/// The front of `fingerprint`.
pub fn short(fingerprint: &Fingerprint) -> ShortFingerprint {
    let mut short = [0; SHORT_BYTES];
    short.copy_from_slice(&fingerprint.0[..SHORT_BYTES]);
    short
}

/// What the destination tells on a step's stream: [`StreamHeader::held`](super::StreamHeader::held).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Nothing.
    None,
    /// Positions: what is held was of this very snapshot.
    Positions,
    /// Positions with short fingerprints: what is held was of another one.
    Fingerprints,
}

impl Held {
    /// By its number.
    pub fn from_number(number: u32) -> Result<Held, TransferError> {
        match number {
            0 => Ok(Held::None),
            1 => Ok(Held::Positions),
            2 => Ok(Held::Fingerprints),
            other => Err(TransferError::Protocol(format!("a held list of unknown kind {other}"))),
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        match self {
            Held::None => 0,
            Held::Positions => 1,
            Held::Fingerprints => 2,
        }
    }
}

/// Blocks in a row that the destination holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldRun {
    /// First block.
    pub position: u64,
    /// How many; at least one.
    pub blocks: u64,
    /// Data or hole.
    pub kind: RunKind,
    /// One for each data block, if the list carries them; else empty.
    pub fingerprints: Vec<ShortFingerprint>,
}

impl HeldRun {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.blocks)
    }
}

/// Encodes a chunk; `runs` must ascend, be within the limits of a chunk, and all carry fingerprints or none.
pub fn encode_chunk(runs: &[HeldRun]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, runs.len() as u64);
    let mut end = 0;
    for run in runs {
        varint::put(&mut out, run.position - end);
        varint::put(&mut out, run.blocks << 1 | u64::from(run.kind == RunKind::Hole));
        end = run.end();
    }
    for fingerprint in runs.iter().flat_map(|r| &r.fingerprints) {
        out.extend_from_slice(fingerprint);
    }
    out
}

/// Decodes a chunk that must begin at block `from` or later and end at `to` or before. Every count is checked before
/// memory is claimed for it.
pub fn decode_chunk(bytes: &[u8], held: Held, from: u64, to: u64) -> Result<Vec<HeldRun>, TransferError> {
    let malformed = |what: &str| TransferError::Protocol(format!("malformed held list: {what}"));
    let mut input = bytes;
    let take = |input: &mut &[u8]| varint::take(input).map_err(malformed);
    let count = take(&mut input)?;
    if count == 0 || count > HELD_RUNS_PER_CHUNK {
        return Err(malformed("no runs or too many runs"));
    }
    let mut runs = Vec::with_capacity(count as usize);
    let (mut end, mut data_blocks) = (0u64, 0u64);
    for _ in 0..count {
        let gap = take(&mut input)?;
        let tagged = take(&mut input)?;
        let kind = if tagged & 1 == 0 { RunKind::Data } else { RunKind::Hole };
        let run = HeldRun {
            position: end.saturating_add(gap),
            blocks: tagged >> 1,
            kind,
            fingerprints: Vec::new(),
        };
        if run.blocks == 0 || run.end() > to.min(BLOCKS_MAX) {
            return Err(malformed("a run is empty or lies outside the snapshot"));
        }
        if run.position < from {
            return Err(malformed("it does not ascend"));
        }
        if kind == RunKind::Data {
            data_blocks += run.blocks;
        }
        end = run.end();
        runs.push(run);
    }
    if held == Held::Fingerprints {
        if data_blocks > HELD_BLOCKS_PER_CHUNK {
            return Err(malformed("it has too many blocks"));
        }
        for run in runs.iter_mut().filter(|r| r.kind == RunKind::Data) {
            let bytes = run.blocks as usize * SHORT_BYTES;
            let (these, rest) = input.split_at_checked(bytes).ok_or(malformed("fingerprints are missing"))?;
            run.fingerprints = these.as_chunks().0.to_vec();
            input = rest;
        }
    }
    if !input.is_empty() {
        return Err(malformed("bytes after its end"));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(position: u64, blocks: u64, kind: RunKind) -> HeldRun {
        HeldRun { position, blocks, kind, fingerprints: Vec::new() }
    }

    fn with_fingerprints(run: HeldRun) -> HeldRun {
        let blocks = if run.kind == RunKind::Data { run.blocks } else { 0 };
        HeldRun { fingerprints: (0..blocks).map(|i| (run.position + i).to_le_bytes()).collect(), ..run }
    }

    #[test]
    fn chunks_come_back_and_their_layout_is_pinned() {
        let runs = vec![run(5, 2, RunKind::Data), run(7, 1, RunKind::Hole), run(300, 1, RunKind::Data)];
        let bytes = encode_chunk(&runs);
        assert_eq!(bytes, [3, 5, 4, 0, 3, 0xa4, 2, 2]);
        assert_eq!(decode_chunk(&bytes, Held::Positions, 5, 301).unwrap(), runs);
        let runs: Vec<_> = runs.into_iter().map(with_fingerprints).collect();
        let bytes = encode_chunk(&runs);
        assert_eq!(bytes.len(), 8 + 3 * SHORT_BYTES);
        assert_eq!(bytes[8..16], 5u64.to_le_bytes());
        assert_eq!(decode_chunk(&bytes, Held::Fingerprints, 0, 1 << 42).unwrap(), runs);
        for length in 0..bytes.len() {
            assert!(
                decode_chunk(&bytes[..length], Held::Fingerprints, 0, 1 << 42).is_err(),
                "cut to {length}"
            );
        }
        assert_eq!(short(&Fingerprint([7; 16])), [7; 8]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let long = run(0, 1 << 42, RunKind::Hole);
        assert!(decode_chunk(&encode_chunk(&[long]), Held::Fingerprints, 0, 1 << 42).is_ok());
        let good = encode_chunk(&[run(5, 2, RunKind::Data)]);
        let refused = |bytes: &[u8], held, from, to| {
            let error = decode_chunk(bytes, held, from, to).unwrap_err();
            assert!(matches!(error, TransferError::Protocol(_)), "{error}");
        };
        refused(&good, Held::Positions, 6, 100);
        refused(&good, Held::Positions, 0, 6);
        refused(&good, Held::Fingerprints, 0, 100);
        refused(&[&good[..], &[0]].concat(), Held::Positions, 0, 100);
        refused(&[0], Held::Positions, 0, 100);
        refused(&[1, 0, 0], Held::Positions, 0, 100);
        refused(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], Held::Positions, 0, 100);
        // A run of 2^41 data blocks that pretends to bring a fingerprint for each.
        refused(&encode_chunk(&[run(0, 1 << 41, RunKind::Data)]), Held::Fingerprints, 0, 1 << 42);
    }

    #[test]
    fn kinds_of_lists_have_numbers() {
        for held in [Held::None, Held::Positions, Held::Fingerprints] {
            assert_eq!(Held::from_number(held.number()).unwrap(), held);
        }
        assert!(Held::from_number(3).is_err());
    }
}
