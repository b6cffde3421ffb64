//! Finds what both sides hold that resembles a frame's new blocks, wherever it lies.
//!
//! File systems write changed files to other blocks, and rows move between pages: the old bytes at the same place are
//! often not the old bytes that matter. An **anchor** is a place in the content that a rolling hash picks by its value
//! alone, so that equal content has equal anchors wherever it stands. Two levels keep the memory small:
//!
//! * [`SimilarityIndex`]: of a whole volume only *sampled* anchors, one per 16 KiB, 4 bytes each. They name a place of
//!   64 KiB, a hint that may be stale or wrong.
//! * [`Search`]: a frame's sampled anchors vote for segments of 1 MiB. The best are read, and their *dense* anchors (one
//!   per 1 KiB) choose regions of 8 KiB and what stands around them: those become the frame's prefix.
//!
//! Nothing here is ever wrong in what it answers, only useless: the prefix's bytes are compared by digest.

mod anchors;
mod carried;
mod dense;
mod gear;
mod index;
mod search;

pub use anchors::Anchors;
pub use index::SimilarityIndex;
pub use search::{Indexes, Search};
