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
    /// What resembles a chunk that the peer holds is said as copies from it.
    pub patches: bool,
    /// Literals are compressed. Otherwise they go as they are.
    pub compresses: bool,
}

/// How much time there is for the literals of a stream, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// For links that are as fast as this can be.
    Fast,
    /// Where nothing is known of the link.
    Standard,
    /// For links between towns.
    Thorough,
    /// For the slowest.
    Strong,
}

impl Effort {
    /// All of them, cheapest first.
    pub const ALL: [Effort; 4] = [Effort::Fast, Effort::Standard, Effort::Thorough, Effort::Strong];

    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Fast => "fast",
            Effort::Standard => "standard",
            Effort::Thorough => "thorough",
            Effort::Strong => "strong",
        }
    }
}

impl StreamSettings {
    /// What zstd is told.
    pub fn spending(effort: Effort) -> StreamSettings {
        let (level, window_log) = match effort {
            Effort::Fast => (1, 20),
            Effort::Standard => (3, 22),
            Effort::Thorough => (9, 27),
            Effort::Strong => (15, 27),
        };
        StreamSettings { level, window_log, patches: effort > Effort::Fast, ..StreamSettings::default() }
    }
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings { level: 3, window_log: 20, refers: true, patches: true, compresses: true }
    }
}
