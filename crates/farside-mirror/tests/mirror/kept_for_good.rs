//! What a plan or an answer has named as kept is there as long as persons want it, whatever rotates.

use farside_engine::{ChangedBytes, Engine, SnapshotInfo, SnapshotOwner, SnapshotSpec};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, Schedule};
use farside_transfer::bases::kept_of;
use farside_transfer::going_back::{GoingBack, go_back};
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{self, PATIENCE, Pair, Storage, assert_ok, slow};

const SIZE: u64 = 256 << 10;

async fn keeping(pair: &mut Pair<Embedded>, retention: &str) -> Mirror {
    pair.scribble(5);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    mirror.set_retention(retention.parse().unwrap()).await.unwrap();
    assert_ok(&pair.initialize(&mirror).await);
    mirror
}

/// An update that brings something, and what it lets go is gone.
async fn bring(pair: &mut Pair<Embedded>, mirror: &Mirror, stamp: u8) {
    pair.clock.pass(60);
    pair.clock_b.pass(60);
    pair.write(u64::from(stamp) * 4096, &[stamp; 4096]);
    assert_ok(&pair.update(mirror).await);
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

fn at_b(pair: &Pair<Embedded>) -> Vec<SnapshotInfo> {
    pair.b.disk.engine.engine().all_snapshots(&pair.replica).unwrap()
}

fn content(engine: &dyn Engine, volume: &farside_engine::VolumeName, of: &SnapshotInfo) -> Vec<u8> {
    let mut found = vec![0; of.size_bytes as usize];
    engine.read_snapshot(volume, of.uuid, 0, &mut found).unwrap();
    found
}

/// A break at an earlier point has named what it set aside, and the resync what its hosts saw: neither goes with the points that
/// retention lets go once the volume follows again. What does go, the plan has said.
#[tokio::test(start_paused = true)]
async fn what_a_break_and_a_resync_have_named_outlives_the_retention() {
    let mut pair = Pair::<Embedded>::with_storage(950, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=4").await;
    bring(&mut pair, &mirror, 1).await;
    pair.write(8192, &[2; 4096]);
    pair.snapshot("before-upgrade");
    let at_upgrade = pair.live.clone();
    bring(&mut pair, &mirror, 3).await;
    let newest = pair.live.clone();
    let engine = pair.b.disk.engine.engine();
    let before = at_b(&pair).into_iter().find(|s| s.name == "before-upgrade").unwrap();
    let set_aside = mirror.break_and_name(Some(before.uuid), None).await.unwrap().expect("newer content");
    assert!(set_aside.starts_with("rescue-"), "{set_aside}");
    let rescue = at_b(&pair).into_iter().find(|s| s.name == set_aside).unwrap();
    assert!(content(&*engine, &pair.replica, &rescue) == newest);
    assert!(
        !rescue.pinned_by.contains(&kept_of(mirror.status().relationship.id)),
        "no point of the retention"
    );

    mirror.set_retention("last=1".parse().unwrap()).await.unwrap();
    let plan = pair.b.destination.plan_resync(&pair.replica, None, PATIENCE).await.unwrap();
    let said: Vec<Uuid> = plan.retention_lets_go.iter().map(|p| p.uuid).collect();
    assert!(!said.is_empty() && !said.contains(&rescue.uuid), "{plan:?}");
    let there = at_b(&pair);
    let report = mirror.resync(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    let [kept] = &report.set_aside[..] else { panic!("the answer names it: {:?}", report.set_aside) };
    let kept = at_b(&pair).into_iter().find(|s| s.name == *kept).expect("what was named is there");
    for stamp in 4..8 {
        bring(&mut pair, &mirror, stamp).await;
    }
    let left = at_b(&pair);
    let of = |uuid: Uuid| left.iter().find(|s| s.uuid == uuid);
    assert_eq!(of(kept.uuid).map(|s| &s.name), Some(&kept.name));
    assert_eq!(of(rescue.uuid).map(|s| &*s.name), Some(&*set_aside));
    assert!(content(&*engine, &pair.replica, of(kept.uuid).unwrap()) == at_upgrade);
    assert!(content(&*engine, &pair.replica, of(rescue.uuid).unwrap()) == newest);
    // The other points are just those of which the plan had said it.
    let gone: Vec<Uuid> = there.iter().map(|s| s.uuid).filter(|uuid| of(*uuid).is_none()).collect();
    assert_eq!(gone, said);
}

/// A person went back to an older point of the replica, looked at it, and has it follow again: the line that comes has that point as well,
/// but retention lets it go. What the plan calls a side branch is one.
#[tokio::test(start_paused = true)]
async fn an_older_point_that_hosts_were_shown_outlives_the_retention() {
    let mut pair = Pair::<Embedded>::with_storage(953, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=3").await;
    bring(&mut pair, &mirror, 1).await;
    let (older, shown) = (at_b(&pair).pop().unwrap(), pair.live.clone());
    bring(&mut pair, &mirror, 2).await;
    mirror.break_off(None).await.unwrap();
    let engine = pair.b.disk.engine.engine();
    go_back(&*engine, &pair.replica, older.uuid, GoingBack::OfPerson, None).unwrap();
    mirror.moved().await.unwrap();
    pair.clock.pass(60);
    pair.clock_b.pass(60);
    let plan = pair.b.destination.plan_resync(&pair.replica, None, PATIENCE).await.unwrap();
    assert!(plan.held_by.is_none() && plan.set_aside != ChangedBytes::default(), "{plan:?}");
    let report = mirror.resync(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    let [name] = &report.set_aside[..] else { panic!("{report:?}") };
    for stamp in 3..7 {
        bring(&mut pair, &mirror, stamp).await;
    }
    let left = at_b(&pair);
    assert!(left.iter().all(|s| s.uuid != older.uuid), "the retention has let the point itself go");
    let rescue = left.iter().find(|s| s.name == *name).expect("it is called so");
    assert!(content(&*engine, &pair.replica, rescue) == shown);
}

/// The source that was overtaken holds its last writes in a snapshot of its timetable alone, which rotates: the resync makes a side
/// branch of the same content.
#[tokio::test(start_paused = true)]
async fn what_only_a_timetable_holds_stays_by_a_name_of_its_own() {
    let mut pair = Pair::<Embedded>::with_storage(951, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "none").await;
    mirror.break_off(None).await.unwrap();
    pair.write(0, &[9; 8192]);
    let diverged = pair.live.clone();
    let (engine, original) = (pair.a.disk.engine.engine(), pair.original.clone());
    let keeper = kept_of(engine.volume(&original).unwrap().uuid);
    let taken = SnapshotSpec {
        name: "auto-2027-01-15T08:00:00Z".into(),
        uuid: Uuid::from_u128(77),
        created_at: farside_platform::Timestamp(1_800_000_000_000_000_000),
        owner: SnapshotOwner::Person,
        pin_for: Some(keeper),
    };
    engine.take_snapshot(&original, &taken).unwrap();
    let from = (pair.b.node.id(), pair.replica.clone());
    let destination = &pair.a.destination;
    let plan = destination.plan_resync(&original, Some(from.clone()), PATIENCE).await.unwrap();
    assert_eq!(plan.held_by, None, "what rotates is named to nobody");
    let (_, asked) = destination
        .resync_from(from.0, from.1, original.clone(), Schedule::OnRequest, PATIENCE)
        .await
        .unwrap();
    let report = asked.ended().await.unwrap();
    assert_ok(&report);
    let [name] = &report.set_aside[..] else { panic!("{report:?}") };
    // As the timetable does when its turn has come.
    engine.unpin(&original, taken.uuid, keeper).unwrap();
    engine.delete_snapshot(&original, taken.uuid).unwrap();
    let all = engine.all_snapshots(&original).unwrap();
    let rescue = all.iter().find(|s| s.name == *name).expect("it is called so");
    assert!(name.starts_with("rescue-") && rescue.pinned_by.is_empty(), "{rescue:?}");
    assert!(content(&*engine, &original, rescue) == diverged);
}

/// Where a source shows no more what its replica showed, no host has written there: the name says so.
#[tokio::test(start_paused = true)]
async fn what_an_update_sets_aside_is_named_as_the_sources() {
    let mut pair = Pair::<Embedded>::with_storage(952, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "none").await;
    let old = pair.snapshot("old");
    bring(&mut pair, &mirror, 1).await;
    bring(&mut pair, &mirror, 2).await;
    let shown = pair.live.clone();
    // As a pool that was set back: what came after is not there.
    let (engine, original) = (pair.a.disk.engine.engine(), pair.original.clone());
    site::roll_back(&*engine, &original, old);
    for snapshot in engine.all_snapshots(&original).unwrap().into_iter().filter(|s| s.uuid != old) {
        for pin in &snapshot.pinned_by {
            engine.unpin(&original, snapshot.uuid, *pin).unwrap();
        }
        engine.delete_snapshot(&original, snapshot.uuid).unwrap();
    }
    pair.live = pair.model[&old].clone();
    pair.write(0, &[5; 4096]);
    let report = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    let [name] = &report.set_aside[..] else { panic!("{report:?}") };
    assert!(name.starts_with("rescue-source-"), "{name}");
    let rescue = at_b(&pair).into_iter().find(|s| s.name == *name).unwrap();
    assert!(content(&*pair.b.disk.engine.engine(), &pair.replica, &rescue) == shown);
    let why = mirror.status().why.unwrap();
    assert!(why.contains("p/v went back to an earlier state") && !why.contains("pool q"), "{why}");
}

/// An update that brings several snapshots shows the first ones while the last is under way: status says which.
#[tokio::test(start_paused = true)]
async fn the_status_follows_what_an_update_has_published_by_now() {
    let mut pair = Pair::<Embedded>::with_storage(953, SIZE, slow()).await;
    let mirror = keeping(&mut pair, "none").await;
    pair.write(0, &[1; 4096]);
    pair.snapshot("first");
    pair.scribble(12);
    let mut progress = mirror.progress();
    let asked = mirror.update(PATIENCE).await.unwrap();
    progress.wait_for(|p| p.as_ref().is_some_and(|p| p.snapshots_done == 1)).await.unwrap();
    let mut status = mirror.changes();
    let shows = status.wait_for(|s| s.current.as_ref().is_some_and(|c| c.name == "first"));
    tokio::time::timeout(std::time::Duration::from_secs(60), shows).await.expect("it is said").unwrap();
    assert!(mirror.status().progress.is_some(), "and the last is still to come");
    assert_ok(&asked.ended().await.unwrap());
    assert_ne!(mirror.status().current.unwrap().name, "first");
}
