//! The journal ring: batches out, with one sync for many waiters (group commit), and batches back in at recovery.
//!
//! There is no committer thread: whoever needs durability takes the ring's lock and writes what everybody has
//! appended so far; those who wait for the lock find their records durable when they get it.

use std::sync::Arc;

use farside_format::journal::{
    BATCH_HEADER_BYTES, BatchHeader, PAYLOAD_BYTES_MAX, Record, decode_batch, decode_batch_header,
    ring_bytes, seal_batch,
};
use farside_format::superblock::JOURNAL_START;
use farside_format::{BLOCK_BYTES, Superblock};
use farside_platform::{BlockBuffer, BlockDevice};
use uuid::Uuid;

use crate::error::{Result, StoreError};

/// Records that no batch holds yet, cut into payloads.
#[derive(Default)]
pub(crate) struct Pending {
    payloads: Vec<(Vec<u8>, u32)>,
    bytes: usize,
}

impl Pending {
    /// Appends one record.
    pub(crate) fn push(&mut self, record: &Record) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        self.bytes += encoded.len();
        match self.payloads.last_mut() {
            Some((payload, records)) if payload.len() + encoded.len() <= PAYLOAD_BYTES_MAX => {
                payload.extend_from_slice(&encoded);
                *records += 1;
            }
            _ => self.payloads.push((encoded, 1)),
        }
    }

    /// Bytes that they will take on the ring, at most.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.payloads.iter().map(|(payload, _)| ring_bytes(payload.len())).sum()
    }

    /// Bytes of records waiting.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn take(&mut self) -> Vec<(Vec<u8>, u32)> {
        self.bytes = 0;
        std::mem::take(&mut self.payloads)
    }
}

/// Where the ring's writing end stands.
pub(crate) struct RingWriter {
    device: Arc<dyn BlockDevice>,
    pool: Uuid,
    ring_bytes: u64,
    open_epoch: u64,
    /// Position of the next batch.
    pub(crate) position: u64,
    /// Its sequence.
    pub(crate) sequence: u64,
    /// Checksum of the last batch.
    pub(crate) chain: [u8; 16],
    /// Every batch up to this one is on the medium.
    pub(crate) proven: u64,
    /// Position from which the older superblock still needs the ring.
    pub(crate) tail: u64,
}

impl RingWriter {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, superblock: &Superblock, end: &RingEnd) -> RingWriter {
        RingWriter {
            device,
            pool: superblock.pool,
            ring_bytes: superblock.journal_blocks * BLOCK_BYTES as u64,
            open_epoch: superblock.open_epoch,
            position: end.position,
            sequence: end.sequence,
            chain: end.chain,
            proven: end.sequence.saturating_sub(1),
            tail: superblock.journal_position,
        }
    }

    /// Bytes of the ring that are still needed.
    pub(crate) fn used(&self) -> u64 {
        self.position - self.tail
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.ring_bytes
    }

    /// Writes batches; nothing is durable until the device is synced.
    pub(crate) fn write(&mut self, payloads: Vec<(Vec<u8>, u32)>) -> Result<()> {
        for (offset, bytes) in self.seal(payloads)? {
            self.device.write_at(offset, &bytes)?;
        }
        Ok(())
    }

    /// Makes batches, and gives them their place on the ring: what is to be written, and where. Until that is done the ring's end is
    /// in doubt.
    pub(crate) fn seal(&mut self, payloads: Vec<(Vec<u8>, u32)>) -> Result<Vec<(u64, BlockBuffer)>> {
        let mut sealed = Vec::with_capacity(payloads.len());
        for (payload, records) in payloads {
            let bytes = ring_bytes(payload.len());
            // Admission keeps room for what is under way; if it failed, nothing older may be overwritten.
            if self.used() + bytes > self.ring_bytes {
                return Err(StoreError::Inconsistent("the journal ring is full".into()));
            }
            let mut batch = BlockBuffer::zeroed((bytes / BLOCK_BYTES as u64) as usize);
            batch[BATCH_HEADER_BYTES..BATCH_HEADER_BYTES + payload.len()].copy_from_slice(&payload);
            let header = BatchHeader {
                payload_bytes: payload.len(),
                pool: self.pool,
                open_epoch: self.open_epoch,
                sequence: self.sequence,
                position: self.position,
                proven: self.proven,
                records,
                previous: self.chain,
                checksum: [0; 16],
            };
            self.chain = seal_batch(&mut batch, payload.len(), &header);
            let at = self.position % self.ring_bytes;
            let first = (self.ring_bytes - at).min(bytes) as usize;
            let start = JOURNAL_START * BLOCK_BYTES as u64;
            if first < batch.len() {
                sealed.push((start + at, BlockBuffer::copy_of(&batch[..first])));
                sealed.push((start, BlockBuffer::copy_of(&batch[first..])));
            } else {
                sealed.push((start + at, batch));
            }
            self.position += bytes;
            self.sequence += 1;
        }
        Ok(sealed)
    }
}

