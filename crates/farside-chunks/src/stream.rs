//! How a byte stream is said in chunks: blocks of references, of new chunks and of bytes that are no chunk.
//!
//! A **block** stands for up to [`BLOCK_BYTES_MAX`] of the stream. What the peer holds is a reference: a run of
//! neighbours in a container, however long, is some six bytes. What resembles a chunk that the peer
//! holds is said as copies from that. What is new travels as **literals**, one after the other,
//! compressed by zstd with the literals of the blocks before as history; both sides keep it as a chunk under the name
//! that the sender gave it.
//!
//! A block with references carries a digest of the bytes it stands for. If a chunk is missing or the digest does not fit,
//! the receiver asks for the block's bytes ([`StreamEncoder::answer`]) and delivers nothing before; the answer is held
//! against the same digest. The blocks after it can be decoded meanwhile: references are not part of the history.
//!
//! Byte map of a block; numbers are LEB128:
//!
//! ```text
//! bytes  field
//!     1  flags: 1 the literals are compressed, 2 a new zstd frame begins, 4 there is a digest
//!     1  log2 of the bytes of history that the new frame uses at most, if one begins
//!     n  bytes of the stream it stands for, 1 to BLOCK_BYTES_MAX
//!     n  bytes of the operations
//!     n  bytes of the literals, uncompressed
//!    16  BLAKE3 of the bytes it stands for, truncated, if there is a digest; there is one where kind 3 is
//!        operations: n * 4 + kind, then
//!          kind 0: n literal bytes, no chunk
//!          kind 1: n literal bytes, the chunk after the chunk named last
//!          kind 2: n literal bytes, the chunk that is named here
//!          kind 3: n chunks from the one that is named here on
//!          kind 3 with n = 0: the chunk of the next operation, kind 1 or 2, is made of the one that is named here (after a
//!                  1), or of the one after that named so last (a 0), by the copies that follow (`patch.rs`); its literals
//!                  are what is between them
//!        a name: number of its origin in the order of their first use in this direction (one that is new is followed by its
//!                16 bytes), the container's number, the place
//!        literals
//! ```
//!
//! A block has at most [`BASES_MAX`] chunks that are made of others. They are kept once its digest fits.
//!
//! No operation stands for nothing, a chunk has at least [`CHUNK_KEPT_MIN`] bytes, and a block names at most
//! [`CONTAINERS_MAX`] containers. So what a block costs its receiver is bounded by the bytes that it stands for.

mod block;
mod compress;
mod decode;
mod decompress;
mod encode;
mod error;
mod layout;
mod operations;
mod patch;
mod settings;

pub use block::{stream_bytes_of, window_log_of};
pub use decode::StreamDecoder;
pub use encode::{Encoded, StreamEncoder};
pub use error::{DecodeError, Wanted};
pub use layout::{
    BASES_MAX, BLOCK_BYTES_MAX, CHUNK_KEPT_MIN, CONTAINERS_MAX, WINDOW_LOG_ALONE, WINDOW_LOG_MAX,
};
pub use settings::{Effort, StreamSettings};
