//! What arrives of one direction of a flow, and the same in order. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::PART_COST;

/// Parts that may wait for one that is missing: those of two streams of a trunk.
const PARTS_MAX: usize = 65_536;
/// Rests that may wait: they have no bytes, and so no window.
const RESTS_MAX: usize = 1024;
/// A block may be larger than what it stands for by so much, and an eighth: a name for each chunk, and some 60 bytes that say what
/// the block is.
const BLOCK_OVERHEAD: usize = 512;

/// What a part takes in memory beside its bytes.
const PLACE_BYTES: usize = 150;

/// A part of a flow as it arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Bytes as they are.
    Plain(Bytes),
    /// A block in chunks.
    Block {
        /// As it is on the wire.
        block: Bytes,
        /// Bytes that it says it stands for.
        bytes: usize,
        /// The history of literals ends with it.
        is_alone: bool,
    },
    /// What is decoded with ends; so many bytes that were allowed will not come.
    Rest(u64),
}

impl Part {
    /// Bytes of the flow.
    pub fn bytes(&self) -> usize {
        match self {
            Part::Plain(bytes) => bytes.len(),
            Part::Block { bytes, .. } => *bytes,
            Part::Rest(_) => 0,
        }
    }

    /// What is given as credit again once it is delivered.
    pub(crate) fn cost(&self) -> u64 {
        match self {
            Part::Rest(_) => 0,
            part => part.bytes() as u64 + PART_COST,
        }
    }

    /// Of what was allowed it takes so much.
    fn takes(&self) -> u64 {
        match self {
            Part::Rest(returned) => *returned,
            part => part.cost(),
        }
    }

    /// What it takes in memory, roughly: its bytes, two allocations for them, and its place among the parts that wait.
    fn held(&self) -> usize {
        let bytes = match self {
            Part::Plain(bytes) => bytes.len(),
            Part::Block { block, .. } => block.len(),
            Part::Rest(_) => return 0,
        };
        PLACE_BYTES + bytes
    }

    fn is_sound(&self) -> bool {
        match self {
            Part::Plain(bytes) => !bytes.is_empty(),
            Part::Block { block, bytes, .. } => {
                *bytes > 0 && block.len() <= bytes + bytes / 8 + BLOCK_OVERHEAD
            }
            Part::Rest(_) => true,
        }
    }
}

/// What comes out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// The next part, and its sequence number.
    Part(u64, Part),
    /// There are no more.
    End,
    /// There are no more: the connection was reset.
    Reset,
}

/// What has arrived of one direction of a flow.
#[derive(Debug)]
pub(crate) struct Inbox {
    parts: BTreeMap<u64, Part>,
    next: u64,
    end: Option<u64>,
    is_reset: bool,
    /// Bytes that may still come.
    allowed: u64,
    /// Rests that wait.
    rests: usize,
}

impl Inbox {
    pub(crate) fn new(window: u32) -> Inbox {
        Inbox {
            parts: BTreeMap::new(),
            next: 0,
            end: None,
            is_reset: false,
            allowed: u64::from(window),
            rests: 0,
        }
    }

    /// So many bytes more may come.
    pub(crate) fn allow(&mut self, bytes: u64) {
        self.allowed = self.allowed.saturating_add(bytes);
    }

    /// Whether the part keeps to what was allowed; if not, nothing has changed.
    pub(crate) fn put(&mut self, sequence: u64, part: Part) -> bool {
        let is_new = sequence >= self.next && !self.parts.contains_key(&sequence);
        let is_before_end = self.end.is_none_or(|end| sequence < end);
        let rests = usize::from(matches!(part, Part::Rest(_)));
        let Some(allowed) = self.allowed.checked_sub(part.takes()) else { return false };
        if !part.is_sound()
            || !is_new
            || !is_before_end
            || self.parts.len() >= PARTS_MAX
            || self.rests + rests > RESTS_MAX
        {
            return false;
        }
        self.allowed = allowed;
        self.rests += rests;
        self.parts.insert(sequence, part);
        true
    }

    /// Whether there can have been so many parts.
    pub(crate) fn put_end(&mut self, parts: u64) -> bool {
        let last = self.parts.last_key_value().map_or(self.next, |(last, _)| last + 1);
        if self.end.is_some() || parts < last {
            return false;
        }
        self.end = Some(parts);
        true
    }