/// Reads, once more if it fails: much of what a device refuses works when it is asked for again.
pub(crate) fn read_again(device: &dyn BlockDevice, offset: u64, buffer: &mut [u8]) -> Result<()> {
    device.read_at(offset, buffer).or_else(|_| device.read_at(offset, buffer)).map_err(StoreError::from)
}

/// Where the journal ends: what the next batch continues from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingEnd {
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    pub(crate) chain: [u8; 16],
}

/// One batch read back.
pub(crate) struct ReadBatch {
    pub(crate) header: BatchHeader,
    pub(crate) records: Vec<Record>,
    pub(crate) end: RingEnd,
}

/// Reads the ring from a superblock's position on.
pub(crate) struct RingReader<'a> {
    device: &'a dyn BlockDevice,
    superblock: &'a Superblock,
    ring_bytes: u64,
    pub(crate) next: RingEnd,
    /// Whether the next batch stands there, but not as a whole.
    pub(crate) is_torn: bool,
    /// Bytes of the ring read ahead, and the position of the first of them: a batch of one record takes 4 KiB, and reading
    /// each by itself would cost the device's latency twice.
    ahead: (u64, BlockBuffer),
}

/// What is read of the ring at once.
const READ_AHEAD_BYTES: u64 = 1 << 20;

