//! Changed blocks to fewer bytes and back: frames.
