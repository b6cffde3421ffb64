//! Three sites, each paired with each: what becomes of the third when two of them change their roles.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_engine::{BLOCK_BYTES, ChangedBytes, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_link::{LinkSettings, SimulatedNetwork};
use farside_mirror::{Mirror, MirrorError, Schedule};
use farside_platform::Clock;
use farside_transfer::TransferReport;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::memory_engine::MemoryEngine;
use super::site::{Disk, PATIENCE, Site, Storage, TokioClock, settled, volume};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;

const NAMES: [&str; 3] = ["a", "b", "c"];
const POOLS: [&str; 3] = ["p", "q", "w"];

/// Sites `a`, `b` and `c`, each with a volume or a place for one; `live` is what hosts must see of each.
pub(crate) struct Trio<S = MemoryEngine> {
    pub(crate) network: SimulatedNetwork,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) sites: Vec<Site<S>>,
    pub(crate) volumes: Vec<VolumeName>,
    pub(crate) live: Vec<Vec<u8>>,
    pub(crate) rng: SmallRng,
    size_bytes: u64,
    starts: u64,
}

impl<S: Storage> Trio<S> {
    /// The original is at `a`, with something in it.
    pub(crate) async fn new(seed: u64, size_bytes: u64) -> Trio<S> {
        Trio::over(seed, size_bytes, LinkSettings::default()).await
    }

    pub(crate) async fn over(seed: u64, size_bytes: u64, link: LinkSettings) -> Trio<S> {
        println!("seed {seed}");
        let network = SimulatedNetwork::new(seed, link);
        let clock = TokioClock::new();
        let mut sites = Vec::new();
        for (at, name) in NAMES.into_iter().enumerate() {
            let seed = 3 * seed + at as u64;
            let disk = Disk::<S>::new(POOLS[at], &clock, seed);
            sites.push(Site::start(&network, name, disk, clock.clone(), seed).await);
        }
        for (one, other) in [(A, B), (A, C), (B, C)] {
            let invite = sites[one].node.invite(Duration::from_secs(900)).unwrap();
            sites[other]
                .node
                .join(sites[one].node.listen_address().unwrap(), &invite.code, None)
                .await
                .unwrap();
            settled(&sites[other].node, sites[one].node.id()).await;
        }
        let volumes: Vec<_> = POOLS.iter().map(|pool| volume(&format!("{pool}/v"))).collect();
        sites[A].disk.engine.engine().create_volume(&volumes[A], size_bytes).unwrap();
        let live = vec![vec![0; size_bytes as usize]; 3];
        let rng = SmallRng::seed_from_u64(seed);
        let mut trio = Trio { network, clock, sites, volumes, live, rng, size_bytes, starts: 3 * seed + 3 };
        trio.write(A, 40);
        trio
    }

