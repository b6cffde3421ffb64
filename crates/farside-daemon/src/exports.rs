//! What hosts see over NBD: every volume as `POOL/VOL`, every snapshot as `POOL/VOL@SNAP`.
//!
//! A connection writes or reads, for as long as it lasts:
//!
//! * To a volume it writes, whether or not it ever will: NBD leaves that to the server. While there are such *writers*
//!   nothing may change the volume under them; whoever wants to is refused with their number.
//! * To a replica it reads, pinned to the version that was published when the client connected. When the replica is broken
//!   off, or its mirror deleted, these connections are dropped: they would show the past for ever.
//! * To a volume that it may only read (a host without the right to write), it reads what is there now. Whatever would change
//!   the volume under it drops it first.
//! * To a *fenced* volume (one that a peer has overtaken, [`Exports::fence`]) it reads. The fence drops the writers when it
//!   comes, and the readers when it goes: under them the volume would begin to change.

mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_engine::VolumeName;
use farside_nbd::{
    ErrorKind, Export, ExportDescription, ExportListing, ExportSource, Extent, MetadataContext, NbdError,
    Write, ZeroMode,
};
use farside_platform::Histogram;
use farside_store::{StoreError, VersionHandle};
use farside_transfer::precedence::Hosts;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::changed::{self, Changed};
use crate::export_failure::failure;
use crate::metrics::HostTimes;
use crate::pools::Pools;
pub(crate) use table::{Access, Clients, Connections};
use table::{Held, Table};

/// Blocks are the store's unit of allocation.
const BLOCK: u64 = farside_engine::BLOCK_BYTES;
/// Ranges of a map that one request to cache it goes through.
const CACHED_RANGES_MAX: usize = 8192;
/// Data that one such request brings into memory, bytes: a good disk's quarter of a second.
const CACHED_BYTES_MAX: u64 = 256 << 20;
/// Of which at once.
const CACHED_PIECE_BYTES: usize = 1 << 20;
/// How long a connection that was dropped may take to be gone: its command under way ends first.
const DROPPED_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const DROPPED_POLL: Duration = Duration::from_millis(10);

/// All that can be opened.
#[derive(Debug)]
pub(crate) struct Exports {
    pools: Arc<Pools>,
    /// Told of each operation.
    hosts: Arc<Hosts>,
    times: Arc<HostTimes>,
    /// Whether what hosts read stays in the system's memory.
    remembers: bool,
    table: Arc<Mutex<Table>>,
}

/// The answer to a name that is none, or none for whoever asks.
pub(crate) fn unknown(name: &str) -> NbdError {
    NbdError::new(
        ErrorKind::UnknownExport,
        format!("there is no export {name:?}; exports are POOL/VOL and POOL/VOL@SNAP"),
    )
}

/// The volume and the snapshot that an export's name means.
pub(crate) fn split(name: &str) -> Result<(VolumeName, Option<&str>), NbdError> {
    let (volume, snapshot) = match name.split_once('@') {
        Some((volume, snapshot)) => (volume, Some(snapshot)),
        None => (name, None),
    };
    Ok((volume.parse().map_err(|_| unknown(name))?, snapshot))
}

impl Exports {
    pub(crate) fn new(pools: Arc<Pools>, hosts: Arc<Hosts>, remembers: bool) -> Exports {
        Exports { pools, hosts, times: Arc::default(), remembers, table: Arc::default() }
    }

    /// How long hosts waited for the store.
    pub(crate) fn times(&self) -> Arc<HostTimes> {
        Arc::clone(&self.times)
    }

    fn for_a_host(&self, handle: VersionHandle) -> VersionHandle {
        if self.remembers { handle.remembering() } else { handle }
    }

    /// Ends the connections that are pinned to a published version of `volume`. To be called once the volume is no
    /// replica any more.
    pub(crate) fn drop_replica_connections(&self, volume: &VolumeName) {
        self.table.lock().each(|name| name == volume, |found| std::mem::take(&mut found.pinned).cancel());
    }

    /// Renames a volume by `rename`: who has it open goes on, and is counted, fenced and named under the new name from this moment on.
    pub(crate) fn rename<E>(
        &self,
        from: &VolumeName,
        to: &VolumeName,
        rename: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        // Under the lock: a fence that comes meanwhile finds them under the one name or the other.
        let mut table = self.table.lock();
        rename()?;
        table.rename(from, to);
        Ok(())
    }

