//! Watches the steps of an operation: every call that changes a pool and every call of a peer passes here, by name,
//! before and after it is done. At one of these points, counted, the world can be made to go wrong.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use farside_engine::{
    Branches, ChangedBytes, ChangedExtents, ContentRoot, Engine, EngineError, Fingerprint, KnownData,
    KnownDataScope, OpenSnapshot, ReadyVersion, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec,
    StagedFor, StagedInfo, StagedVersion, Subtrees, Together, VolumeInfo, VolumeName, Wanted,
};
use farside_peer::{DataStream, Refusal};
use farside_platform::{SimulatedDisk, Timestamp};
use farside_store::Pool;
use farside_transfer::protocol::{PROTOCOL_VERSION, Request};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::watch;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{CallObserver, Storage, TokioClock};

/// Size of the pools: room for two small volumes and their snapshots, and soon full.
const POOL_BYTES: u64 = 24 << 20;

/// A site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Side {
    A,
    B,
}

impl Side {
    pub(crate) fn host(self) -> &'static str {
        match self {
            Side::A => "a",
            Side::B => "b",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum ClockReading {
    Before,
    After,
}

/// A point of an operation: a call at a site, about to be done or just done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    pub(crate) side: Side,
    pub(crate) call: &'static str,
    pub(crate) moment: ClockReading,
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {}", self.moment, self.side, self.call)
    }
}

/// A point counted from the beginning of an operation: the `nth` passing of it, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nth {
    pub(crate) point: Point,
    pub(crate) nth: usize,
}

/// Which protocol a site speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Ours,
    /// Only the version before.
    Older,
    /// Only one that nobody here knows.
    Newer,
}

type Act = Box<dyn FnOnce() + Send>;
type Meanwhile = Arc<dyn Fn(Point) + Send + Sync>;

#[derive(Default)]
struct Inner {
    is_on: bool,
    seen: Vec<Point>,
    trigger: Option<(Nth, Act)>,
    meanwhile: Option<Meanwhile>,
    problems: Vec<Point>,
    newer: Vec<Side>,
    older: Vec<Side>,
}

/// One for a pair of sites.
pub(crate) struct Watch {
    inner: Mutex<Inner>,
    fired: watch::Sender<bool>,
    /// What each snapshot holds, by identity, as it was taken.
    pub(crate) snapshots: Mutex<BTreeMap<Uuid, Vec<u8>>>,
    /// The pools as they are now; of a site that is down, as it was left.
    pub(crate) pools: Mutex<BTreeMap<Side, Arc<Pool>>>,
    /// What hosts have written at each site, flushed.
    pub(crate) live: Mutex<BTreeMap<Side, Vec<u8>>>,
}

impl Watch {
    pub(crate) fn new() -> Arc<Watch> {
        Arc::new(Watch {
            inner: Mutex::default(),
            fired: watch::Sender::new(false),
            snapshots: Mutex::default(),
            pools: Mutex::default(),
            live: Mutex::default(),
        })
    }

    /// Begins to count; at `trigger` the act happens, once. `meanwhile` runs at every point.
    pub(crate) fn begin(&self, trigger: Option<(Nth, Act)>, meanwhile: Option<Meanwhile>) {
        let mut inner = self.inner.lock();
        inner.is_on = true;
        inner.seen.clear();
        inner.trigger = trigger;
        inner.meanwhile = meanwhile;
        drop(inner);
        self.fired.send_replace(false);
    }

    /// Stops counting: what has been seen.
    pub(crate) fn end(&self) -> Vec<Point> {
        let mut inner = self.inner.lock();
        inner.is_on = false;
        inner.trigger = None;
        inner.meanwhile = None;
        assert!(inner.problems.is_empty(), "see the output: something failed {:?}", inner.problems);
        std::mem::take(&mut inner.seen)
    }

    pub(crate) fn has_fired(&self) -> bool {
        *self.fired.borrow()
    }

    /// Waits for the act.
    pub(crate) async fn fired(&self) {
        // The sender is held here.
        let _ = self.fired.subscribe().wait_for(|fired| *fired).await;
    }

    /// From now on the site speaks this protocol.
    pub(crate) fn set_protocol(&self, side: Side, protocol: Protocol) {
        let mut inner = self.inner.lock();
        inner.newer.retain(|s| *s != side);
        inner.older.retain(|s| *s != side);
        match protocol {
            Protocol::Ours => {}
            Protocol::Older => inner.older.push(side),
            Protocol::Newer => inner.newer.push(side),
        }
    }

