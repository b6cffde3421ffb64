//! Which blocks of the pool are free, and when a freed one may be used again (invariant F2).
//!
//! Data is given out in ascending runs (log placement: neighbouring writes become one write); inner nodes in pairs
//! a fixed distance apart. What is freed waits through two consistency points; a data block is freed by its last owner.

use farside_format::free_map::{self, BLOCKS_PER_CHUNK, BlockState};
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{BLOCK_BYTES, FormatError, Place};
use roaring::RoaringTreemap;

use crate::owner_counts::OwnerCounts;

/// The in-memory free map.
pub(crate) struct Allocator {
    pool_blocks: u64,
    /// What lies from here on is not given out yet: not both superblocks know of it (`grow.rs`).
    usable_blocks: u64,
    first_allocatable: u64,
    /// One bit per block: set while the block may not be given out (in use, waiting, or given out just now).
    busy: Vec<u64>,
    free_blocks: u64,
    /// Free blocks in each chunk of the free map, so that full regions are skipped.
    free_in_chunk: Vec<u32>,
    data_cursor: u64,
    node_cursor: u64,
    /// Given out, but no record refers to it yet: free as far as a consistency point is concerned.
    in_flight: RoaringTreemap,
    /// Freed before the last captured point, waiting for the next one to be on the medium.
    waiting: RoaringTreemap,
    /// Freed since the last capture.
    freed: RoaringTreemap,
    /// How many are in the two, and in the capture under way: asked at each write.
    waiting_blocks: u64,
    /// Chunks of the free map that differ from what the last captured point wrote.
    dirty_chunks: RoaringTreemap,
    /// Owners of data blocks beyond the first.
    pub(crate) owners: OwnerCounts,
}

/// What a consistency point took from the allocator.
pub(crate) struct FreeMapCapture {
    busy: Vec<u64>,
    in_flight: RoaringTreemap,
    /// Waiting in the map of the point before: free in this one.
    released: RoaringTreemap,
    /// Freed up to the capture, and by the point itself: waiting in this one.
    pub(crate) freed: RoaringTreemap,
    pub(crate) dirty_chunks: RoaringTreemap,
    /// Owners as of the capture, and what the point itself changes of them.
    pub(crate) owners: OwnerCounts,
}

impl Allocator {
    /// A map with everything free except the fixed areas below `first_allocatable`.
    pub(crate) fn new(pool_blocks: u64, first_allocatable: u64) -> Allocator {
        let chunks = pool_blocks.div_ceil(BLOCKS_PER_CHUNK);
        let mut allocator = Allocator {
            pool_blocks,
            usable_blocks: pool_blocks,
            first_allocatable,
            busy: vec![0; pool_blocks.div_ceil(64) as usize],
            free_blocks: pool_blocks,
            free_in_chunk: (0..chunks)
                .map(|c| (pool_blocks - c * BLOCKS_PER_CHUNK).min(BLOCKS_PER_CHUNK) as u32)
                .collect(),
            data_cursor: first_allocatable,
            node_cursor: first_allocatable,
            in_flight: RoaringTreemap::new(),
            waiting: RoaringTreemap::new(),
            freed: RoaringTreemap::new(),
            waiting_blocks: 0,
            dirty_chunks: RoaringTreemap::new(),
            owners: OwnerCounts::default(),
        };
        for block in 0..first_allocatable {
            allocator.set_busy(block);
        }
        // The map is new: every chunk that is not all free must be written once.
        allocator.dirty_chunks.insert_range(0..first_allocatable.div_ceil(BLOCKS_PER_CHUNK));
        allocator
    }

    /// Takes over one chunk of the map on the medium. The fixed areas are in it too.
    pub(crate) fn load_chunk(&mut self, chunk: u64, bytes: &[u8]) -> Result<(), FormatError> {
        debug_assert_eq!(bytes.len(), BLOCK_BYTES);
        for index in 0..BLOCKS_PER_CHUNK {
            // Four blocks to a byte: most of a pool is either free or in use throughout.
            let state = free_map::state(bytes, index)?;
            if state == BlockState::Free {
                continue;
            }
            let block = chunk * BLOCKS_PER_CHUNK + index;
            if block >= self.pool_blocks {
                return Err(FormatError::Field { what: "free map", field: "block past the end" });
            }
            if !self.is_busy(block) {
                self.set_busy(block);
            }
            if state == BlockState::Waiting {
                self.waiting.insert(block);
                self.waiting_blocks += 1;
            }
        }
        Ok(())
    }