    /// Refuses host writes to `volume` from now on, and drops whoever may write; how many those were. A fence that is
    /// there takes the new reason.
    pub(crate) fn fence(&self, volume: &VolumeName, why: String) -> usize {
        let mut table = self.table.lock();
        table.fences.insert(volume.clone(), why);
        let mut writers = 0;
        table.each(
            |name| name == volume,
            |found| {
                std::mem::take(&mut found.writing).cancel();
                writers += found.connections.writers;
            },
        );
        writers
    }

    /// Ends the fence, if there is one; whether there was.
    pub(crate) fn unfence(&self, volume: &VolumeName) -> bool {
        let mut table = self.table.lock();
        let was_fenced = table.fences.remove(volume).is_some();
        if was_fenced {
            table.each(|name| name == volume, |found| std::mem::take(&mut found.pinned).cancel());
        }
        was_fenced
    }

    /// Drops those that read `volume` while it is fenced, and waits until they are gone: they stand in the way of a change
    /// of the volume as writers do, but have nothing to lose.
    pub(crate) async fn drop_fenced_readers(&self, volume: &VolumeName) {
        self.drop_replica_connections(volume);
        let until = Instant::now() + DROPPED_WITHIN;
        while self.connections_to(volume).fenced > 0 && Instant::now() < until {
            tokio::time::sleep(DROPPED_POLL).await;
        }
    }

    /// Why `volume` is fenced, if it is.
    pub(crate) fn fenced(&self, volume: &VolumeName) -> Option<String> {
        self.table.lock().fences.get(volume).cloned()
    }

    /// The volumes that are fenced.
    pub(crate) fn fences(&self) -> Vec<VolumeName> {
        self.table.lock().fences.keys().cloned().collect()
    }

    /// How many connections there are to volumes (and their snapshots) of `pool`.
    pub(crate) fn connections_to_pool(&self, pool: &str) -> usize {
        self.table.lock().connections(|name| name.pool == pool).all()
    }

    /// Ends every connection to volumes and snapshots of `pool`, and waits until they are gone, for a while. To be called once
    /// nobody can open any more.
    pub(crate) async fn drop_connections_to_pool(&self, pool: &str) {
        let drop_all = |found: &mut table::Use| {
            for token in [&mut found.pinned, &mut found.writing, &mut found.snapshots] {
                std::mem::take(token).cancel();
            }
        };
        self.table.lock().each(|name| name.pool == pool, drop_all);
        let until = Instant::now() + DROPPED_WITHIN;
        while self.connections_to_pool(pool) > 0 && Instant::now() < until {
            tokio::time::sleep(DROPPED_POLL).await;
        }
    }

    /// Who may write to a volume now.
    pub(crate) fn writers(&self, volume: &VolumeName) -> Clients {
        self.table.lock().writers(volume)
    }

    /// Who has a volume, or a snapshot of it, open.
    pub(crate) fn clients_of(&self, volume: &VolumeName) -> Clients {
        self.table.lock().clients(|name| name == volume)
    }

    /// Who has volumes of a pool, or snapshots of them, open.
    pub(crate) fn clients_of_pool(&self, pool: &str) -> Clients {
        self.table.lock().clients(|name| name.pool == pool)
    }

    /// How many connections there are to a volume and its snapshots.
    pub(crate) fn connections_to(&self, volume: &VolumeName) -> Connections {
        self.table.lock().connections(|name| name == volume)
    }

    /// Where they are.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The volumes that `shown` says, and their snapshots.
    pub(crate) fn listed(&self, shown: impl Fn(&VolumeName, Uuid) -> bool) -> Vec<ExportListing> {
        let mut all = Vec::new();
        for (pool_name, pool) in self.pools.open_pools() {
            for volume in pool.volumes() {
                let name = VolumeName { pool: pool_name.clone(), volume: volume.name };
                if !shown(&name, volume.uuid) {
                    continue;
                }
                // A volume that goes while the list is made is simply not on it.
                let snapshots = pool.snapshots(&name.volume).unwrap_or_default();
                all.push(ExportListing { name: name.to_string(), about: String::from("volume") });
                all.extend(snapshots.into_iter().map(|snapshot| ExportListing {
                    name: format!("{name}@{}", snapshot.name),
                    about: String::from("snapshot"),
                }));
            }
        }
        all
    }

    /// The metadata contexts of an export: see [`ExportSource::contexts`].
    pub(crate) fn contexts_of(
        &self,
        name: &str,
        queries: &[String],
        set: bool,
    ) -> Result<Vec<String>, NbdError> {
        let (volume, _) = split(name)?;
        let pool = self.pools.get(&volume.pool).map_err(|_| unknown(name))?;
        let snapshots = pool.snapshots(&volume.volume).map_err(|_| unknown(name))?;
        Ok(changed::contexts(snapshots.into_iter().map(|snapshot| snapshot.name), queries, set))
    }

