//! Known data: questions of the source whether the destination has content already, from whatever volume of the same
//! peer, and the answers; see `docs/protocol.md`.
//!
//! ```text
//! ask    = batch, node runs, block runs, run * node runs, run * block runs, short fingerprint * entries
//! answer = batch, runs, run * runs, digest (only if there is a run)
//! run    = gap, length      gap: from the end of the run before of the same list (or 0); at least 1 but for a first run
//! ```
//!
//! The **entries** of a question are its nodes, then its blocks. A node is an aligned span of 128 blocks (level 1 of the tree),
//! its position is counted in such spans. The runs of an answer count entries: those that the destination holds now, in its
//! staged version, at the places that were asked for. Its digest is over the full fingerprints of these, in order. The
//! source knows them from its own metadata, so an equal digest says that what is held is what it would have sent; and the
//! content root decides in the end, as always.
//!
//! Numbers are as in a frame's table. One question, one answer has one encoding.

use std::ops::Range;
use std::sync::LazyLock;

use farside_engine::Fingerprint;
use farside_format::fingerprint::{BLOCKS_MAX, FAN_OUT};
use farside_wire::varint;

use super::held::SHORT_BYTES;
use crate::error::TransferError;
use crate::limits::{ASK_BLOCKS_MAX, ASK_ENTRIES_MAX};

/// Blocks of a level 1 node.
pub const NODE_BLOCKS: u64 = FAN_OUT as u64;
/// Bytes of an answer's digest.
pub const DIGEST_BYTES: usize = 16;

/// What confirms an answer.
pub type AnswerDigest = [u8; DIGEST_BYTES];

static ANSWER_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| blake3::derive_key("farside 2026-11 known answer v1", &[]));

/// The digest of an answer that says to hold what has these full fingerprints.
pub fn digest<'a>(held: impl Iterator<Item = &'a Fingerprint>) -> AnswerDigest {
    let mut hasher = blake3::Hasher::new_keyed(&ANSWER_KEY);
    for fingerprint in held {
        hasher.update(&fingerprint.0);
    }
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&hasher.finalize().as_bytes()[..DIGEST_BYTES]);
    digest
}

/// Something that is asked for: a node or a block, by its position and the front of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// In spans of its level.
    pub position: u64,
    /// First 8 bytes of the fingerprint, big endian. Never that of a hole.
    pub short: u64,
}

/// One question.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ask {
    /// Its number; they count from 0 on each stream.
    pub batch: u64,
    /// Nodes of level 1, ascending.
    pub nodes: Vec<Entry>,
    /// Blocks, ascending.
    pub blocks: Vec<Entry>,
}

impl Ask {
    /// Nodes and blocks.
    pub fn entries(&self) -> usize {
        self.nodes.len() + self.blocks.len()
    }

    /// How many blocks are asked for, those of nodes included.
    pub fn wanted_blocks(&self) -> u64 {
        self.nodes.len() as u64 * NODE_BLOCKS + self.blocks.len() as u64
    }
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// Number of the question.
    pub batch: u64,
    /// Which of its entries are held now: ascending, apart from each other, none empty.
    pub held: Vec<Range<usize>>,
    /// [`digest`] of their fingerprints; zeros if nothing is held.
    pub digest: AnswerDigest,
}

/// Encodes a question: its positions must ascend, and it must be within [`ASK_ENTRIES_MAX`] and [`ASK_BLOCKS_MAX`].
pub fn encode_ask(ask: &Ask) -> Vec<u8> {
    let (nodes, blocks) = (runs(&ask.nodes), runs(&ask.blocks));
    let mut out = Vec::with_capacity(8 + ask.entries() * (SHORT_BYTES + 2));
    varint::put(&mut out, ask.batch);
    varint::put(&mut out, nodes.len() as u64);
    varint::put(&mut out, blocks.len() as u64);
    for list in [nodes, blocks] {
        put_runs(&mut out, list.into_iter());
    }
    for entry in ask.nodes.iter().chain(&ask.blocks) {
        out.extend_from_slice(&entry.short.to_be_bytes());
    }
    out
}

/// Positions in a row.
fn runs(entries: &[Entry]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for entry in entries {
        match runs.last_mut() {
            Some(run) if run.end == entry.position => run.end += 1,
            _ => runs.push(entry.position..entry.position + 1),
        }
    }
    runs
}

fn put_runs(out: &mut Vec<u8>, runs: impl Iterator<Item = Range<u64>>) {
    let mut end = 0;
    for run in runs {
        varint::put(out, run.start - end);
        varint::put(out, run.end - run.start);
        end = run.end;
    }
}