    /// After loading: nothing differs from the medium.
    pub(crate) fn loaded(&mut self) {
        self.dirty_chunks.clear();
    }

    pub(crate) fn pool_blocks(&self) -> u64 {
        self.pool_blocks
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Blocks that the next two points will give back, as far as is known before them.
    pub(crate) fn waiting_blocks(&self) -> u64 {
        self.waiting_blocks
    }

    /// Chunks of the free map in which anything can be in use.
    pub(crate) fn chunks(&self) -> u64 {
        self.usable_blocks.div_ceil(BLOCKS_PER_CHUNK)
    }

    /// The pool has so many blocks from now on; what is new is withheld.
    pub(crate) fn extend(&mut self, pool_blocks: u64) {
        debug_assert!(pool_blocks >= self.pool_blocks);
        self.pool_blocks = pool_blocks;
        self.busy.resize(pool_blocks.div_ceil(64) as usize, 0);
        self.free_in_chunk.resize(pool_blocks.div_ceil(BLOCKS_PER_CHUNK) as usize, 0);
    }

    /// Withholds what lies from `first` on.
    pub(crate) fn withhold_from(&mut self, first: u64) {
        for (chunk, free) in self.free_by_chunk(first, self.usable_blocks) {
            self.free_blocks -= u64::from(free);
            self.free_in_chunk[chunk] -= free;
        }
        self.usable_blocks = first.min(self.usable_blocks);
    }

    /// Gives out what was withheld, from now on; whether there was any.
    pub(crate) fn give_out_all(&mut self) -> bool {
        for (chunk, free) in self.free_by_chunk(self.usable_blocks, self.pool_blocks) {
            self.free_blocks += u64::from(free);
            self.free_in_chunk[chunk] += free;
        }
        std::mem::replace(&mut self.usable_blocks, self.pool_blocks) < self.pool_blocks
    }

    /// Blocks that are neither given out nor free yet.
    pub(crate) fn withheld_blocks(&self) -> u64 {
        self.pool_blocks - self.usable_blocks
    }

    /// The pool has so many blocks again, as before [`extend`](Self::extend): nothing of the rest was given out.
    pub(crate) fn retract(&mut self, pool_blocks: u64) {
        debug_assert!(pool_blocks >= self.usable_blocks);
        self.pool_blocks = pool_blocks;
        self.busy.truncate(pool_blocks.div_ceil(64) as usize);
        self.free_in_chunk.truncate(pool_blocks.div_ceil(BLOCKS_PER_CHUNK) as usize);
    }

    pub(crate) fn withholds(&self) -> bool {
        self.usable_blocks < self.pool_blocks
    }

    /// How many blocks are free in each chunk from block `from` up to `to`.
    fn free_by_chunk(&self, from: u64, to: u64) -> Vec<(usize, u32)> {
        let chunks = from / BLOCKS_PER_CHUNK..to.div_ceil(BLOCKS_PER_CHUNK);
        let free = |chunk: u64| {
            let start = (chunk * BLOCKS_PER_CHUNK).max(from);
            let end = ((chunk + 1) * BLOCKS_PER_CHUNK).min(to);
            let busy = |word: u64| {
                let below = |block: u64| block.saturating_sub(word * 64).min(64) as u32;
                let counted = u64::MAX.checked_shr(64 - below(end)).unwrap_or(0)
                    & u64::MAX.checked_shl(below(start)).unwrap_or(0);
                (self.busy[word as usize] & counted).count_ones()
            };
            let length = end.saturating_sub(start) as u32;
            if length == 0 { 0 } else { length - (start / 64..end.div_ceil(64)).map(busy).sum::<u32>() }
        };
        chunks.map(|chunk| (chunk as usize, free(chunk))).collect()
    }

    fn is_busy(&self, block: u64) -> bool {
        self.busy[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn set_busy(&mut self, block: u64) {
        debug_assert!(!self.is_busy(block));
        self.busy[(block / 64) as usize] |= 1 << (block % 64);
        self.free_blocks -= 1;
        self.free_in_chunk[(block / BLOCKS_PER_CHUNK) as usize] -= 1;
    }

    fn clear_busy(&mut self, block: u64) {
        debug_assert!(self.is_busy(block));
        self.busy[(block / 64) as usize] &= !(1 << (block % 64));
        self.free_blocks += 1;
        self.free_in_chunk[(block / BLOCKS_PER_CHUNK) as usize] += 1;
    }

    /// Gives out up to `blocks` consecutive blocks for data: (first place, how many). They are in flight.
    pub(crate) fn allocate_run(&mut self, blocks: u64) -> Option<(Place, u64)> {
        let first = self.next_free(self.data_cursor)?;
        let mut count = 0;
        while count < blocks && first + count < self.usable_blocks && !self.is_busy(first + count) {
            self.set_busy(first + count);
            count += 1;
        }
        self.in_flight.insert_range(first..first + count);
        self.data_cursor = first + count;
        Some((Place(first), count))
    }

    /// What is free nearest to the start is given out next. A file has its room there already; farther on it may have to take more.
    pub(crate) fn rewind(&mut self) {
        self.data_cursor = self.first_allocatable;
        self.node_cursor = self.first_allocatable;
    }

    /// Gives out one block for a leaf.
    pub(crate) fn allocate_leaf(&mut self) -> Option<Place> {
        let block = self.next_free(self.node_cursor)?;
        self.set_busy(block);
        self.in_flight.insert(block);
        self.node_cursor = block + 1;
        Some(Place(block))
    }

    /// Gives out a block and its twin for an inner node.
    pub(crate) fn allocate_pair(&mut self) -> Option<Place> {
        let mut tried_from_start = false;
        let mut block = self.next_free(self.node_cursor)?;
        let start = block;
        loop {
            let twin = block + TWIN_DISTANCE;
            if twin < self.usable_blocks && !self.is_busy(twin) {
                for b in [block, twin] {
                    self.set_busy(b);
                    self.in_flight.insert(b);
                }
                self.node_cursor = block + 1;
                return Some(Place(block));
            }
            let next = self.next_free(block + 1)?;
            if next <= block {
                tried_from_start = true;
            }
            block = next;
            if tried_from_start && block >= start {
                return None;
            }
        }
    }

    /// The first free block at or after `from`, wrapping around once.
    fn next_free(&self, from: u64) -> Option<u64> {
        if self.free_blocks == 0 {
            return None;
        }
        self.scan(from, self.usable_blocks).or_else(|| self.scan(0, from.min(self.usable_blocks)))
    }

    fn scan(&self, from: u64, to: u64) -> Option<u64> {
        let mut block = from;
        while block < to {
            let chunk = block / BLOCKS_PER_CHUNK;
            if self.free_in_chunk[chunk as usize] == 0 {
                block = (chunk + 1) * BLOCKS_PER_CHUNK;
                continue;
            }
            let free = !self.busy[(block / 64) as usize] >> (block % 64);
            if free != 0 {
                let found = block + u64::from(free.trailing_zeros());
                return (found < to).then_some(found);
            }
            block = (block / 64 + 1) * 64;
        }
        None
    }

    /// A record refers to these now.
    pub(crate) fn settle(&mut self, place: Place, blocks: u64) {
        self.in_flight.remove_range(place.0..place.0 + blocks);
        self.touch(place.0, blocks);
    }

    /// A consistency point has used it: its own map accounts for it.
    pub(crate) fn settle_in_point(&mut self, place: Place) {
        self.in_flight.remove(place.0);
    }

    /// They were given out but are not needed after all.
    pub(crate) fn give_back(&mut self, place: Place, blocks: u64) {
        for block in place.0..place.0 + blocks {
            self.in_flight.remove(block);
            self.clear_busy(block);
        }
    }

    /// Gives back a pair.
    pub(crate) fn give_back_pair(&mut self, place: Place) {
        self.give_back(place, 1);
        self.give_back(Place(place.0 + TWIN_DISTANCE), 1);
    }

    /// Nothing refers to these any more; they wait.
    pub(crate) fn free(&mut self, place: Place, blocks: u64) {
        for block in place.0..place.0 + blocks {
            debug_assert!(self.is_busy(block), "freed a block that is not in use: {block}");
            let new = self.freed.insert(block);
            debug_assert!(new, "freed twice: {block}");
        }
        self.waiting_blocks += blocks;
        self.touch(place.0, blocks);
    }

    /// One owner of a data block has gone (S8): if it was the last, nothing refers to the block any more, and it waits.
    pub(crate) fn release(&mut self, place: Place) {
        if !self.owners.lower(place) {
            self.free(place, 1);
        }
    }

    /// Replay: a record of the journal says that these get one owner more. They must be in use.
    pub(crate) fn claim_shared(&mut self, place: Place, blocks: u64) -> Result<(), u64> {
        for block in place.0..place.0 + blocks {
            let in_use = (self.first_allocatable..self.pool_blocks).contains(&block)
                && self.is_busy(block)
                && ![&self.waiting, &self.freed, &self.in_flight].iter().any(|set| set.contains(block));
            if !in_use {
                return Err(block);
            }
            self.owners.raise(Place(block));
        }
        Ok(())
    }

    /// Replay: a record of the journal says that these are in use. They must be free, or waiting.
    pub(crate) fn claim(&mut self, place: Place, blocks: u64) -> Result<(), u64> {
        for block in place.0..place.0 + blocks {
            if block >= self.pool_blocks {
                return Err(block);
            }
            if !self.is_busy(block) {
                self.set_busy(block);
            } else if self.waiting.remove(block) {
                self.waiting_blocks -= 1;
            } else {
                return Err(block);
            }
        }
        self.touch(place.0, blocks);
        Ok(())
    }

    fn touch(&mut self, place: u64, blocks: u64) {
        self.dirty_chunks.insert_range(place / BLOCKS_PER_CHUNK..=(place + blocks - 1) / BLOCKS_PER_CHUNK);
    }

    /// Begins a consistency point: what it shall write, as of now.
    pub(crate) fn capture(&mut self) -> FreeMapCapture {
        let released = std::mem::take(&mut self.waiting);
        let mut dirty_chunks = std::mem::take(&mut self.dirty_chunks);
        for block in &released {
            dirty_chunks.insert(block / BLOCKS_PER_CHUNK);
        }
        FreeMapCapture {
            busy: self.busy.clone(),
            in_flight: self.in_flight.clone(),
            released,
            freed: std::mem::take(&mut self.freed),
            dirty_chunks,
            owners: self.owners.capture(),
        }
    }

    /// Blocks that only the older point on the medium needs.
    pub(crate) fn waits_for_older_point(&self) -> u64 {
        self.waiting.len()
    }

    /// Both superblocks hold the point that this map is of, so nothing needs what waits.
    pub(crate) fn free_waiting(&mut self) {
        for block in &std::mem::take(&mut self.waiting) {
            self.clear_busy(block);
            self.dirty_chunks.insert(block / BLOCKS_PER_CHUNK);
        }
        self.waiting_blocks = self.freed.len();
    }

    /// The point is on the medium: what waited for it is free, what it freed waits for the next.
    pub(crate) fn installed(&mut self, capture: FreeMapCapture) {
        for block in &capture.released {
            self.clear_busy(block);
        }
        self.waiting = capture.freed;
        self.waiting_blocks = self.waiting.len() + self.freed.len();
        self.owners.installed();
    }
}

impl FreeMapCapture {
    /// A block that the point itself wrote: in use in its map.
    pub(crate) fn add(&mut self, place: Place) {
        let block = place.0;
        self.busy[(block / 64) as usize] |= 1 << (block % 64);
        self.in_flight.remove(block);
        self.dirty_chunks.insert(block / BLOCKS_PER_CHUNK);
    }

    /// A block that the point replaced: waiting in its map.
    pub(crate) fn free(&mut self, place: Place) {
        let new = self.freed.insert(place.0);
        debug_assert!(new, "freed twice in one interval: {}", place.0);
        self.dirty_chunks.insert(place.0 / BLOCKS_PER_CHUNK);
    }

    /// Whether nothing in the chunk is in use or waiting.
    pub(crate) fn is_all_free(&self, chunk: u64, pool_blocks: u64) -> bool {
        let mut bytes = [0; BLOCK_BYTES];
        self.encode_chunk(chunk, pool_blocks, &mut bytes);
        bytes == [0; BLOCK_BYTES]
    }

    /// Encodes one chunk of the map.
    pub(crate) fn encode_chunk(&self, chunk: u64, pool_blocks: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let first = chunk * BLOCKS_PER_CHUNK;
        let end = (first + BLOCKS_PER_CHUNK).min(pool_blocks);
        for (i, word) in self.busy[(first / 64) as usize..end.div_ceil(64) as usize].iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let bit = u64::from(word.trailing_zeros());
                word &= word - 1;
                free_map::set_state(bytes, i as u64 * 64 + bit, BlockState::InUse);
            }
        }
        let mut set_all = |set: &RoaringTreemap, state: BlockState| {
            let mut blocks = set.iter();
            blocks.advance_to(first);
            for block in blocks.take_while(|b| *b < end) {
                free_map::set_state(bytes, block - first, state);
            }
        };
        set_all(&self.released, BlockState::Free);
        set_all(&self.in_flight, BlockState::Free);
        set_all(&self.freed, BlockState::Waiting);
    }
}