    /// Opens an export for one connection of `client`.
    pub(crate) fn open_export(
        &self,
        name: &str,
        access: Access,
        client: &str,
    ) -> Result<OpenExport, NbdError> {
        let (volume, snapshot) = split(name)?;
        let pool = self.pools.get(&volume.pool).map_err(|e| NbdError::new(ErrorKind::UnknownExport, e))?;
        let failed = |error| match error {
            StoreError::NotFound(_) => unknown(name),
            other => failure(other),
        };
        let mut held = Held::new(Arc::clone(&self.table), &volume, client);
        if let Some(snapshot) = snapshot {
            let handle = pool.open_snapshot(&volume.volume, snapshot).map_err(failed)?;
            let handle = self.for_a_host(handle);
            return Ok(OpenExport {
                handle,
                hosts: Arc::clone(&self.hosts),
                times: Arc::clone(&self.times),
                about: "snapshot",
                read_only: true,
                multi_conn: true,
                closed: held.snapshots(),
                _held: held,
            });
        }
        loop {
            let closed = held.pinned();
            let handle = self.for_a_host(pool.open_volume(&volume.volume).map_err(failed)?);
            if handle.is_writable() {
                let (about, read_only, closed) = match (access, held.open(access)) {
                    (_, Some(writing)) => ("volume", false, writing),
                    (Access::Writes, None) => ("volume, fenced: a peer has overtaken it", true, closed),
                    (Access::Reads, None) => ("volume, for reading only", true, closed),
                };
                return Ok(OpenExport {
                    handle,
                    hosts: Arc::clone(&self.hosts),
                    times: Arc::clone(&self.times),
                    about,
                    read_only,
                    multi_conn: true,
                    closed,
                    _held: held,
                });
            }
            // Broken off after the volume was opened and before its token was taken: then nobody will cancel that.
            // Seen here, it is opened again; later, the token is there to be cancelled.
            let replica = pool.volume(&volume.volume).map_err(failed)?.replica;
            if replica.is_some_and(|replica| !replica.broken_off) {
                // Each connection may show another version, so several are not one.
                let about = "replica, as published when opened";
                return Ok(OpenExport {
                    handle,
                    hosts: Arc::clone(&self.hosts),
                    times: Arc::clone(&self.times),
                    about,
                    read_only: true,
                    multi_conn: false,
                    closed,
                    _held: held,
                });
            }
        }
    }
}

impl ExportSource for Exports {
    fn list(&self) -> Vec<ExportListing> {
        self.listed(|_, _| true)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Export>, NbdError> {
        self.open_for(name, "")
    }

    fn open_for(&self, name: &str, client: &str) -> Result<Arc<dyn Export>, NbdError> {
        Ok(Arc::new(self.open_export(name, Access::Writes, client)?))
    }

    fn contexts(&self, name: &str, queries: &[String], set: bool) -> Result<Vec<String>, NbdError> {
        self.contexts_of(name, queries, set)
    }
}

pub(crate) struct OpenExport {
    handle: VersionHandle,
    hosts: Arc<Hosts>,
    times: Arc<HostTimes>,
    about: &'static str,
    read_only: bool,
    multi_conn: bool,
    closed: CancellationToken,
    _held: Held,
}

impl OpenExport {
    /// The volume's identity; none if it was deleted.
    pub(crate) fn volume_id(&self) -> Option<Uuid> {
        self.handle.volume_id()
    }

    fn flush_measured(&self) -> Result<(), NbdError> {
        self.served(&self.times.flush, 1, || self.handle.flush()).map_err(failure)
    }

    /// Tells how long a host waited.
    fn served<T>(&self, times: &Histogram, operations: usize, operation: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = operation();
        self.count(times, operations, began.elapsed());
        done
    }

    fn count(&self, times: &Histogram, operations: usize, took: Duration) {
        self.hosts.served(operations as u64, took);
        times.observe_many(operations as u64, took);
    }

    fn flush_if(&self, fua: bool) -> Result<(), NbdError> {
        if fua { self.flush_measured() } else { Ok(()) }
    }

