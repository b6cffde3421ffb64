//! What a mirror does without what only some engines have: everything else works as it did, slower, or is refused and says why.

use farside_engine::ChangedBytes;
use farside_link::LinkSettings;
use farside_mirror::{MirrorOptions, NewMirror, Retention, Schedule, State};
use rand::Rng;
use uuid::Uuid;

use crate::directions::{World, ten_role_changes, until};
use crate::memory_engine::{
    Bare, Coarse, Like, MemoryEngine, NoBranches, NoKnownData, NoSubtrees, NoTogether,
};
use crate::resume::a_random_history;
use crate::site::{self, PATIENCE, Pair, Storage, assert_ok, seeds, volume};
use crate::swap::there_and_back;
use crate::three_lives::live;

const SIZE: u64 = 4 << 20;

/// Cuts, power failures, aborts, other sizes: whatever an engine lacks.
#[tokio::test(start_paused = true)]
async fn random_histories_without_each_capability() {
    for seed in seeds(11_000, 1) {
        a_random_history::<Like<NoBranches>>(seed, 4).await;
        a_random_history::<Like<NoTogether>>(seed + 1, 4).await;
        a_random_history::<Like<NoKnownData>>(seed + 2, 4).await;
        a_random_history::<Like<NoSubtrees>>(seed + 3, 4).await;
        a_random_history::<Like<Bare>>(seed + 4, 4).await;
    }
}

/// What differs is named with what lies around it: more is read and sent, and nothing is wrong.
#[tokio::test(start_paused = true)]
async fn random_histories_where_differences_are_larger_than_they_need_be() {
    for seed in seeds(11_100, 2) {
        a_random_history::<Like<Coarse>>(seed, 6).await;
    }
}

