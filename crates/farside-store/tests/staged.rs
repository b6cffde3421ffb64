//! What cut transfers leave in a pool: it is listed with what it takes, and can be thrown away without harm to anything else.

mod sparse;

use std::sync::Arc;

use farside_platform::SimulatedDisk;
use farside_store::{DifferenceKind, Pool, StoreError};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};

fn listed(pool: &Arc<Pool>) -> Vec<(String, u64, bool)> {
    let content = pool.staged_content().expect("listed").into_iter();
    let bytes = |difference: farside_store::Difference| {
        let ranges = difference.map(|range| range.expect("metadata reads"));
        ranges
            .filter(|range| range.kind == DifferenceKind::Data)
            .map(|range| range.count * BLOCK)
            .sum::<u64>()
    };
    content.map(|staged| (staged.volume, bytes(staged.difference), staged.is_building)).collect()
}

#[test]
fn staged_content_is_listed_and_goes_only_while_nobody_builds_it() {
    let disk = SimulatedDisk::new("staged", 48 << 20).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(5)).expect("a pool");
    for volume in ["v", "w"] {
        pool.create_volume(volume, 64 * BLOCK).expect("a volume");
    }
    let first = pool.stage("v", None, 64 * BLOCK, staged_for(1)).expect("staged");
    first.write(0, &content(1)).expect("a staged write");
    let base = first.commit(&new_snapshot("c1", 1)).expect("committed").uuid;
    drop(first);
    assert_eq!(listed(&pool), []);

    let of_v = pool.stage("v", Some(base), 64 * BLOCK, staged_for(2)).expect("staged");
    of_v.write(BLOCK, &content(2)).expect("a staged write");
    let of_w = pool.stage("w", None, 64 * BLOCK, staged_for(3)).expect("staged");
    of_w.write(0, &content(3)).expect("a staged write");
    of_w.write(9 * BLOCK, &content(4)).expect("a staged write");
    drop(of_w);
    // What v's base has is not counted: it stays when this goes.
    assert_eq!(listed(&pool), [("v".into(), BLOCK, true), ("w".into(), 2 * BLOCK, false)]);
    // Another look at it does not count as building once it has ended.
    drop(pool.staged("w").expect("opened"));

    for volume in [Some("v"), None] {
        assert!(matches!(pool.drop_staged(volume), Err(StoreError::Refused(_))), "{volume:?}");
    }
    assert!(matches!(pool.drop_staged(Some("x")), Err(StoreError::NotFound(_))));
    assert_eq!(listed(&pool).len(), 2);
    assert_eq!(pool.drop_staged(Some("w")).expect("dropped"), 1);
    of_v.write(2 * BLOCK, &content(5)).expect("whoever builds the other goes on");
    drop(of_v);

    pool.flush().expect("flushed");
    pool.close().expect("closed");
    drop(pool);
    let pool = Pool::open(Arc::new(disk.clone()), options(5)).expect("it opens");
    assert_eq!(
        listed(&pool),
        [("v".into(), 2 * BLOCK, false)],
        "what was dropped stays so, the other is kept"
    );
    assert_eq!(pool.drop_staged(None).expect("dropped"), 1);
    assert_eq!(pool.drop_staged(None).expect("nothing is left"), 0);
    assert_eq!(listed(&pool), []);
    assert_eq!(pool.snapshots("v").expect("listed").len(), 1, "what was published is untouched");
    pool.close().expect("closed");
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}
