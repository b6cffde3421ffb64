//! What can go wrong.

use std::io;
use std::path::PathBuf;

/// Why something could not be had of a chunk store.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// The directory cannot be used at all.
    #[error("cannot use {} as a chunk store: {error}. Nothing is lost: the store only saves bytes on the link", .path.display())]
    Directory {
        /// Of the store, or of a file in it.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another process has it open.
    #[error("the chunk store {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The chunk was evicted, cleared, damaged, or never was here. It must be sent again.
    #[error("this chunk is not in the store")]
    Missing,
    /// It cannot be kept: the disk is full, or does not take it. The stream goes on without.
    #[error("the chunk store cannot keep a chunk: {0}")]
    NotKept(io::Error),
}
