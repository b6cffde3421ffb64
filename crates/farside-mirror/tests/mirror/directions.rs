//! Both directions: failover, failback, what is told, what is refused, what is never lost.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, ChangedBytes, Engine, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_mirror::{LogEvent, Mirror, Schedule, TransferKind};
use farside_session::LinkSettings;
use rand::Rng;
use rand::rngs::SmallRng;
use uuid::Uuid;

use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Pair, Site, Storage, assert_ok, seeds};

pub(crate) const SIZE: u64 = 8 << 20;

/// One side: its volume, and what hosts must see of it.
pub(crate) struct End {
    pub(crate) volume: VolumeName,
    pub(crate) live: Vec<u8>,
}

impl End {
    /// `count` writes of up to 16 blocks. Returns how many bytes differ from before at most.
    pub(crate) fn write<S: Storage>(&mut self, site: &Site<S>, rng: &mut SmallRng, count: usize) -> u64 {
        let blocks = self.live.len() as u64 / BLOCK_BYTES;
        let mut written = 0;
        for _ in 0..count {
            let length = rng.random_range(1..=16.min(blocks));
            let offset = rng.random_range(0..=blocks - length) * BLOCK_BYTES;
            let mut bytes = vec![0; (length * BLOCK_BYTES) as usize];
            bytes.chunks_mut(2).for_each(|pair| pair[0] = rng.random());
            site.disk.engine.host_writes(&self.volume, offset, &bytes);
            self.live[offset as usize..offset as usize + bytes.len()].copy_from_slice(&bytes);
            written += bytes.len() as u64;
        }
        written
    }

    /// What hosts see is what this says.
    pub(crate) fn check<S: Storage>(&self, site: &Site<S>) {
        assert!(self.seen(site) == self.live, "{} shows something else", self.volume);
    }

    pub(crate) fn seen<S: Storage>(&self, site: &Site<S>) -> Vec<u8> {
        let engine = site.disk.engine.engine();
        let newest = engine.snapshots(&self.volume).unwrap().pop();
        if let Some(newest) = newest
            && engine.changed_since(&self.volume, newest.uuid).unwrap() == ChangedBytes::default()
        {
            return bytes_of(&*engine, &self.volume, newest.uuid, newest.size_bytes);
        }
        let probe = Uuid::from_u128(0xbeef);
        engine.take_snapshot(&self.volume, &person("probe", probe)).unwrap();
        let seen = bytes_of(&*engine, &self.volume, probe, self.live.len() as u64);
        engine.delete_snapshot(&self.volume, probe).unwrap();
        seen
    }

    /// Whether a snapshot, on whatever branch, holds these bytes.
    pub(crate) fn keeps<S: Storage>(&self, site: &Site<S>, bytes: &[u8]) -> bool {
        let engine = site.disk.engine.engine();
        let all = engine.all_snapshots(&self.volume).unwrap();
        all.iter().any(|s| {
            s.size_bytes == bytes.len() as u64
                && bytes_of(&*engine, &self.volume, s.uuid, s.size_bytes) == bytes
        })
    }

    pub(crate) fn is_writable<S: Storage>(&self, site: &Site<S>) -> bool {
        !site.disk.engine.engine().volume(&self.volume).unwrap().is_replica
    }

    pub(crate) fn pins_of<S: Storage>(&self, site: &Site<S>, relationship: Uuid) -> usize {
        let all = site.disk.engine.engine().all_snapshots(&self.volume).unwrap();
        all.iter().filter(|s| s.pinned_by.contains(&relationship)).count()
    }
}

pub(crate) fn person(name: &str, uuid: Uuid) -> SnapshotSpec {
    SnapshotSpec {
        name: name.into(),
        uuid,
        created_at: farside_platform::Timestamp(1),
        owner: SnapshotOwner::Person,
        pin_for: None,
    }
}

fn bytes_of(engine: &dyn Engine, volume: &VolumeName, snapshot: Uuid, size_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; size_bytes as usize];
    engine.read_snapshot(volume, snapshot, 0, &mut bytes).unwrap();
    bytes
}

/// Two sites, `a` with the original and `b` with an initialized replica; all three know the same bytes.
pub(crate) struct World<S> {
    pub(crate) pair: Pair<S>,
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) mirror: Mirror,
}

pub(crate) fn every(seconds: u64) -> Schedule {
    Schedule::every(Some(Duration::from_secs(seconds))).unwrap()
}

impl<S: Storage> World<S> {
    pub(crate) async fn new(seed: u64, link: LinkSettings, schedule: Schedule) -> World<S> {
        let mut pair = Pair::<S>::with_storage(seed, SIZE, link).await;
        pair.scribble(40);
        pair.snapshot("first");
        pair.scribble(10);
        let mirror = pair.mirror(schedule).await;
        assert_ok(&pair.initialize(&mirror).await);
        let a = End { volume: pair.original.clone(), live: pair.live.clone() };
        let b = End { volume: pair.replica.clone(), live: pair.live.clone() };
        World { pair, a, b, mirror }
    }

