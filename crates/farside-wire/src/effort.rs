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
    /// For slow links: what gives the fewest bytes, at a few tens of MB/s per core.
    Strong,
}
