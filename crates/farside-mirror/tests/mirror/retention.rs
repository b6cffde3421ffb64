//! What a destination keeps, and what nobody at the source can do about it.

use std::time::Duration;

use farside_engine::{SnapshotInfo, SnapshotOwner, SnapshotSpec};
use farside_link::LinkSettings;
use farside_mirror::Schedule;
use farside_platform::Clock;
use farside_transfer::bases::kept_of;
use rand::Rng;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{self, PATIENCE, Pair, Storage, assert_ok, seeds};

const SIZE: u64 = 256 << 10;
const HOUR: u64 = 3600;

/// A mirror with retention, and its first copy.
async fn keeping<S: Storage>(pair: &mut Pair<S>, retention: &str) -> farside_mirror::Mirror {
    pair.scribble(5);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    mirror.set_retention(retention.parse().unwrap()).await.unwrap();
    assert_ok(&pair.initialize(&mirror).await);
    mirror
}

/// Time passes at both sites.
fn pass<S: Storage>(pair: &Pair<S>, seconds: u64) {
    pair.clock.pass(seconds);
    pair.clock_b.pass(seconds);
}

/// An update that brings something, and what it lets go is gone.
async fn bring<S: Storage>(pair: &mut Pair<S>, mirror: &farside_mirror::Mirror) {
    pair.scribble(1);
    let stamp: u8 = pair.rng.random();
    pair.write(0, &[stamp.wrapping_add(pair.live[0]).max(1); 4096]);
    assert_ok(&pair.update(mirror).await);
    // The clock stands still while blocking work goes on.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn kept<S: Storage>(pair: &Pair<S>, mirror: &farside_mirror::Mirror) -> Vec<SnapshotInfo> {
    let keeper = kept_of(mirror.status().relationship.id);
    let mut all = pair.b.disk.engine.engine().all_snapshots(&pair.replica).unwrap();
    all.retain(|s| s.pinned_by.contains(&keeper));
    all.sort_by_key(|s| s.sequence);
    all
}

