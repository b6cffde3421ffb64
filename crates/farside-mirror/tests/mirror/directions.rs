//! Both directions: failover, failback, what is told, what is refused, what is never lost.

use std::time::Duration;

use farside_engine::{BLOCK_BYTES, ChangedBytes, Engine, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_link::LinkSettings;
use farside_mirror::{LogEvent, Mirror, MirrorError, Schedule, State};
use farside_peer::SessionError;
use farside_transfer::protocol::{Begin, Body, PROTOCOL_VERSION, Request, convert};
use farside_transfer::{TransferKind, TransferReport, TransferResult};
use prost::Message;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{PATIENCE, Pair, Site, Storage, assert_ok, seeds, slow, volume};

pub(crate) const SIZE: u64 = 8 << 20;
/// Sessions that may be lost until two sites that were started anew have settled on one.
const SESSIONS_MAX: usize = 5;

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

    /// Makes the former original follow.
    pub(crate) async fn resync_a(&self) -> Result<TransferReport, MirrorError> {
        let (peer, source, here) = (self.pair.b.node.id(), self.b.volume.clone(), self.a.volume.clone());
        let (_, asked) =
            self.pair.a.destination.resync_from(peer, source, here, Schedule::OnRequest, PATIENCE).await?;
        asked.ended().await
    }

    pub(crate) fn write_b(&mut self, count: usize) -> u64 {
        self.b.write(&self.pair.b, &mut self.pair.rng, count)
    }

    pub(crate) async fn update(&mut self) -> TransferReport {
        let report = self.r().update(PATIENCE).await.unwrap().ended().await.unwrap();
        assert_ok(&report);
        self.b.live = self.a.live.clone();
        report
    }

    pub(crate) fn write_a(&mut self, count: usize) -> u64 {
        self.a.write(&self.pair.a, &mut self.pair.rng, count)
    }
}