/// Decodes a question about a volume of `volume_blocks` blocks. Every count is checked before memory is claimed for it.
pub fn decode_ask(bytes: &[u8], volume_blocks: u64) -> Result<Ask, TransferError> {
    let malformed = |what: &str| TransferError::Protocol(format!("malformed question: {what}"));
    let mut input = bytes;
    let mut take = || varint::take(&mut input).map_err(malformed);
    let (batch, node_runs, block_runs) = (take()?, take()?, take()?);
    if node_runs.saturating_add(block_runs) > ASK_ENTRIES_MAX {
        return Err(malformed("it has too many runs"));
    }
    let volume_blocks = volume_blocks.min(BLOCKS_MAX);
    let mut room = ASK_ENTRIES_MAX;
    let mut positions = |runs: u64, limit: u64| {
        let runs = take_runs(&mut input, runs, &mut room, limit).map_err(malformed)?;
        Ok::<_, TransferError>(
            runs.into_iter().flatten().map(|position| Entry { position, short: 0 }).collect(),
        )
    };
    let nodes = positions(node_runs, volume_blocks / NODE_BLOCKS)?;
    let blocks = positions(block_runs, volume_blocks)?;
    let mut ask = Ask { batch, nodes, blocks };
    if ask.entries() == 0 || ask.wanted_blocks() > ASK_BLOCKS_MAX {
        return Err(malformed("it asks for nothing, or for too much at once"));
    }
    let (shorts, rest) = input.as_chunks::<SHORT_BYTES>();
    if shorts.len() != ask.entries() || !rest.is_empty() {
        return Err(malformed("fingerprints are missing, or bytes come after its end"));
    }
    for (entry, short) in ask.nodes.iter_mut().chain(&mut ask.blocks).zip(shorts) {
        entry.short = u64::from_be_bytes(*short);
        if entry.short == 0 {
            return Err(malformed("it asks for a hole"));
        }
    }
    Ok(ask)
}

/// Encodes an answer, which must be as [`Answer`] says.
pub fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, answer.batch);
    varint::put(&mut out, answer.held.len() as u64);
    put_runs(&mut out, answer.held.iter().map(|run| run.start as u64..run.end as u64));
    if !answer.held.is_empty() {
        out.extend_from_slice(&answer.digest);
    }
    out
}

/// Decodes the answer to a question of `entries` entries.
pub fn decode_answer(bytes: &[u8], entries: usize) -> Result<Answer, TransferError> {
    let malformed = |what: &str| TransferError::Protocol(format!("malformed answer: {what}"));
    let mut input = bytes;
    let mut take = || varint::take(&mut input).map_err(malformed);
    let (batch, count) = (take()?, take()?);
    let entries = entries as u64;
    if count > entries {
        return Err(malformed("it has more runs than were asked for"));
    }
    let runs = take_runs(&mut input, count, &mut entries.clone(), entries).map_err(malformed)?;
    let held = runs.into_iter().map(|run| run.start as usize..run.end as usize).collect();
    let digest = match (count, input.try_into()) {
        (0, _) if input.is_empty() => [0; DIGEST_BYTES],
        (1.., Ok(digest)) => digest,
        _ => return Err(malformed("its digest is missing, or bytes come after its end")),
    };
    Ok(Answer { batch, held, digest })
}