#[tokio::test(start_paused = true)]
async fn points_stay_as_retention_names_them_and_open_byte_for_byte() {
    let mut pair = Pair::new(900, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=2,hourly=4,daily=3").await;
    for hour in 0..75 {
        pass(&pair, HOUR / 2);
        bring(&mut pair, &mirror).await;
        if hour % 10 == 3 {
            pair.snapshot(&format!("person-{hour}"));
        }
    }
    let points = kept(&pair, &mirror);
    let names: Vec<&str> = points.iter().map(|s| s.name.as_str()).collect();
    println!("{names:?}");
    // Two days and a half at two points an hour: three days, four hours, and the last two; some are the same point.
    assert!((6..=9).contains(&points.len()), "{names:?}");
    // What persons made at the source rotates too.
    let persons = points.iter().filter(|s| s.owner == SnapshotOwner::Person).count();
    assert!(persons < 4, "{names:?}");
    let all = pair.b.disk.engine.engine().all_snapshots(&pair.replica).unwrap();
    assert_eq!(all.len(), points.len(), "nothing else is left");
    assert_eq!(pair.check_replica().len(), points.len());
    // Times are those of the source.
    assert!(points.iter().all(|s| s.owner == SnapshotOwner::Person || s.name.starts_with("kept-2027-01-1")));
}

/// A month of hourly points; then the source is in bad hands: it overwrites everything again and again, forges its clock, takes
/// snapshots by the hundred, deletes its own, goes back to old states.
#[tokio::test(start_paused = true)]
async fn a_hostile_source_takes_nothing_of_what_is_kept() {
    let mut pair = Pair::new(901, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=3,hourly=12,daily=7,weekly=4").await;
    for _ in 0..24 * 10 {
        pass(&pair, 3 * HOUR);
        bring(&mut pair, &mirror).await;
    }
    let before = kept(&pair, &mirror);
    let good: Vec<Uuid> = before.iter().rev().skip(3).map(|s| s.uuid).collect();
    let (source, original) = (pair.a.disk.engine.engine(), pair.original.clone());
    for round in 0..40 {
        pass(&pair, 60);
        let jump = [86_400 * 9, -86_400 * 30, 86_400 * 365 * 20, -3600][round % 4];
        pair.clock.step_wall(jump);
        for number in 0..8 {
            pair.scribble(1);
            pair.snapshot(&format!("evil-{round}-{number}"));
            pair.clock.step_wall(86_400);
        }
        for snapshot in source.all_snapshots(&original).unwrap() {
            let _ = source.delete_snapshot(&original, snapshot.uuid);
        }
        if round % 5 == 4 {
            let first = source.snapshots(&original).unwrap()[0].uuid;
            site::roll_back(&*source, &original, first);
        }
        let _ = mirror.update(PATIENCE).await.unwrap().ended().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let after = kept(&pair, &mirror);
    let lost = good.iter().filter(|uuid| !after.iter().any(|s| s.uuid == **uuid)).count();
    println!("{} points before, {} after, {lost} lost", before.len(), after.len());
    // Forty minutes have passed: an hour begins, perhaps a day or a week, and each may let go one point.
    assert!(lost <= 3, "{lost} of {} good points are gone", good.len());
    let engine = pair.b.disk.engine.engine();
    for uuid in good.iter().filter(|uuid| after.iter().any(|s| s.uuid == **uuid)) {
        let expected = &pair.model[uuid];
        let mut found = vec![0; expected.len()];
        engine.read_snapshot(&pair.replica, *uuid, 0, &mut found).unwrap();
        assert!(found == *expected, "a kept point differs");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_person_holds_or_the_end_of_the_mirror_leaves_stays() {
    let mut pair = Pair::<Embedded>::with_storage(902, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=3").await;
    for _ in 0..3 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let engine = pair.b.disk.engine.engine();
    let first = kept(&pair, &mirror)[0].clone();
    pair.b.disk.engine.pool().hold_snapshot(&pair.replica.volume, first.uuid, true).unwrap();
    for _ in 0..4 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let points = kept(&pair, &mirror);
    assert_eq!(points.len(), 4);
    assert_eq!(points[0].uuid, first.uuid, "what a person holds stays");

    // A break goes back to a kept point; the others stay as they are, and none goes any more.
    mirror.break_off(Some(points[1].uuid)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left: Vec<Uuid> = engine.all_snapshots(&pair.replica).unwrap().iter().map(|s| s.uuid).collect();
    assert!(points.iter().all(|p| left.contains(&p.uuid)), "{left:?}");

    // Without the mirror they are persons', and nothing keeps the volume from going.
    pair.b.destination.delete(&pair.replica).await.unwrap();
    let all = engine.all_snapshots(&pair.replica).unwrap();
    assert!(points.iter().all(|p| all.iter().any(|s| s.uuid == p.uuid)));
    assert!(all.iter().all(|s| s.owner == SnapshotOwner::Person && s.pinned_by.is_empty()), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn without_retention_what_was_kept_is_left_to_persons() {
    let mut pair = Pair::new(903, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=3").await;
    for _ in 0..3 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    mirror.set_retention("none".parse().unwrap()).await.unwrap();
    assert!(kept(&pair, &mirror).is_empty());
    for _ in 0..3 {
        bring(&mut pair, &mirror).await;
    }
    assert_eq!(pair.check_replica().len(), 4, "three that were kept, and the newest");
}

/// A database that was lost: what was kept stays, and rotates again once somebody says how.
#[tokio::test(start_paused = true)]
async fn with_the_database_lost_nothing_goes_until_a_person_says_so() {
    let mut pair = Pair::<Embedded>::with_storage(904, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "hourly=5").await;
    for _ in 0..8 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let before: Vec<Uuid> = kept(&pair, &mirror).iter().map(|s| s.uuid).collect();
    pair.lose_database_b().await;
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    for _ in 0..3 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let now: Vec<Uuid> = kept(&pair, &mirror).iter().map(|s| s.uuid).collect();
    assert_eq!(now, before);
    mirror.set_retention("hourly=4".parse().unwrap()).await.unwrap();
    for _ in 0..2 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let now: Vec<Uuid> = kept(&pair, &mirror).iter().map(|s| s.uuid).collect();
    assert_eq!(now.len(), 4);
    assert!(before.contains(&now[0]) && !before.contains(&now[3]), "old ones rotate with new ones");
    pair.check_replica();
}

/// Power fails at random moments, of transfers and of what lets go: each kept point opens, the newest is the published one, and in the
/// end there is what retention names.
#[tokio::test(start_paused = true)]
async fn power_failures_tear_no_kept_point() {
    for seed in seeds(910, 3) {
        let mut pair = Pair::<Embedded>::with_storage(seed, SIZE, LinkSettings::default()).await;
        let mut mirror = keeping(&mut pair, "last=2,hourly=3").await;
        for round in 0..25 {
            pass(&pair, HOUR / 2);
            pair.scribble(2);
            pair.a.disk.engine.flush();
            let asked = mirror.update(PATIENCE).await.unwrap();
            let until = Duration::from_millis(pair.rng.random_range(0..60));
            match tokio::time::timeout(until, asked.ended()).await {
                Ok(ended) => {
                    let report = ended.unwrap();
                    pair.model.insert(report.id, pair.live.clone());
                }
                Err(_) => {
                    // What was to come may have been published in the last moment.
                    pair.model.extend(pending(&pair));
                }
            }
            if pair.rng.random_bool(0.5) {
                pair.crash_b(seed * 1000 + round).await;
                mirror = pair.b.destination.mirror(&pair.replica).unwrap();
                pair.model.extend(pending(&pair));
            }
            pair.check_replica();
        }
        bring(&mut pair, &mirror).await;
        let (points, names) = (kept(&pair, &mirror), pair.check_replica());
        assert!(points.len() <= 5, "{names:?}");
        let all = pair.b.disk.engine.engine().all_snapshots(&pair.replica).unwrap();
        assert_eq!(all.len(), points.len(), "seed {seed}: nothing is left over: {names:?}");
    }
}

/// Snapshots that the source has taken for an update whose end nobody heard, with what they hold: nothing was written since.
fn pending(pair: &Pair<Embedded>) -> Vec<(Uuid, Vec<u8>)> {
    let all = pair.a.disk.engine.engine().all_snapshots(&pair.original).unwrap();
    let unknown = all.iter().filter(|s| !pair.model.contains_key(&s.uuid));
    unknown.map(|s| (s.uuid, pair.live.clone())).collect()
}

/// What a person takes of the replica here is no business of retention.
#[tokio::test(start_paused = true)]
async fn what_persons_take_here_does_not_rotate() {
    let mut pair = Pair::new(905, SIZE, LinkSettings::default()).await;
    let mirror = keeping(&mut pair, "last=2").await;
    let spec = SnapshotSpec {
        name: "mine".into(),
        uuid: Uuid::from_u128(77),
        created_at: pair.clock.now(),
        owner: SnapshotOwner::Person,
        pin_for: None,
    };
    pair.b.disk.engine.engine().take_snapshot(&pair.replica, &spec).unwrap();
    pair.model.insert(spec.uuid, pair.live.clone());
    for _ in 0..5 {
        pass(&pair, HOUR);
        bring(&mut pair, &mirror).await;
    }
    let names = pair.check_replica();
    assert!(names.contains(&"mine".to_owned()) && names.len() == 3, "{names:?}");
}
