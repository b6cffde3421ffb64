//! Bytes on the wire: the streams that carry them, and how they are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};

/// What TLS 1.3 adds to each record: header 5, content type 1, tag 16.
const RECORD_OVERHEAD: u64 = 22;
/// Most bytes in one record.
const RECORD_BYTES: u64 = 16 * 1024;

/// Bytes on the wire (TLS records included), both ways; shared, only ever growing.
#[derive(Debug, Default)]
pub struct WireCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl WireCounters {
    /// Bytes this side has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
    /// Bytes this side has received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
    /// Counts sent bytes.
    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Counts received bytes.
    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A byte stream that can be read and written.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What `bytes` written at once cost on the wire: the bytes and 22 for each TLS record of up to 16 KiB.
pub fn wire_cost(bytes: usize) -> u64 {
    let bytes = bytes as u64;
    bytes + RECORD_OVERHEAD * bytes.div_ceil(RECORD_BYTES)
}
