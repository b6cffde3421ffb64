//! NBD server: host I/O on volumes and snapshots.