/// Waits, as long as it may take.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), waited).await.unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) async fn ten_role_changes<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), every(60)).await;
    let r = world.mirror.status().relationship.id;
    let mut reverse = None;
    for round in 0..10 {
        println!("round {round}");
        // The side that hosts write to, and the one that follows.
        let forth = round % 2 == 0;
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
        ten_role_changes::<MemoryEngine>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_failovers_and_failbacks_on_the_embedded_store() {
    for seed in seeds(310, 1) {
        ten_role_changes::<Embedded>(seed).await;
    }
}

/// The source is gone for good: what was set aside may be the last copy of it.
#[tokio::test(start_paused = true)]
async fn what_a_break_at_a_snapshot_set_aside_outlives_the_mirror() {
    let mut world = World::<Embedded>::new(331, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    world.pair.live = world.a.live.clone();
    let good = world.pair.snapshot("good");
    world.update().await;
    world.write_a(10);
    world.update().await;
    let newest = world.b.live.clone();
    world.r().break_off(Some(good)).await.unwrap();
    world.pair.b.destination.delete(&world.b.volume).await.unwrap();
    assert!(world.b.keeps(&world.pair.b, &newest), "only a person deletes it");
}

async fn broken_at_a_snapshot<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    world.pair.live = world.a.live.clone();
    let good = world.pair.snapshot("good");
    world.update().await;
    let at_good = world.b.live.clone();
    world.write_a(10);
    world.update().await;
    let at_newest = world.b.live.clone();
    let plan = world.pair.b.destination.plan_break(&world.b.volume, Some(good)).await.unwrap();
    assert_eq!(plan.base.as_ref().map(|base| base.uuid), Some(good));
    assert!(plan.set_aside != ChangedBytes::default());
    let nothing = world.pair.b.destination.plan_break(&world.b.volume, None).await.unwrap();
    assert_eq!((nothing.set_aside, nothing.set_aside_seconds), (ChangedBytes::default(), 0.0));

    let unknown = world.r().break_off(Some(Uuid::from_u128(99))).await;
    assert!(unknown.unwrap_err().to_string().contains("does not exist"));
    assert_eq!(world.r().status().state, State::Mirrored, "nothing has changed");
    let shown = world.r().status().current.unwrap().uuid;
    let kept_as = world
        .r()
        .break_and_name(Some(good), None)
        .await
        .unwrap()
        .expect("it says what the newer content stays as");
    let all = world.pair.b.disk.engine.engine().all_snapshots(&world.b.volume).unwrap();
    let named = all.iter().find(|s| s.name == kept_as).expect("it is called so");
    assert_eq!(named.uuid, shown);
    world.b.live = at_good.clone();
    world.b.check(&world.pair.b);
    assert!(world.b.is_writable(&world.pair.b));
    assert!(world.b.keeps(&world.pair.b, &at_newest), "what was newer is still there");
    let again = world.r().break_off(Some(good)).await.unwrap_err().to_string();
    assert!(again.contains("snapshot rollback"), "{again}");
    // The source is told where hosts went on from.
    let source = world.pair.a.source.clone();
    until("a hears of it", || source.overtaken().len() == 1).await;
    assert_eq!(source.overtaken()[0].overtaken.clone().unwrap().snapshot.map(|s| s.0), Some(good));

    world.write_b(5);
    let written = world.b.live.clone();
    world.pair.crash_b(0).await;
    world.b.check(&world.pair.b);
    let report = world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    world.b.live = world.a.live.clone();
    world.b.check(&world.pair.b);
    assert!(world.b.keeps(&world.pair.b, &written) && world.b.keeps(&world.pair.b, &at_good));
    assert_eq!(report.changed_bytes, 0, "from the newest that both hold, though it lay on a side branch");
    world.update().await;
}

#[tokio::test(start_paused = true)]
async fn a_break_at_a_snapshot_takes_hosts_back_to_it() {
    broken_at_a_snapshot::<MemoryEngine>(320).await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_snapshot_of_what_came_last_is_nothing_newer() {
    let mut world = World::<Embedded>::new(321, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    world.update().await;
    let shown = world.r().status().current.unwrap().uuid;
    let own = person("before-the-night", Uuid::from_u128(77));
    world.pair.b.disk.engine.engine().take_snapshot(&world.b.volume, &own).unwrap();
    let kept_as = world.r().break_and_name(Some(shown), None).await.unwrap();
    assert_eq!(kept_as, None, "there is nothing to go back to");
    world.b.check(&world.pair.b);
    assert!(world.b.is_writable(&world.pair.b));
    let all = world.pair.b.disk.engine.engine().all_snapshots(&world.b.volume).unwrap();
    assert!(all.iter().any(|s| s.name == own.name), "what a person has named stays");
}

/// What a source says to an update of `relationship` that is asked for behind its destination's back.
async fn refusal_of_an_update<S: Storage>(world: &World<S>, relationship: Uuid) -> Option<String> {
    let begin = Begin {
        relationship: relationship.as_bytes().to_vec(),
        transfer: vec![9; 16],
        volume: world.a.volume.to_string(),
        destination: world.b.volume.to_string(),
        kind: convert::kind_number(TransferKind::Update),
        candidates: Vec::new(),
        staged: None,
        role_change: 1,
        whole: false,
        named_max: None,
        keeps_common: false,
        left: Vec::new(),
        further: Vec::new(),
        until: Vec::new(),
    };
    let request = Request { version: PROTOCOL_VERSION, body: Some(Body::Begin(begin)) }.encode_to_vec();
    let request = bytes::Bytes::from(request);
    for _ in 0..SESSIONS_MAX {
        let link = world.pair.b.node.wait_link(world.pair.a.node.id(), PATIENCE).await.unwrap();
        match link.call(request.clone(), None).await {
            Err(SessionError::Refused(refusal)) => {
                assert_eq!(refusal.code, "state");
                return Some(refusal.message).filter(|message| message.contains("overtaken"));
            }
            // Both sites have dialled, or one has not yet noticed that the other was started anew: the session that stays is
            // there at once.
            Err(SessionError::Lost(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("{SESSIONS_MAX} sessions were lost one after the other");
}

/// The last thing that the old source did was to take a snapshot for an update that never arrived.
async fn what_only_the_last_update_had_taken_stays<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, slow(), Schedule::OnRequest).await;
    world.write_a(40);
    let before = world.a.live.clone();
    let taken =
        |world: &World<S>| world.pair.a.disk.engine.engine().snapshots(&world.a.volume).unwrap().len();
    let known = taken(&world);
    let _asked = world.r().update(PATIENCE).await.unwrap();
    while taken(&world) == known {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.pair.network.cut("a", "b");
    world.r().break_off(None).await.unwrap();
    world.write_b(5);
    world.pair.network.heal("a", "b");
    assert_ok(&world.resync_a().await.unwrap());
    world.a.live = world.b.live.clone();
    world.a.check(&world.pair.a);
    assert!(world.a.keeps(&world.pair.a, &before), "what hosts had written is on no branch");
}

#[tokio::test(start_paused = true)]
async fn what_only_the_last_update_had_taken_stays_as_a_side_branch() {
    what_only_the_last_update_had_taken_stays::<MemoryEngine>(380).await;
    what_only_the_last_update_had_taken_stays::<Embedded>(381).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_comes_back_learns_that_it_was_overtaken() {
    let mut world = World::<MemoryEngine>::new(330, LinkSettings::default(), Schedule::OnRequest).await;
    let r = world.mirror.status().relationship.id;
    world.pair.network.cut("a", "b");
    let began = Instant::now();
    world.r().break_off(None).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2));
    world.write_b(5);
    world.write_a(5);
    // Both restart before they meet again.
    world.pair.crash_b(0).await;
    world.pair.crash_a(0).await;
    *world.pair.a.rights.fences.lock() = true;
    assert_eq!(world.pair.a.source.overtaken(), [], "nobody could tell it");
    let mut changes = world.pair.a.source.overtaken_changes();
    world.pair.network.heal("a", "b");
    changes.changed().await.unwrap();
    let told = world.pair.a.source.overtaken();
    assert_eq!((told.len(), told[0].id), (1, r));
    let overtaken = told[0].overtaken.clone().unwrap();
    assert!(overtaken.broken_off_at.is_some() && overtaken.reported_at >= overtaken.broken_off_at.unwrap());
    let base = world.r().status().current.unwrap();
    assert_eq!(overtaken.snapshot, Some((base.uuid, base.content_root)));
    assert_eq!(world.pair.a.source.fenced(), std::slice::from_ref(&world.a.volume));
    assert!(refusal_of_an_update(&world, r).await.is_some());
    // It does not forget, and hears it once in each session.
    world.pair.crash_a(0).await;
    assert_eq!(world.pair.a.source.overtaken().len(), 1);
    assert!(refusal_of_an_update(&world, r).await.is_some());
    // Released it is no longer of interest, and stays so.
    let released = world.pair.a.source.release(&world.a.volume, world.pair.b.node.id()).await.unwrap();
    assert_eq!((released, world.pair.a.source.overtaken()), (1, vec![]));
    world.pair.crash_b(0).await;
    world.pair.b.node.wait_link(world.pair.a.node.id(), PATIENCE).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.pair.a.source.destinations(), []);
}

#[tokio::test(start_paused = true)]
async fn with_either_database_lost_the_pools_still_know() {
    let mut world = World::<MemoryEngine>::new(331, LinkSettings::default(), Schedule::OnRequest).await;
    let r = world.mirror.status().relationship.id;
    world.pair.network.cut("a", "b");
    world.r().break_off(None).await.unwrap();
    world.write_b(5);
    world.pair.lose_database_b().await;
    world.pair.lose_database_a().await;
    assert_eq!(world.r().status().state, State::BrokenOff);
    let pins = world.pair.a.source.unexplained(&world.a.volume, &[]).await.unwrap();
    assert_eq!((pins.len(), pins[0].relationship, pins[0].snapshots.len()), (1, r, 1), "{pins:?}");
    world.pair.network.heal("a", "b");
    let source = world.pair.a.source.clone();
    until("a hears of it", || source.overtaken().len() == 1).await;
    assert_eq!(source.overtaken()[0].destination, world.b.volume);
    assert_eq!(source.overtaken()[0].overtaken.clone().unwrap().broken_off_at, None, "nobody knows when");
    assert_eq!(source.unexplained(&world.a.volume, &[]).await.unwrap(), []);
    // And either side can be the one that counts.
    assert_ok(&world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap());
    world.b.live = world.a.live.clone();
    world.b.check(&world.pair.b);
    assert_eq!(source.overtaken(), []);
    // Pins that nobody explains can be released by name.
    world.pair.lose_database_a().await;
    let source = world.pair.a.source.clone();
    assert!(source.release_unexplained(&world.a.volume, Uuid::from_u128(5), &[]).await.is_err());
    source.release_unexplained(&world.a.volume, r, &[]).await.unwrap();
    assert_eq!(source.unexplained(&world.a.volume, &[]).await.unwrap(), []);
    assert_eq!(world.a.pins_of(&world.pair.a, r), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_cannot_be_is_refused_with_nothing_changed() {
    let mut world = World::<Embedded>::new(340, LinkSettings::default(), Schedule::OnRequest).await;
    let refused_early = world.resync_a().await.unwrap_err().to_string();
    assert!(refused_early.contains("peer's q/r") || refused_early.contains("swap"), "{refused_early}");
    world.r().break_off(None).await.unwrap();
    world.write_b(3);
    world.write_a(3);
    let before = format!("{:?}", world.pair.a.disk.engine.engine().all_snapshots(&world.a.volume).unwrap());
    let unchanged = |world: &World<Embedded>, why: &str| {
        let engine = world.pair.a.disk.engine.engine();
        assert!(world.a.is_writable(&world.pair.a), "{why}");
        assert!(world.pair.a.destination.mirrors().is_empty(), "{why}");
        assert_eq!(engine.replica_record(&world.a.volume).unwrap(), None, "{why}");
        assert_eq!(format!("{:?}", engine.all_snapshots(&world.a.volume).unwrap()), before, "{why}");
    };
    // A host is writing.
    let writer = world.pair.a.disk.engine.open(&world.a.volume);
    let refused = world.resync_a().await.unwrap_err().to_string();
    assert!(refused.contains("disconnect"), "{refused}");
    unchanged(&world, "a writer");
    drop(writer);
    // The other side does not allow it.
    *world.pair.b.rights.denied.lock() = true;
    let refused = world.resync_a().await.unwrap_err().to_string();
    assert!(refused.contains("peer allow"), "{refused}");
    unchanged(&world, "no right");
    *world.pair.b.rights.denied.lock() = false;
    // There is nobody to ask.
    world.pair.network.cut("a", "b");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let (peer, source, here) = (world.pair.b.node.id(), world.b.volume.clone(), world.a.volume.clone());
    let wait = Duration::from_secs(3);
    let asked = world.pair.a.destination.resync_from(peer, source.clone(), here, Schedule::OnRequest, wait);
    assert!(matches!(asked.await, Err(MirrorError::NoSession(_))));
    unchanged(&world, "no session");
    world.pair.network.heal("a", "b");
    // Nothing in common.
    let other = volume("p/other");
    world.pair.a.disk.engine.engine().create_volume(&other, SIZE).unwrap();
    world.pair.a.disk.engine.host_writes(&other, 0, &[1; 4096]);
    let asked = world.pair.a.destination.resync_from(peer, source, other, Schedule::OnRequest, PATIENCE);
    let refused = asked.await.unwrap_err().to_string();
    assert!(refused.contains("no point to go on from") && refused.contains("mirror create"), "{refused}");
    unchanged(&world, "no base");
    // Nothing in the way any more.
    assert_ok(&world.resync_a().await.unwrap());
    world.a.live = world.b.live.clone();
    world.a.check(&world.pair.a);
    // The mirror of a volume is not redirected to one that is not there.
    let elsewhere = volume("q/elsewhere");
    let here = world.a.volume.clone();
    let asked = world.pair.a.destination.resync_from(peer, elsewhere, here, Schedule::OnRequest, PATIENCE);
    let refused = asked.await.unwrap_err().to_string();
    assert!(refused.contains("elsewhere does not exist"), "{refused}");
    assert_eq!(world.reverse().status().relationship.source, world.b.volume);
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_fails_is_tried_again_and_can_be_taken_back() {
    for seed in seeds(350, 4) {
        let mut world = World::<MemoryEngine>::new(seed, slow(), Schedule::OnRequest).await;
        world.r().break_off(None).await.unwrap();
        world.write_b(60);
        world.write_a(10);
        let own = world.a.live.clone();
        let (peer, source, here) = (world.pair.b.node.id(), world.b.volume.clone(), world.a.volume.clone());
        let (_, asked) = world
            .pair
            .a
            .destination
            .resync_from(peer, source, here, Schedule::OnRequest, PATIENCE)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(world.pair.rng.random_range(0..900))).await;
        world.pair.network.cut("a", "b");
        if seed % 2 == 0 {
            world.pair.crash_a(seed).await;
        } else {
            assert_ne!(asked.ended().await.map(|r| r.result).ok(), Some(TransferResult::Ok));
        }
        assert!(!world.a.is_writable(&world.pair.a));
        world.a.check(&world.pair.a);
        until("it is said what it shows", || {
            let status = world.reverse().status();
            let why = status.why.unwrap_or_default();
            status.shows_own_state && why.contains("shows its own state, as hosts here left it")
        })
        .await;
        if seed % 4 < 2 {
            // Taken back: nothing is lost.
            world.reverse().break_off(None).await.unwrap();
            assert!(world.a.is_writable(&world.pair.a) && !world.reverse().status().shows_own_state);
            world.a.check(&world.pair.a);
        }
        world.pair.network.heal("a", "b");
        let report = if seed % 4 < 2 {
            world.resync_a().await.unwrap()
        } else {
            // Whoever asks for an update asks for the resync that is pending.
            world.reverse().update(PATIENCE).await.unwrap().ended().await.unwrap()
        };
        assert_ok(&report);
        assert_eq!(report.kind, TransferKind::Resync);
        assert!(!world.reverse().status().shows_own_state);
        world.a.live = world.b.live.clone();
        world.a.check(&world.pair.a);
        assert!(world.a.keeps(&world.pair.a, &own));
        assert_eq!(world.pair.a.source.destinations(), []);
    }
}

/// Two persons decide the opposite at the same moment: one of them is told, and an original is left.
async fn resyncs_that_cross<S: Storage>(seed: u64, first: bool) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    world.r().break_off(None).await.unwrap();
    world.write_a(3);
    world.write_b(3);
    let is_begin = |body: &Body| matches!(body, Body::Begin(_));
    let is_compare = |body: &Body| matches!(body, Body::Compare(_));
    let asks = [&world.pair.a, &world.pair.b].map(|site| site.fault_injector.hold_answer(is_compare));
    let at_a = world.pair.a.fault_injector.hold(is_begin);
    let at_b = world.pair.b.fault_injector.hold(is_begin);
    let r = world.r();
    let (forth, back, ()) =
        tokio::join!(async { r.resync(PATIENCE).await?.ended().await }, world.resync_a(), async {
            for ask in &asks {
                ask.held().await;
            }
            asks.iter().for_each(|ask| ask.open());
            at_a.held().await;
            at_b.held().await;
            assert!(
                !world.a.is_writable(&world.pair.a) && !world.b.is_writable(&world.pair.b),
                "they crossed"
            );
            let [one, other] = if first { [at_a, at_b] } else { [at_b, at_a] };
            one.open();
            tokio::time::sleep(Duration::from_millis(20 * (seed % 3))).await;
            other.open();
        },);
    let is_done = |ended: &Result<TransferReport, MirrorError>| {
        ended.as_ref().is_ok_and(|report| report.result == TransferResult::Ok)
    };
    let writable = (world.a.is_writable(&world.pair.a), world.b.is_writable(&world.pair.b));
    println!("{writable:?}: {forth:?} {back:?}");
    assert_eq!(writable, (is_done(&forth), is_done(&back)));
    assert!(writable.0 != writable.1, "one original is left");
    // Who gave way says why, and is as before.
    let (why, follower) = if writable.0 {
        world.b.live = world.a.live.clone();
        (world.reverse().status().why, world.r())
    } else {
        world.a.live = world.b.live.clone();
        (world.r().status().why, world.reverse())
    };
    let why = why.unwrap_or_default();
    assert!(why.contains("at the same time"), "{why}");
    world.a.check(&world.pair.a);
    world.b.check(&world.pair.b);
    // For good: whatever was on its way.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(writable, (world.a.is_writable(&world.pair.a), world.b.is_writable(&world.pair.b)));
    assert_eq!((world.pair.a.source.overtaken(), world.pair.b.source.overtaken()), (vec![], vec![]));
    assert_ok(&follower.update(PATIENCE).await.unwrap().ended().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn of_two_resyncs_that_cross_one_gives_way() {
    for seed in seeds(570, 8) {
        resyncs_that_cross::<MemoryEngine>(seed, seed % 2 == 0).await;
    }
    resyncs_that_cross::<Embedded>(580, false).await;
    resyncs_that_cross::<Embedded>(581, true).await;
}

/// What was chosen is deleted meanwhile by whoever it was kept for: another serves.
#[tokio::test(start_paused = true)]
async fn a_base_that_goes_while_a_resync_begins_is_no_reason_to_refuse_it() {
    for case in 0..3 {
        println!("case {case}");
        let link = LinkSettings::default();
        let mut world = World::<MemoryEngine>::new(590 + case, link, Schedule::OnRequest).await;
        world.write_a(2);
        world.update().await;
        let base = world.r().status().current.unwrap().uuid;
        world.r().break_off(None).await.unwrap();
        if case > 0 {
            world.write_b(2);
        }
        let (here, there) = (&world.pair.b.disk.engine, &world.pair.a.disk.engine);
        match case {
            0 => here.faults.lock().goes_before_comparison = Some(base),
            1 => here.faults.lock().goes_before_pin = Some(base),
            _ => there.faults.lock().goes_before_comparison = Some(base),
        }
        let report = world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap();
        assert_ok(&report);
        assert!(report.base.is_some());
        world.b.live = world.a.live.clone();
        world.b.check(&world.pair.b);
    }
}
