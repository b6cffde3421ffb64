//! Role changes: nothing is lost, and at no moment are both sides writable.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use farside_engine::{SnapshotSpec, VolumeName};
use farside_link::LinkSettings;
use farside_mirror::{
    Budgets, MirrorError, Relationship, RelationshipStore, Reversal, ReverseAccepted, ReverseOffer, Schedule,
    SourceHeard, SourceService, State,
};
use farside_peer::{PeerId, PeerService};
use farside_transfer::TransferError;
use farside_transfer::protocol::{
    Body, Candidate, Overtaken, PROTOCOL_VERSION, Request, Swap, SwapPhase, convert,
};
use farside_transfer::source::Similarity;
use prost::Message;
use rand::Rng;
use uuid::Uuid;

use crate::directions::{World, every, person, until};
use crate::support::embedded_storage::Embedded;
use crate::support::memory_engine::MemoryEngine;
use crate::support::site::{self, PATIENCE, Storage, assert_ok, encoders, seeds, slow};

impl<S: Storage> World<S> {
    /// M5.
    fn check_one_original(&self, context: &str) -> (bool, bool) {
        let writable = (self.a.is_writable(&self.pair.a), self.b.is_writable(&self.pair.b));
        assert!(writable != (true, true), "both sides are writable: {context}");
        writable
    }
}