/// Failover and failback, and what hosts wrote meanwhile stays, with one line of versions.
#[tokio::test(start_paused = true)]
async fn ten_failovers_and_failbacks_without_branches() {
    for seed in seeds(11_200, 1) {
        ten_role_changes::<Like<NoBranches>>(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn roles_change_and_change_back_without_branches() {
    there_and_back::<Like<Bare>>(11_301).await;
}

/// Whatever is decided at two of three sites, the third goes on with a difference.
#[tokio::test(start_paused = true)]
async fn three_sites_converge_without_branches() {
    for seed in seeds(11_400, 2) {
        live::<Like<NoBranches>>(seed, true).await;
    }
}

/// Hosts go on from an earlier snapshot, which is published anew for that; what was newer stays on the line before it.
#[tokio::test(start_paused = true)]
async fn a_break_at_a_snapshot_without_branches() {
    let mut world =
        World::<Like<NoBranches>>::new(11_500, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    world.pair.live = world.a.live.clone();
    let good = world.pair.snapshot("good");
    world.update().await;
    let at_good = world.b.live.clone();
    world.write_a(10);
    world.update().await;
    let at_newest = world.b.live.clone();
    let unknown = world.r().break_off(Some(Uuid::from_u128(99))).await;
    assert!(unknown.unwrap_err().to_string().contains("does not exist"));
    assert_eq!(world.r().status().state, State::Mirrored, "nothing has changed");

    let kept_as = world.r().break_and_name(Some(good), None).await.unwrap();
    assert!(kept_as.is_some(), "it says what the newer content stays as");
    world.b.live = at_good.clone();
    world.b.check(&world.pair.b);
    assert!(world.b.is_writable(&world.pair.b) && world.b.keeps(&world.pair.b, &at_newest));
    let source = world.pair.a.source.clone();
    until("a hears of it", || source.overtaken().len() == 1).await;
    world.write_b(5);
    let written = world.b.live.clone();
    world.pair.crash_b(0).await;
    world.b.check(&world.pair.b);
    // What was set aside is at the source as well: the difference from there is nothing.
    let report = world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    assert_eq!(report.changed_bytes, 0);
    world.b.live = world.a.live.clone();
    world.b.check(&world.pair.b);
    assert!(world.b.keeps(&world.pair.b, &written) && world.b.keeps(&world.pair.b, &at_good));
    world.write_a(5);
    world.update().await;
    world.b.check(&world.pair.b);
}

/// The same for a volume that is nobody's replica, and its mirror goes on.
#[tokio::test(start_paused = true)]
async fn a_rollback_of_the_original_without_branches() {
    let mut world =
        World::<Like<NoBranches>>::new(11_600, LinkSettings::default(), Schedule::OnRequest).await;
    world.write_a(10);
    world.pair.live = world.a.live.clone();
    let good = world.pair.snapshot("good");
    let at_good = world.a.live.clone();
    world.update().await;
    world.write_a(10);
    let own = world.a.live.clone();
    site::roll_back(&*world.pair.a.disk.engine.engine(), &world.a.volume, good);
    world.a.live = at_good;
    world.a.check(&world.pair.a);
    assert!(world.a.keeps(&world.pair.a, &own), "what hosts had written stays");
    world.write_a(3);
    world.update().await;
    world.b.check(&world.pair.b);
}

/// A resync that has nothing to bring shows the common point again, and what hosts wrote meanwhile stays.
#[tokio::test(start_paused = true)]
async fn a_resync_that_brings_nothing_without_branches() {
    let mut world =
        World::<Like<NoBranches>>::new(11_700, LinkSettings::default(), Schedule::OnRequest).await;
    world.update().await;
    for _ in 0..2 {
        world.r().break_off(None).await.unwrap();
        world.write_b(6);
        let written = world.b.live.clone();
        let report = world.r().resync(PATIENCE).await.unwrap().ended().await.unwrap();
        assert_ok(&report);
        assert_eq!(report.changed_bytes, 0);
        world.b.live = world.a.live.clone();
        world.b.check(&world.pair.b);
        assert!(world.b.keeps(&world.pair.b, &written));
        let engine = world.pair.b.disk.engine.engine();
        let newest = engine.snapshots(&world.b.volume).unwrap().pop().unwrap();
        assert_eq!(
            engine.changed_since(&world.b.volume, newest.uuid).unwrap(),
            ChangedBytes::default(),
            "what readers see is the newest of the line"
        );
    }
    world.write_a(5);
    world.update().await;
    world.b.check(&world.pair.b);
    let r = world.r().status().relationship.id;
    assert_eq!((world.a.pins_of(&world.pair.a, r), world.b.pins_of(&world.pair.b, r)), (1, 1));
}

/// A group is refused where either engine has no moment for several volumes; each mirror by itself goes on.
#[tokio::test(start_paused = true)]
async fn a_group_without_one_moment_is_refused_and_says_why() {
    let mut pair = Pair::<Like<NoTogether>>::with_storage(11_800, SIZE, LinkSettings::default()).await;
    let mut mirrors = Vec::new();
    for name in ["a", "b"] {
        let original = volume(&format!("p/{name}"));
        pair.a.disk.engine.engine().create_volume(&original, SIZE).unwrap();
        let wanted = NewMirror {
            peer: pair.a.node.id(),
            source: original,
            destination: volume(&format!("q/{name}")),
            schedule: Schedule::OnRequest,
            options: MirrorOptions::default(),
            retention: Retention::default(),
            group: Some("shop".into()),
            allow_reverse: true,
            allow_copy_of_own: false,
        };
        mirrors.push(pair.b.destination.make(wanted, PATIENCE).await.unwrap().mirror);
    }
    for mirror in &mirrors {
        assert_ok(&mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap());
    }
    let engine = pair.b.disk.engine.engine();
    let listed = || format!("{:?}", engine.snapshots(&volume("q/a")).unwrap());
    let before = listed();
    let refused = mirrors[0].update(PATIENCE).await.unwrap().ended().await;
    let why = match refused {
        Ok(report) => report.reason.unwrap(),
        Err(error) => error.to_string(),
    };
    assert!(why.contains("pool q") && why.contains("one moment") && why.contains("--group"), "{why}");
    assert_eq!(listed(), before);
    // By itself.
    mirrors[0].set_group(None).await.unwrap();
    assert_ok(&mirrors[0].update(PATIENCE).await.unwrap().ended().await.unwrap());
    pair.scribble(1);
}

/// A first copy of what the peer has sent before, in another volume: what of it need not travel.
async fn second_copy<S: Storage>(seed: u64) -> (u64, u64) {
    let mut pair = Pair::<S>::with_storage(seed, SIZE, LinkSettings::default()).await;
    let mut content = vec![0; SIZE as usize];
    pair.rng.fill(&mut content[..]);
    let mut last = None;
    for number in 1..=2 {
        pair.original = volume(&format!("p/v{number}"));
        pair.replica = volume(&format!("q/r{number}"));
        pair.a.disk.engine.engine().create_volume(&pair.original, SIZE).unwrap();
        pair.live = vec![0; SIZE as usize];
        pair.write(0, &content);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        let report = pair.initialize(&mirror).await;
        assert_ok(&report);
        pair.check_replica();
        last = Some(report);
    }
    let report = last.unwrap();
    let known = report.levels.unwrap().known;
    println!("{known:?}, {} bytes changed", report.changed_bytes);
    (known.in_bytes, known.out_bytes)
}

#[tokio::test(start_paused = true)]
async fn what_is_here_travels_again_where_it_cannot_be_found() {
    let (found, asked) = second_copy::<MemoryEngine>(11_900).await;
    assert!(found == SIZE && asked > 0);
    // Asked of blocks alone it costs more questions, and finds as much.
    let (found, of_blocks) = second_copy::<Like<NoSubtrees>>(11_900).await;
    assert!(found == SIZE && of_blocks > asked, "{of_blocks} bytes asked, {asked} with nodes");
    // Nobody is asked what nobody knows.
    assert_eq!(second_copy::<Like<NoKnownData>>(11_900).await, (0, 0));
    assert_eq!(second_copy::<Like<Bare>>(11_900).await, (0, 0));
}