    fn protocol_of(&self, side: Side) -> u32 {
        let inner = self.inner.lock();
        if inner.newer.contains(&side) {
            PROTOCOL_VERSION + 1
        } else if inner.older.contains(&side) {
            PROTOCOL_VERSION - 1
        } else {
            PROTOCOL_VERSION
        }
    }

    fn pass(&self, side: Side, call: &'static str, moment: ClockReading) {
        let point = Point { side, call, moment };
        let mut inner = self.inner.lock();
        if !inner.is_on {
            return;
        }
        inner.seen.push(point);
        let passed = inner.seen.iter().filter(|p| **p == point).count();
        let is_now = inner.trigger.as_ref().is_some_and(|(at, _)| at.point == point && at.nth == passed);
        let act = if is_now { inner.trigger.take() } else { None };
        let meanwhile = inner.meanwhile.clone();
        drop(inner);
        if let Some(meanwhile) = meanwhile {
            self.noting(point, || meanwhile(point));
        }
        if let Some((_, act)) = act {
            self.noting(point, act);
            self.fired.send_replace(true);
        }
    }

    /// What fails in here fails the run, not the call that it happens in.
    fn noting(&self, point: Point, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.inner.lock().problems.push(point);
        }
    }

    fn around<T>(&self, side: Side, call: &'static str, work: impl FnOnce() -> T) -> T {
        self.pass(side, call, ClockReading::Before);
        let result = work();
        self.pass(side, call, ClockReading::After);
        result
    }
}

/// The embedded store, watched once somebody attaches a [`Watch`].
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) inner: Embedded,
    pub(crate) side: Side,
    watch: Arc<Mutex<Option<Arc<Watch>>>>,
}

impl Watched {
    pub(crate) fn attach(&self, watch: &Arc<Watch>) {
        watch.pools.lock().insert(self.side, self.inner.pool());
        *self.watch.lock() = Some(watch.clone());
    }

    fn observer(&self) -> SideObserver {
        SideObserver { side: self.side, watch: self.watch.clone() }
    }
}

impl Storage for Watched {
    fn create(name: &str, clock: Arc<TokioClock>, seed: u64) -> Self {
        let side = if name == "p" { Side::A } else { Side::B };
        // Made once: an empty pool is a journal of zeros, and copies share it.
        static EMPTY: [OnceLock<SimulatedDisk>; 2] = [const { OnceLock::new() }; 2];
        let empty = EMPTY[side as usize].get_or_init(|| {
            let disk = SimulatedDisk::new(name, POOL_BYTES);
            Embedded::on(name, disk.clone(), clock.clone(), side as u64, true).pool().close().unwrap();
            disk
        });
        let inner = Embedded::on(name, empty.image(), clock, seed, false);
        Watched { inner, side, watch: Arc::default() }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(WatchedEngine { inner: self.inner.engine(), observer: self.observer() })
    }

    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) {
        self.inner.host_writes(volume, offset, bytes);
    }

    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64) {
        self.inner.host_trims(volume, offset, length);
    }

    fn resize(&self, volume: &VolumeName, size_bytes: u64) {
        self.inner.resize(volume, size_bytes);
    }

    fn crash(&self, crash_seed: u64) -> Self {
        let after = Watched { inner: self.inner.crash(crash_seed), ..self.clone() };
        if let Some(watch) = &*self.watch.lock() {
            watch.pools.lock().insert(self.side, after.inner.pool());
        }
        after
    }

    fn has_staged(&self, volume: &VolumeName) -> bool {
        self.inner.has_staged(volume)
    }

    fn call_observer(&self) -> Option<Arc<dyn CallObserver>> {
        Some(Arc::new(self.observer()))
    }
}

/// A site's part in the watch.
#[derive(Clone)]
struct SideObserver {
    side: Side,
    watch: Arc<Mutex<Option<Arc<Watch>>>>,
}

impl SideObserver {
    fn watch(&self) -> Option<Arc<Watch>> {
        self.watch.lock().clone()
    }

    fn pass(&self, call: &'static str, moment: ClockReading) {
        if let Some(watch) = self.watch() {
            watch.pass(self.side, call, moment);
        }
    }

    fn around<T>(&self, call: &'static str, work: impl FnOnce() -> T) -> T {
        match self.watch() {
            Some(watch) => watch.around(self.side, call, work),
            None => work(),
        }
    }
}

