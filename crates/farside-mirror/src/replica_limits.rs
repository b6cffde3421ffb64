//! What mirrors may take of this site as a destination.

/// The limits of a site; the same for each mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaLimits {
    /// Part of a pool, in percent, that transfers leave free for hosts; 1/32 of it always.
    pub reserve_percent: u8,
    /// Snapshots that persons made, which one replica has at most, side branches included. Above that the oldest of those that wait are
    /// not taken.
    pub snapshots: usize,
    /// Newest rescues of a volume that stay, and as many days of which the first does; 0: all. See [`rescues`](crate::rescues).
    pub rescues: usize,
    /// What a person asked for and a stop of the process has cut goes on by itself, where no schedule takes it up. The daemon has it so.
    pub takes_up: bool,
}

impl Default for ReplicaLimits {
    fn default() -> ReplicaLimits {
        ReplicaLimits {
            // As much as a source keeps free for its hosts by releasing bases.
            reserve_percent: 5,
            // Every hour for five months. A pool's catalog has room for a few hundred thousand in all.
            snapshots: 4096,
            rescues: 16,
            takes_up: false,
        }
    }
}
