//! How much a frame may cost: from nothing at all on a fast link to all that helps on a slow one.

/// What is spent on a frame, cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Effort {
    /// Nothing is compressed and nothing searched.
    Raw,
    /// zstd level 1, against the old bytes at the same place only.
    Fast,
    /// zstd level 3, against similar regions too.
    #[default]
    Standard,
    /// zstd level 8, and what a first copy carried last: those are a tenth smaller, a database's update a fifth, at 30 to 90 MB/s
    /// per core. What two cores can do for a T3.
    Thorough,
    /// For slow links: what gives the fewest bytes, at 7 to 30 MB/s per core.
    Strong,
}

impl Effort {
    /// All of them, cheapest first.
    pub const ALL: [Effort; 5] =
        [Effort::Raw, Effort::Fast, Effort::Standard, Effort::Thorough, Effort::Strong];

    /// As configuration and JSON call it.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Raw => "raw",
            Effort::Fast => "fast",
            Effort::Standard => "standard",
            Effort::Thorough => "thorough",
            Effort::Strong => "strong",
        }
    }

    /// Memory that encoding a frame of 1 MiB takes, bytes: its data, its prefix, what it becomes, and the compressor's
    /// tables.
    pub fn encoder_bytes(self) -> u64 {
        match self {
            Effort::Raw => 4 << 20,
            Effort::Fast => 12 << 20,
            Effort::Standard => 16 << 20,
            Effort::Thorough => 20 << 20,
            Effort::Strong => 40 << 20,
        }
    }
}