    /// The mirror R, of the replica at `b`.
    pub(crate) fn r(&self) -> Mirror {
        self.pair.b.destination.mirror(&self.b.volume).unwrap()
    }

    /// The mirror R', of the former original at `a`.
    pub(crate) fn reverse(&self) -> Mirror {
        self.pair.a.destination.mirror(&self.a.volume).unwrap()
    }

    pub(crate) fn write_a(&mut self, count: usize) -> u64 {
        self.a.write(&self.pair.a, &mut self.pair.rng, count)
    }
}

async fn ten_turns<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), every(60)).await;
    let r = world.mirror.status().relationship.id;
    let mut reverse = None;
    for turn in 0..10 {
        println!("turn {turn}");
        // The side that hosts write to, and the one that follows.
        let forth = turn % 2 == 0;
        let follower = if forth { world.r() } else { world.reverse() };
        let World { pair, a, b, .. } = &mut world;
        let (leading, following, lead_site, follow_site) =
            if forth { (a, b, &pair.a, &pair.b) } else { (b, a, &pair.b, &pair.a) };
        leading.write(lead_site, &mut pair.rng, 20);
        assert_ok(&follower.update(PATIENCE).await.unwrap().ended().await.unwrap());
        following.live = leading.live.clone();
        following.check(follow_site);
        // Written after the last update: lost to hosts by the failover, but kept.
        let unreplicated = pair.rng.random_range(0..10);
        leading.write(lead_site, &mut pair.rng, unreplicated);
        let is_cut = pair.rng.random_bool(0.5);
        if is_cut {
            pair.network.cut("a", "b");
        }
        follower.break_off(None).await.unwrap();
        assert!(following.is_writable(follow_site));
        let count = pair.rng.random_range(0..12);
        let written = following.write(follow_site, &mut pair.rng, count);
        pair.network.heal("a", "b");
        // The former leader follows.
        let set_aside = leading.live.clone();
        let (peer, source, here) = (follow_site.node.id(), following.volume.clone(), leading.volume.clone());
        let plan =
            lead_site.destination.plan_resync(&here, Some((peer, source.clone())), PATIENCE).await.unwrap();
        assert_eq!(plan.set_aside == ChangedBytes::default(), unreplicated == 0, "{plan:?}");
        let (mirror, asked) =
            lead_site.destination.resync_from(peer, source, here, every(60), PATIENCE).await.unwrap();
        assert!(!leading.is_writable(lead_site));
        let report = asked.ended().await.unwrap();
        assert_ok(&report);
        assert_eq!(report.kind, TransferKind::Resync);
        assert!(report.changed_bytes <= written, "{} of {written} bytes moved", report.changed_bytes);
        let incoming = plan.incoming.unwrap();
        assert_eq!(incoming.data_bytes, report.changed_bytes, "the plan knew");
        leading.live = following.live.clone();
        leading.check(lead_site);
        following.check(follow_site);
        // With nothing written since the last update there is nothing that only this side held.
        assert!(unreplicated == 0 || leading.keeps(lead_site, &set_aside), "what was overwritten opens");
        // Each side keeps what the direction in force needs, and nothing for the other.
        let id = mirror.status().relationship.id;
        if forth {
            assert_eq!(*reverse.get_or_insert(id), id, "the mirror back is the same each time");
        } else {
            assert_eq!(id, r);
        }
        let other = if forth { r } else { reverse.unwrap() };
        for (end, site) in [(&*leading, lead_site), (&*following, follow_site)] {
            assert_eq!((end.pins_of(site, id), end.pins_of(site, other)), (1, 0), "{}", end.volume);
        }
        assert_eq!(lead_site.source.destinations().len(), 0);
        assert_eq!(follow_site.source.destinations().len(), 1);
        assert!(follow_site.source.overtaken().is_empty());
        assert_eq!(mirror.status().relationship.schedule, every(60));
    }
    // Schedules are alive: without anybody asking, what is written arrives.
    world.write_a(5);
    tokio::time::sleep(Duration::from_secs(150)).await;
    world.b.live = world.a.live.clone();
    world.b.check(&world.pair.b);
    let log = world.pair.b.destination.log(&world.b.volume, 1000).await.unwrap();
    let count = |event: LogEvent| log.iter().filter(|line| line.event == event).count();
    assert_eq!((count(LogEvent::Break), count(LogEvent::Resync)), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn ten_failovers_and_failbacks() {
    for seed in seeds(300, 2) {
        ten_turns::<MemoryEngine>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_failovers_and_failbacks_on_the_embedded_store() {
    for seed in seeds(310, 1) {
        ten_turns::<Embedded>(seed).await;
    }
}
