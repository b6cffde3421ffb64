//! Versions of several replicas published in one record: after a power failure wherever it falls all of them are there, or none.

mod sparse;

use std::sync::Arc;

use farside_platform::{CrashFate, SimulatedDisk};
use farside_store::{NewSnapshot, Pool, ReplicaStatus, StagedVersion, StoreError};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

const VOLUMES: [&str; 3] = ["a", "b", "c"];
const ROUNDS: u32 = 12;

fn record(volume: &str) -> Option<ReplicaStatus> {
    let relationship = Uuid::from_u128(u128::from(volume.as_bytes()[0]));
    Some(ReplicaStatus { relationship, peer: [1; 32], source: format!("far/{volume}"), broken_off: false })
}

fn stamp(pool: &Arc<Pool>, volume: &str, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    pool.open_volume(volume).expect("it opens").read(block * BLOCK, &mut bytes).expect("it reads");
    bytes
}

/// What all volumes show: one round, the same in each.
fn shown(pool: &Arc<Pool>, what: &str) -> Option<u32> {
    let newest = |volume: &str| {
        let snapshots = pool.snapshots(volume).expect("a list");
        snapshots.into_iter().rev().find(|s| s.on_main_line).map(|s| s.name)
    };
    let rounds: Vec<_> = VOLUMES.iter().map(|volume| newest(volume)).collect();
    assert!(rounds.iter().all(|round| *round == rounds[0]), "{what}: {rounds:?}");
    let round: u32 = rounds[0].as_ref()?.strip_prefix('r').expect("a round").parse().expect("a number");
    for (volume, place) in VOLUMES.iter().zip(0..) {
        let seen = stamp(pool, volume, u64::from(round % 8));
        assert!(
            seen == content(u64::from(round) * 10 + place),
            "{what}: {volume} does not show round {round}"
        );
    }
    Some(round)
}

#[test]
fn all_or_none_wherever_the_power_fails() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7_u64);
    println!("seed {seed}");
    let disk = SimulatedDisk::new("together", 48 << 20);
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    for volume in VOLUMES {
        pool.create_volume(volume, 8 * BLOCK).expect("a volume");
        pool.set_replica(volume, record(volume)).expect("a replica");
    }
    let first_event = disk.events();
    let mut base: Vec<Option<Uuid>> = vec![None; VOLUMES.len()];
    let mut done = vec![(disk.events(), None)];
    for round in 1..=ROUNDS {
        let staged: Vec<StagedVersion> = VOLUMES
            .iter()
            .zip(&base)
            .zip(0..)
            .map(|((volume, base), place)| {
                let staged = pool.stage(volume, *base, 8 * BLOCK, staged_for(round)).expect("staged");
                staged
                    .write(u64::from(round % 8) * BLOCK, &content(u64::from(round) * 10 + place))
                    .expect("a write");
                staged
            })
            .collect();
        if round % 3 == 0 {
            pool.consistency_point().expect("a point");
        }
        let versions: Vec<(&StagedVersion, NewSnapshot)> =
            staged.iter().map(|staged| (staged, new_snapshot(&format!("r{round}"), round))).collect();
        let published = pool.commit_together(&versions).expect("published");
        base = published.iter().map(|snapshot| Some(snapshot.uuid)).collect();
        done.push((disk.events(), Some(round)));
    }
    assert_eq!(shown(&pool, "without a failure"), Some(ROUNDS));
    drop(pool);

    let mut points = disk.sync_points();
    points.retain(|point| *point >= first_event);
    points.push(disk.events());
    points.dedup();
    let mut seen = std::collections::BTreeSet::new();
    for (n, point) in points.iter().enumerate() {
        let until = points.get(n + 1).map_or(*point, |next| next - 1);
        let fates =
            [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(seed ^ (n as u64) << 8)];
        for fate in fates {
            let what = format!("seed {seed}, event {until}, {fate:?}");
            let image = disk.crash_at(until, fate);
            let pool =
                Pool::open(Arc::new(image.clone()), options(1)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let round = shown(&pool, &what);
            let at_least =
                done.iter().rev().find(|(event, _)| *event <= *point).and_then(|(_, round)| *round);
            assert!(round >= at_least, "{what}: {round:?} is shown, and {at_least:?} was answered");
            seen.insert(round);
            drop(pool);
            let report =
                farside_check::check(&image, &farside_check::CheckOptions::default()).expect("it runs");
            assert!(report.is_clean(), "{what}: {report}");
        }
    }
    assert_eq!(seen.len(), ROUNDS as usize + 1, "every round was seen by somebody: {seen:?}");
}

#[test]
fn if_one_is_refused_none_is_published() {
    let disk = SimulatedDisk::new("together", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk), options(5)).expect("a pool");
    for volume in VOLUMES {
        pool.create_volume(volume, 8 * BLOCK).expect("a volume");
        pool.set_replica(volume, record(volume)).expect("a replica");
    }
    let stage = |volume: &str, number: u32| {
        let relationship = record(volume).expect("it has one").relationship;
        let staged_for = farside_store::StagedFor { relationship, ..staged_for(number) };
        pool.stage(volume, None, 8 * BLOCK, staged_for).expect("staged")
    };
    let pinned = |volume: &str, number: u32| NewSnapshot {
        pin_for: Some(record(volume).expect("it has one").relationship),
        ..new_snapshot(&format!("r{number}"), number)
    };
    let (a, b) = (stage("a", 1), stage("b", 1));
    // Broken off in that moment: what it sent ends with it, and with it the moment of the others.
    pool.set_replica("b", record("b").map(|r| ReplicaStatus { broken_off: true, ..r })).expect("broken off");
    let refused = pool.commit_together(&[(&a, pinned("a", 1)), (&b, pinned("b", 1))]);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(pool.snapshots("a").expect("a list").is_empty());
    let twice = pool.commit_together(&[(&a, pinned("a", 1)), (&a, pinned("a", 2))]);
    assert!(matches!(twice, Err(StoreError::Invalid(_))), "{twice:?}");
    let other = Pool::create(Arc::new(SimulatedDisk::new("other", 48 << 20)), options(6)).expect("a pool");
    let elsewhere = other.commit_together(&[(&a, pinned("a", 1))]);
    assert!(matches!(elsewhere, Err(StoreError::Refused(_))), "{elsewhere:?}");
    assert!(pool.commit_together(&[]).expect("nothing to do").is_empty());

    pool.commit_together(&[(&a, pinned("a", 1))]).expect("published");
    assert!(matches!(a.commit(&pinned("a", 2)), Err(StoreError::Refused(_))), "it is published already");
}