    /// `count` writes of up to 16 blocks by hosts of a site. Returns how many bytes differ at most.
    pub(crate) fn write(&mut self, at: usize, count: usize) -> u64 {
        let blocks = self.size_bytes / BLOCK_BYTES;
        let mut written = 0;
        for _ in 0..count {
            let length = self.rng.random_range(1..=16.min(blocks));
            let offset = self.rng.random_range(0..=blocks - length) * BLOCK_BYTES;
            let mut bytes = vec![0; (length * BLOCK_BYTES) as usize];
            bytes.chunks_mut(2).for_each(|pair| pair[0] = self.rng.random());
            self.sites[at].disk.engine.host_writes(&self.volumes[at], offset, &bytes);
            self.live[at][offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
            written += bytes.len() as u64;
        }
        written
    }

    pub(crate) fn snapshots(&self, at: usize) -> Vec<SnapshotInfo> {
        self.sites[at].disk.engine.engine().all_snapshots(&self.volumes[at]).unwrap()
    }

    /// A person's snapshot.
    pub(crate) fn snapshot(&mut self, at: usize, name: &str) -> Uuid {
        let uuid = Uuid::from_u128(self.rng.random());
        let spec = SnapshotSpec {
            name: name.into(),
            uuid,
            created_at: self.clock.now(),
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        self.sites[at].disk.engine.engine().take_snapshot(&self.volumes[at], &spec).unwrap();
        uuid
    }

    pub(crate) fn delete_snapshot(&self, at: usize, snapshot: Uuid) {
        self.sites[at].disk.engine.engine().delete_snapshot(&self.volumes[at], snapshot).unwrap();
    }

    /// A first copy at one site of what another has.
    pub(crate) async fn copy(&mut self, at: usize, from: usize) {
        let (peer, source, here) =
            (self.sites[from].node.id(), self.volumes[from].clone(), self.volumes[at].clone());
        let destination = &self.sites[at].destination;
        let mirror =
            destination.create(peer, source, here, Schedule::OnRequest, PATIENCE, true).await.unwrap();
        let report = mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap();
        super::site::assert_ok(&report);
        self.live[at] = self.live[from].clone();
    }

    pub(crate) fn mirror(&self, at: usize) -> Mirror {
        self.sites[at].destination.mirror(&self.volumes[at]).unwrap()
    }

    /// An update of a site's replica, of which the hosts of `from` know what it must show then.
    pub(crate) async fn update(&mut self, at: usize, from: usize) -> TransferReport {
        let report = self.mirror(at).update(PATIENCE).await.unwrap().ended().await.unwrap();
        super::site::assert_ok(&report);
        self.live[at] = self.live[from].clone();
        self.check(at);
        report
    }

    pub(crate) async fn break_off(&mut self, at: usize) {
        self.mirror(at).break_off(None).await.unwrap();
    }

    /// Has a site follow another, from the newest point that both hold.
    pub(crate) async fn resync(&mut self, at: usize, from: usize) -> Result<TransferReport, MirrorError> {
        let (peer, source, here) =
            (self.sites[from].node.id(), self.volumes[from].clone(), self.volumes[at].clone());
        let destination = &self.sites[at].destination;
        let (_, asked) = destination.resync_from(peer, source, here, Schedule::OnRequest, PATIENCE).await?;
        let report = asked.ended().await?;
        if report.result == farside_transfer::TransferResult::Ok {
            self.live[at] = self.live[from].clone();
            self.check(at);
        }
        Ok(report)
    }

    /// What hosts of a site see is what the model says.
    pub(crate) fn check(&self, at: usize) {
        assert!(self.seen(at) == self.live[at], "{} shows something else", self.volumes[at]);
    }

    pub(crate) fn seen(&self, at: usize) -> Vec<u8> {
        let (engine, of) = (self.sites[at].disk.engine.engine(), &self.volumes[at]);
        let newest = engine.snapshots(of).unwrap().pop();
        let shown =
            newest.filter(|newest| engine.changed_since(of, newest.uuid).unwrap() == ChangedBytes::default());
        if let Some(shown) = shown {
            return self.bytes_of(at, shown.uuid, shown.size_bytes);
        }
        let uuid = Uuid::from_u128(0xbeef);
        let spec = SnapshotSpec {
            name: "probe".into(),
            uuid,
            created_at: self.clock.now(),
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        let taken = engine.take_snapshot(of, &spec).unwrap();
        let seen = self.bytes_of(at, uuid, taken.size_bytes);
        engine.delete_snapshot(of, uuid).unwrap();
        seen
    }

    fn bytes_of(&self, at: usize, snapshot: Uuid, size_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![0; size_bytes as usize];
        let engine = self.sites[at].disk.engine.engine();
        engine.read_snapshot(&self.volumes[at], snapshot, 0, &mut bytes).unwrap();
        bytes
    }

    /// Whether a snapshot that only a person removes holds these bytes at a site.
    pub(crate) fn keeps(&self, at: usize, bytes: &[u8]) -> bool {
        let is_kept =
            |s: &SnapshotInfo| s.owner == SnapshotOwner::Person && s.size_bytes == bytes.len() as u64;
        self.snapshots(at).iter().any(|s| is_kept(s) && self.bytes_of(at, s.uuid, s.size_bytes) == bytes)
    }

    /// What two sites both hold, whatever each of them calls it, and a mirror keeps at one of them at least; names at the first.
    /// What only persons keep does not count: they may delete it.
    pub(crate) fn in_common(&self, one: usize, other: usize) -> Vec<String> {
        self.in_common_but(one, other, "")
    }

    /// The same without what only persons keep at a site under the name `but`.
    pub(crate) fn in_common_but(&self, one: usize, other: usize, but: &str) -> Vec<String> {
        let held = |at: usize| {
            let engine = self.sites[at].disk.engine.engine();
            let root = move |s: &SnapshotInfo| engine.content_root(&self.volumes[at], s.uuid).unwrap();
            let all = self.snapshots(at).into_iter();
            let all = all.filter(|s| s.name != but || !s.pinned_by.is_empty());
            all.map(move |s| ((root(&s), s.size_bytes), !s.pinned_by.is_empty(), s.name)).collect::<Vec<_>>()
        };
        let there = held(other);
        let is_common = |content, is_kept: bool| {
            there.iter().any(|(theirs, is_kept_there, _)| *theirs == content && (is_kept || *is_kept_there))
        };
        let here = held(one).into_iter();
        here.filter(|(content, is_kept, _)| is_common(*content, *is_kept)).map(|(_, _, name)| name).collect()
    }

    /// A site's hosts may not write to what was overtaken, for as long as its process lives.
    pub(crate) fn fence(&self, at: usize) {
        *self.sites[at].rights.fences.lock() = true;
    }

    /// From now on a site answers as one that knows nothing of points in common.
    pub(crate) fn shares_nothing(&self, at: usize) {
        self.sites[at].fault_injector.shares_nothing.store(true, Ordering::SeqCst);
    }

    /// Snapshots that somebody's mirror keeps at a site.
    pub(crate) fn pinned(&self, at: usize) -> usize {
        self.snapshots(at).iter().filter(|s| !s.pinned_by.is_empty()).count()
    }

    /// A site loses power and comes back, with its disks.
    pub(crate) async fn crash(&mut self, at: usize, crash_seed: u64) {
        let engine = self.sites[at].disk.engine.crash(crash_seed);
        self.network.kill(NAMES[at]);
        self.sites[at].node.shutdown().await;
        self.sites[at].destination.shut_down().await;
        self.network.revive(NAMES[at]);
        let disk = Disk { engine, ..self.sites[at].disk.clone() };
        self.starts += 1;
        self.sites[at] = Site::start(&self.network, NAMES[at], disk, self.clock.clone(), self.starts).await;
    }
}
