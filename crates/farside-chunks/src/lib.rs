//! The chunk store: what has passed between two sites, remembered at both, so that it need not pass again.
//!
//! A byte stream is cut into **chunks** where its content says so ([`cut`]), so that what was inserted earlier in it
//! moves the cuts but does not change the chunks. Each site keeps the chunks it has sent and received in **containers**:
//! append-only files of some megabytes, in the order of arrival, which is the order in which they will be asked for
//! again. A small **index** in memory finds a chunk by its fingerprint; a neighbour in the same container is found
//! without it.
//!
//! A chunk is named on the wire by who made its container, the container's number and its place there ([`ChunkName`]),
//! never by a hash: names of neighbours are neighbours, so a run of any length is one small reference. Fingerprints are
//! keyed by a secret that never leaves the site; nobody can make two contents look the same, or ask what is stored.
//!
//! Chunks belong to a **realm**: by default a peer's own. Nothing is found, named or read across realms.
//!
//! Everything here is a hint. What is lost, damaged, cleared or evicted costs bytes, never wrong content: a chunk is
//! verified against its fingerprint when it is read, and whoever refers to what is gone is asked to send it. So nothing
//! is synced, and containers that do not look right are removed.
//!
//! Reading order: [`cut`], [`name`], [`container`] (the file), [`index`], [`store`] (the ring of containers and its
//! realms), [`mod@sketch`] (by what chunks that resemble others are found, in memory only), [`known`] (what the other site
//! is known to hold), [`stream`] (how a stream is said in chunks). [`mod@fuzz`] has what fuzzers call.

pub mod container;
pub mod cut;
pub mod error;
pub mod fingerprint;
pub mod fuzz;
pub mod index;
pub mod known;
pub mod name;
pub mod ranges;
pub mod ring;
pub mod sketch;
pub mod store;
pub mod stream;
#[cfg(test)]
mod tests;
mod varint;

pub use error::ChunkError;
pub use fingerprint::{Fingerprint, FingerprintKey};
pub use known::{Holdings, KnownAtPeer};
pub use name::{ChunkName, ContainerName, OriginId, RealmId};
pub use ranges::Ranges;
pub use store::{ChunkStore, Realm, StoreSettings, StoreStats};
pub use stream::{Effort, StreamDecoder, StreamEncoder, StreamSettings, Wanted};
