//! Two sites with a mirror between them, what hosts have written at each, and what must hold whatever has happened.

use std::sync::Arc;
use std::time::Duration;

use farside_check::{CheckOptions, Severity};
use farside_engine::{BLOCK_BYTES, Engine, SnapshotInfo, VolumeName};
use farside_link::LinkSettings;
use farside_mirror::{MemoryStore, Mirror, Schedule};
use farside_transfer::bases::common_of;
use farside_transfer::{TransferKind, TransferReport};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::site::{PATIENCE, Pair, Site, Storage};
use crate::watch::{Side, Watch, Watched};

/// Size of the volumes: some frames' worth.
pub(crate) const SIZE: u64 = 1 << 20;

pub(crate) struct World {
    pub(crate) pair: Pair<Watched>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) rng: SmallRng,
    /// A pin was made for a relationship that nothing else remembers: its base stays.
    pub(crate) has_orphan: bool,
}

impl World {
    /// Paired sites, and a volume at A that holds data.
    pub(crate) async fn new(seed: u64) -> World {
        let link = LinkSettings { latency: Duration::from_millis(5), ..LinkSettings::default() };
        let mut pair = Pair::<Watched>::with_storage(seed, SIZE, link).await;
        pair.replica = "q/v".parse().unwrap();
        let watch = Watch::new();
        pair.a.disk.engine.attach(&watch);
        pair.b.disk.engine.attach(&watch);
        watch.live.lock().insert(Side::A, vec![0; SIZE as usize]);
        let mut world = World { pair, watch, rng: SmallRng::seed_from_u64(seed), has_orphan: false };
        world.scribble(Side::A, 12);
        world
    }

    pub(crate) fn site(&self, side: Side) -> &Site<Watched> {
        match side {
            Side::A => &self.pair.a,
            Side::B => &self.pair.b,
        }
    }

    fn site_mut(&mut self, side: Side) -> &mut Site<Watched> {
        match side {
            Side::A => &mut self.pair.a,
            Side::B => &mut self.pair.b,
        }
    }

    pub(crate) fn volume(&self, side: Side) -> VolumeName {
        match side {
            Side::A => self.pair.original.clone(),
            Side::B => self.pair.replica.clone(),
        }
    }

    pub(crate) fn engine(&self, side: Side) -> Arc<dyn Engine> {
        self.site(side).disk.engine.inner.engine()
    }

    /// Writes and trims of hosts, flushed.
    pub(crate) fn scribble(&mut self, side: Side, count: usize) {
        let (storage, volume) = (self.site(side).disk.engine.clone(), self.volume(side));
        for _ in 0..count {
            host_writes(&mut self.rng, &storage, &volume, &self.watch);
        }
        storage.inner.pool().flush().unwrap();
    }