    /// The same, if a reset comes after so many parts. It may come after an end.
    pub(crate) fn put_reset(&mut self, parts: u64) -> bool {
        self.is_reset = true;
        self.end == Some(parts) || self.put_end(parts)
    }

    /// What waits takes so much memory, roughly.
    pub(crate) fn held(&self) -> usize {
        self.parts.values().map(Part::held).sum()
    }

    /// The next in order, if it is here.
    pub(crate) fn take(&mut self) -> Option<Arrived> {
        if self.end == Some(self.next) {
            return Some(if self.is_reset { Arrived::Reset } else { Arrived::End });
        }
        let part = self.parts.remove(&self.next)?;
        self.next += 1;
        self.rests -= usize::from(matches!(part, Part::Rest(_)));
        Some(Arrived::Part(self.next - 1, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(sequence: u64) -> Part {
        Part::Plain(Bytes::from(vec![sequence as u8; 10]))
    }

    proptest! {
        #[test]
        fn parts_come_out_in_order_whatever_order_they_came_in(
            order in Just((0u64..50).collect::<Vec<_>>()).prop_shuffle(),
            end_at in 0usize..=50,
        ) {
            let mut inbox = Inbox::new(50 * 266);
            let mut out = Vec::new();
            for (at, sequence) in order.iter().enumerate() {
                if at == end_at {
                    prop_assert!(inbox.put_end(50));
                }
                prop_assert!(inbox.put(*sequence, part(*sequence)));
                while let Some(Arrived::Part(sequence, part)) = inbox.take() {
                    out.push((sequence, part));
                }
            }
            if end_at == 50 {
                prop_assert!(inbox.put_end(50));
            }
            prop_assert_eq!(inbox.take(), Some(Arrived::End));
            prop_assert_eq!(out, (0..50).map(|n| (n, part(n))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_was_not_allowed_is_refused() {
        // Each part is ten bytes, and counts as 256 more.
        let mut inbox = Inbox::new(2 * 266 + 5);
        assert!(inbox.put(0, part(0)) && !inbox.put(0, part(0)), "twice");
        assert!(inbox.put(1, part(1)) && !inbox.put(2, part(2)), "more than the window");
        assert_eq!(inbox.take(), Some(Arrived::Part(0, part(0))));
        inbox.allow(266 - 5 - 1);
        assert!(!inbox.put(2, part(2)), "a byte more than the window");
        inbox.allow(6);
        assert!(!inbox.put(0, part(0)), "what was taken out");
        assert!(!inbox.put_end(1), "fewer than have come");
        assert!(inbox.put_end(3) && !inbox.put_end(3));
        assert!(!inbox.put(3, part(3)), "beyond the end");
        assert!(!inbox.put(2, Part::Plain(Bytes::new())), "nothing");
        let large = Part::Block { block: vec![0; 100_000].into(), bytes: 1, is_alone: false };
        assert!(!inbox.put(2, large), "a block that is larger than what it stands for");
        assert!(!inbox.put(2, Part::Rest(272)), "more than was allowed goes back");
        assert!(inbox.put(2, part(2)));
        assert!(!inbox.put_reset(4) && inbox.put_reset(3), "where the end is");
    }

    #[test]
    fn what_waits_is_bounded_by_the_window_whatever_its_parts_are() {
        let window = 1 << 20;
        for bytes in [1, 100, 10_000] {
            // As large as a block may be, and the first one never comes.
            let block = vec![0; bytes + bytes / 8 + BLOCK_OVERHEAD];
            let mut inbox = Inbox::new(window);
            let part = |bytes| Part::Block { block: block.clone().into(), bytes, is_alone: false };
            let parts = (1..).take_while(|sequence| inbox.put(*sequence, part(bytes))).count();
            let held = inbox.held();
            assert!(held <= 3 * window as usize, "{parts} parts of {bytes} bytes hold {held}");
        }
    }

    #[test]
    fn a_reset_comes_after_what_was_sent_before_it() {
        let mut inbox = Inbox::new(2 * 266);
        assert!(inbox.put_reset(2) && inbox.put(1, part(1)));
        assert_eq!(inbox.take(), None);
        assert!(inbox.put(0, part(0)));
        let out: Vec<_> = std::iter::from_fn(|| inbox.take()).take(3).collect();
        assert_eq!(out, [Arrived::Part(0, part(0)), Arrived::Part(1, part(1)), Arrived::Reset]);
    }
}
