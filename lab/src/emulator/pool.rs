//! Buffers of packets: few sizes, used again, bounded in all.
//!
//! The size of a packet is known only after it has been read, so each is read into a buffer for the largest. A packet that
//! fits a smaller one is copied there; a large one keeps the buffer that it was read into, and is not copied. So a full
//! packet costs no more memory than the MTU and an acknowledgement of 52 bytes costs 256, not 1500.

/// Buffers below the MTU's: acknowledgements and small requests; what fits the usual MTU where the link's is larger.
const SMALL_SIZES: [usize; 2] = [256, 2048];

/// Memory for buffers, as a multiple of the bytes of packets that the link can hold: a packet of 40 bytes, the smallest of
/// TCP, takes 256.
const MEMORY_FACTOR: u64 = 7;

/// Most memory in buffers, each direction. Only a flood of small packets over a fast and long link comes near.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Buffers not in use are kept up to this, each size; the rest is given back to the system.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// A packet in a buffer that may be larger.
#[derive(Debug)]
pub(super) struct Packet {
    buffer: Box<[u8]>,
    length: u32,
}

impl Packet {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length as usize]
    }
}

/// The buffers of one direction.
#[derive(Debug)]
pub(super) struct Pool {
    sizes: Vec<usize>,
    spare: Vec<Vec<Box<[u8]>>>,
    used_bytes: u64,
    limit_bytes: u64,
}

impl Pool {
    /// For packets up to `mtu`.
    pub(super) fn new(mtu: u32) -> Self {
        let mtu = mtu as usize;
        let mut sizes: Vec<_> = SMALL_SIZES.into_iter().filter(|&size| size < mtu).collect();
        sizes.push(mtu);
        Self { spare: sizes.iter().map(|_| Vec::new()).collect(), sizes, used_bytes: 0, limit_bytes: 0 }
    }

    /// The link can hold `held_bytes` of packets.
    pub(super) fn allow(&mut self, held_bytes: u64) {
        self.limit_bytes = (held_bytes * MEMORY_FACTOR).min(MEMORY_BYTES_MAX);
    }

    /// A buffer for the largest packet, to read into; it counts once it holds a packet.
    pub(super) fn scratch(&mut self) -> Box<[u8]> {
        let largest = self.sizes.len() - 1;
        self.buffer(largest)
    }

    /// The first `length` bytes of `scratch` as a packet of their own; `scratch` can be read into again. None if memory
    /// is at its limit.
    pub(super) fn keep(&mut self, scratch: &mut Box<[u8]>, length: usize) -> Option<Packet> {
        let class = self.sizes.iter().position(|&size| length <= size)?;
        let size = self.sizes[class] as u64;
        if self.used_bytes + size > self.limit_bytes {
            return None;
        }
        self.used_bytes += size;
        let mut buffer = self.buffer(class);
        if class + 1 == self.sizes.len() {
            std::mem::swap(&mut buffer, scratch);
        } else {
            buffer[..length].copy_from_slice(&scratch[..length]);
        }
        Some(Packet { buffer, length: u32::try_from(length).ok()? })
    }

    /// A packet that is no longer needed.
    pub(super) fn give_back(&mut self, packet: Packet) {
        let size = packet.buffer.len();
        self.used_bytes -= size as u64;
        if let Some(class) = self.sizes.iter().position(|&s| s == size)
            && (self.spare[class].len() + 1) * size <= SPARE_BYTES_MAX
        {
            self.spare[class].push(packet.buffer);
        }
    }

    fn buffer(&mut self, class: usize) -> Box<[u8]> {
        self.spare[class].pop().unwrap_or_else(|| vec![0; self.sizes[class]].into_boxed_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_keeps_its_bytes_while_others_come_and_go() {
        let mut pool = Pool::new(9000);
        pool.allow(1 << 20);
        let mut scratch = pool.scratch();
        let mut kept = Vec::new();
        for round in 0..4_u8 {
            for length in [1, 40, 256, 257, 1500, 2048, 2049, 9000] {
                scratch[..length].fill(round ^ length as u8);
                kept.push((pool.keep(&mut scratch, length).unwrap(), round ^ length as u8, length));
            }
            scratch.fill(0xee);
            for (packet, value, length) in kept.drain(..kept.len() / 2) {
                assert_eq!(packet.bytes(), vec![value; length]);
                pool.give_back(packet);
            }
        }
        for (packet, value, length) in kept {
            assert_eq!(packet.bytes(), vec![value; length]);
            pool.give_back(packet);
        }
        assert_eq!(pool.used_bytes, 0);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut pool = Pool::new(1500);
        pool.allow(1500);
        let mut scratch = pool.scratch();
        let mut kept: Vec<_> = std::iter::from_fn(|| pool.keep(&mut scratch, 1500)).collect();
        assert_eq!(kept.len(), 7);
        assert!(pool.keep(&mut scratch, 40).is_none());
        pool.give_back(kept.pop().unwrap());
        assert!(pool.keep(&mut scratch, 40).is_some());
        assert!(pool.keep(&mut scratch, 9001).is_none());
    }
}