impl<'a> RingReader<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, superblock: &'a Superblock) -> RingReader<'a> {
        let next = RingEnd {
            position: superblock.journal_position,
            sequence: superblock.journal_sequence,
            chain: superblock.journal_chain,
        };
        let ring_bytes = superblock.journal_blocks * BLOCK_BYTES as u64;
        let ahead = (0, BlockBuffer::zeroed(0));
        RingReader { device, superblock, ring_bytes, next, is_torn: false, ahead }
    }

    /// So many bytes of the ring from the next batch on, which lie on it as a whole.
    fn read_next(&mut self, bytes: u64) -> Result<&[u8]> {
        let position = self.next.position;
        let (from, buffer) = &self.ahead;
        let is_there = *from <= position && position + bytes <= from + buffer.len() as u64;
        if !is_there {
            let left = self.superblock.journal_position + self.ring_bytes - position;
            let ahead = self.read_ring(position, READ_AHEAD_BYTES.max(bytes).min(left) as usize);
            // What the device refuses may lie further on: only what is needed counts.
            let ahead = ahead.or_else(|_| self.read_ring(position, bytes as usize))?;
            self.ahead = (position, ahead);
        }
        let (from, buffer) = &self.ahead;
        let at = (position - from) as usize;
        Ok(&buffer[at..at + bytes as usize])
    }

    fn read_ring(&self, position: u64, bytes: usize) -> Result<BlockBuffer> {
        let mut buffer = BlockBuffer::zeroed(bytes.div_ceil(BLOCK_BYTES));
        let length = buffer.len();
        let at = position % self.ring_bytes;
        let first = ((self.ring_bytes - at) as usize).min(length);
        let start = JOURNAL_START * BLOCK_BYTES as u64;
        read_again(self.device, start + at, &mut buffer[..first])?;
        if first < length {
            read_again(self.device, start, &mut buffer[first..])?;
        }
        Ok(buffer)
    }

    /// The same, with zeros where the medium itself says that a block is unreadable.
    fn read_around(&self, position: u64, bytes: usize) -> Result<BlockBuffer> {
        if let Ok(whole) = self.read_ring(position, bytes) {
            return Ok(whole);
        }
        let mut buffer = BlockBuffer::zeroed(bytes.div_ceil(BLOCK_BYTES));
        for (at, block) in (position..).step_by(BLOCK_BYTES).zip(buffer.chunks_mut(BLOCK_BYTES)) {
            match self.read_ring(at, BLOCK_BYTES) {
                Ok(read) => block.copy_from_slice(&read),
                Err(error) if error.is_proof_of_damage() => {
                    tracing::error!(
                        block = at % self.ring_bytes / BLOCK_BYTES as u64,
                        "a block of the journal past its end cannot be read: {error}. Nothing is lost, but the medium loses data"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(buffer)
    }

    /// The next batch, or `None` where the journal ends.
    ///
    /// A block that the medium itself calls unreadable is as good as a damaged one: a write that a power failure interrupted can
    /// leave that, and if the batch had been synced before others were written, they prove it. A block that the device refuses for
    /// whatever else may hold the last flush, which nothing proves, and is an error: it may be readable the next time.
    pub(crate) fn next(&mut self) -> Result<Option<ReadBatch>> {
        if self.next.position - self.superblock.journal_position >= self.ring_bytes {
            return Ok(None);
        }
        let first = match self.read_next(BLOCK_BYTES as u64) {
            Err(error) if error.is_proof_of_damage() => {
                self.is_torn = true;
                return Ok(None);
            }
            first => first?,
        };
        let Ok(header) = decode_batch_header(first) else { return Ok(None) };
        let is_next = header.pool == self.superblock.pool
            && header.sequence == self.next.sequence
            && header.position == self.next.position
            && header.previous == self.next.chain;
        // What stands here may be an old batch, from before the superblock's position.
        if !is_next
            || header.position + header.ring_bytes() - self.superblock.journal_position > self.ring_bytes
        {
            return Ok(None);
        }
        let bytes = match self.read_next(header.ring_bytes()) {
            Err(error) if error.is_proof_of_damage() => {
                self.is_torn = true;
                return Ok(None);
            }
            bytes => bytes?,
        };
        let Ok((header, payload)) = decode_batch(bytes) else {
            self.is_torn = true;
            return Ok(None);
        };
        // The checksum holds, so these are bytes that were meant: what they say must make sense.
        let records = Record::decode_all(payload, header.records)
            .map_err(|e| StoreError::Inconsistent(format!("journal batch {}: {e}", header.sequence)))?;
        let end = RingEnd {
            position: header.position + header.ring_bytes(),
            sequence: header.sequence + 1,
            chain: header.checksum,
        };
        self.next = end;
        Ok(Some(ReadBatch { header, records, end }))
    }

    /// The highest sequence that any good batch further on the ring proves to have been synced: if the journal
    /// seems to end before it, that is damage, not an end.
    pub(crate) fn proven_beyond(&self) -> Result<u64> {
        let mut proven = 0;
        let mut position = self.next.position;
        let end = self.superblock.journal_position + self.ring_bytes;
        while position < end {
            let piece = self.read_around(position, READ_AHEAD_BYTES.min(end - position) as usize)?;
            for (i, block) in piece.chunks(BLOCK_BYTES).enumerate() {
                let at = position + (i * BLOCK_BYTES) as u64;
                let Ok(header) = decode_batch_header(block) else { continue };
                if header.pool != self.superblock.pool
                    || header.sequence <= self.next.sequence
                    || header.position != at
                    || header.proven <= proven
                {
                    continue;
                }
                let bytes = self.read_around(at, header.ring_bytes() as usize)?;
                if decode_batch(&bytes).is_ok() {
                    proven = header.proven;
                }
            }
            position += READ_AHEAD_BYTES;
        }
        Ok(proven)
    }
}
