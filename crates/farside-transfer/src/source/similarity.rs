//! Indexes of similar content: for each volume that this site is source of, where in its newest base what content lies.
//!
//! They are fed by the transfers: what a step sends is entered as it is sent, so host writes pay nothing, and what it leaves
//! behind is the index of the next step's base. Kept over restarts by a [`SimilarityStore`]; where one is absent it is
//! rebuilt in the background, by reading the snapshot that will be the next base, while transfers go on without it. What a
//! step need not read, because the destination knows it, is read so afterwards, and nothing else with it.
//! In memory an index stays as long as transfers use it, and at least [`INDEX_IDLE_MAX`](crate::limits::INDEX_IDLE_MAX) longer.
//!
//! Everything in an index is a hint: one that is stale, incomplete or lost costs bytes on the wire, never data.

mod indexes;
mod missing;
mod rebuild;
mod store;
mod volume;

pub(crate) use indexes::Indexes;
pub(crate) use rebuild::Content;
pub use store::{MemorySimilarityStore, SIMILARITY_BYTES_PER_TIB, Similarity, SimilarityStore};
pub(crate) use volume::{Unread, VolumeIndex};