    /// One write of a host, flushed.
    pub(crate) fn write(&mut self, side: Side, offset: u64, bytes: &[u8]) {
        let storage = &self.site(side).disk.engine;
        storage.host_writes(&self.volume(side), offset, bytes);
        storage.inner.pool().flush().unwrap();
        let mut live = self.watch.live.lock();
        live.get_mut(&side).unwrap()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    /// The mirror whose replica is at `side`.
    pub(crate) fn mirror(&self, side: Side) -> Mirror {
        self.site(side).destination.mirror(&self.volume(side)).unwrap()
    }

    /// The mirror of A's volume at B, made and initialized.
    pub(crate) async fn mirrored(seed: u64) -> World {
        let world = World::new(seed).await;
        let mirror = world.pair.mirror(Schedule::OnRequest).await;
        transfer(&mirror, TransferKind::Initialize).await.unwrap();
        world
    }

    /// A site loses power, and comes back with what was durable; `lost` also takes its database.
    pub(crate) async fn restart(&mut self, side: Side, frozen: Option<Arc<MemoryStore>>, crash_seed: u64) {
        if let Some(store) = frozen {
            self.site_mut(side).disk.store = store;
        }
        match side {
            Side::A => self.pair.crash_a(crash_seed).await,
            Side::B => self.pair.crash_b(crash_seed).await,
        }
    }

    /// All snapshots of the volume at `side`; each must hold what its source held when it was taken.
    pub(crate) fn snapshots(&self, side: Side) -> Vec<SnapshotInfo> {
        let (engine, volume) = (self.engine(side), self.volume(side));
        let Ok(all) = engine.all_snapshots(&volume) else { return Vec::new() };
        let mut model = self.watch.snapshots.lock();
        for snapshot in &all {
            // What hosts wrote at this side and another version has taken the place of.
            if snapshot.name.starts_with("rescue-") && !model.contains_key(&snapshot.uuid) {
                model.insert(snapshot.uuid, self.watch.live.lock()[&side].clone());
            }
            let expected = model.get(&snapshot.uuid).unwrap_or_else(|| panic!("{snapshot:?} is unknown"));
            assert_eq!(snapshot.size_bytes, expected.len() as u64, "{volume}@{}", snapshot.name);
            let mut found = vec![0; expected.len()];
            engine.read_snapshot(&volume, snapshot.uuid, 0, &mut found).unwrap();
            assert!(found == *expected, "{volume}@{} holds other bytes than its original", snapshot.name);
        }
        all
    }

    /// What a reader of the volume at `side` sees now; none without a volume.
    pub(crate) fn shown(&self, side: Side) -> Option<Vec<u8>> {
        let handle = self.site(side).disk.engine.inner.pool().open_volume(&self.volume(side).volume).ok()?;
        let mut bytes = vec![0; handle.size_bytes() as usize];
        handle.read(0, &mut bytes).unwrap();
        Some(bytes)
    }

    pub(crate) fn is_writable(&self, side: Side) -> bool {
        let handle = self.site(side).disk.engine.inner.pool().open_volume(&self.volume(side).volume);
        handle.is_ok_and(|handle| handle.is_writable())
    }

    /// What hosts have written and flushed at `side` is there.
    pub(crate) fn check_live(&self, side: Side) {
        let live = self.watch.live.lock()[&side].clone();
        assert!(self.shown(side) == Some(live), "flushed writes are missing at {side:?}");
    }

    /// The version that readers of the replica at `side` see: the newest that its relationship has pinned.
    pub(crate) fn published(&self, side: Side) -> Option<SnapshotInfo> {
        let (engine, volume) = (self.engine(side), self.volume(side));
        let record = engine.replica_record(&volume).ok().flatten()?;
        let main = engine.snapshots(&volume).ok()?;
        main.into_iter().rev().find(|s| s.pinned_by.contains(&record.relationship))
    }

    /// Between updates each side of the mirror keeps the base in use, pinned for it alone, and of side branches what
    /// hosts wrote.
    pub(crate) fn check_one_base(&self, source: Side, destination: Side) {
        let id = self.mirror(destination).status().relationship.id;
        let mut bases = Vec::new();
        for side in [source, destination] {
            let mut all = self.snapshots(side);
            all.retain(|s| !s.name.starts_with("rescue-"));
            // What the destination kept for this side itself, before the direction changed, goes with the next update.
            let of_before = all.len();
            all.retain(|s| side != source || s.pinned_by != [common_of(id)]);
            assert!(of_before - all.len() <= 1, "more than one: {all:?}");
            let orphans = all.len();
            all.retain(|s| !self.has_orphan || s.pinned_by.contains(&id));
            assert!(orphans - all.len() <= 1);
            assert_eq!(all.len(), 1, "snapshots left at {side:?}: {all:?}");
            assert_eq!(all[0].pinned_by, [id], "pins left at {side:?}: {all:?}");
            bases.push(all[0].uuid);
        }
        assert_eq!(bases[0], bases[1]);
        let left = self.engine(destination).abandon_staged(&self.volume(destination)).unwrap();
        assert_eq!(left, 0, "something is still staged");
        assert_eq!(self.site(source).source.destinations().len(), 1);
    }

    /// A new mirror of the source's volume, to another volume at the other side, beside what is left of the old one.
    pub(crate) async fn start_over(&mut self, source: Side) {
        let destination = if source == Side::A { Side::B } else { Side::A };
        let id = self.mirror(destination).status().relationship.id;
        assert!(
            self.snapshots(source).iter().all(|s| !s.pinned_by.contains(&id)),
            "a released base is pinned"
        );
        let (site, volume) = (self.site(destination), self.volume(destination));
        site.destination.delete(&volume).await.unwrap();
        self.watch.live.lock().remove(&destination);
        let new: VolumeName = format!("{}/w", volume.pool).parse().unwrap();
        let peer = self.site(source).node.id();
        let created = site.destination.create(
            peer,
            self.volume(source),
            new.clone(),
            Schedule::OnRequest,
            PATIENCE,
            true,
        );
        transfer(&created.await.unwrap(), TransferKind::Initialize).await.unwrap();
        let live = self.watch.live.lock()[&source].clone();
        let handle = site.disk.engine.inner.pool().open_volume("w").unwrap();
        let mut bytes = vec![0; handle.size_bytes() as usize];
        handle.read(0, &mut bytes).unwrap();
        assert!(bytes == live, "the new copy is another");
    }

    /// The offline checker finds nothing in either pool.
    pub(crate) fn check_pools(&self) {
        for side in [Side::A, Side::B] {
            let disk = self.site(side).disk.engine.inner.disk.image();
            let report = farside_check::check(&disk, &CheckOptions::default()).unwrap();
            let errors: Vec<_> = report.findings.iter().filter(|f| f.severity == Severity::Error).collect();
            assert!(errors.is_empty(), "pool of {side:?}: {errors:?}");
        }
    }
}

/// One write or trim of a host, not flushed.
pub(crate) fn host_writes(rng: &mut SmallRng, storage: &Watched, volume: &VolumeName, watch: &Watch) {
    let mut live = watch.live.lock();
    let Some(live) = live.get_mut(&storage.side) else { return };
    let blocks = live.len() as u64 / BLOCK_BYTES;
    let length = rng.random_range(1..=8.min(blocks));
    let offset = rng.random_range(0..=blocks - length) * BLOCK_BYTES;
    let range = offset as usize..(offset + length * BLOCK_BYTES) as usize;
    if rng.random_bool(0.2) {
        storage.host_trims(volume, offset, length * BLOCK_BYTES);
        live[range].fill(0);
    } else {
        rng.fill(&mut live[range.clone()]);
        storage.host_writes(volume, offset, &live[range]);
    }
}

/// Asks for a transfer and waits for its end: an error says why it did not do what was asked.
pub(crate) async fn transfer(mirror: &Mirror, kind: TransferKind) -> Result<TransferReport, String> {
    let asked = match kind {
        TransferKind::Initialize => mirror.initialize(PATIENCE).await,
        _ => mirror.update(PATIENCE).await,
    };
    let report = asked.map_err(|e| e.to_string())?.ended().await.map_err(|e| e.to_string())?;
    match &report.reason {
        None => Ok(report),
        Some(reason) => Err(reason.clone()),
    }
}
