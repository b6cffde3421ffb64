//! What hosts see over NBD: every volume as `POOL/VOL`, every snapshot as `POOL/VOL@SNAP`.
//!
//! A replica is read-only and pinned to the version that was published when the client connected. When it is broken
//! off, or its mirror deleted, its read-only connections are dropped: they would show the past for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use farside_engine::VolumeName;
use farside_nbd::{
    ErrorKind, Export, ExportDescription, ExportListing, ExportSource, Extent, NbdError, ZeroMode,
};
use farside_store::{StoreError, VersionHandle};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics::FLUSH_SECONDS;
use crate::pools::Pools;

/// Blocks are the store's unit of allocation.
const BLOCK: u64 = farside_engine::BLOCK_BYTES;
/// All that can be opened.
#[derive(Debug)]
pub(crate) struct Exports {
    pools: Arc<Pools>,
    uses: Arc<Mutex<Uses>>,
}

/// Volumes that have connections; a snapshot's count for its volume.
type Uses = HashMap<VolumeName, Use>;

#[derive(Debug, Default)]
struct Use {
    connections: usize,
    /// Ends those that are pinned to a published version.
    pinned: CancellationToken,
}

impl Exports {
    pub(crate) fn new(pools: Arc<Pools>) -> Exports {
        Exports { pools, uses: Arc::default() }
    }

    /// Ends the connections that are pinned to a published version of `volume`. To be called once the volume is no
    /// replica any more.
    pub(crate) fn drop_replica_connections(&self, volume: &VolumeName) {
        if let Some(found) = self.uses.lock().get_mut(volume) {
            std::mem::take(&mut found.pinned).cancel();
        }
    }

    /// How many connections there are to volumes (and their snapshots) of `pool`.
    pub(crate) fn connections_to_pool(&self, pool: &str) -> usize {
        self.uses
            .lock()
            .iter()
            .filter(|(name, _)| name.pool == pool)
            .map(|(_, found)| found.connections)
            .sum()
    }

    /// How many connections there are to a volume and its snapshots.
    pub(crate) fn connections_to(&self, volume: &VolumeName) -> usize {
        self.uses.lock().get(volume).map_or(0, |found| found.connections)
    }

    fn open_export(&self, name: &str) -> Result<OpenExport, NbdError> {
        let unknown = || {
            NbdError::new(
                ErrorKind::UnknownExport,
                format!("there is no export {name:?}; exports are POOL/VOL and POOL/VOL@SNAP"),
            )
        };
        let (volume, snapshot) = match name.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (name, None),
        };
        let volume: VolumeName = volume.parse().map_err(|_| unknown())?;
        let pool = self.pools.get(&volume.pool).map_err(|e| NbdError::new(ErrorKind::UnknownExport, e))?;
        let failed = |error| match error {
            StoreError::NotFound(_) => unknown(),
            other => failure(other),
        };
        let held = Held::new(Arc::clone(&self.uses), volume.clone());
        if let Some(snapshot) = snapshot {
            let handle = pool.open_snapshot(&volume.volume, snapshot).map_err(failed)?;
            let closed = CancellationToken::new();
            return Ok(OpenExport { handle, about: "snapshot", multi_conn: true, closed, _held: held });
        }
        loop {
            let closed = held.pinned();
            let handle = pool.open_volume(&volume.volume).map_err(failed)?;
            if handle.is_writable() {
                let closed = CancellationToken::new();
                return Ok(OpenExport { handle, about: "volume", multi_conn: true, closed, _held: held });
            }
            // Broken off after the volume was opened and before its token was taken: then nobody will cancel that.
            // Seen here, it is opened again; later, the token is there to be cancelled.
            let replica = pool.volume(&volume.volume).map_err(failed)?.replica;
            if replica.is_some_and(|replica| !replica.broken_off) {
                // Each connection may show another version, so several are not one.
                let about = "replica, as published when opened";
                return Ok(OpenExport { handle, about, multi_conn: false, closed, _held: held });
            }
        }
    }
}