    /// The server refuses writes to what was announced as read-only; a fence must hold whatever the server does.
    fn check_write(&self) -> Result<(), NbdError> {
        if self.read_only { Err(NbdError::new(ErrorKind::NotPermitted, self.about)) } else { Ok(()) }
    }
}

impl Export for OpenExport {
    fn description(&self) -> ExportDescription {
        ExportDescription {
            size_bytes: self.handle.size_bytes(),
            read_only: self.read_only,
            multi_conn: self.multi_conn,
            about: self.about.to_owned(),
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        self.served(&self.times.read, 1, || self.handle.read(offset, buffer)).map_err(failure)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), NbdError>> {
        let outcomes = self.served(&self.times.read, reads.len(), || self.handle.read_many(reads));
        outcomes.into_iter().map(|outcome| outcome.map_err(failure)).collect()
    }

    fn read_at_once(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let began = Instant::now();
        let done = self.handle.read_at_once(reads);
        let operations = done.iter().filter(|done| **done).count();
        if operations > 0 {
            self.count(&self.times.read, operations, began.elapsed());
        }
        done
    }

    fn overlaps_reads(&self) -> bool {
        self.handle.overlaps_reads()
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), NbdError> {
        self.check_write()?;
        self.served(&self.times.write, 1, || self.handle.write(offset, bytes)).map_err(failure)?;
        self.flush_if(fua)
    }

    fn write_many(&self, writes: &[Write<'_>]) -> Vec<Result<(), NbdError>> {
        if let Err(refusal) = self.check_write() {
            return vec![Err(refusal); writes.len()];
        }
        let all: Vec<(u64, &[u8])> = writes.iter().map(|write| (write.offset, write.bytes)).collect();
        let written = self.served(&self.times.write, all.len(), || self.handle.write_many(&all));
        let mut outcomes: Vec<_> = written.into_iter().map(|outcome| outcome.map_err(failure)).collect();
        // One flush is for all of them.
        let flushed = self.flush_if(writes.iter().any(|write| write.fua));
        if let Err(error) = flushed {
            for (outcome, _) in outcomes.iter_mut().zip(writes).filter(|(_, write)| write.fua) {
                *outcome = outcome.clone().and(Err(error.clone()));
            }
        }
        outcomes
    }

    fn write_many_at_once(&self, writes: &[Write<'_>]) -> Option<Vec<Result<(), NbdError>>> {
        if self.read_only || writes.iter().any(|write| write.fua) {
            return None;
        }
        let all: Vec<(u64, &[u8])> = writes.iter().map(|write| (write.offset, write.bytes)).collect();
        let began = Instant::now();
        let written = self.handle.write_at_once(&all)?.map_err(failure);
        self.count(&self.times.write, all.len(), began.elapsed());
        Some(vec![written; all.len()])
    }

    fn flush(&self) -> Result<(), NbdError> {
        self.flush_measured()
    }

    fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), NbdError> {
        self.check_write()?;
        self.handle.trim(offset, length).map_err(failure)?;
        self.flush_if(fua)
    }

    fn write_zeroes(&self, offset: u64, length: u64, mode: ZeroMode) -> Result<(), NbdError> {
        self.check_write()?;
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

    fn context(&self, name: &str) -> Result<Arc<dyn MetadataContext>, NbdError> {
        Ok(Arc::new(Changed::open(&self.handle, name)?))
    }

    /// Brings the map of the range into memory, and its data if what is read stays there.
    fn cache(&self, offset: u64, length: u64) -> Result<(), NbdError> {
        let from = offset - offset % BLOCK;
        self.handle.allocation(from, offset + length - from, CACHED_RANGES_MAX).map_err(failure)?;
        if !self.handle.remembers() {
            return Ok(());
        }
        let end = (offset + length).min(offset + CACHED_BYTES_MAX);
        let mut piece = vec![0; CACHED_PIECE_BYTES.min((end - offset) as usize)];
        let mut at = offset;
        while at < end && !self.closed.is_cancelled() {
            let piece = &mut piece[..CACHED_PIECE_BYTES.min((end - at) as usize)];
            // What cannot be read is told to whoever reads it.
            if self.handle.read(at, piece).is_err() {
                break;
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
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
        let pools = Arc::new(Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test"));
        let path = directory.path().join("p.pool");
        let pool = pools.create("p", path.to_str().unwrap(), Some(64 << 20), false).unwrap();
        pool.create_volume("v", 1 << 20).unwrap();
        Bench {
            exports: Exports::new(Arc::clone(&pools), Arc::default(), true),
            pools,
            _directory: directory,
        }
    }

    #[test]
    fn what_is_cached_is_read_at_once() {
        let bench = bench();
        let export = bench.exports.open("p/v").unwrap();
        export.write(0, &[3; 256 << 10], true).unwrap();
        let at_once = |at: u64| export.read_at_once(&mut [(at, &mut [0; 4096])])[0];
        export.read(0, &mut [0; 4096]).unwrap();
        if !at_once(0) {
            eprintln!("*** SKIP: this file system keeps nothing beside direct I/O");
            return;
        }
        assert!(!at_once(128 << 10), "writes go past it");
        export.cache(0, 256 << 10).unwrap();
        assert!((0..64).all(|block| at_once(block << 12)));
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
        assert_eq!(bench.exports.connections_to(&volume), Connections { writers: 1, readers: 1, fenced: 0 });
        let qemu = [1, 2].map(|_| bench.exports.open_for("p/v", "pid 42 (qemu) uid 0").unwrap());
        assert_eq!(bench.exports.writers(&volume).count(), (3, "3 NBD connections".into()));
        assert_eq!(bench.exports.writers(&volume).named(), " (pid 42 (qemu) uid 0, 2 connections)");
        drop(qemu);
        assert_eq!(bench.exports.writers(&volume).named(), "");
        assert_eq!(bench.exports.connections_to_pool("p"), 2);
        for name in ["", "p", "p/w", "p/v@t", "q/v", "p/v@", "/", "p/v/w"] {
            let error = bench.exports.open(name).err().unwrap();
            assert_eq!(error.kind, ErrorKind::UnknownExport, "{name:?}: {error}");
        }
        drop(open);
        assert_eq!(bench.exports.connections_to_pool("p"), 0);
        assert!(bench.exports.table.lock().is_empty(), "names that were tried leave nothing behind");
    }

    #[test]
    fn who_has_a_volume_open_is_known_by_its_new_name() {
        let bench = bench();
        let pool = bench.pools.get("p").unwrap();
        let (old, new): (VolumeName, VolumeName) = ("p/v".parse().unwrap(), "p/w".parse().unwrap());
        let writer = bench.exports.open_for("p/v", "pid 42 (qemu) uid 0").unwrap();
        bench.exports.rename(&old, &new, || pool.rename_volume("v", "w")).unwrap();
        assert_eq!(bench.exports.connections_to(&old), Connections::default());
        assert_eq!(bench.exports.writers(&new).named(), " (pid 42 (qemu) uid 0)");
        // Another volume of the old name is another volume.
        pool.create_volume("v", 1 << 20).unwrap();
        let other = bench.exports.open("p/v").unwrap();
        assert_eq!(bench.exports.connections_to(&old).writers, 1);
        assert_eq!(bench.exports.fence(&new, "overtaken".into()), 1);
        assert!(writer.closed().is_cancelled() && !other.closed().is_cancelled());
        assert!(bench.exports.open("p/w").unwrap().description().read_only);
        assert!(
            bench.exports.rename(&old, &new, || pool.rename_volume("v", "w")).is_err(),
            "the name is taken"
        );
        assert_eq!(bench.exports.connections_to(&old).writers, 1, "what failed moves nobody");
        drop((writer, other));
        assert!(bench.exports.table.lock().is_empty());
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
    #[test]
    fn a_fence_drops_writers_and_lets_nobody_write_until_it_goes() {
        let bench = bench();
        let volume: VolumeName = "p/v".parse().unwrap();
        let writer = bench.exports.open("p/v").unwrap();
        writer.write(0, &[1; 4096], true).unwrap();
        assert_eq!(bench.exports.fence(&volume, "overtaken".into()), 1);
        assert!(writer.closed().is_cancelled());
        let reader = bench.exports.open("p/v").unwrap();
        assert!(reader.description().read_only && !reader.closed().is_cancelled());
        let mut read = [0; 4096];
        reader.read(0, &mut read).unwrap();
        assert_eq!(read, [1; 4096]);
        for refused in [
            reader.write(0, &[2; 4096], false),
            reader.trim(0, 4096, false),
            reader.write_zeroes(0, 4096, ZeroMode { fua: false, ..ZeroMode::default() }),
        ] {
            assert_eq!(refused.unwrap_err().kind, ErrorKind::NotPermitted);
        }
        assert_eq!(bench.exports.connections_to(&volume), Connections { writers: 1, readers: 0, fenced: 1 });
        assert_eq!(bench.exports.fenced(&volume).as_deref(), Some("overtaken"));
        assert!(bench.exports.unfence(&volume) && !bench.exports.unfence(&volume));
        assert!(reader.closed().is_cancelled(), "under it the volume begins to change");
        assert!(!bench.exports.open("p/v").unwrap().description().read_only);
    }
}
