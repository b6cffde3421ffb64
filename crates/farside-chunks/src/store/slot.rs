//! What is known of one container.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::container::Growing;
use crate::name::{ContainerName, RealmId};
use crate::ranges::Ranges;

/// A container.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) realm: RealmId,
    pub(super) name: ContainerName,
    /// None once nothing is appended any more.
    pub(super) growing: Option<Arc<Mutex<Growing>>>,
    /// The places at which there are chunks.
    pub(super) held: Ranges,
    /// It is in the index.
    pub(super) is_loaded: bool,
    /// Of its file.
    pub(super) bytes: u64,
    /// Its chunks that were entered into the index.
    pub(super) entered: u64,
    /// Asked for since the ring came by.
    pub(super) is_marked: bool,
    /// Which of all containers of this store it is, counted as they came.
    pub(super) came: u64,
}

impl Slot {
    pub(super) fn new(realm: RealmId, name: ContainerName, growing: Option<Growing>, bytes: u64) -> Slot {
        let growing = growing.map(|growing| Arc::new(Mutex::new(growing)));
        Slot {
            realm,
            name,
            held: Ranges::default(),
            // There is nothing to be read of one that begins.
            is_loaded: growing.is_some(),
            growing,
            bytes,
            entered: 0,
            is_marked: false,
            came: 0,
        }
    }
}

/// A container that went since the disk was full.
#[derive(Clone, Copy)]
pub(super) struct GaveWay {
    /// When, by the clock's monotonic time.
    pub(super) at: Duration,
    /// What it left.
    pub(super) freed: u64,
    /// Of all others then.
    pub(super) bytes: u64,
}