impl ExportSource for Exports {
    fn list(&self) -> Vec<ExportListing> {
        let mut all = Vec::new();
        for (pool_name, pool) in self.pools.open_pools() {
            for volume in pool.volumes() {
                let name = format!("{pool_name}/{}", volume.name);
                // A volume that goes while the list is made is simply not on it.
                let snapshots = pool.snapshots(&volume.name).unwrap_or_default();
                all.push(ExportListing { name: name.clone(), about: String::from("volume") });
                all.extend(snapshots.into_iter().map(|snapshot| ExportListing {
                    name: format!("{name}@{}", snapshot.name),
                    about: String::from("snapshot"),
                }));
            }
        }
        all
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, NbdError> {
        Ok(Arc::new(self.open_export(name)?))
    }
}

/// One connection's hold on a volume.
struct Held {
    uses: Arc<Mutex<Uses>>,
    volume: VolumeName,
}

impl Held {
    fn new(uses: Arc<Mutex<Uses>>, volume: VolumeName) -> Held {
        uses.lock().entry(volume.clone()).or_default().connections += 1;
        Held { uses, volume }
    }

    /// What ends this connection if it is pinned.
    fn pinned(&self) -> CancellationToken {
        self.uses.lock().entry(self.volume.clone()).or_default().pinned.clone()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut uses = self.uses.lock();
        if let Some(found) = uses.get_mut(&self.volume) {
            found.connections -= 1;
            if found.connections == 0 {
                uses.remove(&self.volume);
            }
        }
    }
}

struct OpenExport {
    handle: VersionHandle,
    about: &'static str,
    multi_conn: bool,
    closed: CancellationToken,
    _held: Held,
}

impl OpenExport {
    fn flush_measured(&self) -> Result<(), NbdError> {
        let began = Instant::now();
        let flushed = self.handle.flush().map_err(failure);
        metrics::histogram!(FLUSH_SECONDS).record(began.elapsed().as_secs_f64());
        flushed
    }

