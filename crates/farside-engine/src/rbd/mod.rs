//! Volumes that are images of Ceph RBD.
//!
//! A pool of farside is a pool of RBD, or a namespace in one; its volumes are the images there, whoever made them. Looking at an image
//! changes nothing of it. A mirror's source takes snapshots of it (named `farside-UUID`) and writes into its metadata what they stand
//! for (`document.rs`); only such snapshots are ever removed here. Snapshots that others made are theirs, and are not listed.
//!
//! What holds:
//!
//! * **One moment.** Every change comes to be by one write of the document, which fails if somebody changed it meanwhile
//!   (`volume.rs`). What leads up to it makes snapshots that stand for nothing yet; a crash leaves such garbage, and the next change
//!   clears it away.
//! * **Replicas are nobody else's.** The head of a replica is locked exclusively (`head.rs`): a host that writes gets `EROFS`. An
//!   update is staged in the head; what hosts see meanwhile is a snapshot (*shown*). A break rolls the head back to that, and what was
//!   staged is *parked* as a snapshot.
//! * **A second owner fences the first.** [`RbdEngine::settle`] with `take_over` breaks the locks of another client, which puts that on the
//!   cluster's blocklist: neither a byte nor a document of its changes any more, however alive it is. It stays there for
//!   `mon_osd_blocklist_default_expire`, an hour: a process that hangs for longer and then wakes is fenced no more. (To ask librbd for
//!   longer, `rbd_blocklist_expire_seconds`, has Ceph 16 refuse the whole break.)
//! * **Fingerprints are derived.** Content roots are made of the blocks, and beside each snapshot lie those of its spans of 512 KiB
//!   (`leaves.rs`), so that the next one reads what differs. What is lost costs reading.
//!
//! It has none of the capabilities of [`crate::Branches`] and those beside it. What it does not do yet: find data by content. It tells the
//! room of a pool (`room.rs`) to who shows it and to transfers, and not as a capacity for which what is kept for destinations would go:
//! what is deleted comes free in a cluster minutes later, and much would go in vain meanwhile.
//!
//! What is unsafe is in `ceph/` alone: the libraries, loaded when the first pool is added.

mod ceph;
mod comparison;
mod difference;
mod document;
mod engine;
mod errors;
#[cfg(feature = "conformance")]
pub mod fixture;
mod head;
mod held;
mod lately;
mod leaves;
mod opened;
mod pool;
mod readers;
mod room;
mod room_asked;
mod roots;
mod settle;
mod snapshots;
mod staged;
mod state;
mod steps;
mod version;
mod volume;

pub use pool::RbdPool;
pub use room::RbdRoom;
pub use settle::ClusterClient;
pub use state::RbdEngine;