/// Takes `count` runs that end at `limit` or before and have at most `room` elements together, which is taken off.
fn take_runs(
    input: &mut &[u8],
    count: u64,
    room: &mut u64,
    limit: u64,
) -> Result<Vec<Range<u64>>, &'static str> {
    if count > *room {
        return Err("it has too many entries");
    }
    let mut runs = Vec::with_capacity(count as usize);
    let mut end = 0u64;
    for at in 0..count {
        let (gap, length) = (varint::take(input)?, varint::take(input)?);
        if length == 0 || (gap == 0 && at > 0) {
            return Err("a run is empty, or goes on the one before");
        }
        *room = room.checked_sub(length).ok_or("it has too many entries")?;
        let start = end.saturating_add(gap);
        end = start.saturating_add(length);
        if end > limit {
            return Err("a run lies outside of what there is");
        }
        runs.push(start..end);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(positions: &[u64]) -> Vec<Entry> {
        positions.iter().map(|&position| Entry { position, short: position << 8 | 1 }).collect()
    }

    fn ask(nodes: &[u64], blocks: &[u64]) -> Ask {
        Ask { batch: 300, nodes: entries(nodes), blocks: entries(blocks) }
    }

    fn refused<T: std::fmt::Debug>(decoded: Result<T, TransferError>) {
        assert!(matches!(decoded, Err(TransferError::Protocol(_))), "{decoded:?}");
    }

    #[test]
    fn questions_come_back_and_their_layout_is_pinned() {
        let asked = ask(&[0, 2, 3], &[130, 200]);
        let bytes = encode_ask(&asked);
        assert_eq!(bytes[..14], [0xac, 2, 2, 2, 0, 1, 1, 2, 0x82, 1, 1, 69, 1, 0]);
        assert_eq!(bytes.len(), 13 + 5 * SHORT_BYTES);
        assert_eq!(bytes[13 + 8..13 + 16], [0, 0, 0, 0, 0, 0, 2, 1]);
        assert_eq!(asked.wanted_blocks(), 3 * 128 + 2);
        assert_eq!(decode_ask(&bytes, 512).unwrap(), asked);
        refused(decode_ask(&bytes, 511));
        for length in 0..bytes.len() {
            refused(decode_ask(&bytes[..length], 512));
        }
        refused(decode_ask(&[&bytes[..], &[1]].concat(), 512));
    }

    #[test]
    fn questions_that_cannot_be_are_refused() {
        refused(decode_ask(&encode_ask(&ask(&[], &[])), 1 << 42));
        refused(decode_ask(&encode_ask(&ask(&[], &[5])), 5));
        let many: Vec<u64> = (0..ASK_ENTRIES_MAX).collect();
        assert!(decode_ask(&encode_ask(&ask(&[], &many)), 1 << 42).is_ok());
        refused(decode_ask(&encode_ask(&ask(&[], &[&many[..], &[1 << 30]].concat())), 1 << 42));
        refused(decode_ask(&encode_ask(&ask(&[1 << 20], &many)), 1 << 42));
        let nodes: Vec<u64> = (0..ASK_BLOCKS_MAX / NODE_BLOCKS).collect();
        assert!(decode_ask(&encode_ask(&ask(&nodes, &[])), 1 << 42).is_ok());
        refused(decode_ask(&encode_ask(&ask(&nodes, &[7])), 1 << 42));
        // A run of 2^41 blocks, and numbers of runs that nothing backs.
        let length = [&[0, 0, 1, 0][..], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x20]].concat();
        refused(decode_ask(&[&length[..], &[1; 64]].concat(), 1 << 42));
        let runs = [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1];
        refused(decode_ask(&runs, 1 << 42));
        // Two runs that are one, and an empty one.
        let short = [1; 2 * SHORT_BYTES];
        refused(decode_ask(&[&[0, 0, 2, 5, 1, 0, 1][..], &short].concat(), 1 << 42));
        refused(decode_ask(&[&[0, 0, 1, 5, 0][..], &short].concat(), 1 << 42));
        let hole = Ask { batch: 0, nodes: Vec::new(), blocks: vec![Entry { position: 1, short: 0 }] };
        refused(decode_ask(&encode_ask(&hole), 1 << 42));
    }

    #[test]
    fn answers_come_back_and_their_layout_is_pinned() {
        let fingerprints = [Fingerprint([1; 16]), Fingerprint([2; 16])];
        let answer = Answer { batch: 5, held: vec![0..1, 200..201], digest: digest(fingerprints.iter()) };
        let bytes = encode_answer(&answer);
        assert_eq!(bytes[..7], [5, 2, 0, 1, 0xc7, 1, 1]);
        assert_eq!(bytes.len(), 7 + DIGEST_BYTES);
        assert_eq!(bytes[7..], GOLDEN_DIGEST);
        assert_eq!(decode_answer(&bytes, 201).unwrap(), answer);
        refused(decode_answer(&bytes, 200));
        for length in 0..bytes.len() {
            refused(decode_answer(&bytes[..length], 201));
        }
        refused(decode_answer(&[&bytes[..], &[1]].concat(), 201));
        let nothing = Answer { batch: 6, ..Answer::default() };
        assert_eq!(encode_answer(&nothing), [6, 0]);
        assert_eq!(decode_answer(&[6, 0], 7).unwrap(), nothing);
        refused(decode_answer(&[&[6, 0][..], &[0; DIGEST_BYTES]].concat(), 7));
        refused(decode_answer(&[&[6, 1, 0, 8][..], &[0; DIGEST_BYTES]].concat(), 7));
        refused(decode_answer(&[&[6, 2, 0, 1, 0, 1][..], &[0; DIGEST_BYTES]].concat(), 7));
    }

    /// Of fingerprints of sixteen 1 and sixteen 2: a change of it is another protocol.
    const GOLDEN_DIGEST: [u8; DIGEST_BYTES] =
        [178, 204, 195, 44, 171, 82, 37, 12, 225, 95, 176, 144, 77, 162, 178, 214];

    #[test]
    fn the_digest_depends_on_all_of_it() {
        let all = [Fingerprint([1; 16]), Fingerprint([2; 16])];
        let swapped = [all[1], all[0]];
        let digests =
            [digest(all.iter()), digest(swapped.iter()), digest(all[..1].iter()), digest([].iter())];
        for (at, one) in digests.iter().enumerate() {
            assert!(digests[at + 1..].iter().all(|other| other != one));
        }
    }
}
