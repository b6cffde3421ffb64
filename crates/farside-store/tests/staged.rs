//! What cut transfers leave in a pool: it is listed with what it takes, and can be thrown away without harm to anything else.

mod sparse;

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use farside_platform::{BlockDevice, DeviceError, SimulatedDisk};
use farside_store::{DifferenceKind, NewSnapshot, Pool, ReplicaStatus, StoreError};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

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

/// A disk that does something of the test's before it syncs, once.
struct AtSync {
    disk: SimulatedDisk,
    next: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for AtSync {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let next = self.next.lock().expect("nothing panicked").take();
        if let Some(next) = next {
            next();
        }
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}

fn pool_with_syncs() -> (Arc<AtSync>, Arc<Pool>) {
    let disk = SimulatedDisk::new("staged", 48 << 20).without_history();
    let device = Arc::new(AtSync { disk, next: Mutex::default() });
    let pool = Pool::create(device.clone(), options(5)).expect("a pool");
    for volume in ["v", "w"] {
        pool.create_volume(volume, 64 * BLOCK).expect("a volume");
    }
    (device, pool)
}

/// A transfer that is still being written down as begun is one that runs.
#[test]
fn what_is_just_being_staged_is_not_dropped() {
    let (device, pool) = pool_with_syncs();
    let (answer, answered) = mpsc::channel();
    let (told, tells) = mpsc::channel();
    let other = pool.clone();
    *device.next.lock().expect("nothing panicked") = Some(Box::new(move || {
        std::thread::spawn(move || answer.send(other.drop_staged(None)).expect("somebody listens"));
        // Refused at once; whoever drops it would wait for this very sync.
        told.send(answered.recv_timeout(Duration::from_secs(20)).ok()).expect("somebody listens");
    }));
    let staged = pool.stage("v", None, 64 * BLOCK, staged_for(1)).expect("staged");
    let dropped = tells.recv().expect("the hook ran");
    assert!(matches!(dropped, Some(Err(StoreError::Refused(_)))), "{dropped:?}");
    staged.write(0, &content(1)).expect("it is there");
}

/// A transfer that begins while staged content goes keeps its own; what had gone before is told.
#[test]
fn what_was_dropped_before_a_transfer_began_is_told() {
    let (device, pool) = pool_with_syncs();
    for volume in ["v", "w"] {
        drop(pool.stage(volume, None, 64 * BLOCK, staged_for(1)).expect("staged"));
    }
    let begun = Arc::new(Mutex::new(None));
    let (other, keeps) = (pool.clone(), begun.clone());
    *device.next.lock().expect("nothing panicked") = Some(Box::new(move || {
        *keeps.lock().expect("nothing panicked") = Some(other.staged("w").expect("found"));
    }));
    assert_eq!(pool.drop_staged(None).expect("one of them"), 1);
    assert_eq!(pool.staged("v").expect("listed").len(), 0);
    assert_eq!(pool.staged("w").expect("listed").len(), 1);
    begun.lock().expect("nothing panicked").take();
    assert_eq!(pool.drop_staged(None).expect("the other"), 1);
}

/// What a mirror sends is published only while the volume is that mirror's replica, in the moment of publishing.
#[test]
fn what_a_mirror_staged_ends_with_the_mirror() {
    let (_, pool) = pool_with_syncs();
    let ours = staged_for(1).relationship;
    let record = |relationship: Uuid, broken_off: bool| ReplicaStatus {
        relationship,
        peer: [7; 32],
        source: "pool/v".into(),
        broken_off,
    };
    let staged = pool.stage("v", None, 64 * BLOCK, staged_for(1)).expect("staged");
    staged.write(0, &content(1)).expect("a staged write");
    let pinned = |number| NewSnapshot { pin_for: Some(ours), ..new_snapshot(&format!("c{number}"), number) };
    for replica in [None, Some(record(ours, true)), Some(record(Uuid::from_u128(9), false))] {
        pool.set_replica("v", replica.clone()).expect("set");
        let refused = staged.commit(&pinned(1));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{replica:?}: {refused:?}");
        assert_eq!(pool.snapshots("v").expect("listed").len(), 0);
    }
    pool.set_replica("v", Some(record(ours, false))).expect("set");
    let foreign = NewSnapshot { pin_for: Some(Uuid::from_u128(9)), ..new_snapshot("c1", 1) };
    assert!(matches!(staged.commit(&foreign), Err(StoreError::Refused(_))));
    staged.commit(&pinned(1)).expect("published");
    assert_eq!(pool.snapshot_named("v", "c1").expect("there").pinned_by, [ours]);

    // Nor into another volume of the same name.
    let staged = pool.stage("w", None, 64 * BLOCK, staged_for(2)).expect("staged");
    pool.rename_volume("w", "x").expect("renamed");
    pool.create_volume("w", 64 * BLOCK).expect("a volume");
    assert!(matches!(staged.commit(&new_snapshot("c2", 2)), Err(StoreError::Refused(_))));
}