    fn flush_if(&self, fua: bool) -> Result<(), NbdError> {
        if fua { self.flush_measured() } else { Ok(()) }
    }
}

impl Export for OpenExport {
    fn description(&self) -> ExportDescription {
        ExportDescription {
            size_bytes: self.handle.size_bytes(),
            read_only: !self.handle.is_writable(),
            multi_conn: self.multi_conn,
            about: self.about.to_owned(),
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        self.handle.read(offset, buffer).map_err(failure)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), NbdError> {
        self.handle.write(offset, bytes).map_err(failure)?;
        self.flush_if(fua)
    }

    fn flush(&self) -> Result<(), NbdError> {
        self.flush_measured()
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), NbdError> {
        self.handle.trim(offset, length).map_err(failure)?;
        self.flush_if(fua)
    }

    fn write_zeroes(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), NbdError> {
        // Zeros are always holes here, which is fast, and takes no room that could be kept.
        self.handle.write_zeroes(offset, length).map_err(failure)?;
        self.flush_if(mode.fua)
    }

    fn block_status(&self, offset: u64, length: u64, extents_max: usize) -> Result<Vec<Extent>, NbdError> {
        let from = offset - offset % BLOCK;
        let ranges = self.handle.allocation(from, offset + length - from, extents_max).map_err(failure)?;
        // The first range begins at its block, which may be before what was asked for.
        let mut before = offset - from;
        let extents = ranges.into_iter().map(|(bytes, allocated)| {
            let length = bytes - std::mem::take(&mut before);
            Extent { length, hole: !allocated, zero: !allocated }
        });
        Ok(extents.collect())
    }

    fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

fn failure(error: StoreError) -> NbdError {
    let kind = match &error {
        StoreError::NoSpace { .. } => ErrorKind::NoSpace,
        StoreError::Invalid(_) => ErrorKind::Invalid,
        StoreError::Refused(_) => ErrorKind::NotPermitted,
        StoreError::NotFound(_) => ErrorKind::UnknownExport,
        StoreError::Device(_)
        | StoreError::Failed { .. }
        | StoreError::Corrupt { .. }
        | StoreError::CorruptBlock { .. }
        | StoreError::NoSuperblock { .. }
        | StoreError::JournalDamaged { .. }
        | StoreError::Inconsistent(_)
        | StoreError::TooSmall { .. }
        | StoreError::AlreadyAPool { .. }
        | StoreError::Exists(_) => ErrorKind::Io,
    };
    NbdError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock, Timestamp};
    use farside_store::NewSnapshot;

    use super::*;

    struct Bench {
        exports: Exports,
        pools: Arc<Pools>,
        _directory: tempfile::TempDir,
    }

    /// A pool `p` with the volume `p/v` of 1 MiB.
    fn bench() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let pools = Arc::new(Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness)));
        let path = directory.path().join("p.pool");
        let pool = pools.create("p", path.to_str().unwrap(), Some(64 << 20)).unwrap();
        pool.create_volume("v", 1 << 20).unwrap();
        Bench { exports: Exports::new(Arc::clone(&pools)), pools, _directory: directory }
    }

    #[test]
    fn extents_begin_where_they_were_asked_for() {
        let bench = bench();
        let export = bench.exports.open("p/v").unwrap();
        export.write(4096, &[1; 4096], true).unwrap();
        let extent = |length, hole| Extent { length, hole, zero: hole };
        assert_eq!(
            export.block_status(100, 9000, 16).unwrap(),
            vec![extent(3996, true), extent(4096, false), extent(4096, true)]
        );
        assert_eq!(export.block_status(5000, 10, 16).unwrap(), vec![extent(3192, false)]);
        assert_eq!(
            export.block_status(0, 1 << 20, 2).unwrap(),
            vec![extent(4096, true), extent(4096, false)]
        );
    }

    #[test]
    fn what_is_listed_opens_and_what_is_not_is_unknown() {
        let bench = bench();
        let pool = bench.pools.get("p").unwrap();
        let snapshot = NewSnapshot {
            name: "s".into(),
            uuid: uuid::Uuid::new_v4(),
            created_at: Timestamp(1),
            relationship: None,
            pin_for: None,
        };
        pool.create_snapshots(&[("v".into(), snapshot)]).unwrap();
        let names: Vec<String> = bench.exports.list().into_iter().map(|listing| listing.name).collect();
        assert_eq!(names, ["p/v", "p/v@s"]);
        let volume: VolumeName = "p/v".parse().unwrap();
        let open: Vec<_> = names.iter().map(|name| bench.exports.open(name).unwrap()).collect();
        assert_eq!(open.iter().map(|e| e.description().read_only).collect::<Vec<_>>(), [false, true]);
        assert_eq!((bench.exports.connections_to(&volume), bench.exports.connections_to_pool("p")), (2, 2));
        for name in ["", "p", "p/w", "p/v@t", "q/v", "p/v@", "/", "p/v/w"] {
            let error = bench.exports.open(name).err().unwrap();
            assert_eq!(error.kind, ErrorKind::UnknownExport, "{name:?}: {error}");
        }
        drop(open);
        assert_eq!(bench.exports.connections_to_pool("p"), 0);
        assert!(bench.exports.uses.lock().is_empty(), "names that were tried leave nothing behind");
    }

    #[test]
    fn a_pinned_connection_is_closed_when_its_replica_is_broken_off() {
        let bench = bench();
        let pool = bench.pools.get("p").unwrap();
        let replica = |broken_off| farside_store::ReplicaStatus {
            relationship: uuid::Uuid::nil(),
            peer: [0; 32],
            source: "a/v".into(),
            broken_off,
        };
        pool.set_replica("v", Some(replica(false))).unwrap();
        let reader = bench.exports.open("p/v").unwrap();
        assert!(reader.description().read_only && !reader.description().multi_conn);
        pool.set_replica("v", Some(replica(true))).unwrap();
        assert!(!reader.closed().is_cancelled());
        bench.exports.drop_replica_connections(&"p/v".parse().unwrap());
        assert!(reader.closed().is_cancelled());
        let writer = bench.exports.open("p/v").unwrap();
        assert!(!writer.description().read_only && !writer.closed().is_cancelled());
    }
}
