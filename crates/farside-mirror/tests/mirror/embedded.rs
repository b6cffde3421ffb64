//! The same history on the embedded store, over disks that lose and tear what was not synced.

use std::time::Duration;

use farside_engine::{SnapshotOwner, SnapshotSpec, StagedFor};
use farside_link::LinkSettings;
use farside_mirror::{Mirror, Schedule};
use farside_platform::Clock;
use farside_transfer::TransferResult;
use rand::Rng;
use uuid::Uuid;

use crate::embedded_storage::Embedded;
use crate::site::{PATIENCE, Pair, Storage, assert_ok, seeds, slow};

const SIZE: u64 = 8 << 20;

type Sites = Pair<Embedded>;

async fn mirrored(seed: u64, link: LinkSettings) -> (Sites, Mirror) {
    let mut pair = Sites::with_storage(seed, SIZE, link).await;
    pair.scribble(60);
    pair.snapshot("first");
    pair.scribble(10);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
    (pair, mirror)
}

#[tokio::test(start_paused = true)]
async fn a_random_history_of_a_mirror() {
    for seed in seeds(200, 2) {
        let (mut pair, mirror) = mirrored(seed, LinkSettings::default()).await;
        for round in 0..6 {
            let writes = pair.rng.random_range(0..40);
            pair.scribble(writes);
            if pair.rng.random_bool(0.5) {
                pair.snapshot(&format!("s{round}"));
                pair.scribble(5);
            }
            let report = pair.update(&mirror).await;
            assert_ok(&report);
            assert_eq!(report.source_read_bytes, report.changed_bytes);
            pair.check_replica();
        }
        assert!(!pair.b.disk.engine.has_staged(&pair.replica));
        let id = mirror.status().relationship.id;
        for (site, volume) in [(&pair.a, &pair.original), (&pair.b, &pair.replica)] {
            let snapshots = site.disk.engine.engine().snapshots(volume).unwrap();
            assert_eq!(snapshots.iter().filter(|s| s.pinned_by.contains(&id)).count(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_lies_on_a_side_branch_is_neither_overwritten_nor_kept_for_ever() {
    let (mut pair, mirror) = mirrored(205, LinkSettings::default()).await;
    pair.scribble(10);
    let made = pair.snapshot("made");
    assert_ok(&pair.update(&mirror).await);
    // Something publishes a version of its own upon the first one: what came later lies beside the main line now.
    let engine = pair.b.disk.engine.engine();
    let first = engine.snapshots(&pair.replica).unwrap()[0].clone();
    let staged_for = StagedFor { relationship: Uuid::from_u128(8), incremental: Uuid::from_u128(7) };
    let staged = engine.stage(&pair.replica, Some(first.uuid), SIZE, staged_for).unwrap();
    staged.write(0, &[9; 4096]).unwrap();
    let spec = SnapshotSpec {
        name: "own".into(),
        uuid: Uuid::from_u128(7),
        created_at: pair.clock.now(),
        owner: SnapshotOwner::Person,
        pin_for: None,
    };
    staged.commit(&spec).unwrap();
    let id = mirror.status().relationship.id;
    let replica = pair.replica.clone();
    let all = || engine.all_snapshots(&replica).unwrap();
    assert!(all().iter().any(|s| s.uuid == made), "still there, on a side branch");
    assert!(engine.snapshots(&pair.replica).unwrap().iter().all(|s| s.uuid != made));
    // The base lies there too: the update goes on from it, and the main line leads over what the source has.
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
    assert!(engine.snapshots(&pair.replica).unwrap().iter().any(|s| s.uuid == made));
    let own = all().into_iter().find(|s| s.name == "own").expect("what was there of its own stays");
    let mut first_block = [0; 4096];
    engine.read_snapshot(&pair.replica, own.uuid, 0, &mut first_block).unwrap();
    assert_eq!(first_block, [9; 4096]);
    assert_eq!(all().iter().filter(|s| s.pinned_by.contains(&id)).count(), 1);
    pair.b.destination.delete(&pair.replica).await.unwrap();
    assert!(all().iter().all(|s| s.pinned_by.is_empty() && s.owner == SnapshotOwner::Person));
}

#[tokio::test(start_paused = true)]
async fn one_percent_of_a_thin_volume_reads_one_percent() {
    let size = 10u64 << 30;
    let pair = Sites::with_storage(210, 4096, LinkSettings::default()).await;
    // Larger than a model in memory would be: this one looks at figures alone.
    pair.a.disk.engine.resize(&pair.original, size);
    let block = |n: u64, generation: u8| -> Vec<u8> {
        (0..4096u64).map(|i| (n.wrapping_mul(31) + i / 16) as u8 ^ generation | 1).collect()
    };
    let used: Vec<u64> = (0..2000).map(|i| i * (size / 4096 / 2000)).collect();
    for &n in &used {
        pair.a.disk.engine.host_writes(&pair.original, n * 4096, &block(n, 0));
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    let report = mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    // Many of these blocks are alike: what was staged of the first is known when the next are asked for.
    assert_eq!(report.changed_bytes + report.levels.unwrap().known.in_bytes, 2000 * 4096);
    for &n in used.iter().step_by(100) {
        pair.a.disk.engine.host_writes(&pair.original, n * 4096, &block(n, 2));
    }
    let read = || pair.a.disk.engine.pool().counters.read_bytes.load(std::sync::atomic::Ordering::SeqCst);
    let before = read();
    let report = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    assert_eq!((report.changed_bytes, report.source_read_bytes), (20 * 4096, 20 * 4096));
    assert_eq!(
        read() - before,
        report.source_read_bytes + report.base_read_bytes,
        "counted by the store itself"
    );
}

#[tokio::test(start_paused = true)]
async fn a_trim_of_a_thin_volume_costs_the_trim() {
    let size = 1u64 << 40;
    let pair = Sites::with_storage(211, 4096, LinkSettings::default()).await;
    pair.a.disk.engine.resize(&pair.original, size);
    let used: Vec<u64> = (1..1000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36).collect();
    for &block in &used {
        let bytes: Vec<u8> = (0..4096u64).map(|i| (block.wrapping_mul(31) + i / 16) as u8 | 1).collect();
        pair.a.disk.engine.host_writes(&pair.original, block * 4096, &bytes);
    }
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&mirror.initialize(PATIENCE).await.unwrap().ended().await.unwrap());
    let pools = [pair.a.disk.engine.pool(), pair.b.disk.engine.pool()];
    pools.iter().for_each(|pool| pool.consistency_point().unwrap());
    pair.a.disk.engine.host_trims(&pair.original, 0, size);
    let journals = || pools.each_ref().map(|pool| pool.status().journal_used_bytes);
    let before = journals();
    let report = mirror.update(PATIENCE).await.unwrap().ended().await.unwrap();
    assert_ok(&report);
    // What was data is told, not what the trim named; one run of holes travels, in one record at the destination.
    assert_eq!((report.changed_bytes, report.deallocated_bytes), (0, used.len() as u64 * 4096));
    assert!(report.wire_bytes_received < 8 << 10, "{} bytes came", report.wire_bytes_received);
    for (before, after) in before.into_iter().zip(journals()) {
        assert!(after - before <= 64 << 10, "{} bytes of journal", after - before);
    }
    assert!(pools[1].open_volume("r").unwrap().allocation(0, size, 9).unwrap() == [(size, false)]);
}

#[tokio::test(start_paused = true)]
async fn power_fails_at_random_moments() {
    for seed in seeds(220, 6) {
        let (mut pair, mut mirror) = mirrored(seed, slow()).await;
        pair.scribble(60);
        pair.snapshot("second");
        pair.scribble(30);
        // What hosts have not flushed may be lost with their site; what this test compares must not be.
        pair.a.disk.engine.pool().flush().unwrap();
        let asked = mirror.update(PATIENCE).await.unwrap();
        let moment = Duration::from_millis(pair.rng.random_range(0..3000));
        tokio::time::sleep(moment).await;
        println!("power fails after {moment:?}");
        if seed % 3 == 0 {
            pair.crash_a(seed).await;
        } else {
            pair.crash_b(seed).await;
            mirror = pair.b.destination.mirror(&pair.replica).unwrap();
        }
        match tokio::time::timeout(Duration::from_secs(600), asked.ended())
            .await
            .expect("every transfer ends")
        {
            Ok(report) => drop(pair.model.insert(report.id, pair.live.clone())),
            Err(_) => {
                let newest = pair.b.disk.engine.engine().snapshots(&pair.replica).unwrap().pop().unwrap();
                pair.model.entry(newest.uuid).or_insert(pair.live.clone());
            }
        }
        pair.check_replica();
        let report = pair.update(&mirror).await;
        assert_eq!(report.result, TransferResult::Ok, "{:?}", report.reason);
        pair.check_replica();
        assert!(!pair.b.disk.engine.has_staged(&pair.replica));
        // And once more, from what is durable: what was published stays so.
        pair.crash_b(seed + 1000).await;
        let names = pair.check_replica();
        assert!(names.contains(&"second".into()), "{names:?}");
    }
}
