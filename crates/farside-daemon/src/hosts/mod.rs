//! Hosts that come over the network: who they are, and which volumes they may open.
//!
//! A host is known by its certificate's fingerprint ([`authority`]), or, where certificates come from elsewhere ([`own`]),
//! by the name in it. A right belongs to a volume by its identity: it follows a rename and ends with the volume. The
//! volume's snapshots can be read with it.
//!
//! Guarantees: a right is looked at and an opened export noted under one lock, so what is taken away is either not opened
//! any more or is cut. `deny` and `remove` return when what they cut is gone, or say that it is not.

mod authority;
mod book;
mod connection;
mod door;
mod own;

pub(crate) use book::{Hosts, Trust};
pub(crate) use door::Door;
pub(crate) use own::OwnFiles;

use crate::options::NbdConfig;

/// What the start would refuse of `[nbd]`'s names and files.
///
/// # Errors
/// Which one is wrong.
pub(crate) fn check(config: &NbdConfig) -> Result<(), String> {
    match &config.own {
        Some(files) => files.load(&rustls::crypto::aws_lc_rs::default_provider()).map(drop),
        None => authority::alternatives(&config.names).map(drop),
    }
}
