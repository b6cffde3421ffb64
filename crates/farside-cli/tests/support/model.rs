//! What a host knows of the volume it writes: which content of each block may be there after a kill, and which must.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::{SmallRng, StdRng};
use rand::{Rng, RngCore, SeedableRng};

use super::nbd;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// A host's view of a volume.
pub struct Model {
    blocks: u64,
    /// The last write that has a number.
    last: u64,
    /// For each block the write that was last flushed there.
    flushed: HashMap<u64, u64>,
    /// Every later one that may be there.
    since: HashMap<u64, Vec<u64>>,
}

/// A block that says which write it is of. Nothing compresses it.
fn block(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    SmallRng::seed_from_u64(number).fill_bytes(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of a block; 0 for a hole. Anything else is torn.
pub fn number(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|b| *b == 0) {
        return 0;
    }
    let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == block(number), "a torn block of write {number}");
    number
}

impl Model {
    /// Of a volume that holds nothing.
    pub fn new(blocks: u64) -> Model {
        Model { blocks, last: 0, flushed: HashMap::new(), since: HashMap::new() }
    }

    /// Bytes that were written, or tried to.
    pub fn written_bytes(&self) -> u64 {
        self.last * BLOCK
    }

    /// Writes this many blocks from `first` on.
    pub fn fill(&mut self, host: &mut nbd::Client, first: u64, count: u64) -> io::Result<()> {
        for part in (first..first + count).collect::<Vec<_>>().chunks(256) {
            let mut bytes = Vec::new();
            for at in part {
                bytes.extend(self.next(*at));
            }
            host.write(part[0] * BLOCK, &bytes)?;
        }
        self.flush(host)
    }

    /// Writes this many blocks at random places, and flushes.
    pub fn scatter(&mut self, host: &mut nbd::Client, random: &mut StdRng, count: u64) -> io::Result<()> {
        for _ in 0..count {
            let at = random.random_range(0..self.blocks);
            let bytes = self.next(at);
            host.write(at * BLOCK, &bytes)?;
        }
        self.flush(host)
    }

    /// Writes and flushes at random places, until told to stop or the daemon is gone. `ready` after each flush.
    pub fn write_on(
        &mut self,
        host: &mut nbd::Client,
        random: &mut StdRng,
        ready: &AtomicBool,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        while !stop.load(Ordering::SeqCst) {
            let count = random.random_range(1..8);
            self.scatter(host, random, count)?;
            ready.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The next write, to this block. It may arrive although its answer does not.
    fn next(&mut self, at: u64) -> Vec<u8> {
        self.last += 1;
        self.since.entry(at).or_default().push(self.last);
        block(self.last)
    }

    fn flush(&mut self, host: &mut nbd::Client) -> io::Result<()> {
        host.flush()?;
        for (at, numbers) in self.since.drain() {
            self.flushed.insert(at, *numbers.last().unwrap());
        }
        Ok(())
    }

    /// What is there must be what was flushed, or later. Then it is what counts.
    pub fn check(&mut self, image: &[u8]) {
        assert_eq!(image.len() as u64, self.blocks * BLOCK);
        for (at, bytes) in (0..).zip(image.chunks(BLOCK as usize)) {
            let found = number(bytes);
            let flushed = self.flushed.get(&at).copied().unwrap_or(0);
            let possible = self.since.get(&at).is_some_and(|later| later.contains(&found));
            assert!(found == flushed || possible, "block {at} has {found}; {flushed} was flushed");
            self.flushed.insert(at, found);
        }
        self.since.clear();
    }
}