pub(crate) async fn there_and_back<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), every(60)).await;
    let r = world.mirror.status().relationship.id;
    let mut reverse = None;
    for role_change in 0..4 {
        world.write_a(10);
        let done = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
        assert_eq!(done.not_notified, None);
        assert_eq!(world.check_one_original("swapped"), (false, true));
        world.b.live = world.a.live.clone();
        world.b.check(&world.pair.b);
        assert_eq!(
            *reverse.get_or_insert(done.reverse),
            done.reverse,
            "the same each time: role_change {role_change}"
        );
        let status = world.reverse().status();
        assert_eq!((status.state, status.relationship.id), (State::Mirrored, done.reverse));
        assert_eq!(status.relationship.schedule, every(60), "the schedule came along");
        assert_eq!((status.relationship.swap, status.why), (None, None));
        assert_eq!(world.r().status().relationship.swap, None);
        let granted = world.pair.b.rights.granted.lock().clone();
        assert!(granted.contains(&(world.pair.a.node.id(), world.b.volume.clone())));
        // And it follows, by its schedule.
        world.write_b(10);
        tokio::time::sleep(Duration::from_secs(130)).await;
        world.a.live = world.b.live.clone();
        world.a.check(&world.pair.a);
        for (end, site) in [(&world.a, &world.pair.a), (&world.b, &world.pair.b)] {
            assert_eq!((end.pins_of(site, done.reverse), end.pins_of(site, r)), (1, 0), "{}", end.volume);
        }
        // Back again, asked for at the other side.
        world.write_b(10);
        let done = world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
        assert_eq!((done.reverse, done.not_notified), (r, None));
        assert_eq!(world.check_one_original("back"), (true, false));
        world.a.live = world.b.live.clone();
        world.a.check(&world.pair.a);
        assert_eq!(world.r().status().state, State::Mirrored);
        assert_eq!((world.pair.a.source.overtaken(), world.pair.b.source.overtaken()), (vec![], vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn roles_change_and_change_back() {
    there_and_back::<MemoryEngine>(400).await;
}

#[tokio::test(start_paused = true)]
async fn roles_change_and_change_back_on_the_embedded_store() {
    there_and_back::<Embedded>(401).await;
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_cannot_be_is_refused_and_everything_goes_on() {
    let mut world = World::<Embedded>::new(410, LinkSettings::default(), every(60)).await;
    let goes_on = async |world: &mut World<Embedded>| {
        assert_eq!(world.check_one_original("refused"), (true, false));
        assert!(world.pair.a.destination.mirrors().is_empty());
        world.write_a(3);
        world.update().await;
        world.b.check(&world.pair.b);
        let r = world.r();
        until("the mark is gone", || r.status().relationship.swap.is_none()).await;
    };
    *world.pair.a.rights.no_way_back.lock() = true;
    let refused = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("--reverse"), "{refused}");
    goes_on(&mut world).await;
    *world.pair.a.rights.no_way_back.lock() = false;
    let writer = world.pair.a.disk.engine.open(&world.a.volume);
    let refused = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("disconnect"), "{refused}");
    drop(writer);
    goes_on(&mut world).await;
    world.r().quiesce().await.unwrap();
    let refused = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await;
    assert!(matches!(refused, Err(MirrorError::State(_))));
    world.r().resume().await.unwrap();
    goes_on(&mut world).await;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
}

/// Whatever fails whenever, one side at most is writable, and in the end one is, with everything that was ever written.
async fn a_swap_under_fire<S: Storage>(seed: u64) {
    let mut world = World::<S>::new(seed, slow(), Schedule::OnRequest).await;
    world.write_a(20);
    world.update().await;
    world.write_a(10);
    // What hosts have flushed: what is compared must not go with the power.
    let engine = world.pair.a.disk.engine.engine();
    let flushed: SnapshotSpec = person("flushed", Uuid::from_u128(0xf1));
    engine.take_snapshot(&world.a.volume, &flushed).unwrap();
    let written = world.a.live.clone();
    let (destination, replica) = (world.pair.b.destination.clone(), world.b.volume.clone());
    let swapping =
        tokio::spawn(async move { destination.swap(&replica, Duration::from_secs(5)).await.map(|_| ()) });
    let moment = Duration::from_millis(world.pair.rng.random_range(0..1500));
    let fault = world.pair.rng.random_range(0..5);
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < moment {
        world.check_one_original("before the fault");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("fault {fault} after {moment:?}: {:?}", world.check_one_original("at the fault"));
    match fault {
        0 => world.pair.network.cut("a", "b"),
        1 => world.pair.network.black_hole("a", "b"),
        2 => world.pair.network.reset("a", "b"),
        3 => world.pair.crash_a(seed).await,
        _ => world.pair.crash_b(seed).await,
    }
    for _ in 0..200 {
        world.check_one_original("after the fault");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.pair.network.heal("a", "b");
    let ended = tokio::time::timeout(Duration::from_secs(900), swapping).await.expect("it ends");
    println!("the swap said {ended:?}");
    let r = world.r();
    let healed = tokio::time::Instant::now();
    loop {
        let writable = world.check_one_original("afterwards");
        let at_a: Vec<_> = world.pair.a.destination.mirrors().iter().map(|m| m.status()).collect();
        let waits = at_a.iter().any(|status| status.relationship.swap.is_some());
        if r.status().relationship.swap.is_none() && !waits && writable != (false, false) {
            break;
        }
        let known = format!("{writable:?}: {:?}, {at_a:?}", r.status());
        assert!(healed.elapsed() < Duration::from_secs(600), "the sides never agree: {known}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (a_leads, b_leads) = world.check_one_original("in the end");
    if matches!(&ended, Ok(Ok(()))) {
        assert!(b_leads, "it said that it was done");
    }
    world.a.live = written.clone();
    world.b.live = written;
    if a_leads {
        world.a.check(&world.pair.a);
        world.write_a(3);
        world.update().await;
        world.b.check(&world.pair.b);
        // Asked for again it is done.
        world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
        assert_eq!(world.check_one_original("asked for again"), (false, true));
    } else {
        world.b.check(&world.pair.b);
    }
    world.write_b(3);
    assert_ok(&world.reverse().update(PATIENCE).await.unwrap().ended().await.unwrap());
    world.a.live = world.b.live.clone();
    world.a.check(&world.pair.a);
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_is_struck_at_any_moment_ends_on_one_side() {
    for seed in seeds(420, 12) {
        a_swap_under_fire::<MemoryEngine>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_swap_that_is_struck_at_any_moment_ends_on_one_side_on_the_embedded_store() {
    for seed in seeds(460, 3) {
        a_swap_under_fire::<Embedded>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_break_at_the_source_while_roles_change_keeps_them() {
    let mut world = World::<MemoryEngine>::new(480, slow(), Schedule::OnRequest).await;
    world.write_a(10);
    let (destination, replica) = (world.pair.b.destination.clone(), world.b.volume.clone());
    let swapping = tokio::spawn(async move { destination.swap(&replica, PATIENCE).await });
    let a = world.pair.a.destination.clone();
    while !a.mirrors().iter().any(|m| m.status().relationship.swap.is_some()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let why = world.reverse().status().why.unwrap();
    assert!(why.contains("a role change is under way"), "{why}");
    assert!(world.reverse().update(PATIENCE).await.is_err());
    world.reverse().break_off(None).await.unwrap();
    world.write_a(3);
    let refused = swapping.await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("broken off"), "{refused}");
    let r = world.r();
    until("the mark is gone", || r.status().relationship.swap.is_none()).await;
    assert_eq!(world.check_one_original("broken off at the source"), (true, false));
    world.update().await;
    world.b.check(&world.pair.b);
}

#[tokio::test(start_paused = true)]
async fn notice_of_a_break_does_not_wait_for_a_mirror_that_waits_for_it() {
    let world = World::<MemoryEngine>::new(490, LinkSettings::default(), Schedule::OnRequest).await;
    let (a, b) = (&world.pair.a, &world.pair.b);
    let (engine, store) = (a.disk.engine.engine(), a.disk.store.clone());
    let source = SourceService::open(
        engine,
        a.rights.clone(),
        store,
        world.pair.clock.clone(),
        Similarity::default(),
        encoders(),
    )
    .await
    .unwrap();
    let source = Arc::new(source);
    let busy = Arc::new(Busy { source: OnceLock::new(), peer: b.node.id(), replica: world.b.volume.clone() });
    busy.source.set(Arc::downgrade(&source)).unwrap();
    let reversal: Arc<dyn Reversal> = busy;
    source.set_reversal(Arc::downgrade(&reversal));
    let base = world.r().status().current.unwrap();
    let overtaken = Overtaken {
        relationship: world.r().status().relationship.id.as_bytes().to_vec(),
        volume: world.a.volume.to_string(),
        broken_off_at: 1,
        snapshot: Some(Candidate {
            uuid: base.uuid.as_bytes().to_vec(),
            content_root: base.content_root.0.to_vec(),
            size_bytes: base.size_bytes,
        }),
        destination: world.b.volume.to_string(),
        role_change: 1,
        again: true,
        ..Overtaken::default()
    };
    let request =
        Request { version: PROTOCOL_VERSION, body: Some(Body::Overtaken(overtaken)) }.encode_to_vec();
    let link = a.node.wait_link(b.node.id(), PATIENCE).await.unwrap();
    let answered = tokio::time::timeout(PATIENCE, source.call(&link, request.into())).await;
    answered.expect("it ends").unwrap();
    assert_eq!(source.overtaken(), [], "what was released meanwhile is no news");
}

/// Answers only when what the site keeps as the source of that replica is released, as a mirror does whose transfer has
/// just ended.
struct Busy {
    source: OnceLock<Weak<SourceService>>,
    peer: PeerId,
    replica: VolumeName,
}

#[async_trait::async_trait]
impl Reversal for Busy {
    async fn look_upstream(&self, _: &VolumeName, _: usize) {}

    async fn awaits_first(&self, _: &VolumeName) -> bool {
        false
    }

    async fn prepare(&self, _: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        Err(TransferError::Aborted.into())
    }

    async fn look(&self, _: &ReverseOffer) -> Result<(), MirrorError> {
        Ok(())
    }

    async fn prepared(&self, volume: &VolumeName, _: Uuid) -> Result<Option<Uuid>, MirrorError> {
        let source = self.source.get().and_then(Weak::upgrade).unwrap();
        source.overwritten(volume, self.peer, &self.replica).await?;
        Ok(None)
    }

    async fn is_changing(&self, _: &VolumeName, _: Uuid) -> Result<bool, MirrorError> {
        Ok(false)
    }

    async fn cancel(&self, _: &VolumeName, _: Uuid) -> Result<(), MirrorError> {
        Ok(())
    }

    async fn done(&self, _: &VolumeName, _: Uuid, _: Option<String>) -> Result<(), MirrorError> {
        Ok(())
    }
}

fn is_phase(body: &Body, phase: u32) -> bool {
    matches!(body, Body::Swap(swap) if swap.phase == phase)
}

const PREPARE: fn(&Body) -> bool = |body| is_phase(body, 1);
const CANCEL: fn(&Body) -> bool = |body| is_phase(body, 2);
const DONE: fn(&Body) -> bool = |body| is_phase(body, 3);
const CONFIRM: fn(&Body) -> bool = |body| is_phase(body, 4);
const OVERTAKEN: fn(&Body) -> bool = |body| matches!(body, Body::Overtaken(_));

impl<S: Storage> World<S> {
    fn swap_at_b(&self, patience: Duration) -> tokio::task::JoinHandle<Result<(), MirrorError>> {
        let (destination, replica) = (self.pair.b.destination.clone(), self.b.volume.clone());
        tokio::spawn(async move { destination.swap(&replica, patience).await.map(drop) })
    }

    async fn mark_is_gone(&self) {
        let r = self.r();
        until("the mark is gone", || r.status().relationship.swap.is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_comes_late_makes_nothing_writable() {
    let world = World::<Embedded>::new(500, LinkSettings::default(), Schedule::OnRequest).await;
    // An attempt that is given up; its cancel hangs at A, and is told again by the next session.
    let late = world.pair.a.fault_injector.hold(CANCEL);
    let writer = world.pair.a.disk.engine.open(&world.a.volume);
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err();
    drop(writer);
    late.held().await;
    world.pair.network.reset("a", "b");
    world.mark_is_gone().await;
    // The next attempt changes the roles; of that A has not heard yet.
    let (done, overtaken) =
        (world.pair.a.fault_injector.hold(DONE), world.pair.a.fault_injector.hold(OVERTAKEN));
    let swapping = world.swap_at_b(PATIENCE);
    done.held().await;
    overtaken.held().await;
    assert_eq!(world.check_one_original("turned"), (false, true));
    late.release().await;
    assert_eq!(world.check_one_original("the late cancel"), (false, true));
    done.release().await;
    overtaken.release().await;
    swapping.await.unwrap().unwrap();
    assert_eq!(world.reverse().status().state, State::Mirrored);
}

#[tokio::test(start_paused = true)]
async fn a_swap_waits_no_longer_than_it_was_asked_to_for_a_scheduled_update_that_hangs() {
    let world = World::<MemoryEngine>::new(505, LinkSettings::default(), every(2)).await;
    world.pair.network.cut("a", "b");
    world.pair.network.reset("a", "b");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let (patience, begun) = (Duration::from_secs(3), tokio::time::Instant::now());
    let given_up = world.swap_at_b(patience).await.unwrap().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}: {given_up}", begun.elapsed());
    assert!(matches!(given_up, MirrorError::NoSession(_)), "{given_up}");
    assert!(given_up.to_string().contains("no role was changed"), "{given_up}");
    // What goes on is the schedule's, for as long as it takes.
    for _ in 0..100 {
        assert!(!world.r().status().is_for_swap);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.pair.network.heal("a", "b");
    let r = world.r();
    until("updates go on", || r.status().state == State::Mirrored).await;
    assert_eq!(world.check_one_original("after it"), (true, false));
}

#[tokio::test(start_paused = true)]
async fn a_prepare_that_comes_late_makes_nothing_read_only() {
    let world = World::<MemoryEngine>::new(510, LinkSettings::default(), Schedule::OnRequest).await;
    let late = world.pair.a.fault_injector.hold(PREPARE);
    let swapping = world.swap_at_b(Duration::from_secs(5));
    late.held().await;
    world.pair.network.cut("a", "b");
    swapping.await.unwrap().unwrap_err();
    world.pair.network.heal("a", "b");
    world.mark_is_gone().await;
    late.release().await;
    assert_eq!(world.check_one_original("the late prepare"), (true, false));
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("the next attempt"), (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_late_message_of_an_earlier_role_change_ends_no_other_attempt() {
    let mut world = World::<MemoryEngine>::new(520, LinkSettings::default(), Schedule::OnRequest).await;
    let late = world.pair.a.fault_injector.hold(DONE);
    let overtaken = world.pair.a.fault_injector.hold(OVERTAKEN);
    let swapping = world.swap_at_b(PATIENCE);
    late.held().await;
    world.pair.network.reset("a", "b");
    swapping.await.unwrap().unwrap();
    overtaken.held().await;
    world.pair.network.reset("a", "b");
    world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("back"), (true, false));
    overtaken.release().await;
    assert_eq!(world.pair.a.source.overtaken(), [], "a word of before the roles changed back");
    world.write_a(3);
    let confirm = world.pair.a.fault_injector.hold(CONFIRM);
    let swapping = world.swap_at_b(PATIENCE);
    confirm.held().await;
    late.release().await;
    confirm.release().await;
    swapping.await.unwrap().unwrap();
    assert_eq!(world.check_one_original("the second role change"), (false, true));
    assert_eq!(world.reverse().status().state, State::Mirrored);
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_a_break_that_comes_late_is_no_alarm() {
    let mut world = World::<MemoryEngine>::new(530, LinkSettings::default(), Schedule::OnRequest).await;
    for _ in 0..2 {
        let late = world.pair.a.fault_injector.hold(OVERTAKEN);
        world.r().break_off(None).await.unwrap();
        late.held().await;
        world.pair.network.reset("a", "b");
        let source = world.pair.a.source.clone();
        until("it is told again", || !source.overtaken().is_empty()).await;
        let asked = world.r().resync(PATIENCE).await.unwrap();
        assert_ok(&asked.ended().await.unwrap());
        assert_eq!(source.overtaken(), []);
        late.release().await;
        assert_eq!(source.overtaken(), [], "a word of before the resync");
        world.write_a(3);
        world.update().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_count_goes_on_above_what_the_source_has_received() {
    let mut world = World::<MemoryEngine>::new(540, LinkSettings::default(), Schedule::OnRequest).await;
    for _ in 0..3 {
        world.r().break_off(None).await.unwrap();
        let asked = world.r().resync(PATIENCE).await.unwrap();
        assert_ok(&asked.ended().await.unwrap());
    }
    world.pair.lose_database_b().await;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("swapped"), (false, true));
    world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
    world.pair.lose_database_b().await;
    world.r().break_off(None).await.unwrap();
    let source = world.pair.a.source.clone();
    until("the source is notified of the break", || !source.overtaken().is_empty()).await;
}

/// The number that the lost count comes to is that of an attempt that the source has seen the end of.
#[tokio::test(start_paused = true)]
async fn a_lost_count_goes_on_above_an_attempt_that_has_ended() {
    let mut world = World::<MemoryEngine>::new(541, LinkSettings::default(), Schedule::OnRequest).await;
    world.pair.a.starting.refuses.store(1, Ordering::SeqCst);
    let refused = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("not open"), "{refused}");
    until("the attempt is over", || world.r().status().relationship.swap.is_none()).await;
    world.pair.lose_database_b().await;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("swapped"), (false, true));
}

/// The original loses its database, and takes the direction of the way back, which sleeps in its pool, for a break. The other site, which
/// has gone on since, still has a point that was taken for that direction once: it is one that retention keeps.
async fn a_way_back_that_lost_its_row<S: Storage>(seed: u64, retention: Option<&str>) {
    let mut world = World::<S>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    for site in [&world.pair.a, &world.pair.b] {
        *site.rights.fences.lock() = true;
    }
    if let Some(retention) = retention {
        world.r().set_retention(retention.parse().unwrap()).await.unwrap();
    }
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
    world.write_a(3);
    world.update().await;
    world.pair.network.cut("a", "b");
    world.r().break_off(None).await.unwrap();
    world.pair.lose_database_a().await;
    assert_eq!(world.reverse().status().state, State::BrokenOff, "as the pool says");
    *world.pair.a.rights.fences.lock() = true;
    world.pair.network.heal("a", "b");
    let source = world.pair.a.source.clone();
    until("the original is told", || !source.overtaken().is_empty()).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(world.pair.b.source.overtaken(), [], "nobody broke off the other direction");
        assert_eq!(world.pair.b.source.fenced(), []);
        world.pair.lose_session().await;
    }
    assert_eq!(source.fenced(), [world.a.volume.clone()]);
    world.write_b(3);
    assert_ok(&world.resync_a().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_way_back_that_lost_its_row_fences_nobody_who_has_gone_on_since() {
    a_way_back_that_lost_its_row::<MemoryEngine>(542, Some("last=60")).await;
    a_way_back_that_lost_its_row::<MemoryEngine>(543, None).await;
    a_way_back_that_lost_its_row::<Embedded>(544, Some("last=60")).await;
}

/// The same, once the other site has ended its mirror and nothing there says any more that it ever followed.
#[tokio::test(start_paused = true)]
async fn a_way_back_that_lost_its_row_fences_no_volume_that_goes_its_own_way() {
    let mut world = World::<MemoryEngine>::new(548, LinkSettings::default(), Schedule::OnRequest).await;
    *world.pair.b.rights.fences.lock() = true;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
    world.write_a(3);
    world.update().await;
    world.pair.b.destination.delete(&world.b.volume).await.unwrap();
    tokio::time::sleep(Duration::from_secs(400)).await;
    world.pair.lose_database_a().await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(world.pair.b.source.fenced(), []);
        world.pair.lose_session().await;
    }
}

/// A mirror that ended at the other site is no break that nobody has heard of, whatever that site refuses since.
#[tokio::test(start_paused = true)]
async fn a_way_back_sleeps_on_when_the_mirror_has_ended_at_the_other_site() {
    let mut world = World::<MemoryEngine>::new(549, LinkSettings::default(), Schedule::OnRequest).await;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    world.pair.a.destination.swap(&world.a.volume, PATIENCE).await.unwrap();
    world.write_a(3);
    world.update().await;
    world.pair.b.destination.delete(&world.b.volume).await.unwrap();
    let reverse = world.reverse();
    let why = || reverse.status().why.unwrap_or_default();
    until("it has heard", || reverse.status().source_heard == Some(SourceHeard::Released)).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert!(why().starts_with("sleeps: the other site has ended the mirror"), "{}", why());
        assert_eq!(reverse.status().source_heard, Some(SourceHeard::Released));
        world.pair.lose_session().await;
    }
    // Nor does a restart forget it, though the other site may not be asked any more.
    world.pair.crash_a(1).await;
    let reverse = world.reverse();
    tokio::time::sleep(Duration::from_secs(400)).await;
    let why = reverse.status().why.unwrap_or_default();
    assert!(why.starts_with("sleeps: the other site has ended the mirror"), "{why}");
}

/// The same direction in force: its break is told, though its row is lost before the source has heard.
#[tokio::test(start_paused = true)]
async fn a_break_of_the_way_back_is_told_though_its_row_is_lost() {
    let mut world = World::<MemoryEngine>::new(547, LinkSettings::default(), Schedule::OnRequest).await;
    *world.pair.b.rights.fences.lock() = true;
    world.r().set_retention("last=60".parse().unwrap()).await.unwrap();
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    world.pair.network.cut("a", "b");
    world.reverse().break_off(None).await.unwrap();
    world.pair.lose_database_a().await;
    world.pair.network.heal("a", "b");
    let source = world.pair.b.source.clone();
    until("the source is told", || !source.fenced().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_forgotten_with_the_database_says_what_it_is() {
    let mut world = World::<MemoryEngine>::new(545, LinkSettings::default(), Schedule::OnRequest).await;
    let confirm = world.pair.a.fault_injector.hold(CONFIRM);
    let swapping = world.swap_at_b(Duration::from_secs(5));
    confirm.held().await;
    // As a daemon does that finds a replica in its pool and nothing in its database.
    let fenced = world.reverse().status();
    assert!(fenced.why.is_some_and(|why| why.contains("a role change is under way")));
    let Relationship { id, peer, source, destination, .. } = fenced.relationship;
    world.pair.a.disk.store = Arc::default();
    let found = Relationship::new(id, peer, source, destination, Schedule::OnRequest);
    world.pair.a.disk.store.save(&found).await.unwrap();
    world.pair.crash_a(1).await;
    swapping.await.unwrap().unwrap_err();
    world.mark_is_gone().await;
    assert_eq!(world.check_one_original("nobody remembers"), (false, false));
    let says_what_to_do = |why: &str| {
        let commands = ["farside mirror break p/v at", "farside mirror resync p/v at", "b:q/r"];
        assert!(commands.iter().all(|said| why.contains(said)), "{why}");
    };
    says_what_to_do(&world.reverse().status().why.unwrap());
    // Whatever either side does that changes nothing of it takes nothing from what it says.
    world.update().await;
    let refused = world.reverse().update(PATIENCE).await.unwrap_err().to_string();
    says_what_to_do(&refused);
    world.reverse().set_schedule(every(60)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(130)).await;
    says_what_to_do(&world.reverse().status().why.unwrap());
    assert!(world.reverse().resync(PATIENCE).await.is_err(), "its peer has not taken over");
    assert_eq!(world.check_one_original("nobody decided"), (false, false));
    world.reverse().set_schedule(Schedule::OnRequest).await.unwrap();
    world.reverse().break_off(None).await.unwrap();
    assert_eq!(world.check_one_original("broken off"), (true, false));
    let reverse = world.reverse();
    until("the peer answers that it follows", || reverse.status().why.is_none()).await;
    world.write_a(3);
    world.update().await;
    world.b.check(&world.pair.b);
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("swapped"), (false, true));
    assert_eq!(world.reverse().status().why, None);
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_is_forgotten_ends_with_the_notice_that_the_peer_has_taken_over() {
    let mut world = World::<MemoryEngine>::new(546, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(5);
    let (done, overtaken) =
        (world.pair.a.fault_injector.hold(DONE), world.pair.a.fault_injector.hold(OVERTAKEN));
    let swapping = world.swap_at_b(PATIENCE);
    done.held().await;
    overtaken.held().await;
    let Relationship { id, peer, source, destination, .. } = world.reverse().status().relationship;
    world.pair.a.disk.store = Arc::default();
    let found = Relationship::new(id, peer, source, destination, Schedule::OnRequest);
    world.pair.a.disk.store.save(&found).await.unwrap();
    world.pair.crash_a(1).await;
    swapping.await.unwrap().unwrap();
    world.mark_is_gone().await;
    assert_eq!(world.reverse().status().why, None);
    world.b.live = world.a.live.clone();
    world.write_b(5);
    assert_ok(&world.reverse().update(PATIENCE).await.unwrap().ended().await.unwrap());
    world.a.live = world.b.live.clone();
    world.a.check(&world.pair.a);
    assert_eq!(world.a.pins_of(&world.pair.a, world.r().status().relationship.id), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resync_counts_on_from_what_its_source_has_seen() {
    let mut world = World::<MemoryEngine>::new(547, LinkSettings::default(), Schedule::OnRequest).await;
    let source = world.pair.a.source.clone();
    for _ in 0..3 {
        world.r().break_off(None).await.unwrap();
        until("the source is notified of the break", || !source.overtaken().is_empty()).await;
        assert_ok(&world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap());
    }
    world.r().break_off(None).await.unwrap();
    until("the source is notified of the break", || !source.overtaken().is_empty()).await;
    let notice = world.pair.a.fault_injector.hold(OVERTAKEN);
    world.pair.lose_database_b().await;
    notice.held().await;
    let report = world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    assert_eq!(source.overtaken(), []);
    notice.release().await;
}

#[tokio::test(start_paused = true)]
async fn a_way_back_with_the_id_of_another_mirror_is_refused() {
    let mut world = World::<MemoryEngine>::new(548, LinkSettings::default(), Schedule::OnRequest).await;
    // Another mirror, of which A's volume is the replica.
    let (peer, other): (_, VolumeName) = (world.pair.b.node.id(), "q/other".parse().unwrap());
    world.pair.b.disk.engine.engine().create_volume(&other, 1 << 20).unwrap();
    let (here, on_request) = ("p/other".parse().unwrap(), Schedule::OnRequest);
    let own = world.pair.a.destination.create(peer, other, here, on_request, PATIENCE, false).await.unwrap();
    let own = own.status().relationship;
    let swap = Swap {
        group: String::new(),
        relationship: world.r().status().relationship.id.as_bytes().to_vec(),
        reverse: own.id.as_bytes().to_vec(),
        volume: world.a.volume.to_string(),
        destination: world.b.volume.to_string(),
        phase: convert::swap_phase_number(SwapPhase::Prepare),
        schedule: String::new(),
        role_change: 2,
    };
    let request = Request { version: PROTOCOL_VERSION, body: Some(Body::Swap(swap)) }.encode_to_vec();
    let link = world.pair.a.node.wait_link(peer, PATIENCE).await.unwrap();
    let refused = world.pair.a.source.call(&link, request.into()).await.unwrap_err();
    assert!(refused.message.contains("another one here"), "{refused:?}");
    assert_eq!(world.pair.a.disk.store.relationships().await.unwrap(), [own], "its row is as it was");
    assert_eq!(world.check_one_original("refused"), (true, false));
    world.write_a(3);
    world.update().await;
}

#[tokio::test(start_paused = true)]
async fn role_changes_begun_and_cancelled_have_a_rate_and_the_answer_says_so() {
    const PER_MINUTE: u32 = 3;
    let mut world = World::<Embedded>::new(560, LinkSettings::default(), Schedule::OnRequest).await;
    let source = world.pair.a.source.clone();
    source.set_budgets(Budgets { snapshots_per_minute: PER_MINUTE, ..Budgets::default() });
    let relationship = world.r().status().relationship;
    let swap = |phase: SwapPhase, role_change| Swap {
        group: String::new(),
        relationship: relationship.id.as_bytes().to_vec(),
        reverse: vec![9; 16],
        volume: world.a.volume.to_string(),
        destination: world.b.volume.to_string(),
        phase: convert::swap_phase_number(phase),
        schedule: String::new(),
        role_change,
    };
    let link = world.pair.a.node.wait_link(world.pair.b.node.id(), PATIENCE).await.unwrap();
    let ask = async |body| {
        let request = Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
        source.call(&link, request.into()).await
    };
    let begun = tokio::time::Instant::now();
    let (mut prepared, mut refused) = (0_u32, 0_u32);
    for role_change in 1..=100 {
        match ask(Body::Swap(swap(SwapPhase::Prepare, role_change))).await {
            Ok(_) => prepared += 1,
            Err(refusal) => {
                refused += 1;
                let said = &refusal.message;
                assert!(refusal.code == "budget" && said.contains("budgets.snapshots_per_minute"), "{said}");
                assert_eq!(world.check_one_original("refused"), (true, false), "nothing was changed");
            }
        }
        ask(Body::Swap(swap(SwapPhase::Cancel, role_change))).await.unwrap();
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    assert!(
        f64::from(prepared) <= f64::from(PER_MINUTE) * (minutes + 1.0),
        "{prepared} in {minutes} minutes"
    );
    assert!(prepared >= PER_MINUTE && refused > 0, "{prepared} prepared, {refused} refused");
    // An honest one is told, and everything goes on.
    let said = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err().to_string();
    assert!(said.contains("role changes a minute") && said.contains("Nothing was changed"), "{said}");
    world.mark_is_gone().await;
    assert_eq!(world.check_one_original("refused"), (true, false));
    assert!(world.pair.a.destination.mirrors().is_empty());
    // A minute later there is room, whatever an update has just taken of its own rate.
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.write_a(3);
    world.update().await;
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    assert_eq!(world.check_one_original("swapped"), (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_direction_without_a_number_has_no_effect() {
    let mut world = World::<MemoryEngine>::new(550, LinkSettings::default(), Schedule::OnRequest).await;
    // A source that answers as if it had heard of nothing is told to give up, and its hosts write on.
    world.pair.a.fault_injector.numbers_nothing.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("without counting it"), "{refused}");
    world.pair.a.fault_injector.numbers_nothing.store(false, std::sync::atomic::Ordering::SeqCst);
    world.mark_is_gone().await;
    assert_eq!(world.check_one_original("given up"), (true, false));
    world.write_a(3);
    world.update().await;
    // Of a destination every word without a number is refused, before anything is fenced or believed.
    let relationship = world.r().status().relationship;
    let swap = |phase| Swap {
        group: String::new(),
        relationship: relationship.id.as_bytes().to_vec(),
        reverse: vec![9; 16],
        volume: world.a.volume.to_string(),
        destination: world.b.volume.to_string(),
        phase,
        schedule: String::new(),
        role_change: 0,
    };
    let overtaken = Overtaken {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: world.a.volume.to_string(),
        broken_off_at: 1,
        snapshot: None,
        destination: world.b.volume.to_string(),
        role_change: 0,
        ..Overtaken::default()
    };
    let link = world.pair.a.node.wait_link(world.pair.b.node.id(), PATIENCE).await.unwrap();
    let source = world.pair.a.source.clone();
    for body in [Body::Swap(swap(1)), Body::Swap(swap(2)), Body::Swap(swap(3)), Body::Overtaken(overtaken)] {
        let request = Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
        let refused = source.call(&link, request.into()).await.unwrap_err();
        assert!(refused.code == "failed" && refused.message.contains("without a number"), "{refused:?}");
    }
    assert_eq!(world.check_one_original("refused"), (true, false));
    assert!(source.overtaken().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_a_break_that_was_refused_is_sent_again_in_the_same_session() {
    let world = World::<MemoryEngine>::new(570, LinkSettings::default(), Schedule::OnRequest).await;
    let session = world.pair.b.node.wait_link(world.pair.a.node.id(), PATIENCE).await.unwrap();
    world.pair.a.starting.refuses.store(3, std::sync::atomic::Ordering::SeqCst);
    world.r().break_off(None).await.unwrap();
    let source = world.pair.a.source.clone();
    until("the source is notified of the break", || !source.overtaken().is_empty()).await;
    assert!(tokio::time::timeout(Duration::ZERO, session.closed()).await.is_err(), "by the same session");
}

/// What of B's row a crash has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RowLeft {
    /// As it was just before the takeover.
    Before,
    /// As B saved it last.
    Last,
}

/// What becomes at B of the pin by which a takeover was recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PinOfWayBack {
    Stays,
    /// `mirror release` there, or a budget.
    Released,
    /// `snapshot rollback` there: what B shows is an older snapshot.
    RolledBack,
}

/// B has taken over, A has not learnt of it, and B goes down.
async fn a_takeover_of_which_the_source_is_not_notified<S: Storage>(
    seed: u64,
    row: RowLeft,
    pin: PinOfWayBack,
) {
    let context = format!("{row:?}, {pin:?}");
    println!("{context}");
    let mut world = World::<S>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    let engine = world.pair.a.disk.engine.engine();
    let flushed: SnapshotSpec = person("flushed", Uuid::from_u128(0xf1));
    engine.take_snapshot(&world.a.volume, &flushed).unwrap();
    let oldest = world.pair.b.disk.engine.engine().snapshots(&world.b.volume).unwrap()[0].uuid;
    let confirm = world.pair.a.fault_injector.hold(CONFIRM);
    let swapping = world.swap_at_b(PATIENCE);
    confirm.held().await;
    let before = world.pair.b.disk.store.as_ref().clone();
    let (done, overtaken) =
        (world.pair.a.fault_injector.hold(DONE), world.pair.a.fault_injector.hold(OVERTAKEN));
    confirm.release().await;
    done.held().await;
    overtaken.held().await;
    assert_eq!(world.check_one_original(&context), (false, true));
    let a = world.pair.a.node.id();
    match pin {
        PinOfWayBack::Stays => {}
        PinOfWayBack::Released => {
            assert_eq!(world.pair.b.source.release(&world.b.volume, a).await.unwrap(), 1);
        }
        PinOfWayBack::RolledBack => {
            let engine = world.pair.b.disk.engine.engine();
            site::roll_back(&*engine, &world.b.volume, oldest);
        }
    }
    world.pair.b.disk.engine.flush();
    if row == RowLeft::Before {
        world.pair.b.disk.store = Arc::new(before);
    }
    world.pair.crash_b(seed).await;
    let _ = swapping.await;
    let heard = tokio::time::Instant::now();
    while heard.elapsed() < Duration::from_secs(300) {
        assert_eq!(world.check_one_original(&context), (false, true), "A must not write: {context}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let status = world.reverse().status();
    if row == RowLeft::Before && pin == PinOfWayBack::RolledBack {
        // Nobody can tell any more whether a person broke off: A waits for one, and says so.
        let why = status.why.unwrap();
        assert!(
            why.contains("farside mirror resync p/v") && why.contains("farside mirror break p/v"),
            "{why}"
        );
        assert_eq!(world.pair.a.source.overtaken().len(), 1);
        assert_ok(&world.resync_a().await.unwrap());
    } else {
        assert_eq!((status.state, status.relationship.swap), (State::Mirrored, None), "{context}");
    }
    done.release().await;
    overtaken.release().await;
    assert_eq!(world.check_one_original("the late word"), (false, true));
    assert_eq!(world.reverse().status().relationship.swap, None, "{context}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_never_cancelled_whatever_was_released_since() {
    use PinOfWayBack::{Released, RolledBack, Stays};
    for (seed, row) in [(580, RowLeft::Before), (590, RowLeft::Last)] {
        for (n, pin) in [Stays, Released, RolledBack].into_iter().enumerate() {
            a_takeover_of_which_the_source_is_not_notified::<MemoryEngine>(seed + n as u64, row, pin).await;
            a_takeover_of_which_the_source_is_not_notified::<Embedded>(seed + 5 + n as u64, row, pin).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_way_back_keeps_its_base_while_the_source_is_not_notified() {
    let mut world = World::<MemoryEngine>::new(600, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(5);
    let done = world.pair.a.fault_injector.hold(DONE);
    let swapping = world.swap_at_b(PATIENCE);
    done.held().await;
    let again = world.pair.a.fault_injector.hold(DONE);
    let source = world.pair.b.source.clone();
    world.write_b(5);
    source.set_budgets(Budgets { pin_age: Some(Duration::from_secs(86_400)), ..Budgets::default() });
    world.pair.clock_b.pass(3 * 86_400);
    assert!(source.check_budgets().await.is_empty(), "nobody has had the chance to ask for it");
    assert_eq!(source.destinations()[0].released, None);
    world.pair.crash_b(1).await;
    let _ = swapping.await;
    again.held().await;
    let source = world.pair.b.source.clone();
    world.write_b(5);
    source.set_budgets(Budgets { pin_age: Some(Duration::from_secs(86_400)), ..Budgets::default() });
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(source.check_budgets().await.is_empty(), "nor after a restart");
    again.release().await;
    world.mark_is_gone().await;
    // Over its age as before, and seen to be for a day.
    world.pair.clock_b.pass(86_400 + 120);
    assert_eq!(source.check_budgets().await.len(), 1, "from here on it is a base like any other");
}

#[tokio::test(start_paused = true)]
async fn a_swap_is_done_even_if_the_database_does_not_take_its_end() {
    let world = World::<MemoryEngine>::new(605, LinkSettings::default(), Schedule::OnRequest).await;
    let done = world.pair.a.fault_injector.hold(DONE);
    let swapping = world.swap_at_b(PATIENCE);
    done.held().await;
    world.pair.b.database.is_full.store(true, std::sync::atomic::Ordering::SeqCst);
    done.release().await;
    swapping.await.unwrap().expect("the roles have changed");
    assert_eq!(world.check_one_original("done"), (false, true));
    // Long enough for the notice of it to be answered too, and that is not remembered either.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.r().status().relationship.swap.is_some());
    world.pair.b.database.is_full.store(false, std::sync::atomic::Ordering::SeqCst);
    world.mark_is_gone().await;
    assert_eq!(world.check_one_original("told once more"), (false, true));
}

/// A person breaks off at B in the middle of a role change, and B goes down.
async fn a_break_in_the_middle(seed: u64, row: RowLeft) {
    println!("{row:?}");
    let mut world = World::<Embedded>::new(seed, LinkSettings::default(), Schedule::OnRequest).await;
    let oldest = world.pair.b.disk.engine.engine().snapshots(&world.b.volume).unwrap()[0].uuid;
    let confirm = world.pair.a.fault_injector.hold(CONFIRM);
    let swapping = world.swap_at_b(PATIENCE);
    confirm.held().await;
    let before = world.pair.b.disk.store.as_ref().clone();
    world.pair.network.cut("a", "b");
    world.r().break_off(Some(oldest)).await.unwrap();
    if row == RowLeft::Before {
        world.pair.b.disk.store = Arc::new(before);
    }
    world.pair.crash_b(seed).await;
    let _ = swapping.await;
    world.pair.network.heal("a", "b");
    let source = world.pair.a.source.clone();
    until("the source is notified of the break", || !source.overtaken().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let writable = (world.a.is_writable(&world.pair.a), world.b.is_writable(&world.pair.b));
    match row {
        RowLeft::Last => {
            // The attempt was ended by a person, and B knows it: A is what it was, and has its alarm.
            assert_eq!(writable, (true, true), "a person has made two");
            world.mark_is_gone().await;
        }
        RowLeft::Before => {
            assert_eq!(writable, (false, true), "it may have been a takeover");
            let why = world.reverse().status().why.unwrap();
            assert!(why.contains("farside mirror break p/v"), "{why}");
        }
    }
    confirm.release().await;
}

#[tokio::test(start_paused = true)]
async fn a_persons_break_in_the_middle_is_no_takeover_and_no_cancel_unless_that_is_known() {
    a_break_in_the_middle(610, RowLeft::Last).await;
    a_break_in_the_middle(611, RowLeft::Before).await;
}

/// The former original goes its own way: the mirror that took over knows that nothing follows it, and fences nobody for it.
#[tokio::test(start_paused = true)]
async fn a_former_original_that_is_nobodys_replica_any_more_is_not_overtaken() {
    let mut world = World::<MemoryEngine>::new(560, LinkSettings::default(), every(60)).await;
    *world.pair.a.rights.fences.lock() = true;
    world.write_a(3);
    world.pair.b.destination.swap(&world.b.volume, PATIENCE).await.unwrap();
    world.pair.a.destination.delete(&world.a.volume).await.unwrap();
    let (r, begun) = (world.r(), tokio::time::Instant::now());
    until("it is known", || r.status().source_heard == Some(SourceHeard::Released)).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for _ in 0..2 {
        world.pair.lose_session().await;
        tokio::time::sleep(Duration::from_secs(400)).await;
        assert_eq!(world.pair.a.source.overtaken(), vec![]);
        assert!(world.pair.a.source.fenced().is_empty());
    }
}
