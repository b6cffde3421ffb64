//! The source's side of transfers: plans them, and sends what they ask for.

mod choose;
mod common;
mod compare;
mod counters;
mod cross_volume;
mod encoders;
mod flow;
mod heartbeat;
mod known;
mod link_history;
mod prepare;
mod relationships;
mod remaining;
mod reserve;
mod send;
mod service;
mod serving;
mod shared;
mod similarity;

pub use compare::compare;
pub use encoders::{ENCODER_MEMORY, ENCODER_MEMORY_MIN, EncoderSettings};
pub use prepare::Asked;
pub use relationships::{KeptBase, SourceRelationships};
pub use reserve::{reserve, reserve_together};
pub use service::{Acknowledged, Ended, Prepared, Served, Slot, Step, TransferSource, Wanted, refuse_stream};
pub use similarity::{MemorySimilarityStore, SIMILARITY_BYTES_PER_TIB, Similarity, SimilarityStore};
