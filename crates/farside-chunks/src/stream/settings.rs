//! What is done for a stream.

/// What is done for a stream, and what may be spent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// zstd's level, 1 to 19.
    pub level: i32,
    /// log2 of the history's bytes, 10 to [`WINDOW_LOG_MAX`](super::WINDOW_LOG_MAX).
    pub window_log: u32,
    /// Chunks are found, kept and named. Otherwise blocks are literal bytes, and the stream leaves nothing in the store of
    /// either site.
    pub refers: bool,
    /// Literals are compressed. Otherwise they go as they are.
    pub compresses: bool,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings { level: 3, window_log: 20, refers: true, compresses: true }
    }
}
