//! A mirror is made or deleted while the destination's database, or its pool, takes no more: all of it comes about, or nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_engine::Engine;
use farside_link::LinkSettings;
use farside_mirror::{Mirror, MirrorError, RelationshipStore, Schedule, State};

use crate::site::{PATIENCE, Pair, assert_ok};

const SIZE: u64 = 1 << 20;

async fn create(pair: &Pair) -> Result<Mirror, MirrorError> {
    let (peer, source, replica) = (pair.a.node.id(), pair.original.clone(), pair.replica.clone());
    pair.b.destination.create(peer, source, replica, Schedule::OnRequest, PATIENCE, true).await
}

fn has_volume(pair: &Pair) -> bool {
    pair.b.disk.engine.volume(&pair.replica).is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_cannot_be_recorded_is_not_made() {
    let mut pair = Pair::new(960, SIZE, LinkSettings::default()).await;
    pair.scribble(3);
    pair.b.database.is_full.store(true, Ordering::SeqCst);
    assert!(create(&pair).await.is_err());
    assert!(!has_volume(&pair), "the volume was made for it");
    // Nor one into an empty volume, which stays what it was.
    pair.b.disk.engine.create_volume(&pair.replica, SIZE).unwrap();
    assert!(create(&pair).await.is_err());
    assert!(!pair.b.disk.engine.volume(&pair.replica).unwrap().is_replica);
    pair.b.database.is_full.store(false, Ordering::SeqCst);
    let mirror = create(&pair).await.unwrap();
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_whose_way_back_cannot_be_recorded_is_not_made_or_says_what_is_missing() {
    let mut pair = Pair::new(961, SIZE, LinkSettings::default()).await;
    pair.scribble(3);
    *pair.b.rights.is_full.lock() = true;
    assert!(create(&pair).await.is_err());
    assert!(!has_volume(&pair) && pair.b.database.relationships().await.unwrap().is_empty());
    // The row stays, as it cannot be removed: then the mirror is there.
    pair.b.database.takes_rows_only.store(true, Ordering::SeqCst);
    let said = create(&pair).await.err().unwrap().to_string();
    assert!(said.contains("is made") && said.contains("peer allow"), "{said}");
    let mirror = pair.b.destination.mirror(&pair.replica).unwrap();
    assert_ok(&pair.initialize(&mirror).await);
    pair.check_replica();
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_recorded_changes_nothing() {
    for is_broken_off in [false, true] {
        let mut pair = Pair::new(962, SIZE, LinkSettings::default()).await;
        pair.scribble(10);
        let mirror = pair.mirror(Schedule::OnRequest).await;
        assert_ok(&pair.initialize(&mirror).await);
        if is_broken_off {
            mirror.break_off(None).await.unwrap();
        }
        let looks = || {
            let engine = &pair.b.disk.engine;
            let snapshots = engine.all_snapshots(&pair.replica).unwrap();
            (format!("{snapshots:?}"), engine.replica_record(&pair.replica).unwrap())
        };
        let before = looks();
        pair.b.database.takes_rows_only.store(true, Ordering::SeqCst);
        assert!(pair.b.destination.delete(&pair.replica).await.is_err());
        assert_eq!(looks(), before, "broken off: {is_broken_off}");
        pair.b.database.takes_rows_only.store(false, Ordering::SeqCst);
        if is_broken_off {
            assert_eq!(mirror.status().state, State::BrokenOff);
        } else {
            assert_ok(&pair.update(&mirror).await);
            pair.check_replica();
        }
        pair.b.destination.delete(&pair.replica).await.unwrap();
        assert!(!pair.b.disk.engine.volume(&pair.replica).unwrap().is_replica);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_pool_refuses_leaves_the_mirror() {
    let mut pair = Pair::new(963, SIZE, LinkSettings::default()).await;
    pair.scribble(10);
    let mirror = pair.mirror(Schedule::OnRequest).await;
    assert_ok(&pair.initialize(&mirror).await);
    pair.b.disk.engine.faults.lock().fails_records = true;
    assert!(pair.b.destination.delete(&pair.replica).await.is_err());
    pair.b.disk.engine.faults.lock().fails_records = false;
    assert_eq!(pair.b.database.relationships().await.unwrap().len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(pair.a.source.destinations().len(), 1, "the source was told nothing");
    pair.scribble(3);
    assert_ok(&pair.update(&mirror).await);
    pair.check_replica();
    pair.b.destination.delete(&pair.replica).await.unwrap();
    while !pair.a.source.destinations().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
