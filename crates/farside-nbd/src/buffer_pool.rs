//! Buffers for payloads, used again and again.
//!
//! A fresh aligned buffer costs a memset and, when large, a page fault every 4 KiB; a used one costs neither.
//! Buffers begin on a 4096-byte boundary, so that an export can use direct I/O on them where they lie. They come
//! with the bytes of an earlier request in them: whoever takes one fills all of it before showing any of it.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use farside_platform::{BLOCK_BYTES, BlockBuffer};
use parking_lot::Mutex;

use crate::limits::{FREE_BUFFER_BYTES_MAX, REQUEST_BYTES_MAX};

/// Sizes: powers of two from one block to the longest request.
const SIZES: usize = (REQUEST_BYTES_MAX as usize / BLOCK_BYTES).ilog2() as usize + 1;

/// Free buffers, bounded in bytes.
#[derive(Default)]
pub(crate) struct BufferPool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    by_size: [Vec<BlockBuffer>; SIZES],
    bytes: usize,
}

impl BufferPool {
    /// A buffer of `length` bytes, at most [`REQUEST_BYTES_MAX`].
    pub(crate) fn take(self: &Arc<Self>, length: u32) -> PayloadBuffer {
        assert!(length <= REQUEST_BYTES_MAX);
        let length = length as usize;
        let blocks = length.div_ceil(BLOCK_BYTES).max(1).next_power_of_two();
        let kept = {
            let mut free = self.free.lock();
            let kept = free.by_size[blocks.ilog2() as usize].pop();
            free.bytes -= kept.as_ref().map_or(0, |buffer| buffer.len());
            kept
        };
        let blocks = kept.unwrap_or_else(|| BlockBuffer::zeroed(blocks));
        PayloadBuffer { blocks, length, pool: Arc::clone(self) }
    }

    fn give_back(&self, blocks: BlockBuffer) {
        let mut free = self.free.lock();
        if free.bytes + blocks.len() <= FREE_BUFFER_BYTES_MAX {
            free.bytes += blocks.len();
            free.by_size[blocks.blocks().ilog2() as usize].push(blocks);
        }
    }
}

/// A request's payload. Returns to its pool when dropped.
pub(crate) struct PayloadBuffer {
    blocks: BlockBuffer,
    length: usize,
    pool: Arc<BufferPool>,
}

impl PayloadBuffer {
    /// The same bytes, shareable; the last holder returns them to the pool.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for PayloadBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.blocks[..self.length]
    }
}

impl DerefMut for PayloadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.blocks[..self.length]
    }
}

impl AsRef<[u8]> for PayloadBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PayloadBuffer {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.blocks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_from_the_last_holder() {
        let pool = Arc::new(BufferPool::default());
        let buffer = pool.take(5000);
        assert_eq!(buffer.len(), 5000);
        let place = buffer.as_ptr();
        let bytes = buffer.into_bytes();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(pool.free.lock().bytes, 0, "a part is still held");
        drop(part);
        assert_eq!(pool.free.lock().bytes, 8192);
        assert_eq!(pool.take(8192).as_ptr(), place);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pool = Arc::new(BufferPool::default());
        let held: Vec<_> = (0..4).map(|_| pool.take(REQUEST_BYTES_MAX)).collect();
        drop(held);
        assert_eq!(pool.free.lock().bytes, FREE_BUFFER_BYTES_MAX);
    }
}