/// What a request asks, by the name the protocol's page has for it.
fn name_of(request: &Request) -> &'static str {
    let body = format!("{:?}", request.body);
    let body = body.trim_start_matches("Some(");
    match body.split('(').next().unwrap_or_default() {
        "Describe" => "describe",
        "Begin" => "begin",
        "Acknowledge" => "acknowledge",
        "End" => "end",
        "Release" => "release",
        "Compare" => "compare",
        "Overtaken" => "overtaken",
        "Swap" => "swap",
        other => panic!("a call without a name here: {other}"),
    }
}

impl CallObserver for SideObserver {
    fn asked(&self, request: Bytes) -> Result<Bytes, Refusal> {
        let Some(watch) = self.watch() else { return Ok(request) };
        let decoded = Request::decode(&request[..]).expect("our own requests can be read");
        watch.pass(self.side, name_of(&decoded), ClockReading::Before);
        let protocol = watch.protocol_of(self.side);
        if protocol == PROTOCOL_VERSION || decoded.version == protocol {
            return Ok(request);
        }
        let message = format!(
            "mirror protocol versions differ: the source speaks {protocol}, the destination {}",
            decoded.version
        );
        Err(Refusal { code: "version".into(), message })
    }

    fn answered(&self, request: &Bytes) {
        let decoded = Request::decode(&request[..]).expect("our own requests can be read");
        self.pass(name_of(&decoded), ClockReading::After);
    }

    fn opened(&self, header: Bytes, stream: DataStream) -> (Bytes, DataStream) {
        self.pass("stream", ClockReading::Before);
        (header, stream)
    }
}

struct WatchedEngine {
    inner: Arc<dyn Engine>,
    observer: SideObserver,
}

impl Engine for WatchedEngine {
    fn has_pool(&self, pool: &str) -> bool {
        self.inner.has_pool(pool)
    }

    fn volume(&self, volume: &VolumeName) -> Result<VolumeInfo, EngineError> {
        self.inner.volume(volume)
    }

    fn volumes(&self) -> Result<Vec<VolumeName>, EngineError> {
        self.inner.volumes()
    }

    fn create_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        self.observer.around("create volume", || self.inner.create_volume(volume, size_bytes))
    }

    fn delete_volume(&self, volume: &VolumeName) -> Result<(), EngineError> {
        self.observer.around("delete volume", || self.inner.delete_volume(volume))
    }

    fn snapshots(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.inner.snapshots(volume)
    }

    fn take_snapshot(&self, volume: &VolumeName, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.observer.pass("take snapshot", ClockReading::Before);
        if let Some(watch) = self.observer.watch() {
            let live = watch.live.lock().get(&self.observer.side).cloned().unwrap_or_default();
            watch.snapshots.lock().insert(spec.uuid, live);
        }
        let taken = self.inner.take_snapshot(volume, spec);
        self.observer.pass("take snapshot", ClockReading::After);
        taken
    }

    fn delete_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.observer.around("delete snapshot", || self.inner.delete_snapshot(volume, snapshot))
    }

    fn pin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.observer.around("pin", || self.inner.pin(volume, snapshot, relationship))
    }

    fn make_user_snapshot(&self, volume: &VolumeName, snapshot: Uuid) -> Result<(), EngineError> {
        self.observer.around("give", || self.inner.make_user_snapshot(volume, snapshot))
    }

    fn hand_over(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        self.observer.around("give", || self.inner.hand_over(volume, snapshot, owner, stem, moment))
    }

    fn unpin(&self, volume: &VolumeName, snapshot: Uuid, relationship: Uuid) -> Result<(), EngineError> {
        self.observer.around("unpin", || self.inner.unpin(volume, snapshot, relationship))
    }

    fn content_root(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ContentRoot, EngineError> {
        self.inner.content_root(volume, snapshot)
    }

    fn changed_extents(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        incremental: Uuid,
    ) -> Result<ChangedExtents, EngineError> {
        self.inner.changed_extents(volume, base, incremental)
    }

    fn read_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.observer.around("read", || self.inner.read_snapshot(volume, snapshot, offset, buffer))
    }

    fn read_snapshot_ranges(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.observer.around("read", || self.inner.read_snapshot_ranges(volume, snapshot, ranges, buffer))
    }

    fn open_snapshot(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<Arc<dyn OpenSnapshot>, EngineError> {
        self.observer.around("open", || self.inner.open_snapshot(volume, snapshot))
    }

    fn stage(
        &self,
        volume: &VolumeName,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Arc<dyn StagedVersion>, EngineError> {
        let staged =
            self.observer.around("stage", || self.inner.stage(volume, base, size_bytes, staged_for))?;
        Ok(Arc::new(WatchedStaged { inner: staged, observer: self.observer.clone() }))
    }

    fn staged(&self, volume: &VolumeName) -> Result<Vec<(StagedInfo, Arc<dyn StagedVersion>)>, EngineError> {
        let found = self.observer.around("staged", || self.inner.staged(volume))?.into_iter();
        Ok(found
            .map(|(info, inner)| {
                let watched: Arc<dyn StagedVersion> =
                    Arc::new(WatchedStaged { inner, observer: self.observer.clone() });
                (info, watched)
            })
            .collect())
    }

    fn changed_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<ChangedBytes, EngineError> {
        self.inner.changed_since(volume, snapshot)
    }

    fn is_written_since(&self, volume: &VolumeName, snapshot: Uuid) -> Result<bool, EngineError> {
        self.inner.is_written_since(volume, snapshot)
    }

    fn fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        self.inner.fingerprints(volume, snapshot, first, count)
    }

    fn abandon_staged(&self, volume: &VolumeName) -> Result<usize, EngineError> {
        self.observer.around("abandon staged", || self.inner.abandon_staged(volume))
    }

    fn replica_record(&self, volume: &VolumeName) -> Result<Option<ReplicaRecord>, EngineError> {
        self.inner.replica_record(volume)
    }

    fn set_replica_record(
        &self,
        volume: &VolumeName,
        record: Option<ReplicaRecord>,
    ) -> Result<(), EngineError> {
        self.observer.around("set record", || self.inner.set_replica_record(volume, record))
    }

    fn end_replica_record(&self, volume: &VolumeName, relationship: Uuid) -> Result<bool, EngineError> {
        self.observer.around("end record", || self.inner.end_replica_record(volume, relationship))
    }

    fn branches(&self, pool: &str) -> Option<&dyn Branches> {
        self.inner.branches(pool).map(|_| self as &dyn Branches)
    }

    fn together(&self, pool: &str) -> Option<&dyn Together> {
        self.inner.together(pool).map(|_| self as &dyn Together)
    }

    fn known_data(&self, pool: &str) -> Option<&dyn KnownData> {
        self.inner.known_data(pool).map(|_| self as &dyn KnownData)
    }

    fn subtrees(&self, pool: &str) -> Option<&dyn Subtrees> {
        self.inner.subtrees(pool)
    }
}

