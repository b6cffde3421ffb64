//! Adapter of the embedded store.
