//! A chunk said as copies from one that resembles it, and what is between them. Pure.

use crate::cut::CHUNK_MAX;
use crate::varint::{put, take};

/// A copy is no shorter: it takes some four bytes, and so many of text would take more.
pub(super) const COPY_MIN: usize = 32;
/// Bytes that are looked up at once.
const WORD: usize = 8;
/// Places of the base that are entered: every eighth. What is [`COPY_MIN`] long has three of them.
const STRIDE: usize = 8;
/// log2 of the places that are remembered.
const TABLE_LOG: u32 = 12;

/// Some bytes that are new, and then some of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) literal: usize,
    pub(super) from: usize,
    pub(super) length: usize,
}

/// Finds what of a base is in another chunk.
pub(super) struct Matcher {
    /// A place of the base and one, by the hash of its bytes.
    table: Vec<u16>,
    pub(super) copies: Vec<Copy>,
}

impl Default for Matcher {
    fn default() -> Matcher {
        Matcher { table: vec![0; 1 << TABLE_LOG], copies: Vec::new() }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn hash(word: u64) -> usize {
    (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - TABLE_LOG)) as usize
}

/// How many bytes are the same from the beginning on.
fn common(a: &[u8], b: &[u8]) -> usize {
    let (mut same, most) = (0, a.len().min(b.len()));
    while same + WORD <= most {
        let other = word(a, same) ^ word(b, same);
        if other != 0 {
            return same + (other.trailing_zeros() / 8) as usize;
        }
        same += WORD;
    }
    same + a[same..most].iter().zip(&b[same..most]).take_while(|(a, b)| a == b).count()
}

impl Matcher {
    /// Finds the copies, in order; says how many bytes they are. Neither has more than 65,535 bytes.
    pub(super) fn find(&mut self, base: &[u8], chunk: &[u8]) -> usize {
        self.copies.clear();
        self.table.fill(0);
        for at in (0..(base.len() + 1).saturating_sub(WORD)).step_by(STRIDE) {
            self.table[hash(word(base, at))] = at as u16 + 1;
        }
        let (mut at, mut said, mut copied, mut shift) = (0, 0, 0, 0isize);
        while at + WORD <= chunk.len() {
            let here = word(chunk, at);
            // Most often what follows a change is where it was.
            let straight = at
                .checked_add_signed(shift)
                .filter(|from| from + WORD <= base.len() && word(base, *from) == here);
            let looked_up = || {
                let from = usize::from(self.table[hash(here)]).checked_sub(1)?;
                (word(base, from) == here).then_some(from)
            };
            let Some(mut from) = straight.or_else(looked_up) else {
                at += 1;
                continue;
            };
            let mut length = common(&base[from..], &chunk[at..]);
            let mut begin = at;
            while begin > said && from > 0 && base[from - 1] == chunk[begin - 1] {
                (begin, from, length) = (begin - 1, from - 1, length + 1);
            }
            if length < COPY_MIN {
                at += 1;
                continue;
            }
            self.copies.push(Copy { literal: begin - said, from, length });
            copied += length;
            at = begin + length;
            said = at;
            shift = (from + length) as isize - at as isize;
        }
        copied
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The copies as bytes: how many, and for each the literal bytes before it, its length, and how far from where the one before would
/// go on, zigzag.
pub(super) fn put_copies(copies: &[Copy], out: &mut Vec<u8>) {
    put(out, copies.len() as u64);
    let mut expected = 0i64;
    for copy in copies {
        put(out, copy.literal as u64);
        put(out, copy.length as u64);
        expected += copy.literal as i64;
        put(out, zigzag(copy.from as i64 - expected));
        expected = (copy.from + copy.length) as i64;
    }
}

/// The other way; none for what cannot be copies of a chunk for a chunk.
pub(super) fn take_copies(from: &mut &[u8], copies: &mut Vec<Copy>) -> Option<()> {
    copies.clear();
    let number = usize::try_from(take(from)?).ok().filter(|number| *number <= CHUNK_MAX / COPY_MIN)?;
    let (mut expected, mut left) = (0i64, CHUNK_MAX);
    for _ in 0..number {
        let literal = usize::try_from(take(from)?).ok().filter(|literal| *literal <= left)?;
        let length = usize::try_from(take(from)?).ok().filter(|length| *length >= COPY_MIN)?;
        left = left.checked_sub(literal)?.checked_sub(length)?;
        expected += literal as i64;
        let begin = expected.checked_add(unzigzag(take(from)?))?;
        let begin = usize::try_from(begin).ok().filter(|begin| begin + length <= CHUNK_MAX)?;
        expected = (begin + length) as i64;
        copies.push(Copy { literal, from: begin, length });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(base: &[u8], copies: &[Copy], mut literals: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for copy in copies {
            let (literal, rest) = literals.split_at(copy.literal);
            out.extend_from_slice(literal);
            out.extend_from_slice(&base[copy.from..copy.from + copy.length]);
            literals = rest;
        }
        out.extend_from_slice(literals);
        out
    }

    proptest! {
        #[test]
        fn a_chunk_is_made_again_of_what_it_resembles(
            base in proptest::collection::vec(any::<u8>(), 0..9000),
            edits in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..300, 0usize..40), 0..8),
        ) {
            let mut chunk = base.clone();
            for (at, gone, come) in edits {
                let at = at.index(chunk.len() + 1);
                let end = (at + gone).min(chunk.len());
                chunk.splice(at..end, std::iter::repeat_n(7, come));
            }
            let mut matcher = Matcher::default();
            let copied = matcher.find(&base, &chunk);
            let mut bytes = Vec::new();
            put_copies(&matcher.copies, &mut bytes);
            let (mut copies, mut rest) = (Vec::new(), &bytes[..]);
            prop_assert_eq!(take_copies(&mut rest, &mut copies), Some(()));
            prop_assert!(rest.is_empty() && copies == matcher.copies);
            let (mut literals, mut at) = (Vec::new(), 0);
            for copy in &copies {
                literals.extend_from_slice(&chunk[at..at + copy.literal]);
                at += copy.literal + copy.length;
            }
            literals.extend_from_slice(&chunk[at..]);
            prop_assert_eq!(literals.len() + copied, chunk.len());
            prop_assert!(made(&base, &copies, &literals) == chunk);
        }

        #[test]
        fn copies_of_a_peer_stay_within_a_chunk(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut copies = Vec::new();
            if take_copies(&mut &bytes[..], &mut copies).is_some() {
                let said: usize = copies.iter().map(|copy| copy.literal + copy.length).sum();
                prop_assert!(said <= CHUNK_MAX);
                prop_assert!(copies.iter().all(|copy| copy.from + copy.length <= CHUNK_MAX));
            }
        }
    }

    #[test]
    fn one_change_is_two_copies() {
        let base: Vec<u8> = (0..2000u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        let mut chunk = base.clone();
        chunk.splice(4000..4003, *b"other");
        let mut matcher = Matcher::default();
        assert_eq!(matcher.find(&base, &chunk), 8000 - 3);
        assert_eq!(
            matcher.copies,
            [Copy { literal: 0, from: 0, length: 4000 }, Copy { literal: 5, from: 4003, length: 3997 },]
        );
    }
}