/// The embedded store has one set of capabilities, whichever pool is asked for.
const ANY_POOL: &str = "";

impl WatchedEngine {
    fn inner_branches(&self) -> &dyn Branches {
        self.inner.branches(ANY_POOL).unwrap()
    }

    fn inner_together(&self) -> &dyn Together {
        self.inner.together(ANY_POOL).unwrap()
    }

    fn inner_known_data(&self) -> &dyn KnownData {
        self.inner.known_data(ANY_POOL).unwrap()
    }
}

impl Branches for WatchedEngine {
    fn of_all_branches(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.inner_branches().of_all_branches(volume)
    }

    fn fork(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError> {
        self.inner_branches().fork(volume, snapshot)
    }

    fn move_main(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.observer
            .around("move main", || self.inner_branches().move_main(volume, snapshot, record, moment))
    }

    fn move_replica(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.observer
            .around("move main", || self.inner_branches().move_replica(volume, snapshot, relationship))
    }
}

impl Together for WatchedEngine {
    fn take_snapshots(
        &self,
        wanted: &[(VolumeName, SnapshotSpec)],
    ) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.observer.around("take snapshots", || self.inner_together().take_snapshots(wanted))
    }

    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.observer.around("commit together", || self.inner_together().commit_together(versions))
    }
}

impl KnownData for WatchedEngine {
    fn may_hold(&self, scope: &KnownDataScope) -> bool {
        self.inner_known_data().may_hold(scope)
    }

    fn adopt(
        &self,
        staged: &dyn StagedVersion,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        self.observer.around("adopt", || self.inner_known_data().adopt(staged, scope, wanted))
    }
}

struct WatchedStaged {
    inner: Arc<dyn StagedVersion>,
    observer: SideObserver,
}

impl StagedVersion for WatchedStaged {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        self.inner.info()
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.observer.around("resize staged", || self.inner.resize(size_bytes))
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.observer.around("retarget", || self.inner.retarget(incremental))
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        self.inner.changed_from(base)
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.inner.fingerprints(first, count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.observer.around("write", || self.inner.write(offset, bytes))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.observer.around("discard", || self.inner.discard(offset, length))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.inner.read(offset, buffer)
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.observer.around("checkpoint", || self.inner.checkpoint())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.observer.around("staged root", || self.inner.content_root())
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.observer.around("commit", || self.inner.commit(spec))
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.observer.around("abandon", || self.inner.abandon())
    }
}
